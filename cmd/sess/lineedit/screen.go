package lineedit

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// continued stands before each further line of a text of several lines.
const continued = "… "

// cell is what one character of a text looks like.
type cell struct {
	shown string
	width int // in columns
	size  int // bytes of the text that it stands for
}

// firstCell is what the first character of text looks like. A character is what
// a person takes for one, whatever it is made of. One that could act on the
// terminal is shown as a sign.
func firstCell(text string) cell {
	r, size := utf8.DecodeRuneInString(text)
	switch {
	case r == '\t':
		return cell{"    ", 4, size}
	case r < 0x20 || r == 0x7f:
		return cell{"^" + string(r^0x40), 2, size}
	case unicode.IsControl(r), '\u2028' <= r && r <= '\u202e', '\u2066' <= r && r <= '\u2069':
		return cell{string(utf8.RuneError), 1, size}
	}
	c, _, width, _ := uniseg.FirstGraphemeClusterInString(text, -1)
	return cell{c, width, len(c)}
}

// layout is a text as it stands on the screen.
type layout struct {
	rows   []string
	widths []int // of the rows
	row    int   // of the cursor
	column int
}

// lay lays a text out behind a prompt. cursor is a place in it, in bytes.
func lay(prompt, text string, cursor, width int) layout {
	var l layout
	var row strings.Builder
	column := 0
	next := func() {
		l.rows, l.widths = append(l.rows, row.String()), append(l.widths, column)
		row.Reset()
		column = 0
	}
	put := func(c cell) {
		if column+c.width > width && column > 0 {
			next()
		}
		row.WriteString(c.shown)
		column += c.width
	}
	lead := func(s string) {
		for s != "" {
			c := firstCell(s)
			put(c)
			s = s[c.size:]
		}
	}
	lead(prompt)
	for at, found := 0, false; ; {
		var c cell
		if at < len(text) && text[at] != '\n' {
			c = firstCell(text[at:])
		}
		if column > 0 && column+max(c.width, 1) > width { // the cursor cannot stand behind the last column
			next()
		}
		if !found && at >= cursor {
			found, l.row, l.column = true, len(l.rows), column
		}
		if at >= len(text) {
			break
		}
		if text[at] == '\n' {
			next()
			lead(continued)
			at++
			continue
		}
		put(c)
		at += c.size
	}
	next()
	return l
}

// screen is the part of a terminal that a line takes up, as it was drawn last.
type screen struct {
	w      io.Writer
	widths []int // of the rows that are drawn
	row    int   // of the cursor among them
	column int
}

// draw replaces what was drawn. Of a text with more rows than the terminal has,
// those around the cursor are shown.
func (s *screen) draw(l layout, height int) {
	if n := len(l.rows); height > 0 && n > height {
		first := min(max(0, l.row-height/2), n-height)
		l.rows, l.widths, l.row = l.rows[first:first+height], l.widths[first:first+height], l.row-first
	}
	var b strings.Builder
	s.home(&b)
	b.WriteString("\x1b[J" + strings.Join(l.rows, "\r\n"))
	if up := len(l.rows) - 1 - l.row; up > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", up)
	}
	b.WriteByte('\r')
	if l.column > 0 {
		fmt.Fprintf(&b, "\x1b[%dC", l.column)
	}
	s.widths, s.row, s.column = l.widths, l.row, l.column
	_, _ = io.WriteString(s.w, b.String())
}

// home moves the cursor to where the drawing begins.
func (s *screen) home(b *strings.Builder) {
	if s.row > 0 {
		fmt.Fprintf(b, "\x1b[%dA", s.row)
	}
	b.WriteByte('\r')
}

// resized finds the cursor again after the terminal has broken the rows anew,
// which it does with those that have become too long.
func (s *screen) resized(width int) {
	above := 0
	for _, w := range s.widths[:min(s.row, len(s.widths))] {
		above += max(1, (w+width-1)/width)
	}
	s.row = above + s.column/width
	s.column %= width
}

// leave puts the cursor below what was drawn, which stays, with a sign behind it.
func (s *screen) leave(sign string) {
	var b strings.Builder
	last := len(s.widths) - 1
	if down := last - s.row; down > 0 {
		fmt.Fprintf(&b, "\x1b[%dB", down)
	}
	if sign != "" && s.widths[last] > 0 {
		fmt.Fprintf(&b, "\r\x1b[%dC", s.widths[last])
	}
	b.WriteString(sign + "\r\n")
	s.forget()
	_, _ = io.WriteString(s.w, b.String())
}

// forget makes the next drawing begin where the cursor is.
func (s *screen) forget() { s.widths, s.row, s.column = nil, 0, 0 }
