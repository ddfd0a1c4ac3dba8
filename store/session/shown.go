package session

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"sess/store/transcript"
)

// shownMessage is a message as clients are shown it, nil where they cannot be:
// it has the fields of [transcript.Message], all that are not optional, each of
// its type; and its id. The record itself is returned where it is like that.
func shownMessage(r []byte) (shown []byte, id string) {
	list, err := members(r)
	if err != nil {
		return nil, ""
	}
	fields := make([]member, 0, len(list)+3)
	var has struct{ role, content, status, events, artifacts, uploads, created, updated bool }
	same := true
	for _, m := range list {
		v := m.value
		switch m.key {
		case "id":
			id = text(v)
		case "role":
			role := transcript.Role(text(v))
			has.role = role == transcript.RoleUser || role == transcript.RoleAgent
		case "content":
			has.content = v[0] == '"'
		case "status":
			has.status = true
			if !oneOf(v, transcript.StatusComplete, transcript.StatusStreaming, transcript.StatusError) {
				v = encode(transcript.StatusComplete)
			}
		case "streamId", "responseToMessageId":
			if text(v) == "" {
				v = nil
			}
		case "eventIds":
			has.events, v = true, arrayOf('"', v)
		case "artifactIds":
			has.artifacts, v = true, arrayOf('"', v)
		case "uploads":
			has.uploads, v = true, arrayOf('{', v)
		case "createdAt":
			has.created, v = true, asMillis(v)
		case "updatedAt":
			has.updated, v = true, asMillis(v)
		default:
			v = nil
		}
		if same = same && len(v) == len(m.value); v == nil {
			continue
		}
		same = same && bytes.Equal(v, m.value)
		fields = append(fields, member{key: m.key, rawKey: m.rawKey, value: v})
	}
	if id == "" || !has.role || !has.content {
		return nil, ""
	}
	for _, missing := range []struct {
		key  string
		has  bool
		with string
	}{
		{"status", has.status, `"complete"`},
		{"eventIds", has.events, "[]"},
		{"artifactIds", has.artifacts, "[]"},
		{"uploads", has.uploads, "[]"},
		{"createdAt", has.created, "0"},
		{"updatedAt", has.updated, "0"},
	} {
		if !missing.has {
			same = false
			fields = append(fields, member{key: missing.key, rawKey: encode(missing.key), value: json.RawMessage(missing.with)})
		}
	}
	if same {
		return r, id
	}
	return joinMembers(fields), id
}

// ShownMessages are records of messages as [Store.View] has them, wherever they
// are kept. What cannot be shown is left out.
func ShownMessages[R ~[]byte](records []R) []json.RawMessage {
	var all []json.RawMessage
	for _, r := range records {
		if shown, _ := shownMessage(r); shown != nil {
			all = append(all, shown)
		}
	}
	return all
}

// shownActivity is an activity as clients are shown it, nil where they cannot be,
// and its id, which it need not have: within its bounds, and with a status that
// there is.
func shownActivity(r []byte) (shown []byte, id string) {
	list, err := members(r)
	if err != nil {
		return nil, ""
	}
	for i, m := range list {
		if m.key == "id" {
			id = text(m.value)
		}
		if m.key == "status" && !oneOf(m.value, transcript.StatusPending, transcript.StatusInProgress, transcript.StatusCompleted, transcript.StatusFailed) {
			list[i].value = encode(transcript.StatusFailed)
			r = joinMembers(list)
		}
	}
	return BoundActivity(r), id
}

// showing tells what clients are shown of one record after the other of a list:
// only the first one of an id is, and nil is nothing.
func showing(show func([]byte) ([]byte, string)) func(r []byte) (shown []byte, id string) {
	seen := make(map[string]bool)
	return func(r []byte) ([]byte, string) {
		shown, id := show(r)
		if shown == nil || id != "" && seen[id] {
			return nil, ""
		}
		seen[id] = true
		return shown, id
	}
}

func oneOf(value json.RawMessage, states ...transcript.Status) bool {
	return slices.Contains(states, transcript.Status(text(value)))
}

// arrayOf is the array with those of its elements that begin with first; of
// anything but an array it is an empty one.
func arrayOf(first byte, array json.RawMessage) json.RawMessage {
	values, err := elements(array)
	if err != nil || values == nil {
		return json.RawMessage("[]")
	}
	other := func(v json.RawMessage) bool { return v[0] != first }
	if !slices.ContainsFunc(values, other) {
		return array
	}
	dst := []byte{'['}
	for _, v := range slices.DeleteFunc(values, other) {
		if len(dst) > 1 {
			dst = append(dst, ',')
		}
		dst = append(dst, v...)
	}
	return append(dst, ']')
}

// asMillis is a time as clients are shown it: a number that is not negative.
func asMillis(v json.RawMessage) json.RawMessage {
	if c := v[0]; c < '0' || c > '9' {
		return json.RawMessage("0")
	}
	return v
}

// goodArtifacts are the references among a session's artifacts, without content
// that was put into them.
func goodArtifacts(array json.RawMessage) json.RawMessage {
	values, _ := elements(array) // of anything but an array there are none
	dst := []byte{'['}
	for _, v := range values {
		if v = shownArtifact(v); v == nil {
			continue
		}
		if len(dst) > 1 {
			dst = append(dst, ',')
		}
		dst = append(dst, v...)
	}
	return append(dst, ']')
}

// shownArtifact is an artifact without embedded content, nil where it is no
// reference.
func shownArtifact(v json.RawMessage) json.RawMessage {
	list, err := members(v)
	if err != nil {
		return nil
	}
	found := make(map[string]string)
	for _, m := range list {
		found[m.key] = text(m.value)
	}
	if !slices.Contains([]string{"workspace-file", "external-file", "managed-file"}, found["kind"]) || found["id"] == "" || found["path"] == "" {
		return nil
	}
	kept := slices.DeleteFunc(list, embedded)
	if len(kept) == len(list) {
		return v
	}
	return joinMembers(kept)
}

// embedded reports whether a member of an artifact is content and not a
// reference to it.
func embedded(m member) bool {
	switch strings.ToLower(m.key) {
	case "content", "data", "bytes", "base64", "blob", "text":
		return true
	}
	return false
}

// sameJSON reports whether two values are the same but for the way in which they
// are written.
func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, errX := transcript.Canonical(a)
	y, errY := transcript.Canonical(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
