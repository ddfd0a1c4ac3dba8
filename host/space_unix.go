//go:build unix

package host

import "syscall"

// freeSpace is how many bytes a user may still write to the disk of dir.
func freeSpace(dir string) (uint64, bool) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, false
	}
	return uint64(s.Bavail) * uint64(s.Bsize), true
}
