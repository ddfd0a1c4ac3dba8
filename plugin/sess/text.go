package sess

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"sess/plugin"
)

// longSize is a size in a sentence: 512 bytes, 14.2 KB.
func longSize(n int64) string {
	if n < 1024 {
		return count(int(n), "byte")
	}
	s := plugin.Size(n)
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
