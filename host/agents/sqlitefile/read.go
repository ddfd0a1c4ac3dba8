package sqlitefile

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/google/uuid"
	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs/readervfs"
)

// Why a database cannot be read.
var (
	ErrDamaged    = errors.New("damaged, or no SQLite database")
	ErrNotRegular = errors.New("not a regular file")
	ErrChanged    = errors.New("another program opened it meanwhile")
	ErrBusy       = errors.New("another program keeps it locked")
	ErrUnfinished = errors.New("a program died while it changed it; the program takes that back when it is started again")
)

// MaxValue is the longest text or blob that is read, in bytes.
const MaxValue = 256 << 20

// attempts is how often a reading begins again because a program opened the
// database. It opens it once, so more than one is for bad luck.
const attempts = 5

// A DB is one committed state of a database. It is for one goroutine, and lives
// as long as the function that [Read] gave it to.
type DB struct {
	conn  *sqlite3.Conn
	image *image
}

// Read calls fn with the state of now of the database at path. Where another
// program comes in between, fn is called again with a newer state: what it did
// before does not count. Files that are links are not read.
//
// A file that is not there is fs.ErrNotExist; see also the errors of this
// package. Everything is bounded: the pages that are kept, and the length of a
// value.
func Read(ctx context.Context, path string, fn func(*DB) error) error {
	for range attempts - 1 {
		if err := readOnce(ctx, path, fn); !errors.Is(err, ErrChanged) {
			return err
		}
	}
	return readOnce(ctx, path, fn)
}

func readOnce(ctx context.Context, path string, fn func(*DB) error) (err error) {
	m, err := openImage(ctx, path)
	if err != nil {
		return err
	}
	defer m.close()
	name := uuid.NewString()
	readervfs.Create(name, m)
	defer readervfs.Delete(name)
	conn, err := sqlite3.OpenContext(ctx, "file:"+name+"?vfs=reader&mode=ro")
	if err != nil {
		return m.explain(err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	conn.Limit(sqlite3.LIMIT_LENGTH, MaxValue+1<<20)
	// What the other program's database says of functions and triggers is not
	// run, and what is sorted stays in memory.
	for _, set := range []string{"trusted_schema=off", "query_only=on", "temp_store=memory"} {
		if err := conn.Exec("PRAGMA " + set); err != nil {
			return m.explain(err)
		}
	}
	err = fn(&DB{conn: conn, image: m})
	if changed := m.check(); changed != nil {
		return changed
	}
	return err
}

// explain names the file in an error of SQLite's, and the cause that SQLite did
// not hand on.
func (m *image) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case m.err != nil:
		return m.err
	case errors.Is(err, sqlite3.CORRUPT), errors.Is(err, sqlite3.NOTADB):
		return fmt.Errorf("%s: %w: %w", m.path, ErrDamaged, err)
	}
	return fmt.Errorf("%s: %w", m.path, err)
}

// Rows iterates over what a query gives. Arguments are string, int64 or int. It
// ends at the first error.
func (db *DB) Rows(query string, args ...any) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		stmt, _, err := db.conn.Prepare(query)
		if err != nil {
			yield(Row{}, db.image.explain(err))
			return
		}
		defer func() { _ = stmt.Close() }() // says again what Err said
		for i, arg := range args {
			switch v := arg.(type) {
			case string:
				err = stmt.BindText(i+1, v)
			case int64:
				err = stmt.BindInt64(i+1, v)
			case int:
				err = stmt.BindInt64(i+1, int64(v))
			default:
				err = fmt.Errorf("argument %d of a query is a %T", i+1, arg)
			}
			if err != nil {
				yield(Row{}, db.image.explain(err))
				return
			}
		}
		for stmt.Step() {
			if !yield(Row{stmt}, nil) {
				return
			}
		}
		if err := stmt.Err(); err != nil {
			yield(Row{}, db.image.explain(err))
		}
	}
}

// A Row is one row of an answer, valid until the next. Columns count from 0; a
// value of another type is converted as SQLite does, and NULL is the zero value.
type Row struct{ stmt *sqlite3.Stmt }

// Text is a column as text, byte for byte.
func (r Row) Text(column int) string { return r.stmt.ColumnText(column) }

// Int is a column as a whole number.
func (r Row) Int(column int) int64 { return r.stmt.ColumnInt64(column) }

// Null reports whether a column has no value.
func (r Row) Null(column int) bool { return r.stmt.ColumnType(column) == sqlite3.NULL }
