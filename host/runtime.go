package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/google/uuid"

	"sess/plugin"
	"sess/store/chunk"
	"sess/store/durable"
	"sess/store/session"
	"sess/store/transcript"
)

// runtime is what one life of one plugin process gets: the host's services,
// limited to what the manifest asks for. When the process ends its stages are
// given up, so nothing it left half done can hold a lock.
type runtime struct {
	host     *Host
	manifest *plugin.Manifest

	mu     sync.Mutex // guards stages, closed
	stages map[string]*session.Stage
	closed bool
}

var _ plugin.Runtime = (*runtime)(nil)

func newRuntime(h *Host, m *plugin.Manifest) *runtime {
	return &runtime{host: h, manifest: m, stages: map[string]*session.Stage{}}
}

// close gives up all stages; later calls answer unavailable.
func (r *runtime) close() {
	r.mu.Lock()
	stages := r.stages
	r.stages, r.closed = nil, true
	r.mu.Unlock()
	for _, st := range stages {
		if err := st.Discard(); err != nil {
			r.host.log.Warn("stage given up with an error", "plugin", r.manifest.ID, "err", err)
		}
	}
}

func (r *runtime) allow(p plugin.Permission) error {
	if r.manifest.Has(p) {
		return nil
	}
	return plugin.Errorf(plugin.Denied, "plugin %s may not use %s", r.manifest.ID, p).
		WithHint("add %q to permissions in its plugin.json", p)
}

func (r *runtime) Session(ctx context.Context, ref plugin.SessionRef) (*plugin.Session, error) {
	if err := r.allow(plugin.PermSessionRead); err != nil {
		return nil, err
	}
	at, err := r.host.ensure(ctx, ref)
	if err != nil {
		return nil, err
	}
	live, err := r.host.sessions.Read(ctx, at)
	if err != nil {
		return nil, r.host.sessionError(err)
	}
	selected, err := r.host.sessions.Selected(at)
	if err != nil {
		return nil, r.host.sessionError(err)
	}
	_, running, err := r.host.sessions.InUse(at)
	if err != nil {
		return nil, r.host.sessionError(err)
	}
	return &plugin.Session{
		Ref:      refOut(at),
		Revision: live.Revision,
		Document: live.Doc,
		Status:   live.Status,
		Running:  running,
		Selected: selected,
	}, nil
}

func (r *runtime) ReadChunks(ctx context.Context, ids []transcript.ID) plugin.Chunks {
	return func(yield func(plugin.Chunk, error) bool) {
		if err := r.allow(plugin.PermSessionRead); err != nil {
			yield(plugin.Chunk{}, err)
			return
		}
		for _, id := range ids {
			if err := ctx.Err(); err != nil {
				yield(plugin.Chunk{}, err)
				return
			}
			frame, err := r.host.sessions.Frame(id)
			if err != nil {
				yield(plugin.Chunk{}, r.host.sessionError(err))
				return
			}
			if !yield(plugin.Chunk{ID: id, Frame: frame}, nil) {
				return
			}
		}
	}
}

func (r *runtime) Stage(ctx context.Context, req plugin.StageRequest) (*plugin.Stage, error) {
	if err := r.allow(plugin.PermSessionWrite); err != nil {
		return nil, err
	}
	st, err := r.host.sessions.Stage(ctx, session.StageRequest{
		Ref:       refIn(req.Session),
		Doc:       &req.Document,
		Normalise: req.Restore,
		Fresh:     req.Fresh,
	})
	if err != nil {
		return nil, r.host.sessionError(err)
	}
	id := uuid.NewString()
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil, errors.Join(plugin.Errorf(plugin.Unavailable, "plugin %s is being stopped", r.manifest.ID), st.Discard())
	}
	r.stages[id] = st
	r.mu.Unlock()
	return &plugin.Stage{
		ID:       id,
		Missing:  st.Missing,
		Revision: st.Revision,
		Differs:  st.Differs,
		Ref:      refOut(st.Ref),
	}, nil
}

// stage returns an open stage; with take it is no longer the runtime's.
func (r *runtime) stage(id string, take bool) (*session.Stage, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	st, ok := r.stages[id]
	if !ok {
		return nil, plugin.Errorf(plugin.NotFound, "stage %s is not open any more", id).WithHint("try again: nothing was changed")
	}
	if take {
		delete(r.stages, id)
	}
	return st, nil
}

func (r *runtime) WriteChunks(ctx context.Context, id string, chunks plugin.Chunks) ([]transcript.ID, error) {
	st, err := r.stage(id, false)
	if err != nil {
		return nil, err
	}
	for c, err := range chunks {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		if err := st.Write(c.ID, c.Frame); err != nil {
			return nil, r.host.sessionError(err)
		}
	}
	return st.StillMissing(), nil
}

func (r *runtime) Commit(ctx context.Context, req plugin.CommitRequest) (int64, error) {
	st, err := r.stage(req.Stage, true)
	if err != nil {
		return 0, err
	}
	revision, err := st.Commit(ctx, req.Revision, req.Op, req.Note)
	if err := errors.Join(err, st.Discard()); err != nil {
		return 0, r.host.sessionError(err)
	}
	// What was shown instead of the session no longer is: the session is new.
	if err := r.host.sessions.Select(ctx, st.Ref, ""); err != nil {
		r.host.log.Warn("selection not cleared", "session_id", st.Ref.ID, "err", err)
	}
	r.host.upkeep()
	return revision, nil
}

func (r *runtime) Unstage(_ context.Context, id string) error {
	st, err := r.stage(id, true)
	if err != nil {
		return nil // it is gone, as asked
	}
	return st.Discard()
}

func (r *runtime) OpState(ctx context.Context, ref plugin.SessionRef, op string) (plugin.OpState, error) {
	if err := r.allow(plugin.PermSessionRead); err != nil {
		return plugin.OpUnknown, err
	}
	state, err := r.host.sessions.OpState(ctx, refIn(ref), op)
	if err != nil {
		return plugin.OpUnknown, r.host.sessionError(err)
	}
	return plugin.OpState(state), nil
}

func (r *runtime) NewSession(ctx context.Context, req plugin.NewSessionRequest) (plugin.SessionRef, error) {
	if err := r.allow(plugin.PermSessionNew); err != nil {
		return plugin.SessionRef{}, err
	}
	ref := session.Ref{Project: projectOr(req.Project), ID: req.ID}
	if ref.ID == "" {
		ref.ID = session.NewID(r.host.now())
	}
	var err error
	if req.Stage == "" {
		ref, err = r.host.sessions.NewSession(ctx, ref, req.Title, "", req.Op)
	} else {
		var st *session.Stage
		if st, err = r.stage(req.Stage, true); err != nil {
			return plugin.SessionRef{}, err
		}
		ref, err = st.CommitNew(ctx, ref, req.Title, req.Op)
		err = errors.Join(err, st.Discard())
	}
	if err != nil {
		return plugin.SessionRef{}, r.host.sessionError(err)
	}
	r.host.moved(ctx, ref)
	r.host.upkeep()
	return refOut(ref), nil
}

func (r *runtime) Select(ctx context.Context, ref plugin.SessionRef, snapshot string) error {
	if err := r.allow(plugin.PermSessionWrite); err != nil {
		return err
	}
	return r.host.sessionError(r.host.sessions.Select(ctx, refIn(ref), snapshot))
}

func (r *runtime) Call(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	if err := r.allow(plugin.PermRPC(method)); err != nil {
		return nil, err
	}
	return r.host.Call(ctx, plugin.PluginCaller(r.manifest.ID), method, params)
}

func refIn(ref plugin.SessionRef) session.Ref {
	return session.Ref{Project: projectOr(ref.Project), ID: ref.ID}
}

func refOut(ref session.Ref) plugin.SessionRef {
	return plugin.SessionRef{Project: ref.Project, ID: ref.ID}
}

// sessionError turns an error of the session store into the one type that
// crosses to plugins and surfaces. It is the only place that does.
func (h *Host) sessionError(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*plugin.Error](err); ok {
		return err
	}
	e := plugin.AsError(err)
	code := func(c plugin.Code, hint string, args ...any) error {
		n := *e
		n.Code = c
		if hint != "" {
			n.Hint = fmt.Sprintf(hint, args...)
		}
		return &n
	}
	if v, ok := errors.AsType[*session.IDError](err); ok {
		e.Message = fmt.Sprintf("%q: %s", v.Text, v.Reason)
		switch {
		case v.Session: // one that is there is looked for
			return code(plugin.InvalidName, "sess sessions list shows all sessions")
		case v.Suggestion != "":
			return code(plugin.InvalidName, "try %s", v.Suggestion)
		}
		return code(plugin.InvalidName, "an id has letters, digits, hyphens and underscores, at most 64")
	}
	if _, ok := errors.AsType[*session.NotFoundError](err); ok {
		return code(plugin.NotFound, "sess sessions list shows all sessions")
	}
	if _, ok := errors.AsType[*session.ConflictError](err); ok {
		return code(plugin.Conflict, "look at it again with sess sessions show, then repeat the command")
	}
	if errors.Is(err, durable.ErrLocked) {
		return code(plugin.Busy, "wait until its turn has ended, or stop that process, then repeat the command")
	}
	if _, ok := errors.AsType[*session.NewerError](err); ok {
		return code(plugin.NewerFormat, "use the newer version of this program that wrote it")
	}
	if _, ok := errors.AsType[*session.DamagedError](err); ok {
		return code(plugin.Corrupt, "load a snapshot to bring the conversation back: sess list --include-auto")
	}
	if _, ok := errors.AsType[*chunk.DamagedError](err); ok {
		return code(plugin.Corrupt, "sess verify shows which snapshots are whole")
	}
	if errors.Is(err, chunk.ErrMissing) {
		return code(plugin.NotFound, "repeat the command")
	}
	return e
}
