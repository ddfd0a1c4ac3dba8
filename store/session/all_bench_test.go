package session_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sess/store/session"
)

// sessionsOf makes so many sessions of 100 KB, as clients save them.
func sessionsOf(tb testing.TB, dir string, n int) {
	tb.Helper()
	rnd := rand.New(rand.NewPCG(1, 1))
	for i := range n {
		id := fmt.Sprintf("s%04d", i)
		o := newObject(id)
		o["updatedAt"] = rnd.IntN(1 << 40)
		for j := range 50 {
			o["messages"] = append(o.list("messages"), chatMessage(fmt.Sprintf("m%d", j), []string{"user", "agent"}[j%2], prose(rnd, 1900)))
		}
		put(tb, dir, session.Ref{Project: "default", ID: id}, string(o.raw(tb)))
	}
}

// BenchmarkLoadAll loads 1,000 sessions of 100 KB, as clients save them and as they
// are after a turn, when part of each is in chunks. It takes turns with reading and
// parsing those that clients have saved, and reports how many times as long it
// takes: at most 2.5 times.
func BenchmarkLoadAll(b *testing.B) {
	const n = 1000
	plain, turned := b.TempDir(), b.TempDir()
	sessionsOf(b, plain, n)
	sessionsOf(b, turned, n)
	s := open(b, turned)
	for _, info := range must(s.List(b.Context()))(b) {
		k := must(s.Lock(b.Context(), info.Ref, "turn", false))(b)
		l := must(k.Read(b.Context()))(b)
		must(k.Write(b.Context(), l, l.Revision))(b)
		ok(b, k.Unlock())
	}
	files := must(filepath.Glob(filepath.Join(plain, "default", "*.json")))(b)
	for _, c := range []struct{ name, dir string }{{"saved", plain}, {"turned", turned}} {
		b.Run(c.name, func(b *testing.B) {
			s := open(b, c.dir)
			var own, bound float64
			for b.Loop() {
				own += seconds(func() {
					got := 0
					for view, err := range s.LoadAll(b.Context()) {
						if err != nil || len(view) == 0 {
							b.Fatal(err)
						}
						got++
					}
					if got != n {
						b.Fatalf("%d sessions of %d", got, n)
					}
				})
				bound += seconds(func() {
					for _, file := range files {
						var v any
						data, err := os.ReadFile(file)
						if err == nil {
							err = json.Unmarshal(data, &v)
						}
						if err != nil {
							b.Fatal(err)
						}
					}
				})
			}
			b.ReportMetric(own/bound, "times")
		})
	}
}

// seconds is how long do takes.
func seconds(do func()) float64 {
	start := time.Now()
	do()
	return time.Since(start).Seconds()
}
