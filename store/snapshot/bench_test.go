package snapshot_test

import (
	"fmt"
	"testing"
	"time"

	"sess/store/durable"
	"sess/store/durable/durabletest"
	"sess/store/snapshot"
)

// measure is how long durable writes of a turn's 8 KB take here: what a save
// costs is told in these. It is taken between the operations, so that it meets
// the same disk.
type measure struct {
	fs    durable.FS
	data  []byte
	took  time.Duration
	count int
}

func newMeasure(b *testing.B) *measure {
	fsys, err := durable.OpenDir(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = fsys.Close() })
	return &measure{fs: fsys, data: make([]byte, 8<<10)}
}

// between runs while the benchmark's clock stands still.
func (m *measure) between(b *testing.B, prepare func()) {
	b.StopTimer()
	defer b.StartTimer()
	start := time.Now()
	if err := durable.Write(m.fs, "x", m.data); err != nil {
		b.Fatal(err)
	}
	m.took += time.Since(start)
	m.count++
	prepare()
}

func (m *measure) report(b *testing.B) {
	write := float64(m.took) / float64(m.count)
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/write, "x-write")
}

func BenchmarkSave(b *testing.B) {
	for _, size := range []int{1 << 20, 50 << 20} {
		for _, kind := range []string{"rolling", "overwrite", "new"} {
			b.Run(fmt.Sprintf("%s/%dMB", kind, size>>20), func(b *testing.B) {
				p := openPool(b, b.TempDir(), snapshot.Options{})
				c := newTalk("s1").speak("x", size/(8<<10), 8<<10)
				c.mustSave(b, p, snapshot.SaveRequest{Name: "a~"})
				m := newMeasure(b)
				i := 0
				for b.Loop() {
					m.between(b, func() { c.speak("y", 1, 8<<10) })
					r := snapshot.SaveRequest{Name: "a~", Rolling: kind == "rolling", Overwrite: kind == "overwrite"}
					if kind == "new" {
						i++
						r.Name = snapshot.Name(fmt.Sprintf("n%d", i))
					}
					c.mustSave(b, p, r)
				}
				m.report(b)
			})
		}
	}
}

func BenchmarkCopyAndRename(b *testing.B) {
	p := openPool(b, b.TempDir(), snapshot.Options{})
	newTalk("s1").speak("x", 50<<7, 8<<10).mustSave(b, p, snapshot.SaveRequest{Name: "n0"})
	b.Run("copy", func(b *testing.B) {
		m := newMeasure(b)
		for i := 0; b.Loop(); i++ {
			m.between(b, func() {})
			if _, err := p.Copy(b.Context(), "n0", snapshot.Name(fmt.Sprintf("c%d-%d", b.N, i)), snapshot.CopyOptions{}); err != nil {
				b.Fatal(err)
			}
		}
		m.report(b)
	})
	b.Run("rename", func(b *testing.B) {
		from, to := snapshot.Name("n0"), snapshot.Name("n1")
		m := newMeasure(b)
		for b.Loop() {
			m.between(b, func() {})
			if _, _, err := p.Rename(b.Context(), from, to, snapshot.RenameOptions{}); err != nil {
				b.Fatal(err)
			}
			from, to = to, from
		}
		m.report(b)
	})
}

func BenchmarkList(b *testing.B) {
	for _, n := range []int{1000, 2000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := openPool(b, b.TempDir(), snapshot.Options{FS: durabletest.Unsynced})
			c := newTalk("s1").speak("x", 10, 8<<10)
			for i := range n {
				c.mustSave(b, p, snapshot.SaveRequest{Name: snapshot.Name(fmt.Sprintf("n%d", i))})
			}
			for b.Loop() {
				list, err := p.List(b.Context())
				if err != nil || len(list) != n {
					b.Fatalf("%d, %v", len(list), err)
				}
			}
		})
	}
}
