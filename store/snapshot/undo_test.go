package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sess/store/durable/durabletest"
	"sess/store/snapshot"
	"sess/store/transcript"
)

func wantNames(t *testing.T, p *snapshot.Pool, when string, want map[snapshot.Name]string) {
	t.Helper()
	list, err := p.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != len(want) {
		t.Errorf("%s: listed %q, want %v", when, listed(t, p), want)
	}
	for name, mark := range want {
		if got := first(t, p, name); got != mark {
			t.Errorf("%s: %s holds %q, want %q", when, name, got, mark)
		}
	}
}

type names = map[snapshot.Name]string

func TestUndoAndRedoOfNames(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, tt := range []struct {
		kind  snapshot.OpKind
		do    func(*snapshot.Pool) error
		after names
	}{
		{snapshot.OpOverwrite, func(p *snapshot.Pool) error {
			_, err := newTalk("s1").speak("new", 1, 0).save(ctx, p, snapshot.SaveRequest{Name: "a", Overwrite: true})
			return err
		}, names{"a": "new", "b": "B", "c~": "C"}},
		{snapshot.OpOverwrite, func(p *snapshot.Pool) error {
			_, err := p.Copy(ctx, "b", "a", snapshot.CopyOptions{Overwrite: true})
			return err
		}, names{"a": "B", "b": "B", "c~": "C"}},
		{snapshot.OpDelete, func(p *snapshot.Pool) error {
			_, _, err := p.Delete(ctx, []snapshot.Name{"a", "b"}, snapshot.OpInfo{})
			return err
		}, names{"c~": "C"}},
		{snapshot.OpRename, func(p *snapshot.Pool) error {
			_, _, err := p.Rename(ctx, "a", "d", snapshot.RenameOptions{})
			return err
		}, names{"d": "A", "b": "B", "c~": "C"}},
		{snapshot.OpRename, func(p *snapshot.Pool) error {
			_, _, err := p.Rename(ctx, "a", "A", snapshot.RenameOptions{})
			return err
		}, names{"A": "A", "b": "B", "c~": "C"}},
		{snapshot.OpRename, func(p *snapshot.Pool) error {
			_, _, err := p.Rename(ctx, "a", "b", snapshot.RenameOptions{Overwrite: true})
			return err
		}, names{"b": "A", "c~": "C"}},
		{snapshot.OpPrune, func(p *snapshot.Pool) error {
			_, err := p.Prune(ctx, snapshot.Policy{Max: 2}, snapshot.PruneOptions{})
			return err
		}, names{"a": "A", "b": "B"}},
	} {
		p, _ := newPool(t)
		before := names{"a": "A", "b": "B", "c~": "C"}
		for n, mark := range before {
			put(t, p, n, mark)
		}
		if op, err := p.Undoable(ctx, ""); op != nil || err != nil {
			t.Fatalf("Undoable before anything: %v, %v", op, err)
		}
		if err := tt.do(p); err != nil {
			t.Fatalf("%s: %v", tt.kind, err)
		}
		wantNames(t, p, string(tt.kind), tt.after)
		for round := range 3 {
			if op, err := p.Undoable(ctx, "any session"); err != nil || op == nil || op.Kind != tt.kind {
				t.Fatalf("Undoable: %v, %v; want %s", op, err, tt.kind)
			}
			r := undo(t, p)
			if len(r.Restored) == 0 || len(r.Lost) != 0 || r.Op.State != snapshot.OpUndone {
				t.Errorf("undo of %s: %+v", tt.kind, r)
			}
			wantNames(t, p, fmt.Sprintf("undo %d of %s", round, tt.kind), before)
			if got := trashed(t, p); tt.kind != snapshot.OpOverwrite && got != "" {
				t.Errorf("undo of %s left %q in the trash", tt.kind, got)
			}
			if op, err := p.Undoable(ctx, ""); op != nil || err != nil {
				t.Fatalf("Undoable after undo: %v, %v", op, err)
			}
			redo(t, p)
			wantNames(t, p, fmt.Sprintf("redo %d of %s", round, tt.kind), tt.after)
		}
		if op, err := p.Redoable(ctx, ""); op != nil || err != nil {
			t.Fatalf("Redoable after redo: %v, %v", op, err)
		}
	}
}

func TestUndoGoesBackAndForthInOrder(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	for i := range 4 {
		put(t, p, "a", fmt.Sprint("v", i))
	}
	for i := 2; i >= 0; i-- {
		undo(t, p)
		wantNames(t, p, "undo", names{"a": fmt.Sprint("v", i)})
	}
	for i := 1; i <= 2; i++ {
		redo(t, p)
		wantNames(t, p, "redo", names{"a": fmt.Sprint("v", i)})
	}
	put(t, p, "b", "other") // a new name is nothing to undo, and ends nothing
	if op, err := p.Redoable(t.Context(), ""); op == nil || err != nil {
		t.Errorf("Redoable after a save under a new name: %v, %v", op, err)
	}
	put(t, p, "b", "again")
	if op, err := p.Redoable(t.Context(), ""); op != nil || err != nil {
		t.Errorf("Redoable after a new operation: %v, %v; want none", op, err)
	}
}

func TestUndoOfTakenName(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	put(t, p, "a", "one")
	put(t, p, "b", "two")
	if _, _, err := p.Delete(t.Context(), []snapshot.Name{"a", "b"}, snapshot.OpInfo{}); err != nil {
		t.Fatal(err)
	}
	put(t, p, "B", "stands in the way")
	op, err := p.Undoable(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.UndoNames(t.Context(), op)
	if e := wantAs[*snapshot.ExistsError](t, "undo onto a used name", err); e.Name != "B" || e.Hint == "" {
		t.Errorf("%+v, want the name and a way out", e)
	}
	if got := listed(t, p); got != "B" {
		t.Errorf("listed %q after a refused undo", got)
	}
	if _, _, err := p.Rename(t.Context(), "B", "b2", snapshot.RenameOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.UndoNames(t.Context(), op); err != nil {
		t.Fatalf("undo after the way out: %v", err)
	}
	wantNames(t, p, "undo", names{"a": "one", "b": "two", "b2": "stands in the way"})
	if _, err := p.UndoNames(t.Context(), op); !errors.Is(err, snapshot.ErrStale) {
		t.Errorf("undo of an undone operation: %v, want ErrStale", err)
	}
}

func TestUndoWithoutTrash(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	put(t, p, "a", "one")
	put(t, p, "b", "two")
	if _, _, err := p.Delete(t.Context(), []snapshot.Name{"a", "b"}, snapshot.OpInfo{}); err != nil {
		t.Fatal(err)
	}
	op, err := p.Undoable(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	lost := filepath.Join(p.Dir(), ".trash", op.Trash[0].File)
	if err := os.Remove(lost); err != nil {
		t.Fatal(err)
	}
	r, err := p.UndoNames(t.Context(), op)
	if err != nil || len(r.Lost) != 1 || r.Lost[0] != "a" || len(r.Restored) != 1 {
		t.Errorf("undo with a lost document: %+v, %v", r, err)
	}
	put(t, p, "b", "three")
	if op, err = p.Undoable(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(p.Dir(), ".trash")); err != nil {
		t.Fatal(err)
	}
	if _, err := p.UndoNames(t.Context(), op); !errors.Is(err, snapshot.ErrGone) {
		t.Errorf("undo without its trash: %v, want ErrGone", err)
	}
	wantNames(t, p, "refused undo", names{"b": "three"})
}

func TestUndoableIsForTheSession(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	ctx := t.Context()
	open := func(kind snapshot.OpKind, session, next string) string {
		op, err := p.OpenOp(ctx, snapshot.OpInfo{Kind: kind, Session: session, Name: "x", NameID: "id-" + session})
		if err != nil {
			t.Fatal(err)
		}
		if next != "" {
			if err := op.SetNewSession(ctx, next); err != nil {
				t.Fatal(err)
			}
		}
		if err := op.SetBackup(ctx, snapshot.Link{Name: "b~", ID: "b"}); err != nil {
			t.Fatal(err)
		}
		if got, err := p.Undoable(ctx, session); err != nil || got != nil && got.ID == op.ID() {
			t.Errorf("an open operation is undoable: %v, %v", got, err)
		}
		if err := op.Close(ctx); err != nil {
			t.Fatal(err)
		}
		return op.ID()
	}
	want := func(session, undo, redo string) {
		t.Helper()
		u, err1 := p.Undoable(ctx, session)
		r, err2 := p.Redoable(ctx, session)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		id := func(op *snapshot.Op) string {
			if op == nil {
				return ""
			}
			return op.ID
		}
		if id(u) != undo || id(r) != redo {
			t.Errorf("session %q: undo %q, redo %q; want %q, %q", session, id(u), id(r), undo, redo)
		}
	}
	first := open(snapshot.OpLoad, "s1", "")
	second := open(snapshot.OpNew, "s1", "s2")
	other := open(snapshot.OpCompact, "s3", "")
	want("s1", second, "")
	want("s2", second, "")
	want("s3", other, "")
	want("", "", "")
	if l, err := p.LoadedLast(ctx); err != nil || l.ID != "id-s1" {
		t.Errorf("LoadedLast: %+v, %v", l, err)
	}
	back := &snapshot.Link{Name: "r~", ID: "r"}
	if err := p.MarkUndone(ctx, second, snapshot.Kept{}); err != nil {
		t.Fatal(err)
	}
	if err := p.MarkUndone(ctx, first, snapshot.Kept{Link: back}); err != nil {
		t.Fatal(err)
	}
	if err := p.MarkUndone(ctx, first, snapshot.Kept{Link: back}); !errors.Is(err, snapshot.ErrStale) {
		t.Errorf("MarkUndone twice: %v, want ErrStale", err)
	}
	want("s1", "", first)
	want("s3", other, "")
	if op, err := p.FindOp(first); err != nil || op.Redo == nil || op.Redo.ID != "r" {
		t.Errorf("FindOp: %+v, %v", op, err)
	}
	if l, err := p.LoadedLast(ctx); err != nil || l != (snapshot.Link{}) {
		t.Errorf("LoadedLast after its undo: %+v, %v", l, err)
	}
	if err := p.MarkRedone(ctx, first, snapshot.Kept{Link: back}); err != nil {
		t.Fatal(err)
	}
	want("s1", first, second)
	third := open(snapshot.OpDeleteMessages, "s1", "")
	want("s1", third, "")
}

func TestOperationsSortAlsoWhenTheClockGoesBack(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	put(t, p, "a", "one")
	// The record of an operation from a clock a hundred years ahead.
	id := "04f0a1b2-c3d4-7000-8000-0000000000ff"
	if err := os.MkdirAll(filepath.Join(p.Dir(), ".ops"), 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, `{"id":"`+id+`","kind":"compact","session":"s1","state":"closed"}`, p.Dir(), ".ops", id+".json")
	put(t, p, "a", "two")
	op, err := p.Undoable(t.Context(), "s1")
	if err != nil || op == nil || op.Kind != snapshot.OpOverwrite {
		t.Errorf("Undoable: %+v, %v; want the overwrite, which came last", op, err)
	}
}

func TestWithdrawRemovesRecordAndBackup(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	ctx := t.Context()
	op, err := p.OpenOp(ctx, snapshot.OpInfo{Kind: snapshot.OpLoad, Session: "s1"})
	if err != nil {
		t.Fatal(err)
	}
	e := newTalk("s1").speak("x", 1, 0).mustSave(t, p, snapshot.SaveRequest{AutoPrefix: "pre-load~", BackupFor: op})
	rec, err := p.FindOp(op.ID())
	if err != nil || rec.Backup == nil || rec.Backup.ID != e.Meta.ID || rec.Backup.Name != e.Name {
		t.Fatalf("record %+v, %v; want the backup", rec, err)
	}
	if r, err := p.Recover(ctx, nil); len(r) != 0 || err != nil {
		t.Errorf("Recover took an operation whose owner is at work: %v, %v", r, err)
	}
	if err := op.Withdraw(ctx); err != nil {
		t.Fatal(err)
	}
	if err := op.Withdraw(ctx); err != nil {
		t.Errorf("second Withdraw: %v", err)
	}
	files, err := os.ReadDir(filepath.Join(p.Dir(), ".ops"))
	if err != nil || len(files) != 0 || listed(t, p) != "" || trashed(t, p) != "" {
		t.Errorf("left: records %v, %q, trash %q", files, listed(t, p), trashed(t, p))
	}
}

// die leaves an operation as its owner's death would: by closing the pool's
// files without a word.
func die(t *testing.T, dir string, info snapshot.OpInfo) string {
	t.Helper()
	cmd := child(t, "die", dir)
	cmd.Env = append(cmd.Env, "SESS_TEST_SESSION="+info.Session)
	out, err := cmd.Output()
	if err == nil {
		t.Fatalf("the child lived: %s", out)
	}
	return strings.TrimSpace(string(out))
}

func TestRecoverAsksAboutTheDead(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	ctx := t.Context()
	ids := map[string]string{}
	for _, s := range []string{snapshot.Landed, snapshot.Void, snapshot.Unknown, "fails"} {
		ids[s] = die(t, p.Dir(), snapshot.OpInfo{Session: s})
	}
	if got := strings.Count(listed(t, p), "pre-load~"); got != 4 {
		t.Fatalf("%d backups, want 4: %q", got, listed(t, p))
	}
	ask := func(_ context.Context, op snapshot.Op) (string, error) {
		if op.Session == "fails" {
			return "", errors.New("the host is away")
		}
		return op.Session, nil
	}
	r, err := p.Recover(ctx, ask)
	if len(r) != 4 || err == nil || !strings.Contains(err.Error(), "the host is away") {
		t.Errorf("Recover: %+v, %v", r, err)
	}
	for outcome, id := range ids {
		op, err := p.FindOp(id)
		switch outcome {
		case snapshot.Landed:
			if err != nil || op.State != snapshot.OpClosed {
				t.Errorf("landed: %+v, %v", op, err)
			}
		case snapshot.Void:
			if err == nil {
				t.Errorf("void: %+v is still there", op)
			}
		default:
			if err != nil || op.State != snapshot.OpOpen {
				t.Errorf("%s: %+v, %v", outcome, op, err)
			}
		}
	}
	if got := strings.Count(listed(t, p), "pre-load~"); got != 3 {
		t.Errorf("%d backups, want 3 without that of the void one", got)
	}
	if r, err := p.Recover(ctx, nil); len(r) != 2 || err != nil || r[0].Outcome != snapshot.Unknown {
		t.Errorf("Recover without an answer: %+v, %v", r, err)
	}
	ask = func(context.Context, snapshot.Op) (string, error) { return snapshot.Void, nil }
	if r, err := p.Recover(ctx, ask); len(r) != 2 || err != nil {
		t.Errorf("Recover at last: %+v, %v", r, err)
	}
	locks, err := filepath.Glob(filepath.Join(p.Dir(), ".ops", "*.lock"))
	if err != nil || len(locks) != 0 {
		t.Errorf("lock files left: %v, %v", locks, err)
	}
}

func TestPruneProtectsWhatWasLoadedLast(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	ctx := t.Context()
	var loaded snapshot.Entry
	for i := range 6 {
		e := put(t, p, snapshot.Name(fmt.Sprintf("a%d~", i)), "x")
		if i == 1 {
			loaded = e
		}
	}
	op, err := p.OpenOp(ctx, snapshot.OpInfo{Kind: snapshot.OpLoad, Session: "s1", Name: string(loaded.Name), NameID: loaded.Meta.ID})
	if err != nil {
		t.Fatal(err)
	}
	if err := op.Close(ctx); err != nil {
		t.Fatal(err)
	}
	dry, err := p.Prune(ctx, snapshot.Policy{Max: 3}, snapshot.PruneOptions{DryRun: true})
	if err != nil || len(dry.Drop) != 3 || !dry.DryRun {
		t.Fatalf("dry run: %+v, %v", dry, err)
	}
	if run, err := p.LastPrune(); err != nil || !run.Started.IsZero() {
		t.Errorf("a dry run was recorded: %+v, %v", run, err)
	}
	done, err := p.Prune(ctx, snapshot.Policy{Max: 3}, snapshot.PruneOptions{Automatic: true})
	if err != nil || fmt.Sprint(reasons(done.Drop)) != fmt.Sprint(reasons(dry.Drop)) {
		t.Errorf("real run dropped %v, %v; the dry one %v", reasons(done.Drop), err, reasons(dry.Drop))
	}
	if got := listed(t, p); got != "a5~ a4~ a1~" {
		t.Errorf("listed %q, want the newest and the one loaded last", got)
	}
	run, err := p.LastPrune()
	if err != nil || run.Finished.IsZero() || len(run.Dropped) != 3 || run.Kept != 3 || !run.Automatic || run.Op != done.Op {
		t.Errorf("LastPrune: %+v, %v", run, err)
	}
	list, err := p.ListTrash(ctx)
	if err != nil || len(list) != 3 || list[0].Reason != "auto-managed, oldest above maxSnapshots 3" {
		t.Errorf("trash %+v, %v; want names and reasons", list, err)
	}
	if u, err := p.Undoable(ctx, ""); u != nil || err != nil {
		t.Errorf("an automatic prune is undoable: %+v, %v", u, err)
	}
	if e, err := p.RestoreTrash(ctx, "a0~", ""); err != nil || e.Name != "a0~" {
		t.Errorf("RestoreTrash of a pruned one: %+v, %v", e, err)
	}
	if r, err := p.Prune(ctx, snapshot.Policy{Max: 50}, snapshot.PruneOptions{NoRecord: true}); err != nil || len(r.Drop) != 0 {
		t.Errorf("Prune: %+v, %v", r, err)
	}
	if again, err := p.LastPrune(); err != nil || !again.Started.Equal(run.Started) {
		t.Errorf("a run without a record changed the last one: %+v, %v", again, err)
	}
}

func reasons(list []snapshot.Decision) []string {
	var out []string
	for _, d := range list {
		out = append(out, string(d.Entry.Name)+": "+d.Reason)
	}
	return out
}

func TestTrash(t *testing.T) {
	t.Parallel()
	c := newClock()
	p := openPool(t, t.TempDir(), snapshot.Options{Now: c.Now, TrashKeep: 7 * 24 * time.Hour})
	ctx := t.Context()
	put(t, p, "a", "one")
	b := put(t, p, "b", "two")
	del := func(n ...snapshot.Name) {
		if _, _, err := p.Delete(ctx, n, snapshot.OpInfo{}); err != nil {
			t.Fatal(err)
		}
	}
	del("a", "b")
	put(t, p, "a", "three")
	_, err := p.RestoreTrash(ctx, "a", "")
	if e := wantAs[*snapshot.ExistsError](t, "restore onto a used name", err); !strings.Contains(e.Hint, "another name") {
		t.Errorf("hint %q", e.Hint)
	}
	_, err = p.RestoreTrash(ctx, "a", "no good")
	wantAs[*snapshot.NameError](t, "restore under no name", err)
	_, err = p.RestoreTrash(ctx, "bb", "")
	if e := wantAs[*snapshot.NotFoundError](t, "restore of nothing", err); len(e.Near) == 0 {
		t.Error("no near names")
	}
	if e, err := p.RestoreTrash(ctx, b.Meta.ID, "b2"); err != nil || e.Name != "b2" || e.Meta.ID != b.Meta.ID {
		t.Errorf("restore by id: %+v, %v", e, err)
	}
	del("a")
	if e, err := p.RestoreTrash(ctx, "a", ""); err != nil || first(t, p, "a") != "three" {
		t.Errorf("restore of the one deleted last: %+v, %v", e, err)
	}
	// The first delete can still take back what is left of it.
	del("a")
	if _, err := p.RestoreTrash(ctx, "a", "a3"); err != nil {
		t.Fatal(err)
	}
	undo(t, p)
	wantNames(t, p, "undo of what is left", names{"a": "one", "a3": "three", "b2": "two"})

	del("a", "b2")
	list, err := p.ListTrash(ctx)
	if err != nil || len(list) != 2 || !list[0].Expires.Equal(list[0].DeletedAt.Add(7*24*time.Hour)) {
		t.Fatalf("ListTrash: %+v, %v", list, err)
	}
	c.Add(24 * time.Hour)
	del("a3")
	if n, _, err := p.EmptyTrash(ctx, 48*time.Hour, false); n != 0 || err != nil {
		t.Errorf("EmptyTrash of young ones: %d, %v", n, err)
	}
	n, size, err := p.EmptyTrash(ctx, 23*time.Hour, true)
	if n != 2 || size == 0 || err != nil || trashed(t, p) != "a3 b2 a" && trashed(t, p) != "a3 a b2" {
		t.Errorf("dry run: %d, %d bytes, %v, trash %q", n, size, err, trashed(t, p))
	}
	if n, got, err := p.EmptyTrash(ctx, 23*time.Hour, false); n != 2 || got != size || err != nil || trashed(t, p) != "a3" {
		t.Errorf("EmptyTrash: %d, %d bytes, %v, trash %q", n, got, err, trashed(t, p))
	}
	undo(t, p)
	if op, err := p.Undoable(ctx, ""); op != nil || err != nil {
		t.Errorf("Undoable: %+v, %v; want none: the trash of the others is gone", op, err)
	}
	c.Add(-48 * time.Hour)
	if n, _, err := p.EmptyTrash(ctx, time.Second, false); n != 0 || err != nil {
		t.Errorf("EmptyTrash under a clock set back: %d, %v", n, err)
	}
}

// What a fast clock dated does not hide what was taken away after it.
func TestTrashAfterAClockAhead(t *testing.T) {
	t.Parallel()
	p, c := newPool(t)
	remove := func(mark string) {
		t.Helper()
		put(t, p, "v1", mark)
		if _, _, err := p.Delete(t.Context(), []snapshot.Name{"v1"}, snapshot.OpInfo{}); err != nil {
			t.Fatal(err)
		}
	}
	c.Add(2 * 365 * 24 * time.Hour)
	remove("ahead")
	c.Add(-2 * 365 * 24 * time.Hour)
	remove("last")
	if _, err := p.RestoreTrash(t.Context(), "v1", ""); err != nil {
		t.Fatal(err)
	}
	if got := first(t, p, "v1"); got != "last" {
		t.Errorf("the trash gave back %q, want what was deleted last", got)
	}
}

// TestCopyWithoutRecord has copies in the trash whose overwrites left no record,
// as a power cut may leave them: that of a document which has its name still goes,
// what is nowhere else stays.
func TestCopyWithoutRecord(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	kept := put(t, p, "a", "one")
	put(t, p, "a", "two")
	trash := filepath.Join(p.Dir(), ".trash")
	records, err := filepath.Glob(filepath.Join(trash, "????????-????-????-????-????????????.json"))
	if err != nil || len(records) != 1 {
		t.Fatalf("records %v, %v; want one", records, err)
	}
	if err := os.Remove(records[0]); err != nil {
		t.Fatal(err)
	}
	e := put(t, p, "b", "three")
	data, err := os.ReadFile(e.File)
	if err != nil {
		t.Fatal(err)
	}
	copied := writeFile(t, string(data), trash, e.Meta.ID+".018f0000-0000-7000-8000-000000000001.sess.json")
	for range 2 {
		if _, err := p.Recover(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(copied); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the copy of what has its name: %v, want it gone", err)
		}
		wantNames(t, p, "after Recover", names{"a": "two", "b": "three"})
		if s, err := p.ReadTrash(t.Context(), kept.Meta.ID); err != nil || s.Doc.Meta.ID != kept.Meta.ID {
			t.Errorf("what is only in the trash: %v, want it there", err)
		}
	}
}

func TestTrashWithoutRecord(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	e := put(t, p, "a", "one")
	if _, _, err := p.Delete(t.Context(), []snapshot.Name{"a"}, snapshot.OpInfo{}); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(p.Dir(), ".ops")); err != nil {
		t.Fatal(err)
	}
	_, err := p.RestoreTrash(t.Context(), e.Meta.ID, "")
	wantAs[*snapshot.NameError](t, "restore of what has no name", err)
	if _, err := p.RestoreTrash(t.Context(), e.Meta.ID, "back"); err != nil || first(t, p, "back") != "one" {
		t.Errorf("restore under a name: %v", err)
	}
}

func TestSweep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := openPool(t, dir, snapshot.Options{})
	later := openPool(t, dir, snapshot.Options{Now: func() time.Time { return time.Now().Add(2 * time.Hour) }})
	ctx := t.Context()
	newTalk("s1").speak("x", 10, 60<<10).mustSave(t, p, snapshot.SaveRequest{Name: "a"})
	newTalk("s1").speak("y", 10, 60<<10).mustSave(t, p, snapshot.SaveRequest{Name: "b"})
	if _, _, err := p.Delete(ctx, []snapshot.Name{"b"}, snapshot.OpInfo{}); err != nil {
		t.Fatal(err)
	}
	writeFile(t, "x", dir, ".a.sess.json.0123.tmp")
	writeFile(t, "x", dir, ".trash", ".x.tmp")
	writeFile(t, "x", dir, ".ops", ".x.tmp")

	w, err := p.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := later.Sweep(ctx); err != nil || r.Skipped == "" || r.Temps != 0 {
		t.Errorf("Sweep during a save: %+v, %v; want it skipped", r, err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if r, err := later.Sweep(ctx); err != nil || r.Skipped != "" || r.Temps != 3 || r.Chunks != 0 || r.Records != 0 {
		t.Errorf("Sweep with everything in use: %+v, %v", r, err)
	}
	undo(t, p)
	content(t, p, "b")
	if _, _, err := p.Delete(ctx, []snapshot.Name{"b"}, snapshot.OpInfo{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.EmptyTrash(ctx, 0, false); err != nil {
		t.Fatal(err)
	}
	bad := writeFile(t, "", dir, "bad.sess.json")
	if r, err := later.Sweep(ctx); err != nil || !strings.Contains(r.Skipped, bad) || r.Chunks != 0 {
		t.Errorf("Sweep with a damaged document: %+v, %v; want it skipped and the file named", r, err)
	}
	if err := os.Remove(bad); err != nil {
		t.Fatal(err)
	}
	if r, err := p.Sweep(ctx); err != nil || r.Chunks != 0 {
		t.Errorf("Sweep of young chunks: %+v, %v; want none gone", r, err)
	}
	if r, err := later.Sweep(ctx); err != nil || r.Chunks == 0 || r.Bytes == 0 {
		t.Errorf("Sweep: %+v, %v; want the chunks of b gone", r, err)
	}
	content(t, p, "a")
}

func TestSweepForgetsOldRecords(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	ctx := t.Context()
	put(t, p, "a", "x")
	backup := put(t, p, "pre-load~1", "x")
	load := func(l *snapshot.Link) string {
		op, err := p.OpenOp(ctx, snapshot.OpInfo{Kind: snapshot.OpLoad, Session: "s1"})
		if err != nil {
			t.Fatal(err)
		}
		if l != nil {
			if err := op.SetBackup(ctx, *l); err != nil {
				t.Fatal(err)
			}
		}
		if err := op.Close(ctx); err != nil {
			t.Fatal(err)
		}
		return op.ID()
	}
	gone := load(&snapshot.Link{Name: "pre-load~0", ID: "gone"})
	kept := load(&snapshot.Link{Name: backup.Name, ID: backup.Meta.ID})
	last := load(&snapshot.Link{Name: "pre-load~2", ID: "gone too"})
	if r, err := p.Sweep(ctx); err != nil || r.Records != 1 {
		t.Errorf("Sweep: %+v, %v; want one record gone", r, err)
	}
	for id, want := range map[string]bool{gone: false, kept: true, last: true} {
		if _, err := p.FindOp(id); (err == nil) != want {
			t.Errorf("record %s: %v", id, err)
		}
	}
	// Old ones that nothing in the trash needs go when there are many.
	for i := range 210 {
		id := fmt.Sprintf("01900000-0000-7000-8000-%012d", i)
		writeFile(t, `{"kind":"rename","state":"closed","from":"x","to":"y"}`, p.Dir(), ".ops", id+".json")
	}
	if _, _, err := p.Rename(ctx, "a", "b", snapshot.RenameOptions{}); err != nil {
		t.Fatal(err)
	}
	if r, err := p.Sweep(ctx); err != nil || r.Records != 13 {
		t.Errorf("Sweep of 213 records: %+v, %v; want 13 gone", r, err)
	}
	if _, err := p.FindOp(last); err != nil {
		t.Errorf("the newest load is forgotten: %v", err)
	}
	undo(t, p)
}

func TestUndoneMetaStaysReadable(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	put(t, p, "a", "one")
	put(t, p, "a", "two")
	// A change of the note since is kept for redo.
	if _, err := p.SetMeta(t.Context(), "a", func(m *transcript.Meta) error { m.Note = "since"; return nil }, true); err != nil {
		t.Fatal(err)
	}
	undo(t, p)
	wantNames(t, p, "undo", names{"a": "one"})
	redo(t, p)
	s, err := p.Read(t.Context(), "a")
	if err != nil || s.Doc.Meta.Note != "since" {
		t.Errorf("redo brought back %+v, %v; want the note", s, err)
	}
}

func TestRecoverKeepsWhatARenameReplaced(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	put(t, p, "a", "A")
	put(t, p, "b", "B")
	if _, _, err := p.Rename(t.Context(), "a", "b", snapshot.RenameOptions{Overwrite: true}); err != nil {
		t.Fatal(err)
	}
	// As if the process had died before the record was closed, and the old name
	// had been given anew before anybody looked.
	op, err := p.Undoable(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(p.Dir(), ".ops", op.ID+".json")
	record := string(readFile(t, file))
	writeFile(t, strings.Replace(record, `"state":"closed"`, `"state":"open"`, 1), file)
	put(t, p, "a", "new")
	r, err := p.Recover(t.Context(), nil)
	if err != nil || len(r) != 1 || r[0].Outcome != snapshot.Landed {
		t.Errorf("Recover: %+v, %v; want the rename landed", r, err)
	}
	if _, err := p.RestoreTrash(t.Context(), "b", "old"); err != nil || first(t, p, "old") != "B" {
		t.Errorf("what the rename replaced is lost: %v", err)
	}
}

// Redo is over when something new was done, also when that was undone itself.
func TestRedoEndsWithWhatWasDoneSince(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	put(t, p, "a", "A")
	put(t, p, "b", "B")
	if _, _, err := p.Delete(t.Context(), []snapshot.Name{"a"}, snapshot.OpInfo{}); err != nil {
		t.Fatal(err)
	}
	undo(t, p)
	if _, _, err := p.Rename(t.Context(), "b", "c", snapshot.RenameOptions{}); err != nil {
		t.Fatal(err)
	}
	if op, err := p.Redoable(t.Context(), ""); err != nil || op != nil {
		t.Errorf("Redoable after something new: %+v, %v; want nothing", op, err)
	}
	undo(t, p)
	if r := redo(t, p); r.Op.Kind != snapshot.OpRename {
		t.Errorf("redo did the %s, want the rename", r.Op.Kind)
	}
	wantNames(t, p, "after the redo", names{"a": "A", "c": "B"})
	if op, err := p.Redoable(t.Context(), ""); err != nil || op != nil {
		t.Errorf("Redoable in the end: %+v, %v; want nothing", op, err)
	}
}

// An undo or redo that fails takes nothing back that it has not done: the name
// was saved anew by the program meanwhile, and what it held is nowhere else.
func TestFailedTurnKeepsWhatWasSavedSince(t *testing.T) {
	t.Parallel()
	for _, turn := range []string{"undo", "redo"} {
		for k := 0; ; k++ {
			var faulty durabletest.Faulty
			p := openPool(t, t.TempDir(), snapshot.Options{FS: faulty.Open, Now: newClock().Now})
			put(t, p, "a~", "first")
			put(t, p, "a~", "second")
			undo(t, p)
			if turn == "undo" {
				redo(t, p)
			}
			if _, err := newTalk("s1").speak("third", 1, 0).save(t.Context(), p, snapshot.SaveRequest{Name: "a~", Rolling: true}); err != nil {
				t.Fatal(err)
			}
			find, do := p.Redoable, p.RedoNames
			if turn == "undo" {
				find, do = p.Undoable, p.UndoNames
			}
			op, err := find(t.Context(), "")
			if err != nil || op == nil {
				t.Fatalf("%s finds %v, %v", turn, op, err)
			}
			faulty.FailAt(k, syscall.ENOSPC, false)
			_, err = do(t.Context(), op)
			fired := faulty.Fired()
			faulty.Reset()
			if _, err := p.Recover(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			kept := map[string]bool{first(t, p, "a~"): true}
			trash, lerr := p.ListTrash(t.Context())
			if lerr != nil {
				t.Fatal(lerr)
			}
			for _, e := range trash {
				doc, err := transcript.Decode(readFile(t, e.File))
				if err != nil {
					t.Fatal(err)
				}
				kept[strings.TrimSpace(text(t, p, &snapshot.Snapshot{Doc: doc}))] = true
			}
			for _, mark := range []string{"first", "second", "third"} {
				if !kept[mark] {
					t.Errorf("%s failing at %d (%v): %s is lost", turn, k, err, mark)
				}
			}
			if !fired {
				break
			}
		}
	}
}

// An overwrite can be undone when its name is free by then, and redo frees the
// name again.
func TestUndoOfAnOverwriteWhoseNameIsFree(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	put(t, p, "a", "one")
	put(t, p, "a", "two")
	if _, _, err := p.Delete(t.Context(), []snapshot.Name{"a"}, snapshot.OpInfo{}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.RestoreTrash(t.Context(), "a", "b"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		undo(t, p)
		wantNames(t, p, "after the undo", names{"a": "one", "b": "two"})
		redo(t, p)
		wantNames(t, p, "after the redo", names{"b": "two"})
	}
}

// Two versions of one snapshot, which have the same id, can stand under two
// names; the trash keeps both when they go together.
func TestVersionsOfOneSnapshotGoTogether(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	put(t, p, "a", "one")
	put(t, p, "a", "two")
	if _, _, err := p.Delete(t.Context(), []snapshot.Name{"a"}, snapshot.OpInfo{}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.RestoreTrash(t.Context(), "a", "b"); err != nil {
		t.Fatal(err)
	}
	undo(t, p)
	both := names{"a": "one", "b": "two"}
	wantNames(t, p, "before", both)
	if _, _, err := p.Delete(t.Context(), []snapshot.Name{"a", "b"}, snapshot.OpInfo{}); err != nil {
		t.Fatal(err)
	}
	undo(t, p)
	wantNames(t, p, "after the undo", both)
}
