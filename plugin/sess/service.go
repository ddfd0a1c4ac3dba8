package sess

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"sess/plugin"
)

// service is the plugin at work: what Configure made of the configuration.
type service struct {
	config  Config
	runtime plugin.Runtime
	pools   *pools
	now     func() time.Time
	log     *slog.Logger

	autosave *autosaver
	pruner   *pruner
	held     heldOps
	tended   sync.Map // *snapshot.Pool to true: what upkeep has been started for

	// life ends with draining: background work has no call whose context could
	// end it.
	life    context.Context
	endLife context.CancelCauseFunc
	stays   bool  // the host does: somebody may follow what happens
	tasks   tasks // background work
	calls   tasks // of Dispatch
}

func newService(o Options, config Config, c plugin.Configuration, runtime plugin.Runtime, d plugin.Dispatcher) (*service, error) {
	dirs, err := newLayout(config.StorageDir, c.AgentsDir, c.UserHome)
	if err != nil {
		return nil, err
	}
	s := &service{config: config, runtime: runtime, now: o.Now, log: o.Logger, stays: c.Background}
	s.life, s.endLife = context.WithCancelCause(context.Background())
	o.Pool.TrashKeep = config.trashAge()
	s.pools = newPools(dirs, o.Pool, s.recover)
	s.autosave = &autosaver{dispatcher: d, slot: config.AutoSaveSlot, log: o.Logger, changed: s.changed, sessions: map[sessionKey]*pendingSave{}}
	s.pruner = newPruner(s)
	if c.Background {
		s.pruner.start()
	}
	return s, nil
}

// change is what the plugin did to a pool without being called.
type change struct {
	Kind    string            `json:"kind"`
	Agent   string            `json:"agent"`
	Project string            `json:"project"`
	Session string            `json:"session,omitempty"`
	Verb    string            `json:"verb"`
	Data    map[string]string `json:"data,omitempty"`
}

// publishTime bounds the telling of one change.
const publishTime = 5 * time.Second

// changed tells those who follow the host of a change: of what the plugin is
// called for, the host tells itself. Nothing depends on it.
func (s *service) changed(ctx context.Context, c change) {
	if !s.stays {
		return
	}
	c.Kind = commandName + ".changed"
	params, err := json.Marshal(c)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, publishTime)
		defer cancel()
		_, err = s.runtime.Call(ctx, "events.publish", params)
	}
	if err != nil {
		s.log.InfoContext(ctx, "change not published", "verb", c.Verb, "err", err)
	}
}

var errDrained = errors.New("the plugin is being stopped")

// drain ends background work and waits for all that runs; only then are the pools
// closed.
func (s *service) drain(ctx context.Context) error {
	s.tasks.close()
	s.calls.close()
	err := errors.Join(s.pruner.stop(ctx), s.autosave.drain(ctx), s.calls.wait(ctx), s.tasks.wait(ctx))
	s.endLife(errDrained)
	if err != nil {
		return err // what still runs needs the pools
	}
	s.settleAll(ctx)
	return s.pools.close()
}
