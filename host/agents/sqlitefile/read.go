package sqlitefile

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs/readervfs"

	"sess/store/transcript"
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

// HasTable reports whether the database has a table of that name.
func (db *DB) HasTable(name string) (bool, error) {
	for _, err := range db.Rows("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", name) {
		return err == nil, err
	}
	return false, nil
}

// Columns are the names of a table's columns, in order; none if there is no such
// table.
func (db *DB) Columns(table string) ([]string, error) {
	var names []string
	for row, err := range db.Rows("SELECT name FROM pragma_table_info(?) ORDER BY cid", table) {
		if err != nil {
			return nil, err
		}
		names = append(names, row.Text(0))
	}
	return names, nil
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

// A Record is a row of a table as a JSON object in one line.
type Record struct {
	JSON transcript.Record
	// Omitted is how many bytes the values have that are too long to be read.
	// Each stands as {"$omitted":<bytes>}.
	Omitted int64
}

// Records iterates over whole rows of a table, in its own order of columns; rest
// is what follows the table's name in the query ("WHERE … ORDER BY …"). Texts
// stand as strings; a blob stands as {"$blob":"<base64>"}, and a text that is no
// UTF-8 as {"$text":"<base64>"}: so each value can be read back byte for byte.
func (db *DB) Records(table, rest string, args ...any) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		columns, err := db.Columns(table)
		if err == nil && len(columns) == 0 {
			err = fmt.Errorf("%s has no table %s", db.image.path, table)
		}
		if err != nil {
			yield(Record{}, err)
			return
		}
		var query strings.Builder
		query.WriteString("SELECT ")
		for i, name := range columns {
			if i > 0 {
				query.WriteString(", ")
			}
			// The length stands in the row itself: a value that is too long is not
			// read at all.
			id := sqlite3.QuoteIdentifier(name)
			fmt.Fprintf(&query, "CASE WHEN octet_length(%s) > %d THEN NULL ELSE %s END, octet_length(%s)", id, MaxValue, id, id)
		}
		fmt.Fprintf(&query, " FROM %s %s", sqlite3.QuoteIdentifier(table), rest)
		for row, err := range db.Rows(query.String(), args...) {
			if err != nil {
				yield(Record{}, err)
				return
			}
			if !yield(row.record(columns), nil) {
				return
			}
		}
	}
}

func (r Row) record(columns []string) Record {
	var rec Record
	out := []byte{'{'}
	for i, name := range columns {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(transcript.AppendText(out, name), ':')
		value := 2 * i
		length := r.Int(value + 1)
		switch kind := r.stmt.ColumnType(value); {
		case kind == sqlite3.NULL && length > MaxValue:
			rec.Omitted += length
			out = append(strconv.AppendInt(append(out, `{"$omitted":`...), length, 10), '}')
		case kind == sqlite3.NULL:
			out = append(out, "null"...)
		case kind == sqlite3.INTEGER:
			out = strconv.AppendInt(out, r.Int(value), 10)
		case kind == sqlite3.FLOAT:
			out = appendFloat(out, r.stmt.ColumnFloat(value))
		case kind == sqlite3.TEXT:
			text := r.stmt.ColumnRawText(value)
			if utf8.Valid(text) {
				out = transcript.AppendText(out, string(text))
			} else {
				out = appendBase64(out, "$text", text)
			}
		default:
			out = appendBase64(out, "$blob", r.stmt.ColumnRawBlob(value))
		}
	}
	rec.JSON = append(out, '}')
	return rec
}

func appendBase64(out []byte, key string, data []byte) []byte {
	out = append(append(append(out, `{"`...), key...), `":"`...)
	return append(base64.StdEncoding.AppendEncode(out, data), `"}`...)
}

// appendFloat writes a number that no whole number is taken for. SQLite has
// infinities and no NaN.
func appendFloat(out []byte, f float64) []byte {
	if math.IsInf(f, 0) {
		return fmt.Appendf(out, `{"$real":"%g"}`, f)
	}
	out = strconv.AppendFloat(out, f, 'g', -1, 64)
	if f == math.Trunc(f) && math.Abs(f) < 1e15 {
		return append(out, ".0"...)
	}
	return out
}
