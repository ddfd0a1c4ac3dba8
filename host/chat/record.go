package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"math"

	"sess/store/session"
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

// decode iterates over the records of a list, from the given one on, that have
// the shape of T, whether they are stored yet or not. Others, which a provider or another program may keep there,
// are left out.
func decode[T any](live *session.Live, name string, from int) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for r, err := range live.Doc.List(name).All(live.Load, from, math.MaxInt) {
			var v T
			if err != nil {
				yield(v, err)
				return
			}
			if json.Unmarshal(r, &v) == nil && !yield(v, nil) {
				return
			}
		}
	}
}

// cut shortens a text to n characters.
func cut(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
