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
	"sess/store/transcript"
)

// sessionsOf makes so many sessions of about 100 KB.
func sessionsOf(tb testing.TB, dir string, n int) {
	tb.Helper()
	s := open(tb, dir)
	rnd := rand.New(rand.NewPCG(1, 1))
	for i := range n {
		l := s.New(session.Ref{Project: "default", ID: fmt.Sprintf("s%04d", i)}, "a title", "/w")
		for j := range 24 {
			ok(tb, l.Append(transcript.ListMessages, message(fmt.Sprintf("m%d", j), []string{"user", "agent"}[j%2], prose(rnd, 2<<10))))
			ok(tb, l.Append(transcript.ListHistory, transcript.Record(must(json.Marshal(transcript.HistoryItem{Role: "user", Content: prose(rnd, 2<<10)}))(tb))))
		}
		ok(tb, s.Create(tb.Context(), l))
	}
}

// BenchmarkLoadAll loads 1,000 sessions of 100 KB. It takes turns with reading and
// parsing the same files, and reports how many times as long it takes: at most 2.5
// times.
func BenchmarkLoadAll(b *testing.B) {
	dir := b.TempDir()
	sessionsOf(b, dir, 1000)
	s := open(b, dir)
	files := must(filepath.Glob(filepath.Join(dir, "default", "*.json")))(b)
	var own, bound float64
	for b.Loop() {
		own += seconds(func() {
			for view, err := range s.LoadAll(b.Context()) {
				if err != nil || len(view) == 0 {
					b.Fatal(err)
				}
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
}

// seconds is how long do takes.
func seconds(do func()) float64 {
	start := time.Now()
	do()
	return time.Since(start).Seconds()
}
