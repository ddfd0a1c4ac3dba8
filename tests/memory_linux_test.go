package tests

import (
	"bytes"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// memory is answer; it returns the most memory, in bytes, that the program or
// its plugin had resident. What this process has is the least that it can tell,
// since a process begins as a copy of its parent; where that is more it returns 0.
func (u *user) memory(into any, args ...string) int64 {
	u.t.Helper()
	var out bytes.Buffer
	cmd := u.command(append([]string{"--json"}, args...)...)
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		u.t.Fatalf("sess %s: %v\n%s", strings.Join(args, " "), err, out.String())
	}
	if err := json.Unmarshal(out.Bytes(), into); err != nil {
		u.t.Fatalf("sess %s: %v\n%s", strings.Join(args, " "), err, out.String())
	}
	most := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		u.t.Fatal(err)
	}
	_, own, _ := strings.Cut(string(status), "VmHWM:")
	fields := strings.Fields(own)
	if len(fields) == 0 {
		u.t.Fatal("/proc/self/status has no VmHWM")
	}
	kilobytes, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		u.t.Fatal(err)
	}
	if most <= kilobytes<<10 {
		return 0
	}
	return most
}
