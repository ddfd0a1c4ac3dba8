//go:build unix

package supervise

import (
	"os"
	"syscall"
)

// leadGroup makes this process lead a process group, which what it starts then
// belongs to. A host has done that already.
func leadGroup() { _ = syscall.Setpgid(0, 0) }

// endOwnGroup kills that group, this process included.
func endOwnGroup(*os.Process) { _ = syscall.Kill(0, syscall.SIGKILL) }

// exitStatus is a process's as a shell tells it.
func exitStatus(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}
