package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"sess/store/transcript"
)

// A member is one key of a JSON object with its value, both as the bytes that
// they are in the file.
type member struct {
	key    string
	rawKey []byte
	value  json.RawMessage
}

// members splits a JSON object. A key that stands there twice keeps its first
// place and its last value, as other readers of JSON have it.
func members(object []byte) ([]member, error) {
	if !transcript.ValidJSON(object) {
		return nil, syntaxReason(object)
	}
	var list []member
	at := make(map[string]int)
	i := blanks(object, 0)
	if object[i] != '{' {
		return nil, errors.New("it is not a JSON object")
	}
	for i = blanks(object, i+1); object[i] != '}'; i = blanks(object, i) {
		if object[i] == ',' {
			i = blanks(object, i+1)
		}
		m := member{}
		end := stringEnd(object, i)
		m.rawKey = object[i:end:end]
		if err := json.Unmarshal(m.rawKey, &m.key); err != nil {
			return nil, err
		}
		i = blanks(object, blanks(object, end)+1) // over the colon
		end = valueEnd(object, i)
		m.value = json.RawMessage(object[i:end:end])
		i = end
		if j, ok := at[m.key]; ok {
			list[j].value = m.value
			continue
		}
		at[m.key] = len(list)
		list = append(list, m)
	}
	return list, nil
}

// elements splits an array that is part of valid JSON; null is an empty one.
func elements(array []byte) ([]json.RawMessage, error) {
	if string(array) == "null" {
		return nil, nil
	}
	if len(array) == 0 || array[0] != '[' {
		return nil, errors.New("an array is due")
	}
	var list []json.RawMessage
	for i := blanks(array, 1); array[i] != ']'; i = blanks(array, i) {
		if array[i] == ',' {
			i = blanks(array, i+1)
		}
		end := valueEnd(array, i)
		list = append(list, json.RawMessage(array[i:end:end]))
		i = end
	}
	return list, nil
}

// blanks, stringEnd and valueEnd step through JSON that is known to be valid.
func blanks(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\t' || data[i] == '\r' || data[i] == '\n') {
		i++
	}
	return i
}

func stringEnd(data []byte, i int) int {
	for i++; data[i] != '"'; i++ {
		if data[i] == '\\' {
			i++
		}
	}
	return i + 1
}

func valueEnd(data []byte, i int) int {
	switch data[i] {
	case '"':
		return stringEnd(data, i)
	case '{', '[':
		for depth := 0; ; {
			switch data[i] {
			case '"':
				i = stringEnd(data, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			}
			if i++; depth == 0 {
				return i
			}
		}
	}
	for i < len(data) && bytes.IndexByte([]byte(",]} \t\r\n"), data[i]) < 0 {
		i++
	}
	return i
}

// syntaxReason says what is wrong with data, which is not valid JSON.
func syntaxReason(data []byte) error {
	var v json.RawMessage
	err := json.Unmarshal(data, &v)
	if se, ok := errors.AsType[*json.SyntaxError](err); ok {
		if len(bytes.TrimSpace(data)) == 0 {
			return errors.New("it is empty")
		}
		if se.Offset >= int64(len(data)) {
			return errors.New("it is cut off")
		}
		return fmt.Errorf("byte %d: %w", se.Offset, err)
	}
	return err
}

// oneLine returns the value as a record: without newlines, and in UTF-8.
func oneLine(v json.RawMessage) json.RawMessage {
	if !utf8.Valid(v) {
		v = bytes.ToValidUTF8(v, []byte("\uFFFD"))
	}
	if bytes.IndexByte(v, '\n') < 0 {
		return v
	}
	var b bytes.Buffer
	b.Grow(len(v))
	_ = json.Compact(&b, v) // it is valid
	return b.Bytes()
}

// appendMember appends a member to an object that is open.
func appendMember(dst, rawKey, value []byte) []byte {
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	return append(append(append(dst, rawKey...), ':'), value...)
}

// joinMembers makes an object of members.
func joinMembers(list []member) json.RawMessage {
	dst := []byte{'{'}
	for _, m := range list {
		dst = appendMember(dst, m.rawKey, m.value)
	}
	return append(dst, '}')
}

// setMember returns object with key set to value, or without it if value is
// nil. All other members keep their bytes and places.
func setMember(object json.RawMessage, key string, value json.RawMessage) (json.RawMessage, error) {
	if len(object) == 0 {
		object = json.RawMessage("{}")
	}
	list, err := members(object)
	if err != nil {
		return nil, err
	}
	kept := make([]member, 0, len(list)+1)
	found := false
	for _, m := range list {
		if m.key == key {
			found = true
			if value == nil {
				continue
			}
			m.value = value
		}
		kept = append(kept, m)
	}
	if !found && value != nil {
		kept = append(kept, member{key: key, rawKey: encode(key), value: value})
	}
	return joinMembers(kept), nil
}

// encode is v as JSON without the escapes that only a web page needs. What is
// encoded here cannot fail.
func encode(v any) json.RawMessage {
	raw, err := transcript.EncodeJSON(v)
	if err != nil {
		panic(err)
	}
	return raw
}

// keeping is v as JSON, with those members of old that its type does not know: old
// is what was stored before in its place, and a newer version may have put more
// there. Where old is no such object, nothing is kept of it.
func keeping[T any](old json.RawMessage, v T) json.RawMessage {
	var was T
	now := encode(v)
	stored, err := members(old)
	if err != nil || json.Unmarshal(old, &was) != nil {
		return now
	}
	known, _ := members(encode(was)) // what was just encoded is an object
	list, _ := members(now)
	for _, m := range stored {
		same := func(other member) bool { return strings.EqualFold(other.key, m.key) }
		if !slices.ContainsFunc(known, same) && !slices.ContainsFunc(list, same) {
			list = append(list, m)
		}
	}
	return joinMembers(list)
}

// text is the string that value is, or "".
func text(value json.RawMessage) string {
	var s string
	if len(value) == 0 || json.Unmarshal(value, &s) != nil {
		return ""
	}
	return s
}

// millis is the number that value is, cut to an integer, or 0.
func millis(value json.RawMessage) int64 {
	var n float64
	if json.Unmarshal(value, &n) != nil || n < 0 || n >= 1<<53 {
		return 0
	}
	return int64(n)
}
