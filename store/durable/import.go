package durable

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"syscall"
)

// Programmer is an FS on which a file can be made a program.
type Programmer interface {
	// MakeProgram lets the owner run a file.
	MakeProgram(name string) error
}

// MakeProgram lets the owner, and nobody else, run a file.
func (d *dirFS) MakeProgram(name string) error {
	return d.withPath(name, d.root.Chmod(name, DirMode))
}

// Import makes the new file name of what r gives, and syncs it; its folder is
// made if it is missing, and is not synced. With program the owner may run the
// file. It returns the number of bytes. On an error the file may be there in
// part: the caller throws away what it was imported into.
func Import(fsys FS, name string, r io.Reader, program bool) (int64, error) {
	if err := MkdirAll(fsys, path.Dir(name)); err != nil {
		return 0, err
	}
	if program {
		// A process that were started meanwhile would hold the file open for
		// writing for a moment, and the system runs no such file.
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
	}
	f, err := fsys.Create(name)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(f, r)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return n, err
	}
	if !program {
		return n, nil
	}
	p, ok := fsys.(Programmer)
	if !ok {
		return n, &fs.PathError{Op: "chmod", Path: filepath.Join(fsys.Dir(), filepath.FromSlash(name)), Err: errors.ErrUnsupported}
	}
	return n, p.MakeProgram(name)
}

// RemoveAll removes name with all that lies below it; links are removed, not
// followed. What is missing is no error.
func RemoveAll(fsys FS, name string) error {
	info, err := fsys.Stat(name)
	if err != nil {
		return ignoreMissing(err)
	}
	if info.IsDir() {
		entries, err := fsys.ReadDir(name)
		if err != nil {
			return ignoreMissing(err)
		}
		for _, e := range entries {
			if err := RemoveAll(fsys, path.Join(name, e.Name())); err != nil {
				return err
			}
		}
	}
	return ignoreMissing(fsys.Remove(name))
}

// SyncTree makes the names in a folder, and in all folders below it, durable.
func SyncTree(fsys FS, name string) error {
	entries, err := fsys.ReadDir(name)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := SyncTree(fsys, path.Join(name, e.Name())); err != nil {
				return err
			}
		}
	}
	return fsys.SyncDir(name)
}
