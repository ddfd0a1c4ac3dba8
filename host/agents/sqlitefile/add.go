package sqlitefile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// writeWait is how long another program may hold the database for itself.
const writeWait = 5 * time.Second

// A Tx is a transaction that adds rows to another program's database. It is for
// one goroutine, and lives as long as the function that [Add] gave it to.
type Tx struct {
	conn  *sqlite3.Conn
	path  string
	stmts map[string]*sqlite3.Stmt
}

// Add calls fn in one transaction on the database at path, which must be there.
// Where fn returns an error nothing has changed. What it wrote is durable when Add
// returns, and other programs that have the database open see it all at once.
// Where one of them holds it for longer than a few seconds it is ErrBusy.
//
// Unlike [Read] it needs the right to write, and makes the files beside the
// database that SQLite makes. A file that is not there is fs.ErrNotExist, one that
// may not be written to fs.ErrPermission; see also the errors of this package.
func Add(ctx context.Context, path string, fn func(*Tx) error) (err error) {
	if info, err := os.Lstat(path); err != nil {
		return err
	} else if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: %w", path, ErrNotRegular)
	}
	name := url.URL{Scheme: "file", OmitHost: true, Path: filepath.ToSlash(path), RawQuery: "mode=rw"}
	conn, err := sqlite3.OpenContext(ctx, name.String())
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	tx := &Tx{conn: conn, path: path, stmts: map[string]*sqlite3.Stmt{}}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if err := conn.BusyTimeout(writeWait); err != nil {
		return tx.explain(err)
	}
	for _, sql := range []string{"PRAGMA trusted_schema=off", "PRAGMA foreign_keys=on", "PRAGMA synchronous=full", "BEGIN IMMEDIATE"} {
		if err := conn.Exec(sql); err != nil {
			return tx.explain(err)
		}
	}
	err = fn(tx)
	for _, stmt := range tx.stmts {
		err = errors.Join(err, stmt.Close())
	}
	if err != nil {
		// The context may have ended, and with it every statement: closing takes
		// back what is open.
		return err
	}
	return tx.explain(conn.Exec("COMMIT"))
}

func (tx *Tx) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sqlite3.BUSY), errors.Is(err, sqlite3.LOCKED):
		return fmt.Errorf("%s: %w", tx.path, ErrBusy)
	case errors.Is(err, sqlite3.READONLY):
		return &fs.PathError{Op: "write", Path: tx.path, Err: fs.ErrPermission}
	case errors.Is(err, sqlite3.CORRUPT), errors.Is(err, sqlite3.NOTADB):
		return fmt.Errorf("%s: %w: %w", tx.path, ErrDamaged, err)
	}
	return fmt.Errorf("%s: %w", tx.path, err)
}

// Exec runs a statement. Arguments are string, int64, int, or nil for NULL.
func (tx *Tx) Exec(sql string, args ...any) error {
	stmt, err := tx.bind(sql, args)
	if err != nil {
		return err
	}
	for stmt.Step() {
	}
	return tx.explain(errors.Join(stmt.Err(), stmt.Reset()))
}

// Int is the first column of a query's first row; 0 where that is NULL or there
// is none.
func (tx *Tx) Int(sql string, args ...any) (int64, error) {
	stmt, err := tx.bind(sql, args)
	if err != nil {
		return 0, err
	}
	var v int64
	if stmt.Step() {
		v = stmt.ColumnInt64(0)
	}
	return v, tx.explain(errors.Join(stmt.Err(), stmt.Reset()))
}

func (tx *Tx) bind(sql string, args []any) (*sqlite3.Stmt, error) {
	stmt := tx.stmts[sql]
	if stmt == nil {
		var err error
		if stmt, _, err = tx.conn.Prepare(sql); err != nil {
			return nil, tx.explain(err)
		}
		tx.stmts[sql] = stmt
	}
	for i, arg := range args {
		var err error
		switch v := arg.(type) {
		case string:
			err = stmt.BindText(i+1, v)
		case int64:
			err = stmt.BindInt64(i+1, v)
		case int:
			err = stmt.BindInt64(i+1, int64(v))
		case nil:
			err = stmt.BindNull(i + 1)
		default:
			err = fmt.Errorf("argument %d of a statement is a %T", i+1, arg)
		}
		if err != nil {
			return nil, tx.explain(err)
		}
	}
	return stmt, nil
}
