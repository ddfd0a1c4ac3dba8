package sess

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"sess/plugin"
	"sess/store/snapshot"
)

// liveSession is a session in the answer of the host's sessions.list.
type liveSession struct {
	Project  string `json:"projectId"`
	ID       string `json:"id"`
	Title    string `json:"title"`
	Active   bool   `json:"active"`
	Selected string `json:"selected"`  // id of the snapshot shown instead of it
	Updated  int64  `json:"updatedAt"` // epoch milliseconds
}

// liveSessions asks the host for its sessions. Without an answer nothing is
// known of what they need, so whoever asks must leave everything as it is.
func (s *service) liveSessions(ctx context.Context) ([]liveSession, error) {
	body, err := s.runtime.Call(ctx, "sessions.list", json.RawMessage("{}"))
	if err != nil {
		return nil, fmt.Errorf("list the sessions: %w", err)
	}
	var list []liveSession
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("list the sessions: %w", err)
	}
	return list, nil
}

// roomFor refuses further snapshots named by a person where such ones alone would
// exceed the cap and the configuration says refuse. Names that are there already
// need no room.
func (r *request) roomFor(ctx context.Context, pool *snapshot.Pool, names ...snapshot.Name) error {
	names = slices.DeleteFunc(slices.Clone(names), snapshot.Name.Auto)
	most := r.config.MaxSnapshots
	if most == 0 || r.config.OnCap != onCapRefuse || len(names) == 0 {
		return nil
	}
	entries, err := pool.List(ctx)
	if err != nil {
		return err
	}
	n, oldest := 0, snapshot.Name("")
	for _, e := range entries { // newest first
		names = slices.DeleteFunc(names, func(name snapshot.Name) bool { return sameName(e.Name, name) })
		if !e.Name.Auto() && e.State == snapshot.StateOK {
			n++
			oldest = e.Name
		}
	}
	if len(names) == 0 || n+len(names) <= most {
		return nil
	}
	there := fmt.Sprintf("there are %s with names of your own", count(n, "snapshot"))
	if len(names) > 1 {
		there += fmt.Sprintf(" and %d would come", len(names))
	}
	e := plugin.Errorf(plugin.NoSpace, "%s, and maxSnapshots is %d: nothing was saved", there, most)
	if n == 0 {
		return e.WithHint("raise maxSnapshots")
	}
	return e.WithHint("delete one you no longer need, the oldest with: %s; or raise maxSnapshots", command("delete", string(oldest)))
}

// policy is the retention that the configuration asks for. ref is the session of
// the call; it may be empty.
func (s *service) policy(ctx context.Context, entries []snapshot.Entry, ref plugin.SessionRef, exempt []string) (snapshot.Policy, error) {
	sessions, err := s.liveSessions(ctx)
	if err != nil {
		return snapshot.Policy{}, err
	}
	active := map[string]bool{}
	if ref.ID != "" {
		active[ref.ID] = true
	}
	selected := map[string]bool{}
	for _, live := range sessions {
		if live.Active {
			active[live.ID] = true
		}
		if live.Selected != "" {
			selected[live.Selected] = true
		}
	}
	// The newest backup of each active session. A date in the future proves
	// nothing, so one of the past comes before it.
	newest := map[string]snapshot.Entry{}
	for _, e := range entries { // newest first
		id := e.Meta.SessionID
		if best, found := newest[id]; active[id] && snapshot.ReservedPrefix(e.Name) && (!found || best.Future && !e.Future) {
			newest[id] = e
		}
	}
	return snapshot.Policy{
		Max: s.config.MaxSnapshots, OnCap: s.config.OnCap, Exempt: exempt,
		Protect: func(e snapshot.Entry) string {
			switch {
			case selected[e.Meta.ID]:
				return "it is shown in a session"
			case snapshot.ReservedPrefix(e.Name) && newest[e.Meta.SessionID].Name == e.Name:
				return "newest backup of the active session"
			}
			return ""
		},
	}, nil
}

// retain applies the cap after a call has added to the pool. The call has
// succeeded by now, so trouble becomes a notice.
func (r *request) retain(ctx context.Context, pool *snapshot.Pool, ref plugin.SessionRef, exempt ...string) {
	defer r.upkeep(pool, exempt...)
	most := r.config.MaxSnapshots
	if most == 0 {
		return
	}
	n, err := pool.Count()
	if err == nil && n <= most {
		return
	}
	var entries []snapshot.Entry
	if err == nil {
		entries, err = pool.List(ctx)
	}
	var policy snapshot.Policy
	if err == nil {
		policy, err = r.policy(ctx, entries, ref, exempt)
	}
	var report snapshot.PruneReport
	if err == nil {
		report, err = pool.Prune(ctx, policy, snapshot.PruneOptions{Automatic: true, NoRecord: true, Op: r.op(snapshot.OpPrune, "")})
	}
	if err != nil {
		r.log.WarnContext(ctx, "prune after save", "err", err)
		r.notices = append(r.notices, "the pool was not pruned: "+explain(err).Text())
		return
	}
	for _, d := range report.Drop {
		r.log.InfoContext(ctx, "snapshot pruned", "name", d.Entry.Name, "reason", d.Reason)
		r.notices = append(r.notices, fmt.Sprintf("%s went to the trash: %s", d.Entry.Name, d.Reason))
	}
	own := 0
	for _, d := range report.Keep {
		if !d.Entry.Name.Auto() && d.Entry.State == snapshot.StateOK {
			own++
		}
	}
	if own > most {
		r.notices = append(r.notices, fmt.Sprintf("%s with names of your own exceed maxSnapshots %d: delete some, or raise it", count(own, "snapshot"), most))
	}
}

// upkeepEvery is how often a pool of a host that runs no schedule is tidied up,
// at most: as often as the schedule would.
func (s *service) upkeepEvery() time.Duration {
	return cmp.Or(s.config.pruneInterval(), time.Hour)
}

// upkeep tidies up a pool in the background after a change, once in the life of
// the process and if nobody did so lately. exempt are the ids of what the change
// has made. While another plugin is in the middle of a change it waits for the end
// of that: a sweep gives way to whoever is at work.
func (s *service) upkeep(pool *snapshot.Pool, exempt ...string) {
	if len(s.held.all(func(op heldOp) bool { return !op.undecided })) > 0 {
		return
	}
	if _, before := s.tended.LoadOrStore(pool, true); before {
		return
	}
	s.tasks.run(func() {
		last, err := pool.LastPrune()
		if ago, known := s.sincePrune(last); err == nil && known && ago < s.upkeepEvery() {
			return
		}
		if _, err := s.tidy(s.life, pool, exempt...); err != nil && s.life.Err() == nil {
			s.log.Error("upkeep of the snapshots", "dir", pool.Dir(), "err", err)
		}
	})
}

// sincePrune is how long ago a run ended. Of one that is dated in the future, by a
// clock that was ahead, it is not known: it must not put off all others until
// that day.
func (s *service) sincePrune(run snapshot.PruneRun) (ago time.Duration, known bool) {
	ago = s.now().Sub(run.Finished)
	return max(ago, 0), ago >= -plugin.ClockSkew
}

// tidy applies the retention rules to a pool, empties its trash of what has been
// there long enough, and sweeps chunks that nothing needs.
func (s *service) tidy(ctx context.Context, pool *snapshot.Pool, exempt ...string) (snapshot.PruneReport, error) {
	entries, err := pool.List(ctx)
	if err != nil {
		return snapshot.PruneReport{}, err
	}
	policy, err := s.policy(ctx, entries, plugin.SessionRef{}, exempt)
	if err != nil {
		return snapshot.PruneReport{}, err
	}
	report, err := pool.Prune(ctx, policy, snapshot.PruneOptions{
		Automatic: true, Newest: exempt, Op: snapshot.OpInfo{Kind: snapshot.OpPrune, Caller: string(plugin.CallerHost)},
	})
	if err != nil {
		return report, err
	}
	for _, d := range report.Drop {
		s.log.InfoContext(ctx, "snapshot pruned", "name", d.Entry.Name, "reason", d.Reason)
	}
	if age := s.config.trashAge(); age > 0 {
		n, size, e := pool.EmptyTrash(ctx, age, false)
		if n > 0 {
			s.log.InfoContext(ctx, "trash emptied", "snapshots", n, "bytes", size)
		}
		err = e
	}
	swept, e := pool.Sweep(ctx)
	s.log.DebugContext(ctx, "pool swept", "chunks", swept.Chunks, "bytes", swept.Bytes, "skipped", swept.Skipped)
	return report, errors.Join(err, e)
}
