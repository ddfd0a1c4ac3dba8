//go:build !linux && !darwin && !freebsd && !netbsd && !openbsd && !dragonfly

package main

// calm makes the terminal what it was: what is typed during an answer is seen.
func (t *tty) calm() error { return t.restore() }

// waiting leaves what was typed to whoever asks next.
func (t *tty) waiting() []byte { return nil }

// resizes tells of no change: the size is asked for with each line.
func resizes() (resized <-chan struct{}, stop func() error) { return nil, func() error { return nil } }

// suspend does nothing: there is no such signal.
func suspend() {}
