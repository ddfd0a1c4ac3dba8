package session_test

import (
	"math/rand/v2"
	"testing"

	"sess/store/durable/durabletest"
	"sess/store/session"
	"sess/store/transcript"
)

// TestTurnCostsTheSameAtEverySize counts what storing one more turn of 8 KB asks
// of the disk.
func TestTurnCostsTheSameAtEverySize(t *testing.T) {
	t.Parallel()
	const turns, turn = 40, 8 << 10
	var first durabletest.Counts // of the shortest session
	for _, mb := range []int{1, 12, 40} {
		n := durabletest.Counter{Unsynced: true}
		s, err := session.Open(t.TempDir(), session.Options{FS: n.Open})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ok(t, s.Close()) })
		rnd := rand.New(rand.NewPCG(1, 1))
		records := make([]transcript.Record, 64)
		for i := range records {
			records[i] = message("m", "user", prose(rnd, turn))
		}
		l := s.New(ref, "t", "/w")
		for i := range mb << 20 / turn {
			ok(t, l.Append(transcript.ListMessages, records[i%len(records)]))
		}
		ok(t, s.Create(t.Context(), l))
		k := must(s.Lock(t.Context(), ref, "turn", false))(t)
		t.Cleanup(func() { ok(t, k.Unlock()) })
		quiet, written := 0, int64(0)
		for i := range turns {
			n.Take()
			ok(t, l.Append(transcript.ListMessages, message("n", "agent", prose(rnd, turn))))
			must(k.Write(t.Context(), l, l.Revision))(t)
			got := n.Take()
			written += got.Written
			if got.Synced > 2 {
				// A chunk and its folder; an index chunk becomes visible after those.
				if got.Synced > 6 || got.Created < 2 {
					t.Errorf("%d MB, turn %d: %s", mb, i, got)
				}
				continue
			}
			quiet++
			got.Written, got.ReadBack = 0, 0
			if first == (durabletest.Counts{}) {
				first = got
			}
			if got != first {
				t.Errorf("%d MB, turn %d: %s\nwant as at 1 MB: %s", mb, i, got, first)
			}
		}
		if quiet < turns/2 || quiet == turns {
			t.Errorf("%d MB: %d of %d turns sealed nothing, want most but not all", mb, quiet, turns)
		}
		if mean := written / turns; mean > 160<<10 {
			t.Errorf("%d MB: a turn writes %d bytes on average, want at most 160 KB", mb, mean)
		}
	}
}
