//go:build unix

package main

import "syscall"

// restrict keeps others from all that this process and its children make.
func restrict() { syscall.Umask(0o077) }
