package session

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of an activity, in characters.
const (
	maxText    = 16_000 // one text of its content
	maxContent = 32_000 // all texts of its content
	maxRaw     = 8_000  // the JSON of its rawInput or rawOutput
)

// ellipsis is what stands for the rest of a text that was cut.
const ellipsis = "\n…"

// BoundActivity returns an activity as a session's file may have it: a text in its
// content has at most 16,000 characters and all of them 32,000, then a line with
// an ellipsis follows; a rawInput or rawOutput of more than 8,000 is left out.
// What a turn cuts here is whole in its event log and in history. A record that
// is within the bounds, or no object, is returned as it is.
func BoundActivity(record []byte) []byte {
	if len(record) <= maxRaw { // bytes, so it has even fewer characters
		return record
	}
	list, err := members(record)
	if err != nil {
		return record
	}
	changed := false
	list = slices.DeleteFunc(list, func(m member) bool {
		over := (m.key == "rawInput" || m.key == "rawOutput") && utf8.RuneCount(m.value) > maxRaw
		changed = changed || over
		return over
	})
	for i, m := range list {
		if m.key != "content" {
			continue
		}
		left := maxContent
		if bounded, cut := boundTexts(m.value, &left); cut {
			list[i].value, changed = bounded, true
		}
	}
	if !changed {
		return record
	}
	return joinMembers(list)
}

// boundTexts cuts the texts in a value. left is how many characters all further
// ones may have; below 0, one was cut since there were too many, and the elements
// of arrays that follow are left out. What is as short as a kind or a path stays.
func boundTexts(value json.RawMessage, left *int) (json.RawMessage, bool) {
	const short = 100
	changed := false
	switch value[0] {
	case '"':
		s := strings.TrimSuffix(text(value), ellipsis)
		size := utf8.RuneCountInString(s)
		most := max(0, min(maxText, *left))
		switch {
		case size <= max(most, short):
			*left = min(*left, max(0, *left-size)) // below 0 it stays there
			return value, false
		case *left < maxText:
			*left = -1
		default:
			*left -= maxText
		}
		return encode(cutText(s, most) + ellipsis), true
	case '[':
		values, err := elements(value)
		if err != nil {
			return value, false
		}
		kept := make([][]byte, 0, len(values))
		for _, v := range values {
			if *left < 0 {
				changed = true
				break
			}
			bounded, cut := boundTexts(v, left)
			kept, changed = append(kept, bounded), changed || cut
		}
		if changed {
			value = slices.Concat([]byte{'['}, bytes.Join(kept, []byte{','}), []byte{']'})
		}
	case '{':
		list, err := members(value)
		if err != nil {
			return value, false
		}
		for i, m := range list {
			bounded, cut := boundTexts(m.value, left)
			list[i].value, changed = bounded, changed || cut
		}
		if changed {
			value = joinMembers(list)
		}
	}
	return value, changed
}

// cutText shortens a text, which has more, to at most n characters, and never
// between a letter and the marks that belong to it.
func cutText(s string, n int) string {
	runes := []rune(s)
	for n > 0 && joins(runes[n-1], runes[n]) {
		n--
	}
	return string(runes[:n])
}

// joins reports whether two runes are part of one character.
func joins(a, b rune) bool {
	const joiner = '\u200d'
	return a == joiner || b == joiner || unicode.Is(unicode.M, b) || a == '\r' && b == '\n'
}
