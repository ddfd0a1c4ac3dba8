package tests

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sess/store/session"
	"sess/store/snapshot"
	"sess/store/transcript"
)

// talker is somebody who talks in a chat without a break: turns, saves, loads
// and prunes, each as soon as the last is answered.
type talker struct {
	*killer
	session string
	rng     *rand.Rand
	pause   *sync.RWMutex // held shared during a line: who holds it exclusively has everybody quiet

	host   *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr *bytes.Buffer
	ended  chan struct{} // closed when the chat gives no more answers

	mu       sync.Mutex // guards what follows
	doing    string     // the line that is not answered yet
	sent     int
	answered int
	struck   bool     // a process was killed during the line
	maimed   bool     // the plugin was killed: also the next line can come before the host knows
	outcome  string   // of the line that was struck last
	finished []string // marks of turns whose answers were read
	saved    []string // names
}

// start begins a chat and lets it talk until it ends.
func (w *talker) start() {
	w.t.Helper()
	w.host = w.command("chat", "--session", w.session)
	in, err1 := w.host.StdinPipe()
	out, err2 := w.host.StdoutPipe()
	w.stderr = new(bytes.Buffer)
	w.host.Stderr = w.stderr
	if err := errors.Join(err1, err2, w.host.Start()); err != nil {
		w.t.Fatal(err)
	}
	w.in, w.out, w.ended = in, bufio.NewReader(out), make(chan struct{})
	w.mu.Lock()
	w.answered, w.sent, w.struck, w.maimed = 0, 0, false, false
	w.mu.Unlock()
	go func() {
		defer close(w.ended)
		for w.next() {
		}
	}()
}

// line is what is said next, and the mark of it if it is a turn.
func (w *talker) line() (text, mark string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent++
	switch n := w.rng.IntN(10); {
	case n < 3 || len(w.saved) == 0 && n > 5:
		mark = fmt.Sprintf("mark-%s-%d-%d.", w.session, w.host.Process.Pid, w.sent)
		return mark + " is what I say", mark
	case n < 4:
		return "slow 8 2ms", ""
	case n < 6:
		return fmt.Sprintf("/sess save %s-%d-%d --json", w.session, w.host.Process.Pid, w.sent), ""
	case n < 7:
		return "/sess save shared --overwrite --json", ""
	case n < 8:
		return fmt.Sprintf("/sess load %s --json", w.saved[w.rng.IntN(len(w.saved))]), ""
	case n < 9:
		return "/sess load shared --json", ""
	}
	return "/sess prune --keep=2 --json", ""
}

// next says one line and waits for its answer; false when there was none.
func (w *talker) next() bool {
	w.pause.RLock()
	defer w.pause.RUnlock()
	text, mark := w.line()
	w.mu.Lock()
	w.doing = text
	w.mu.Unlock()
	_, err := io.WriteString(w.in, text+"\n")
	answer := ""
	if err == nil {
		answer, err = w.out.ReadString('\n')
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	struck := w.struck
	w.struck, w.doing = false, ""
	if err != nil {
		w.outcome = "no answer"
		return false
	}
	w.answered++
	var failure struct{ Error, Code string }
	if strings.HasPrefix(text, "/") {
		if err := json.Unmarshal([]byte(answer), &failure); err != nil {
			w.t.Errorf("%s: %v: %s", text, err, answer)
		}
	}
	if struck {
		w.outcome = cmp.Or(failure.Code, "done")
	}
	switch {
	case failure.Code == "unavailable" && (struck || w.maimed):
	case failure.Code != "":
		w.t.Errorf("%s: %s", text, answer)
	case mark != "":
		w.finished = append(w.finished, mark)
	case strings.HasPrefix(text, "/sess save "+w.session):
		w.saved = append(w.saved, strings.Fields(text)[2])
	}
	return true
}

// plugin is the process of the chat's plugin, or 0.
func (w *talker) plugin() int {
	for _, pid := range w.processes() {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // it ended
		}
		// The name in parentheses may hold anything; state and parent follow it.
		_, rest, _ := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(w.host.Process.Pid) {
			return pid
		}
	}
	return 0
}

// kind is the sort of line.
func kind(line string) string {
	if words := strings.Fields(line); len(words) > 1 && words[0] == "/sess" {
		return words[1]
	}
	return "turn"
}

// stop ends the chat in order.
func (w *talker) stop() {
	w.t.Helper()
	if err := w.in.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		w.t.Error(err)
	}
	<-w.ended
	if exit := w.exit(w.host.Wait()); exit == -1 {
		w.t.Errorf("a chat that was not killed ended with status %d: %s", exit, w.stderr)
	}
}

// everything is all that is kept in a home: what was said in sessions, in
// snapshots and in the trash. It reports what is damaged.
func (k *killer) everything() string {
	k.t.Helper()
	var all strings.Builder
	text := func(what string, doc *transcript.Document, load transcript.Loader) {
		l := doc.List(transcript.ListMessages)
		for r, err := range l.All(load, 0, l.Records) {
			if err != nil {
				k.t.Errorf("%s: %v", what, err)
				return
			}
			all.Write(r)
		}
	}
	store, err := session.Open(filepath.Join(k.home, "sessions"), session.Options{})
	if err != nil {
		k.t.Fatal(err)
	}
	defer store.Close()
	sessions, err := store.List(k.t.Context())
	if err != nil {
		k.t.Fatal(err)
	}
	for _, info := range sessions {
		live, err := store.Read(k.t.Context(), info.Ref)
		if err != nil {
			k.t.Errorf("session %s: %v", info.Ref, err)
			continue
		}
		text(info.Ref.String(), &live.Doc, store.Plain)
	}
	pool, err := snapshot.Open(filepath.Join(k.home, "agents", "main", "sessions"), snapshot.Options{})
	if err != nil {
		k.t.Fatal(err)
	}
	defer pool.Close()
	list, err1 := pool.List(k.t.Context())
	trash, err2 := pool.ListTrash(k.t.Context())
	if err := errors.Join(err1, err2); err != nil {
		k.t.Fatal(err)
	}
	for _, t := range trash {
		list = append(list, t.Entry)
	}
	for _, e := range list {
		data, err := os.ReadFile(e.File)
		if err != nil {
			k.t.Error(err)
			continue
		}
		doc, err := transcript.Decode(data)
		if err != nil {
			k.t.Errorf("%s: %v", e.File, err)
			continue
		}
		text(e.File, doc, pool.Plain)
	}
	return all.String()
}

// verify checks every snapshot, whole.
func (k *killer) verify() {
	k.t.Helper()
	pool, err := snapshot.Open(filepath.Join(k.home, "agents", "main", "sessions"), snapshot.Options{})
	if err != nil {
		k.t.Fatal(err)
	}
	defer pool.Close()
	report, err := pool.Verify(k.t.Context(), nil, nil)
	if err != nil || len(report.Problems) > 0 {
		k.t.Errorf("verify: %+v, %v", report.Problems, err)
	}
}

// Three chats work on one pool at once, each in a session of its own: turns with
// autosaves, saves, loads and prunes. At random moments a host, a plugin or both
// are killed in the middle of what they do. The others do not notice; every
// snapshot stays whole; every turn that had ended is in a session, a snapshot or
// the trash; no process is left, and no lock stands in the way. TESTS_KILL_ROUNDS
// in the environment says how often, TESTS_KILL_SEED repeats what was done.
func TestKilledInAMix(t *testing.T) {
	t.Parallel()
	rounds := 20
	if testing.Short() {
		rounds = 6
	}
	seed := uint64(time.Now().UnixNano())
	for name, set := range map[string]func(n uint64){
		"TESTS_KILL_ROUNDS": func(n uint64) { rounds = int(n) },
		"TESTS_KILL_SEED":   func(n uint64) { seed = n },
	} {
		if text := os.Getenv(name); text != "" {
			n, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			set(n)
		}
	}
	t.Logf("TESTS_KILL_SEED=%d", seed)
	k := newKiller(t, seed)
	k.configure(`{"autoSave": true, "maxSnapshots": 0}`)
	var pause sync.RWMutex
	talkers := make([]*talker, 3)
	for i := range talkers {
		var answer struct{ Data struct{ Session string } }
		k.answer(&answer, "new")
		made := answer.Data
		words := make([]string, 8000)
		for i := range words {
			words[i] = strconv.Itoa(k.rng.IntN(1e6))
		}
		k.doWith(strings.Join(words, " ")+"\n", "chat", "--session", made.Session) // a chunk or two
		talkers[i] = &talker{killer: k, session: made.Session, rng: rand.New(rand.NewPCG(seed, uint64(i+1))), pause: &pause}
	}
	k.do("save", "shared")
	for _, w := range talkers {
		w.start()
	}

	victims := []string{hostAlone: "host", pluginAlone: "plugin", hostAndPlugin: "both"}
	hits, misses, distribution := 0, 0, map[string]int{}
	for hits < rounds {
		if misses > 2*rounds {
			t.Fatalf("of %d blows %d fell between two changes", hits+misses, misses)
		}
		n, w, who := hits+misses, talkers[k.rng.IntN(len(talkers))], hits%len(victims)
		var plugin int
		k.wait("a chat that is at work, with its plugin", func() bool {
			select {
			case <-w.ended:
				t.Fatalf("round %d: the chat has ended: %s", n, w.stderr)
			default:
			}
			// Turns need none, so it may be just becoming one.
			if plugin = w.plugin(); plugin == 0 {
				return false
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			// A turn is the host's affair; the plugin saves the last one at most.
			return w.answered > 3 && (who != pluginAlone || kind(w.doing) != "turn")
		})
		<-time.After(time.Duration(k.rng.Int64N(int64(10 * time.Millisecond)))) // any moment will do

		w.mu.Lock() // until the blow has fallen no answer is taken for one
		doing, answered := w.doing, w.answered
		w.struck, w.maimed, w.outcome = doing != "", who == pluginAlone, "between two lines"
		for _, pid := range map[int][]int{hostAlone: {w.host.Process.Pid}, pluginAlone: {plugin}, hostAndPlugin: {plugin, w.host.Process.Pid}}[who] {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Errorf("round %d: kill the %s: %v", n, victims[who], err)
			}
		}
		w.mu.Unlock()
		if who != pluginAlone {
			<-w.ended
			if exit := k.exit(w.host.Wait()); exit != -1 {
				t.Errorf("round %d: a killed host ended with status %d", n, exit)
			}
		} else {
			k.wait("an answer", func() bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				return doing == "" || w.answered > answered
			})
		}
		k.wait("the end of the plugin", func() bool { return !slices.Contains(k.processes(), plugin) })

		pause.Lock() // everybody is between two lines
		w.mu.Lock()
		outcome := w.outcome
		w.mu.Unlock()
		if outcome == "no answer" || outcome == "unavailable" {
			hits++
		} else {
			misses++
		}
		distribution[fmt.Sprintf("%-6s %-5s %s", victims[who], kind(doing), outcome)]++
		k.verify()
		pause.Unlock()
		// A plugin that ends too often is not started again; that is tested
		// elsewhere, so the host gets a fresh one.
		if who == pluginAlone {
			w.stop()
		}
		w.start()
	}
	for _, w := range talkers {
		w.stop()
	}
	k.wait("the end of all processes", func() bool { return len(k.processes()) == 0 })
	for _, key := range slices.Sorted(maps.Keys(distribution)) {
		t.Logf("%s: %d", key, distribution[key])
	}
	t.Logf("%d killed in the middle of a change, %d between two", hits, misses)

	said, turns := k.everything(), 0
	for _, w := range talkers {
		for _, mark := range w.finished {
			if turns++; !strings.Contains(said, mark) {
				t.Errorf("a turn that had ended is lost: %s", mark)
			}
		}
	}
	t.Logf("%d turns had ended", turns)
	names := k.names("--include-auto")
	slices.Reverse(names) // the newest equals what is live
	var loads strings.Builder
	for _, name := range names {
		fmt.Fprintf(&loads, "/sess load %s --no-backup\n", name)
	}
	k.doWith(loads.String(), "chat", "--session", talkers[0].session)
	k.sweep()
	k.do("verify")
}
