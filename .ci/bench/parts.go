package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sess/store/durable"
	"sess/store/snapshot"
	"sess/store/transcript"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/klauspost/compress/zstd"
)

// cpu is the processor time of this process so far.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peak tells the most memory in use, above what was in use before, while do
// runs. It is looked at a few times a millisecond, so a short peak is missed.
func peak(do func() error) (above uint64, err error) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	idle := m.HeapInuse + m.StackInuse
	var most atomic.Uint64
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				runtime.ReadMemStats(&m)
				most.Store(max(most.Load(), m.HeapInuse+m.StackInuse))
			}
		}
	}()
	err = do()
	close(stop)
	<-done
	return max(most.Load(), idle) - idle, err
}

// firstSave seals a new conversation of 50 MB into a pool, and does the least
// that could do: compress, hash and copy the same bytes.
func (b *bench) firstSave(ctx context.Context) error {
	const mb, rounds = 50, 3
	above, err := peak(func() error { return stream(ctx, filepath.Join(b.dir, "stream"), mb) })
	if err != nil {
		return err
	}
	text := newProse(11)
	var records []transcript.Record
	var plain bytes.Buffer
	for n := 0; plain.Len() < mb<<20; n++ {
		r := text.record(n, turnBytes)
		records = append(records, r)
		plain.Write(r)
		plain.WriteByte('\n')
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	var product, least samples
	for round := range rounds {
		dir := filepath.Join(b.dir, fmt.Sprintf("first%d", round))
		start := cpu()
		if err := sealInto(ctx, filepath.Join(dir, "pool"), records); err != nil {
			return err
		}
		product = append(product, cpu()-start)

		out, err := os.Create(filepath.Join(dir, "copy"))
		if err != nil {
			return err
		}
		start = cpu()
		var frame []byte
		for rest := plain.Bytes(); len(rest) > 0; {
			part := rest[:min(64<<10, len(rest))]
			rest = rest[len(part):]
			sum := sha256.Sum256(part)
			frame = enc.EncodeAll(part, frame[:0])
			if _, err := out.Write(append(frame, sum[:]...)); err != nil {
				return err
			}
		}
		if err := errors.Join(out.Sync(), out.Close()); err != nil {
			return err
		}
		least = append(least, cpu()-start)
	}
	b.row("first save of 50 MB, processor time", "zstd fastest, SHA-256 and a copy of the bytes", product.median()/least.median(), 1.3)
	b.row("first save of 50 MB, memory", "24 MB above idle", float64(above)/(24<<20), 1)
	return nil
}

// stream makes a conversation and saves it for the first time, without ever
// holding it in memory.
func stream(ctx context.Context, dir string, mb int) (err error) {
	live, err := newTalk(filepath.Join(dir, "live"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, live.fs.Close()) }()
	if err := live.speak(ctx, mb<<20/turnBytes); err != nil {
		return err
	}
	pool, err := snapshot.Open(filepath.Join(dir, "pool"), snapshot.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	return live.save(ctx, pool, snapshot.SaveRequest{Name: "first"})
}

// sealInto cuts records into chunks, seals them into a pool, and saves the
// document.
func sealInto(ctx context.Context, dir string, records []transcript.Record) (err error) {
	live, err := newTalk(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, live.fs.Close()) }()
	batch := live.chunks.NewBatch()
	list := live.doc.List(transcript.ListMessages)
	for len(records) > 0 {
		n := min(64, len(records))
		if err := list.Append(records[:n], batch.Seal); err != nil {
			batch.Discard()
			return err
		}
		records = records[n:]
	}
	if err := batch.Commit(ctx); err != nil {
		return err
	}
	pool, err := snapshot.Open(dir, snapshot.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	return live.save(ctx, pool, snapshot.SaveRequest{Name: "first"})
}

// writeSnapshots makes n small snapshots without syncing them: they are what is measured
// against, not what is measured.
func writeSnapshots(ctx context.Context, dir string, n int) (p *snapshot.Pool, err error) {
	live, err := newTalk(filepath.Join(dir, "live"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, live.fs.Close()) }()
	if err := live.speak(ctx, 3); err != nil {
		return nil, err
	}
	p, err = snapshot.Open(filepath.Join(dir, "pool"), snapshot.Options{})
	if err != nil {
		return nil, err
	}
	if err := live.save(ctx, p, snapshot.SaveRequest{Name: "n0"}); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	s, err := p.Read(ctx, "n0")
	hourAgo := time.Now().Add(-time.Hour) // a list trusts the times of files that are not young
	for i := 1; err == nil && i < n; i++ {
		s.Doc.Meta.ID = fmt.Sprintf("018f0000-0000-7000-8000-%012d", i)
		s.Doc.Meta.UpdatedAt = s.Doc.Meta.UpdatedAt.Add(time.Second)
		file := filepath.Join(p.Dir(), fmt.Sprintf("n%d.sess.json", i))
		err = errors.Join(os.WriteFile(file, s.Doc.Encode(), 0o600), os.Chtimes(file, hourAgo, hourAgo))
	}
	return p, err
}

func (b *bench) list(ctx context.Context) error {
	const n, rounds = 10_000, 7
	p, err := writeSnapshots(ctx, filepath.Join(b.dir, "list"), n)
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }()
	list := func(p *snapshot.Pool) error {
		list, err := p.List(ctx)
		if err == nil && len(list) != n {
			err = fmt.Errorf("%d snapshots listed, not %d", len(list), n)
		}
		return err
	}
	var product, bare, again, stats samples
	buf := make([]byte, 4<<10)
	for range rounds {
		fresh, err := snapshot.OpenExisting(p.Dir(), snapshot.Options{}) // one that has read nothing yet
		if err != nil {
			return err
		}
		err = errors.Join(
			product.time(func() error { return list(fresh) }),
			again.time(func() error { return list(fresh) }),
			stats.time(func() error {
				entries, err := os.ReadDir(p.Dir())
				for _, e := range entries {
					if err == nil {
						_, err = os.Lstat(filepath.Join(p.Dir(), e.Name()))
					}
				}
				return err
			}),
			fresh.Close(),
			bare.time(func() error {
				entries, err := os.ReadDir(p.Dir())
				if err != nil {
					return err
				}
				for _, e := range entries {
					if !e.Type().IsRegular() {
						continue
					}
					f, err := os.Open(filepath.Join(p.Dir(), e.Name()))
					if err != nil {
						return err
					}
					if _, err := io.ReadFull(f, buf); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
						return err
					}
					if err := f.Close(); err != nil {
						return err
					}
				}
				return nil
			}))
		if err != nil {
			return err
		}
	}
	b.row("list of 10,000", "readdir, and open and 4 KB of each", product.median()/bare.median(), 2)
	b.row("list of 10,000, again in the same process", "readdir, and lstat of each", again.median()/stats.median(), noBound)
	return nil
}

// reclaim deletes half of 1,000 snapshots, empties the trash and sweeps.
func (b *bench) reclaim(ctx context.Context) error {
	const n, rounds = 1000, 3
	var product, bare samples
	for round := range rounds {
		dir := filepath.Join(b.dir, fmt.Sprintf("reclaim%d", round))
		p, err := writeSnapshots(ctx, dir, n)
		if err != nil {
			return err
		}
		var names []snapshot.Name
		for i := range n / 2 {
			names = append(names, snapshot.Name(fmt.Sprintf("n%d", 2*i)))
		}
		plain, err := durable.OpenDir(filepath.Join(dir, "plain"))
		if err != nil {
			return err
		}
		for _, name := range names {
			data, err := os.ReadFile(filepath.Join(p.Dir(), string(name)+".sess.json"))
			if err == nil {
				err = os.WriteFile(filepath.Join(plain.Dir(), string(name)), data, 0o600)
			}
			if err != nil {
				return err
			}
		}
		syscall.Sync() // both begin with all files on the disk
		err = errors.Join(
			product.time(func() error {
				if _, _, err := p.Delete(ctx, names, snapshot.OpInfo{}); err != nil {
					return err
				}
				if _, _, err := p.EmptyTrash(ctx, 0, false); err != nil {
					return err
				}
				_, err := p.Sweep(ctx)
				return err
			}),
			bare.time(func() error {
				for _, name := range names {
					if err := plain.Remove(string(name)); err != nil {
						return err
					}
				}
				return plain.SyncDir(".")
			}))
		if err := errors.Join(err, plain.Close(), p.Close()); err != nil {
			return err
		}
	}
	b.row("delete 500 of 1,000, empty the trash, sweep", "unlink of the files", product.median()/bare.median(), 5)
	return nil
}
