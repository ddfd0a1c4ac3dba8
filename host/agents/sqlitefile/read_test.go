package sqlitefile_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ncruces/go-sqlite3"

	"sess/host/agents/sqlitefile"
)

// writer is another program that has a database open.
type writer struct {
	t    *testing.T
	conn *sqlite3.Conn
}

func openWriter(t *testing.T, path string) *writer {
	t.Helper()
	conn, err := sqlite3.Open("file:" + filepath.ToSlash(path) + "?_pragma=busy_timeout(20000)")
	if err != nil {
		t.Fatalf("open %s: %v", path, err)
	}
	w := &writer{t, conn}
	t.Cleanup(w.close)
	return w
}

func (w *writer) exec(sql string) {
	w.t.Helper()
	if err := w.conn.Exec(sql); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

func (w *writer) close() { _ = w.conn.Close() }

// makeWAL makes a database with a log and three rows in the file itself, and
// leaves it open.
func makeWAL(t *testing.T) (string, *writer) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.db")
	w := openWriter(t, path)
	w.exec("PRAGMA page_size=1024; PRAGMA journal_mode=wal; PRAGMA wal_autocheckpoint=0")
	w.exec("CREATE TABLE t (id INTEGER PRIMARY KEY, v); INSERT INTO t (v) VALUES ('a'),('b'),('c')")
	w.exec("PRAGMA wal_checkpoint(truncate)")
	return path, w
}

func texts(db *sqlitefile.DB) ([]string, error) {
	var all []string
	for row, err := range db.Rows("SELECT v FROM t ORDER BY id") {
		if err != nil {
			return nil, err
		}
		all = append(all, row.Text(0))
	}
	return all, nil
}

func readTexts(t *testing.T, path string) []string {
	t.Helper()
	var all []string
	err := sqlitefile.Read(t.Context(), path, func(db *sqlitefile.DB) (err error) {
		all, err = texts(db)
		return err
	})
	if err != nil {
		t.Fatalf("Read(%s): %v", path, err)
	}
	return all
}

// contents are the bytes of the files in a folder but of the shared memory of
// programs that have a log open.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[entry.Name()] = string(data)
	}
	return all
}

// What the log has committed is read, also while its writer is in the middle of
// the next change, and nothing in the folder changes.
func TestReadsCommittedRowsOfTheLog(t *testing.T) {
	path, w := makeWAL(t)
	w.exec("INSERT INTO t (v) VALUES ('d')")
	w.exec("PRAGMA cache_size=1; BEGIN; UPDATE t SET v = 'x'")
	for i := range 200 { // more than the cache holds, so that it goes to the log
		w.exec(fmt.Sprintf("INSERT INTO t (v) VALUES (hex(zeroblob(%d)))", 600+i))
	}
	before := contents(t, filepath.Dir(path))
	if got, want := readTexts(t, path), []string{"a", "b", "c", "d"}; !cmp.Equal(got, want) {
		t.Errorf("rows are %q, want %q", got, want)
	}
	if diff := cmp.Diff(before, contents(t, filepath.Dir(path))); diff != "" {
		t.Errorf("reading changed the folder (-before +after):\n%s", diff)
	}
	w.exec("ROLLBACK")
}

// A database that was copied with its log, or whose program died, has no shared
// memory beside it: it is read all the same, and gets none.
func TestReadsACopyWithItsLog(t *testing.T) {
	path, w := makeWAL(t)
	w.exec("UPDATE t SET v = 'new' WHERE id = 2")
	dir := t.TempDir()
	copied := filepath.Join(dir, "copy.db")
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(copied+suffix, data, 0o400); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	before := contents(t, dir)
	if got, want := readTexts(t, copied), []string{"a", "new", "c"}; !cmp.Equal(got, want) {
		t.Errorf("rows are %q, want %q", got, want)
	}
	if diff := cmp.Diff(before, contents(t, dir)); diff != "" {
		t.Errorf("reading changed the folder (-before +after):\n%s", diff)
	}
}

// A frame that was written in part, or belongs to an older round of the log, is
// not committed.
func TestDamagedEndOfTheLogIsNotCommitted(t *testing.T) {
	path, w := makeWAL(t)
	w.exec("INSERT INTO t (v) VALUES ('d')")
	log, err := os.ReadFile(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	w.exec("INSERT INTO t (v) VALUES ('e')")
	longer, err := os.ReadFile(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	main, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flipped := append([]byte(nil), longer...)
	flipped[len(flipped)-1] ^= 1
	for name, log := range map[string][]byte{
		"cut":     longer[:len(longer)-1],
		"flipped": flipped,
		"header":  append(append([]byte(nil), log...), longer[len(log):len(log)+24]...),
	} {
		t.Run(name, func(t *testing.T) {
			copied := filepath.Join(t.TempDir(), "copy.db")
			if err := errors.Join(os.WriteFile(copied, main, 0o600), os.WriteFile(copied+"-wal", log, 0o600)); err != nil {
				t.Fatal(err)
			}
			if got, want := readTexts(t, copied), []string{"a", "b", "c", "d"}; !cmp.Equal(got, want) {
				t.Errorf("rows are %q, want %q", got, want)
			}
		})
	}
}

// While somebody reads, others write and try to fold in their log, and begin it
// anew: the reader sees the state that it began with.
func TestReadsOneStateWhileOthersWrite(t *testing.T) {
	path, w := makeWAL(t)
	for name, before := range map[string]string{
		"log not folded in": "UPDATE t SET v = 'one' WHERE id = 1",
		"log folded in":     "UPDATE t SET v = 'one' WHERE id = 1; PRAGMA wal_checkpoint(full)",
	} {
		t.Run(name, func(t *testing.T) {
			w.exec("UPDATE t SET v = 'old'; PRAGMA wal_checkpoint(truncate)")
			w.exec(before)
			calls := 0
			err := sqlitefile.Read(t.Context(), path, func(db *sqlitefile.DB) error {
				calls++
				if rows, err := texts(db); err != nil || len(rows) == 0 { // which begins to read
					return errors.Join(err, errors.New("no rows"))
				}
				w.exec("INSERT INTO t (v) VALUES (hex(zeroblob(5000))); UPDATE t SET v = 'two'")
				w.exec("PRAGMA wal_checkpoint(passive)")
				w.exec("UPDATE t SET v = 'three'")
				got, err := texts(db)
				if want := []string{"one", "old", "old"}; err == nil && !cmp.Equal(got[:3], want) {
					t.Errorf("rows are %q, want %q", got, want)
				}
				return err
			})
			if err != nil {
				t.Fatalf("Read: %v", err)
			}
			if calls != 1 {
				t.Errorf("read %d times, want once", calls)
			}
			if got := readTexts(t, path); got[0] != "three" {
				t.Errorf("afterwards the first row is %q, want three", got[0])
			}
			w.exec("DELETE FROM t WHERE id > 3; PRAGMA wal_checkpoint(truncate)")
		})
	}
}

// A program that opens the database while it is read, changes it and ends is
// noticed, and the new state is read.
func TestReadsAgainWhereAProgramCameInBetween(t *testing.T) {
	path, w := makeWAL(t)
	w.close()
	var seen [][]string
	err := sqlitefile.Read(t.Context(), path, func(db *sqlitefile.DB) error {
		if len(seen) == 0 {
			other := openWriter(t, path)
			other.exec("UPDATE t SET v = 'new'; PRAGMA wal_checkpoint(passive)")
			other.close()
		}
		got, err := texts(db)
		seen = append(seen, got)
		return err
	})
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	if last := seen[len(seen)-1]; len(seen) != 2 || !cmp.Equal(last, []string{"new", "new", "new"}) {
		t.Errorf("read %q, want the new state at the second time", seen)
	}
}

// Of many transfers that others commit while it is read, each is seen whole.
func TestSeesTransactionsWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	w := openWriter(t, path)
	w.exec("PRAGMA page_size=512; PRAGMA journal_mode=wal; PRAGMA wal_autocheckpoint=7; PRAGMA synchronous=off")
	w.exec("CREATE TABLE t (id INTEGER PRIMARY KEY, v INTEGER, pad)")
	for id := range 40 {
		w.exec(fmt.Sprintf("INSERT INTO t VALUES (%d, 100, hex(zeroblob(200)))", id))
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		for n := 0; ctx.Err() == nil; n++ {
			sql := fmt.Sprintf("BEGIN; UPDATE t SET v = v - 1 WHERE id = %d; UPDATE t SET v = v + 1 WHERE id = %d; COMMIT", n%40, (n*7+3)%40)
			if err := w.conn.Exec(sql); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for range 150 {
		sum := int64(0)
		err := sqlitefile.Read(ctx, path, func(db *sqlitefile.DB) error {
			sum = 0
			for row, err := range db.Rows("SELECT v FROM t") {
				if err != nil {
					return err
				}
				sum += row.Int(0)
			}
			return nil
		})
		if err != nil || sum != 4000 {
			t.Errorf("the sum is %d (%v), want 4000", sum, err)
			break
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("the writer was disturbed: %v", err)
	}
}

// Without a log, a change that is not committed is not seen; one that a program
// died in is said and left for that program.
func TestRollbackJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	w := openWriter(t, path)
	w.exec("CREATE TABLE t (id INTEGER PRIMARY KEY, v); INSERT INTO t (v) VALUES ('a')")
	w.exec("BEGIN; UPDATE t SET v = 'b'")
	if got := readTexts(t, path); !cmp.Equal(got, []string{"a"}) {
		t.Errorf("rows are %q, want those before the change", got)
	}
	journal, err := os.ReadFile(path + "-journal")
	if err != nil {
		t.Fatal(err)
	}
	w.exec("COMMIT")
	if got := readTexts(t, path); !cmp.Equal(got, []string{"b"}) {
		t.Errorf("rows are %q, want those after the change", got)
	}
	w.close()
	if err := os.WriteFile(path+"-journal", journal, 0o600); err != nil {
		t.Fatal(err)
	}
	before := contents(t, filepath.Dir(path))
	err = sqlitefile.Read(t.Context(), path, func(*sqlitefile.DB) error { return nil })
	if !errors.Is(err, sqlitefile.ErrUnfinished) {
		t.Errorf("Read gives %v, want ErrUnfinished", err)
	}
	if diff := cmp.Diff(before, contents(t, filepath.Dir(path))); diff != "" {
		t.Errorf("reading changed the folder (-before +after):\n%s", diff)
	}
}

// Files that cannot be read are errors that name the file and the cause.
func TestRefusesWhatItCannotRead(t *testing.T) {
	good, w := makeWAL(t)
	w.close()
	data, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	random := make([]byte, 4096)
	_, _ = rand.Read(random)
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	link := filepath.Join(dir, "link.db")
	if err := os.Symlink(good, link); err != nil {
		t.Logf("no links here: %v", err)
		link = dir
	}
	for name, c := range map[string]struct {
		path string
		want error
	}{
		"random bytes": {write("random.db", random), sqlitefile.ErrDamaged},
		"short":        {write("short.db", data[:50]), sqlitefile.ErrDamaged},
		"half":         {write("half.db", data[:len(data)/2]), sqlitefile.ErrDamaged},
		"a link":       {link, sqlitefile.ErrNotRegular},
		"a folder":     {dir, sqlitefile.ErrNotRegular},
		"none":         {filepath.Join(dir, "none.db"), fs.ErrNotExist},
	} {
		t.Run(name, func(t *testing.T) {
			err := sqlitefile.Read(t.Context(), c.path, func(db *sqlitefile.DB) error {
				_, err := texts(db)
				return err
			})
			if !errors.Is(err, c.want) {
				t.Errorf("Read gives %v, want %v", err, c.want)
			}
		})
	}
	err = sqlitefile.Read(t.Context(), write("empty.db", nil), func(db *sqlitefile.DB) error {
		for range db.Rows("SELECT 1 FROM sqlite_schema") {
			t.Error("an empty file has a table")
		}
		return nil
	})
	if err != nil {
		t.Errorf("Read of an empty file: %v", err)
	}
}

// Who waits for a lock that another program keeps is told so, or ends with the
// context.
func TestWaitForALockEndsWithTheContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	w := openWriter(t, path)
	w.exec("CREATE TABLE t (v); BEGIN EXCLUSIVE")
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer stop()
	err := sqlitefile.Read(ctx, path, func(*sqlitefile.DB) error { return nil })
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Read gives %v, want the context's end", err)
	}
	w.exec("COMMIT")
}
