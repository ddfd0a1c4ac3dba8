package durable

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Lock makes the lock file inside the root, so that its name cannot leave the
// folder.
func (d *dirFS) Lock(ctx context.Context, name string, mode LockMode, wait bool) (func() error, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		flags := appendFlags
		if mode == Looking {
			flags = os.O_RDONLY
		}
		f, err := d.open(name, flags)
		if err != nil {
			return nil, err
		}
		unlock, err := d.lockFile(ctx, f, mode, wait)
		if (errors.Is(err, errMoved) || errors.Is(err, fs.ErrNotExist)) && try < lockTries {
			continue // the file was removed meanwhile, and perhaps made again
		}
		return unlock, err
	}
}

// lockTries is how often a file is opened anew that is there no longer.
const lockTries = 3

var errMoved = errors.New("another file took its place")

// Holder says who holds a lock: written beside it by the holder, for messages
// only. Nothing is ever decided by it.
type Holder struct {
	PID       int       `json:"pid"`
	Operation string    `json:"operation"`
	Since     time.Time `json:"since"`
}

// String is the holder as a message names it.
func (h Holder) String() string {
	if h.PID == 0 {
		return "another process"
	}
	s := fmt.Sprintf("process %d", h.PID)
	if h.Operation != "" {
		s += " (" + h.Operation + ")"
	}
	if !h.Since.IsZero() {
		s += " since " + h.Since.Local().Format(time.TimeOnly)
	}
	return s
}

// LockedError is a lock that somebody else holds. It is ErrLocked.
type LockedError struct {
	Path   string
	Holder Holder
}

func (e *LockedError) Error() string { return fmt.Sprintf("%s is locked by %s", e.Path, e.Holder) }

// Is makes errors.Is(err, ErrLocked) true.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// LockBriefly is [FS.Lock] for a lock whose holders are done within wait, unless
// one of them was stopped: then it fails with ErrLocked. When ctx ends first its
// error is ctx's.
func LockBriefly(ctx context.Context, fsys FS, name string, mode LockMode, wait time.Duration) (unlock func() error, err error) {
	brief, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	unlock, err = fsys.Lock(brief, name, mode, true)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, &fs.PathError{Op: "lock", Path: filepath.Join(fsys.Dir(), filepath.FromSlash(name)), Err: ErrLocked}
	}
	return unlock, err
}

const holderSuffix = ".holder"

// LockAs takes an exclusive lock and writes down who holds it, so that others
// can be told. A lock that is not free (at once, or before ctx ends if wait) is
// a *LockedError that names the holder.
func LockAs(ctx context.Context, fsys FS, name, operation string, wait bool) (func() error, error) {
	unlock, err := fsys.Lock(ctx, name, Exclusive, wait)
	if errors.Is(err, ErrLocked) || wait && errors.Is(err, context.DeadlineExceeded) {
		return nil, &LockedError{Path: name, Holder: ReadHolder(fsys, name)}
	}
	if err != nil {
		return nil, err
	}
	holder, _ := json.Marshal(Holder{PID: os.Getpid(), Operation: operation, Since: time.Now().UTC()})
	// It is written in place: it is no one's data, and a torn one says nothing.
	// A line is added, since a file that is truncated and written again is one
	// that file systems send to the disk when it is closed, which would make
	// everybody wait who syncs something next.
	if f, err := fsys.Append(name + holderSuffix); err == nil {
		if info, err := f.Stat(); err == nil && info.Size() > maxHolders {
			_ = f.Truncate(0)
		}
		_, _ = f.Write(append([]byte{'\n'}, holder...))
		_ = f.Close()
	}
	return unlock, nil
}

// maxHolders bounds the bytes of a file of holders.
const maxHolders = 4096

// ReadHolder returns who last took a lock with [LockAs], for messages: it tells
// nothing about whether the lock is held now. The zero Holder means that nobody
// knows.
func ReadHolder(fsys FS, name string) Holder {
	var h Holder
	data, err := ReadFile(fsys, name+holderSuffix, 2*maxHolders)
	data = data[bytes.LastIndexByte(data, '\n')+1:]
	if err != nil || json.Unmarshal(data, &h) != nil {
		return Holder{}
	}
	return h
}
