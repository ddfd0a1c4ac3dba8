package snapshot_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sess/store/durable/durabletest"
	"sess/store/snapshot"
	"sess/store/transcript"
)

// documents returns what all documents below a folder hold, named or in the
// trash.
func documents(t testing.TB, p *snapshot.Pool) string {
	t.Helper()
	var all strings.Builder
	for _, pattern := range []string{"*.sess.json", ".trash/*.sess.json"} {
		files, err := filepath.Glob(filepath.Join(p.Dir(), pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			doc, err := transcript.Decode(readFile(t, file))
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			all.WriteString(text(t, p, &snapshot.Snapshot{Doc: doc}) + "\n")
		}
	}
	return all.String()
}

// FuzzRecord puts any bytes in the place of an operation's record, among real
// ones, and lets everything that reads records work with it. Nothing that was
// saved is lost, and nothing outside of the pool is touched. In the input, OLD1,
// OLD2 and OLD3 stand for the files that real operations put into the trash, OWN
// and NONE for one that this record put there and one that it did not yet, and IDA
// for the id of the snapshot "a".
func FuzzRecord(f *testing.F) {
	item := func(name, file string) string { return `{"id":"x","name":"` + name + `","file":"` + file + `"}` }
	for _, record := range []string{
		``, `{}`, `[1]`, "\x00\xff", `{"kind":"delete","state":"open"}`, `{"kind":"prune","state":"closed"}`,
		`{"kind":"delete","state":"closed","trash":[` + item("c", "OLD1") + `]}`,
		`{"kind":"delete","state":"closed","trash":[` + item("c", "OLD1") + `,` + item("c", "OLD2") + `]}`,
		`{"kind":"delete","state":"open","trash":[` + item("c", "OLD1") + `,` + item("C", "OLD2") + `,` + item("d", "none.sess.json") + `]}`,
		`{"kind":"delete","state":"undone","trash":[` + item("a", "gone.sess.json") + `]}`,
		`{"kind":"delete","state":"undone","trash":[` + item("a", "OLD1") + `,` + item("a", "y.sess.json") + `]}`,
		`{"kind":"prune","state":"open","trash":[` + item("a", "OLD1") + `,` + item("b", "OLD2") + `]}`,
		`{"kind":"overwrite","state":"open","to":"a","trash":[` + item("a", "OLD1") + `,` + item("a", "OLD3") + `]}`,
		`{"kind":"overwrite","state":"closed","to":"a","trash":[` + item("a", "OLD1") + `],"swapped":[` + item("a", "OLD3") + `]}`,
		`{"kind":"overwrite","state":"undone","to":"a","trash":[` + item("a", "OLD3") + `],"swapped":[` + item("a", "OLD1") + `]}`,
		`{"kind":"overwrite","state":"undoing","to":"A","trash":[` + item("a", "OLD1") + `],"swapped":[` + item("a", "OLD1") + `]}`,
		`{"kind":"overwrite","state":"redoing","to":"b","trash":[` + item("a", "OLD1") + `]}`,
		`{"kind":"rename","state":"open","from":"a","to":"b","subject":"IDA","trash":[` + item("b", "OLD1") + `,` + item("b", "OLD3") + `]}`,
		`{"kind":"rename","state":"closed","from":"b","to":"a","subject":"IDA","trash":[` + item("b", "OLD1") + `]}`,
		`{"kind":"rename","state":"undone","from":"a","to":"k","subject":"IDA"}`,
		`{"kind":"rename","state":"redoing","from":"a","to":"k","subject":"IDA","trash":[` + item("k", "OLD3") + `]}`,
		`{"kind":"load","state":"open","session":"s1","backup":{"name":"a","id":"IDA"}}`,
		`{"kind":"new","state":"undoing","session":"s1","newSession":"../x","backup":{"name":"pre-new~1","id":""}}`,
		`{"kind":"delete","state":"closed","trash":[` + item("d", "OWN") + `]}`,
		`{"kind":"delete","state":"open","trash":[` + item("a", "OWN") + `,` + item("d", "NONE") + `]}`,
		`{"kind":"prune","state":"redoing","trash":[` + item("a", "NONE") + `,` + item("d", "OWN") + `]}`,
		`{"kind":"overwrite","state":"open","to":"a","trash":[` + item("a", "OWN") + `]}`,
		`{"kind":"overwrite","state":"undoing","to":"d","trash":[` + item("d", "OWN") + `],"swapped":[` + item("d", "NONE") + `]}`,
		`{"kind":"overwrite","state":"redoing","to":"b","trash":[` + item("a", "OWN") + `]}`,
		`{"kind":"overwrite","state":"undone","to":"b","trash":[` + item("b", "NONE") + `],"swapped":[` + item("b", "OWN") + `]}`,
		`{"kind":"rename","state":"undone","from":"a","to":"b","subject":"IDA","trash":[` + item("b", "OWN") + `]}`,
		`{"kind":"rename","state":"redoing","from":"a","to":"b","subject":"IDA","trash":[` + item("b", "NONE") + `]}`,
	} {
		f.Add([]byte(record), true)
		f.Add([]byte(record), false)
	}
	// The pool that each run begins with is made once, and copied.
	p, _ := newPool(f)
	put(f, p, "a", "mark1")
	put(f, p, "b", "mark2")
	put(f, p, "b", "mark3")
	put(f, p, "a", "mark4")
	put(f, p, "k", "mark5")
	if _, _, err := p.Delete(f.Context(), []snapshot.Name{"k"}, snapshot.OpInfo{}); err != nil {
		f.Fatal(err)
	}
	a, err := p.Read(f.Context(), "a")
	if err != nil {
		f.Fatal(err)
	}
	trash, err := p.ListTrash(f.Context())
	if err != nil || len(trash) != 3 {
		f.Fatalf("ListTrash: %d, %v; want 3", len(trash), err)
	}
	begin := os.DirFS(p.Dir())
	f.Fuzz(func(t *testing.T, record []byte, newest bool) {
		dir, c := filepath.Join(t.TempDir(), "sessions"), newClock()
		if err := os.CopyFS(dir, begin); err != nil {
			t.Fatal(err)
		}
		p := openPool(t, dir, snapshot.Options{Now: c.Now, FS: durabletest.Unsynced})
		file := func(i int) string { return filepath.Base(trash[i].File) }
		id := "01900000-0000-7000-8000-000000000000"
		if newest {
			id = "fe900000-0000-7000-8000-000000000000"
		}
		own := "own." + id + ".sess.json"
		writeFile(t, string(newTalk("s1").speak("mark6", 1, 0).doc.Encode()), p.Dir(), ".trash", own)
		record = []byte(strings.NewReplacer(
			"OLD1", file(1), "OLD2", file(2), "OLD3", file(0), "OWN", own, "NONE", "none."+id+".sess.json", "IDA", a.Doc.Meta.ID,
		).Replace(string(record)))
		writeFile(t, string(record), p.Dir(), ".ops", id+".json")
		around := entriesOf(t, filepath.Dir(p.Dir()))

		_, err := p.Recover(t.Context(), func(context.Context, snapshot.Op) (string, error) { return snapshot.Void, nil })
		t.Log("Recover:", err)
		for i, verb := range []string{"redo", "undo", "undo", "redo", "undo"} {
			find, do := p.Undoable, p.UndoNames
			if verb == "redo" {
				find, do = p.Redoable, p.RedoNames
			}
			op, err := find(t.Context(), "s1")
			if err != nil {
				t.Errorf("step %d, %s: %v", i, verb, err)
			}
			if op != nil {
				_, err = do(t.Context(), op)
				t.Log(verb, op.Kind, op.State, err)
			}
		}
		c.Add(2 * time.Hour)
		if _, err := p.ListTrash(t.Context()); err != nil {
			t.Errorf("ListTrash: %v", err)
		}
		if _, err := p.LoadedLast(t.Context()); err != nil {
			t.Errorf("LoadedLast: %v", err)
		}
		if _, err := p.Sweep(t.Context()); err != nil {
			t.Errorf("Sweep: %v", err)
		}
		left := documents(t, p)
		for _, mark := range []string{"mark1", "mark2", "mark3", "mark4", "mark5", "mark6"} {
			if !strings.Contains(left, mark) {
				t.Errorf("%s is lost", mark)
			}
		}
		if now := entriesOf(t, filepath.Dir(p.Dir())); !slices.Equal(now, around) {
			t.Errorf("beside the pool there is %v, was %v", now, around)
		}
		// The names can be used as ever.
		put(t, p, "a", "mark7")
		if got := first(t, p, "a"); got != "mark7" {
			t.Errorf("a holds %q, want mark7", got)
		}
	})
}

func entriesOf(t testing.TB, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// FuzzLastPrune reads any bytes as the record of the last prune: it is a run or
// none, and the next one replaces it.
func FuzzLastPrune(f *testing.F) {
	for _, record := range []string{
		"", "{}", "[]", "null", `{"started":"2031-03-01T10:00:00Z","kept":3,"dropped":["a~"],"finished":"2031-03-01T10:00:01Z"}`,
		`{"started":"x"}`, `{"kept":1e99}`, `{"finished":"9999-12-31T23:59:59.999999999Z"}`, "\x00\x00\x00",
	} {
		f.Add([]byte(record))
	}
	p := openPool(f, filepath.Join(f.TempDir(), "sessions"), snapshot.Options{Now: newClock().Now, FS: durabletest.Unsynced})
	put(f, p, "a", "one")
	f.Fuzz(func(t *testing.T, record []byte) {
		file := writeFile(t, string(record), p.Dir(), ".prune.json")
		if _, err := p.LastPrune(); err != nil {
			t.Fatalf("LastPrune: %v", err)
		}
		r, err := p.Prune(t.Context(), snapshot.Policy{Max: 1}, snapshot.PruneOptions{})
		if err != nil || len(r.Drop) != 0 {
			t.Fatalf("Prune: %+v, %v; want nothing dropped", r, err)
		}
		run, err := p.LastPrune()
		if err != nil || run.Kept != 1 || run.Finished.IsZero() || bytes.Equal(readFile(t, file), record) {
			t.Fatalf("LastPrune after a run: %+v, %v", run, err)
		}
	})
}

// FuzzPlan makes a pool and a policy from a script and compares the plan with the
// rules, each said once more in the plainest way.
func FuzzPlan(f *testing.F) {
	f.Add([]byte{}, byte(0), byte(0), byte(0), byte(0))
	f.Add([]byte("\x00\x01\x02\x03\x10\x11\x12\x13\x20\x21"), byte(3), byte(0), byte(0), byte(0))
	f.Add([]byte("\x00\x41\x82\xc3\x15\x16\x57\x98\xd9"), byte(2), byte(2), byte(1), byte(3))
	f.Add([]byte("\xff\xfe\xfd\x01\x02\x43\x44\x85"), byte(1), byte(1), byte(4), byte(2))
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		script := make([]byte, rng.IntN(30))
		for i := range script {
			script[i] = byte(rng.IntN(256))
		}
		f.Add(script, byte(rng.IntN(16)), byte(rng.IntN(4)), byte(rng.IntN(8)), byte(rng.IntN(8)))
	}
	f.Fuzz(func(t *testing.T, script []byte, most, onCap, keepN, age byte) {
		if len(script) > 40 {
			script = script[:40]
		}
		var list []snapshot.Entry
		held := map[string]bool{} // protected or exempt
		var exempt []string
		for i, b := range script {
			e := snapshot.Entry{State: snapshot.StateOK, Name: snapshot.Name("n" + string(rune('A'+i)))}
			if b&1 == 0 {
				e.Name += "~"
			}
			e.Meta.ID = string(e.Name)
			// The lower bits of the age repeat, so that there are ties; some are of the
			// future.
			e.Meta.UpdatedAt = planNow.AddDate(0, 0, 2-int(b>>1&7))
			switch b >> 4 {
			case 0:
				e.Meta.Pinned = true
			case 1:
				exempt = append(exempt, e.Meta.ID)
				held[e.Meta.ID] = true
			case 2:
				held[e.Meta.ID] = true
			case 3:
				e.State = snapshot.StateDamaged
			case 4:
				e.State = snapshot.StateNewer
			}
			list = append(list, e)
		}
		policy := snapshot.Policy{
			Max: int(most % 16), Keep: int(keepN % 8), OlderThan: time.Duration(age%8) * 24 * time.Hour, Exempt: exempt,
			OnCap: []string{"", snapshot.OnCapWarn, snapshot.OnCapRefuse, snapshot.OnCapEvict}[onCap%4],
			Protect: func(e snapshot.Entry) string {
				if held[e.Meta.ID] {
					return "held"
				}
				return ""
			},
		}
		keep, drop := snapshot.Plan(list, policy, planNow)
		checkPlan(t, list, held, policy, keep, drop)
	})
}

// checkPlan says what is wrong with a plan.
func checkPlan(t *testing.T, list []snapshot.Entry, held map[string]bool, policy snapshot.Policy, keep, drop []snapshot.Decision) {
	t.Helper()
	counts := func(e snapshot.Entry) bool { return e.State == snapshot.StateOK }
	dropped := map[string]bool{}
	for _, d := range drop {
		dropped[d.Entry.Meta.ID] = true
	}
	if len(keep)+len(drop) != len(list) || len(dropped) != len(drop) {
		t.Fatalf("%d kept and %d dropped of %d", len(keep), len(drop), len(list))
	}
	for _, d := range keep {
		if dropped[d.Entry.Meta.ID] {
			t.Fatalf("%s is both kept and dropped", d.Entry.Name)
		}
	}
	// goesBefore reports whether a is to go rather than b: dates of the future
	// first, then the older, then the smaller id.
	goesBefore := func(a, b snapshot.Entry) bool {
		at, bt := a.Meta.UpdatedAt, b.Meta.UpdatedAt
		if fa, fb := at.After(planNow), bt.After(planNow); fa != fb {
			return fa
		}
		return at.Before(bt) || at.Equal(bt) && a.Meta.ID < b.Meta.ID
	}
	free := func(e snapshot.Entry) bool { return counts(e) && !e.Meta.Pinned && !held[e.Meta.ID] }
	// byAge reports what the rules of this run alone take: they do not look at the cap.
	byAge := func(e snapshot.Entry) bool {
		if !free(e) || !e.Name.Auto() {
			return false
		}
		newer := 0
		for _, o := range list {
			if counts(o) && o.Name.Auto() && goesBefore(e, o) {
				newer++
			}
		}
		return policy.OlderThan > 0 && planNow.Sub(e.Meta.UpdatedAt) > policy.OlderThan || policy.Keep > 0 && newer >= policy.Keep
	}
	total, named, left, leftNamed := 0, 0, 0, 0
	for _, e := range list {
		if !counts(e) {
			continue
		}
		if !byAge(e) {
			total++
		}
		if !e.Name.Auto() {
			named++
		}
		if !dropped[e.Meta.ID] {
			left++
			if !e.Name.Auto() {
				leftNamed++
			}
		}
	}
	over := 0
	if policy.Max > 0 {
		over = max(0, total-policy.Max)
	}
	overNamed := 0
	if policy.Max > 0 && policy.OnCap == snapshot.OnCapEvict {
		overNamed = max(0, named-policy.Max)
	}
	for _, e := range list {
		ahead := 0 // of the same kind, free, not taken by age, and to go before it
		for _, o := range list {
			if free(o) && !byAge(o) && o.Name.Auto() == e.Name.Auto() && goesBefore(o, e) {
				ahead++
			}
		}
		var want bool
		switch {
		case !free(e):
		case byAge(e):
			want = true
		case e.Name.Auto():
			want = ahead < over
		default:
			want = ahead < overNamed
		}
		if dropped[e.Meta.ID] != want {
			t.Errorf("%s (%s, %v, pinned %v, held %v) is dropped: %v, want %v\npolicy %+v", e.Name, e.State, e.Meta.UpdatedAt, e.Meta.Pinned, held[e.Meta.ID], dropped[e.Meta.ID], want, policy)
		}
	}
}
