package durable

import (
	"errors"
	"os"
	"syscall"
)

const openFlags = 0

var (
	errNotDir     = syscall.ENOTDIR
	errNotRegular = errors.New("not a regular file")
)

// syncDirHandle does nothing: Windows has no sync of a folder, and keeps
// renames in its journal.
func syncDirHandle(*os.File) error { return nil }
