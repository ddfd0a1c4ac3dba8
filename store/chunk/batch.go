package chunk

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"sess/store/durable"
	"sess/store/transcript"
)

var errEnded = errors.New("the batch has ended")

// Batch adds chunks to a store together. Files are written and synced in the
// background while chunks come in; none is visible before Commit. Exactly one
// of Commit and Discard ends a batch; Discard after Commit does nothing, so it
// may be deferred. A batch is used by one goroutine, under the store's shared
// lock.
type Batch struct {
	s       *Store
	seen    map[transcript.ID]bool
	slots   chan struct{} // one for each file being written
	writers sync.WaitGroup
	index   bool // an index chunk was added, or one that was there
	ended   bool

	mu    sync.Mutex // guards what follows
	ready []written
	loose int   // files of their own that were begun
	err   error // the first one of a writer

	packing sync.Mutex // guards what follows
	packer  *packer    // that of the pack that is being written
	packed  []packed
}

// packed is a pack that is synced but not yet visible.
type packed struct {
	pack *pack
	temp *durable.Temp
}

// written is a file that is synced but not yet visible.
type written struct {
	kind transcript.Kind
	name string
	temp *durable.Temp
}

// NewBatch begins a batch.
func (s *Store) NewBatch() *Batch {
	return &Batch{s: s, seen: map[transcript.ID]bool{}, slots: make(chan struct{}, s.opts.Writers)}
}

// Seal adds a chunk; it is a transcript.Sealer. One that is there already is
// kept if it passes its fast checksum, and replaced if it does not. An error of
// an earlier chunk's file may come out here.
func (b *Batch) Seal(c transcript.Sealed) error {
	if len(c.Plain) > transcript.MaxPlain {
		return fmt.Errorf("chunk %s has %d bytes, more than the limit of %d", c.ID, len(c.Plain), transcript.MaxPlain)
	}
	return b.add(c.ID, c.Kind, c.Plain, nil)
}

// AddFrame adds a chunk that comes from elsewhere as a frame, which is checked
// by SHA-256 at once: a *[DamagedError] otherwise. Nobody may write into frame
// before the batch has ended.
func (b *Batch) AddFrame(id transcript.ID, frame []byte) error {
	kind, err := verify(id, frame)
	if err != nil {
		return err
	}
	return b.add(id, kind, nil, frame)
}

// add takes a chunk as plain bytes, which it copies, or as a frame.
func (b *Batch) add(id transcript.ID, kind transcript.Kind, plain, frame []byte) error {
	name, err := file(id)
	if err != nil {
		return err
	}
	if b.ended {
		return errEnded
	}
	if b.seen[id] {
		return nil
	}
	if len(b.seen) == 0 {
		if err := durable.MkdirAll(b.s.fs, folder); err != nil {
			return err
		}
	}
	b.slots <- struct{}{}
	if err := b.failure(); err != nil {
		<-b.slots
		return err
	}
	b.seen[id] = true
	b.index = b.index || kind == transcript.KindIndex
	buf := buffer()
	*buf = append(*buf, plain...)
	b.writers.Go(func() {
		defer func() { release(buf); <-b.slots }()
		temp, err := b.write(id, name, kind, *buf, frame)
		b.mu.Lock()
		defer b.mu.Unlock()
		if temp != nil {
			b.ready = append(b.ready, written{kind, name, temp})
		}
		if err != nil && b.err == nil {
			b.err = fmt.Errorf("chunk %s: %w", id, err)
		}
	})
	return nil
}

func (b *Batch) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// write writes a chunk's file unless a good one is there.
func (b *Batch) write(id transcript.ID, name string, kind transcript.Kind, plain, frame []byte) (*durable.Temp, error) {
	switch err := b.s.checkKnown(id); {
	case err == nil, errors.Is(err, transcript.ErrNewer):
		return nil, nil
	case !errors.Is(err, ErrMissing) && !errors.Is(err, transcript.ErrDamaged):
		return nil, err
	}
	if frame == nil {
		buf := buffer()
		defer release(buf)
		*buf = encode(*buf, kind, plain)
		frame = *buf
	}
	// An index chunk becomes visible after its parts, so it shares no file with them.
	if kind != transcript.KindIndex && !b.isLoose() {
		return nil, b.pack(id, frame)
	}
	return durable.WriteTemp(b.s.fs, name, frame)
}

// isLoose reports whether one more chunk gets a file of its own.
func (b *Batch) isLoose() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.loose++
	return b.loose <= b.s.opts.Loose
}

// pack adds a chunk to the pack that is being written.
func (b *Batch) pack(id transcript.ID, frame []byte) (err error) {
	b.packing.Lock()
	defer b.packing.Unlock()
	if b.packer == nil {
		if b.packer, err = newPacker(b.s.fs); err != nil {
			return err
		}
	}
	if err := b.packer.add(id, frame); err != nil {
		return err
	}
	if b.packer.size < maxPack {
		return nil
	}
	return b.finishPack()
}

// finishPack ends the pack that is being written, if there is one.
func (b *Batch) finishPack() error {
	if b.packer == nil {
		return nil
	}
	p, err := b.packer.finish()
	if err != nil {
		return err
	}
	b.packed = append(b.packed, packed{p, b.packer.temp})
	b.packer = nil
	return nil
}

// Commit makes the chunks visible, and durable before it returns, as well as all
// that were there before: whoever made those visible may not have come as far.
// Index chunks become visible after all others are durable. The context is honoured until
// the first chunk becomes visible. After an error some may be, which does no
// harm: no document names them.
func (b *Batch) Commit(ctx context.Context) error {
	if b.ended {
		return errEnded
	}
	defer b.Discard()
	b.writers.Wait()
	if err := errors.Join(b.failure(), ctx.Err()); err != nil {
		return err
	}
	if err := b.finishPack(); err != nil {
		return err
	}
	for _, p := range b.packed {
		if err := p.temp.Rename(p.pack.file); err != nil {
			return err
		}
		b.s.adopt(p.pack)
	}
	slices.SortFunc(b.ready, func(x, y written) int { return strings.Compare(x.name, y.name) })
	if err := b.publish(false); err != nil {
		return err
	}
	if !slices.ContainsFunc(b.ready, isIndex) {
		return nil
	}
	return b.publish(true)
}

// CommitLinked is [Batch.Commit] for who syncs the folder dir before anything
// names the chunks: instead of a sync of their own folder they get a second name
// there, by which [Store.Relink] brings back what a power cut took of the first.
// The second name goes when their folder was synced. It reports false where there
// are none to be had: then all is as after Commit. So it is with an index chunk:
// its parts have to be durable first, and no second name may bring it back
// without them.
func (b *Batch) CommitLinked(ctx context.Context, dir string) (linked bool, err error) {
	l, ok := b.s.fs.(durable.Linker)
	if b.ended || b.index || !ok {
		return false, b.Commit(ctx)
	}
	b.writers.Wait()
	if b.packer != nil || len(b.packed) > 0 {
		return false, b.Commit(ctx)
	}
	defer b.Discard()
	if err := errors.Join(b.failure(), ctx.Err()); err != nil {
		return false, err
	}
	if err := durable.MkdirAll(b.s.fs, dir); err != nil {
		return false, err
	}
	if err := b.rename(false); err != nil {
		return false, err
	}
	// Of this batch alone: who removes another's knows nothing of this one.
	own := "." + rand.Text() + suffix
	var links []string
	// Also those that were there: whoever made them visible may not have come as far.
	for id := range b.seen {
		link := dir + "/" + string(id) + own
		if err := l.Link(folder+"/"+string(id)+suffix, link); err != nil {
			b.s.unlink(links)
			return false, b.s.Sync()
		}
		links = append(links, link)
	}
	b.s.linked(links)
	return true, nil
}

// publish renames the index chunks, or all others, and syncs the folder.
func (b *Batch) publish(index bool) error {
	if err := b.rename(index); err != nil {
		return err
	}
	return b.s.Sync()
}

func (b *Batch) rename(index bool) error {
	for _, w := range b.ready {
		if isIndex(w) != index {
			continue
		}
		if err := w.temp.Rename(w.name); err != nil {
			return err
		}
	}
	return nil
}

func isIndex(w written) bool { return w.kind == transcript.KindIndex }

// Discard ends the batch and removes what is not visible. A file that cannot be
// removed is left to the sweep.
func (b *Batch) Discard() {
	b.ended = true
	b.writers.Wait()
	for _, w := range b.ready {
		_ = w.temp.Discard()
	}
	b.ready = nil
	for _, p := range b.packed {
		_ = p.temp.Discard()
	}
	b.packed = nil
	if b.packer != nil {
		_ = b.packer.temp.Discard()
	}
	b.packer = nil
}
