package tests

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// killer ends processes of one copy of the program.
type killer struct {
	*user
	exe string
	rng *rand.Rand
}

func newKiller(t *testing.T, seed uint64) *killer {
	t.Helper()
	k := &killer{user: newUser(t), rng: rand.New(rand.NewPCG(seed, 0))}
	// By its path all its processes are told from those of other tests.
	k.exe = filepath.Join(k.dir, "killed")
	copyProgram(t, k.bin, k.exe)
	k.bin = k.exe
	return k
}

// processes are those that run the copy now.
func (k *killer) processes() []int {
	k.t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		k.t.Fatal(err)
	}
	var found []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if exe, err := os.Readlink(filepath.Join("/proc", e.Name(), "exe")); err == nil && exe == k.exe {
			found = append(found, pid)
		}
	}
	return found
}

// wait waits until what is true, or the test fails.
func (k *killer) wait(what string, ok func() bool) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			k.t.Fatalf("%s: %v", what, context.Cause(ctx))
		}
	}
}

// Who is killed.
const (
	hostAlone = iota
	pluginAlone
	hostAndPlugin
)

// kill starts a command and kills who is given after the delay. It reports
// whether there was anybody to kill, and the command's exit status: -1 if it did
// not come to its own end.
func (k *killer) kill(who int, delay time.Duration, args ...string) (inFlight bool, exit int) {
	k.t.Helper()
	cmd := k.command(args...)
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	host := cmd.Process.Pid
	if who == pluginAlone {
		// The plugin is there for the middle part of a command only.
		k.wait("a plugin, or the end of the command", func() bool {
			return len(ended) > 0 || slices.ContainsFunc(k.processes(), func(pid int) bool { return pid != host })
		})
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case err := <-ended:
		return false, k.exit(err)
	case <-timer.C:
	}
	hit := false
	for _, pid := range k.processes() {
		if (pid == host) == (who == pluginAlone) && who != hostAndPlugin {
			continue
		}
		if syscall.Kill(pid, syscall.SIGKILL) == nil {
			hit = true
		}
	}
	return hit, k.exit(<-ended)
}

// listed is a line of a list in JSON.
type listed struct{ ID, Name string }

func (k *killer) list(args ...string) []listed {
	k.t.Helper()
	var all []listed
	k.answer(&all, args...)
	return all
}

// temps are the temp files in the home.
func (k *killer) temps() []string {
	k.t.Helper()
	var found []string
	err := filepath.WalkDir(k.home, func(name string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(name, ".tmp") {
			found = append(found, name)
		}
		return err
	})
	if err != nil {
		k.t.Fatal(err)
	}
	return found
}

// sweep makes the program start as if its last sweeps were long ago: it makes up
// for them, and no temp file is left.
func (k *killer) sweep() {
	k.t.Helper()
	for _, name := range []string{"agents/main/sessions/.prune.json", "sessions/.swept"} {
		if err := os.RemoveAll(filepath.Join(k.home, filepath.FromSlash(name))); err != nil {
			k.t.Fatal(err)
		}
	}
	k.do("chat", "--message", "and sweep")
	k.do("save", "swept")
	if left := k.temps(); len(left) > 0 {
		k.t.Errorf("temp files after a sweep: %v", left)
	}
}

// S4-87: whenever host, plugin or both are killed: no process is left, the next
// command works without anybody's help, every snapshot is whole, and every turn
// that had ended is in a session or a snapshot.
func TestKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	rounds := 20
	if testing.Short() {
		rounds = 8
	}
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("TESTS_KILL_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("TESTS_KILL_SEED=%d", seed)
	k := newKiller(t, seed)
	k.configure(`{"autoSave": true}`)
	mark := func(n int) string { return fmt.Sprintf("mark-%03d.", n) }
	k.do("chat", "--message", mark(0)+" "+strings.Repeat("A conversation that fills a chunk or two. ", 3000))
	k.do("save", "kept")
	k.do("chat", "--message", mark(1))
	k.do("save", "victim")
	started := time.Now()
	k.do("save", "timed")
	usual := time.Since(started)

	operations := []func(round int) []string{
		func(int) []string { return []string{"chat", "--message", "slow 20 4ms"} },
		func(n int) []string { return []string{"chat", "--message", fmt.Sprint("and a quick one ", n)} },
		func(n int) []string { return []string{"save", fmt.Sprint("s", n)} },
		func(int) []string { return []string{"save", "timed", "--overwrite"} },
		func(int) []string { return []string{"load", "kept"} },
		func(int) []string { return []string{"new"} },
		func(int) []string { return []string{"undo"} },
		func(int) []string { return []string{"redo"} },
		func(int) []string { return []string{"delete", "victim"} },
		func(int) []string { return []string{"messages", "delete", "-1"} },
		func(int) []string { return []string{"prune", "--keep=2"} },
		func(int) []string { return []string{"copy", "kept", "victim", "--overwrite"} },
		func(int) []string { return []string{"rename", "victim", "timed", "--overwrite"} },
	}
	victims := []string{hostAlone: "the host", pluginAlone: "the plugin", hostAndPlugin: "both"}
	order := k.rng.Perm(len(operations))
	inFlight := map[int]int{}
	for n := range rounds {
		args := operations[order[n%len(order)]](n)
		who := (n + n/len(operations)) % 3
		delay := time.Duration(k.rng.Int64N(int64(usual)))
		for range 5 {
			hit, exit := k.kill(who, delay, args...)
			t.Logf("round %d: %v, %s killed after %v: in flight %t, exit %d", n, args, victims[who], delay, hit, exit)
			if hit {
				inFlight[who]++
				break
			}
			delay /= 2 // this time it was too late
		}
		k.wait("the end of all processes", func() bool { return len(k.processes()) == 0 })

		k.do("chat", "--message", mark(n+2))
		k.do("save", "tip", "--overwrite")
		k.do("verify") // reads every snapshot whole
	}
	for who, name := range victims {
		if inFlight[who] < rounds/6 {
			t.Errorf("%s was at work when killed in %d of %d rounds: too few to tell anything", name, inFlight[who], rounds)
		}
	}

	k.sweep()

	// All that was said is in a session, a snapshot or the trash.
	var all strings.Builder
	for _, s := range k.list("sessions", "list") {
		all.WriteString(k.do("sessions", "show", s.ID, "--json"))
	}
	for i, e := range k.list("trash", "list") {
		k.do("trash", "restore", e.ID, fmt.Sprintf("--as=restored-%d", i))
	}
	names := k.list("list", "--include-auto")
	slices.Reverse(names) // what this test loads is not the newest
	for _, e := range names {
		k.do("load", e.Name, "--no-backup")
		all.WriteString(k.do("sessions", "show", "--json"))
	}
	said := all.String()
	for n := range rounds + 2 {
		if !strings.Contains(said, mark(n)) {
			t.Errorf("%s is lost", mark(n))
		}
	}
}

// A plugin that was stopped does not outlive a host that is told to end. When
// the host is killed it stands in nobody's way, and ends as soon as it goes on.
func TestStoppedPluginEndsWithItsHost(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			k := newKiller(t, 0)
			host := k.command("chat")
			in, err := host.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			pipe, err := host.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			out := bufio.NewReader(pipe)
			if err := host.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(in, "/sess list\n"); err != nil {
				t.Fatal(err)
			}
			// Its answer is what shows that the plugin is up, and no longer the
			// host's own image between fork and exec.
			if _, err := out.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			plugin := 0
			for _, pid := range k.processes() {
				if pid != host.Process.Pid {
					plugin = pid
				}
			}
			if plugin == 0 {
				t.Fatal("the command was answered, and there is no plugin process")
			}
			if err := syscall.Kill(plugin, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(in, "/sess list\n"); err != nil {
				t.Fatal(err)
			}
			if err := host.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			_ = host.Wait() // how it ends is not the point here
			k.do("chat", "--message", "hello")
			k.do("save", "v1")
			if sig == syscall.SIGKILL {
				_ = syscall.Kill(plugin, syscall.SIGCONT) // where the system has not done so
			}
			k.wait("the end of all processes", func() bool { return len(k.processes()) == 0 })
		})
	}
}
