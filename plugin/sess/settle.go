package sess

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"sess/plugin"
	"sess/store/snapshot"
)

// settleTime bounds what is still done for a call whose context has ended.
const settleTime = 10 * time.Second

// settling is a context for taking back or finishing an operation, whatever
// became of the call's own.
func settling(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), settleTime)
}

// abandon takes back what was prepared for a change that failed, so that the
// failure leaves no trace, and returns the failure.
func (r *request) abandon(ctx context.Context, stage string, op *snapshot.OpenOp, cause error) error {
	ctx, cancel := settling(ctx)
	defer cancel()
	if stage != "" {
		if err := r.runtime.Unstage(ctx, stage); err != nil && !has(err, plugin.NotFound) {
			r.log.WarnContext(ctx, "unstage", "stage", stage, "err", err)
		}
	}
	if op != nil {
		if err := op.Withdraw(ctx); err != nil {
			return fmt.Errorf("%w (its backup stays until the next start: %v)", cause, err)
		}
	}
	return cause
}

// outcome finds out what became of a change that did not end well. What the host
// refused in so many words did not happen; where an answer was lost it is asked
// again.
func (r *request) outcome(ctx context.Context, ref plugin.SessionRef, op *snapshot.OpenOp, cause error) plugin.OpState {
	if e := plugin.AsError(cause); e.Code != plugin.Unavailable && e.Code != plugin.Internal {
		return plugin.OpVoid
	}
	ctx, cancel := settling(ctx)
	defer cancel()
	state, err := r.opState(ctx, ref, op.ID())
	if err != nil {
		return plugin.OpUnknown
	}
	return state
}

// opState asks what became of an op. In a session that is not there nothing has
// landed, and nothing will: whoever staged it is done or dead.
func (s *service) opState(ctx context.Context, ref plugin.SessionRef, op string) (plugin.OpState, error) {
	state, err := s.runtime.OpState(ctx, ref, op)
	if has(err, plugin.NotFound) {
		return plugin.OpVoid, nil
	}
	return state, err
}

// undecided is the failure of a change that may have happened: its op and backup
// stay until somebody can find out.
func (r *request) undecided(ref plugin.SessionRef, op *snapshot.OpenOp, cause error) error {
	r.held.put(heldOp{OpenOp: op, ref: ref, undecided: true})
	e := plugin.AsError(cause)
	return plugin.Errorf(e.Code, "session %s: whether it was changed is not known: %w", ref.ID, cause).
		WithHint("look at the session; the backup made before is kept, see: %s", command("list", "--include-auto"))
}

// finish closes the op of a change that happened.
func (r *request) finish(ctx context.Context, op *snapshot.OpenOp) {
	ctx, cancel := settling(ctx)
	defer cancel()
	if err := op.Close(ctx); err != nil {
		r.unsettled(ctx, op, err)
	}
}

// unsettled tells that an op stays open although it happened. The next start
// closes it.
func (r *request) unsettled(ctx context.Context, op *snapshot.OpenOp, err error) {
	r.log.WarnContext(ctx, "close op", "op", op.ID(), "err", err)
	r.notices = append(r.notices, fmt.Sprintf("the record for undo is not finished yet (%v); the next start finishes it", err))
}

// recover settles what a dead process left open in a pool and reports whether
// it could.
func (s *service) recover(ctx context.Context, pool *snapshot.Pool) bool {
	recovered, err := pool.Recover(ctx, func(ctx context.Context, op snapshot.Op) (string, error) {
		ref := plugin.SessionRef{Project: op.Project, ID: op.Session}
		if op.Kind == snapshot.OpNew {
			ref.ID = op.NewSession
		}
		state, err := s.opState(ctx, ref, op.ID)
		if err != nil {
			return snapshot.Unknown, err
		}
		return string(state), nil
	})
	for _, r := range recovered {
		s.log.LogAttrs(ctx, slog.LevelInfo, "op recovered", slog.String("op", r.Op.ID),
			slog.String("kind", string(r.Op.Kind)), slog.String("outcome", r.Outcome))
	}
	if err != nil {
		s.log.ErrorContext(ctx, "what was cut short is not settled yet", "dir", pool.Dir(), "err", err)
	}
	return err == nil
}
