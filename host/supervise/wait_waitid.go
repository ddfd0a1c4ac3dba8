//go:build linux || darwin

package supervise

import (
	"errors"
	"os"
	"syscall"
	"unsafe"
)

// awaitExit returns true when p has ended; p is left to be reaped.
func awaitExit(p *os.Process) bool {
	const byPID = 1     // P_PID
	var info [16]uint64 // larger than siginfo_t on every system
	for {
		_, _, err := syscall.Syscall6(syscall.SYS_WAITID, byPID, uintptr(p.Pid),
			uintptr(unsafe.Pointer(&info)), syscall.WEXITED|syscall.WNOWAIT, 0, 0)
		if !errors.Is(err, syscall.EINTR) {
			return err == 0
		}
	}
}
