package tests

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
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

// modes are how a terminal treats what is typed.
func modes(t *testing.T, line *os.File) (m syscall.Termios) {
	t.Helper()
	conn, err := line.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed syscall.Errno
	if err := conn.Control(func(fd uintptr) {
		_, _, failed = syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TCGETS, uintptr(unsafe.Pointer(&m)))
	}); err != nil || failed != 0 {
		t.Fatalf("modes of a terminal: %v, %v", err, failed)
	}
	return m
}

// S1-19: a chat at a terminal. Ctrl-C ends an answer and keeps what came, Ctrl-D the
// chat, and the terminal is as it was.
func TestChatAtATerminal(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	screen, line := terminal(t)
	before := modes(t, line)
	chat := u.command("chat")
	chat.Env = append(chat.Env, "TERM=xterm")
	chat.Stdin, chat.Stdout, chat.Stderr = line, line, line
	chat.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := chat.Start(); err != nil {
		t.Fatal(err)
	}
	shown := bufio.NewReader(screen)
	until := func(text string) (all string) {
		t.Helper()
		for !strings.Contains(all, text) {
			if err := screen.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
				t.Fatal(err)
			}
			b, err := shown.ReadByte()
			if err != nil {
				t.Fatalf("the chat showed %q, and not %q: %v", all, text, err)
			}
			all += string(b)
		}
		return all
	}
	types := func(keys string) {
		t.Helper()
		if _, err := screen.WriteString(keys); err != nil {
			t.Fatal(err)
		}
	}
	until("> ")
	types("slow 100000 5ms\r")
	until("\r\n1 2 3 ")
	types("typed ahead") // goes with the answer, as Ctrl-C has it
	if got := until(" 9 "); strings.Contains(got, "typed") {
		t.Errorf("what was typed is in the answer: %q", got)
	}
	if m := modes(t, line); m.Lflag&syscall.ECHO != 0 || m.Lflag&syscall.ISIG == 0 {
		t.Errorf("during an answer the terminal has the modes %x", m.Lflag)
	}
	types("\x03")
	until("interrupted; what came until then is kept")
	until("> ")
	types("\x04")
	if exit := u.exit(chat.Wait()); exit != 0 {
		t.Errorf("the chat ended with status %d", exit)
	}
	if after := modes(t, line); after != before {
		t.Errorf("the terminal has the modes %+v, before they were %+v", after, before)
	}
	if got := u.messages(); len(got) != 2 || !strings.HasPrefix(got[1], "1 2 3 ") {
		t.Errorf("messages %q", got)
	}
	if got, err := os.ReadFile(filepath.Join(u.home, "chat.history")); string(got) != "\"slow 100000 5ms\"\n" {
		t.Errorf("history %q, %v", got, err)
	}
}
