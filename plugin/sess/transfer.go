package sess

import (
	"context"

	"sess/plugin"
	"sess/store/snapshot"
	"sess/store/transcript"
)

// captureTries is how often a session that keeps changing is read.
const captureTries = 3

// capture saves the last committed state of a session as build asks; where that
// answers nil nothing is saved and the entry is zero. Chunks that the pool lacks
// are copied as they lie on the disk. The session's meta is filled in but for
// what build decides.
func (s *service) capture(ctx context.Context, agent string, pool *snapshot.Pool, ref plugin.SessionRef,
	build func(*plugin.Session) *snapshot.SaveRequest,
) (entry snapshot.Entry, live *plugin.Session, err error) {
	w, err := pool.Begin(ctx)
	if err != nil {
		return snapshot.Entry{}, nil, err
	}
	defer func() {
		if e := w.Close(); err == nil {
			err = e
		}
	}()
	for try := 1; ; try++ {
		live, err = s.runtime.Session(ctx, ref)
		if err != nil {
			return snapshot.Entry{}, nil, err
		}
		meta := &live.Document.Meta
		meta.Agent, meta.SessionID, meta.ProjectID = agent, live.Ref.ID, live.Ref.Project
		req := build(live)
		if req == nil {
			return snapshot.Entry{}, live, nil
		}
		w.Follow(req.Name, live.Ref.ID)
		err = s.fetch(ctx, w, live.Document.InlineIDs())
		if has(err, plugin.NotFound) { // the session went on meanwhile, and its old chunks are gone
			if try < captureTries {
				continue
			}
			err = named(plugin.Corrupt, err, "session %s: a part of the conversation is missing: %v", live.Ref.ID, err).
				WithHint("load a snapshot to bring it back: %s", command("list", "--include-auto"))
		}
		if err != nil {
			return snapshot.Entry{}, nil, err
		}
		if err := sealTails(&live.Document, w.Seal); err != nil {
			return snapshot.Entry{}, nil, err
		}
		req.Doc = &live.Document
		entry, err = w.Save(ctx, *req)
		return entry, live, err
	}
}

// longTail is more than a list has that was cut as it grew: a session in a file that
// another program wrote has all of its records there.
const longTail = 256 << 10

// sealTails cuts lists that were never cut, so that a snapshot stays a small file.
func sealTails(doc *transcript.Document, seal transcript.Sealer) error {
	for _, l := range doc.Lists {
		size := 0
		for _, r := range l.Tail {
			size += len(r)
		}
		if size <= longTail || len(l.Tail) < 2 { // the newest record is never sealed
			continue
		}
		if err := l.Append(nil, seal); err != nil {
			return err
		}
	}
	return nil
}

// fetch brings chunks of the session store into the writer, and what those that
// are index chunks refer to.
func (s *service) fetch(ctx context.Context, w *snapshot.Writer, ids []transcript.ID) error {
	for len(ids) > 0 {
		missing, err := w.Missing(ids)
		if err != nil || len(missing) == 0 {
			return err
		}
		ids = nil
		for chunk, err := range s.runtime.ReadChunks(ctx, missing) {
			if err != nil {
				return err
			}
			if err := w.Add(chunk.ID, chunk.Frame); err != nil {
				return err
			}
			ids = append(ids, w.Children(chunk.ID)...)
		}
	}
	return nil
}

// send brings a pool's chunks to a stage until that misses none.
func (s *service) send(ctx context.Context, pool *snapshot.Pool, stage *plugin.Stage) error {
	for missing := stage.Missing; len(missing) > 0; {
		var err error
		if missing, err = s.runtime.WriteChunks(ctx, stage.ID, frames(pool, missing)); err != nil {
			return err
		}
	}
	return nil
}

func frames(pool *snapshot.Pool, ids []transcript.ID) plugin.Chunks {
	return func(yield func(plugin.Chunk, error) bool) {
		for _, id := range ids {
			frame, err := pool.Frame(id)
			if !yield(plugin.Chunk{ID: id, Frame: frame}, err) || err != nil {
				return
			}
		}
	}
}

// empty reports whether a conversation has no records at all.
func empty(d *transcript.Document) bool {
	for _, l := range d.Lists {
		if l != nil && l.Records > 0 {
			return false
		}
	}
	return true
}

// progress passes a store's progress on to the caller.
func (r *request) progress(stage, unit string) snapshot.Progress {
	return func(done, total int) {
		r.Progress(plugin.Progress{Stage: stage, Done: int64(done), Total: int64(total), Unit: unit})
	}
}
