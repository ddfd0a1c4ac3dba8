//go:build unix

package wire

import (
	"os"
	"os/signal"
	"syscall"
)

// endGroup kills the process group if this process leads it: its children are
// in it, and nobody else is. Otherwise it ends this process alone.
func endGroup() {
	if syscall.Getpgrp() == os.Getpid() {
		_ = syscall.Kill(0, syscall.SIGKILL)
	}
	os.Exit(1)
}

// surviveBrokenPipes makes a write to stderr fail instead of ending the process
// when the host is gone: the process must live to end its group.
func surviveBrokenPipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
