// Package durabletest wraps a durable.FS for tests: it counts and records what
// is done to the disk, and makes the k-th operation fail.
package durabletest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"sync"

	"sess/store/durable"
)

// ErrInjected is the error of an operation that was made to fail.
var ErrInjected = errors.New("injected fault")

// Op is one operation that changes the disk, or makes a change durable.
type Op struct {
	Kind string // create, append, write, sync, truncate, rename, link, remove, mkdir, syncdir
	Name string // whole path
	N    int    // bytes, of a write
}

func (o Op) String() string { return o.Kind + " " + path.Base(o.Name) }

// Faulty counts the operations of all the folders opened through it. The zero
// value fails nothing. Safe for concurrent use.
type Faulty struct {
	mu     sync.Mutex
	ops    []Op
	failAt int // index into ops, -1 or beyond: none
	armed  bool
	after  bool // everything after the failed one fails too: the process "died"
	err    error
	fired  bool
	held   map[*heldLock]bool
}

// heldLock is a lock that was taken through a Faulty.
type heldLock struct {
	once   sync.Once
	unlock func() error
	err    error
}

func (l *heldLock) release() error {
	l.once.Do(func() { l.err = l.unlock() })
	return l.err
}

// Die releases all locks that are held, as the kernel does when their process
// ends. What the process left running must not go on.
func (f *Faulty) Die() error {
	f.mu.Lock()
	held := f.held
	f.held = nil
	f.mu.Unlock()
	var errs []error
	for l := range held {
		errs = append(errs, l.release())
	}
	return errors.Join(errs...)
}

// FailAt arms the k-th operation from now on, counted from 0: it fails with
// err (nil means ErrInjected). With dead, all later ones fail as well, as if
// the process had been killed there. It forgets what was recorded.
func (f *Faulty) FailAt(k int, err error, dead bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		err = ErrInjected
	}
	f.ops, f.failAt, f.armed, f.after, f.err, f.fired = nil, k, true, dead, err, false
}

// Reset disarms and forgets.
func (f *Faulty) Reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ops, f.armed, f.fired = nil, false, false
}

// Fired reports whether the armed operation was reached.
func (f *Faulty) Fired() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fired
}

// Ops returns what was recorded.
func (f *Faulty) Ops() []Op {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]Op(nil), f.ops...)
}

// Count returns how many operations of a kind were recorded.
func (f *Faulty) Count(kind string) int {
	n := 0
	for _, op := range f.Ops() {
		if op.Kind == kind {
			n++
		}
	}
	return n
}

// Written returns the bytes of all writes.
func (f *Faulty) Written() int {
	n := 0
	for _, op := range f.Ops() {
		n += op.N
	}
	return n
}

// Unsynced is a durable.OpenFunc on the real disk that syncs nothing: for tests in
// which no power goes.
func Unsynced(dir string) (durable.FS, error) {
	inner, err := durable.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	return unsynced{inner}, nil
}

type unsynced struct{ durable.FS }

type unsyncedFile struct{ durable.File }

func (unsyncedFile) Sync() error { return nil }

func (unsynced) SyncDir(string) error { return nil }

func (u unsynced) Link(oldName, newName string) error {
	return u.FS.(durable.Linker).Link(oldName, newName)
}

func (u unsynced) Create(name string) (durable.File, error) {
	f, err := u.FS.Create(name)
	return unsyncedFile{f}, err
}

func (u unsynced) Append(name string) (durable.File, error) {
	f, err := u.FS.Append(name)
	return unsyncedFile{f}, err
}

// Open is a durable.OpenFunc on the real disk, watched by f.
func (f *Faulty) Open(dir string) (durable.FS, error) { return f.Wrap(durable.OpenDir(dir)) }

// Wrap watches an FS that was just opened.
func (f *Faulty) Wrap(inner durable.FS, err error) (durable.FS, error) {
	if err != nil {
		return nil, err
	}
	return &faultyFS{FS: inner, f: f}, nil
}

func (f *Faulty) step(kind, name string, n int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := len(f.ops)
	f.ops = append(f.ops, Op{kind, name, n})
	if f.armed && (at == f.failAt || f.after && at > f.failAt) {
		f.fired = true
		return &fs.PathError{Op: kind, Path: name, Err: fmt.Errorf("%w (operation %d)", f.err, at)}
	}
	return nil
}

type faultyFS struct {
	durable.FS
	f *Faulty
}

func (w *faultyFS) do(kind, name string, act func() error) error {
	if err := w.f.step(kind, path.Join(w.Dir(), name), 0); err != nil {
		return err
	}
	return act()
}

func (w *faultyFS) Create(name string) (durable.File, error) {
	return w.file("create", name, w.FS.Create)
}

func (w *faultyFS) Append(name string) (durable.File, error) {
	return w.file("append", name, w.FS.Append)
}

func (w *faultyFS) file(kind, name string, open func(string) (durable.File, error)) (durable.File, error) {
	var file durable.File
	err := w.do(kind, name, func() (err error) {
		file, err = open(name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &faultyFile{File: file, fs: w, name: name}, nil
}

func (w *faultyFS) Rename(oldName, newName string) error {
	return w.do("rename", newName, func() error { return w.FS.Rename(oldName, newName) })
}

func (w *faultyFS) Link(oldName, newName string) error {
	l, ok := w.FS.(durable.Linker)
	if !ok {
		return errors.ErrUnsupported
	}
	return w.do("link", newName, func() error { return l.Link(oldName, newName) })
}

func (w *faultyFS) Remove(name string) error {
	return w.do("remove", name, func() error { return w.FS.Remove(name) })
}

func (w *faultyFS) Mkdir(name string) error {
	return w.do("mkdir", name, func() error { return w.FS.Mkdir(name) })
}

func (w *faultyFS) SyncDir(name string) error {
	return w.do("syncdir", name, func() error { return w.FS.SyncDir(name) })
}

// Lock is not counted: a lock changes nothing that outlives its holder.
func (w *faultyFS) Lock(ctx context.Context, name string, mode durable.LockMode, wait bool) (func() error, error) {
	unlock, err := w.FS.Lock(ctx, name, mode, wait)
	if err != nil {
		return nil, err
	}
	l := &heldLock{unlock: unlock}
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	if w.f.held == nil {
		w.f.held = map[*heldLock]bool{}
	}
	w.f.held[l] = true
	return func() error {
		w.f.mu.Lock()
		delete(w.f.held, l)
		w.f.mu.Unlock()
		return l.release()
	}, nil
}

type faultyFile struct {
	durable.File
	fs   *faultyFS
	name string
}

// Write writes half of the bytes where it is made to fail, as a full disk does;
// where the error is io.ErrShortWrite it says nothing but how many those were.
func (f *faultyFile) Write(p []byte) (int, error) {
	if err := f.fs.f.step("write", path.Join(f.fs.Dir(), f.name), len(p)); err != nil {
		n, _ := f.File.Write(p[:len(p)/2])
		if errors.Is(err, io.ErrShortWrite) {
			return n, nil
		}
		return n, err
	}
	return f.File.Write(p)
}

func (f *faultyFile) Sync() error {
	return f.fs.do("sync", f.name, f.File.Sync)
}

func (f *faultyFile) Truncate(size int64) error {
	return f.fs.do("truncate", f.name, func() error { return f.File.Truncate(size) })
}
