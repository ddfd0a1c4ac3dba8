//go:build !linux

package durable

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/gofrs/flock"
)

func (d *dirFS) openFile(string, int) (*os.File, error) { return nil, nil }

func (d *dirFS) openFolder(string) (*os.File, error) { return nil, nil }

// lockFile locks a file by its path; that it was opened keeps its name from
// leaving the folder.
func (d *dirFS) lockFile(ctx context.Context, f *os.File, mode LockMode, wait bool) (func() error, error) {
	path := f.Name()
	if err := f.Close(); err != nil {
		return nil, err
	}
	flag := os.O_RDWR
	if mode == Looking {
		flag = os.O_RDONLY
	}
	l := flock.New(path, flock.SetFlag(flag), flock.SetPermissions(FileMode))
	try, tryUntil := l.TryLock, l.TryLockContext
	if mode != Exclusive {
		try, tryUntil = l.TryRLock, l.TryRLockContext
	}
	var ok bool
	var err error
	if wait {
		ok, err = tryUntil(ctx, lockPoll)
	} else {
		ok, err = try()
	}
	if err != nil {
		return nil, errors.Join(withPath(path, err), l.Close())
	}
	if !ok {
		return nil, errors.Join(&fs.PathError{Op: "lock", Path: path, Err: ErrLocked}, l.Close())
	}
	return l.Close, nil
}
