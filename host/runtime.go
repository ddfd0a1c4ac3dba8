package host

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/google/uuid"

	"sess/host/chat"
	"sess/plugin"
	"sess/store/session"
	"sess/store/transcript"
)

// runtime is what one life of one plugin process gets: the host's services,
// limited to what the manifest asks for. When the process ends its stages are
// given up, and those made for a call when that ends, so nothing that was left
// half done can hold a lock.
type runtime struct {
	host     *Host
	manifest *plugin.Manifest

	mu     sync.Mutex // guards stages, closed
	stages map[string]*openStage
	closed bool
}

// openStage is a stage of a plugin. Calls about one stage may overlap: a plugin
// can give it up while the host still takes the chunks that were under way.
type openStage struct {
	mu sync.Mutex // held while the stage is used
	*session.Stage
	request string // id of the request that it was made for; may be empty
}

func (st *openStage) write(c plugin.Chunk) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.Write(c.ID, c.Frame)
}

func (st *openStage) discard() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.Discard()
}

var _ plugin.Runtime = (*runtime)(nil)

func newRuntime(h *Host, m *plugin.Manifest) *runtime {
	r := &runtime{host: h, manifest: m, stages: map[string]*openStage{}}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.runtimes[r] = true
	return r
}

// close gives up all stages; later calls answer unavailable.
func (r *runtime) close() {
	r.host.mu.Lock()
	delete(r.host.runtimes, r)
	r.host.mu.Unlock()
	r.mu.Lock()
	stages := r.stages
	r.stages, r.closed = nil, true
	r.mu.Unlock()
	r.discard(maps.Values(stages))
}

// callEnds gives up the stages that were made for a request.
func (r *runtime) callEnds(request string) {
	var left []*openStage
	r.mu.Lock()
	maps.DeleteFunc(r.stages, func(_ string, st *openStage) bool {
		if st.request == request {
			left = append(left, st)
		}
		return st.request == request
	})
	r.mu.Unlock()
	r.discard(slices.Values(left))
}

func (r *runtime) discard(stages iter.Seq[*openStage]) {
	for st := range stages {
		if err := st.discard(); err != nil {
			r.host.log.Warn("stage given up with an error", "plugin", r.manifest.ID, "err", err)
		}
	}
}

// release ends a stage that is held and was committed, or could not be. What
// became of the commit does not depend on it.
func (r *runtime) release(st *openStage) {
	if err := st.Discard(); err != nil {
		r.host.log.Warn("stage given up with an error", "plugin", r.manifest.ID, "err", err)
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
	if f := r.host.foreignCallOf(ctx); f != nil {
		return f.session(ctx, ref)
	}
	at, err := r.host.ensure(ctx, ref)
	if err != nil {
		return nil, err
	}
	live, _, err := r.host.sessions.Settled(ctx, at)
	if err != nil {
		return nil, chat.StoreError(err)
	}
	selected, err := r.host.sessions.Selected(at)
	if err != nil {
		return nil, chat.StoreError(err)
	}
	_, running, err := r.host.sessions.InUse(at)
	if err != nil {
		return nil, chat.StoreError(err)
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
		if f := r.host.foreignCallOf(ctx); f != nil {
			f.chunks(ctx, ids)(yield)
			return
		}
		for _, id := range ids {
			if err := ctx.Err(); err != nil {
				yield(plugin.Chunk{}, err)
				return
			}
			frame, err := r.host.sessions.Frame(id)
			if errors.Is(err, session.ErrMissing) { // the session may have gone on since
				err = plugin.Errorf(plugin.NotFound, "%w", err).WithHint("repeat the command")
			}
			if err != nil {
				yield(plugin.Chunk{}, chat.StoreError(err))
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
	want := session.StageRequest{
		Ref:       refIn(req.Session),
		Doc:       &req.Document,
		Normalise: req.Restore,
		Fresh:     req.Fresh,
	}
	if f := r.host.foreignCallOf(ctx); f != nil {
		if err := f.stage(req); err != nil {
			return nil, err
		}
		want.Normalise, want.Fresh = false, false // it is not the host that goes on with it
	}
	st, err := r.host.sessions.Stage(ctx, want)
	if err != nil {
		return nil, chat.StoreError(err)
	}
	id := uuid.NewString()
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil, errors.Join(plugin.Errorf(plugin.Unavailable, "plugin %s is being stopped", r.manifest.ID), st.Discard())
	}
	r.stages[id] = &openStage{Stage: st, request: plugin.RequestID(ctx)}
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
func (r *runtime) stage(id string, take bool) (*openStage, error) {
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
		if err := st.write(c); err != nil {
			return nil, chat.StoreError(err)
		}
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.StillMissing(), nil
}

func (r *runtime) Commit(ctx context.Context, req plugin.CommitRequest) (int64, error) {
	st, err := r.stage(req.Stage, true)
	if err != nil {
		return 0, err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	revision, err := st.Commit(ctx, req.Revision, req.Op, req.Note)
	r.release(st)
	if err != nil {
		return 0, chat.StoreError(err)
	}
	r.host.tellMended(st.request, st.Ref, st.Notices)
	// What was shown instead of the session no longer is: the session is new.
	if err := r.host.sessions.Select(ctx, st.Ref, ""); err != nil {
		r.host.log.Warn("selection not cleared", "session_id", st.Ref.ID, "err", err)
	}
	r.host.upkeep()
	r.host.tell(plugin.Event{Kind: plugin.EventSessionReplaced, Project: st.Ref.Project, Session: st.Ref.ID, Revision: revision})
	return revision, nil
}

func (r *runtime) Unstage(_ context.Context, id string) error {
	st, err := r.stage(id, true)
	if err != nil {
		return nil // it is gone, as asked
	}
	return st.discard()
}

func (r *runtime) OpState(ctx context.Context, ref plugin.SessionRef, op string) (plugin.OpState, error) {
	if err := r.allow(plugin.PermSessionRead); err != nil {
		return plugin.OpUnknown, err
	}
	state, err := r.host.sessions.OpState(ctx, refIn(ref), op)
	if err != nil {
		return plugin.OpUnknown, chat.StoreError(err)
	}
	return plugin.OpState(state), nil
}

func (r *runtime) NewSession(ctx context.Context, req plugin.NewSessionRequest) (plugin.MadeSession, error) {
	if err := r.allow(plugin.PermSessionNew); err != nil {
		return plugin.MadeSession{}, err
	}
	if f := r.host.foreignCallOf(ctx); f != nil {
		return r.newForeign(ctx, f, req)
	}
	ref := session.Ref{Project: projectOr(req.Project), ID: req.ID}
	if ref.ID == "" {
		ref.ID = session.NewID(r.host.now())
	}
	var err error
	if req.Stage == "" {
		ref, err = r.host.sessions.NewSession(ctx, ref, req.Title, r.host.opts.Cwd, req.Op)
	} else {
		var st *openStage
		if st, err = r.stage(req.Stage, true); err != nil {
			return plugin.MadeSession{}, err
		}
		st.mu.Lock()
		defer st.mu.Unlock()
		ref, err = st.CommitNew(ctx, ref, req.Title, req.Op)
		r.release(st)
		if err == nil {
			r.host.tellMended(st.request, ref, st.Notices)
		}
	}
	if err != nil {
		return plugin.MadeSession{}, chat.StoreError(err)
	}
	r.host.moved(ctx, ref)
	r.host.upkeep()
	return plugin.MadeSession{Ref: refOut(ref)}, nil
}

// newForeign makes a conversation of another agent of a stage.
func (r *runtime) newForeign(ctx context.Context, f *foreignCall, req plugin.NewSessionRequest) (plugin.MadeSession, error) {
	if req.Stage == "" {
		return plugin.MadeSession{}, f.onlyNew()
	}
	st, err := r.stage(req.Stage, true)
	if err != nil {
		return plugin.MadeSession{}, err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	defer r.release(st)
	doc, load, err := st.Keep(ctx)
	if err != nil {
		return plugin.MadeSession{}, chat.StoreError(err)
	}
	made, notes, err := f.restore(ctx, doc, load, req.Title)
	if err != nil {
		return plugin.MadeSession{}, err
	}
	r.host.tellMended(st.request, session.Ref{Project: made.Ref.Project, ID: made.Ref.ID}, notes)
	r.host.upkeep()
	return made, nil
}

func (r *runtime) Select(ctx context.Context, ref plugin.SessionRef, snapshot string) error {
	if err := r.allow(plugin.PermSessionWrite); err != nil {
		return err
	}
	if f := r.host.foreignCallOf(ctx); f != nil {
		return plugin.Errorf(plugin.Denied, "%s shows its own conversations: no snapshot can be shown in their place", f.agent.Name()).
			WithHint("sess --agent=%s view <name> shows what is in one", f.agent.ID())
	}
	return chat.StoreError(r.host.selectSnapshot(ctx, refIn(ref), snapshot))
}

func (r *runtime) Call(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	if err := r.allow(plugin.PermRPC(method)); err != nil {
		return nil, err
	}
	return r.host.Call(ctx, plugin.PluginCaller(r.manifest.ID), method, params, nil)
}

func refIn(ref plugin.SessionRef) session.Ref {
	return session.Ref{Project: projectOr(ref.Project), ID: ref.ID}
}

func refOut(ref session.Ref) plugin.SessionRef {
	return plugin.SessionRef{Project: ref.Project, ID: ref.ID}
}
