package tests

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sess/host"
	"sess/host/chat"
	"sess/plugin"
	"sess/plugin/actions"
	"sess/plugin/responses"
	"sess/plugin/sess"
	"sess/store/chunk"
	"sess/store/durable"
	"sess/store/durable/durabletest"
	"sess/store/session"
	"sess/store/snapshot"
	"sess/store/transcript"
)

var (
	faultRuns = flag.Int("faults", 0, "how many kinds of fault (of 6) and cuts of the power to try at each operation on the disk; 0 is one at a few of the operations")
	faultSeed = flag.Uint64("faultseed", rand.Uint64(), "chooses the operations that fail, and what is left when the power goes")
)

// What newHome makes.
const (
	talkID = "talk"
	poolAt = "agents/main/sessions"
)

// faultChunks makes the operations of a rig come in one order, and has all but one
// of the chunks that are sealed together share a pack.
var faultChunks = chunk.Options{Writers: 1, Loose: 1}

// rig is a host with its plugins in this process, over one home: all that
// either of them does to the disk passes through one place, in one order.
type rig struct {
	*testing.T
	*host.Host
	home string
}

// openRig opens the home. The caller closes the host, since that may fail.
func openRig(t *testing.T, home string, open durable.OpenFunc, now time.Time) (*rig, error) {
	t.Helper()
	return openRigAt(t, home, open, func() time.Time { return now })
}

// openRigAt is openRig with a clock that need not stand still.
func openRigAt(t *testing.T, home string, open durable.OpenFunc, clock func() time.Time) (*rig, error) {
	t.Helper()
	return openRigWith(t, home, open, clock, actions.New("test"))
}

// openRigWith is openRigAt with a plugin session-actions.
func openRigWith(t *testing.T, home string, open durable.OpenFunc, clock func() time.Time, deleting plugin.Plugin) (*rig, error) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h, err := host.Open(t.Context(), host.Options{
		Home: home, Exe: exe, Builtins: manifests(t), Now: clock, FS: open, Chunks: faultChunks,
		Local: map[string]plugin.Plugin{"sess": sess.New(sess.Options{
			Build: "test", Now: clock, Pool: snapshot.Options{FS: open, Chunks: faultChunks},
		}), "session-actions": deleting, "responses": responses.New(responses.Options{Build: "test", Now: clock})},
	})
	return &rig{T: t, Host: h, home: home}, err
}

// sess runs one command as the command line does.
func (r *rig) sess(argv ...string) error {
	_, err := r.answer(argv...)
	return err
}

// answer is sess with what is answered.
func (r *rig) answer(argv ...string) (plugin.Result, error) {
	return r.run(append([]string{"sess"}, argv...)...)
}

// run is answer for the commands of all plugins.
func (r *rig) run(argv ...string) (plugin.Result, error) {
	return r.Dispatch(r.Context(), plugin.Call{Argv: argv, Caller: plugin.CallerCLI}, nil)
}

// autosave is what a host asks for after a turn.
func (r *rig) autosave() error {
	_, err := r.Dispatch(r.Context(), plugin.Call{
		Argv: []string{"sess", "save", "--overwrite", "--trigger=autosave", "--", "autosave~"}, Caller: plugin.CallerHost,
	}, nil)
	return err
}

// say runs one turn of the chat, and waits for what the plugins do about it.
func (r *rig) say(text string) error {
	c, err := r.OpenChat(r.Context(), host.ChatOptions{Session: talkID, Out: chat.SinkFunc(func(chat.Event) {})})
	if err != nil {
		return err
	}
	return errors.Join(c.Send(r.Context(), text), c.Close(r.Context()))
}

// write adds messages of 8 KB to the session.
func (r *rig) write(mark string, n int) error {
	return r.append(n, func(i int) transcript.Record { return prose(mark, i) })
}

// append adds messages to the session.
func (r *rig) append(n int, message func(i int) transcript.Record) error {
	return r.edit(func(live *session.Live) error {
		for range n {
			l := live.Doc.List(transcript.ListMessages)
			if err := live.Append(transcript.ListMessages, message(l.Records)); err != nil {
				return err
			}
		}
		return nil
	})
}

// edit changes the session, as a client of the store does.
func (r *rig) edit(change func(*session.Live) error) error {
	ctx := r.Context()
	locked, err := r.Sessions().Lock(ctx, session.Ref{Project: "default", ID: talkID}, "test", false)
	if err != nil {
		return err
	}
	live, err := locked.Read(ctx)
	if err == nil {
		err = change(live)
	}
	if err == nil {
		_, err = locked.Write(ctx, live, live.Revision)
	}
	return errors.Join(err, locked.Unlock())
}

// prose is a message of 8 KB that does not compress to nothing.
func prose(mark string, i int) transcript.Record {
	h := fnv.New64a()
	fmt.Fprint(h, mark, i)
	rnd := rand.New(rand.NewPCG(h.Sum64(), 1))
	var b strings.Builder
	b.WriteString(mark)
	for b.Len() < 8<<10 {
		fmt.Fprintf(&b, " %x", rnd.Uint64())
	}
	return message(i, b.String())
}

func message(i int, text string) transcript.Record {
	data, err := json.Marshal(transcript.Message{
		ID: fmt.Sprintf("m%d", i), Role: []transcript.Role{transcript.RoleUser, transcript.RoleAgent}[i%2],
		Content: text, Status: transcript.StatusComplete,
	})
	if err != nil {
		panic(err)
	}
	return data
}

// faultCase is an operation that is tried with every fault.
type faultCase struct {
	name    string
	prepare func(*rig) error
	do      func(*rig) error
	// later is how much later than what was prepared it happens.
	later time.Duration
	// between reports whether a state is as good as the old and the new one: a
	// turn that was cut short keeps what came. Nil: none is.
	between func(before, now, after state) bool
	// long has it tried in a conversation that is so long that its lists have
	// index chunks too.
	long bool
}

func command(argv ...string) func(*rig) error {
	return func(r *rig) error { return r.sess(argv...) }
}

// sessions runs one of the host's own commands.
func sessions(argv ...string) func(*rig) error {
	return func(r *rig) error {
		_, err := r.run(append([]string{"sessions"}, argv...)...)
		return err
	}
}

// carry exports the snapshot early, and imports it under another name.
func carry(name string) func(*rig) error {
	return func(r *rig) error {
		var out exported
		_, err := r.Dispatch(r.Context(), plugin.Call{Argv: []string{"sess", "export", "early"}, Caller: plugin.CallerCLI, Output: &out}, nil)
		if err != nil {
			return err
		}
		_, err = r.Dispatch(r.Context(), plugin.Call{
			Argv: []string{"sess", "import", "--name=" + name}, Caller: plugin.CallerCLI, Input: &out.Buffer,
		}, nil)
		return err
	}
}

// deletion deletes messages.
func deletion(argv ...string) func(*rig) error {
	return func(r *rig) error {
		_, err := r.run(append([]string{"messages", "delete"}, argv...)...)
		return err
	}
}

// compaction compacts the session's first messages.
func compaction(end int) func(*rig) error {
	return func(r *rig) error {
		_, err := r.run("context", "compact", fmt.Sprintf("--range=:%d", end))
		return err
	}
}

// compactable has the session go on with a model that compacts conversations.
func compactable(r *rig) error {
	return r.edit(func(live *session.Live) error { return live.Set("model", "cloud/gpt-x") })
}

// serveCompactions adds the provider of such a model to homes. What it makes of a
// conversation is always the same.
func serveCompactions(t *testing.T, homes ...string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"resp_1","object":"response.compaction","output":[`+
			`{"id":"cmp_1","type":"compaction","encrypted_content":"zzz"}],"usage":{"input_tokens":9,"output_tokens":2,"total_tokens":11}}`)
	}))
	t.Cleanup(server.Close)
	for _, home := range homes {
		write(t, filepath.Join(home, "config.json"), fmt.Sprintf(
			`{"models": {"providers": {"cloud": {"kind": "responses", "baseURL": %q}}}}`, server.URL), durable.FileMode)
	}
}

// secondID is the session that talkToo makes.
const secondID = "second"

// talkToo makes a session with a turn, and goes back to the first one.
func talkToo(r *rig) error {
	c, err := r.OpenChat(r.Context(), host.ChatOptions{Session: secondID, Out: chat.SinkFunc(func(chat.Event) {})})
	if err != nil {
		return err
	}
	return errors.Join(c.Send(r.Context(), "a second talk"), c.Close(r.Context()), sessions("use", talkID)(r))
}

// loadBack loads a snapshot into the session also where that is gone.
func loadBack(r *rig) error {
	_, err := r.Dispatch(r.Context(), plugin.Call{Argv: []string{"sess", "load", "early"}, Session: talkID, Caller: plugin.CallerCLI}, nil)
	return err
}

// saveAsClient stores the session as a client does that has changed a message, taken
// one out and added one.
func (r *rig) saveAsClient() error {
	view, err := r.Sessions().View(r.Context(), session.Ref{Project: "default", ID: talkID})
	if err != nil {
		return err
	}
	var object map[string]any
	if err := json.Unmarshal(view, &object); err != nil {
		return err
	}
	messages := object["messages"].([]any)
	messages[3].(map[string]any)["content"] = "said otherwise"
	object["messages"] = append(slices.Delete(messages, 5, 6), map[string]any{"id": "new", "role": "user", "content": "and this"})
	changed, err := json.Marshal(object)
	if err != nil {
		return err
	}
	_, err = r.Sessions().SaveSession(r.Context(), changed, nil)
	return err
}

// exported keeps what a verb writes.
type exported struct{ bytes.Buffer }

func (*exported) Begin(string, string) error { return nil }

func inOrder(steps ...func(*rig) error) func(*rig) error {
	return func(r *rig) error {
		for _, step := range steps {
			if err := step(r); err != nil {
				return err
			}
		}
		return nil
	}
}

var faultCases = []faultCase{
	{name: "save", do: command("save", "fresh", "--note=n")},
	{name: "overwrite", do: command("save", "early", "--overwrite")},
	{name: "overwrite that seals", prepare: func(r *rig) error { return r.write("more", 20) }, do: command("save", "early", "--overwrite")},
	{name: "load", do: command("load", "early")},
	{name: "load without backup", do: command("load", "early", "--no-backup")},
	{name: "new", do: command("new")},
	{name: "new from a snapshot", do: command("new", "--from=early")},
	{name: "load as new", do: command("load", "early", "--as-new")},
	{name: "import", do: carry("fresh")},
	{name: "import long", do: carry("fresh"), long: true},
	{name: "rename", do: command("rename", "early", "fresh")},
	{name: "rename over", do: command("rename", "early", "late", "--overwrite")},
	{name: "copy", do: command("copy", "early", "fresh")},
	{name: "copy over", do: command("copy", "early", "late", "--overwrite")},
	{name: "delete", do: command("delete", "early")},
	{name: "tag", do: command("tag", "early", "k=v")},
	{name: "pin", do: command("pin", "early")},
	{name: "select", do: command("select", "early")},
	{name: "prune", do: command("prune", "--keep=1")},
	{name: "trash restore", prepare: command("delete", "early"), do: command("trash", "restore", "early")},
	{name: "trash empty", prepare: inOrder(command("delete", "early"), command("delete", "late")), do: command("trash", "empty", "--confirm"), between: partlyEmptied},
	{name: "undo load", prepare: command("load", "early"), do: command("undo")},
	{name: "undo new", prepare: command("new"), do: command("undo")},
	{name: "undo overwrite", prepare: command("save", "early", "--overwrite"), do: command("undo")},
	{
		name:    "undo overwrite that seals",
		prepare: inOrder(func(r *rig) error { return r.write("more", 20) }, command("save", "early", "--overwrite")),
		do:      command("undo"),
	},
	{name: "undo delete", prepare: command("delete", "early"), do: command("undo")},
	{name: "undo rename", prepare: command("rename", "early", "late", "--overwrite"), do: command("undo")},
	{name: "redo load", prepare: inOrder(command("load", "early"), command("undo")), do: command("redo")},
	{name: "redo new", prepare: inOrder(command("new"), command("undo")), do: command("redo")},
	{name: "redo overwrite", prepare: inOrder(command("save", "early", "--overwrite"), command("undo")), do: command("redo")},
	{name: "redo rename", prepare: inOrder(command("rename", "early", "late", "--overwrite"), command("undo")), do: command("redo")},
	{name: "redo delete", prepare: inOrder(command("delete", "early"), command("undo")), do: command("redo")},
	{name: "undo prune", prepare: command("prune", "--keep=1"), do: command("undo")},
	{name: "redo prune", prepare: inOrder(command("prune", "--keep=1"), command("undo")), do: command("redo")},
	{
		name:    "trash that is old enough",
		prepare: inOrder(command("delete", "early"), command("delete", "late")), do: command("prune"),
		later: 8 * 24 * time.Hour, between: partlyEmptied,
	},
	{name: "delete a message", do: deletion("1")}, // with its tool call
	{name: "delete messages", do: deletion("--range=2:")},
	{name: "undo delete messages", prepare: deletion("0", "3", "-1"), do: command("undo")},
	{name: "redo delete messages", prepare: inOrder(deletion("-1"), command("undo")), do: command("redo")},
	{name: "compact", prepare: compactable, do: compaction(6)},
	{name: "undo compact", prepare: inOrder(compactable, compaction(6)), do: command("undo")},
	{name: "redo compact", prepare: inOrder(compactable, compaction(6), command("undo")), do: command("redo")},
	{name: "first autosave", do: (*rig).autosave},
	{
		name:    "autosave",
		prepare: inOrder((*rig).autosave, func(r *rig) error { return r.write("next", 1) }),
		do:      (*rig).autosave,
	},
	{name: "turn", do: func(r *rig) error { return r.say("what was that") }, between: partOfTurn},
	{name: "turn that seals", do: func(r *rig) error { return r.say("long " + strings.Repeat("word ", 20<<10)) }, between: partOfTurn},
	{name: "chunk sealing", do: func(r *rig) error { return r.write("more", 20) }},
	{
		// The first change after more than an hour has the pool and the sessions
		// swept of what nobody needs any more.
		name: "sweep",
		prepare: inOrder(
			func(r *rig) error { return r.write("gone", 20) }, command("save", "gone"), command("load", "early", "--no-backup"),
			command("delete", "gone"), command("trash", "empty", "--confirm"),
		),
		do:    command("load", "late"),
		later: 24 * time.Hour,
	},
	{name: "delete a session", prepare: talkToo, do: sessions("delete", secondID)},
	{name: "restore a session", prepare: inOrder(talkToo, sessions("delete", secondID)), do: sessions("restore", secondID)},
	{name: "load into a session that was deleted", prepare: sessions("delete", talkID), do: loadBack},
	{
		name: "load beside a session in the trash", prepare: inOrder(sessions("delete", talkID), loadBack, talkToo),
		do: sessions("delete", talkID),
	},
	{name: "empty the sessions' trash", prepare: inOrder(talkToo, sessions("delete", secondID)), do: func(r *rig) error {
		_, err := r.Sessions().Expire(r.Context(), session.Policy{TrashAge: time.Hour})
		return err
	}, later: 24 * time.Hour, between: partlyEmptied},
	{name: "client's first save", do: func(r *rig) error {
		_, err := r.Sessions().SaveSession(r.Context(), json.RawMessage(
			`{"id":"new","projectId":"other","title":"T","messages":[{"id":"m1","role":"user","content":"hi"}],"activities":[{"title":"a"},{"title":"a"}]}`), nil)
		return err
	}},
	{name: "import over", do: func(r *rig) error {
		var out exported
		_, err := r.Dispatch(r.Context(), plugin.Call{Argv: []string{"sess", "export", "early"}, Caller: plugin.CallerCLI, Output: &out}, nil)
		if err != nil {
			return err
		}
		_, err = r.Dispatch(r.Context(), plugin.Call{
			Argv: []string{"sess", "import", "--name=late", "--overwrite"}, Caller: plugin.CallerCLI, Input: &out.Buffer,
		}, nil)
		return err
	}},
	{name: "rename a session", do: sessions("rename", talkID, "Another title")},
	{name: "client's save", do: (*rig).saveAsClient},
	{name: "expire", prepare: talkToo, do: func(r *rig) error {
		_, err := r.Sessions().Expire(r.Context(), session.Policy{Max: 1})
		return err
	}},
	{name: "save long", do: command("save", "fresh"), long: true},
	{name: "load long", do: command("load", "early"), long: true},
	{name: "undo load long", prepare: command("load", "early"), do: command("undo"), long: true},
	{name: "delete messages long", do: deletion("0", "100", "-2"), long: true},
	{name: "new from long", do: command("new", "--from=early"), long: true},
	{
		name:    "autosave long",
		prepare: inOrder((*rig).autosave, func(r *rig) error { return r.writeLong(2) }),
		do:      (*rig).autosave, long: true,
	},
	{name: "index sealing", do: func(r *rig) error { return r.writeLong(longNext - longLate) }, long: true},
	{
		name: "sweep long",
		prepare: inOrder(
			func(r *rig) error { return r.writeLong(longNext - longLate) }, command("save", "gone"), command("load", "early", "--no-backup"),
			command("delete", "gone"), command("delete", "late"), command("trash", "empty", "--confirm"),
		),
		do:    command("save", "fresh"),
		later: 24 * time.Hour, long: true,
	},
}

// A list of that many messages of writeLong has one index chunk from longFirst
// on, and two from longNext on. newLongHome writes longLate.
const (
	longFirst = 163
	longLate  = 190
	longNext  = 195
)

// writeLong adds messages of which each fills a chunk, and which take next to no
// place on the disk.
func (r *rig) writeLong(n int) error {
	return r.append(n, longMessage)
}

func longMessage(i int) transcript.Record { return message(i, "1"+strings.Repeat(" and so on", 3300)) }

// newHome makes a home whose session has grown past the snapshots early and late
// of it; spare~ and spare2~ are the first to be pruned.
func newHome(t *testing.T, now time.Time) string {
	t.Helper()
	return homeWith(
		t, now,
		func(r *rig) error { return r.say(`call sess_manage {"action": "list"}`) },
		func(r *rig) error { return r.write("first", 12) }, command("save", "early"), command("save", "spare~"),
		func(r *rig) error { return r.write("second", 3) }, command("save", "late"), command("save", "spare2~"),
		func(r *rig) error { return r.write("third", 3) },
	)
}

// newLongHome is newHome with a conversation so long that its list of messages
// has an index chunk, and the next one is near.
func newLongHome(t *testing.T, now time.Time) string {
	t.Helper()
	home := homeWith(
		t, now,
		func(r *rig) error { return r.writeLong(longFirst) }, command("save", "early"),
		func(r *rig) error { return r.writeLong(longLate - longFirst - 1) }, command("save", "late"),
		func(r *rig) error { return r.writeLong(1) },
	)
	var list transcript.List
	indexes := map[int]int{} // by the number of messages
	for i := range longNext {
		if err := list.Append([]transcript.Record{longMessage(i)}, nil); err != nil {
			t.Fatal(err)
		}
		indexes[i+1] = len(list.Index)
	}
	if indexes[longFirst] != 1 || indexes[longLate] != 1 || indexes[longNext-1] != 1 || indexes[longNext] != 2 {
		t.Fatalf("the index chunks come at other places: %v", indexes)
	}
	return home
}

// homeWith makes a home with a session, and takes the steps in it.
func homeWith(t *testing.T, now time.Time, steps ...func(*rig) error) string {
	t.Helper()
	home := filepath.Join(t.TempDir(), "home")
	r, err := openRig(t, home, durabletest.Unsynced, now)
	if err != nil {
		t.Fatal(err)
	}
	ref := session.Ref{Project: "default", ID: talkID}
	err = errors.Join(
		r.Sessions().Create(t.Context(), r.Sessions().New(ref, "A talk", "/w")),
		r.Sessions().Activate(t.Context(), ref),
		inOrder(steps...)(r),
		r.Close(t.Context()),
	)
	if err != nil {
		t.Fatal(err)
	}
	return home
}

// prepared is a home in which a case can be tried again and again.
type prepared struct {
	faultCase
	template      string
	now           time.Time // of the operation
	before, after state     // of the home
	ops           int       // on the disk
}

func prepare(t *testing.T, base string, c faultCase, now time.Time) *prepared {
	t.Helper()
	p := &prepared{faultCase: c, template: base, now: now.Add(c.later + 2*time.Minute)}
	if c.prepare != nil {
		p.template = copyOf(t, base)
		r, err := openRig(t, p.template, durabletest.Unsynced, now.Add(time.Minute))
		if err == nil {
			err = errors.Join(c.prepare(r), r.Close(t.Context()))
		}
		if err != nil {
			t.Fatalf("prepare: %v", err)
		}
	}
	p.before = homeState(t, p.template, p.now)
	home := copyOf(t, p.template)
	var disk durabletest.Faulty
	if err := p.try(t, home, func(dir string) (durable.FS, error) { return disk.Wrap(durabletest.Unsynced(dir)) }); err != nil {
		t.Fatalf("without a fault: %v", err)
	}
	p.ops = len(disk.Ops())
	if p.ops == 0 {
		t.Fatal("nothing was done to the disk")
	}
	p.restart(t, home)
	p.after = homeState(t, home, p.now)
	return p
}

// try runs the operation in a host of its own, which it closes.
func (p *prepared) try(t *testing.T, home string, open durable.OpenFunc) error {
	t.Helper()
	r, err := openRig(t, home, open, p.now)
	if err != nil {
		return err
	}
	err = p.do(r)
	if closed := r.Close(context.WithoutCancel(t.Context())); closed != nil {
		t.Errorf("close: %v", closed)
	}
	return err
}

// restart is the next start: what a dead process left is settled, and what it
// dropped is swept up.
func (p *prepared) restart(t *testing.T, home string) {
	t.Helper()
	p.restartOn(t, home, durabletest.Unsynced)
}

func (p *prepared) restartOn(t *testing.T, home string, open durable.OpenFunc) {
	t.Helper()
	if err := p.start(t.Context(), t, home, open); err != nil {
		t.Errorf("the next start: %v", err)
	}
	err := filepath.WalkDir(home, func(name string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(name, durable.TempSuffix) {
			t.Errorf("left behind: %s", name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// start does all that a start does in time, and says what went wrong.
func (p *prepared) start(ctx context.Context, t *testing.T, home string, open durable.OpenFunc) error {
	t.Helper()
	later := p.now.Add(2 * time.Hour)
	r, err := openRig(t, home, open, later)
	if err != nil {
		return err
	}
	var errs []error
	if err := r.sess("verify"); err != nil && !errors.Is(err, &plugin.Error{Code: plugin.NotFound}) {
		errs = append(errs, fmt.Errorf("verify: %w", err))
	}
	// What follows a turn is the occasion to tidy up.
	for _, notice := range r.Notify(ctx, plugin.Event{Kind: plugin.EventTurnEnded, Project: "default", Session: talkID}) {
		errs = append(errs, errors.New(notice))
	}
	errs = append(errs, r.Sessions().Sweep(ctx), r.Close(ctx))
	pool, err := snapshot.Open(filepath.Join(home, filepath.FromSlash(poolAt)), snapshot.Options{
		FS: open, Now: func() time.Time { return later },
	})
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	defer pool.Close()
	if left, err := pool.Recover(ctx, nil); err != nil || len(left) > 0 {
		errs = append(errs, fmt.Errorf("there is still something to recover: %v, %w", left, err))
	}
	if swept, err := pool.Sweep(ctx); err != nil || swept.Skipped != "" {
		errs = append(errs, fmt.Errorf("sweep of the pool: %+v, %w", swept, err))
	}
	return errors.Join(errs...)
}

// judge compares a home after the next start with what may be there.
func (p *prepared) judge(t *testing.T, home string, err error) {
	t.Helper()
	switch now := homeState(t, home, p.now); {
	case now.equal(p.after):
	case err == nil:
		t.Errorf("it reported success; %s", p.differences(now))
	case !now.equal(p.before) && (p.between == nil || !p.between(p.before, now, p.after)):
		t.Errorf("after the error %q it is neither the old state nor the new one; %s", err, p.differences(now))
	}
}

func (p *prepared) differences(now state) string {
	return fmt.Sprintf("from old to what is there (-old +there):\n%s\nfrom what is there to new (-there +new):\n%s", cmp.Diff(p.before, now), cmp.Diff(now, p.after))
}

// TestFaults makes the k-th operation on the disk go wrong in everything that
// changes something; -faults says for how many k. Host and plugin share one count.
//
// It fails once, or for good from there, as when the process was killed. And the
// power goes before it, or after the last one: then what was not synced may be
// there or not. At every other k the process dies there and the power goes after
// the next start. What was reported as done is there in any case.
func TestFaults(t *testing.T) {
	t.Parallel()
	t.Logf("repeat with -faultseed=%d", *faultSeed)
	start := time.Now().Add(10 * time.Minute) // later than any file is
	base, long := newHome(t, start), newLongHome(t, start)
	serveCompactions(t, base, long)
	for _, c := range faultCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			home, few := base, 2
			if c.long {
				home, few = long, 1
			}
			p := prepare(t, home, c, start)
			for _, k := range p.points(p.ops, few) {
				for i := range max(1, min(*faultRuns, 6)) {
					kind := []error{syscall.ENOSPC, syscall.EIO, io.ErrShortWrite}[(k+i)%3]
					dead := (k/3+i/3)%2 == 1
					t.Run(fmt.Sprintf("%d %v dead=%v", k, kind, dead), func(t *testing.T) { p.fault(t, k, kind, dead) })
				}
			}
			for _, k := range p.points(p.ops, 1) {
				t.Run(fmt.Sprintf("%d twice", k), func(t *testing.T) { p.twice(t, k) })
			}
			for _, k := range p.points(p.ops+1, 1) {
				t.Run(fmt.Sprintf("%d power", k), func(t *testing.T) { p.cut(t, k) })
			}
		})
	}
}

// points chooses at which of n operations to try: at few of them, unless a flag
// asks for all.
func (p *prepared) points(n, few int) []int {
	h := fnv.New64a()
	fmt.Fprint(h, p.name)
	all := rand.New(rand.NewPCG(*faultSeed, h.Sum64())).Perm(n)
	if *faultRuns == 0 {
		all = all[:min(few, n)]
	}
	slices.Sort(all)
	return all
}

func (p *prepared) fault(t *testing.T, k int, kind error, dead bool) {
	home := copyOf(t, p.template)
	var disk durabletest.Faulty
	disk.FailAt(k, kind, dead)
	err := p.try(t, home, func(dir string) (durable.FS, error) { return disk.Wrap(durabletest.Unsynced(dir)) })
	if err := disk.Die(); err != nil {
		t.Error(err)
	}
	ops := disk.Ops()
	if !disk.Fired() && (err != nil || k < len(ops)) {
		t.Fatalf("of %d operations none was the one to fail, and the error is %v", len(ops), err)
	}
	// Sweeps give way to whoever is at work, so there may be fewer operations than
	// in another run. Then nothing failed, and what is done has to be there.
	if err != nil {
		p.checkError(t, home, err, kind)
	}
	atOnce := homeState(t, home, p.now)
	p.restart(t, home)
	p.judge(t, home, err)
	// Where only the record of what was done could not be finished, the trash may
	// tell a little less until the next start.
	later := homeState(t, home, p.now)
	if err == nil {
		atOnce.Trash = later.Trash
	}
	if !dead && !atOnce.equal(later) {
		t.Errorf("the next start changed what was there after the error %v (-then +later):\n%s", err, cmp.Diff(atOnce, later))
	}
	if t.Failed() {
		t.Logf("operation %d failed, and what was done said %v; operations:\n%v", k, err, ops)
	}
}

// twice has the process die at the k-th operation, and the next one while it
// settles what the first had left.
func (p *prepared) twice(t *testing.T, k int) {
	home := copyOf(t, p.template)
	var disk durabletest.Faulty
	disk.FailAt(k, nil, true)
	err := errors.Join(p.try(t, home, func(dir string) (durable.FS, error) { return disk.Wrap(durabletest.Unsynced(dir)) }), disk.Die())
	var whole durabletest.Faulty
	if err := p.start(t.Context(), t, copyOf(t, home), func(dir string) (durable.FS, error) { return whole.Wrap(durabletest.Unsynced(dir)) }); err != nil {
		t.Errorf("the next start: %v", err)
	}
	n := len(whole.Ops())
	if n == 0 {
		t.Fatal("the next start does nothing to the disk")
	}
	rnd := rand.New(rand.NewPCG(*faultSeed, uint64(k)))
	for i := range max(1, *faultRuns) {
		left := copyOf(t, home)
		var again durabletest.Faulty
		at := rnd.IntN(n)
		again.FailAt(at, nil, i%2 == 0)
		// What this start says of the disk is not the point here.
		_ = p.start(t.Context(), t, left, func(dir string) (durable.FS, error) { return again.Wrap(durabletest.Unsynced(dir)) })
		if err := again.Die(); err != nil {
			t.Error(err)
		}
		p.restart(t, left)
		p.judge(t, left, err)
		if t.Failed() {
			t.Logf("the operation said %v, and the next start failed at %d of\n%v", err, at, again.Ops())
			return
		}
	}
}

// checkError wants an error to have the code of its cause, and to name what it is
// about.
func (p *prepared) checkError(t *testing.T, home string, err, kind error) {
	t.Helper()
	e := plugin.AsError(err)
	undecided := strings.Contains(e.Message, session.ErrUndecided.Error())
	if e.Code == plugin.Internal || kind == syscall.ENOSPC && e.Code != plugin.NoSpace && !undecided {
		t.Errorf("error %q has the code %s", e.Text(), e.Code)
	}
	named := slices.ContainsFunc([]string{home, "early", "late", "fresh", "autosave~", talkID, "session", "chunk"}, func(s string) bool {
		return strings.Contains(e.Text(), s)
	})
	if !named || e.Message == "" {
		t.Errorf("error %q does not say what it is about", e.Text())
	}
}

func (p *prepared) cut(t *testing.T, k int) {
	home := copyOf(t, p.template)
	power, err := durabletest.NewPower(home)
	if err != nil {
		t.Fatal(err)
	}
	var disk durabletest.Faulty
	disk.FailAt(k, nil, true)
	done := p.try(t, home, func(dir string) (durable.FS, error) { return disk.Wrap(power.Open(dir)) })
	if err := disk.Die(); err != nil {
		t.Error(err)
	}
	if k%2 == 1 { // first the process dies and another one finds what it left, then the power goes
		p.restartOn(t, home, power.Open)
	}
	for i := range max(1, *faultRuns) {
		left := filepath.Join(t.TempDir(), "home")
		if err := power.Cut(left, rand.New(rand.NewPCG(*faultSeed, uint64(k*1000+i)))); err != nil {
			t.Fatal(err)
		}
		p.restart(t, left)
		p.judge(t, left, done)
		if t.Failed() {
			t.Logf("cut %d; the operation said %v; operations:\n%v", i, done, disk.Ops()[:min(k, len(disk.Ops()))])
			return
		}
	}
}

// copyOf copies a home. Chunks are immutable: they get a second name.
func copyOf(t *testing.T, home string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "home")
	err := filepath.WalkDir(home, func(from string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		at := to + strings.TrimPrefix(from, home)
		switch {
		case d.IsDir():
			return os.MkdirAll(at, durable.DirMode)
		case filepath.Ext(at) == ".zst":
			return os.Link(from, at)
		}
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		return os.WriteFile(at, data, durable.FileMode)
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}
