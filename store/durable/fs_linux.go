package durable

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// resolve keeps a name below its folder and off every link, in one call of the
// system where [os.Root] needs one for each element.
const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS

// openBeneath opens a name below the folder, or says that there is none. It
// returns neither a file nor an error for whatever else is not plainly done, also
// where the system does not know the call: then [os.Root] does it, and says what
// is wrong.
func (d *dirFS) openBeneath(name string, flag int) (*os.File, error) {
	how := unix.OpenHow{Flags: uint64(flag | unix.O_CLOEXEC), Resolve: resolve}
	if flag&unix.O_CREAT != 0 {
		how.Mode = uint64(FileMode)
	}
	conn, err := d.self.SyscallConn()
	if err != nil {
		return nil, nil
	}
	fd := -1
	// Control keeps the folder from being closed meanwhile.
	if e := conn.Control(func(dir uintptr) { fd, err = unix.Openat2(int(dir), filepath.FromSlash(name), &how) }); e != nil {
		return nil, nil
	}
	switch {
	case err == nil:
		return os.NewFile(uintptr(fd), d.path(name)), nil
	case errors.Is(err, fs.ErrNotExist) && flag&unix.O_CREAT == 0:
		return nil, &fs.PathError{Op: "open", Path: d.path(name), Err: err}
	}
	return nil, nil
}

// openFile opens a file for reading, writing or appending.
func (d *dirFS) openFile(name string, flag int) (*os.File, error) {
	return d.openBeneath(name, flag|openFlags)
}

// openFolder opens a folder for [os.File.ReadDir], which looks at each entry of
// one that an [os.Root] opened.
func (d *dirFS) openFolder(name string) (*os.File, error) {
	return d.openBeneath(name, unix.O_RDONLY|unix.O_DIRECTORY)
}

// lockFile locks a file that is open: it need not be found by its path again.
// That its path still leads to it is looked at when it is locked, since whoever
// comes by the path would not meet the lock otherwise.
func (d *dirFS) lockFile(ctx context.Context, f *os.File, mode LockMode, wait bool) (func() error, error) {
	if err := flock(ctx, f, mode, wait); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	unlock := func() error {
		// A child that is just being started may have the file open for a moment yet.
		return errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), f.Close())
	}
	mine, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, unlock())
	}
	there, err := os.Stat(f.Name())
	if err != nil {
		return nil, errors.Join(withPath(f.Name(), err), unlock())
	}
	if !os.SameFile(mine, there) {
		return nil, errors.Join(&fs.PathError{Op: "lock", Path: f.Name(), Err: errMoved}, unlock())
	}
	return unlock, nil
}

func flock(ctx context.Context, f *os.File, mode LockMode, wait bool) error {
	how := unix.LOCK_EX | unix.LOCK_NB
	if mode != Exclusive {
		how = unix.LOCK_SH | unix.LOCK_NB
	}
	for {
		err := unix.Flock(int(f.Fd()), how)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EWOULDBLOCK):
			return &fs.PathError{Op: "lock", Path: f.Name(), Err: err}
		case !wait:
			return &fs.PathError{Op: "lock", Path: f.Name(), Err: ErrLocked}
		}
		timer := time.NewTimer(lockPoll)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}
