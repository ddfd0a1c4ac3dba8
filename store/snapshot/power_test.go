package snapshot_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sess/store/chunk"
	"sess/store/durable"
	"sess/store/durable/durabletest"
	"sess/store/snapshot"
	"sess/store/transcript"
)

var everyCut = flag.Bool("everycut", false, "cut the power after every step on the disk, not after one of five")

// stepped calls after behind everything that changes the folder, or makes a
// change durable.
type stepped struct {
	durable.FS
	after func()
}

func (s *stepped) step(err error) error {
	s.after()
	return err
}

func (s *stepped) Create(name string) (durable.File, error) {
	f, err := s.FS.Create(name)
	return f, s.step(err)
}

func (s *stepped) Rename(oldName, newName string) error {
	return s.step(s.FS.Rename(oldName, newName))
}

func (s *stepped) Link(oldName, newName string) error {
	return s.step(s.FS.(durable.Linker).Link(oldName, newName))
}

func (s *stepped) Remove(name string) error  { return s.step(s.FS.Remove(name)) }
func (s *stepped) Mkdir(name string) error   { return s.step(s.FS.Mkdir(name)) }
func (s *stepped) SyncDir(name string) error { return s.step(s.FS.SyncDir(name)) }

// held is what the names hold, each by its length and beginning, and what the
// trash shows.
func held(t *testing.T, p *snapshot.Pool) (names, trash string) {
	t.Helper()
	list, err := p.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	texts := map[snapshot.Name]string{}
	for _, e := range list {
		text := content(t, p, e.Name)
		texts[e.Name] = fmt.Sprintf("%.4s%d", text, len(text))
	}
	for _, n := range slices.Sorted(maps.Keys(texts)) {
		names += fmt.Sprintf("%s=%q ", n, texts[n])
	}
	return names, trashed(t, p)
}

// powered are the operations of which each is tried after an overwrite whose
// chunk is durable by its second name alone.
func powered() []change {
	c := newTalk("s3").speak("y", 20, 8<<10)
	more := func(r snapshot.SaveRequest) func(context.Context, *snapshot.Pool) error {
		return func(ctx context.Context, p *snapshot.Pool) error {
			_, err := c.save(ctx, p, r)
			return err
		}
	}
	return append(
		slices.Clone(changes),
		change{name: "save that seals", do: more(snapshot.SaveRequest{Name: "d"})},
		change{name: "autosave that seals", do: more(snapshot.SaveRequest{Name: "c~", Rolling: true})},
		change{name: "overwrite that seals", do: more(snapshot.SaveRequest{Name: "b", Overwrite: true})},
		change{name: "tag", do: func(ctx context.Context, p *snapshot.Pool) error {
			_, err := setTag(ctx, p, "a")
			return err
		}},
		change{name: "trash empty", prepare: remove, do: func(ctx context.Context, p *snapshot.Pool) error {
			_, _, err := p.EmptyTrash(ctx, 0, false)
			return err
		}},
		change{name: "sweep", prepare: remove, do: func(ctx context.Context, p *snapshot.Pool) error {
			_, err := p.Sweep(ctx)
			return err
		}},
		change{name: "recover", do: func(ctx context.Context, p *snapshot.Pool) error {
			_, err := p.Recover(ctx, nil)
			return err
		}},
	)
}

func setTag(ctx context.Context, p *snapshot.Pool, name snapshot.Name) (snapshot.Entry, error) {
	return p.SetMeta(ctx, name, func(m *transcript.Meta) error {
		m.Tags = map[string]string{"k": "v"}
		return nil
	}, true)
}

// TestPowerCutAnywhere cuts the power after steps on the disk of everything that
// changes a pool, in one whose newest chunks are durable by their second
// name alone. After the next start the names hold the old state or the new one,
// whole, also when the power goes again and when all is swept; and what was
// answered for is there.
func TestPowerCutAnywhere(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for i, c := range powered() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, uint64(i)))
			top := t.TempDir()
			power, err := durabletest.NewPower(top)
			if err != nil {
				t.Fatal(err)
			}
			disk := &stepped{after: func() {}}
			now := newClock()
			p := openPool(t, filepath.Join(top, "pool"), snapshot.Options{Now: now.Now, Chunks: chunk.Options{Writers: 1}, FS: func(dir string) (durable.FS, error) {
				disk.FS, err = power.Open(dir)
				return disk, err
			}})
			put(t, p, "c~", "C")
			put(t, p, "a", "A")
			put(t, p, "b", "B")
			overwriteSealing(t, p, newTalk("s1").speak("x", 20, 8<<10))
			if c.prepare != nil {
				if err := c.prepare(t.Context(), p); err != nil {
					t.Fatalf("prepare: %v", err)
				}
			}
			now.Add(2 * time.Hour) // what nobody needs may be swept
			before, trashBefore := held(t, p)
			type outcome struct {
				step         int
				names, trash string
			}
			var found []outcome
			steps := 0
			disk.after = func() {
				if steps++; *everyCut || rnd.IntN(5) == 0 {
					names, trash := afterCut(t, power, rnd, now)
					found = append(found, outcome{steps, names, trash})
				}
			}
			err = c.do(t.Context(), p)
			disk.after = func() {}
			if err != nil {
				t.Fatal(err)
			}
			after, trashAfter := held(t, p)
			for _, f := range found {
				switch {
				case f.names != before && f.names != after:
					t.Errorf("power cut after step %d: the names hold %s, want %s or %s", f.step, f.names, before, after)
				case before != after && f.trash != map[string]string{before: trashBefore, after: trashAfter}[f.names]:
					t.Errorf("power cut after step %d: with %s the trash shows %q", f.step, f.names, f.trash)
				}
			}
			if names, trash := afterCut(t, power, rnd, now); names != after || trash != trashAfter {
				t.Errorf("power cut after the answer: the names hold %s, the trash %q; want %s and %q", names, trash, after, trashAfter)
			}
			if steps == 0 {
				t.Error("nothing was done to the disk")
			}
		})
	}
}

// afterCut cuts the power, once more when what it left was settled, and returns
// what a pool has then, of which everything is whole.
func afterCut(t *testing.T, power *durabletest.Power, rnd *rand.Rand, now *clock) (names, trash string) {
	t.Helper()
	dir := t.TempDir()
	first, second := filepath.Join(dir, "1"), filepath.Join(dir, "2")
	if err := power.Cut(first, rnd); err != nil {
		t.Fatal(err)
	}
	again, err := durabletest.NewPower(first)
	if err != nil {
		t.Fatal(err)
	}
	start := func(dir string, open durable.OpenFunc) *snapshot.Pool {
		p := openPool(t, filepath.Join(dir, "pool"), snapshot.Options{Now: now.Now, FS: open})
		if _, err := p.Recover(t.Context(), nil); err != nil {
			t.Errorf("Recover: %v", err)
		}
		return p
	}
	start(first, again.Open)
	if err := again.Cut(second, rnd); err != nil {
		t.Fatal(err)
	}
	p := start(second, durabletest.Unsynced)
	if links := links(t, p.Dir()); len(links) > 0 {
		t.Errorf("after Recover there are second names: %v", links)
	}
	if r, err := p.Sweep(t.Context()); err != nil || r.Skipped != "" {
		t.Errorf("Sweep: %+v, %v", r, err)
	}
	r, err := p.Verify(t.Context(), nil, nil)
	if err != nil || len(r.Problems) > 0 {
		t.Errorf("Verify: %+v, %v", r.Problems, err)
	}
	return held(t, p)
}

// TestPowerCutAmongSeveral has several processes, as it were, save over snapshots
// of their own with chunks of their own, while another settles and sweeps the
// pool, and cuts the power in between: what was answered for is there.
func TestPowerCutAmongSeveral(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	top := t.TempDir()
	power, err := durabletest.NewPower(top)
	if err != nil {
		t.Fatal(err)
	}
	now := newClock()
	open := func() *snapshot.Pool {
		return openPool(t, filepath.Join(top, "pool"), snapshot.Options{Now: now.Now, FS: power.Open})
	}
	const savers, rounds = 3, 6
	var answered [savers]atomic.Int64 // bytes of what was saved
	name := func(i int) snapshot.Name { return snapshot.Name(fmt.Sprintf("n%d", i)) }
	open().Close()
	var busy, tidy sync.WaitGroup
	done := make(chan struct{})
	for i := range savers {
		busy.Go(func() {
			p, c := open(), newTalk(fmt.Sprintf("s%d", i))
			for round := range rounds {
				for before := len(c.sealed); len(c.sealed) == before; {
					c.speak(fmt.Sprintf("of %d", i), 4, 8<<10)
				}
				// Some make .chunks durable, for others the second name is enough.
				r := snapshot.SaveRequest{Name: name(i), Overwrite: round%3 != 2, Rolling: round%3 == 2}
				if _, err := c.save(t.Context(), p, r); err != nil {
					t.Errorf("save %d of %s: %v", round, r.Name, err)
					return
				}
				answered[i].Store(c.doc.Meta.Bytes)
			}
		})
	}
	tidy.Go(func() {
		p := open()
		for {
			select {
			case <-done:
				return
			default:
			}
			if _, err := p.Recover(t.Context(), nil); err != nil {
				t.Errorf("Recover: %v", err)
			}
			now.Add(2 * time.Hour)
			if _, err := p.Sweep(t.Context()); err != nil {
				t.Errorf("Sweep: %v", err)
			}
		}
	})
	tidy.Go(func() {
		rnd := rand.New(rand.NewPCG(seed, 0))
		for last := false; !last; {
			select {
			case <-done:
				last = true
			default:
			}
			var want [savers]int64
			for i := range want {
				want[i] = answered[i].Load()
			}
			left := filepath.Join(t.TempDir(), "left")
			if err := power.Cut(left, rnd); err != nil {
				t.Error(err)
				return
			}
			p := openPool(t, filepath.Join(left, "pool"), snapshot.Options{Now: now.Now, FS: durabletest.Unsynced})
			if _, err := p.Recover(t.Context(), nil); err != nil {
				t.Errorf("Recover after a cut: %v", err)
			}
			for i := range want {
				s, err := p.Read(t.Context(), name(i))
				if err == nil {
					err = p.Check(t.Context(), s, nil)
				}
				if want[i] == 0 && errors.As(err, new(*snapshot.NotFoundError)) {
					continue
				}
				if err != nil || s.Doc.Meta.Bytes < want[i] {
					t.Errorf("after a cut %s: %v, want the %d bytes that were answered for", name(i), err, want[i])
				}
			}
		}
	})
	busy.Wait()
	close(done)
	tidy.Wait()
}
