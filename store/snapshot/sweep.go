package snapshot

import (
	"context"

	"sess/store/transcript"
)

// SweepReport is what a sweep did.
type SweepReport struct {
	Skipped string // why nothing was swept; empty otherwise
	Temps   int    // temp files removed
	Records int    // records of operations removed
	Chunks  int    // chunks removed
	Bytes   int64  // their bytes
}

// Sweep removes temp files that a crash left, records that serve nothing any
// more, and chunks that no document refers to. It never waits: while anybody
// writes it does nothing and says so. No chunk goes while a document of the pool
// or its trash cannot be read or is of a newer version.
func (p *Pool) Sweep(ctx context.Context) (SweepReport, error) { return SweepReport{}, errPending }

// Problem is something Verify found.
type Problem struct {
	Name   Name          // of the snapshot
	Chunk  transcript.ID // empty when the document itself is meant
	File   string        // whole path
	Reason string
}

// VerifyReport is what Verify found.
type VerifyReport struct {
	Checked      int   // snapshots
	Chunks       int   // different chunks read
	Bytes        int64 // their plain bytes
	Problems     []Problem
	Unreferenced []transcript.ID // chunks that no document refers to; only when all were checked
}

// Verify reads snapshots and all their chunks and checks every digest; no names
// means all. It changes nothing. The error is for what kept it from looking, not
// for what it found.
func (p *Pool) Verify(ctx context.Context, names []Name, progress Progress) (VerifyReport, error) {
	return VerifyReport{}, errPending
}
