package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"strings"

	"sess/store/durable"
)

// LoadAll yields every session of every project as [Store.View] has it, newest
// first (by updatedAt, then by id, then by project), one at a time: it keeps no
// more than one in memory. One that cannot be read is an error of its own, which
// names it, and the others follow. It takes no lock and changes nothing. When ctx
// ends or the folders cannot be read, that error is the last.
func (s *Store) LoadAll(ctx context.Context) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		order, err := s.byUpdate(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, ref := range order {
			view, err := s.View(ctx, ref)
			if errors.Is(err, ErrNotFound) {
				continue // deleted since
			}
			if ctx.Err() != nil {
				yield(nil, context.Cause(ctx))
				return
			}
			if !yield(view, err) {
				return
			}
		}
	}
}

// byUpdate are the sessions that have a file, newest first; those that cannot be
// read come last.
func (s *Store) byUpdate(ctx context.Context) ([]Ref, error) {
	refs, err := s.refs(ctx)
	if err != nil {
		return nil, err
	}
	type dated struct {
		ref Ref
		at  int64
	}
	list := make([]dated, 0, len(refs))
	var buf []byte
	for _, ref := range refs {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		d := dated{ref: ref}
		if buf, err = durable.AppendFile(buf[:0], s.fs, ref.file(), maxHeld); err == nil {
			d.at = updatedAt(buf)
		} else if l, err := s.Outline(ctx, ref); err == nil {
			d.at = l.UpdatedAt
		}
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b dated) int {
		return cmp.Or(cmp.Compare(b.at, a.at), strings.Compare(a.ref.ID, b.ref.ID), strings.Compare(a.ref.Project, b.ref.Project))
	})
	order := make([]Ref, len(list))
	for i, d := range list {
		order[i] = d.ref
	}
	return order, nil
}

// updatedAt is the time that a session's file says it was written at, or 0.
func updatedAt(file []byte) int64 {
	list, err := members(file)
	if err != nil {
		return 0
	}
	for _, m := range list {
		if m.key == keyUpdatedAt {
			return millis(m.value)
		}
	}
	return 0
}
