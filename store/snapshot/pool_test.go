package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sess/store/durable"
	"sess/store/snapshot"
	"sess/store/transcript"
)

func TestOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := snapshot.OpenExisting(filepath.Join(dir, "none"), snapshot.Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("OpenExisting of no folder: %v, want fs.ErrNotExist", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "none")); err == nil {
		t.Error("OpenExisting made the folder")
	}
	file := writeFile(t, "x", dir, "file")
	if _, err := snapshot.Open(file, snapshot.Options{}); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("Open of a file: %v, want an error that names it", err)
	}
	p := openPool(t, filepath.Join(dir, "a", "b"), snapshot.Options{})
	if got := listed(t, p); got != "" {
		t.Errorf("a new pool lists %q", got)
	}
}

func TestSaveAndRead(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	// Long enough for index chunks: their children are asked for in turn.
	c := newTalk("s1").speak("long", 300, 60<<10)
	if len(c.doc.List(transcript.ListMessages).Index) == 0 {
		t.Fatal("the conversation is too short to have index chunks")
	}
	e := c.mustSave(t, p, snapshot.SaveRequest{Name: "alpha"})
	if e.Name != "alpha" || e.Meta.ID == "" || e.Meta.CreatedAt.IsZero() || !e.Meta.UpdatedAt.Equal(e.Meta.CreatedAt) {
		t.Errorf("Save returned %+v", e)
	}
	s, err := p.Read(t.Context(), "alpha")
	if err != nil {
		t.Fatal(err)
	}
	last, total := 0, 0
	if err := p.Check(t.Context(), s, func(done, of int) { last, total = done, of }); err != nil {
		t.Errorf("Check: %v", err)
	}
	if last == 0 || last != total {
		t.Errorf("Check reported %d of %d chunks", last, total)
	}
	if got := strings.Count(text(t, p, s), "\n"); got != 300 {
		t.Errorf("%d messages came back, want 300", got)
	}
	if diff := cmp.Diff(e.Meta, s.Doc.Meta, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("meta (-saved +read):\n%s", diff)
	}
	if s.Doc.Meta.Digest != c.doc.Digest() {
		t.Errorf("digest %s, want %s", s.Doc.Meta.Digest, c.doc.Digest())
	}
	if c.doc.Meta.ID != "" {
		t.Error("Save changed the caller's document")
	}
}

func TestSaveIntoUsedName(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	c := newTalk("s1").speak("a", 3, 0)
	c.doc.Meta.Note, c.doc.Meta.Tags = "first", map[string]string{"k": "v"}
	c.doc.Meta.Extra = map[string]transcriptRaw{"future": transcriptRaw(`{"k":1}`)}
	old := c.mustSave(t, p, snapshot.SaveRequest{Name: "alpha"})
	if _, err := p.SetMeta(t.Context(), "alpha", func(m *transcript.Meta) error { m.Pinned = true; return nil }, true); err != nil {
		t.Fatal(err)
	}

	more := newTalk("s1").speak("a", 5, 0)
	_, err := more.save(t.Context(), p, snapshot.SaveRequest{Name: "alpha"})
	if e := wantAs[*snapshot.ExistsError](t, "save into a used name", err); e.Name != "alpha" {
		t.Errorf("ExistsError names %q", e.Name)
	}
	_, err = more.save(t.Context(), p, snapshot.SaveRequest{Name: "ALPHA", Overwrite: true})
	if e := wantAs[*snapshot.ExistsError](t, "save into a name of another case", err); e.Name != "alpha" {
		t.Errorf("ExistsError names %q, want the stored spelling", e.Name)
	}
	if got := strings.Count(content(t, p, "alpha"), "\n"); got != 3 {
		t.Errorf("alpha has %d messages after refused saves, want 3", got)
	}

	e := more.mustSave(t, p, snapshot.SaveRequest{Name: "alpha", Overwrite: true})
	if got := strings.Count(content(t, p, "alpha"), "\n"); got != 5 {
		t.Errorf("alpha has %d messages, want 5", got)
	}
	switch {
	case e.Meta.ID != old.Meta.ID, !e.Meta.CreatedAt.Equal(old.Meta.CreatedAt), !e.Meta.UpdatedAt.After(old.Meta.UpdatedAt):
		t.Errorf("overwrite: %+v, want id and creation kept and a later update than %+v", e.Meta, old.Meta)
	case e.Meta.Note != "first", e.Meta.Tags["k"] != "v", !e.Meta.Pinned, string(e.Meta.Extra["future"]) != `{"k":1}`:
		t.Errorf("overwrite lost note, tags, pin or unknown keys: %+v", e.Meta)
	}
	got, err := p.RestoreTrash(t.Context(), "alpha", "before")
	if err != nil {
		t.Fatalf("RestoreTrash: %v", err)
	}
	if n := strings.Count(content(t, p, "before"), "\n"); n != 3 {
		t.Errorf("the old version has %d messages, want 3", n)
	}
	if got.Meta.ID == e.Meta.ID || got.Meta.Parent != e.Meta.ID {
		t.Errorf("the old version came back as %q from %q, want an id of its own and %q", got.Meta.ID, got.Meta.Parent, e.Meta.ID)
	}

	more.doc.Meta.Note, more.doc.Meta.Tags = "second", map[string]string{"x": "y"}
	e = more.mustSave(t, p, snapshot.SaveRequest{Name: "alpha", Overwrite: true})
	if e.Meta.Note != "second" || len(e.Meta.Tags) != 1 || e.Meta.Tags["x"] != "y" {
		t.Errorf("given note and tags were not taken: %+v", e.Meta)
	}
}

func TestSaveMergeMetaSeesOldAndNew(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	put(t, p, "a", "one")
	merge := func(old, new *transcript.Meta) {
		if old != nil {
			new.Note = "was " + old.Title
		}
	}
	e := newTalk("s1").mustSave(t, p, snapshot.SaveRequest{Name: "a", Overwrite: true, MergeMeta: merge})
	if e.Meta.Note != "was A talk" {
		t.Errorf("note %q", e.Meta.Note)
	}
}

func TestSaveWithoutItsChunksIsRefused(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	c := newTalk("s1").speak("x", 10, 60<<10)
	w, err := p.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	_, err = w.Save(t.Context(), snapshot.SaveRequest{Name: "a", Doc: c.doc})
	wantAs[*snapshot.DamagedError](t, "save without chunks", err)
	if got := listed(t, p); got != "" {
		t.Errorf("listed %q after a refused save", got)
	}
	for id := range c.sealed {
		if err := w.Add(id, []byte("no frame")); err == nil {
			t.Errorf("Add took bytes that are no chunk")
		}
	}
}

func TestSaveChecksItsRequest(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	put(t, p, "there", "x")
	outside := writeFile(t, "canary", p.Dir(), "..", "canary.sess.json")
	long := func(n int) string { return strings.Repeat("é", n) }
	tags := map[string]string{}
	for i := range snapshot.MaxTags + 1 {
		tags[fmt.Sprint(i)] = "x"
	}
	for _, tt := range []struct {
		rule string
		r    snapshot.SaveRequest
		meta transcript.Meta
		want string
	}{
		{"a name that leaves the folder", snapshot.SaveRequest{Name: "../canary"}, transcript.Meta{}, "slashes"},
		{"neither name nor prefix", snapshot.SaveRequest{}, transcript.Meta{}, "name"},
		{"both", snapshot.SaveRequest{Name: "a", AutoPrefix: "b"}, transcript.Meta{}, "name"},
		{"a prefix that leaves the folder", snapshot.SaveRequest{AutoPrefix: "../"}, transcript.Meta{}, "slashes"},
		{"a long note", snapshot.SaveRequest{Name: "a"}, transcript.Meta{Note: long(4001)}, "note: 4001 characters, at most 4000"},
		{"a long reason", snapshot.SaveRequest{Name: "a"}, transcript.Meta{Reason: long(1001)}, "reason: 1001 characters, at most 1000"},
		{"many tags", snapshot.SaveRequest{Name: "a"}, transcript.Meta{Tags: tags}, "tags: 65 tags, at most 64"},
		{"much of it", snapshot.SaveRequest{Name: "a"}, transcript.Meta{Title: long(40000)}, "at most 65536"},
	} {
		c := newTalk("s1")
		c.doc.Meta = tt.meta
		_, err := c.save(t.Context(), p, tt.r)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.rule, err, tt.want)
		}
	}
	ok := newTalk("s1")
	ok.doc.Meta.Note, ok.doc.Meta.Reason = long(4000), long(1000)
	ok.mustSave(t, p, snapshot.SaveRequest{Name: "limit"})
	if got := listed(t, p); got != "limit there" {
		t.Errorf("listed %q", got)
	}
	equalBytes(t, "the file outside", readFile(t, outside), []byte("canary"))
}

func TestAutomaticNamesInOneInstant(t *testing.T) {
	t.Parallel()
	now := time.Date(2031, 12, 31, 23, 59, 59, 999e6, time.UTC)
	p := openPool(t, t.TempDir(), snapshot.Options{Now: func() time.Time { return now }})
	var made []string
	for i := range 4 {
		e := newTalk("s1").speak(fmt.Sprint("state", i), 1, 0).mustSave(t, p, snapshot.SaveRequest{AutoPrefix: "pre-load~"})
		made = append(made, string(e.Name))
		if got := first(t, p, e.Name); got != fmt.Sprint("state", i) {
			t.Errorf("%s holds %q", e.Name, got)
		}
	}
	want := made[3] + " " + made[2] + " " + made[1] + " " + made[0]
	if got := listed(t, p); got != want {
		t.Errorf("listed %q, want the order of creation %q", got, want)
	}
}

func TestRollingSave(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	slot := snapshot.SaveRequest{Name: "autosave~", Rolling: true}
	c := newTalk("s1").speak("turn", 3, 0)
	c.mustSave(t, p, slot)
	c.speak("turn", 40, 20<<10).mustSave(t, p, slot)
	if got := trashed(t, p); got != "" {
		t.Errorf("an autosave that goes on put %q into the trash", got)
	}
	// A compacted history, and another session, replace what is kept nowhere else.
	newTalk("s1").speak("summary", 1, 0).mustSave(t, p, slot)
	newTalk("s2").speak("summary", 1, 0).mustSave(t, p, slot)
	if got := trashed(t, p); got != "autosave~ autosave~" {
		t.Errorf("trash %q, want both old versions", got)
	}
	if op, err := p.Undoable(t.Context(), "s1"); op != nil || err != nil {
		t.Errorf("Undoable after autosaves: %v, %v; want none", op, err)
	}
	if _, err := p.RestoreTrash(t.Context(), "autosave~", "full"); err != nil {
		t.Fatal(err)
	}
	if got := first(t, p, "full"); got != "summary" {
		t.Errorf("the version replaced last is %q", got)
	}
}

func TestListIsTheFolder(t *testing.T) {
	t.Parallel()
	p, c := newPool(t)
	dir := p.Dir()
	put(t, p, "a", "one")
	put(t, p, "b", "two")
	put(t, p, "c", "three")

	// What is not the pool's is passed over.
	for _, name := range []string{"x.json", ".y.sess.json", "z.sess.json.tmp", "sql opt.sess.json", "con.sess.json"} {
		writeFile(t, "{}", dir, name)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder.sess.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "a.sess.json"), filepath.Join(dir, "link.sess.json")); err == nil {
		if _, err := p.Read(t.Context(), "link"); err == nil {
			t.Error("Read followed a link")
		}
	}
	if got := listed(t, p); got != "c b a" {
		t.Errorf("listed %q, want c b a", got)
	}

	// A file that comes is there at once, one that goes is gone.
	data := readFile(t, dir, "b.sess.json")
	if err := os.Remove(filepath.Join(dir, "b.sess.json")); err != nil {
		t.Fatal(err)
	}
	_, err := p.Read(t.Context(), "b")
	wantAs[*snapshot.NotFoundError](t, "read of a removed file", err)
	writeFile(t, string(data), dir, "d.sess.json")
	if got := listed(t, p); got != "c d a" || first(t, p, "d") != "two" {
		t.Errorf("listed %q, want c d a, with d readable", got)
	}

	// What is damaged is shown with the reason, and where its file's time puts it.
	writeFile(t, "", dir, "empty.sess.json")
	writeFile(t, string(data[:len(data)/2]), dir, "cut.sess.json")
	old := c.Now().Add(-time.Hour)
	for _, f := range []string{"empty", "cut"} {
		if err := os.Chtimes(filepath.Join(dir, f+".sess.json"), old, old); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, strings.Replace(string(data), "one", "own", 1), dir, "d.sess.json")
	if got := listed(t, p); got != "c d a cut:damaged empty:damaged" && got != "c d a empty:damaged cut:damaged" {
		t.Errorf("listed %q", got)
	}
	for _, name := range []snapshot.Name{"empty", "cut"} {
		_, err := p.Read(t.Context(), name)
		if e := wantAs[*snapshot.DamagedError](t, "read of "+string(name), err); e.Name != name || e.File != filepath.Join(dir, string(name)+".sess.json") || e.Reason == "" {
			t.Errorf("error %+v, want name, file and reason", e)
		}
	}
	if got := first(t, p, "a"); got != "one" {
		t.Errorf("a holds %q", got)
	}
}

func TestReadFindsWrongContent(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	put(t, p, "a", "marker-one")
	data := string(readFile(t, p.Dir(), "a.sess.json"))
	writeFile(t, strings.Replace(data, "marker-one", "marker-two", 1), p.Dir(), "a.sess.json")
	_, err := p.Read(t.Context(), "a")
	if e := wantAs[*snapshot.DamagedError](t, "read of altered content", err); !strings.Contains(e.Reason, "digest") {
		t.Errorf("reason %q, want the digest named", e.Reason)
	}
}

func TestCheckFindsMissingAndDamagedChunks(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	newTalk("s1").speak("x", 10, 60<<10).mustSave(t, p, snapshot.SaveRequest{Name: "a"})
	s, err := p.Read(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(p.Dir(), ".chunks", "*.zst"))
	if err != nil || len(files) < 2 {
		t.Fatalf("%d chunks, %v", len(files), err)
	}
	data := readFile(t, files[0])
	data[len(data)/2] ^= 1
	writeFile(t, string(data), files[0])
	wantAs[*snapshot.DamagedError](t, "Check of a damaged chunk", p.Check(t.Context(), s, nil))
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	wantAs[*snapshot.DamagedError](t, "Check of a missing chunk", p.Check(t.Context(), s, nil))

	data = readFile(t, files[1])
	data[len(data)/2] ^= 1
	writeFile(t, string(data), files[1])
	r, err := p.Verify(t.Context(), nil, nil)
	if err != nil || len(r.Problems) != 2 || r.Checked != 1 {
		t.Errorf("Verify: %+v, %v; want a missing and a damaged chunk", r, err)
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	newTalk("s1").speak("x", 10, 60<<10).mustSave(t, p, snapshot.SaveRequest{Name: "a"})
	newTalk("s1").speak("y", 10, 60<<10).mustSave(t, p, snapshot.SaveRequest{Name: "b"})
	steps := 0
	r, err := p.Verify(t.Context(), nil, func(done, total int) { steps++ })
	if err != nil || r.Checked != 2 || r.Chunks == 0 || r.Bytes < 600<<10 || len(r.Problems)+len(r.Unreferenced) != 0 || steps != 2 {
		t.Errorf("Verify of a good pool: %+v, %v, %d steps", r, err, steps)
	}
	if err := os.Remove(filepath.Join(p.Dir(), "b.sess.json")); err != nil {
		t.Fatal(err)
	}
	r, err = p.Verify(t.Context(), nil, nil)
	if err != nil || len(r.Unreferenced) == 0 || len(r.Problems) != 0 {
		t.Errorf("Verify after a file was removed: %+v, %v; want its chunks unreferenced", r, err)
	}
	writeFile(t, "", p.Dir(), "bad.sess.json")
	r, err = p.Verify(t.Context(), nil, nil)
	if err != nil || len(r.Problems) != 1 || r.Problems[0].Name != "bad" || len(r.Unreferenced) != 0 {
		t.Errorf("Verify with a damaged file: %+v, %v", r, err)
	}
	r, err = p.Verify(t.Context(), []snapshot.Name{"a"}, nil)
	if err != nil || r.Checked != 1 || len(r.Problems) != 0 {
		t.Errorf("Verify of a: %+v, %v", r, err)
	}
	_, err = p.Verify(t.Context(), []snapshot.Name{"none"}, nil)
	wantAs[*snapshot.NotFoundError](t, "Verify of a missing name", err)
}

// What lies in the trash is told apart, by the name that it had.
func TestVerifyNamesWhatIsInTheTrash(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	writeFile(t, "", p.Dir(), "bad.sess.json")
	writeFile(t, `{"format":"sess/99"}`, p.Dir(), "new.sess.json")
	for _, name := range []snapshot.Name{"bad", "new"} {
		if _, _, err := p.Delete(t.Context(), []snapshot.Name{name}, snapshot.OpInfo{}); err != nil {
			t.Fatal(err)
		}
	}
	put(t, p, "bad", "x")
	put(t, p, "edited", "alpha")
	edited, err := os.ReadFile(filepath.Join(p.Dir(), "edited.sess.json"))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, strings.Replace(string(edited), "alpha", "omega", 1), p.Dir(), "edited.sess.json")
	if _, _, err := p.Delete(t.Context(), []snapshot.Name{"edited"}, snapshot.OpInfo{}); err != nil {
		t.Fatal(err)
	}
	r, err := p.Verify(t.Context(), nil, nil)
	want := []snapshot.Problem{
		{Name: "edited", Trashed: true, Reason: "its content does not match its digest"},
		{Name: "new", Trashed: true, Newer: true, Reason: "written by a newer version (format sess/99)"},
		{Name: "bad", Trashed: true, Reason: "damaged: it is empty"},
	}
	if diff := cmp.Diff(want, r.Problems, cmpopts.IgnoreFields(snapshot.Problem{}, "File")); diff != "" || err != nil {
		t.Errorf("Verify: %v; problems (-want +got):\n%s", err, diff)
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	for _, n := range []snapshot.Name{"w", "demo-1", "demo-2", "demo_1", "review-2031"} {
		put(t, p, n, "x")
	}
	e := put(t, p, "demo", "x")
	for text, want := range map[string]snapshot.Name{"demo": "demo", "demo_1": "demo_1", e.Meta.ID: "demo"} {
		if got, err := p.Resolve(t.Context(), text); got != want || err != nil {
			t.Errorf("Resolve(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
	for text, near := range map[string][]snapshot.Name{
		"demo-":                    {"demo", "demo-1", "demo-2", "demo_1"},
		"DEMO-1":                   {"demo-1", "demo-2", "demo_1", "demo"},
		"reveiw-2031":              {"review-2031"},
		"review-203":               {"review-2031"},
		"nosuch":                   nil,
		"z":                        nil, // for "w" it is too far, short as both are
		e.Meta.ID[:8]:              nil,
		strings.ToUpper(e.Meta.ID): nil,
	} {
		_, err := p.Resolve(t.Context(), text)
		nf := wantAs[*snapshot.NotFoundError](t, "Resolve("+text+")", err)
		if diff := cmp.Diff(near, nf.Near); diff != "" {
			t.Errorf("Resolve(%q) near (-want +got):\n%s", text, diff)
		}
	}
	for text, near := range map[string][]snapshot.Name{
		"*": nil, "": nil, "../demo_1": {"demo_1", "demo-1", "demo", "demo-2"}, "review 2031": {"review-2031"},
	} {
		_, err := p.Resolve(t.Context(), text)
		bad := wantAs[*snapshot.NameError](t, "Resolve("+text+")", err)
		if diff := cmp.Diff(near, bad.Near); diff != "" || bad.Suggestion != "" {
			t.Errorf("Resolve(%q) suggests %q, near (-want +got):\n%s", text, bad.Suggestion, diff)
		}
	}
}

// A file that somebody copied by hand has the id of the first one.
func TestResolveAnIDOfTwo(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	e := put(t, p, "one", "x")
	data, err := os.ReadFile(e.File)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.Dir(), "two.sess.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = p.Resolve(t.Context(), e.Meta.ID)
	several := wantAs[*snapshot.AmbiguousError](t, "Resolve of the id", err)
	if diff := cmp.Diff([]snapshot.Name{"one", "two"}, several.Names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if got, err := p.Resolve(t.Context(), "two"); got != "two" || err != nil {
		t.Errorf("Resolve(two) = %q, %v", got, err)
	}
}

// What is no regular file keeps its place, and is no snapshot.
func TestANameWhosePlaceIsTaken(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	e := put(t, p, "v1", "x")
	if err := os.Mkdir(filepath.Join(p.Dir(), "folder.sess.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	taken := []snapshot.Name{"folder"}
	if err := os.Symlink(e.File, filepath.Join(p.Dir(), "link.sess.json")); err == nil {
		taken = append(taken, "link") // not everybody may make one on Windows
	}
	for _, name := range taken {
		_, err := newTalk("s1").speak("y", 1, 0).save(t.Context(), p, snapshot.SaveRequest{Name: name, Overwrite: true})
		wantAs[*snapshot.OccupiedError](t, "Save "+string(name), err)
		_, err = p.Copy(t.Context(), "v1", name, snapshot.CopyOptions{Overwrite: true})
		wantAs[*snapshot.OccupiedError](t, "Copy to "+string(name), err)
		_, _, err = p.Rename(t.Context(), "v1", name, snapshot.RenameOptions{Overwrite: true})
		wantAs[*snapshot.OccupiedError](t, "Rename to "+string(name), err)
	}
	if got := content(t, p, "v1"); !strings.Contains(got, "x") {
		t.Errorf("v1 is now %q", got)
	}
}

func TestFutureIsMarked(t *testing.T) {
	t.Parallel()
	p, c := newPool(t)
	c.Add(2 * 365 * 24 * time.Hour)
	put(t, p, "f", "x")
	c.Add(-2 * 365 * 24 * time.Hour)
	put(t, p, "n", "y")
	list, err := p.List(t.Context())
	if err != nil || len(list) != 2 || !list[0].Future || list[1].Future {
		t.Errorf("List: %+v, %v; want only f marked", list, err)
	}
}

func TestNewerVersionIsLeftAlone(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	put(t, p, "a", "x")
	v99 := `{"format":"sess/99","meta":{"id":"x","future":{"k":1}},"lists":{}}`
	file := writeFile(t, v99, p.Dir(), "v99.sess.json")
	if got := listed(t, p); !strings.Contains(got, "v99:newer") {
		t.Errorf("listed %q", got)
	}
	ctx := t.Context()
	_, read := p.Read(ctx, "v99")
	_, _, rename := p.Rename(ctx, "v99", "b", snapshot.RenameOptions{})
	_, _, over := p.Rename(ctx, "a", "v99", snapshot.RenameOptions{Overwrite: true})
	_, cp := p.Copy(ctx, "v99", "b", snapshot.CopyOptions{})
	_, onto := p.Copy(ctx, "a", "v99", snapshot.CopyOptions{Overwrite: true})
	_, tag := p.SetMeta(ctx, "v99", func(m *transcript.Meta) error { m.Note = "n"; return nil }, true)
	_, save := newTalk("s1").save(ctx, p, snapshot.SaveRequest{Name: "v99", Overwrite: true})
	_, auto := newTalk("s1").save(ctx, p, snapshot.SaveRequest{Name: "v99", Rolling: true})
	for what, err := range map[string]error{"read": read, "rename": rename, "rename onto": over, "copy": cp, "copy onto": onto, "tag": tag, "save": save, "autosave": auto} {
		if e := wantAs[*snapshot.NewerError](t, what, err); e.Format != "sess/99" || e.File != file {
			t.Errorf("%s: %+v, want format and file", what, e)
		}
	}
	if _, err := p.Prune(ctx, snapshot.Policy{Max: 1, OnCap: snapshot.OnCapEvict}, snapshot.PruneOptions{}); err != nil {
		t.Errorf("Prune: %v", err)
	}
	equalBytes(t, "v99", readFile(t, file), []byte(v99))

	// One without a format is the oldest; unknown keys of this version stay.
	writeFile(t, `{"meta":{"id":"0190b3a0-0000-7000-8000-000000000001","messages":0,"bytes":0,"createdAt":"2030-01-01T00:00:00.000Z","updatedAt":"2030-01-01T00:00:00.000Z","future":{"k":1}},"extra":[1],"lists":{}}`, p.Dir(), "old.sess.json")
	if _, err := p.SetMeta(ctx, "old", func(m *transcript.Meta) error { m.Note = "n"; return nil }, false); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.Rename(ctx, "old", "older", snapshot.RenameOptions{}); err != nil {
		t.Fatal(err)
	}
	data := string(readFile(t, p.Dir(), "older.sess.json"))
	if !strings.Contains(data, `"future":{"k":1}`) || !strings.Contains(data, `"extra":[1]`) {
		t.Errorf("unknown keys are gone: %s", data)
	}
}

func TestDamagedSnapshotGoesToTheTrashAsItIs(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	writeFile(t, "garbage", p.Dir(), "bad.sess.json")
	_, err := newTalk("s1").save(t.Context(), p, snapshot.SaveRequest{Name: "bad"})
	wantAs[*snapshot.ExistsError](t, "save onto a damaged file", err)
	put(t, p, "bad", "good")
	if got := first(t, p, "bad"); got != "good" {
		t.Errorf("bad holds %q", got)
	}
	if _, err := p.RestoreTrash(t.Context(), "bad", "was"); err != nil {
		t.Fatal(err)
	}
	equalBytes(t, "the damaged file", readFile(t, p.Dir(), "was.sess.json"), []byte("garbage"))
	_, _, err = p.Rename(t.Context(), "was", "other", snapshot.RenameOptions{})
	wantAs[*snapshot.DamagedError](t, "rename of a damaged file", err)
	deleted, _, err := p.Delete(t.Context(), []snapshot.Name{"was"}, snapshot.OpInfo{})
	if err != nil || len(deleted) != 1 || deleted[0].State != snapshot.StateDamaged {
		t.Fatalf("Delete of a damaged file: %+v, %v", deleted, err)
	}
	undo(t, p)
	equalBytes(t, "the damaged file", readFile(t, p.Dir(), "was.sess.json"), []byte("garbage"))
}

func TestCopyIsIndependent(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	c := newTalk("s1").speak("x", 20, 20<<10)
	c.doc.Meta.Note, c.doc.Meta.Tags = "note", map[string]string{"t": "1"}
	c.doc.Meta.Automatic, c.doc.Meta.Reason, c.doc.Meta.Trigger = true, "before restore", transcript.TriggerLoad
	a := c.mustSave(t, p, snapshot.SaveRequest{Name: "pre-load~x"})
	if _, err := p.SetMeta(t.Context(), "pre-load~x", func(m *transcript.Meta) error { m.Pinned = true; return nil }, false); err != nil {
		t.Fatal(err)
	}
	b, err := p.Copy(t.Context(), "pre-load~x", "beta", snapshot.CopyOptions{})
	if err != nil {
		t.Fatalf("Copy: %v", err)
	}
	m := b.Meta
	switch {
	case m.ID == a.Meta.ID, m.Parent != a.Meta.ID, m.Digest != a.Meta.Digest:
		t.Errorf("copy %+v: want an id of its own, the parent and the same digest", m)
	case m.Title != "A talk", m.Note != "note", m.Tags["t"] != "1", m.Messages != 20:
		t.Errorf("copy %+v: want title, note, tags and counts", m)
	case m.Pinned, m.Automatic, m.Reason != "", m.Trigger != transcript.TriggerManual:
		t.Errorf("copy %+v: want no pin, and not automatic", m)
	}
	want := content(t, p, "pre-load~x")
	if _, _, err := p.Delete(t.Context(), []snapshot.Name{"pre-load~x"}, snapshot.OpInfo{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.EmptyTrash(t.Context(), 0, false); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if content(t, p, "beta") != want {
		t.Error("the copy changed when its source went")
	}

	note := "other"
	if b, err = p.Copy(t.Context(), "beta", "gamma", snapshot.CopyOptions{Note: &note}); err != nil || b.Meta.Note != "other" {
		t.Errorf("Copy with a note: %+v, %v", b.Meta, err)
	}
	_, err = p.Copy(t.Context(), "beta", "Gamma", snapshot.CopyOptions{})
	wantAs[*snapshot.ExistsError](t, "copy onto a name of another case", err)
	_, err = p.Copy(t.Context(), "none", "delta", snapshot.CopyOptions{})
	wantAs[*snapshot.NotFoundError](t, "copy of nothing", err)
	_, err = p.Copy(t.Context(), "beta", "pre-load~x", snapshot.CopyOptions{})
	wantAs[*snapshot.NameError](t, "copy to a reserved name", err)
	_, err = p.Copy(t.Context(), "beta", "beta", snapshot.CopyOptions{Overwrite: true})
	wantAs[*snapshot.ExistsError](t, "copy onto itself", err)
}

func TestRename(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	a := put(t, p, "a", "one")
	put(t, p, "b", "two")
	before := readFile(t, p.Dir(), "a.sess.json")
	_, _, err := p.Rename(t.Context(), "a", "b", snapshot.RenameOptions{})
	wantAs[*snapshot.ExistsError](t, "rename onto a used name", err)
	_, _, err = p.Rename(t.Context(), "none", "c", snapshot.RenameOptions{})
	wantAs[*snapshot.NotFoundError](t, "rename of nothing", err)
	_, _, err = p.Rename(t.Context(), "a", "pre-new~x", snapshot.RenameOptions{})
	wantAs[*snapshot.NameError](t, "rename to a reserved name", err)
	if e, changed, err := p.Rename(t.Context(), "a", "a", snapshot.RenameOptions{}); err != nil || changed || e.Meta.ID != a.Meta.ID {
		t.Errorf("rename to itself: %+v, %v, %v", e, changed, err)
	}
	e, changed, err := p.Rename(t.Context(), "a", "c", snapshot.RenameOptions{})
	if err != nil || !changed || e.Name != "c" || e.Meta.ID != a.Meta.ID {
		t.Fatalf("Rename: %+v, %v, %v", e, changed, err)
	}
	equalBytes(t, "the renamed file", readFile(t, p.Dir(), "c.sess.json"), before)
	if got := listed(t, p); got != "b c" {
		t.Errorf("listed %q: rename must not count as an update", got)
	}
	if _, _, err := p.Rename(t.Context(), "c", "C", snapshot.RenameOptions{}); err != nil {
		t.Errorf("rename to another case: %v", err)
	}
	if got := listed(t, p); got != "b C" {
		t.Errorf("listed %q", got)
	}
	if _, _, err := p.Rename(t.Context(), "C", "b", snapshot.RenameOptions{Overwrite: true}); err != nil {
		t.Fatal(err)
	}
	if listed(t, p) != "b" || trashed(t, p) != "b" || first(t, p, "b") != "one" {
		t.Errorf("after a rename onto b: listed %q, trash %q, b %q", listed(t, p), trashed(t, p), first(t, p, "b"))
	}
}

func TestSetMeta(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	a := put(t, p, "a", "one")
	put(t, p, "b", "two")
	e, err := p.SetMeta(t.Context(), "a", func(m *transcript.Meta) error {
		m.Note, m.Pinned, m.ID, m.Digest, m.CreatedAt = "n", true, "other", "", time.Time{}
		return nil
	}, true)
	if err != nil {
		t.Fatal(err)
	}
	if m := e.Meta; m.ID != a.Meta.ID || m.Digest != a.Meta.Digest || !m.CreatedAt.Equal(a.Meta.CreatedAt) || m.Note != "n" || !m.Pinned {
		t.Errorf("SetMeta made %+v", m)
	}
	if got := listed(t, p); got != "a b" {
		t.Errorf("listed %q, want a first", got)
	}
	before := readFile(t, p.Dir(), "a.sess.json")
	stop := errors.New("stop")
	if _, err := p.SetMeta(t.Context(), "a", func(m *transcript.Meta) error { m.Note = "x"; return stop }, true); err != stop {
		t.Errorf("SetMeta: %v, want the error of edit", err)
	}
	_, err = p.SetMeta(t.Context(), "a", func(m *transcript.Meta) error { m.Note = strings.Repeat("x", 4001); return nil }, true)
	if e := wantAs[*snapshot.LimitError](t, "a long note", err); e.Field != "note" || e.Limit != 4000 || e.Got != 4001 {
		t.Errorf("LimitError %+v", e)
	}
	equalBytes(t, "a", readFile(t, p.Dir(), "a.sess.json"), before)
	_, err = p.SetMeta(t.Context(), "none", func(*transcript.Meta) error { return nil }, true)
	wantAs[*snapshot.NotFoundError](t, "SetMeta of nothing", err)
}

func TestDelete(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	for _, n := range []snapshot.Name{"ab12cd34-old", "ab12cd34-new", "c"} {
		put(t, p, n, string(n))
	}
	_, _, err := p.Delete(t.Context(), []snapshot.Name{"c", "ab12cd34-o"}, snapshot.OpInfo{})
	if e := wantAs[*snapshot.NotFoundError](t, "delete of a part of a name", err); len(e.Near) == 0 || e.Near[0] != "ab12cd34-old" {
		t.Errorf("near %v", e.Near)
	}
	if got := listed(t, p); got != "c ab12cd34-new ab12cd34-old" || trashed(t, p) != "" {
		t.Fatalf("listed %q, trash %q after a refused delete", got, trashed(t, p))
	}
	deleted, op, err := p.Delete(t.Context(), []snapshot.Name{"ab12cd34-old", "c", "c"}, snapshot.OpInfo{Caller: "cli"})
	if err != nil || len(deleted) != 2 || op == "" {
		t.Fatalf("Delete: %v, %q, %v", deleted, op, err)
	}
	if got := listed(t, p); got != "ab12cd34-new" {
		t.Errorf("listed %q", got)
	}
	list, err := p.ListTrash(t.Context())
	if err != nil || len(list) != 2 || list[0].Reason != "deleted" || list[0].Op.Caller != "cli" || list[0].Op.ID != op {
		t.Errorf("ListTrash: %+v, %v", list, err)
	}
	if _, op, err := p.Delete(t.Context(), nil, snapshot.OpInfo{}); op != "" || err != nil {
		t.Errorf("Delete of nothing: %q, %v", op, err)
	}
}

func TestModes(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	newTalk("s1").speak("x", 10, 60<<10).mustSave(t, p, snapshot.SaveRequest{Name: "a"})
	put(t, p, "a", "y")
	if _, err := p.Prune(t.Context(), snapshot.Policy{}, snapshot.PruneOptions{}); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(p.Dir(), func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(0o600)
		if d.IsDir() {
			want = 0o700
		}
		if got := info.Mode().Perm(); got != want && os.PathSeparator == '/' {
			t.Errorf("%s has mode %o, want %o", name, got, want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestObviousTempNamesDoNotStandInTheWay(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	for _, name := range []string{"alpha.sess.json.tmp", ".alpha.tmp"} {
		if err := os.Mkdir(filepath.Join(p.Dir(), name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	put(t, p, "alpha", "x")
	if got := listed(t, p); got != "alpha" {
		t.Errorf("listed %q", got)
	}
}

func TestBusyNamesItsHolder(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	put(t, p, "a", "one")
	other, err := durable.OpenDir(p.Dir())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	unlock, err := durable.LockAs(t.Context(), other, ".lock", "a long one", true)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	_, _, err = p.Rename(ctx, "a", "b", snapshot.RenameOptions{})
	if e := wantAs[*durable.LockedError](t, "rename under a held lock", err); e.Holder.Operation != "a long one" {
		t.Errorf("holder %+v", e.Holder)
	}
	if got := listed(t, p); got != "a" || first(t, p, "a") != "one" {
		t.Errorf("listed %q: reading needs no lock", got)
	}
	if r, err := p.Sweep(t.Context()); err != nil || r.Skipped == "" {
		t.Errorf("Sweep: %+v, %v; want it skipped", r, err)
	}
	done := make(chan error)
	go func() {
		_, _, err := p.Rename(t.Context(), "a", "b", snapshot.RenameOptions{})
		done <- err
	}()
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("rename after the lock was free: %v", err)
	}
}

func TestCancelledCallsChangeNothing(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	put(t, p, "a", "one")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, save := newTalk("s1").save(ctx, p, snapshot.SaveRequest{Name: "b"})
	_, _, rename := p.Rename(ctx, "a", "b", snapshot.RenameOptions{})
	_, _, del := p.Delete(ctx, []snapshot.Name{"a"}, snapshot.OpInfo{})
	_, list := p.List(ctx)
	_, read := p.Read(ctx, "a")
	for what, err := range map[string]error{"save": save, "rename": rename, "delete": del, "list": list, "read": read} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want context.Canceled", what, err)
		}
	}
	if got := listed(t, p); got != "a" {
		t.Errorf("listed %q", got)
	}
}

func TestFolderThatWentAway(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	put(t, p, "a", "one")
	if err := os.RemoveAll(p.Dir()); err != nil {
		t.Fatal(err)
	}
	_, err := newTalk("s1").save(t.Context(), p, snapshot.SaveRequest{Name: "b"})
	if err == nil || !strings.Contains(err.Error(), p.Dir()) {
		t.Errorf("save: %v, want an error that names the folder", err)
	}
	again := openPool(t, p.Dir(), snapshot.Options{})
	put(t, again, "b", "two")
	if got := listed(t, again); got != "b" {
		t.Errorf("listed %q after the folder was opened again", got)
	}
}
