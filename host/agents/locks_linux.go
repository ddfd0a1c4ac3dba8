package agents

import (
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// locked reports whether a process holds a lock on a file. It looks, and takes no
// lock itself: whoever wants that one at the moment would be refused.
func locked(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return false
	}
	inode := ":" + strconv.FormatUint(stat.Ino, 10)
	for line := range strings.Lines(string(locks)) {
		// 1: FLOCK  ADVISORY  WRITE 815 08:01:1835014 0 EOF
		const where = 5
		if fields := strings.Fields(line); len(fields) > where && fields[1] != "->" && strings.HasSuffix(fields[where], inode) {
			return true
		}
	}
	return false
}
