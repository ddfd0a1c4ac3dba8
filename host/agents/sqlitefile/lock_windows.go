package sqlitefile

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lockRange takes a shared lock on a part of a file, if that is free.
func lockRange(f *os.File, at, length int64) (bool, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return false, err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) {
		place := windows.Overlapped{Offset: uint32(at), OffsetHigh: uint32(at >> 32)}
		failed = windows.LockFileEx(windows.Handle(fd), windows.LOCKFILE_FAIL_IMMEDIATELY, 0, uint32(length), uint32(length>>32), &place)
	}); err != nil {
		return false, err
	}
	if errors.Is(failed, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	return failed == nil, failed
}

func unlockRange(f *os.File, at, length int64) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) {
		place := windows.Overlapped{Offset: uint32(at), OffsetHigh: uint32(at >> 32)}
		failed = windows.UnlockFileEx(windows.Handle(fd), 0, uint32(length), uint32(length>>32), &place)
	}); err != nil {
		return err
	}
	return failed
}
