package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sess/store/snapshot"
)

// churn saves, overwrites, copies, deletes and restores under names of its own,
// and reads each time what it has. All who churn save the same few conversations,
// so that what one of them lets go another one wants again. It leaves a snapshot
// under the name who.
func churn(ctx context.Context, p *snapshot.Pool, who string, rounds int, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 0))
	talks := make([]*talk, 8)
	for i := range talks {
		talks[i] = newTalk("s1").speak(fmt.Sprint("talk ", i), 6, 60<<10)
	}
	name, other := snapshot.Name(who), snapshot.Name(who+"-other")
	whole := func(name snapshot.Name) error {
		s, err := p.Read(ctx, name)
		if err == nil {
			err = p.Check(ctx, s, nil)
		}
		return err
	}
	save := func(name snapshot.Name) error {
		_, err := talks[rng.IntN(len(talks))].save(ctx, p, snapshot.SaveRequest{Name: name, Overwrite: true})
		return err
	}
	if err := save(name); err != nil {
		return fmt.Errorf("the first save of %s: %w", name, err)
	}
	for i := range rounds {
		<-time.After(time.Duration(rng.IntN(8)) * time.Millisecond) // a sweep takes place only while nobody saves
		what := [...]string{"save", "copy", "delete and save", "delete and restore"}[rng.IntN(4)]
		var err error
		switch what {
		case "save":
			err = save(name)
		case "copy":
			if _, err = p.Copy(ctx, name, other, snapshot.CopyOptions{Overwrite: true}); err == nil {
				err = whole(other)
			}
		case "delete and save":
			if _, _, err = p.Delete(ctx, []snapshot.Name{name}, snapshot.OpInfo{}); err == nil {
				err = save(name)
			}
		case "delete and restore":
			if _, _, err = p.Delete(ctx, []snapshot.Name{name}, snapshot.OpInfo{}); err != nil {
				break
			}
			// The trash may have been emptied; what comes back is whole.
			_, err = p.RestoreTrash(ctx, who, "")
			if _, gone := errors.AsType[*snapshot.NotFoundError](err); gone {
				err = save(name)
			}
		}
		if err == nil {
			err = whole(name)
		}
		if err != nil {
			return fmt.Errorf("%s, round %d, %s: %w", who, i, what, err)
		}
	}
	return nil
}

// sweepAll empties the trash and sweeps, as if hours had passed, until done is
// closed. It returns how many chunks it removed.
func sweepAll(t *testing.T, dir string, done <-chan struct{}) int {
	t.Helper()
	later := openPool(t, dir, snapshot.Options{Now: func() time.Time { return time.Now().Add(2 * time.Hour) }})
	removed := 0
	for {
		if _, _, err := later.EmptyTrash(t.Context(), 0, false); err != nil {
			t.Errorf("EmptyTrash: %v", err)
		}
		r, err := later.Sweep(t.Context())
		if err != nil {
			t.Errorf("Sweep: %v", err)
		}
		removed += r.Chunks
		select {
		case <-done:
			return removed
		default:
		}
	}
}

// A sweep takes no chunk that somebody is about to refer to, however saves,
// copies, deletes and restores fall together with it: in one process on one pool
// and on several, and between processes.
func TestSweepRacesWriters(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	const writing, rounds = 2, 40
	for _, tt := range []struct {
		name string
		run  func(t *testing.T, shared *snapshot.Pool, i int) error
	}{
		{"one pool", func(t *testing.T, shared *snapshot.Pool, i int) error {
			return churn(t.Context(), shared, fmt.Sprint("w", i), rounds, seed+uint64(i))
		}},
		{"several pools", func(t *testing.T, shared *snapshot.Pool, i int) error {
			own, err := snapshot.Open(shared.Dir(), snapshot.Options{})
			if err != nil {
				return err
			}
			return errors.Join(churn(t.Context(), own, fmt.Sprint("w", i), rounds, seed+uint64(i)), own.Close())
		}},
		{"several processes", func(t *testing.T, shared *snapshot.Pool, i int) error {
			cmd := child(t, "churn", shared.Dir())
			cmd.Env = append(cmd.Env, "SESS_TEST_MARK=w"+strconv.Itoa(i), "SESS_TEST_SEED="+strconv.FormatUint(seed+uint64(i), 10))
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("process %d: %w: %s", i, err, out)
			}
			return nil
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			shared := openPool(t, t.TempDir(), snapshot.Options{})
			done := make(chan struct{})
			var writers sync.WaitGroup
			for i := range writing {
				writers.Go(func() {
					if err := tt.run(t, shared, i); err != nil {
						t.Error(err)
					}
				})
			}
			go func() {
				defer close(done)
				writers.Wait()
			}()
			if removed := sweepAll(t, shared.Dir(), done); removed == 0 {
				t.Error("nothing was swept while they wrote: the test shows nothing")
			} else {
				t.Logf("%d chunks swept meanwhile", removed)
			}
			for i := range writing {
				if got := content(t, shared, snapshot.Name(fmt.Sprint("w", i))); strings.Count(got, "\n") != 6 {
					t.Errorf("w%d has %d messages, want 6", i, strings.Count(got, "\n"))
				}
			}
			if r, err := shared.Verify(t.Context(), nil, nil); err != nil || len(r.Problems) != 0 {
				t.Errorf("Verify: %+v, %v", r.Problems, err)
			}
		})
	}
}

// churnAlone is [churn] in a process of its own.
func churnAlone(ctx context.Context, p *snapshot.Pool) error {
	seed, err := strconv.ParseUint(os.Getenv("SESS_TEST_SEED"), 10, 64)
	if err != nil {
		return err
	}
	return churn(ctx, p, os.Getenv("SESS_TEST_MARK"), 40, seed)
}
