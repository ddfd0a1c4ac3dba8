package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"sess/store/chunk"
	"sess/store/transcript"
)

// View returns the whole session as clients see it: one JSON object with id,
// projectId, title, cwd, status, messages, activities, activeRun, error,
// artifacts, createdAt, updatedAt (epoch milliseconds) and revision, all records
// included. A turn that nobody runs any more shows as interrupted, as
// [Locked.Read] has it; the file is not touched. Messages without an id, a known
// role or a text, and artifacts that are no references, are left out; each of the
// others has its lists eventIds, artifactIds and uploads. The errors are those of
// Read.
func (s *Store) View(ctx context.Context, ref Ref) (json.RawMessage, error) {
	for last := int64(-1); ; {
		l, running, err := s.readRunning(ctx, ref)
		if err != nil {
			return nil, err
		}
		view, err := l.view(ctx, running)
		// A chunk can go while it is read if the session was replaced meanwhile.
		if errors.Is(err, chunk.ErrMissing) && l.Revision != last {
			last = l.Revision
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("session %s: %w", ref, err)
		}
		return view, nil
	}
}

func (l *Live) view(ctx context.Context, running bool) (json.RawMessage, error) {
	if !running {
		if err := l.mend(ctx); err != nil {
			return nil, err
		}
	}
	messages, err := l.records(ctx, transcript.ListMessages, shownMessage)
	if err != nil {
		return nil, err
	}
	activities, err := l.records(ctx, transcript.ListActivities, shownActivity)
	if err != nil {
		return nil, err
	}
	dst := []byte{'{'}
	add := func(key string, value json.RawMessage) {
		dst = appendMember(dst, encode(key), value)
	}
	add(keyID, encode(l.Ref.ID))
	add(keyProjectID, encode(l.Ref.Project))
	add("title", encode(l.Doc.Meta.Title))
	add("cwd", encode(text(l.Get("cwd"))))
	add(keyStatus, encode(l.Status))
	add(keyMessages, messages)
	add(keyActivities, activities)
	if l.ActiveRun != nil {
		add(keyActiveRun, l.ActiveRun)
	}
	if l.Error != "" {
		add(keyError, encode(l.Error))
	}
	add("artifacts", goodArtifacts(l.Get("artifacts")))
	add(keyCreatedAt, encode(l.CreatedAt))
	add(keyUpdatedAt, encode(l.UpdatedAt))
	add("revision", encode(l.Revision))
	return append(dst, '}'), nil
}

// records is a whole list as an array of what is shown of its records; nil is
// nothing.
func (l *Live) records(ctx context.Context, name string, shown func([]byte) []byte) (json.RawMessage, error) {
	list := l.Doc.List(name)
	dst := []byte{'['}
	for r, err := range list.All(l.load, 0, list.Records) {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if r = shown(r); r == nil {
			continue
		}
		if len(dst) > 1 {
			dst = append(dst, ',')
		}
		dst = append(dst, r...)
	}
	return append(dst, ']'), nil
}

// shownMessage is a message as clients are shown it, nil where they cannot be:
// the record as it is stored, with the lists that every message has.
func shownMessage(r []byte) []byte {
	var m struct {
		ID      string          `json:"id"`
		Role    transcript.Role `json:"role"`
		Content *string         `json:"content"`
	}
	if json.Unmarshal(r, &m) != nil || m.ID == "" || m.Content == nil ||
		m.Role != transcript.RoleUser && m.Role != transcript.RoleAgent {
		return nil
	}
	list, err := members(r)
	if err != nil {
		return nil
	}
	missing := false
	for _, key := range []string{"eventIds", "artifactIds", "uploads"} {
		at := slices.IndexFunc(list, func(m member) bool { return m.key == key })
		switch {
		case at < 0:
			list = append(list, member{key: key, rawKey: encode(key), value: json.RawMessage("[]")})
		case string(list[at].value) == "null":
			list[at].value = json.RawMessage("[]")
		default:
			continue
		}
		missing = true
	}
	if !missing {
		return r
	}
	return joinMembers(list)
}

func shownActivity(r []byte) []byte {
	if !json.Valid(r) {
		return nil
	}
	return r
}

// goodArtifacts are the references among a session's artifacts, without content
// that was put into them.
func goodArtifacts(array json.RawMessage) json.RawMessage {
	values, err := elements(array)
	if err != nil {
		values = nil
	}
	dst := []byte{'['}
	for _, v := range values {
		keys, err := members(v)
		if err != nil {
			continue
		}
		found := make(map[string]string)
		kept := keys[:0:0]
		for _, m := range keys {
			found[m.key] = text(m.value)
			if m.key != "content" && m.key != "data" {
				kept = append(kept, m)
			}
		}
		switch found["kind"] {
		case "workspace-file", "external-file", "managed-file":
		default:
			continue
		}
		if found["id"] == "" || found["path"] == "" {
			continue
		}
		if len(dst) > 1 {
			dst = append(dst, ',')
		}
		dst = append(dst, joinMembers(kept)...)
	}
	return append(dst, ']')
}
