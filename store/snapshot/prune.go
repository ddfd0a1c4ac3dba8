package snapshot

import (
	"context"
	"time"
)

// What is done when snapshots that people named exceed the cap.
const (
	OnCapWarn   = "warn"   // nothing; the caller warns
	OnCapRefuse = "refuse" // nothing; the caller refuses the save
	OnCapEvict  = "evict"  // the oldest named ones go to the trash
)

// Policy says what is to be kept. The zero value keeps everything.
type Policy struct {
	// Max is the cap on the number of snapshots; 0 means none.
	Max int
	// OnCap is OnCapWarn (also when empty), OnCapRefuse or OnCapEvict.
	OnCap string
	// OlderThan drops auto-managed snapshots older than this; 0 means off.
	OlderThan time.Duration
	// Keep drops auto-managed snapshots beyond the newest Keep; 0 means off.
	Keep int
	// Protect returns why a snapshot must stay, or "". It may be nil.
	Protect func(Entry) string
	// Exempt are ids of snapshots that the running operation made.
	Exempt []string
}

// Decision is what a plan says about a snapshot.
type Decision struct {
	Entry  Entry
	Reason string // "auto-managed, oldest above maxSnapshots 50"
}

// Plan decides which snapshots stay and which go, each with its reason: keep
// with the newest first, drop in the order in which they go. It is pure.
func Plan(entries []Entry, policy Policy, now time.Time) (keep, drop []Decision) { return nil, nil }

// PruneOptions configure [Pool.Prune].
type PruneOptions struct {
	DryRun bool
	// Automatic marks a run that nobody asked for: undo passes over it.
	Automatic bool
	// NoRecord leaves [Pool.LastPrune] as it is when nothing is dropped: for the
	// runs after each save.
	NoRecord bool
	Op       OpInfo
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

// Prune applies a policy: what is dropped goes to the trash. The snapshot that
// was loaded last is always kept. A snapshot that changed since the plan is
// passed over, and one that is gone already is fine, so that any number of
// processes may prune at once.
func (p *Pool) Prune(ctx context.Context, policy Policy, o PruneOptions) (PruneReport, error) {
	return PruneReport{}, errPending
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

// LastPrune returns the last run that was not a dry one.
func (p *Pool) LastPrune() (PruneRun, error) { return PruneRun{}, errPending }
