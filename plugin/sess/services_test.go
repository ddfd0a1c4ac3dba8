package sess_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sess/plugin"
	"sess/plugin/sess"
)

func (w *world) turnEnded() []string {
	w.Helper()
	notices, err := w.plugin.Notify(w.Context(), plugin.Event{
		Kind: plugin.EventTurnEnded, Agent: "main", Project: w.ref.Project, Session: w.ref.ID, Turn: "t1",
	})
	if err != nil {
		w.Fatalf("Notify: %v", err)
	}
	return notices
}

func TestAutosave(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{"autoSave":true}`)
	if notices := w.turnEnded(); notices != nil {
		t.Errorf("notices %q, want none", notices)
	}
	first := w.list("autosave~")
	if first.Messages != 10 || first.Trigger != "autosave" || !first.Automatic {
		t.Errorf("the autosave is %+v", first)
	}
	w.say(w.ref, "more", 2)
	w.turnEnded()
	if m := w.list("autosave~"); m.Messages != 12 || len(w.names()) != 1 {
		t.Errorf("after the next turn: %+v of %v", m, w.names())
	}
	w.says("the trash is empty", "trash", "list")
	w.refused(plugin.NotFound, "undo")

	// What is there already is not written again, as where turns were told late and
	// the first save has what the others said.
	before := w.list("autosave~")
	w.add(time.Hour)
	w.turnEnded()
	if again := w.list("autosave~"); again.UpdatedAt != before.UpdatedAt {
		t.Errorf("an autosave of nothing new is of %v, want still %v", again.UpdatedAt, before.UpdatedAt)
	}

	// An empty session is never saved, and a shorter one keeps the longer.
	w.ref = w.session("default", "s2", 0)
	w.turnEnded()
	if m := w.list("autosave~"); m.SessionID != "s1" {
		t.Errorf("an empty session was saved: %+v", m)
	}
	w.say(w.ref, "other", 1)
	w.turnEnded()
	if got := w.do("trash", "list").Text; !strings.Contains(got, "autosave~") {
		t.Errorf("the longer autosave of another session is not in the trash:\n%s", got)
	}
}

// What the plugin does without being called is told to those who follow a host
// that stays.
func TestOwnChangesArePublished(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{"autoSave":true}`)
	w.turnEnded()
	if told := w.published(); told != nil {
		t.Errorf("published in a host that does not stay: %q", told)
	}
	w.start(true)
	w.turnEnded()
	want := []string{`{"kind":"sess.changed","agent":"main","project":"default","session":"s1","verb":"save","data":{"name":"autosave~"}}`}
	if diff := cmp.Diff(want, w.published()); diff != "" {
		t.Errorf("published (-want +got):\n%s", diff)
	}
	w.hook(func(service string) error {
		if service == "events.publish" {
			return errors.New("no")
		}
		return nil
	}, nil)
	if notices := w.turnEnded(); notices != nil {
		t.Errorf("notices %q where a change could not be published, want none", notices)
	}
}

func TestAutosaveThatFailsIsANotice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{"autoSave":true}`)
	w.hook(func(string) error {
		return plugin.Errorf(plugin.NoSpace, "the disk is full").WithHint("free some space")
	}, nil)
	if diff := cmp.Diff([]string{"autosave failed: the disk is full; free some space"}, w.turnEnded()); diff != "" {
		t.Errorf("notices (-want +got):\n%s", diff)
	}
}

// Turns that end while a save runs make one more save, of the newest state.
func TestAutosavesCoalesce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{"autoSave":true}`)
	w.do("save", "v1") // so that the pool is there, and an autosave reads the session once
	entered, leave := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	saves := 0
	w.hook(func(service string) error {
		if service != "Session" {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if saves++; saves == 1 {
			close(entered)
			<-leave
		}
		return nil
	}, nil)
	var wg sync.WaitGroup
	wg.Go(func() { w.turnEnded() })
	<-entered
	for range 20 {
		w.turnEnded()
	}
	close(leave)
	wg.Wait()
	if saves != 2 {
		t.Errorf("21 turns made %d saves, want 2", saves)
	}
}

func TestNoAutosaveUnlessAskedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	w.turnEnded()
	if diff := cmp.Diff([]string{}, w.names()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

// Another plugin changes a session under an op: the backup belongs to it.
func TestOpsOfOtherPlugins(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T, config string) (*world, string) {
		w := newWorld(t, config)
		w.caller = plugin.PluginCaller("session-actions")
		var opened struct{ Op string }
		w.decode(w.do("op", "open", "delete-messages"), &opened)
		return w, opened.Op
	}
	save := func(w *world, op string) plugin.Result {
		return w.do("save", "--auto-name", "--trigger=delete-messages", "--reason=Before deleting messages [18, 22, 25]",
			"--action=delete_messages", "--indices=25,18,22,18", "--op="+op)
	}
	const backup = "pre-delete~20310506T070809123Z"

	t.Run("close", func(t *testing.T) {
		t.Parallel()
		w, op := open(t, `{}`)
		save(w, op)
		m := w.list(backup)
		if m.Plugin != "session-actions" || m.Action != "delete_messages" || !cmp.Equal(m.Indices, []int{18, 22, 25}) ||
			!m.Automatic || m.Reason != "Before deleting messages [18, 22, 25]" {
			t.Errorf("the backup is %+v", m)
		}
		w.change(w.ref, func(s *live) { s.ops[op] = plugin.OpLanded })
		w.say(w.ref, "after", 1)
		w.do("op", "close", op)
		w.do("op", "close", op)
		w.refused(plugin.Conflict, "op", "withdraw", op)
		w.caller = plugin.CallerCLI
		w.do("undo")
		if n := len(w.messages(w.ref)); n != 10 {
			t.Errorf("after the undo the session has %d messages, want 10", n)
		}
	})
	t.Run("withdraw", func(t *testing.T) {
		t.Parallel()
		w, op := open(t, `{}`)
		save(w, op)
		w.do("op", "withdraw", op)
		w.do("op", "withdraw", op)
		if diff := cmp.Diff([]string{}, w.names()); diff != "" {
			t.Errorf("names (-want +got):\n%s", diff)
		}
		w.refused(plugin.Conflict, "op", "close", op)
		w.caller = plugin.CallerCLI
		w.refused(plugin.NotFound, "undo")
	})
	t.Run("the pool is tidied up after it", func(t *testing.T) {
		t.Parallel()
		for _, closed := range []bool{false, true} {
			w, op := open(t, `{}`)
			save(w, op)
			if closed {
				w.do("op", "close", op)
			}
			if err := w.plugin.Drain(t.Context()); err != nil { // waits for the upkeep
				t.Fatal(err)
			}
			w.start(false)
			status, err := w.plugin.Status(t.Context())
			if err != nil || len(status) != 1 || !status[0].Last.IsZero() != closed {
				t.Errorf("closed: %t; the pruner's status is %+v, %v", closed, status, err)
			}
		}
	})
	t.Run("the plugin dies", func(t *testing.T) {
		t.Parallel()
		w, op := open(t, `{}`)
		save(w, op)
		w.do("op", "open", "compact") // of the same session, later
		if diff := cmp.Diff([]string{}, w.names()); diff != "" {
			t.Errorf("names (-want +got):\n%s", diff)
		}
		w.refused(plugin.NotFound, "save", "--auto-name", "--op="+op)
	})
	t.Run("the host tells of its end", func(t *testing.T) {
		t.Parallel()
		w, op := open(t, `{}`)
		save(w, op)
		ended := func(id string) {
			if notices, err := w.plugin.Notify(t.Context(), plugin.Event{Kind: plugin.EventPluginEnded, Plugin: id}); err != nil || notices != nil {
				t.Errorf("Notify = %q, %v", notices, err)
			}
		}
		ended("another")
		if names := w.names(); len(names) != 1 {
			t.Errorf("after the end of another plugin there is %q, want the backup", names)
		}
		ended("session-actions")
		if names := w.names(); len(names) != 0 {
			t.Errorf("names %q, want none", names)
		}
		w.refused(plugin.Conflict, "op", "close", op)
	})
	t.Run("it ends when all is done", func(t *testing.T) {
		t.Parallel()
		w, op := open(t, `{}`)
		save(w, op)
		w.change(w.ref, func(s *live) { s.ops[op] = plugin.OpLanded })
		if _, err := w.plugin.Notify(t.Context(), plugin.Event{Kind: plugin.EventPluginEnded, Plugin: "session-actions"}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{backup}, w.names()); diff != "" {
			t.Errorf("names (-want +got):\n%s", diff)
		}
		w.do("op", "close", op)
	})
	t.Run("S0-18: switched off", func(t *testing.T) {
		t.Parallel()
		w, op := open(t, `{"autoSnapshots":false}`)
		if got := save(w, op).Text; got != "automatic snapshots are switched off: nothing was saved" {
			t.Errorf("save says %q", got)
		}
		w.do("op", "close", op)
	})
	t.Run("wrong words", func(t *testing.T) {
		t.Parallel()
		w, op := open(t, `{}`)
		w.refused(plugin.Usage, "op", "open", "load")
		w.refused(plugin.Usage, "save", "--auto-name", "--op="+op, "--indices=1,x")
		w.refused(plugin.Usage, "save", "--auto-name", "--op="+op, "--range=7")
		w.refused(plugin.Usage, "save", "--auto-name", "--op="+op, "--range=7:3")
	})
}

func TestStatusAndComplete(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{"pruneIntervalMinutes":90}`)
	status := func() plugin.ServiceStatus {
		t.Helper()
		all, err := w.plugin.Status(t.Context())
		if err != nil || len(all) != 1 {
			t.Fatalf("Status: %v, %v", all, err)
		}
		return all[0]
	}
	if diff := cmp.Diff(plugin.ServiceStatus{Name: "pruner", Schedule: "every 90m"}, status()); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	w.do("save", "v1")
	w.do("save", "hidden~")
	w.do("delete", "v1")
	w.do("save", "v2")
	w.do("prune")
	if got := status(); got.Result != "0 pruned, 2 kept in 1 pool" || !got.Last.Equal(w.Now().Truncate(time.Millisecond)) {
		t.Errorf("status after a run: %+v", got)
	} else if want := got.Last.Add(90 * time.Minute); !got.Next.Equal(want) {
		t.Errorf("next run without a schedule: %s, want %s, 90 minutes after the last", got.Next, want)
	}
	complete := func(kind, typed string) []string {
		t.Helper()
		list, err := w.plugin.Complete(t.Context(), plugin.CompleteRequest{Kind: kind, Call: plugin.Call{Argv: []string{"load", typed}}})
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, c := range list {
			out = append(out, c.Value)
		}
		return out
	}
	for _, tt := range []struct {
		kind, typed string
		want        []string
	}{
		{"snapshot", "", []string{"v2"}},
		{"snapshot", "v", []string{"v2"}},
		{"snapshot", "--from=v", []string{"v2"}},
		{"snapshot", "hidden~", []string{"hidden~"}},
		{"snapshot", "zz", nil},
		{"trash", "", []string{"v1"}},
		{"other", "", nil},
	} {
		if diff := cmp.Diff(tt.want, complete(tt.kind, tt.typed)); diff != "" {
			t.Errorf("Complete(%s, %q) (-want +got):\n%s", tt.kind, tt.typed, diff)
		}
	}
}

// S4-93: called before it was configured the plugin says that it is not ready.
func TestBeforeConfigure(t *testing.T) {
	t.Parallel()
	p := sess.New(sess.Options{})
	_, err := p.Dispatch(t.Context(), plugin.Call{Argv: []string{"list"}}, nil)
	if !errors.Is(err, &plugin.Error{Code: plugin.Unavailable}) {
		t.Errorf("Dispatch: %v, want unavailable", err)
	}
	if _, err := p.Status(t.Context()); !errors.Is(err, &plugin.Error{Code: plugin.Unavailable}) {
		t.Errorf("Status: %v, want unavailable", err)
	}
	if err := p.Drain(t.Context()); err != nil {
		t.Errorf("Drain: %v", err)
	}
	if d, err := p.Describe(t.Context()); err != nil || d.Spec.Command != "sess" {
		t.Errorf("Describe: %+v, %v", d, err)
	}
}

// recorder keeps the messages that were logged.
type recorder struct {
	mu   sync.Mutex
	seen []string
}

func (r *recorder) Write(line []byte) (int, error) {
	var entry struct {
		Msg    string
		Missed int
	}
	if err := json.Unmarshal(line, &entry); err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, entry.Msg)
	return len(line), nil
}

func (r *recorder) count(msg string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, s := range r.seen {
		if s == msg {
			n++
		}
	}
	return n
}

// asking is a host that does something first, once, when a method of the gateway
// is called.
type asking struct {
	*host
	first *atomic.Pointer[func()]
}

func (a asking) Call(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	if first := a.first.Swap(nil); first != nil {
		(*first)()
	}
	return a.host.Call(ctx, method, params)
}

// The schedule runs on the clock of the bubble, so that days pass at once.
func TestSchedule(t *testing.T) {
	const (
		done    = "pruner done"
		made    = "one run of the pruner makes up for missed ones"
		notMade = "missed runs of the pruner are not made up"
	)
	// start runs a plugin on the folder for a while and returns its log.
	start := func(t *testing.T, h *host, config string, stay time.Duration) *recorder {
		t.Helper()
		log := &recorder{}
		p := sess.New(sess.Options{Logger: slog.New(slog.NewJSONHandler(log, nil))})
		err := p.Configure(t.Context(), plugin.Configuration{
			Config: json.RawMessage(config), AgentsDir: filepath.Join(h.dir, "agents"), Background: true,
		}, h)
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(stay) // in the bubble's time
		synctest.Wait()
		if err := p.Drain(context.Background()); err != nil {
			t.Errorf("Drain: %v", err)
		}
		return log
	}
	// fill makes pools of two agents and two projects with autos above the cap.
	fill := func(t *testing.T, h *host) {
		t.Helper()
		p := sess.New(sess.Options{})
		err := p.Configure(t.Context(), plugin.Configuration{Config: json.RawMessage(`{"maxSnapshots":0}`), AgentsDir: filepath.Join(h.dir, "agents")}, h)
		if err != nil {
			t.Fatal(err)
		}
		for _, project := range []string{"default", "p2"} {
			ref := h.session(project, "s-"+project, 1)
			for _, agent := range []string{"main", "other"} {
				for _, name := range []string{"a~", "b~", "c~", "named"} {
					_, err := p.Dispatch(t.Context(), plugin.Call{Argv: []string{"save", name}, Agent: agent, Project: project, Session: ref.ID}, nil)
					if err != nil {
						t.Fatal(err)
					}
					<-time.After(time.Second)
				}
			}
		}
		if err := p.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	count := func(t *testing.T, h *host) int {
		t.Helper()
		n := 0
		for _, pattern := range []string{"agents/*/sessions/*.sess.json", "agents/*/projects/*/sessions/*.sess.json"} {
			list, err := filepath.Glob(filepath.Join(h.dir, pattern))
			if err != nil {
				t.Fatal(err)
			}
			n += len(list)
		}
		return n
	}

	t.Run("ticks over all projects of all agents", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		synctest.Test(t, func(t *testing.T) {
			fill(t, h)
			log := start(t, h, `{"maxSnapshots":2}`, 3*time.Hour+time.Minute)
			if n := log.count(done); n != 3 {
				t.Errorf("%d runs in three hours, want 3", n)
			}
			if n := count(t, h); n != 8 {
				t.Errorf("%d snapshots are left in four pools, want 2 in each", n)
			}
			want := []string{
				`{"kind":"sess.changed","agent":"main","project":"default","verb":"prune"}`,
				`{"kind":"sess.changed","agent":"main","project":"p2","verb":"prune"}`,
				`{"kind":"sess.changed","agent":"other","project":"default","verb":"prune"}`,
				`{"kind":"sess.changed","agent":"other","project":"p2","verb":"prune"}`,
			}
			if diff := cmp.Diff(want, slices.Sorted(slices.Values(h.published()))); diff != "" {
				t.Errorf("published (-want +got):\n%s", diff)
			}
		})
	})
	t.Run("makes up once for missed runs", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		synctest.Test(t, func(t *testing.T) {
			fill(t, h)
			start(t, h, `{}`, 61*time.Minute)
			<-time.After(72 * time.Hour)
			if log := start(t, h, `{}`, 5*time.Minute); log.count(made) != 1 || log.count(done) != 1 {
				t.Errorf("after three days: %v, want one run that makes up", log.seen)
			}
			if log := start(t, h, `{}`, 5*time.Minute); log.count(made) != 0 || log.count(done) != 0 {
				t.Errorf("five minutes later: %v, want no run", log.seen)
			}
			<-time.After(72 * time.Hour)
			if log := start(t, h, `{"pruneCatchUp":false}`, 5*time.Minute); log.count(notMade) != 1 || log.count(done) != 0 {
				t.Errorf("with pruneCatchUp off: %v, want a word and no run", log.seen)
			}
			if log := start(t, h, `{"pruneIntervalMinutes":0}`, 48*time.Hour); log.count(done) != 0 {
				t.Errorf("with the schedule off: %v, want no run", log.seen)
			}
		})
	})
	// note changes what the disk says of the last run.
	note := func(t *testing.T, h *host, change func(run map[string]any)) {
		t.Helper()
		file := filepath.Join(h.dir, "agents", "main", "sessions", ".prune.json")
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var run map[string]any
		if err := json.Unmarshal(data, &run); err != nil {
			t.Fatal(err)
		}
		change(run)
		if data, err = json.Marshal(run); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("makes up for a run that a clock ahead noted", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		synctest.Test(t, func(t *testing.T) {
			fill(t, h)
			start(t, h, `{}`, 61*time.Minute)
			note(t, h, func(run map[string]any) {
				run["started"] = time.Now().AddDate(2, 0, 0)
				run["finished"] = run["started"]
			})
			if log := start(t, h, `{}`, 5*time.Minute); log.count(made) != 1 || log.count(done) != 1 {
				t.Errorf("after a run in the future: %v, want one that makes up", log.seen)
			}
			if log := start(t, h, `{}`, 5*time.Minute); log.count(done) != 0 {
				t.Errorf("after that: %v, want none", log.seen)
			}
		})
	})
	t.Run("a run that hangs or panics is in nobody's way", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		synctest.Test(t, func(t *testing.T) {
			fill(t, h)
			p, first := sess.New(sess.Options{}), new(atomic.Pointer[func()])
			err := p.Configure(t.Context(), plugin.Configuration{
				Config: json.RawMessage(`{"autoSave":true}`), AgentsDir: filepath.Join(h.dir, "agents"), Background: true,
			}, asking{h, first})
			if err != nil {
				t.Fatal(err)
			}
			result := func() string {
				t.Helper()
				status, err := p.Status(t.Context())
				if err != nil || len(status) != 1 {
					t.Fatalf("Status: %v, %v", status, err)
				}
				return status[0].Result
			}
			// Only the pruner asks for the sessions here: nothing is above the cap.
			first.Store(new(func() { panic("boom") }))
			<-time.After(61 * time.Minute)
			synctest.Wait()
			if got := result(); got != "failed: it did not come to an end" {
				t.Errorf("after a panic the status is %q", got)
			}
			<-time.After(time.Hour)
			synctest.Wait()
			if got := result(); got != "0 pruned, 16 kept in 4 pools" {
				t.Errorf("after the next run the status is %q", got)
			}

			// While a run hangs, people save and load, and turns are saved.
			hangs, leave := make(chan struct{}), make(chan struct{})
			first.Store(new(func() {
				close(hangs)
				<-leave
			}))
			<-hangs
			began := time.Now()
			for _, argv := range [][]string{{"save", "v1"}, {"load", "named"}, {"save", "v1", "--overwrite"}} {
				call := plugin.Call{Argv: argv, Agent: "main", Project: "default", Session: "s-default"}
				if _, err := p.Dispatch(t.Context(), call, nil); err != nil {
					t.Errorf("%v while the pruner runs: %v", argv, err)
				}
			}
			event := plugin.Event{Kind: plugin.EventTurnEnded, Agent: "main", Project: "default", Session: "s-default", Turn: "t1"}
			if notices, err := p.Notify(t.Context(), event); err != nil || notices != nil {
				t.Errorf("autosave while the pruner runs: %q, %v", notices, err)
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("people waited %v for the pruner", took)
			}
			close(leave)
			if err := p.Drain(context.Background()); err != nil {
				t.Errorf("Drain: %v", err)
			}
		})
	})
	t.Run("repeats an interrupted run once", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		synctest.Test(t, func(t *testing.T) {
			fill(t, h)
			start(t, h, `{}`, 61*time.Minute)
			note(t, h, func(run map[string]any) { delete(run, "finished") })
			if log := start(t, h, `{}`, 5*time.Minute); log.count(done) != 1 {
				t.Errorf("after an interrupted run: %v, want one run", log.seen)
			}
			if log := start(t, h, `{}`, 5*time.Minute); log.count(done) != 0 {
				t.Errorf("after that: %v, want none", log.seen)
			}
		})
	})
}

// Draining waits for the calls in flight and refuses further ones.
func TestDrain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	entered, leave := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w.hook(func(service string) error {
		if service == "Session" {
			once.Do(func() { close(entered) })
			<-leave
		}
		return nil
	}, nil)
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := w.call("save", "v1"); err != nil {
			t.Errorf("the save in flight: %v", err)
		}
	})
	<-entered
	late, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.plugin.Drain(late); !errors.Is(err, context.Canceled) {
		t.Errorf("Drain with a call in flight and no time: %v", err)
	}
	w.refused(plugin.Unavailable, "list")
	close(leave)
	if err := w.plugin.Drain(t.Context()); err != nil {
		t.Errorf("Drain: %v", err)
	}
	wg.Wait()
	w.start(false)
	w.do("load", "v1")
}
