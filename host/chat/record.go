package chat

import (
	"bytes"
	"encoding/json"
	"fmt"

	"sess/store/transcript"
)

// record is the stored form of a value. Only values that this package makes are
// given to it, so one that has no JSON is a bug.
func record(v any) transcript.Record {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // it is no web page, and < is shorter
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("chat: a %T has no JSON: %v", v, err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// cut shortens a text to n characters.
func cut(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
