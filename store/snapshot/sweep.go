package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"sess/store/chunk"
	"sess/store/durable"
	"sess/store/transcript"
)

// SweepReport is what a sweep did.
type SweepReport struct {
	Skipped string // why no chunks were swept; empty otherwise
	Temps   int    // temp files removed
	Records int    // records of operations removed
	Chunks  int    // chunks removed
	Bytes   int64  // their bytes
}

// Sweep removes temp files that a crash left, records that serve nothing any
// more, and chunks that no document refers to. It never waits: while anybody
// writes it does nothing and says so. No chunk goes while a document of the pool
// or its trash cannot be read or is of a newer version.
//
// The names lock is held while all documents are read, so that none moves past
// the reader; the chunk lock until the chunks are gone.
func (p *Pool) Sweep(ctx context.Context) (SweepReport, error) {
	var r SweepReport
	unlock, ok, err := p.chunks.TryExclusive()
	if err != nil {
		return r, fmt.Errorf("sweep: %w", err)
	}
	if !ok {
		r.Skipped = "a save is under way"
		return r, nil
	}
	defer func() {
		if err := unlock(); err != nil {
			p.opts.Logger.Warn("chunk lock not released", "dir", p.fs.Dir(), "err", err)
		}
	}()
	if err := p.chunks.Relink(trashDir); err != nil {
		return r, fmt.Errorf("sweep: %w", err)
	}
	live, err := p.sweepNames(ctx, &r)
	if err != nil {
		return r, fmt.Errorf("sweep: %w", err)
	}
	if r.Skipped != "" {
		return r, nil
	}
	swept, err := p.chunks.Sweep(ctx, chunk.SweepOptions{
		Live: func(yield func(transcript.ID) bool) error {
			for id := range live {
				if !yield(id) {
					break
				}
			}
			return nil
		},
		Now:    p.opts.Now(),
		Locked: true,
	})
	r.Chunks, r.Bytes, r.Temps = swept.Removed, swept.RemovedBytes, r.Temps+swept.Temps
	switch {
	case errors.Is(err, chunk.ErrMissing), errors.Is(err, transcript.ErrDamaged), errors.Is(err, transcript.ErrNewer):
		r.Skipped = err.Error()
	case err != nil:
		return r, fmt.Errorf("sweep: %w", err)
	}
	return r, nil
}

// sweepNames is the part of the sweep under the names lock: temp files, records,
// and which chunks are referred to.
func (p *Pool) sweepNames(ctx context.Context, r *SweepReport) (map[transcript.ID]bool, error) {
	release, err := p.fs.Lock(ctx, namesLock, durable.Exclusive, false)
	if errors.Is(err, durable.ErrLocked) {
		r.Skipped = "a change is under way"
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = release() }()
	for _, dir := range []string{".", trashDir, opsDir} {
		n, err := durable.SweepTemps(p.fs, dir)
		if r.Temps += n; err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if err := p.steady(); err != nil {
		return nil, err
	}
	live, docs := map[transcript.ID]bool{}, map[string]bool{}
	err = p.eachDocument(ctx, func(file string, doc *transcript.Document, err error) error {
		if err != nil {
			r.Skipped = fmt.Sprintf("%s cannot be read: %s", p.path(file), reason(err))
			return nil
		}
		docs[doc.Meta.ID] = true
		for _, id := range doc.InlineIDs() {
			live[id] = true
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if r.Skipped != "" {
		return nil, nil // nor can it be told which records are still needed
	}
	r.Records, err = p.sweepOps(ctx, func(id string) bool { return docs[id] })
	return live, err
}

// eachDocument reads all documents, those in the trash too.
func (p *Pool) eachDocument(ctx context.Context, visit func(file string, doc *transcript.Document, err error) error) error {
	names, err := p.names()
	if err != nil {
		return err
	}
	trash, err := p.trashFiles()
	if err != nil {
		return err
	}
	files := make([]string, 0, len(names)+len(trash))
	for _, n := range names {
		files = append(files, fileOf(n))
	}
	for _, f := range trash {
		files = append(files, trashDir+"/"+f.Name())
	}
	for _, file := range files {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		data, err := durable.ReadFile(p.fs, file, maxDocument)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var doc *transcript.Document
		if err == nil {
			doc, err = transcript.Decode(data)
		}
		if err := visit(file, doc, err); err != nil {
			return err
		}
	}
	return nil
}

// Problem is something Verify found.
type Problem struct {
	Name    Name          `json:"name"`            // in the trash the one that it had; there it may be empty
	Trashed bool          `json:"trashed"`         // it is in the trash
	Newer   bool          `json:"-"`               // it could not be checked, since a newer version wrote it
	Chunk   transcript.ID `json:"chunk,omitempty"` // empty when the document itself is meant
	File    string        `json:"file"`            // whole path of the document
	Reason  string        `json:"reason"`
}

// VerifyReport is what Verify found.
type VerifyReport struct {
	Checked      int   // snapshots
	Chunks       int   // different chunks that are whole
	Bytes        int64 // their plain bytes
	Problems     []Problem
	Unreferenced []transcript.ID // chunks that no document refers to; only when all were checked
}

// Verify reads snapshots and all their chunks and checks every digest; no names
// means all, and the trash. It changes nothing and takes no lock, so that what
// is saved meanwhile may show up as unreferenced. The error is for what kept it
// from looking, not for what it found. The progress counts snapshots.
func (p *Pool) Verify(ctx context.Context, names []Name, progress Progress) (VerifyReport, error) {
	var r VerifyReport
	all := len(names) == 0
	var onDisk []transcript.ID
	if all {
		var err error
		// Before the documents: what is saved meanwhile is not held against it.
		for id, err := range p.chunks.IDs() {
			if err != nil {
				return r, fmt.Errorf("verify: %w", err)
			}
			onDisk = append(onDisk, id)
		}
		if names, err = p.names(); err != nil {
			return r, fmt.Errorf("verify: %w", err)
		}
	}
	v := verifier{pool: p, report: &r, chunks: map[transcript.ID]string{}}
	for i, name := range names {
		s, err := p.Read(ctx, name)
		if _, missing := errors.AsType[*NotFoundError](err); missing && all {
			continue
		}
		switch {
		case err == nil:
			err = v.document(ctx, Problem{Name: name, File: s.File}, s.Doc)
		case ctx.Err() == nil && typed(err):
			if _, missing := errors.AsType[*NotFoundError](err); !missing {
				_, newer := errors.AsType[*NewerError](err)
				r.Problems = append(r.Problems, Problem{Name: name, Newer: newer, File: p.path(fileOf(name)), Reason: plainReason(err)})
				err = nil
			}
		}
		if err != nil {
			return r, during("verify", name, err)
		}
		r.Checked++
		if progress != nil {
			progress(i+1, len(names))
		}
	}
	if !all {
		return r, nil
	}
	blind := len(r.Problems) > 0
	trash, err := p.listTrash(ctx)
	if err != nil {
		return r, fmt.Errorf("verify the trash: %w", err)
	}
	for _, t := range trash {
		file := trashDir + "/" + filepath.Base(t.File)
		data, err := durable.ReadFile(p.fs, file, maxDocument)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		found := Problem{Name: t.Name, Trashed: true, Newer: t.State == StateNewer, File: t.File}
		var doc *transcript.Document
		if err == nil {
			doc, err = decodeChecked(data)
		}
		if err != nil {
			blind = true
			if found.Reason = reason(err); found.Newer {
				found.Reason = t.Problem
			}
			r.Problems = append(r.Problems, found)
			continue
		}
		if err := v.document(ctx, found, doc); err != nil {
			return r, fmt.Errorf("verify the trash: %w", err)
		}
	}
	if !blind { // else nobody knows what the unreadable ones refer to
		r.Unreferenced = slices.DeleteFunc(onDisk, func(id transcript.ID) bool {
			_, seen := v.chunks[id]
			return seen
		})
	}
	return r, nil
}

// plainReason is what is wrong with a snapshot, without its name and file.
func plainReason(err error) string {
	if d, ok := errors.AsType[*DamagedError](err); ok {
		return d.Reason
	}
	if n, ok := errors.AsType[*NewerError](err); ok {
		return "written by a newer version (format " + n.Format + ")"
	}
	return err.Error()
}

// verifier reads each chunk once, however many documents share it.
type verifier struct {
	pool   *Pool
	report *VerifyReport
	chunks map[transcript.ID]string // what is wrong with it, or ""
}

func (v *verifier) plain(id transcript.ID) ([]byte, error) {
	data, err := v.pool.chunks.Plain(id)
	if _, seen := v.chunks[id]; !seen {
		v.chunks[id] = ""
		if err != nil {
			v.chunks[id] = err.Error()
		} else {
			v.report.Chunks++
			v.report.Bytes += int64(len(data))
		}
	}
	return data, err
}

// document adds what is wrong with the chunks of a document, each time as found
// says where it lies.
func (v *verifier) document(ctx context.Context, found Problem, doc *transcript.Document) error {
	told := map[transcript.ID]bool{}
	var last transcript.ID
	for id, err := range doc.ChunkIDs(v.plain) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil && told[last] {
			continue // the index chunk that it could not load
		}
		last = id
		if err == nil {
			if _, seen := v.chunks[id]; !seen {
				_, _ = v.plain(id)
			}
			if v.chunks[id] != "" {
				err = errors.New(v.chunks[id])
			}
		}
		if err != nil && !told[id] {
			told[id] = true
			found.Chunk, found.Reason = id, err.Error()
			v.report.Problems = append(v.report.Problems, found)
		}
	}
	return nil
}
