package snapshot_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sess/store/durable/durabletest"
	"sess/store/snapshot"
)

// TestCloseThatIsLost lets the power go before it is durable that an operation
// on names is closed, and after somebody used a name that it left.
func TestCloseThatIsLost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		do   func(*snapshot.Pool) error
		then string // a name that is given anew
		want string // what is listed after the operation was taken back
	}{
		{"overwrite", func(p *snapshot.Pool) error {
			_, err := newTalk("s1").speak("new", 1, 0).save(t.Context(), p, snapshot.SaveRequest{Name: "a", Overwrite: true})
			return err
		}, "c", "a b c"},
		{"delete", func(p *snapshot.Pool) error {
			_, _, err := p.Delete(t.Context(), []snapshot.Name{"a", "b"}, snapshot.OpInfo{})
			return err
		}, "c", "a b c"},
		{"rename", func(p *snapshot.Pool) error {
			_, _, err := p.Rename(t.Context(), "a", "d", snapshot.RenameOptions{})
			return err
		}, "a", ""},
		{"rename over", func(p *snapshot.Pool) error {
			_, _, err := p.Rename(t.Context(), "a", "b", snapshot.RenameOptions{Overwrite: true})
			return err
		}, "c", "a b c"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "pool")
			p := openPool(t, dir, snapshot.Options{FS: durabletest.Unsynced, Now: newClock().Now})
			put(t, p, "a", "A")
			put(t, p, "b", "B")
			if err := tt.do(p); err != nil {
				t.Fatal(err)
			}
			put(t, p, snapshot.Name(tt.then), "C")
			before, trash := listed(t, p), trashed(t, p)

			var records []string
			for _, folder := range []string{".ops", ".trash"} {
				found, err := filepath.Glob(filepath.Join(dir, folder, "????????-????-????-????-????????????.json"))
				if err != nil {
					t.Fatal(err)
				}
				records = append(records, found...)
			}
			if len(records) != 1 {
				t.Fatalf("records %v, want one", records)
			}
			if err := os.Rename(records[0], strings.TrimSuffix(records[0], ".json")+".open.json"); err != nil {
				t.Fatal(err)
			}
			if op, err := p.Undoable(t.Context(), ""); err != nil || op != nil {
				t.Errorf("Undoable while it is open: %v, %v; want none", op, err)
			}
			all, err := p.Recover(t.Context(), nil)
			if err != nil || len(all) != 1 || all[0].Outcome != snapshot.Landed {
				t.Fatalf("Recover: %v, %v; want one that landed", all, err)
			}
			if got := listed(t, p); got != before || trashed(t, p) != trash {
				t.Errorf("after Recover: %q, trash %q; want %q, trash %q", got, trashed(t, p), before, trash)
			}
			if again, err := p.Recover(t.Context(), nil); err != nil || len(again) != 0 {
				t.Errorf("Recover again: %v, %v; want nothing", again, err)
			}
			if tt.want == "" {
				return // its old name is taken
			}
			undo(t, p)
			if got := sorted(listed(t, p)); got != tt.want {
				t.Errorf("after undo: %q, want %q", got, tt.want)
			}
			if got := first(t, p, "a"); got != "A" {
				t.Errorf("after undo a holds %q", got)
			}
		})
	}
}

func sorted(list string) string {
	names := strings.Fields(list)
	slices.Sort(names)
	return strings.Join(names, " ")
}
