//go:build unix && !linux && !darwin

package sqlitefile

import "golang.org/x/sys/unix"

// setOpenFileLock is a lock of the process here, for want of another: a second
// reader of the same database in this process ends the first one's lock early.
const setOpenFileLock = unix.F_SETLK
