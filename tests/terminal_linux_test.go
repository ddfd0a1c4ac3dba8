package tests

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

// terminal opens a new terminal: screen is where a person sits, line where a
// program reads and writes.
func terminal(t *testing.T) (screen, line *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { screen.Close() })
	conn, err := screen.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var number, locked int32
	var failed [2]syscall.Errno
	if err := conn.Control(func(fd uintptr) {
		_, _, failed[0] = syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCGPTN, uintptr(unsafe.Pointer(&number)))
		_, _, failed[1] = syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCSPTLCK, uintptr(unsafe.Pointer(&locked)))
	}); err != nil || failed != [2]syscall.Errno{} {
		t.Fatalf("open a terminal: %v, %v", err, failed)
	}
	line, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { line.Close() })
	return screen, line
}

// A person at a terminal is asked once, and told what has come of the answer.
func TestConfirmedAtATerminal(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	pack := notePackage(t, nil)
	for _, tt := range []struct {
		answer, want string
		exit         int
	}{{"n", "nothing was changed", 2}, {"y", "", 0}} {
		screen, line := terminal(t)
		install := u.command("plugins", "install", pack)
		install.Stdin, install.Stderr = line, line
		if err := install.Start(); err != nil {
			t.Fatal(err)
		}
		line.Close()
		shown := bufio.NewReader(screen)
		question, err := shown.ReadString('?')
		if err != nil || !strings.Contains(question, "may call sess.invoke") {
			t.Fatalf("it asks %q (%v)", question, err)
		}
		fmt.Fprintln(screen, tt.answer)
		rest, _ := io.ReadAll(shown) // ends with an error when nobody has the terminal open any more
		if exit := u.exit(install.Wait()); exit != tt.exit || !strings.Contains(string(rest), tt.want) || strings.Contains(string(rest), "may call") {
			t.Errorf("after %q: status %d, %q; want %d and %q", tt.answer, exit, rest, tt.exit, tt.want)
		}
	}
	if got := u.plugin("note"); got.ID != "note" {
		t.Errorf("after a yes: %+v", got)
	}
}
