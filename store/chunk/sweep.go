package chunk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"sess/store/durable"
	"sess/store/transcript"
)

// SweepOptions say what a sweep spares.
type SweepOptions struct {
	// Live calls yield with the id of every chunk that a document names: as much
	// as its InlineIDs is enough, since the sweep reads the index chunks. It ends
	// when yield returns false. Its error ends the sweep, and nothing is removed.
	// It is called under the exclusive lock.
	Live func(yield func(transcript.ID) bool) error
	// MinAge is how old a file must be to be removed; 0 means an hour, a negative
	// one that age does not matter.
	MinAge time.Duration
	// Now is the time; zero means time.Now().
	Now time.Time
	// Locked says that the caller holds the store's lock exclusively. Otherwise
	// the sweep takes it, if it is free at once.
	Locked bool
}

// SweepReport is what a sweep found.
type SweepReport struct {
	Busy         bool // the lock was not free: nothing was done
	Kept         int  // chunks
	Removed      int  // chunks
	RemovedBytes int64
	Temps        int // leftover temp files removed
}

// Sweep removes the chunks that no document names, and leftover temp files. It
// spares young files and what young index chunks name. A pack goes when none of its
// chunks is named any more; one that is named by less than half is written anew
// without the others. It removes nothing while
// a chunk that a document names is missing or its header is damaged, for that
// may be an index chunk whose parts are still there. The context ends it
// between two files. What is removed is gone durably.
func (s *Store) Sweep(ctx context.Context, o SweepOptions) (report SweepReport, err error) {
	if o.MinAge == 0 {
		o.MinAge = time.Hour
	}
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	if !o.Locked {
		unlock, ok, err := s.TryExclusive()
		if err != nil || !ok {
			return SweepReport{Busy: err == nil}, err
		}
		defer func() { err = errors.Join(err, unlock()) }()
	}
	entries, err := s.entries()
	if err != nil {
		return report, err
	}
	known, err := s.lookForPacks()
	if err != nil {
		return report, err
	}
	keep, err := s.live(ctx, o.Live)
	if err != nil {
		return report, err
	}
	cut := o.Now.Add(-max(o.MinAge, 0))
	old := func(e fs.DirEntry) (bool, int64, error) {
		info, err := e.Info()
		if err != nil {
			return false, 0, err
		}
		return o.MinAge < 0 || info.ModTime().Before(cut), info.Size(), nil
	}

	var temps []fs.DirEntry
	dead := map[bool][]fs.DirEntry{} // by whether it is an index chunk
	size := map[string]int64{}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return report, err
		}
		id, chunk := idOf(e)
		temp := strings.HasSuffix(e.Name(), durable.TempSuffix) && e.Type().IsRegular()
		if !chunk && !temp || keep[id] {
			continue
		}
		isOld, bytes, err := old(e)
		if err != nil {
			return report, err
		}
		if temp {
			if isOld {
				temps = append(temps, e)
			}
			continue
		}
		kind, err := s.kind(id)
		if err != nil && !errors.Is(err, transcript.ErrDamaged) {
			return report, err // also one of a newer version: it may name others
		}
		index := kind == transcript.KindIndex
		if isOld {
			dead[index] = append(dead[index], e)
			size[e.Name()] = bytes
			continue
		}
		keep[id] = true
		if index {
			// A young index chunk that cannot be read serves nobody.
			if err := s.children(id, keep); err != nil && !errors.Is(err, transcript.ErrDamaged) {
				return report, err
			}
		}
	}

	for _, index := range []bool{true, false} {
		removed := false
		for _, e := range dead[index] {
			if id, _ := idOf(e); keep[id] {
				continue
			}
			if err := ctx.Err(); err != nil {
				return report, errors.Join(err, s.settle(removed))
			}
			if err := s.fs.Remove(entryFile(e)); err != nil {
				return report, errors.Join(err, s.settle(removed))
			}
			removed = true
			report.Removed++
			report.RemovedBytes += size[e.Name()]
		}
		// The parts of an index chunk go only after it is gone for good.
		if err := s.settle(removed); err != nil {
			return report, err
		}
	}
	for _, e := range temps {
		if err := s.fs.Remove(entryFile(e)); err != nil {
			return report, err
		}
		report.Temps++
	}
	for _, e := range entries {
		if id, ok := idOf(e); ok && keep[id] {
			report.Kept++
		}
	}
	return report, s.sweepPacks(ctx, known, keep, old, &report)
}

// sweepPacks is the part of a sweep that is about packs, of which these were
// there when it began. Index chunks that name their chunks are gone for good by
// then.
func (s *Store) sweepPacks(ctx context.Context, known []*pack, keep map[transcript.ID]bool, old func(fs.DirEntry) (bool, int64, error), report *SweepReport) error {
	entries, err := s.fs.ReadDir(packs)
	if err != nil {
		return ignoreMissing(err)
	}
	removed := false
	var errs []error
	defer func() { _, _ = s.lookForPacks() }() // those that went are known no longer
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return errors.Join(err, s.settlePacks(removed))
		}
		temp := strings.HasSuffix(e.Name(), durable.TempSuffix) && e.Type().IsRegular()
		if !temp && !isPack(e) {
			continue
		}
		isOld, size, err := old(e)
		if err != nil {
			return errors.Join(err, s.settlePacks(removed))
		}
		file := packs + "/" + e.Name()
		if temp {
			if isOld {
				if err := s.fs.Remove(file); err != nil {
					return errors.Join(err, s.settlePacks(removed))
				}
				report.Temps++
			}
			continue
		}
		i := slices.IndexFunc(known, func(p *pack) bool { return p.file == file })
		if i < 0 {
			continue
		}
		p := known[i]
		var live []int
		var used, all int64
		for i := range p.len() {
			k, _, length := p.at(i)
			all += int64(length)
			if !isOld || keep[k.id()] {
				live = append(live, i)
				used += int64(length)
			}
		}
		report.Kept += len(live)
		if p.strange != nil || p.partial || 2*used >= all {
			continue // of what may have more chunks than are known nothing goes
		}
		if len(live) > 0 {
			shorter, err := s.repack(p, live)
			if errors.Is(err, transcript.ErrDamaged) {
				continue // what can be read of it is left in its place
			}
			if err != nil { // as for want of space: others may give some
				errs = append(errs, fmt.Errorf("write anew what is in use of %s: %w", s.path(file), err))
				continue
			}
			size -= shorter
		}
		if err := s.fs.Remove(file); err != nil {
			return errors.Join(err, s.settlePacks(removed))
		}
		removed = true
		report.Removed += p.len() - len(live)
		report.RemovedBytes += size
	}
	return errors.Join(append(errs, s.settlePacks(removed))...)
}

// repack writes some of a pack's chunks into another one, durably, and returns its
// size. In the order in which they are known they make the same pack again, should
// the old one come back after a power cut.
func (s *Store) repack(p *pack, live []int) (size int64, err error) {
	w, err := newPacker(s.fs)
	if err != nil {
		return 0, err
	}
	defer func() { _ = w.temp.Discard() }()
	for _, i := range live {
		k, offset, length := p.at(i)
		buf := buffer()
		*buf, err = s.readAt(*buf, p, offset, length)
		if err == nil {
			if _, bad := Check(*buf); bad != nil {
				err = damaged(k.id(), s.path(p.file), bad)
			}
		}
		if err == nil {
			err = w.add(k.id(), *buf)
		}
		release(buf)
		if err != nil {
			return 0, err
		}
	}
	shorter, err := w.finish()
	if err != nil {
		return 0, err
	}
	if err := w.temp.Publish(shorter.file); err != nil {
		return 0, err
	}
	return shorter.size, nil
}

func (s *Store) settlePacks(removed bool) error {
	if !removed {
		return nil
	}
	return s.fs.SyncDir(packs)
}

// settle makes removals durable.
func (s *Store) settle(removed bool) error {
	if !removed {
		return nil
	}
	return s.fs.SyncDir(folder)
}

// live returns all chunks that documents need.
func (s *Store) live(ctx context.Context, roots func(func(transcript.ID) bool) error) (map[transcript.ID]bool, error) {
	keep := map[transcript.ID]bool{}
	if roots == nil {
		return nil, errors.New("a sweep needs to know what is live")
	}
	asked := map[transcript.ID]bool{}
	var inner error
	err := roots(func(id transcript.ID) bool {
		if asked[id] {
			return true
		}
		asked[id] = true
		keep[id] = true
		if inner = ctx.Err(); inner != nil {
			return false
		}
		var kind transcript.Kind
		if kind, inner = s.kind(id); inner == nil && kind == transcript.KindIndex {
			inner = s.children(id, keep)
		}
		if inner != nil {
			inner = fmt.Errorf("nothing is swept while a chunk in use cannot be read: %w", inner)
		}
		return inner == nil
	})
	return keep, errors.Join(inner, err)
}

// children adds the chunks that an index chunk names.
func (s *Store) children(id transcript.ID, keep map[transcript.ID]bool) error {
	plain, err := s.Plain(id)
	if err != nil {
		return err
	}
	refs, err := transcript.DecodeIndex(plain)
	if err != nil {
		return &DamagedError{ID: id, Reason: err.Error()}
	}
	for _, r := range refs {
		if r.ID != "" {
			keep[r.ID] = true
		}
		for _, piece := range r.IDs {
			keep[piece] = true
		}
	}
	return nil
}
