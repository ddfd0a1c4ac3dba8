package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"sess/store/durable"
)

// PruneOptions configure [Pool.Prune].
type PruneOptions struct {
	DryRun bool
	// Automatic marks a run that nobody asked for: undo passes over it.
	Automatic bool
	// NoRecord leaves [Pool.LastPrune] as it is when nothing is dropped: for the
	// runs after each save.
	NoRecord bool
	// Newest lists the ids of what the change that this run follows has made. A
	// run that finds something newer does nothing: whoever made that applies the
	// rules to it, and nothing is exempt for its sake any more. Empty: run always.
	Newest []string
	Op     OpInfo
}

// PruneReport is what a run did, or with DryRun would do.
type PruneReport struct {
	Op   string // the operation's id; empty when nothing was dropped
	Keep []Decision
	Drop []Decision // moved to the trash
	// Passed are snapshots that were to be dropped and had changed meanwhile.
	Passed []Decision
	DryRun bool
}

// Prune applies a policy: what is dropped goes to the trash as one operation.
// The snapshot that was loaded last is always kept. A snapshot that changed since
// the plan is passed over, and one that is gone already is fine, so that any
// number of processes may prune at once.
func (p *Pool) Prune(ctx context.Context, policy Policy, o PruneOptions) (PruneReport, error) {
	entries, err := p.List(ctx)
	if err != nil {
		return PruneReport{}, fmt.Errorf("prune: %w", err)
	}
	if len(o.Newest) > 0 && len(entries) > 0 && !slices.Contains(o.Newest, entries[0].Meta.ID) {
		return PruneReport{}, nil
	}
	r := PruneReport{DryRun: o.DryRun}
	r.Keep, r.Drop = Plan(entries, policy, p.opts.Now())
	if len(r.Drop) > 0 || o.DryRun { // a dry run tells why the rest stays
		loaded, err := p.LoadedLast(ctx)
		if err != nil {
			return PruneReport{}, fmt.Errorf("prune: %w", err)
		}
		asked := policy.Protect
		policy.Protect = func(e Entry) string {
			if loaded.ID != "" && e.Meta.ID == loaded.ID {
				return "loaded last"
			}
			if asked != nil {
				return asked(e)
			}
			return ""
		}
		r.Keep, r.Drop = Plan(entries, policy, p.opts.Now())
	}
	if o.DryRun || len(r.Drop) == 0 && o.NoRecord {
		return r, nil
	}
	run := PruneRun{Started: p.now(), Automatic: o.Automatic, Kept: len(r.Keep)}
	err = p.prune(ctx, &r, run, o)
	if err != nil {
		err = fmt.Errorf("prune: %w", err)
	}
	return r, err
}

func (p *Pool) prune(ctx context.Context, r *PruneReport, run PruneRun, o PruneOptions) (err error) {
	unlock, err := p.lock(ctx, "prune")
	if err != nil {
		return err
	}
	defer unlock()
	if len(r.Drop) > 0 {
		if err := p.writeRun(run); err != nil {
			return err
		}
		err = p.evict(r, o)
	}
	run.Finished, run.Op = p.now(), r.Op
	for _, d := range r.Drop {
		run.Dropped = append(run.Dropped, string(d.Entry.Name))
	}
	if err != nil {
		run.Error = err.Error()
	}
	return errors.Join(err, p.writeRun(run))
}

// evict moves what the plan drops to the trash, and leaves in the report what
// was moved. The names lock is held.
func (p *Pool) evict(r *PruneReport, o PruneOptions) error {
	plan := r.Drop
	r.Drop = nil
	var slots []slot
	var reasons []string
	for _, d := range plan {
		doc, _, err := p.head(fileOf(d.Entry.Name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // somebody else removed it
		}
		m := d.Entry.Meta
		if err != nil || doc.Meta.ID != m.ID || !doc.Meta.UpdatedAt.Equal(m.UpdatedAt) || doc.Meta.Pinned {
			r.Passed = append(r.Passed, d)
			continue
		}
		slots, reasons = append(slots, slot{name: d.Entry.Name, doc: doc}), append(reasons, d.Reason)
		r.Drop = append(r.Drop, d)
	}
	if len(slots) == 0 {
		return nil
	}
	o.Op.Kind = OpPrune
	rec, err := p.discard(Op{OpInfo: o.Op, Automatic: o.Automatic}, slots, reasons)
	if err != nil {
		r.Drop = nil
		return err
	}
	r.Op = rec.ID
	return nil
}

// PruneRun is a run of the pruner. The zero value means that there was none.
type PruneRun struct {
	Started   time.Time `json:"started"`
	Finished  time.Time `json:"finished,omitzero"` // zero: under way, or interrupted
	Automatic bool      `json:"automatic,omitempty"`
	Kept      int       `json:"kept"`
	Dropped   []string  `json:"dropped,omitempty"` // names
	Op        string    `json:"op,omitempty"`
	Error     string    `json:"error,omitempty"`
}

// LastPrune returns the last run that was not a dry one. What cannot be read
// counts as none: the pruner then runs once more than it had to.
func (p *Pool) LastPrune() (PruneRun, error) {
	data, err := durable.ReadFile(p.fs, pruneFile, 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return PruneRun{}, nil
	}
	if err != nil {
		return PruneRun{}, err
	}
	var run PruneRun
	if err := json.Unmarshal(data, &run); err != nil {
		p.opts.Logger.Warn("record of the last prune cannot be read", "file", p.path(pruneFile), "err", err)
		return PruneRun{}, nil
	}
	return run, nil
}

// writeRun stores a run. The names lock is held.
func (p *Pool) writeRun(run PruneRun) error {
	data, err := json.Marshal(run)
	if err != nil {
		return err
	}
	return durable.Write(p.fs, pruneFile, append(data, '\n'))
}
