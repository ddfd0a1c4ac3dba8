package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

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
	return shownOf(ctx, s, ref, func(l *Live, running bool) (json.RawMessage, error) { return l.view(ctx, running, math.MaxInt64) })
}

// shownOf reads a session and shows something of it, anew where the session was
// replaced meanwhile.
func shownOf[T any](ctx context.Context, s *Store, ref Ref, show func(l *Live, running bool) (T, error)) (T, error) {
	var none T
	for last := int64(-1); ; {
		l, running, err := s.readRunning(ctx, ref)
		if err != nil {
			return none, err
		}
		shown, err := show(l, running)
		// A chunk can go while it is read if the session was replaced meanwhile.
		if errors.Is(err, chunk.ErrMissing) && l.Revision != last {
			last = l.Revision
			continue
		}
		if err != nil {
			return none, fmt.Errorf("session %s: %w", ref, err)
		}
		return shown, nil
	}
}

// LargestView is how many plain bytes of messages and of activities
// [Store.Newest] shows.
const LargestView = 13 << 18

// Newest is [Store.View] for who does not want everything: of more messages or
// activities than LargestView it has the newest, and the key omitted counts those
// that are left out, as {"messages":90,"activities":7}.
func (s *Store) Newest(ctx context.Context, ref Ref) (json.RawMessage, error) {
	return shownOf(ctx, s, ref, func(l *Live, running bool) (json.RawMessage, error) { return l.view(ctx, running, LargestView) })
}

// view shows at most so many bytes of messages, and of activities.
func (l *Live) view(ctx context.Context, running bool, most int64) (json.RawMessage, error) {
	if !running {
		if err := l.mend(ctx); err != nil {
			return nil, err
		}
	}
	messages, before, err := l.records(ctx, transcript.ListMessages, most, shownMessage)
	if err != nil {
		return nil, err
	}
	activities, beforeThem, err := l.records(ctx, transcript.ListActivities, most, shownActivity)
	if err != nil {
		return nil, err
	}
	dst := append(make([]byte, 0, len(messages)+len(activities)+len(l.Doc.Header)+4<<10), '{')
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
	if before+beforeThem > 0 {
		add("omitted", encode(map[string]int{keyMessages: before, keyActivities: beforeThem}))
	}
	return append(dst, '}'), nil
}

// records is a list as an array of what is shown of its records; nil is nothing.
// Of more than most bytes it is the newest, and omitted counts the others.
func (l *Live) records(ctx context.Context, name string, most int64, show func([]byte) ([]byte, string)) (array json.RawMessage, omitted int, err error) {
	list, shown := l.Doc.List(name), showing(show)
	size := l.sealed[name] + tailBytes(list)
	if size > most {
		for ref, err := range list.Refs(l.load) {
			if err != nil {
				return nil, 0, fmt.Errorf("%s: %w", name, err)
			}
			if omitted, size = omitted+ref.Records, size-ref.Bytes; size <= most {
				break
			}
		}
	}
	dst := append(make([]byte, 0, size+2), '[')
	for r, err := range list.All(l.load, omitted, list.Records) {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return nil, 0, fmt.Errorf("%s: %w", name, err)
		}
		if r, _ = shown(r); r == nil {
			continue
		}
		if len(dst) > 1 {
			dst = append(dst, ',')
		}
		dst = append(dst, r...)
	}
	return append(dst, ']'), omitted, nil
}
