package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sess/dispatch"
	"sess/host/chat"
	"sess/host/models"
	"sess/plugin"
	"sess/store/session"
	"sess/store/transcript"
)

// desk is a store with one session, a chat on it, and a plugin.
type desk struct {
	t     *testing.T
	dir   string
	store *session.Store
	ref   session.Ref
	opts  chat.Options
	chat  *chat.Chat
	shown *recorder
	pad   *pad
}

var testRef = session.Ref{Project: "default", ID: "s1"}

func openStore(t *testing.T, dir string) *session.Store {
	t.Helper()
	store, err := session.Open(dir, session.Options{})
	if err != nil {
		t.Fatalf("open the store: %v", err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return store
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{t: t, dir: t.TempDir(), ref: testRef, shown: &recorder{}}
	d.store = openStore(t, d.dir)
	if err := d.store.Create(t.Context(), d.store.New(d.ref, "", "")); err != nil {
		t.Fatalf("create: %v", err)
	}
	d.pad = newPad(t, d)
	d.opts = chat.Options{Cwd: "/home/me", Commands: func() []chat.Command {
		return []chat.Command{{Spec: d.pad.Spec(), Dispatcher: d.pad, Plugin: "notepad", Tool: true}}
	}}
	d.open(offline(t))
	return d
}

func offline(t *testing.T) models.Model {
	t.Helper()
	m, err := models.Open("", models.Config{})
	if err != nil {
		t.Fatalf("open the model: %v", err)
	}
	return m
}

// open starts another chat on the session, as a new process would.
func (d *desk) open(m models.Model) {
	d.t.Helper()
	var err error
	if d.chat, err = chat.Open(d.t.Context(), d.store, d.ref, m, d.shown, d.opts); err != nil {
		d.t.Fatalf("open a chat: %v", err)
	}
	d.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := d.chat.Close(ctx); err != nil {
			d.t.Errorf("close the chat: %v", err)
		}
	})
}

// send sends lines that must not fail, and returns what the last one showed.
func (d *desk) send(lines ...string) []string {
	d.t.Helper()
	for _, line := range lines {
		d.shown.take()
		if err := d.chat.Send(d.t.Context(), line); err != nil {
			d.t.Fatalf("Send(%q): %v\n%s", line, err, strings.Join(d.shown.take(), "\n"))
		}
	}
	return d.shown.take()
}

// fail sends a line that must fail with a code.
func (d *desk) fail(code plugin.Code, line string) []string {
	d.t.Helper()
	d.shown.take()
	err := d.chat.Send(d.t.Context(), line)
	if !errors.Is(err, &plugin.Error{Code: code}) {
		d.t.Fatalf("Send(%q) = %v, want %s", line, err, code)
	}
	return d.shown.take()
}

func (d *desk) live() *session.Live {
	d.t.Helper()
	live, err := d.store.Read(d.t.Context(), d.ref)
	if err != nil {
		d.t.Fatalf("read: %v", err)
	}
	return live
}

func records[T any](d *desk, list string) []T {
	d.t.Helper()
	var all []T
	for r, err := range d.live().Doc.List(list).All(d.store.Plain, 0, 1<<30) {
		var v T
		if err == nil {
			err = json.Unmarshal(r, &v)
		}
		if err != nil {
			d.t.Fatalf("%s: %v", list, err)
		}
		all = append(all, v)
	}
	return all
}

// messages are the session's, in short.
func (d *desk) messages() []string {
	d.t.Helper()
	var all []string
	for _, m := range records[transcript.Message](d, transcript.ListMessages) {
		all = append(all, fmt.Sprintf("%s %s: %s", m.Role, m.Status, m.Content))
	}
	return all
}

// history is what the model is given next, in short.
func (d *desk) history() []string {
	d.t.Helper()
	var all []string
	for _, h := range records[transcript.HistoryItem](d, transcript.ListHistory) {
		var s strings.Builder
		s.WriteString(string(h.Role))
		for _, c := range h.ToolCalls {
			fmt.Fprintf(&s, " [%s %s %s]", c.ID, c.Name, c.Arguments)
		}
		if h.ToolCallID != "" {
			s.WriteString(" of " + h.ToolCallID)
		}
		all = append(all, s.String()+": "+h.Content)
	}
	return all
}

// logged are the types of the events of the latest turn.
func (d *desk) logged() []string {
	d.t.Helper()
	turns, err := d.store.Turns(d.t.Context(), d.ref)
	if err != nil || len(turns) == 0 {
		d.t.Fatalf("turns: %v, %v", turns, err)
	}
	events, _, err := d.store.ReadTurn(d.t.Context(), d.ref, turns[len(turns)-1])
	if err != nil {
		d.t.Fatalf("read the turn: %v", err)
	}
	var types []string
	for _, e := range events {
		types = append(types, e.Type)
	}
	return slices.Compact(types)
}

func (d *desk) equal(what string, want, got []string) {
	d.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		d.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// recorder is a sink that keeps events in short form; consecutive text is one.
type recorder struct {
	mu    sync.Mutex // guards lines
	lines []string
	kind  chat.EventKind
	on    func(chat.Event)
}

func (r *recorder) Event(e chat.Event) {
	r.mu.Lock()
	switch e.Kind {
	case chat.EventTurnStarted, chat.EventTurnEnded:
		r.kind = ""
	case chat.EventText, chat.EventThought:
		if r.kind == e.Kind {
			r.lines[len(r.lines)-1] += e.Text
		} else {
			r.lines = append(r.lines, string(e.Kind)+": "+e.Text)
		}
		r.kind = e.Kind
	default:
		text := map[chat.EventKind]string{
			chat.EventToolStarted:  e.Tool.Name + " " + string(e.Tool.Arguments),
			chat.EventToolFinished: fmt.Sprintf("%s failed=%v %s", e.Tool.Name, e.Tool.Failed, e.Tool.Text),
			chat.EventAnswer:       e.Result.Text,
			chat.EventNotice:       e.Text,
		}[e.Kind]
		if e.Err != nil {
			text = string(e.Err.Code) + ": " + e.Err.Text()
		}
		r.lines, r.kind = append(r.lines, string(e.Kind)+": "+text), ""
	}
	on := r.on
	r.mu.Unlock()
	if on != nil {
		on(e)
	}
}

// take returns what was shown since the last take.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := r.lines
	r.lines, r.kind = nil, ""
	return lines
}

// pad is a plugin that keeps states of sessions under names, in memory.
type pad struct {
	*dispatch.Dispatcher
	mu     sync.Mutex // guards states, calls
	states map[string]*transcript.Document
	calls  []plugin.Call
}

func newPad(t *testing.T, d *desk) *pad {
	t.Helper()
	p := &pad{states: map[string]*transcript.Document{}}
	name := []plugin.Arg{{Name: "name", Type: plugin.TypeString, Required: true}}
	ref := func(call plugin.Call) session.Ref { return session.Ref{Project: call.Project, ID: call.Session} }
	verb := func(v dispatch.Verb, run func(ctx context.Context, in *dispatch.Invocation) (string, error)) dispatch.Verb {
		v.Run = func(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.calls = append(p.calls, in.Call)
			text, err := run(ctx, in)
			data, _ := json.Marshal(map[string]string{"did": v.Name})
			return plugin.Result{Text: text, Data: data}, err
		}
		return v
	}
	var err error
	p.Dispatcher, err = dispatch.New(dispatch.Command{
		Name: "pad", Summary: "keeps states of a session",
		Shortcuts: []plugin.Shortcut{{Name: "snapshot", Argv: []string{"save"}, Summary: "saves"}, {Name: "new", Argv: []string{"new"}, Summary: "starts anew"}},
		Verbs: []dispatch.Verb{
			verb(dispatch.Verb{
				Name: "save", Summary: "saves", Args: name, Effect: plugin.EffectWrite,
				Flags: func(fs *dispatch.Flags) { fs.String("note", "", "a note") },
			}, func(ctx context.Context, in *dispatch.Invocation) (string, error) {
				live, err := d.store.Read(ctx, ref(in.Call))
				if err != nil {
					return "", err
				}
				p.states[in.Arg("name")] = live.Doc.Clone()
				return strings.TrimSpace("saved " + in.Arg("name") + " " + in.String("note")), nil
			}),
			verb(dispatch.Verb{
				Name: "load", Summary: "loads", Args: name, Effect: plugin.EffectWrite, AfterTurn: true,
				Check: func(_ context.Context, in *dispatch.Invocation) error {
					if in.Arg("name") == "v0" {
						return plugin.Errorf(plugin.InvalidName, "v0 is no name").WithHint("try v1")
					}
					return nil
				},
			},
				func(ctx context.Context, in *dispatch.Invocation) (string, error) {
					return "loaded " + in.Arg("name"), p.load(ctx, d.store, ref(in.Call), in.Arg("name"))
				}),
			verb(dispatch.Verb{Name: "new", Summary: "starts anew", Effect: plugin.EffectWrite, AfterTurn: true},
				func(ctx context.Context, in *dispatch.Invocation) (string, error) {
					next, err := d.store.NewSession(ctx, session.Ref{Project: in.Call.Project, ID: "s2"}, "Fresh", "", "op-new")
					if err == nil {
						d.chat.Switch(next)
					}
					return "started s2", err
				}),
		},
	})
	if err != nil {
		t.Fatalf("the test's plugin: %v", err)
	}
	return p
}

// load puts a kept state into a session, as any plugin would.
func (p *pad) load(ctx context.Context, store *session.Store, ref session.Ref, name string) error {
	doc := p.states[name]
	if doc == nil {
		return plugin.Errorf(plugin.NotFound, "there is no %s", name).WithHint("save it first")
	}
	stage, err := store.Stage(ctx, session.StageRequest{Ref: ref, Doc: doc.Clone(), Normalise: true})
	if err != nil {
		return err
	}
	defer stage.Discard()
	_, err = stage.Commit(ctx, stage.Revision, "op-"+name+time.Now().String(), name+" was loaded")
	return err
}

func (p *pad) lastCall() plugin.Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[len(p.calls)-1]
}

const first = `You said: "hi". This is your first message in this conversation.`

func seen(text string, n int, firstText string) string {
	return fmt.Sprintf("You said: %q. This conversation has %d messages from you; the first was %q.", text, n, firstText)
}

// S1-01, S1-11: every turn belongs to a session, and is kept.
func TestTurnIsStored(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.equal("shown", []string{"text: " + first}, d.send("hi"))
	d.send("think of it")
	d.equal("messages", []string{
		"user complete: hi", "agent complete: " + first,
		"user complete: think of it", "agent complete: " + seen("think of it", 2, "hi"),
	}, d.messages())
	d.equal("history", []string{"user: hi", "assistant: " + first, "user: think of it", "assistant: " + seen("think of it", 2, "hi")}, d.history())
	d.equal("events", []string{"turn_start", "thought_delta", "text_delta", "usage", "run_finished", "turn_end"}, d.logged())
	live := d.live()
	if live.Status != session.StatusIdle || live.ActiveRun != nil || live.Error != "" {
		t.Errorf("after the turn: status %q, active run %s, error %q, want an idle session", live.Status, live.ActiveRun, live.Error)
	}
	for key, want := range map[string]string{"title": `"hi"`, "model": `"offline/echo"`, "cwd": `"/home/me"`} {
		if got := string(live.Get(key)); got != want {
			t.Errorf("%s = %s, want %s", key, got, want)
		}
	}
	messages := records[transcript.Message](d, transcript.ListMessages)
	if q, a := messages[0], messages[1]; a.ResponseToMessageID != q.ID || a.StreamID == "" || a.CreatedAt == 0 || a.UpdatedAt < a.CreatedAt {
		t.Errorf("the answer %+v does not belong to %+v", a, q)
	}
}

func TestTitle(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.send(strings.Repeat("ü", 70) + "\nsecond line")
	if got, want := string(d.live().Get("title")), `"`+strings.Repeat("ü", 59)+`…"`; got != want {
		t.Errorf("title = %s, want %s", got, want)
	}
	d.send("another")
	if got := string(d.live().Get("title")); !strings.HasPrefix(got, `"üü`) {
		t.Errorf("the second message changed the title to %s", got)
	}
}

func TestRunningTurnIsDurable(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var status []string
	d.shown.on = func(e chat.Event) {
		if e.Kind == chat.EventTurnStarted {
			live := d.live()
			status = append(d.messages(), live.Status, fmt.Sprint(live.ActiveRun != nil))
		}
	}
	d.send("hi")
	d.equal("while the model answers", []string{"user complete: hi", "agent streaming: ", "running", "true"}, status)
}

func TestModelSeesWhatWasLoaded(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.send("one", "two", "/pad save v1", "three", "four")
	d.equal("the answer of load", []string{"answer: loaded v1"}, d.send("/pad load v1"))
	d.equal("the same chat", []string{"text: " + seen("five", 3, "one")}, d.send("five"))
	d.send("/pad load v1")
	d.open(offline(t))
	d.equal("a new chat", []string{"text: " + seen("six", 3, "one")}, d.send("six"))
	if n := len(d.messages()); n != 6 {
		t.Errorf("the session has %d messages, want 6: those of v1 and one turn", n)
	}
}

func TestReplacedElsewhere(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.send("one", "/pad save v1", "two", "three")
	if err := d.pad.load(t.Context(), openStore(t, d.dir), d.ref, "v1"); err != nil {
		t.Fatalf("load from elsewhere: %v", err)
	}
	d.equal("shown", []string{
		"notice: this conversation was replaced: v1 was loaded; it has 2 messages now",
		"text: " + seen("hi", 2, "one"),
	}, d.send("hi"))
	d.equal("told once", []string{"text: " + seen("ho", 3, "one")}, d.send("ho"))

	mine := d.chat
	d.open(offline(t)) // somebody else's chat on the same session
	d.send("from elsewhere")
	d.chat = mine
	d.equal("a turn elsewhere", []string{
		"notice: this conversation was changed elsewhere; it has 8 messages now",
		"text: " + seen("and", 5, "one"),
	}, d.send("and"))
}

func TestSlashLeavesNoTrace(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.send("hi")
	messages, history, revision := d.messages(), d.history(), d.live().Revision
	d.equal("saved", []string{"answer: saved v1 x y"}, d.send(`/pad save v1 --note="x y"`))
	want := plugin.Call{Argv: []string{"save", "v1", "--note=x y"}, Project: "default", Session: "s1", Caller: plugin.CallerSlash, Cwd: "/home/me"}
	got := d.pad.lastCall()
	if got.RequestID == "" {
		t.Error("the call has no request id")
	}
	got.RequestID = ""
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the call (-want +got):\n%s", diff)
	}
	d.equal("a shortcut", []string{"answer: saved v2"}, d.send(`/SNAPSHOT v2`))
	d.equal("typographic", []string{"answer: saved sql opt é ü"}, d.send("/pad save “sql opt” —note=“é ü”"))
	d.equal("unknown", []string{"error: usage: unknown command /pdd; did you mean /pad?"}, d.fail(plugin.Usage, "/pdd save v1"))
	d.equal("a verb alone", []string{"error: usage: unknown command /save; did you mean /pad save?"}, d.fail(plugin.Usage, "/save v1"))
	d.equal("open quote", []string{`error: usage: the quote at character 11 is not closed: "open; close it, or write a backslash before it`}, d.fail(plugin.Usage, `/pad save "open`))
	d.equal("a plugin's error", []string{"error: not_found: there is no v9; save it first"}, d.fail(plugin.NotFound, "/pad load v9"))
	d.equal("a foreign session", []string{"error: usage: --session: a slash command works on its own chat's session; leave it out, or use the command line"}, d.fail(plugin.Usage, "/pad save v1 --session=s2"))
	d.send("/help", "/help pad save", "/pad", "/session", "/events", "/tools", "/live", "  ", "")
	d.equal("messages", messages, d.messages())
	d.equal("history", history, d.history())
	if got := d.live().Revision; got != revision {
		t.Errorf("commands brought the session from revision %d to %d", revision, got)
	}
	d.equal("a command without its slash", []string{"notice: this goes to the model; the command is /pad save", "text: " + seen("pad save v1", 2, "hi")}, d.send("pad save v1"))
	d.equal("the name of a command", []string{"text: " + seen("pad the list", 3, "hi")}, d.send("pad the list"))
	d.equal("a text with a slash", []string{"text: " + seen("/etc/hosts", 4, "hi")}, d.send("//etc/hosts"))
}

// S1-21, S1-22, S1-23: what a chat tells of itself.
func TestBuiltins(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.equal("no events", []string{"answer: no turn has run in this session yet"}, d.send("/events"))
	d.send("hi")
	for _, tt := range []struct {
		line string
		want []string // parts of the answer
	}{
		{"/help", []string{"/session", "/events [n]", "/pad ", "keeps states of a session (plugin notepad)", "/snapshot", "(/pad save)", "//  "}},
		{"/help pad", []string{"save", "load"}},
		{"/help /pad save", []string{"--note"}},
		{"/pad save --help", []string{"--note"}},
		{"/HELP events", []string{"/events [n]  Show the last events"}},
		{"/session", []string{"session   s1", "project   default", "title     hi", "messages  2", "model     offline/echo", "cwd       /home/me"}},
		{"/tools", []string{"pad_manage  notepad  keeps states of a session"}},
		{"/events 2", []string{"turn 1:", "the last 2", "run_finished", "turn_end"}},
		{"/live", []string{"the conversation itself is shown already"}},
	} {
		got := strings.Join(d.send(tt.line), "\n")
		for _, part := range tt.want {
			if !strings.Contains(got, part) {
				t.Errorf("%s does not show %q:\n%s", tt.line, part, got)
			}
		}
	}
	for line, want := range map[string]string{
		"/events x":     `/events takes one number from 1, not "x"`,
		"/events 0":     `/events takes one number from 1, not "0"`,
		"/tools x":      `/tools takes no words, not even "x"`,
		"/help nothing": `there is no help on "nothing"`,
	} {
		if got := strings.Join(d.fail(plugin.Usage, line), "\n"); !strings.Contains(got, want) {
			t.Errorf("%s shows %q, want %q", line, got, want)
		}
	}
	var data struct{ ID, Model string }
	d.shown.on = func(e chat.Event) {
		if !e.JSON || json.Unmarshal(e.Result.Data, &data) != nil {
			t.Errorf("/session --json showed %+v", e)
		}
	}
	d.send("/session --json")
	if data.ID != "s1" || data.Model != "offline/echo" {
		t.Errorf("/session --json: %+v", data)
	}
	d.shown.on = nil
	for _, line := range []string{"/exit", "/quit"} {
		if err := d.chat.Send(t.Context(), line); !errors.Is(err, chat.ErrExit) {
			t.Errorf("Send(%s) = %v, want ErrExit", line, err)
		}
	}
}

func TestNewSwitches(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.send("hi")
	d.equal("new", []string{"answer: started s2", `notice: this chat now shows session s2 of project default: "Fresh", 0 messages`}, d.send("/new"))
	d.equal("a fresh conversation", []string{"text: " + first}, d.send("hi"))
	if n := len(d.messages()); n != 2 {
		t.Errorf("the old session has %d messages, want 2", n)
	}
	d.ref.ID = "s2"
	if n := len(d.messages()); n != 2 {
		t.Errorf("the new session has %d messages, want 2", n)
	}
}

func TestBusy(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.send("hi")
	locked, err := openStore(t, d.dir).Lock(t.Context(), d.ref, "turn", false)
	if err != nil {
		t.Fatalf("lock: %v", err)
	}
	got := strings.Join(d.fail(plugin.Busy, "ho"), "\n")
	if want := fmt.Sprintf("session s1 is in use by process %d (turn) since ", os.Getpid()); !strings.Contains(got, want) {
		t.Errorf("shown %q, want %q", got, want)
	}
	if err := locked.Unlock(); err != nil {
		t.Fatalf("unlock: %v", err)
	}
	d.equal("afterwards", []string{"text: " + seen("ho", 2, "hi")}, d.send("ho"))
}

func TestSelectedSnapshotIsReadOnly(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.send("hi")
	if err := d.store.Select(t.Context(), d.ref, "0198-snapshot"); err != nil {
		t.Fatalf("select: %v", err)
	}
	d.equal("refused", []string{"error: readonly: session s1 shows a snapshot, which cannot be changed; /live goes back to the conversation"}, d.fail(plugin.ReadOnly, "ho"))
	if n := len(d.messages()); n != 2 {
		t.Errorf("the session has %d messages, want 2", n)
	}
	d.equal("the way out works", []string{"answer: back to the conversation"}, d.send("/live"))
	d.equal("afterwards", []string{"text: " + seen("ho", 2, "hi")}, d.send("ho"))
}

func TestOtherProgramsSession(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.ref.ID = "plain"
	file := filepath.Join(d.dir, d.ref.Project, "plain.json")
	const plain = `{"id":"plain","title":"t","cwd":"/x","status":"idle","messages":[
		{"id":"a","role":"user","content":"from elsewhere","status":"complete","createdAt":1,"updatedAt":1},
		{"id":"b","role":"agent","content":"yes","status":"complete","createdAt":1,"updatedAt":1}],"activities":[],"artifacts":[],"createdAt":1,"updatedAt":1}`
	if err := os.WriteFile(file, []byte(plain), 0o600); err != nil {
		t.Fatal(err)
	}
	d.open(offline(t))
	d.equal("shown", []string{"text: " + seen("hi", 2, "from elsewhere")}, d.send("hi"))
	d.equal("history", []string{"user: from elsewhere", "assistant: yes", "user: hi", "assistant: " + seen("hi", 2, "from elsewhere")}, d.history())
}

func TestOneLineAtATime(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var second error
	d.shown.on = func(e chat.Event) {
		if e.Kind == chat.EventTurnStarted {
			second = d.chat.Send(t.Context(), "ho")
		}
	}
	d.send("hi")
	if !errors.Is(second, &plugin.Error{Code: plugin.Busy}) {
		t.Errorf("a line while another one runs = %v, want busy", second)
	}
}

func TestOpenUnknownSession(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	_, err := chat.Open(t.Context(), d.store, session.Ref{Project: "default", ID: "nope"}, offline(t), d.shown, chat.Options{})
	if !errors.Is(err, &plugin.Error{Code: plugin.NotFound}) {
		t.Errorf("Open = %v, want not_found", err)
	}
}
