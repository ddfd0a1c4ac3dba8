package supervise

import (
	"os"
	"os/exec"
	"syscall"
)

// ownGroup keeps the console's Ctrl-C from cmd.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// killGroup kills p alone: what it started learns of it by its lifeline.
func killGroup(p *os.Process) { _ = p.Kill() }
