package host

import (
	"testing"
	"time"
)

func TestAgo(t *testing.T) {
	t.Parallel()
	now := time.Date(2031, 12, 31, 12, 0, 0, 0, time.UTC)
	for before, want := range map[time.Duration]string{
		-2 * time.Minute: "in the future (2031-12-31)", -time.Second: "now", 0: "now", 999 * time.Millisecond: "now",
		time.Second: "1s ago", 12500 * time.Millisecond: "12s ago", time.Minute: "1m ago", 61 * time.Minute: "1h ago",
		47 * time.Hour: "47h ago", 48 * time.Hour: "2d ago", 60 * 24 * time.Hour: "2031-11-01",
	} {
		if got := ago(now.Add(-before), now); got != want {
			t.Errorf("%v before: %q, want %q", before, got, want)
		}
	}
}
