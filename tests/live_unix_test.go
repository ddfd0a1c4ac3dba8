//go:build unix

package tests

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// autosaved are the messages of the automatic snapshot of the active project.
func (u *user) autosaved() []string {
	u.t.Helper()
	var view struct{ Messages []struct{ Content string } }
	u.answer(&view, "view", "autosave~", "--limit=1000")
	var all []string
	for _, m := range view.Messages {
		all = append(all, m.Content)
	}
	return all
}

// Whatever signal ends the gateway right after the last of many quick turns, all
// of them are in the session, and after those that let it end in order in the
// automatic snapshot, too; the gateway is gone within 5 seconds.
func TestSignalAfterQuickTurns(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			const turns = 20
			u := newUser(t)
			u.configure(`{"autoSave": true}`)
			g := u.gateway()
			a := g.asker()
			a.must(t, "POST", "/sessions", map[string]any{"id": "s1"}, nil)
			var want []string
			for i := range turns {
				text := fmt.Sprintf("turn %d", i)
				want = append(want, text, a.say(t, "s1", text).Message.Content)
			}
			g.endBy(sig)
			if got := u.messages("s1"); !slices.Equal(got, want) {
				t.Errorf("the session has %d messages, want %d:\n%q", len(got), len(want), got)
			}
			if sig != syscall.SIGKILL {
				if got := u.autosaved(); !slices.Equal(got, want) {
					t.Errorf("the automatic snapshot has %d messages, want %d", len(got), len(want))
				}
			}
			u.wholeLogs("s1", turns)
		})
	}
}

// endBy ends the gateway by a signal, which has to do it within 5 seconds.
func (g *gateway) endBy(sig syscall.Signal) {
	g.t.Helper()
	started := time.Now()
	if err := g.cmd.Process.Signal(sig); err != nil {
		g.t.Fatal(err)
	}
	exit := g.end()
	if took := time.Since(started); took > 5*time.Second {
		g.t.Errorf("the gateway took %v to end", took)
	}
	if want := map[bool]int{true: -1}[sig == syscall.SIGKILL]; exit != want || g.stderr.Len() > 0 {
		g.t.Errorf("the gateway ended with status %d, want %d: %s", exit, want, &g.stderr)
	}
}

// wholeLogs checks the event logs of a session: as many as turns, all lines whole.
func (u *user) wholeLogs(session string, turns int) {
	u.t.Helper()
	logs, err := filepath.Glob(filepath.Join(u.home, "sessions", "default", session, "turn-*.jsonl"))
	if err != nil || len(logs) != turns {
		u.t.Errorf("%d event logs (%v), want %d", len(logs), err, turns)
	}
	for _, name := range logs {
		data, err := os.ReadFile(name)
		if err != nil {
			u.t.Fatal(err)
		}
		lines := strings.SplitAfter(string(data), "\n")
		if last := lines[len(lines)-1]; last != "" {
			u.t.Errorf("%s ends with %q, which is no line", filepath.Base(name), last)
		}
		for _, line := range lines[:len(lines)-1] {
			if !json.Valid([]byte(line)) {
				u.t.Errorf("%s has the line %q", filepath.Base(name), line)
			}
		}
	}
}

// A signal in a turn keeps what came of the answer, also in the automatic
// snapshot, and the client is told; the next gateway goes on from there.
func TestSignalInALiveTurn(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			u := newUser(t)
			u.configure(`{"autoSave": true}`)
			g := u.gateway()
			a := g.asker()
			a.must(t, "POST", "/sessions", map[string]any{"id": "s1"}, nil)
			sends := a.open(t, "POST", "/sessions/s1/messages", sayThis{Content: "slow 100000 1ms"})
			heard := newHearing(sends)
			waitFor(t, "some of the answer", func() bool { return len(heard.text()) > 50 })
			g.endBy(sig)
			events := heard.end()
			if sig != syscall.SIGKILL && !strings.Contains(kindsOf(events), "run_cancelled turn_end") {
				t.Errorf("the client saw %s", kindsOf(events))
			}
			if last := events[len(events)-1]; sig != syscall.SIGKILL && (last.Kind != "error" || last.field(t, "code") != "unavailable") {
				t.Errorf("the client was told %s %s at the end", last.Kind, last.Data)
			}
			a = u.gateway().asker()
			p := a.page(t, "s1", "")
			if len(p.Messages) != 2 || !strings.HasPrefix(p.Messages[1].Content, heard.text()) {
				t.Fatalf("the client had %d bytes of the answer; stored is %+v", len(heard.text()), p)
			}
			if sig != syscall.SIGKILL {
				if got := u.autosaved(); !slices.Equal(got, p.contents()) {
					t.Errorf("the automatic snapshot has %q, want %q", got, p.contents())
				}
			}
			if answer := a.say(t, "s1", "go on"); !strings.Contains(answer.Message.Content, "2 messages from you") {
				t.Errorf("the next turn: %+v", answer)
			}
		})
	}
}

// hearing reads a stream in the background, so that its client has all that was
// sent whenever the other side dies.
type hearing struct {
	done chan struct{}

	mu     sync.Mutex // guards what follows
	events []event
	said   strings.Builder
}

func newHearing(s *sse) *hearing {
	h := &hearing{done: make(chan struct{})}
	go func() {
		defer close(h.done)
		for {
			e, err := s.next()
			if err != nil {
				return
			}
			var data struct{ Text string }
			_ = json.Unmarshal(e.Data, &data) // what is no text has none
			h.mu.Lock()
			h.events = append(h.events, e)
			if e.Kind == "text_delta" {
				h.said.WriteString(data.Text)
			}
			h.mu.Unlock()
		}
	}()
	return h
}

// text is what was said until now.
func (h *hearing) text() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.said.String()
}

// end waits for the end of the stream and returns all events.
func (h *hearing) end() []event {
	<-h.done
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.events
}

// S1-11, S3-05, S3-65: whenever the gateway is killed while a conversation goes on,
// the session can be read, every turn that had ended is in it, and so is what the
// client had received of the one that had not. TESTS_KILL_ROUNDS in the environment
// says how often, TESTS_KILL_SEED repeats what was done.
func TestLiveGatewayKilled(t *testing.T) {
	t.Parallel()
	rounds, seed := 4, uint64(time.Now().UnixNano())
	if text := os.Getenv("TESTS_KILL_ROUNDS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		rounds = n
	}
	if text := os.Getenv("TESTS_KILL_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	t.Logf("TESTS_KILL_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	u := newUser(t)
	u.configure(`{"autoSave": true}`)
	var want []string       // the messages that have to be there, in their order
	met := map[string]int{} // what the kills met
	for round := range rounds {
		g := u.gateway()
		a := g.asker()
		if round == 0 {
			a.must(t, "POST", "/sessions", map[string]any{"id": "s1"}, nil)
		}
		kill := time.AfterFunc(time.Duration(rng.IntN(250))*time.Millisecond, func() { _ = g.cmd.Process.Kill() })
		var sent, heard string
		for n := 0; ; n++ {
			sent = fmt.Sprintf("slow %d 1ms", 1+rng.IntN(60))
			s, ok := a.tryOpen(t, "/sessions/s1/messages", sayThis{Content: sent})
			if !ok {
				sent = "" // whether it came is not known
				break
			}
			h := newHearing(s)
			events := h.end()
			heard = h.text()
			if len(events) == 0 || events[len(events)-1].Kind != "turn_end" {
				break
			}
			want = append(want, sent, heard)
		}
		kill.Stop()
		_ = g.cmd.Wait()

		a = u.gateway().asker()
		p := a.page(t, "s1", "?limit=1000")
		for p.First > 0 {
			older := a.page(t, "s1", fmt.Sprintf("?limit=1000&before=%d", p.First))
			p.Messages, p.First = append(older.Messages, p.Messages...), older.First
		}
		got := p.contents()
		if len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
			t.Fatalf("round %d: of %d messages that were told to be there, the session has %d:\n%q", round, len(want), len(got), got[max(0, len(got)-4):])
		}
		switch rest := got[len(want):]; {
		case heard != "" && sent != "" && (len(rest) != 2 || rest[0] != sent || !strings.HasPrefix(rest[1], heard)):
			t.Fatalf("round %d: the client had %q of the answer to %q; the session ends with %q", round, heard, sent, rest)
		case len(rest) > 2:
			t.Fatalf("round %d: the session ends with %q, which nobody sent", round, rest)
		case heard != "" && sent != "":
			met["an answer"]++
		case sent != "":
			met["a turn before its first words"]++
		default:
			met["no turn"]++
		}
		// What is there now has to stay.
		want = got
		u.do("gateway", "stop")
	}
	t.Logf("%d rounds, %d messages; the kills met %v", rounds, len(want), met)
	if problems, _, exit := u.run("verify"); exit != 0 {
		t.Errorf("verify: %s", problems)
	}
}

// S1-05: a turn in another process keeps the session: who sends meanwhile is told who.
func TestBusyElsewhere(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	a := u.gateway().asker()
	turn, rest := u.answering()
	var s struct{ ID string }
	u.answer(&s, "sessions", "show")
	for _, path := range []string{"/messages", "/cancel"} {
		var body any
		if path == "/messages" {
			body = sayThis{Content: "me too"}
		}
		if r := a.refused(t, 409, "busy", "POST", "/sessions/"+s.ID+path, body); !strings.Contains(r.Text, fmt.Sprint(turn.Process.Pid)) || r.Hint == "" {
			t.Errorf("%s: %+v does not say that process %d has the session", path, r, turn.Process.Pid)
		}
	}
	var info struct{ Running bool }
	if a.must(t, "GET", "/sessions/"+s.ID, nil, &info); !info.Running {
		t.Error("the session is said to be idle")
	}
	if err := turn.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	rest()
	_ = turn.Wait() // it was interrupted
	a.say(t, s.ID, "and now")
}
