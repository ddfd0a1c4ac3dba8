package sess

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// shortSize is a size for a table: 512, 14.2K, 3.0M. A K is 1024 bytes.
func shortSize(n int64) string {
	if n < 1024 {
		return strconv.FormatInt(n, 10)
	}
	v, unit := float64(n)/1024, 0
	const units = "KMGTPE"
	for v >= 1023.95 && unit < len(units)-1 {
		v /= 1024
		unit++
	}
	return strconv.FormatFloat(v, 'f', 1, 64) + units[unit:unit+1]
}

// longSize is a size in a sentence: 512 bytes, 14.2 KB.
func longSize(n int64) string {
	if n < 1024 {
		return count(int(n), "byte")
	}
	s := shortSize(n)
	return s[:len(s)-1] + " " + s[len(s)-1:] + "B"
}

// count is a number with its noun: 1 message, 2 messages, 3 entries.
func count(n int, noun string) string {
	if n != 1 {
		if strings.HasSuffix(noun, "y") {
			noun = noun[:len(noun)-1] + "ie"
		}
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}

// clockSkew is how far ahead a time may be and still be called "now": clocks of
// two processes or machines never agree exactly.
const clockSkew = time.Minute

// ago is how long ago t was, in one unit; a date where that says more.
func ago(t, now time.Time) string {
	d := now.Sub(t)
	switch {
	case t.IsZero():
		return "-"
	case d < -clockSkew:
		return "in the future (" + t.UTC().Format(time.DateOnly) + ")"
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", d/time.Hour)
	case d < 60*24*time.Hour:
		return fmt.Sprintf("%dd ago", d/(24*time.Hour))
	}
	return t.UTC().Format(time.DateOnly)
}

// table lays out rows in columns under a header and a rule; the last column is
// not padded.
func table(header []string, rows [][]string) string {
	width := make([]int, len(header))
	for _, row := range append([][]string{header}, rows...) {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	line := func(row []string) {
		for i, cell := range row {
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		b.WriteByte('\n')
	}
	line(header)
	total := 2 * (len(width) - 1)
	for _, w := range width {
		total += w
	}
	b.WriteString(strings.Repeat("-", total) + "\n")
	for _, row := range rows {
		line(row)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// clip shortens s to at most n characters, the ellipsis included.
func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	runes := []rune(s)
	return string(runes[:n-1]) + "…"
}

// oneLine makes text fit one line of a table or sentence.
func oneLine(s string, n int) string { return clip(strings.Join(strings.Fields(s), " "), n) }

// quoted is a word as it must be typed to reach the program as it is.
func quoted(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./:=@%+,~", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 && word[0] != '~' {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// command is a command line that people can paste.
func command(words ...string) string {
	for i, w := range words {
		words[i] = quoted(w)
	}
	return "sess " + strings.Join(words, " ")
}
