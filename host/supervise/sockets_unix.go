//go:build unix

package supervise

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// private tells why a folder is not this user's alone to write to.
func private(path string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder", path)
	case !ok || int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to another user", path)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s can be written to by other users", path)
	}
	return nil
}
