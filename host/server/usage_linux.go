package server

import (
	"os"
	"strconv"
	"strings"
)

// processUsage reads from /proc how much memory of this process is in RAM, in
// bytes, and how many file descriptors are open.
func processUsage() (rss, fds int64, ok bool) {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, 0, false
	}
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0, 0, false
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0, 0, false
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0, 0, false
	}
	return pages * int64(os.Getpagesize()), int64(len(entries)), true
}
