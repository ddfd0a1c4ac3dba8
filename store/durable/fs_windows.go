package durable

import (
	"os"
	"syscall"
)

const openFlags = 0

const errNotDir = syscall.ENOTDIR

// syncDirHandle does nothing: Windows has no sync of a folder, and keeps
// renames in its journal.
func syncDirHandle(*os.File) error { return nil }
