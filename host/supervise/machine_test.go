package supervise

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNextOverEveryPair(t *testing.T) {
	t.Parallel()
	type step struct {
		to Phase
		// more is what the count of failures, 2 before, grows by; fresh says
		// that it is 0 instead.
		more  int
		fresh bool
		do    []action
	}
	// A pair that is not listed changes nothing.
	changes := map[Phase]map[event]step{
		Stopped: {
			wanted: {to: Starting, fresh: true, do: []action{launch}},
			revive: {to: Starting, fresh: true, do: []action{launch}},
		},
		Starting: {
			started: {to: Ready, do: []action{armSettled}},
			broke:   {to: Backoff, more: 1, do: []action{disarm, armDue}},
			refused: {to: Failed, more: 1},
			stop:    {to: Draining, do: []action{abort}},
		},
		Ready: {
			exited:  {to: Backoff, more: 1, do: []action{disarm, armDue}},
			settled: {to: Ready, fresh: true},
			stop:    {to: Draining, do: []action{disarm, drain}},
		},
		Draining: {
			started: {to: Draining, do: []action{drain}},
			broke:   {to: Stopped, fresh: true},
			refused: {to: Stopped, fresh: true},
			exited:  {to: Stopped, fresh: true},
		},
		Backoff: {
			due:    {to: Starting, do: []action{launch}},
			revive: {to: Starting, do: []action{disarm, launch}},
			stop:   {to: Stopped, fresh: true, do: []action{disarm}},
		},
		Failed: {
			revive: {to: Starting, fresh: true, do: []action{launch}},
			stop:   {to: Stopped, fresh: true},
		},
	}
	for _, phase := range []Phase{Stopped, Starting, Ready, Draining, Backoff, Failed} {
		for e := wanted; e <= stop; e++ {
			want := machine{phase, 2}
			var do []action
			if s, ok := changes[phase][e]; ok {
				want = machine{s.to, 2 + s.more}
				if s.fresh {
					want.failures = 0
				}
				do = s.do
			}
			got, actions := next(machine{phase, 2}, e)
			if got != want {
				t.Errorf("next(%s, event %d) = %+v, want %+v", phase, e, got, want)
			}
			if diff := cmp.Diff(do, actions); diff != "" {
				t.Errorf("next(%s, event %d): actions (-want +got):\n%s", phase, e, diff)
			}
		}
	}
}

func TestTheFifthFailureInARowIsTheLast(t *testing.T) {
	t.Parallel()
	m := machine{Stopped, 0}
	m, _ = next(m, wanted)
	for i := 1; i < maxFailures; i++ {
		if m, _ = next(m, broke); m != (machine{Backoff, i}) {
			t.Fatalf("after %d failures: %+v", i, m)
		}
		m, _ = next(m, due)
	}
	if m, _ = next(m, broke); m != (machine{Failed, maxFailures}) {
		t.Errorf("after %d failures: %+v", maxFailures, m)
	}
}
