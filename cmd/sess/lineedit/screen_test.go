package lineedit_test

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/rivo/uniseg"

	"sess/cmd/sess/lineedit"
)

// screen is a terminal that shows what is written to it, as far as an editor
// needs one. Each place holds a character; "" is the second half of a wide one.
type screen struct {
	width, height int
	rows          [][]string
	row, column   int
}

func newScreen(width, height int) *screen {
	return &screen{width: width, height: height, rows: [][]string{nil}}
}

func (s *screen) options(keys io.Reader, width, height int) lineedit.Options {
	return lineedit.Options{
		Keys: keys, Screen: s, Raw: func() (func() error, error) { return func() error { return nil }, nil },
		Size: func() (int, int) { return width, height },
	}
}

func (s *screen) Write(p []byte) (int, error) {
	for text := string(p); text != ""; {
		if rest, ok := strings.CutPrefix(text, "\x1b["); ok {
			end := strings.IndexFunc(rest, func(r rune) bool { return r >= '@' && r <= '~' })
			n, _ := strconv.Atoi(rest[:end])
			s.control(rest[end], n)
			text = rest[end+1:]
			continue
		}
		c, rest, width, _ := uniseg.FirstGraphemeClusterInString(text, -1)
		text = rest
		switch {
		case c == "\r\n" || c == "\n":
			if s.row++; s.row == len(s.rows) {
				s.rows = append(s.rows, nil)
			}
			if s.column = 0; len(s.rows) > s.height {
				s.rows, s.row = s.rows[1:], s.row-1
			}
		case c == "\r":
			s.column = 0
		case c[0] < ' ' || s.column+width > s.width:
			panic(fmt.Sprintf("%q is written at column %d", c, s.column))
		default:
			row := s.rows[s.row]
			for len(row) < s.column {
				row = append(row, " ")
			}
			row = append(row[:s.column], c)
			for range width - 1 {
				row = append(row, "")
			}
			s.rows[s.row] = row
			s.column += width
		}
	}
	return len(p), nil
}

func (s *screen) control(kind byte, n int) {
	switch kind {
	case 'A':
		s.row = max(0, s.row-n)
	case 'B':
		s.row = min(len(s.rows)-1, s.row+n)
	case 'C':
		s.column = min(s.width-1, s.column+n)
	case 'H':
		s.row, s.column = 0, 0
	case 'J':
		if n == 2 {
			s.rows, s.row = [][]string{nil}, 0
			return
		}
		s.rows = s.rows[:s.row+1]
		s.rows[s.row] = s.rows[s.row][:min(len(s.rows[s.row]), s.column)]
	default:
		panic(fmt.Sprintf("control sequence %c", kind))
	}
}

// reflow gives the screen another width, as terminals do it that break rows which
// are too long now.
func (s *screen) reflow(width, height int) {
	var rows [][]string
	at := 0
	for i, row := range s.rows {
		if i == s.row {
			at = len(rows) + s.column/width
		}
		for len(row) > width {
			rows, row = append(rows, row[:width:width]), row[width:]
		}
		rows = append(rows, row)
	}
	s.rows, s.row, s.column, s.width, s.height = rows, at, s.column%width, width, height
}

// String is what is on the screen, with the cursor.
func (s *screen) String() string {
	var lines []string
	for i, row := range s.rows {
		line := strings.Join(row, "")
		if i == s.row {
			cut := min(s.column, len(row))
			line = strings.Join(row[:cut], "") + strings.Repeat(" ", s.column-cut) + "|" + strings.Join(row[cut:], "")
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func TestScreen(t *testing.T) {
	t.Parallel()
	s := newScreen(4, 2)
	io.WriteString(s, "ab\r\n日\x1b[1A\r\x1b[1C\x1b[J")
	if got := s.String(); got != "a|" {
		t.Errorf("screen %q", got)
	}
}
