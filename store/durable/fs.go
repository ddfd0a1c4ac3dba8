package durable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Modes of everything made here.
const (
	DirMode  fs.FileMode = 0o700
	FileMode fs.FileMode = 0o600
)

// TempSuffix ends the name of every temp file; readers ignore such names.
const TempSuffix = ".tmp"

// File is an open file. Close reports write errors that came late.
type File interface {
	io.Reader
	io.ReaderAt
	io.Writer
	io.Closer
	Stat() (fs.FileInfo, error)
	Sync() error
	Truncate(size int64) error
}

// FS is one folder and what lies below it. Names are slash-separated, relative
// and local; a name that leaves the folder, also by a link, is refused. Errors
// are *fs.PathError or *os.LinkError with the usual causes. Safe for concurrent
// use.
type FS interface {
	// Dir is the folder's path, for messages.
	Dir() string
	// Open opens a regular file for reading; a link or another kind of file is
	// refused.
	Open(name string) (File, error)
	// Create makes a new file for writing and fails if the name exists.
	Create(name string) (File, error)
	// Append opens a file for reading and appending; it is made if absent.
	Append(name string) (File, error)
	// Rename replaces newName.
	Rename(oldName, newName string) error
	Remove(name string) error
	// Mkdir makes one folder; its parent must exist.
	Mkdir(name string) error
	// ReadDir lists a folder in order of name.
	ReadDir(name string) ([]fs.DirEntry, error)
	// Stat does not follow links.
	Stat(name string) (fs.FileInfo, error)
	// SyncDir makes the names in a folder durable.
	SyncDir(name string) error
	// Lock takes a kernel lock on a file, which is made if absent and never
	// deleted. It waits until ctx ends; with wait false it fails at once with
	// ErrLocked. The returned function releases it.
	Lock(ctx context.Context, name string, mode LockMode, wait bool) (unlock func() error, err error)
	// Close may be called again; that does nothing.
	Close() error
}

// Linker is an FS on which a file can have two names.
type Linker interface {
	// Link gives a file a second name, which must be free.
	Link(oldName, newName string) error
}

// LockMode is how a lock is held.
type LockMode int

// The lock modes.
const (
	Shared LockMode = iota
	Exclusive
	// Looking is Shared for who only looks whether somebody holds it, also where
	// nothing may be written; the file must be there.
	Looking
)

// ErrLocked is returned when a lock is held by somebody else.
var ErrLocked = errors.New("locked by another process")

// ErrNotRegular is returned for a name at which is a folder, a link, or another
// kind of file than these functions open.
var ErrNotRegular = errors.New("not a regular file")

// OpenFunc opens a folder as an FS; [OpenDir] is the real one.
type OpenFunc func(dir string) (FS, error)

// OpenDir makes the folder dir and its missing parents durably, tightens its
// mode to 0700, and opens it. The caller closes it.
func OpenDir(dir string) (FS, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := mkdirAll(dir); err != nil {
		return nil, err
	}
	return OpenExisting(dir)
}

// OpenShared is [OpenDir] for a folder that is not ours alone, such as one of
// another program's configuration: what is there keeps its mode.
func OpenShared(dir string) (FS, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := mkdirAll(dir); err != nil {
		return nil, err
	}
	return open(dir, false)
}

// OpenExisting is [OpenDir] for a folder that must be there: fs.ErrNotExist
// otherwise. Its mode is tightened as far as the file system lets us; that of a
// folder with the sticky bit, such as /tmp, is left: it is meant for everybody.
func OpenExisting(dir string) (FS, error) { return open(dir, true) }

// OpenAsIs is [OpenExisting] for who only looks: the folder keeps its mode, by
// which [Tighten] sees later what others could read.
func OpenAsIs(dir string) (FS, error) { return open(dir, false) }

func open(dir string, ours bool) (FS, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, withPath(dir, err)
	}
	if !info.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: errNotDir}
	}
	if ours && info.Mode().Perm()&0o077 != 0 && info.Mode()&fs.ModeSticky == 0 {
		_ = os.Chmod(dir, DirMode) // somebody else's folder: reading it still works
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	self, err := root.Open(".")
	if err != nil {
		return nil, errors.Join(withPath(dir, err), root.Close())
	}
	return &dirFS{root: root, self: self, dir: dir}, nil
}

// mkdirAll makes dir and its missing parents, each durable in its own parent.
func mkdirAll(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err == nil && !info.IsDir():
		return &fs.PathError{Op: "mkdir", Path: dir, Err: errNotDir}
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return withPath(dir, err)
	}
	parent := filepath.Dir(dir)
	if parent == dir {
		return &fs.PathError{Op: "mkdir", Path: dir, Err: fs.ErrNotExist}
	}
	if err := mkdirAll(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, DirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.Chmod(dir, DirMode); err != nil {
		return err
	}
	f, err := os.Open(parent)
	if err != nil {
		return err
	}
	return errors.Join(syncDirHandle(f), f.Close())
}

// dirFS is a folder of the operating system.
type dirFS struct {
	root *os.Root
	self *os.File // the folder itself, to sync it and to open what is in it
	dir  string
}

var (
	_ FS     = (*dirFS)(nil)
	_ Linker = (*dirFS)(nil)
)

func (d *dirFS) Dir() string { return d.dir }

const (
	createFlags = os.O_WRONLY | os.O_CREATE | os.O_EXCL
	appendFlags = os.O_RDWR | os.O_CREATE | os.O_APPEND
)

func (d *dirFS) Open(name string) (File, error) { return asFile(d.open(name, os.O_RDONLY)) }

func (d *dirFS) Create(name string) (File, error) { return asFile(d.open(name, createFlags)) }

func (d *dirFS) Append(name string) (File, error) { return asFile(d.open(name, appendFlags)) }

// asFile keeps the nil of an error from being a file.
func asFile(f *os.File, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	return f, nil
}

// open opens a regular file, never through a link, and tightens its mode.
func (d *dirFS) open(name string, flag int) (*os.File, error) {
	f, err := d.openFile(name, flag)
	if f == nil && err == nil {
		f, err = d.openInRoot(name, flag)
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if !info.Mode().IsRegular() {
		return nil, errors.Join(&fs.PathError{Op: "open", Path: d.path(name), Err: ErrNotRegular}, f.Close())
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 || flag&os.O_CREATE != 0 && perm != FileMode {
		_ = f.Chmod(FileMode) // best effort: on a foreign file the owner decides
	}
	return f, nil
}

// openInRoot is openFile for every system and every case.
func (d *dirFS) openInRoot(name string, flag int) (*os.File, error) {
	if flag&os.O_EXCL == 0 {
		switch info, err := d.root.Lstat(name); {
		case err == nil && !info.Mode().IsRegular():
			return nil, &fs.PathError{Op: "open", Path: d.path(name), Err: ErrNotRegular}
		case err != nil && (flag&os.O_CREATE == 0 || !errors.Is(err, fs.ErrNotExist)):
			return nil, d.withPath(name, err)
		}
	}
	f, err := d.root.OpenFile(name, flag|openFlags, FileMode)
	return f, d.withPath(name, err)
}

func (d *dirFS) Rename(oldName, newName string) error {
	return d.withPath(newName, d.root.Rename(oldName, newName))
}

func (d *dirFS) Link(oldName, newName string) error {
	return d.withPath(newName, d.root.Link(oldName, newName))
}

func (d *dirFS) Remove(name string) error { return d.withPath(name, d.root.Remove(name)) }

func (d *dirFS) Mkdir(name string) error {
	if err := d.root.Mkdir(name, DirMode); err != nil {
		return d.withPath(name, err)
	}
	return d.withPath(name, d.root.Chmod(name, DirMode))
}

func (d *dirFS) ReadDir(name string) ([]fs.DirEntry, error) {
	f, err := d.openFolder(name)
	own := f != nil
	if !own && err == nil {
		f, err = d.root.Open(name)
	}
	if err != nil {
		return nil, d.withPath(name, err)
	}
	list, err := f.ReadDir(-1)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, d.withPath(name, err)
	}
	if own { // of these Info would go by the path
		for i, e := range list {
			list[i] = &entry{DirEntry: e, dir: d, name: path.Join(name, e.Name())}
		}
	}
	sortEntries(list)
	return list, nil
}

// entry is a folder's entry whose Info stays in the root.
type entry struct {
	fs.DirEntry
	dir  *dirFS
	name string
}

func (e *entry) Info() (fs.FileInfo, error) { return e.dir.Stat(e.name) }

func (d *dirFS) Stat(name string) (fs.FileInfo, error) {
	info, err := d.root.Lstat(name)
	return info, d.withPath(name, err)
}

func (d *dirFS) SyncDir(name string) error {
	if name == "." {
		return d.withPath(name, syncDirHandle(d.self))
	}
	f, err := d.openFolder(name)
	if f == nil && err == nil {
		f, err = d.root.Open(name)
	}
	if err != nil {
		return d.withPath(name, err)
	}
	return errors.Join(syncDirHandle(f), f.Close())
}

func (d *dirFS) Close() error {
	err := d.self.Close()
	if errors.Is(err, fs.ErrClosed) {
		err = nil
	}
	return errors.Join(d.root.Close(), err)
}

func (d *dirFS) path(name string) string { return filepath.Join(d.dir, filepath.FromSlash(name)) }

// withPath gives an error about a name the whole path.
func (d *dirFS) withPath(name string, err error) error { return withPath(d.path(name), err) }

// withPath gives an error the path that a person can look at: the whole one or,
// where a folder on the way is none, that of what lies in its place.
func withPath(path string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, errNotDir) {
		for dir := filepath.Dir(path); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
			if info, err := os.Stat(dir); err == nil {
				if !info.IsDir() {
					path = dir
				}
				break
			}
		}
	}
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return &fs.PathError{Op: pe.Op, Path: path, Err: pe.Err}
	}
	if le, ok := errors.AsType[*os.LinkError](err); ok {
		return &fs.PathError{Op: le.Op, Path: path, Err: le.Err}
	}
	return err
}

// MkdirAll makes the folder name and its missing parents below fsys, each
// durable before it returns.
func MkdirAll(fsys FS, name string) error {
	if name == "." || name == "" {
		return nil
	}
	if info, err := fsys.Stat(name); err == nil {
		if !info.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: filepath.Join(fsys.Dir(), name), Err: errNotDir}
		}
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := path.Dir(name)
	if err := MkdirAll(fsys, parent); err != nil {
		return err
	}
	if err := fsys.Mkdir(name); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		return err
	}
	return fsys.SyncDir(parent)
}

// ReadFile returns a file's content, at most limit bytes of it; a longer file
// is an error. A limit of 0 means no limit.
func ReadFile(fsys FS, name string, limit int64) ([]byte, error) {
	return AppendFile(nil, fsys, name, limit)
}

// AppendFile is [ReadFile] that appends to buf, so that a reader of many files
// can use one buffer. It returns buf as it was after an error.
func AppendFile(buf []byte, fsys FS, name string, limit int64) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return buf, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return buf, err
	}
	if limit > 0 && info.Size() > limit {
		return buf, &fs.PathError{Op: "read", Path: filepath.Join(fsys.Dir(), name), Err: fmt.Errorf("%d bytes is more than the limit of %d", info.Size(), limit)}
	}
	start := len(buf)
	buf = slices.Grow(buf, int(info.Size())+readAhead)
	for {
		buf = slices.Grow(buf, 1)
		n, err := f.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if errors.Is(err, io.EOF) {
			return buf, nil
		}
		if err != nil {
			return buf[:start], err
		}
	}
}

// readAhead is more than nothing, so that the read that finds the end of a file
// needs no larger buffer.
const readAhead = 512

// ReadHead returns at most n bytes of the beginning of a file, and its size.
func ReadHead(fsys FS, name string, n int) ([]byte, fs.FileInfo, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	buf := make([]byte, n)
	m, err := io.ReadFull(f, buf)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, nil, err
	}
	return buf[:m], info, nil
}

// Ignored reports whether scans pass over a file of this name: hidden names and
// temp files are nobody's data.
func Ignored(base string) bool {
	return strings.HasPrefix(base, ".") || strings.HasSuffix(base, TempSuffix)
}

// Exists reports whether anything of that name is there.
func Exists(fsys FS, name string) (bool, error) {
	_, err := fsys.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// lockPoll bounds the pause between two tries for a lock.
const lockPoll = 20 * time.Millisecond
