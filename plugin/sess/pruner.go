package sess

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sess/plugin"
	"sess/store/snapshot"
)

const prunerJob = "pruner"

// pruner tidies up the pools of all projects of all agents on a schedule.
type pruner struct {
	*service
	schedule *scheduler // nil: no schedule runs

	mu      sync.Mutex // guards running, failed
	running bool
	failed  string // why the last run in this process failed; empty: it did not
}

func newPruner(s *service) *pruner { return &pruner{service: s} }

// start begins the schedule and makes up, once, for a run that was missed or
// interrupted.
func (p *pruner) start() {
	every := p.config.pruneInterval()
	if every == 0 {
		return
	}
	p.schedule = newScheduler(p.log)
	// Jobs get no context of their own: the life of the service ends them.
	p.schedule.add(prunerJob, every, func() { p.run(p.life) })
	p.schedule.start()
	p.tasks.run(func() { p.catchUp(p.life, every) })
}

func (p *pruner) stop(ctx context.Context) error {
	if p.schedule == nil {
		return nil
	}
	return p.schedule.stop(ctx)
}

// catchUp looks for runs that did not take place. However many were missed, one
// makes up for all; a run that was interrupted is repeated.
func (p *pruner) catchUp(ctx context.Context, every time.Duration) {
	missed, interrupted := 0, false
	err := p.each(ctx, func(_ poolKey, pool *snapshot.Pool) error {
		last, err := pool.LastPrune()
		switch {
		case err != nil:
			return err
		case last.Started.IsZero():
		case last.Finished.IsZero():
			interrupted = true
		default:
			n := 1
			if ago, known := p.sincePrune(last); known {
				n = int(ago / every)
			}
			missed = max(missed, n)
		}
		return nil
	})
	if err != nil {
		p.log.ErrorContext(ctx, "whether the pruner missed a run is not known", "err", err)
	}
	switch {
	case missed == 0 && !interrupted:
	case !p.config.PruneCatchUp:
		p.log.InfoContext(ctx, "missed runs of the pruner are not made up", "missed", missed, "interrupted", interrupted)
	default:
		p.log.InfoContext(ctx, "one run of the pruner makes up for missed ones", "missed", missed, "interrupted", interrupted)
		p.run(ctx)
	}
}

// run tidies up every pool. A run that is asked for while another one is under
// way is that one.
func (p *pruner) run(ctx context.Context) {
	p.mu.Lock()
	if p.running {
		p.mu.Unlock()
		return
	}
	p.running = true
	p.mu.Unlock()
	failed := "it did not come to an end"
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.running, p.failed = false, failed
	}()
	pruned := 0
	err := p.each(ctx, func(k poolKey, pool *snapshot.Pool) error {
		report, err := p.tidy(ctx, pool)
		if pruned += len(report.Drop); len(report.Drop) > 0 {
			p.changed(ctx, change{Agent: k.Agent, Project: k.Project, Verb: "prune"})
		}
		if err != nil {
			return fmt.Errorf("agent %s, project %s: %w", k.Agent, k.Project, err)
		}
		return nil
	})
	if err != nil {
		failed = explain(err).Text()
		p.log.ErrorContext(ctx, "pruner", "pruned", pruned, "err", err)
		return
	}
	failed = ""
	p.log.InfoContext(ctx, "pruner done", "pruned", pruned)
}

// each opens the pools on the disk one after the other. Trouble with one does
// not keep it from the others.
func (p *pruner) each(ctx context.Context, do func(poolKey, *snapshot.Pool) error) error {
	keys, err := p.pools.all()
	if err != nil {
		return err
	}
	var errs []error
	for _, k := range keys {
		if ctx.Err() != nil {
			return errors.Join(append(errs, context.Cause(ctx))...)
		}
		pool, err := p.pools.existing(ctx, k)
		if err == nil && pool != nil {
			err = do(k, pool)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// status is what the disk says of the last run, in whatever process it was, and
// when the next one is: where no schedule runs, when the first change is due to
// bring one.
func (p *pruner) status(ctx context.Context) (plugin.ServiceStatus, error) {
	status := plugin.ServiceStatus{Name: prunerJob}
	if every := p.config.pruneInterval(); every > 0 {
		status.Schedule = "every " + shortDuration(every)
	} else {
		status.Schedule = "off"
	}
	if p.schedule != nil {
		status.Next = p.schedule.next(prunerJob)
	}
	var last snapshot.PruneRun
	dropped, kept, pools := 0, 0, 0
	err := p.each(ctx, func(_ poolKey, pool *snapshot.Pool) error {
		run, err := pool.LastPrune()
		if err != nil || run.Started.IsZero() {
			return err
		}
		pools++
		dropped += len(run.Dropped)
		kept += run.Kept
		if run.Started.After(last.Started) {
			last = run
		}
		return nil
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	status.Running, status.Last = p.running, last.Started
	if every := p.config.pruneInterval(); p.schedule == nil && every > 0 && !last.Finished.IsZero() {
		status.Next = last.Finished.Add(every)
	}
	switch {
	case p.failed != "":
		status.Result = "failed: " + p.failed
	case last.Error != "":
		status.Result = "failed: " + last.Error
	case pools > 0 && last.Finished.IsZero() && !p.running:
		status.Result = "interrupted"
	case pools > 0:
		status.Result = fmt.Sprintf("%d pruned, %d kept in %s", dropped, kept, count(pools, "pool"))
	}
	return status, err
}

// shortDuration is a duration without the zeros at its end: 1h and not 1h0m0s.
func shortDuration(d time.Duration) string {
	switch {
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}
