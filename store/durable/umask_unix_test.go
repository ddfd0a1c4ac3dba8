//go:build unix

package durable_test

import "syscall"

func umask(mask int) int { return syscall.Umask(mask) }
