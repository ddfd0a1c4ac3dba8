package agents

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"sess/store/transcript"
)

// decode reads what of an object has the right shape; all else is zero. It says
// whether all had it.
func decode(object json.RawMessage, v any) bool { return json.Unmarshal(object, v) == nil }

// edit rebuilds a JSON object: change answers each of its values by another one,
// or by nil to leave the member out. What is not changed stays byte for byte.
func edit(object json.RawMessage, change func(key string, value json.RawMessage) json.RawMessage) (json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(object))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("it is no JSON object: %v", err)
	}
	out := append(make([]byte, 0, len(object)+64), '{')
	for dec.More() {
		t, err := dec.Token()
		key, ok := t.(string)
		if err != nil || !ok {
			return nil, fmt.Errorf("a key of an object: %v", err)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, err
		}
		if value = change(key, value); value == nil {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(transcript.AppendText(out, key), ':'), value...)
	}
	return append(out, '}'), nil
}

// text is a string as a JSON value.
func text(s string) json.RawMessage { return transcript.AppendText(nil, s) }

// when reads a time as the agents write them; zero where it is none.
func when(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}
