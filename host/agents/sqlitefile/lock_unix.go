//go:build unix

package sqlitefile

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// lockRange takes a shared lock on a part of a file, if that is free. The lock
// is the open file's, not the process's: another reader of the same file here
// does not end it.
func lockRange(f *os.File, at, length int64) (bool, error) {
	return setLock(f, unix.F_RDLCK, at, length)
}

func unlockRange(f *os.File, at, length int64) error {
	_, err := setLock(f, unix.F_UNLCK, at, length)
	return err
}

func setLock(f *os.File, kind int16, at, length int64) (bool, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return false, err
	}
	lock := unix.Flock_t{Type: kind, Whence: io.SeekStart, Start: at, Len: length}
	var failed error
	if err := raw.Control(func(fd uintptr) {
		for {
			if failed = unix.FcntlFlock(fd, setOpenFileLock, &lock); !errors.Is(failed, unix.EINTR) {
				return
			}
		}
	}); err != nil {
		return false, err
	}
	if errors.Is(failed, unix.EAGAIN) || errors.Is(failed, unix.EACCES) {
		return false, nil
	}
	return failed == nil, failed
}
