package snapshot_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sess/store/snapshot"
)

// A record that cannot be followed, as one that was damaged or that a newer
// version wrote, stands in nobody's way and leads nowhere.
func TestRecordThatCannotBeFollowed(t *testing.T) {
	t.Parallel()
	const id = "01900000-0000-7000-8000-000000000000"
	item := `{"id":"x","name":"a","file":"x.` + id + `.sess.json"}`
	for name, record := range map[string]string{
		"empty":                    ``,
		"cut off":                  `{"kind":"over`,
		"another kind of JSON":     `[1,2]`,
		"nothing in it":            `{}`,
		"unknown kind":             `{"kind":"merge","state":"closed"}`,
		"unknown state":            `{"kind":"delete","state":"paused","trash":[` + item + `]}`,
		"open overwrite of none":   `{"kind":"overwrite","state":"open","to":"a"}`,
		"closed overwrite of none": `{"kind":"overwrite","state":"closed","to":"a"}`,
		"undoing overwrite":        `{"kind":"overwrite","state":"undoing"}`,
		"redoing overwrite":        `{"kind":"overwrite","state":"redoing","trash":[` + item + `]}`,
		"rename without names":     `{"kind":"rename","state":"open"}`,
		"rename out of the pool":   `{"kind":"rename","state":"closed","from":"../../b","to":"a"}`,
		"file out of the trash":    `{"kind":"delete","state":"open","trash":[{"id":"x","name":"b","file":"../a.sess.json"}]}`,
		"file that is none":        `{"kind":"delete","state":"open","trash":[{"id":"x","name":"b","file":".sess.json"}]}`,
		"file of another record":   `{"kind":"delete","state":"closed","trash":[{"id":"x","name":"b","file":"x.y.sess.json"}]}`,
		"one file twice":           `{"kind":"delete","state":"open","trash":[` + item + `,` + strings.Replace(item, `"a"`, `"b"`, 1) + `]}`,
		"one name twice":           `{"kind":"delete","state":"open","trash":[` + item + `,` + strings.Replace(item, `"x.`, `"y.`, 1) + `]}`,
		"two overwritten":          `{"kind":"overwrite","state":"open","to":"a","trash":[` + item + `,` + strings.Replace(item, `"x.`, `"y.`, 1) + `]}`,
		"item without a name":      `{"kind":"prune","state":"closed","trash":[` + strings.Replace(item, `,"name":"a"`, ``, 1) + `]}`,
		"swapped out of the pool":  `{"kind":"overwrite","state":"undone","to":"a","trash":[` + item + `],"swapped":[{"id":"x","name":"a","file":"../../x.sess.json"}]}`,
		"no header":                `{"kind":"load","state":"closed","session":"s1","empty":[1]}`,
		"a header not to be read":  `{"kind":"load","state":"closed","session":"s1","redoEmpty":{"a":"` + "\xff" + `"}}`,
		"backup out of the pool":   `{"kind":"load","state":"open","backup":{"name":"../a","id":"x"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, _ := newPool(t)
			put(t, p, "a", "one")
			if err := os.Mkdir(filepath.Join(p.Dir(), ".ops"), 0o700); err != nil {
				t.Fatal(err)
			}
			// It is older than what is done below, so undo gets to it last.
			file := writeFile(t, record, p.Dir(), ".ops", id+".json")
			if all, err := p.Recover(t.Context(), nil); err != nil || len(all) != 0 {
				t.Errorf("Recover: %+v, %v; want nothing", all, err)
			}
			put(t, p, "a", "two")
			if _, _, err := p.Delete(t.Context(), []snapshot.Name{"a"}, snapshot.OpInfo{}); err != nil {
				t.Fatal(err)
			}
			undo(t, p)
			undo(t, p)
			if got := first(t, p, "a"); got != "one" {
				t.Errorf("after two undos a holds %q, want one", got)
			}
			if op, err := p.Undoable(t.Context(), "s1"); err != nil || op != nil {
				t.Errorf("Undoable: %+v, %v; want nothing", op, err)
			}
			if _, err := p.ListTrash(t.Context()); err != nil {
				t.Errorf("ListTrash: %v", err)
			}
			if _, err := p.Sweep(t.Context()); err != nil {
				t.Errorf("Sweep: %v", err)
			}
			equalBytes(t, "the record", readFile(t, file), []byte(record))
		})
	}
}
