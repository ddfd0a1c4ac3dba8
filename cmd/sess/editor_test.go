package main

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/host/chat"
)

func TestEditor(t *testing.T) {
	t.Parallel()
	const paste, pasted, up, left = "\x1b[200~", "\x1b[201~", "\x1b[A", "\x1b[D"
	long := strings.Repeat("x", 10_000)
	for _, tt := range []struct {
		rule, keys string
		want       []string // one for each line asked for
	}{
		{"lines", "a\rb c\r", []string{"a", "b c", "EOF"}},
		{"the cursor moves", "helo" + left + "l\r", []string{"hello", "EOF"}},
		{"what was said comes back", "one\rtwo\r" + up + up + "!\r", []string{"one", "two", "one!", "EOF"}},
		{"nothing is remembered of nothing, nor twice", "one\r\rtwo\rtwo\r" + up + up + "!\r", []string{"one", "", "two", "two", "one!", "EOF"}},
		{"a paste is one message, sent when the person says so", paste + "a\rb\nc" + pasted + " d\r", []string{"a\nb\nc d", "EOF"}},
		{"a paste that ends its last line", paste + "a\rb\r" + pasted + "\r", []string{"a\nb\n", "EOF"}},
		{"Ctrl-D sends what was pasted", paste + "a\r" + pasted + "\x04", []string{"a", "EOF"}},
		{"Ctrl-C drops what was pasted", paste + "a\r" + pasted + "\x03", []string{"interrupted", "EOF"}},
		{"a pasted Ctrl-C is text", paste + "a\x03b" + pasted + "\r", []string{"a\x03b", "EOF"}},
		{"several lines are not remembered", "one\r" + paste + "a\rb" + pasted + "\r" + up + "\r", []string{"one", "a\nb", "one", "EOF"}},
		{"a long paste is whole", paste + long + pasted + "\r", []string{long, "EOF"}},
		{"Ctrl-D leaves", "\x04", []string{"EOF"}},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			t.Parallel()
			var screen bytes.Buffer
			raw := 0
			e := &editor{
				keys: &keys{r: &typing{text: tt.keys}}, screen: &screen,
				raw:  func() (func() error, error) { raw++; return func() error { raw--; return nil }, nil },
				size: func() (int, int, error) { return 80, 24, nil },
			}
			var got []string
			for len(got) < len(tt.want) {
				text, err := e.ReadLine("> ", true)
				switch {
				case errors.Is(err, io.EOF):
					text = "EOF"
				case errors.Is(err, chat.ErrInterrupted):
					text = "interrupted"
				case err != nil:
					t.Fatalf("ReadLine = %v", err)
				}
				if raw != 0 {
					t.Fatalf("after %q the terminal was not given back", text)
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
			if on, off := strings.Count(screen.String(), pasteModeOn), strings.Count(screen.String(), pasteModeOff); on == 0 || on != off {
				t.Errorf("pasting was switched on %d times and off %d times", on, off)
			}
		})
	}
}

func TestEditorForgetsAnswers(t *testing.T) {
	t.Parallel()
	e := &editor{
		keys: &keys{r: &typing{text: "hi\ry\r\x1b[A\r"}}, screen: io.Discard,
		raw:  func() (func() error, error) { return func() error { return nil }, nil },
		size: func() (int, int, error) { return 0, 0, errors.New("unknown") },
	}
	var got []string
	for _, message := range []bool{true, false, true} {
		text, err := e.ReadLine("> ", message)
		if err != nil {
			t.Fatalf("ReadLine = %v", err)
		}
		got = append(got, text)
	}
	if diff := cmp.Diff([]string{"hi", "y", "hi"}, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestEditorGivesTheTerminalBackWhileItAsks(t *testing.T) {
	t.Parallel()
	reading, keyboard := io.Pipe()
	defer keyboard.Close()
	asking, back := make(chan struct{}), make(chan struct{})
	e := &editor{
		keys: &keys{r: reading}, screen: io.Discard,
		raw: func() (func() error, error) {
			close(asking)
			return func() error { close(back); return nil }, nil
		},
		size: func() (int, int, error) { return 80, 24, nil },
	}
	ended := make(chan error, 1)
	go func() {
		_, err := e.ReadLine("> ", true)
		ended <- err
	}()
	<-asking
	if _, err := keyboard.Write([]byte("half a li")); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
	<-back
	keyboard.Close()
	if err := <-ended; !errors.Is(err, io.EOF) {
		t.Errorf("ReadLine = %v, want the end of the keyboard", err)
	}
}

func TestEditorNeedsACursor(t *testing.T) {
	t.Parallel()
	if e := newEditor(nil, nil, "dumb"); e != nil {
		t.Error("a dumb terminal got an editor")
	}
}

// typing gives a text a few keys at a time, as a person does.
type typing struct{ text string }

func (k *typing) Read(p []byte) (int, error) {
	if k.text == "" {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), 100)], k.text)
	if at := strings.IndexAny(k.text[:n], "\x03\x04"); at >= 0 && !strings.Contains(k.text, "\x03b") {
		n = at + 1
	}
	k.text = k.text[n:]
	return n, nil
}
