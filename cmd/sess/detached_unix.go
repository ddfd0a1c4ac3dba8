//go:build unix

package main

import "syscall"

// detached makes a process that its parent's terminal does not end: it has a
// session of its own.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
