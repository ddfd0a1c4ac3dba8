package tests

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
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
	"sess/plugin/sess"
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

// rig is a host with the sess plugin in this process, over one home: all that
// either of them does to the disk passes through one place, in one order.
type rig struct {
	*testing.T
	*host.Host
	home string
	now  time.Time
}

// openRig opens the home. The caller closes the host, since that may fail.
func openRig(t *testing.T, home string, open durable.OpenFunc, now time.Time) (*rig, error) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile("../plugin.json")
	if err != nil {
		t.Fatal(err)
	}
	clock := func() time.Time { return now }
	h, err := host.Open(t.Context(), host.Options{
		Home: home, Exe: exe, Builtins: [][]byte{manifest}, Now: clock, FS: open, ChunkWriters: 1,
		Local: map[string]plugin.Plugin{"sess": sess.New(sess.Options{
			Build: "test", Now: clock, Pool: snapshot.Options{FS: open, ChunkWriters: 1},
		})},
	})
	return &rig{T: t, Host: h, home: home, now: now}, err
}

// sess runs one command as the command line does.
func (r *rig) sess(argv ...string) error {
	_, err := r.Dispatch(r.Context(), plugin.Call{Argv: append([]string{"sess"}, argv...), Caller: plugin.CallerCLI}, nil)
	return err
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

// write adds messages of 8 KB to the session, as a client of the store does.
func (r *rig) write(mark string, n int) error {
	ctx := r.Context()
	locked, err := r.Sessions().Lock(ctx, session.Ref{Project: "default", ID: talkID}, "test", false)
	if err != nil {
		return err
	}
	live, err := locked.Read(ctx)
	if err == nil {
		for range n {
			l := live.Doc.List(transcript.ListMessages)
			err = errors.Join(err, live.Append(transcript.ListMessages, prose(mark, l.Records)))
		}
		if err == nil {
			_, err = locked.Write(ctx, live, live.Revision)
		}
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
	data, err := json.Marshal(transcript.Message{
		ID: fmt.Sprintf("m%d", i), Role: []transcript.Role{transcript.RoleUser, transcript.RoleAgent}[i%2],
		Content: b.String(), Status: transcript.StatusComplete,
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
	between func(before, now, after string) bool
}

func command(argv ...string) func(*rig) error {
	return func(r *rig) error { return r.sess(argv...) }
}

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
	{name: "load", do: command("load", "early")},
	{name: "load without backup", do: command("load", "early", "--no-backup")},
	{name: "new", do: command("new")},
	{name: "new from a snapshot", do: command("new", "--from=early")},
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
	{name: "undo delete", prepare: command("delete", "early"), do: command("undo")},
	{name: "undo rename", prepare: command("rename", "early", "late", "--overwrite"), do: command("undo")},
	{name: "redo load", prepare: inOrder(command("load", "early"), command("undo")), do: command("redo")},
	{name: "redo new", prepare: inOrder(command("new"), command("undo")), do: command("redo")},
	{name: "redo delete", prepare: inOrder(command("delete", "early"), command("undo")), do: command("redo")},
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
}

// partOfTurn accepts a turn of which the question is there, and of the answer
// what came.
func partOfTurn(before, now, after string) bool {
	was, is, will := liveLines(before), liveLines(now), liveLines(after)
	rest := func(state string) string { _, rest, _ := strings.Cut(state, "\n--\n"); return rest }
	return len(is) > len(was) && len(is) <= len(will) && slices.Equal(is[:len(was)], was) &&
		is[len(was)] == will[len(was)] && rest(now) == rest(before)
}

// partlyEmptied accepts a trash of which some is gone for good already.
func partlyEmptied(before, now, _ string) bool {
	was, wasTrash := withoutTrash(before)
	is, isTrash := withoutTrash(now)
	return is == was && !slices.ContainsFunc(isTrash, func(line string) bool { return !slices.Contains(wasTrash, line) })
}

// withoutTrash takes the lines about the trash out of a state.
func withoutTrash(state string) (rest string, trash []string) {
	for line := range strings.Lines(state) {
		if strings.HasPrefix(line, "trash ") {
			trash = append(trash, strings.TrimSuffix(line, "\n"))
		} else {
			rest += line
		}
	}
	return strings.TrimSuffix(rest, "\n"), trash
}

// liveLines are the messages of the live session in a state.
func liveLines(state string) []string {
	live, _, _ := strings.Cut(state, "\n--\n")
	return strings.Split(live, "\n")
}

// newHome makes a home whose session has grown past the snapshots early and late
// of it; spare~ and spare2~ are the first to be pruned.
func newHome(t *testing.T, now time.Time) string {
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
		inOrder(
			func(r *rig) error { return r.write("first", 12) }, command("save", "early"), command("save", "spare~"),
			func(r *rig) error { return r.write("second", 3) }, command("save", "late"), command("save", "spare2~"),
			func(r *rig) error { return r.write("third", 3) },
		)(r),
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
	before, after string    // the states
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
	ctx, later := t.Context(), p.now.Add(2*time.Hour)
	r, err := openRig(t, home, open, later)
	if err != nil {
		t.Errorf("the next start: %v", err)
		return
	}
	if err := r.sess("verify"); err != nil && !errors.Is(err, &plugin.Error{Code: plugin.NotFound}) {
		t.Errorf("verify after the next start: %v", err)
	}
	// What follows a turn is the occasion to tidy up.
	for _, notice := range r.Notify(ctx, plugin.Event{Kind: plugin.EventTurnEnded, Project: "default", Session: talkID}) {
		t.Errorf("the next start: %s", notice)
	}
	if err := errors.Join(r.Sessions().Sweep(ctx), r.Close(ctx)); err != nil {
		t.Errorf("sweep after the next start: %v", err)
	}
	pool, err := snapshot.Open(filepath.Join(home, filepath.FromSlash(poolAt)), snapshot.Options{
		FS: open, Now: func() time.Time { return later },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if left, err := pool.Recover(ctx, nil); err != nil || len(left) > 0 {
		t.Errorf("after the next start there is something to recover: %v, %v", left, err)
	}
	if swept, err := pool.Sweep(ctx); err != nil || swept.Skipped != "" {
		t.Errorf("sweep of the pool: %+v, %v", swept, err)
	}
	err = filepath.WalkDir(home, func(name string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(name, durable.TempSuffix) {
			t.Errorf("left behind: %s", name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// judge compares a home after the next start with what may be there.
func (p *prepared) judge(t *testing.T, home string, err error) {
	t.Helper()
	switch now := homeState(t, home, p.now); {
	case now == p.after:
	case err == nil:
		t.Errorf("it reported success; %s", p.differences(now))
	case now != p.before && (p.between == nil || !p.between(p.before, now, p.after)):
		t.Errorf("after the error %q it is neither the old state nor the new one; %s", err, p.differences(now))
	}
}

func (p *prepared) differences(now string) string {
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
	base := newHome(t, start)
	for _, c := range faultCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := prepare(t, base, c, start)
			for _, k := range p.points(p.ops) {
				for i := range max(1, min(*faultRuns, 6)) {
					kind := []error{syscall.ENOSPC, syscall.EIO, io.ErrShortWrite}[(k+i)%3]
					dead := (k/3+i/3)%2 == 1
					t.Run(fmt.Sprintf("%d %v dead=%v", k, kind, dead), func(t *testing.T) { p.fault(t, k, kind, dead) })
				}
			}
			for _, k := range p.points(p.ops + 1) {
				t.Run(fmt.Sprintf("%d power", k), func(t *testing.T) { p.cut(t, k) })
			}
		})
	}
}

// points chooses at which of n operations to try.
func (p *prepared) points(n int) []int {
	const few = 3
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
	if !disk.Fired() {
		t.Fatalf("of %d operations none was the one to fail", len(ops))
	}
	if err != nil {
		p.checkError(t, home, err, kind)
	}
	atOnce := homeState(t, home, p.now)
	p.restart(t, home)
	p.judge(t, home, err)
	// Where only the record of what was done could not be finished, the trash may
	// tell a little less until the next start.
	then, thenTrash := withoutTrash(atOnce)
	now, nowTrash := withoutTrash(homeState(t, home, p.now))
	if !dead && (then != now || err != nil && !slices.Equal(thenTrash, nowTrash)) {
		t.Errorf("the next start changed what was there after the error %v from\n%s\n%q\nto\n%s\n%q", err, then, thenTrash, now, nowTrash)
	}
	if t.Failed() {
		t.Logf("%v failed, and the operation said %v; operations:\n%v", ops[k], err, ops)
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

func copyOf(t *testing.T, home string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "home")
	if err := os.CopyFS(to, os.DirFS(home)); err != nil {
		t.Fatal(err)
	}
	return to
}

// homeState is everything in a home that people can lose: what every session,
// snapshot and piece of trash says, and which session is active. It settles
// nothing.
func homeState(t *testing.T, home string, now time.Time) string {
	t.Helper()
	ctx, clock := t.Context(), func() time.Time { return now }
	store, err := session.Open(filepath.Join(home, "sessions"), session.Options{FS: durabletest.Unsynced, Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	pool, err := snapshot.Open(filepath.Join(home, filepath.FromSlash(poolAt)), snapshot.Options{FS: durabletest.Unsynced, Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()

	manifest, err := store.Manifest(ctx)
	if err != nil {
		t.Errorf("manifest: %v", err)
	}
	infos, err := store.List(ctx)
	if err != nil {
		t.Errorf("sessions: %v", err)
	}
	var talk string
	var rest []string
	for _, info := range infos {
		l, _, err := store.Settled(ctx, info.Ref)
		if err != nil {
			t.Errorf("session %s: %v", info.Ref, err)
			continue
		}
		said := says(t, &l.Doc, store.Plain)
		selected, err := store.Selected(info.Ref)
		if err != nil {
			t.Errorf("session %s: %v", info.Ref, err)
		}
		if selected != "" {
			selected = ", shows a snapshot"
		}
		active := ""
		if manifest.LastSessionID == info.Ref.ID {
			active = ", active"
		}
		if info.Ref.ID == talkID {
			talk = said
			said = "of old"
		}
		rest = append(rest, fmt.Sprintf("session %q%s%s: %s", info.Title, active, selected, short(said)))
	}
	entries, err := pool.List(ctx)
	if err != nil {
		t.Errorf("snapshots: %v", err)
	}
	for _, e := range entries {
		s, err := pool.Read(ctx, e.Name)
		if err != nil {
			t.Errorf("snapshot %s: %v", e.Name, err)
			continue
		}
		rest = append(rest, fmt.Sprintf("snapshot %s %v %q %v %v: %s", e.Name, e.Meta.Trigger, e.Meta.Note, e.Meta.Tags, e.Meta.Pinned, short(says(t, s.Doc, pool.Plain))))
	}
	trash, err := pool.ListTrash(ctx)
	if err != nil {
		t.Errorf("trash: %v", err)
	}
	for _, e := range trash {
		rest = append(rest, fmt.Sprintf("trash %s, %d messages, %s", e.Name, e.Meta.Messages, e.Reason))
	}
	slices.Sort(rest)
	return talk + "\n--\n" + strings.Join(rest, "\n")
}

// short stands for a long text.
func short(text string) string {
	h := fnv.New64a()
	fmt.Fprint(h, text)
	return fmt.Sprintf("%d lines, %x", strings.Count(text, "\n")+1, h.Sum64())
}

// says is what the messages and the history of a document say, one a line,
// without ids and times, which no two runs have in common.
func says(t *testing.T, doc *transcript.Document, load transcript.Loader) string {
	t.Helper()
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(doc.Lists)) {
		list := doc.Lists[name]
		if name != transcript.ListMessages {
			continue
		}
		for rec, err := range list.All(load, 0, list.Records) {
			var m transcript.Message
			if err == nil {
				err = json.Unmarshal(rec, &m)
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
				break
			}
			h := fnv.New64a()
			fmt.Fprint(h, m.Content)
			lines = append(lines, fmt.Sprintf("%s %s %.10q %x", m.Role, m.Status, m.Content, h.Sum64()))
		}
	}
	return strings.Join(lines, "\n")
}
