package plugin_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sess/plugin"
)

func TestAgo(t *testing.T) {
	t.Parallel()
	now := time.Date(2031, 12, 31, 12, 0, 0, 0, time.UTC)
	for before, want := range map[time.Duration]string{
		-2 * time.Minute: "in the future (2031-12-31)", -time.Second: "now", 0: "now", 999 * time.Millisecond: "now",
		time.Second: "1s ago", 12500 * time.Millisecond: "12s ago", time.Minute: "1m ago", 61 * time.Minute: "1h ago",
		47 * time.Hour: "47h ago", 48 * time.Hour: "2d ago", 60 * 24 * time.Hour: "2031-11-01",
	} {
		if got := plugin.Ago(now.Add(-before), now); got != want {
			t.Errorf("%v before: %q, want %q", before, got, want)
		}
	}
	if got := plugin.Ago(time.Time{}, now); got != "-" {
		t.Errorf("no time: %q, want -", got)
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		0: "0", 1023: "1023", 1024: "1.0K", 14_541: "14.2K", 1<<20 - 1: "1.0M", 3 << 20: "3.0M", 1<<63 - 1: "8.0E",
	} {
		if got := plugin.Size(n); got != want {
			t.Errorf("Size(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	rows := [][]string{{"é", "two\n lines"}, {"longer", ""}}
	for _, tt := range []struct {
		header []string
		rows   [][]string
		want   string
	}{
		{[]string{"A", "B"}, rows, "A       B\n-----------------\né       two lines\nlonger"},
		{nil, rows, "é       two lines\nlonger"},
		{[]string{"A", "B"}, nil, "A  B\n----"},
		{nil, nil, ""},
	} {
		if diff := cmp.Diff(tt.want, plugin.Table(tt.header, tt.rows)); diff != "" {
			t.Errorf("Table(%q, %q) (-want +got):\n%s", tt.header, tt.rows, diff)
		}
	}
}
