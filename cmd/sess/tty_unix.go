//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// calm lets the terminal echo nothing and keep what is typed, key by key; Ctrl-C
// and the like are signals.
func (t *tty) calm() error {
	return t.change(func(modes *unix.Termios) {
		modes.Iflag &^= unix.ICRNL | unix.INLCR | unix.IGNCR
		modes.Oflag |= unix.OPOST
		modes.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.IEXTEN
		modes.Lflag |= unix.ISIG
		modes.Cc[unix.VMIN], modes.Cc[unix.VTIME] = 1, 0
	})
}

func (t *tty) change(edit func(*unix.Termios)) error {
	fd := int(t.in.Fd())
	modes, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return err
	}
	edit(modes)
	return unix.IoctlSetTermios(fd, setTermios, modes)
}

// waiting takes what was typed and not read yet.
func (t *tty) waiting() (typed []byte) {
	const most = 1 << 16 // no terminal keeps as much
	if t.change(func(modes *unix.Termios) { modes.Cc[unix.VMIN] = 0 }) != nil {
		return nil
	}
	for buffer := make([]byte, 4096); len(typed) < most; {
		n, err := t.in.Read(buffer) // nothing there is the end of the file
		typed = append(typed, buffer[:n]...)
		if n == 0 || err != nil {
			break
		}
	}
	_ = t.change(func(modes *unix.Termios) { modes.Cc[unix.VMIN] = 1 })
	return typed
}

// resizes has a value whenever the terminal's size has changed, until it is
// stopped.
func resizes() (resized <-chan struct{}, stop func() error) {
	signals, values, done := make(chan os.Signal, 1), make(chan struct{}, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGWINCH)
	go func() {
		for {
			select {
			case <-signals:
				select {
				case values <- struct{}{}:
				default: // one that was not seen yet says the same
				}
			case <-done:
				return
			}
		}
	}()
	return values, func() error {
		signal.Stop(signals)
		close(done)
		return nil
	}
}

// suspend stops the program, with those that it was started together with, until
// the shell lets it go on. Where there is no shell that could, it does not stop.
func suspend() {
	goesOn := make(chan os.Signal, 1)
	signal.Notify(goesOn, syscall.SIGCONT)
	defer signal.Stop(goesOn)
	if syscall.Kill(0, syscall.SIGTSTP) != nil {
		return
	}
	select {
	case <-goesOn:
	case <-time.After(time.Second / 4):
	}
}
