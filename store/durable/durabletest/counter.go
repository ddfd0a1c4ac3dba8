package durabletest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"sess/store/durable"
)

// Counts is what was done to the disk. It does not depend on the machine, so
// tests hold the cost of an operation against it.
type Counts struct {
	Created  int   // files made: Create, and Append of a name that was not there
	Opened   int   // files opened that were there
	Renamed  int   // files
	Linked   int   // files that got a second name
	Removed  int   // files
	Stats    int   // questions for a name
	Listed   int   // folders read
	Synced   int   // files and folders
	Locked   int   // locks asked for
	Written  int64 // bytes
	ReadBack int64 // bytes
}

// Ops is the number of operations of every kind but the reads and writes of
// open files.
func (c Counts) Ops() int {
	return c.Created + c.Opened + c.Renamed + c.Linked + c.Removed + c.Stats + c.Listed + c.Synced + c.Locked
}

func (c Counts) String() string {
	return fmt.Sprintf("created %d opened %d renamed %d linked %d removed %d stats %d listed %d synced %d locked %d, %d bytes written, %d read",
		c.Created, c.Opened, c.Renamed, c.Linked, c.Removed, c.Stats, c.Listed, c.Synced, c.Locked, c.Written, c.ReadBack)
}

// Counter counts what is done to all the folders opened through it, also by
// readers. The zero value is ready to use. Safe for concurrent use.
type Counter struct {
	// Unsynced counts syncs and does not do them: for tests in which no power
	// goes.
	Unsynced bool

	mu sync.Mutex // guards n
	n  Counts
}

// Take returns the counts and begins again at zero.
func (c *Counter) Take() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.n
	c.n = Counts{}
	return n
}

func (c *Counter) add(count func(*Counts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	count(&c.n)
}

// Open is a durable.OpenFunc on the real disk, watched by c.
func (c *Counter) Open(dir string) (durable.FS, error) { return c.Wrap(durable.OpenDir(dir)) }

// Wrap watches an FS that was just opened.
func (c *Counter) Wrap(inner durable.FS, err error) (durable.FS, error) {
	if err != nil {
		return nil, err
	}
	return &countedFS{FS: inner, c: c}, nil
}

type countedFS struct {
	durable.FS
	c *Counter
}

func (w *countedFS) Open(name string) (durable.File, error) {
	w.c.add(func(n *Counts) { n.Opened++ })
	return w.file(w.FS.Open(name))
}

func (w *countedFS) Create(name string) (durable.File, error) {
	w.c.add(func(n *Counts) { n.Created++ })
	return w.file(w.FS.Create(name))
}

func (w *countedFS) Append(name string) (durable.File, error) {
	_, err := w.FS.Stat(name)
	w.c.add(func(n *Counts) {
		if err == nil {
			n.Opened++
		} else {
			n.Created++
		}
	})
	return w.file(w.FS.Append(name))
}

func (w *countedFS) file(f durable.File, err error) (durable.File, error) {
	if err != nil {
		return nil, err
	}
	return &countedFile{File: f, c: w.c}, nil
}

func (w *countedFS) Rename(oldName, newName string) error {
	w.c.add(func(n *Counts) { n.Renamed++ })
	return w.FS.Rename(oldName, newName)
}

func (w *countedFS) Link(oldName, newName string) error {
	l, ok := w.FS.(durable.Linker)
	if !ok {
		return errors.ErrUnsupported
	}
	w.c.add(func(n *Counts) { n.Linked++ })
	return l.Link(oldName, newName)
}

func (w *countedFS) Remove(name string) error {
	w.c.add(func(n *Counts) { n.Removed++ })
	return w.FS.Remove(name)
}

func (w *countedFS) ReadDir(name string) ([]fs.DirEntry, error) {
	w.c.add(func(n *Counts) { n.Listed++ })
	return w.FS.ReadDir(name)
}

func (w *countedFS) Stat(name string) (fs.FileInfo, error) {
	w.c.add(func(n *Counts) { n.Stats++ })
	return w.FS.Stat(name)
}

func (w *countedFS) SyncDir(name string) error {
	w.c.add(func(n *Counts) { n.Synced++ })
	if w.c.Unsynced {
		return nil
	}
	return w.FS.SyncDir(name)
}

func (w *countedFS) Lock(ctx context.Context, name string, mode durable.LockMode, wait bool) (func() error, error) {
	w.c.add(func(n *Counts) { n.Locked++ })
	return w.FS.Lock(ctx, name, mode, wait)
}

type countedFile struct {
	durable.File
	c *Counter
}

func (f *countedFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	f.c.add(func(c *Counts) { c.ReadBack += int64(n) })
	return n, err
}

func (f *countedFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	f.c.add(func(c *Counts) { c.Written += int64(n) })
	return n, err
}

func (f *countedFile) Sync() error {
	f.c.add(func(c *Counts) { c.Synced++ })
	if f.c.Unsynced {
		return nil
	}
	return f.File.Sync()
}
