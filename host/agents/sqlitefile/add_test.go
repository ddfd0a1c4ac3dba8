package sqlitefile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"sess/host/agents/sqlitefile"
)

// What is added is there for a program that has the database open, all at once;
// where it fails in the middle nothing is.
func TestAdd(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"wal", "delete"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "with a % blank.db")
			conn, err := sqlite3.Open("file:" + filepath.ToSlash(filepath.Dir(path)) + "/with%20a%20%25%20blank.db")
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := conn.Exec("PRAGMA journal_mode=" + mode + "; CREATE TABLE t (a TEXT NOT NULL, b INTEGER)"); err != nil {
				t.Fatal(err)
			}
			count := func() int64 {
				t.Helper()
				stmt, _, err := conn.Prepare("SELECT count(*) FROM t")
				if err != nil {
					t.Fatal(err)
				}
				defer stmt.Close()
				stmt.Step()
				return stmt.ColumnInt64(0)
			}
			add := func(last any) error {
				return sqlitefile.Add(t.Context(), path, func(tx *sqlitefile.Tx) error {
					for _, a := range []any{"one", "two", last} {
						if err := tx.Exec("INSERT INTO t VALUES (?, ?)", a, 1); err != nil {
							return err
						}
					}
					if n, err := tx.Int("SELECT sum(b) FROM t WHERE b = ?", 1); err != nil || n != 3 {
						t.Errorf("Int: %d, %v; want 3", n, err)
					}
					return nil
				})
			}
			if err := add(nil); err == nil || count() != 0 {
				t.Errorf("a row that is refused: %v, %d rows; want an error and none", err, count())
			}
			if err := add("three"); err != nil || count() != 3 {
				t.Errorf("Add: %v, %d rows; want 3", err, count())
			}
		})
	}
}

// A file is neither made nor, where it is something else, written to.
func TestAddToOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	other, link := filepath.Join(dir, "other"), filepath.Join(dir, "link")
	if err := os.WriteFile(other, []byte("these are the bytes of something else, and enough of them for a header"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, link); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{"gone": fs.ErrNotExist, "other": sqlitefile.ErrDamaged, "link": sqlitefile.ErrNotRegular} {
		err := sqlitefile.Add(t.Context(), filepath.Join(dir, name), func(tx *sqlitefile.Tx) error { return tx.Exec("CREATE TABLE t (a)") })
		if !errors.Is(err, want) {
			t.Errorf("Add to %s: %v, want %v", name, err, want)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("files: %v, %v; want the two", entries, err)
	}
}
