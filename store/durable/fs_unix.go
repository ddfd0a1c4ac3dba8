//go:build unix

package durable

import (
	"errors"
	"os"
	"syscall"
)

// openFlags refuse a link as the last element of a name, and keep the opening
// of a named pipe from waiting for its other end.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

const errNotDir = syscall.ENOTDIR

func syncDirHandle(f *os.File) error {
	err := f.Sync()
	// Some file systems cannot sync a folder and say so; their renames are as
	// durable as they get.
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		return nil
	}
	return err
}
