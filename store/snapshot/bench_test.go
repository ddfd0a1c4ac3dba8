package snapshot_test

import (
	"fmt"
	"testing"
	"time"

	"sess/store/durable"
	"sess/store/snapshot"
)

// plainWrite is how long one durable write of a turn's 8 KB takes here: the
// measure for what a save costs beyond it.
func plainWrite(b *testing.B) time.Duration {
	fsys, err := durable.OpenDir(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer fsys.Close()
	data := make([]byte, 8<<10)
	const rounds = 30
	start := time.Now()
	for range rounds {
		if err := durable.Write(fsys, "x", data); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(start) / rounds
}

func BenchmarkSave(b *testing.B) {
	for _, size := range []int{1 << 20, 50 << 20} {
		for _, kind := range []string{"rolling", "overwrite", "new"} {
			b.Run(fmt.Sprintf("%s/%dMB", kind, size>>20), func(b *testing.B) {
				p := openPool(b, b.TempDir(), snapshot.Options{})
				c := newTalk("s1").speak("x", size/(8<<10), 8<<10)
				c.mustSave(b, p, snapshot.SaveRequest{Name: "a~"})
				plain := plainWrite(b)
				i := 0
				for b.Loop() {
					b.StopTimer()
					c.speak("y", 1, 8<<10)
					r := snapshot.SaveRequest{Name: "a~", Rolling: kind == "rolling", Overwrite: kind == "overwrite"}
					if kind == "new" {
						i++
						r.Name = snapshot.Name(fmt.Sprintf("n%d", i))
					}
					b.StartTimer()
					c.mustSave(b, p, r)
				}
				ratio(b, plain)
			})
		}
	}
}

func ratio(b *testing.B, plain time.Duration) {
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(plain), "x-write")
}

func BenchmarkCopyAndRename(b *testing.B) {
	p := openPool(b, b.TempDir(), snapshot.Options{})
	newTalk("s1").speak("x", 50<<7, 8<<10).mustSave(b, p, snapshot.SaveRequest{Name: "n0"})
	plain := plainWrite(b)
	b.Run("copy", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if _, err := p.Copy(b.Context(), "n0", snapshot.Name(fmt.Sprintf("c%d-%d", b.N, i)), snapshot.CopyOptions{}); err != nil {
				b.Fatal(err)
			}
		}
		ratio(b, plain)
	})
	b.Run("rename", func(b *testing.B) {
		from, to := snapshot.Name("n0"), snapshot.Name("n1")
		for b.Loop() {
			if _, _, err := p.Rename(b.Context(), from, to, snapshot.RenameOptions{}); err != nil {
				b.Fatal(err)
			}
			from, to = to, from
		}
		ratio(b, plain)
	})
}

func BenchmarkList(b *testing.B) {
	for _, n := range []int{1000, 2000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := openPool(b, b.TempDir(), snapshot.Options{FS: openQuick})
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
