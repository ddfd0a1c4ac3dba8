package lineedit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/cmd/sess/lineedit"
)

const (
	up, down, right, left = "\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D"
	home, end, del        = "\x1b[H", "\x1b[F", "\x1b[3~"
	paste, pasted         = "\x1b[200~", "\x1b[201~"
	enter, newline        = "\r", "\x1b\r"
)

// typing gives a text in pieces of a few bytes, as a person or a slow line does.
type typing struct {
	text string
	most int
	done func() // is called when all was typed; it may be nil
}

func (k *typing) Read(p []byte) (int, error) {
	if k.text == "" {
		if k.done != nil {
			k.done()
		}
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), k.most)], k.text)
	k.text = k.text[n:]
	return n, nil
}

// steps gives a text when it is told to. Before, it says that it is waited for:
// then all that was typed is on the screen.
type steps struct {
	waited chan struct{}
	text   chan string
}

func (k steps) Read(p []byte) (int, error) {
	k.waited <- struct{}{}
	text, ok := <-k.text
	if !ok {
		return 0, io.EOF
	}
	return copy(p, text), nil
}

// S1-19: a person writes the commands and messages of a chat.
func TestReadLine(t *testing.T) {
	t.Parallel()
	history := []string{"first", "second one", "third\nof two lines", "/sess save v1"}
	long := strings.Repeat("longer than the screen ", 500)
	for _, tt := range []struct {
		rule, keys string
		want       []string // one for each line asked for
	}{
		{"lines", "a" + enter + "b c" + enter, []string{"a", "b c", "EOF"}},
		{"Ctrl-J ends a line as well", "a\n", []string{"a", "EOF"}},
		{"the cursor moves", "helo" + left + "l" + enter, []string{"hello"}},
		{"home and end", "b" + home + "a" + end + "c" + enter, []string{"abc"}},
		{"the older forms of home and end", "b\x1b[1~a\x1b[4~c\x1b[7~0\x1bOF1" + enter, []string{"0abc1"}},
		{"as in a shell", "b\x01a\x05c\x02\x02-\x06+" + enter, []string{"a-b+c"}},
		{"backspace and delete", "abcd\x7f" + home + del + "\x04" + enter, []string{"c"}},
		{"nothing is before the start nor behind the end", left + "\x7f" + right + del + "a" + enter, []string{"a"}},
		{"by words", "one two-three four\x1bb\x1bb\x1bbX\x1bfY" + enter, []string{"one XtwoY-three four"}},
		{"by words with Ctrl and the arrows", "one two\x1b[1;5DX\x1b[1;3D\x1b[1;5CY" + enter, []string{"one XtwoY"}},
		{"a word is cut out and put back", "one two\x17three \x19" + enter, []string{"one three two"}},
		{"Ctrl-W cuts back to a blank", "load good-plan\x17x" + enter, []string{"load x"}},
		{"Alt with backspace cuts a word", "load good-plan\x1b\x7fx" + enter, []string{"load good-x"}},
		{"Alt-D cuts the next word", "one two" + home + "\x1bd" + enter, []string{" two"}},
		{"to the start and to the end", "one two\x02\x02\x02\x15x\x0b\x19" + enter, []string{"xtwo"}},
		{"two characters are swapped", "teh\x14" + enter, []string{"the"}},
		{"swapping needs two", "t\x14" + enter, []string{"t"}},
		{"a character is what a person takes for one", "e\u0301👩‍👩‍👧🇩🇪" + left + "\x7fx" + enter, []string{"e\u0301x🇩🇪"}},
		{"what is cut in two by the line is put together", "日本" + enter, []string{"日本"}},
		{"what is no text is marked", "a\xffb" + enter, []string{"a\uFFFDb"}},
		{"unknown keys do nothing", "a\x1b[15~\x1b[24;5~\x1bq\x1b\x1bOPb\x00" + enter, []string{"ab"}},
		{"a line end in the line", "a" + newline + "b" + enter, []string{"a\nb"}},

		{"a paste is one message, sent when the person says so", paste + "a\rb\nc\r\nd" + pasted + " e" + enter, []string{"a\nb\nc\nd e"}},
		{"a paste into a line", "<>" + left + paste + "a\rb" + pasted + enter, []string{"<a\nb>"}},
		{"a pasted key is text", paste + "a\x03\x04\tb\x1b[A" + pasted + enter, []string{"a\x03\x04\tb\x1b[A"}},
		{"a long paste is whole", paste + long + pasted + enter, []string{long}},
		{"Ctrl-C drops what was pasted", paste + "a\rb" + pasted + "\x03", []string{"interrupted"}},
		{"up and down move in a text of several lines", paste + "abc\rde\rfgh" + pasted + up + "1" + up + "2" + down + "3" + enter, []string{"abc2\nde13\nfgh"}},

		{"what was written comes back", up + enter, []string{"/sess save v1"}},
		{"further back, and the line itself again", "mine" + up + up + up + up + up + down + down + down + down + "!" + enter, []string{"mine!"}},
		{"of several lines, the cursor at the end", up + up + "!" + enter, []string{"third\nof two lines!"}},
		{"Ctrl-P and Ctrl-N pass its lines by", "\x10\x10\x10\x0e" + enter, []string{"third\nof two lines"}},
		{"a search", "\x12on\x12" + enter, []string{"second one"}},
		{"a search finds the newest", "\x12s" + enter, []string{"/sess save v1"}},
		{"a search goes on", "\x12s\x12\x12" + enter, []string{"second one"}},
		{"a search that finds nothing keeps what it had", "\x12on\x12zzz" + enter, []string{"second one"}},
		{"a search that is corrected", "\x12firz\x7fs" + enter, []string{"first"}},
		{"a search that is given up", "mine\x12sec\x07!" + enter, []string{"mine!"}},
		{"Ctrl-C ends a search only", "mine\x12sec\x03!" + enter, []string{"mine!"}},
		{"what was found can be changed", "\x12first" + end + "!" + enter, []string{"first!"}},

		{"Ctrl-D leaves", "\x04", []string{"EOF"}},
		{"Ctrl-C", "half\x03whole" + enter, []string{"interrupted", "whole"}},
		{"a terminal that goes away sends nothing", "half", []string{"EOF"}},
	} {
		for _, most := range []int{1, 4096} {
			t.Run(fmt.Sprintf("%s, %d bytes at a time", tt.rule, most), func(t *testing.T) {
				t.Parallel()
				raw := 0
				e := lineedit.New(lineedit.Options{
					Keys: &typing{text: tt.keys, most: most}, Screen: io.Discard,
					Raw:  func() (func() error, error) { raw++; return func() error { raw--; return nil }, nil },
					Size: func() (int, int) { return 80, 24 },
				})
				var got []string
				for range tt.want {
					text, err := e.ReadLine(t.Context(), lineedit.Line{Prompt: "> ", History: history})
					switch {
					case errors.Is(err, io.EOF):
						text = "EOF"
					case errors.Is(err, lineedit.ErrInterrupted):
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
			})
		}
	}
}

func TestReadLineShows(t *testing.T) {
	t.Parallel()
	names := func(before string) lineedit.Completion {
		at := strings.LastIndexByte(before, ' ') + 1
		var all []lineedit.Candidate
		for _, v := range []string{"good-plan", "good-idea", "bold", "--note=", "日本"} {
			if strings.HasPrefix(v, before[at:]) {
				all = append(all, lineedit.Candidate{Value: v, Help: "about " + v})
			}
		}
		return lineedit.Completion{From: at, Candidates: all}
	}
	var many []string
	for i := range 9 {
		many = append(many, fmt.Sprintf("line %d", i))
	}
	for _, tt := range []struct {
		rule, keys string
		want       string // the screen of 12 columns and 6 rows; | is the cursor
	}{
		{"an empty line", "", "> |"},
		{"a line", "hello", "> hello|"},
		{"inside", "hello" + left + left, "> hel|lo"},
		{"a line that fills the row", "0123456789", "> 0123456789\n|"},
		{"a line that goes on", "0123456789ab", "> 0123456789\nab|"},
		{"back over the end of a row", "0123456789ab" + left + left + left, "> 012345678|9\nab"},
		{"what became shorter", "0123456789ab\x15x", "> x|"},
		{"wide characters", "日本" + left, "> 日|本"},
		{"a wide character that does not fit", "012345678日本", "> 012345678\n日本|"},
		{"before a wide character that does not fit", "012345678日" + left, "> 012345678\n|日"},
		{"what is put together", "e\u0301👩‍👩‍👧x" + left, "> e\u0301👩‍👩‍👧|x"},
		{"several lines", paste + "one\rtwo\r" + pasted, "> one\n… two\n… |"},
		{"several lines, the cursor in the first", paste + "one\rtwo" + pasted + up, "> one|\n… two"},
		{"what could act on the terminal", paste + "a\x1b[2Jb\x7f\u202ec\t" + pasted, "> a^[[2Jb^?\uFFFD\nc    |"},
		{"of a long text the part around the cursor", paste + strings.Join(many, "\r") + pasted, "… line 3\n… line 4\n… line 5\n… line 6\n… line 7\n… line 8|"},
		{"of a long text the start", paste + strings.Join(many, "\r") + pasted + strings.Repeat(up, 8), "> line 0|\n… line 1\n… line 2\n… line 3\n… line 4\n… line 5"},
		{"one candidate", "load b\t", "> load bold \n|"},
		{"one candidate in a line", "b x" + home + right + "\t", "> bold| x"},
		{"one that goes on", "--n\t", "> --note=|"},
		{"what candidates have in common", "g\t", "> good-|"},
		{"candidates", "g\t\t", "> good-\ngood-plan  \ngood-idea  \n> good-|"},
		{"no candidate", "x\t", "> x|"},
		{"a search", "\x12sec", "(search) sec\n: |second"},
		{"a search without a find", "\x12zz", "(not found) \nzz: |"},
		{"a cleared screen", "a" + enter + "b\x0c", "> b|"},
		{"two lines", "a" + enter + "b", "> a\n> b|"},
		{"Ctrl-C", "half\x03", "> half^C\n> |"},
		{"a resumed line", "ab" + left + "\x1a", "> ab^Z\n> a|b"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			t.Parallel()
			screen := newScreen(12, 6)
			var got string
			o := screen.options(&typing{tt.keys, 100, func() { got = screen.String() }}, 12, 6)
			suspended := false
			o.Suspend = func() { suspended = true }
			e := lineedit.New(o)
			for {
				_, err := e.ReadLine(t.Context(), lineedit.Line{Prompt: "> ", History: []string{"second"}, Complete: names})
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil && !errors.Is(err, lineedit.ErrInterrupted) {
					t.Fatal(err)
				}
			}
			if got != tt.want {
				t.Errorf("screen:\n%s\nwant:\n%s", got, tt.want)
			}
			if want := strings.Contains(tt.keys, "\x1a"); suspended != want {
				t.Errorf("suspended: %v", suspended)
			}
		})
	}
}

func TestManyCandidates(t *testing.T) {
	t.Parallel()
	screen := newScreen(40, 40)
	var all []lineedit.Candidate
	for i := range 30 {
		all = append(all, lineedit.Candidate{Value: fmt.Sprintf("v%02d", i), Help: strings.Repeat("long ", 20)})
	}
	var got string
	e := lineedit.New(screen.options(&typing{"\t\t", 10, func() { got = screen.String() }}, 40, 40))
	_, _ = e.ReadLine(t.Context(), lineedit.Line{Complete: func(string) lineedit.Completion { return lineedit.Completion{Candidates: all} }})
	rows := strings.Split(got, "\n")
	if n := len(rows); n != 23 || rows[1] != "v00  "+strings.Repeat("long ", 7)[:34] || rows[21] != "and 10 more; type some more of the word" {
		t.Errorf("%d rows:\n%s", n, got)
	}
}

func TestReadLineIsGivenUp(t *testing.T) {
	t.Parallel()
	keys, keyboard := io.Pipe()
	defer keyboard.Close()
	screen := newScreen(40, 6)
	e := lineedit.New(screen.options(keys, 40, 6))
	ctx, cancel := context.WithCancelCause(t.Context())
	withdrawn := errors.New("withdrawn")
	ended := make(chan error, 1)
	go func() {
		_, err := e.ReadLine(ctx, lineedit.Line{Prompt: "allow it? "})
		ended <- err
	}()
	io.WriteString(keyboard, "y") // returns once it was read
	cancel(withdrawn)
	if err := <-ended; !errors.Is(err, withdrawn) {
		t.Errorf("ReadLine = %v, want the cause", err)
	}
	go func() {
		_, err := e.ReadLine(t.Context(), lineedit.Line{Prompt: "> "})
		ended <- err
	}()
	io.WriteString(keyboard, "\r")
	if err := <-ended; err != nil {
		t.Errorf("the next line: %v", err)
	}
}

// What a person writes while a model answers is no answer to what it then asks.
func TestQuestionIsNotAnsweredAhead(t *testing.T) {
	t.Parallel()
	keys := steps{make(chan struct{}), make(chan string)}
	o := newScreen(40, 6).options(keys, 40, 6)
	waiting := "lo\r"
	o.Waiting = func() []byte { w := waiting; waiting = ""; return []byte(w) }
	e := lineedit.New(o)
	go func() {
		for _, text := range []string{"one\rhel", "y\rx", "\r"} {
			<-keys.waited
			keys.text <- text
		}
	}()
	for _, tt := range []struct {
		fresh bool
		want  string
	}{{false, "one"}, {true, "y"}, {false, "hello"}, {false, "x"}} {
		if got, err := e.ReadLine(t.Context(), lineedit.Line{Fresh: tt.fresh}); got != tt.want || err != nil {
			t.Errorf("ReadLine = %q, %v, want %q", got, err, tt.want)
		}
	}
}

// A terminal that becomes narrower breaks what is on it; the line is drawn anew
// in its place.
func TestResize(t *testing.T) {
	t.Parallel()
	screen := newScreen(40, 6)
	resized := make(chan struct{})
	keys := steps{make(chan struct{}), make(chan string)}
	width := 20
	o := screen.options(keys, 0, 0)
	o.Resized, o.Size = resized, func() (int, int) { return width, 6 }
	e := lineedit.New(o)
	ended := make(chan error, 1)
	go func() {
		_, err := e.ReadLine(t.Context(), lineedit.Line{Prompt: "> "})
		ended <- err
	}()
	<-keys.waited
	keys.text <- "0123456789abcdef" + left
	<-keys.waited
	screen.reflow(10, 6)
	width = 10
	resized <- struct{}{}
	keys.text <- "-"
	<-keys.waited
	close(keys.text)
	<-ended
	if got, want := screen.String(), "> 01234567\n89abcde-f\n|"; got != want {
		t.Errorf("screen:\n%s\nwant:\n%s", got, want)
	}
}

func TestRawFails(t *testing.T) {
	t.Parallel()
	o := newScreen(10, 3).options(&typing{text: "a\r", most: 9}, 10, 3)
	broken := errors.New("no terminal")
	o.Raw = func() (func() error, error) { return nil, broken }
	if _, err := lineedit.New(o).ReadLine(t.Context(), lineedit.Line{}); !errors.Is(err, broken) {
		t.Errorf("ReadLine = %v", err)
	}
}
