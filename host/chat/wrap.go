package chat

import (
	"fmt"
	"strings"

	"github.com/rivo/uniseg"
)

// wrapper breaks lines between words, in a text of which the rest is not known
// yet. A word that turns out to be too long for its line is taken back and
// written on the next one. What is laid out already stays as it is: code between
// fences, tables, and words that no line could hold. The zero value is at the
// start of a line.
type wrapper struct {
	column int
	word   strings.Builder // written since the last blank
	wide   int             // columns of word
	head   string          // the first characters of the line, without blanks
	fenced bool
}

const fence = "```"

// add is the next piece of the text as it is to be written to a terminal with so
// many columns; 0 breaks nothing.
func (w *wrapper) add(text string, columns int) string {
	if columns <= 1 {
		return text
	}
	// Behind the last column the cursor's place is not certain.
	most := columns - 1
	var out strings.Builder
	for state := -1; text != ""; {
		var c string
		var wide int
		c, text, wide, state = uniseg.FirstGraphemeClusterInString(text, state)
		switch {
		case c == "\n":
			if w.head == fence {
				w.fenced = !w.fenced
			}
			w.line()
			w.head = ""
			out.WriteString(c)
			continue
		case c == "\t":
			wide = 8 - w.column%8
		}
		if len(w.head) < len(fence) && (w.head != "" || c != " ") {
			w.head += c
		}
		laidOut := w.fenced || w.head == fence || strings.HasPrefix(w.head, "|")
		switch {
		case w.column+wide <= most || laidOut:
		case c == " ":
			w.line()
			out.WriteByte('\n')
			continue
		case w.wide < w.column && w.wide+wide <= most:
			if w.wide > 0 {
				fmt.Fprintf(&out, "\x1b[%dD\x1b[K", w.wide)
			}
			word, width := w.word.String(), w.wide
			w.line()
			out.WriteString("\n" + word)
			w.word.WriteString(word)
			w.wide, w.column = width, width
		}
		out.WriteString(c)
		if w.column += wide; w.column > columns { // the terminal has broken it
			w.column = wide
		}
		if c == " " || c == "\t" {
			w.word.Reset()
			w.wide = 0
			continue
		}
		w.word.WriteString(c)
		w.wide += wide
	}
	return out.String()
}

// line begins a line.
func (w *wrapper) line() {
	w.column, w.wide = 0, 0
	w.word.Reset()
}
