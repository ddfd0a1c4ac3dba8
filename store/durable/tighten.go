package durable

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
)

// private is what a mode keeps where nobody else has any rights.
const private = ^fs.FileMode(0o077)

// Tighten takes the rights of others from what lies below dir, where dir itself
// gives others any; into a folder that is private nobody else gets, and nothing
// is looked at. Only entries of dir that are ours are touched, with all that lies
// below them; links are not followed. It goes on after an error; the errors name
// what others may still read. It does nothing where there is no dir, and on
// Windows, which has no modes.
//
// [OpenDir] tightens dir itself: call it after this, so that work that was cut
// short is done again.
func Tighten(dir string, ours func(name string) bool) error {
	info, err := os.Stat(dir)
	if runtime.GOOS == "windows" || err != nil || !info.IsDir() || info.Mode().Perm() == info.Mode().Perm()&private {
		return nil // whoever opens it tells what is wrong
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	d := &dirFS{root: root, dir: dir}
	entries, err := d.ReadDir(".")
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if ours(e.Name()) {
			errs = append(errs, d.tighten(e.Name()))
		}
	}
	return errors.Join(errs...)
}

func (d *dirFS) tighten(name string) error {
	var errs []error
	err := fs.WalkDir(d.root.FS(), name, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			errs = append(errs, d.withPath(name, err))
			return nil
		}
		if !e.IsDir() && !e.Type().IsRegular() {
			return nil
		}
		info, err := e.Info()
		if err == nil && info.Mode().Perm() != info.Mode().Perm()&private {
			err = d.root.Chmod(name, info.Mode().Perm()&private)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it may go meanwhile
			errs = append(errs, d.withPath(name, err))
		}
		return nil
	})
	return errors.Join(append(errs, err)...)
}
