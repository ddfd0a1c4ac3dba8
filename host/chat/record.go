package chat

import (
	"fmt"

	"sess/store/transcript"
)

// record is the stored form of a value. Only values that this package makes are
// given to it, so one that has no JSON is a bug.
func record(v any) transcript.Record {
	r, err := transcript.EncodeJSON(v)
	if err != nil {
		panic(fmt.Sprintf("chat: a %T has no JSON: %v", v, err))
	}
	return r
}

// cut shortens a text to n characters.
func cut(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
