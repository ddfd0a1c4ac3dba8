package session_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"sess/store/transcript"
)

// BenchmarkTurn stores one more turn of 8 KB. It should not depend on how long
// the session is.
func BenchmarkTurn(b *testing.B) {
	for _, size := range []int{100 << 10, 50 << 20} {
		b.Run(fmt.Sprintf("%dKB", size>>10), func(b *testing.B) {
			s := open(b, b.TempDir())
			rnd := rand.New(rand.NewPCG(1, 1))
			l := s.New(ref, "t", "/w")
			for n := 0; n < size; n += 8 << 10 {
				if err := l.Append(transcript.ListMessages, message("m", "user", prose(rnd, 8<<10))); err != nil {
					b.Fatal(err)
				}
			}
			ok(b, s.Create(b.Context(), l))
			k := must(s.Lock(b.Context(), ref, "turn", false))(b)
			defer func() { ok(b, k.Unlock()) }()
			turn := make([]transcript.Record, 64)
			for i := range turn {
				turn[i] = message("m", "agent", prose(rnd, 8<<10))
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				ok(b, l.Append(transcript.ListMessages, turn[i%len(turn)]))
				must(k.Write(b.Context(), l, l.Revision))(b)
			}
		})
	}
}
