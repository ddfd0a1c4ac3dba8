package durable

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Temp is a file that is not yet visible. Exactly one of Publish, Rename and
// Discard ends it. Not safe for concurrent use.
type Temp struct {
	fsys FS
	name string // of the temp file
	file File   // open until it is synced
	done bool
}

// WriteTemp writes data to a new temp file in the folder of the name it is
// meant for, and syncs it. On an error nothing is left behind, as far as the
// disk allows.
func WriteTemp(fsys FS, target string, data []byte) (*Temp, error) {
	t, err := CreateTemp(fsys, target)
	if err != nil {
		return nil, err
	}
	if _, err = t.Write(data); err == nil {
		err = t.Sync()
	}
	if err != nil {
		return nil, errors.Join(err, t.Discard())
	}
	return t, nil
}

var errEnded = errors.New("temp file takes no more: it was synced or discarded, or its sync failed")

// CreateTemp is [WriteTemp] for a file that is written in pieces: with Write,
// and Sync after the last one.
func CreateTemp(fsys FS, target string) (*Temp, error) {
	dir, base := path.Split(target)
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	name := dir + "." + strings.TrimPrefix(short(base), ".") + "." + hex.EncodeToString(random[:]) + TempSuffix
	f, err := fsys.Create(name)
	if err != nil {
		return nil, err
	}
	return &Temp{fsys: fsys, name: name, file: f}, nil
}

// Write adds data to the file. That less was taken is an error, too; after one
// the file can only be discarded.
func (t *Temp) Write(data []byte) (int, error) {
	if t.file == nil {
		return 0, errEnded
	}
	if err := WriteAll(t.file, filepath.Join(t.fsys.Dir(), filepath.FromSlash(t.name)), data); err != nil {
		return 0, err
	}
	return len(data), nil
}

// Sync makes durable what was written; nothing can be added then. After an error
// the file can only be discarded.
func (t *Temp) Sync() error {
	if t.file == nil {
		return errEnded
	}
	err := t.file.Sync()
	// A close that fails may mean that a write was lost on the way.
	err = errors.Join(err, t.file.Close())
	t.file = nil
	return err
}

// WriteAll writes data to a file. That less was taken is an error, too; it names
// the file by its path.
func WriteAll(f File, path string, data []byte) error {
	n, err := f.Write(data)
	if err == nil && n < len(data) {
		err = &fs.PathError{Op: "write", Path: path, Err: io.ErrShortWrite}
	}
	return err
}

// short keeps a temp file's name well under what file systems allow.
func short(base string) string {
	const most = 160
	if len(base) > most {
		return base[:most]
	}
	return base
}

// Rename makes the file visible under target, replacing what is there, without
// syncing the folder: for a batch whose folder is synced once. A rename that is
// refused for a moment, as when a scanner has the target open, is tried again a
// few times. On an error the temp file is removed.
func (t *Temp) Rename(target string) error {
	if t.done || t.file != nil {
		return errors.New("temp file was used already, or is not synced")
	}
	t.done = true
	err := t.fsys.Rename(t.name, target)
	for pause := time.Millisecond; err != nil && transient(err) && pause < 300*time.Millisecond; pause *= 3 {
		timer := time.NewTimer(pause)
		<-timer.C
		err = t.fsys.Rename(t.name, target)
	}
	if err != nil {
		return errors.Join(err, ignoreMissing(t.fsys.Remove(t.name)))
	}
	return nil
}

// ErrUnsynced is returned for a file that is visible, but may be gone after a
// power cut: its folder could not be synced.
var ErrUnsynced = errors.New("it is there, but may not last")

// Publish makes the file visible under target, replacing what is there, and
// durable before it returns. After an error the file is as it was, unless the
// error is ErrUnsynced.
func (t *Temp) Publish(target string) error {
	if err := t.Rename(target); err != nil {
		return err
	}
	if err := t.fsys.SyncDir(path.Dir(target)); err != nil {
		return fmt.Errorf("%w: %w", ErrUnsynced, err)
	}
	return nil
}

// PublishNew is Publish for a name that must be free: fs.ErrExist if it is not.
// After an error nothing of the file is there, as far as the disk allows.
func (t *Temp) PublishNew(target string) error {
	err := errors.ErrUnsupported
	if l, ok := t.fsys.(Linker); ok && !t.done && t.file == nil {
		err = l.Link(t.name, target) // which never replaces
	}
	switch {
	case err == nil:
		err = t.Discard()
	case errors.Is(err, fs.ErrExist):
		return errors.Join(err, t.Discard())
	default: // where a file has one name: that is taken, and then what has it replaced
		var taken File
		if taken, err = t.fsys.Create(target); err != nil {
			return errors.Join(err, t.Discard())
		}
		err = errors.Join(taken.Close(), t.Rename(target))
	}
	if err == nil {
		err = t.fsys.SyncDir(path.Dir(target))
	}
	if err != nil {
		return errors.Join(err, ignoreMissing(t.fsys.Remove(target)))
	}
	return nil
}

// Discard removes the file, unless it was published.
func (t *Temp) Discard() error {
	if t == nil || t.done {
		return nil
	}
	t.done = true
	if t.file != nil {
		_ = t.file.Close() // what it holds is not wanted
		t.file = nil
	}
	return ignoreMissing(t.fsys.Remove(t.name))
}

// Write replaces or makes the file name, durably; its errors are those of
// [Temp.Publish].
func Write(fsys FS, name string, data []byte) error {
	t, err := WriteTemp(fsys, name, data)
	if err != nil {
		return err
	}
	return t.Publish(name)
}

// Keep gives what the file name holds, which is data, the name target as well,
// durably: before another file takes its place. The file must be one that was
// made by [Write] or [Temp.Publish], so that what it holds is durable already and
// never changes. Where a file cannot have two names it is copied.
func Keep(fsys FS, name, target string, data []byte) error {
	if l, ok := fsys.(Linker); ok && l.Link(name, target) == nil {
		return fsys.SyncDir(path.Dir(target))
	}
	return Write(fsys, target, data)
}

// Move renames a file and makes that durable in both folders.
func Move(fsys FS, oldName, newName string) error {
	if err := fsys.Rename(oldName, newName); err != nil {
		return err
	}
	from, to := path.Dir(oldName), path.Dir(newName)
	err := fsys.SyncDir(to)
	if from != to {
		err = errors.Join(err, fsys.SyncDir(from))
	}
	return err
}

// Remove deletes a file durably; one that is not there is no error.
func Remove(fsys FS, name string) error {
	switch err := fsys.Remove(name); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return fsys.SyncDir(path.Dir(name))
}

// Touch makes an empty file, or gives it the present time. It is for files that
// hold nothing but their time, so it syncs nothing.
func Touch(fsys FS, name string) error {
	f, err := fsys.Append(name)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte("\n"))
	return errors.Join(err, f.Truncate(0), f.Close())
}

// SweepTemps removes the temp files of a folder. The caller holds the locks
// under which all of the folder's temp files are made. It returns how many went. A
// folder that is not there has none.
func SweepTemps(fsys FS, dir string) (int, error) {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return 0, ignoreMissing(err)
	}
	n := 0
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), TempSuffix) || !e.Type().IsRegular() {
			continue
		}
		if err := ignoreMissing(fsys.Remove(path.Join(dir, e.Name()))); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// SweepOldTemps is [SweepTemps] for a folder whose writers hold no lock: it
// leaves those of the last hour, which may be in use.
func SweepOldTemps(fsys FS, dir string, now time.Time) error {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return ignoreMissing(err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), TempSuffix) || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if err != nil || now.Sub(info.ModTime()) < time.Hour {
			continue // it is gone, or young
		}
		if err := ignoreMissing(fsys.Remove(path.Join(dir, e.Name()))); err != nil {
			return err
		}
	}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// transient reports whether a rename may succeed when tried again.
func transient(err error) bool {
	return errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.EACCES) || errors.Is(err, fs.ErrPermission)
}

func sortEntries(list []fs.DirEntry) {
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
}
