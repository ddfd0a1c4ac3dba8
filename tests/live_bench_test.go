package tests

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"sess/store/session"
	"sess/store/transcript"
)

// BenchmarkLiveTurn measures a turn of the offline model over HTTP, with autosave,
// in a session of 50 MB against one of 100 KB. The model is given all that was said,
// and reads it: how long that alone takes is measured, too. They take turns; "ratio"
// is that of the medians, "host-ratio" what is left of it beside that reading, and
// has to stay below 1.5.
func BenchmarkLiveTurn(b *testing.B) {
	u := newUser(b)
	u.configure(`{"autoSave": true}`)
	w := u.serve()
	sizes := []struct {
		id    string
		bytes int
	}{{"small", 100 << 10}, {"large", 50 << 20}}
	for _, s := range sizes {
		live := w.host.Sessions().New(session.Ref{Project: "default", ID: s.id}, "", "")
		for n := 0; n < s.bytes; n += 8 << 10 {
			for i, role := range []transcript.Role{transcript.RoleUser, transcript.RoleAgent} {
				text := fmt.Sprintf("%s %d %s", uuid.NewString(), i, strings.Repeat("what was said then ", 4<<10/19))
				r := fmt.Appendf(nil, `{"id":%q,"role":%q,"content":%q,"status":"complete"}`, uuid.NewString(), role, text)
				if err := live.Append(transcript.ListMessages, r); err != nil {
					b.Fatal(err)
				}
			}
		}
		if err := w.host.Sessions().Create(b.Context(), live); err != nil {
			b.Fatal(err)
		}
		w.want(200, nil, "POST", "/sessions/"+s.id+"/messages", `{"content": "the first one"}`) // makes the history
	}
	read := func() {
		live, err := w.host.Sessions().Read(b.Context(), session.Ref{Project: "default", ID: "large"})
		if err != nil {
			b.Fatal(err)
		}
		words := 0
		for item, err := range transcript.History(&live.Doc, live.Load, "offline", 0, live.Doc.List(transcript.ListHistory).Records) {
			if err != nil {
				b.Fatal(err)
			}
			for range strings.FieldsSeq(item.Content) {
				words++
			}
		}
		if words == 0 {
			b.Fatal("the history is empty")
		}
	}
	times := make([][]time.Duration, len(sizes)+1)
	for b.Loop() {
		for i, s := range sizes {
			started := time.Now()
			w.want(200, nil, "POST", "/sessions/"+s.id+"/messages", `{"content": "and another"}`)
			times[i] = append(times[i], time.Since(started))
		}
		started := time.Now()
		read()
		times[len(sizes)] = append(times[len(sizes)], time.Since(started))
	}
	median := make([]float64, len(times))
	for i := range times {
		slices.Sort(times[i])
		median[i] = float64(times[i][len(times[i])/2])
	}
	small, large, reading := median[0], median[1], median[2]
	b.ReportMetric(small/1e6, "small-ms")
	b.ReportMetric(large/1e6, "large-ms")
	b.ReportMetric(reading/1e6, "reading-ms")
	b.ReportMetric(large/small, "ratio")
	b.ReportMetric(large/(small+reading), "host-ratio")
}
