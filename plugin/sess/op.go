package sess

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"sess/dispatch"
	"sess/plugin"
	"sess/store/snapshot"
)

// The op verbs let another plugin change a session in the way that a load does:
// op open, save --op (the backup), stage and commit under the op's id, op close;
// or op withdraw where it came to nothing, which removes the backup as well.

func opOpenVerb() verb {
	return verb{
		Verb: dispatch.Verb{
			Name:    "op open",
			Summary: "Open the record of a change to the session",
			Args:    []plugin.Arg{{Name: "kind", Type: plugin.TypeString, Help: "delete-messages or compact", Required: true}},
			Effect:  plugin.EffectWrite, Internal: true,
		},
		run: opOpen,
	}
}

func opCloseVerb() verb {
	return verb{
		Verb: dispatch.Verb{
			Name:    "op close",
			Summary: "Record that a change happened",
			Args:    []plugin.Arg{{Name: "op", Type: plugin.TypeString, Help: "id of the op", Required: true}},
			Effect:  plugin.EffectWrite, Internal: true,
		},
		run: opClose,
	}
}

func opWithdrawVerb() verb {
	return verb{
		Verb: dispatch.Verb{
			Name:    "op withdraw",
			Summary: "Take back the record and the backup of a change that did not happen",
			Args:    []plugin.Arg{{Name: "op", Type: plugin.TypeString, Help: "id of the op", Required: true}},
			Effect:  plugin.EffectWrite, Internal: true,
		},
		run: opWithdraw,
	}
}

// heldOps are the open ops that outlive the call that opened them: those of
// other plugins, and those whose outcome is not known.
type heldOps struct {
	mu  sync.Mutex // guards ops
	ops map[string]heldOp
}

type heldOp struct {
	*snapshot.OpenOp
	ref   plugin.SessionRef
	owner plugin.Caller // who opened it
	// undecided marks an op of this plugin's own whose outcome could not be found
	// out yet.
	undecided bool
}

func (h *heldOps) put(op heldOp) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ops == nil {
		h.ops = map[string]heldOp{}
	}
	h.ops[op.ID()] = op
}

func (h *heldOps) get(id string) (heldOp, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	op, ok := h.ops[id]
	return op, ok
}

func (h *heldOps) remove(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.ops, id)
}

// all lists the ops for which want is true.
func (h *heldOps) all(want func(heldOp) bool) []heldOp {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Values(h.ops)), func(op heldOp) bool { return !want(op) })
}

func opOpen(ctx context.Context, r *request) (plugin.Result, error) {
	kind := snapshot.OpKind(r.Arg("kind"))
	if kind != snapshot.OpDeleteMessages && kind != snapshot.OpCompact {
		return plugin.Result{}, plugin.Errorf(plugin.Usage, "op open: %q is not a kind of change", kind).
			WithHint("want %s or %s", snapshot.OpDeleteMessages, snapshot.OpCompact)
	}
	live, err := r.runtime.Session(ctx, r.ref)
	if err != nil {
		return plugin.Result{}, err
	}
	// A plugin that died left its op behind; nobody else would close it.
	r.settleOps(ctx, func(op heldOp) bool { return op.ref == live.Ref })
	pool, err := r.pool(ctx)
	if err != nil {
		return plugin.Result{}, err
	}
	info := r.op(kind, "")
	info.Session = live.Ref.ID
	op, err := pool.OpenOp(ctx, info)
	if err != nil {
		return plugin.Result{}, err
	}
	r.held.put(heldOp{OpenOp: op, ref: live.Ref, owner: r.Call.Caller})
	return answer("opened "+op.ID(), pair{"op", op.ID()}, pair{"session", live.Ref.ID}, pair{"revision", live.Revision})
}

func opClose(ctx context.Context, r *request) (plugin.Result, error) {
	op, held := r.held.get(r.Arg("op"))
	result, err := r.endOp(ctx, (*snapshot.OpenOp).Close, "closed")
	if err != nil || !held {
		return result, err
	}
	pool, err := r.pool(ctx)
	if err != nil {
		r.log.WarnContext(ctx, "tidy pool", "err", err)
		return result, nil // the change happened
	}
	var exempt []string
	if id := op.Backup(); id != "" {
		exempt = append(exempt, id)
	}
	r.upkeep(pool, exempt...)
	return result, nil
}

func opWithdraw(ctx context.Context, r *request) (plugin.Result, error) {
	return r.endOp(ctx, (*snapshot.OpenOp).Withdraw, "withdrawn")
}

// endOp ends a held op. One that this process does not hold was settled by a
// restart in between; asking for what it became is fine.
func (r *request) endOp(ctx context.Context, end func(*snapshot.OpenOp, context.Context) error, done string) (plugin.Result, error) {
	id := r.Arg("op")
	if op, ok := r.held.get(id); ok {
		if err := end(op.OpenOp, ctx); err != nil {
			return plugin.Result{}, err
		}
		r.held.remove(id)
		return answer(done+" "+id, pair{"op", id})
	}
	pool, err := r.pool(ctx)
	if err != nil {
		return plugin.Result{}, err
	}
	record, err := pool.FindOp(id)
	became := "closed"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		became = "withdrawn"
	case err != nil:
		return plugin.Result{}, err
	case record.State == snapshot.OpOpen:
		became = "open"
	}
	if became != done {
		return plugin.Result{}, plugin.Errorf(plugin.Conflict, "op %s is %s, it cannot be %s", id, became, done).
			WithHint("look at the session and its backups: %s", command("list", "--include-auto"))
	}
	return answer(done+" "+id, pair{"op", id})
}

// heldOp is the op whose backup the call makes; nil where it names none.
func (r *request) heldOp() (*snapshot.OpenOp, error) {
	id := r.String("op")
	if id == "" {
		return nil, nil
	}
	op, ok := r.held.get(id)
	if !ok {
		return nil, plugin.Errorf(plugin.NotFound, "there is no open op %q", id).WithHint("open one with: op open")
	}
	return op.OpenOp, nil
}

// settleOps finds out what became of held ops, and ends them.
func (s *service) settleOps(ctx context.Context, which func(heldOp) bool) {
	for _, op := range s.held.all(which) {
		state, err := s.opState(ctx, op.ref, op.ID())
		if err == nil {
			switch state {
			case plugin.OpLanded:
				err = op.Close(ctx)
			case plugin.OpVoid:
				err = op.Withdraw(ctx)
			default:
				err = fmt.Errorf("op is %s", state)
			}
		}
		if err != nil {
			s.log.WarnContext(ctx, "settle op", "op", op.ID(), "err", err)
			continue
		}
		s.held.remove(op.ID())
	}
}

// pluginEnded settles what a plugin had begun whose process has ended.
func (s *service) pluginEnded(ctx context.Context, id string) {
	s.settleOps(ctx, func(op heldOp) bool { return op.owner == plugin.PluginCaller(id) })
}

// settleUndecided tries again to find out what became of changes of this
// plugin's own.
func (s *service) settleUndecided(ctx context.Context) {
	s.settleOps(ctx, func(op heldOp) bool { return op.undecided })
}

// settleAll settles what is held at the end of this process.
func (s *service) settleAll(ctx context.Context) { s.settleOps(ctx, func(heldOp) bool { return true }) }
