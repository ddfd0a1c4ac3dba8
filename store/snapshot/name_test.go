package snapshot_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"sess/store/snapshot"
)

// S1-34, S1-35: a name has ASCII letters, digits, hyphens, underscores and a few
// more, at most 128.
func TestParseName(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", snapshot.MaxName)
	tests := []struct {
		text       string
		suggestion string // empty: it is a name
	}{
		{"v1", ""},
		{"_x", ""},
		{"9.2-rc~1_b", ""},
		{"autosave~", ""},
		{long, ""},
		{"console", ""},
		{"com", ""},
		{"", "my-snapshot"},
		{"sql opt", "sql-opt"},
		{"say \"hi\"", "say-hi"},
		{" v1 ", "v1"},
		{".", "my-snapshot"},
		{"..", "my-snapshot"},
		{"~", "my-snapshot"},
		{"-v", "v"},
		{".hidden", "hidden"},
		{"../../canary", "canary"},
		{"..%2f..%2fcanary", "2f.-2fcanary"},
		{`C:\canary`, "C-canary"},
		{"/somewhere/canary", "somewhere-canary"},
		{"a\x00b", "a-b"},
		{"a\nb", "a-b"},
		{"a..b", "a.b"},
		{"end.", "end"},
		{"plan計画", "plan"},
		{"日本", "my-snapshot"},
		{"50%", "50"},
		{"A%20b", "A-20b"},
		{"con", "my-con"},
		{"NUL.txt", "my-NUL.txt"},
		{"com1", "my-com1"},
		{"lpt9.x", "my-lpt9.x"},
		{long + "a", long},
	}
	for _, tt := range tests {
		got, err := snapshot.ParseName(tt.text)
		if tt.suggestion == "" {
			if err != nil || string(got) != tt.text {
				t.Errorf("ParseName(%q) = %q, %v; want it unchanged", tt.text, got, err)
			}
			continue
		}
		ne, ok := errors.AsType[*snapshot.NameError](err)
		if !ok {
			t.Errorf("ParseName(%q) = %q, %v; want a *NameError", tt.text, got, err)
			continue
		}
		if ne.Suggestion != tt.suggestion {
			t.Errorf("ParseName(%q) suggests %q, want %q", tt.text, ne.Suggestion, tt.suggestion)
		}
		if _, err := snapshot.ParseName(ne.Suggestion); err != nil {
			t.Errorf("ParseName(%q) suggests %q, which is no name: %v", tt.text, ne.Suggestion, err)
		}
	}
}

// What is a name, said once more; and what is none is refused with a name close
// by.
func FuzzParseName(f *testing.F) {
	for _, s := range []string{
		"", "sql opt", "..", "con", "aux.", "COM1.txt", "lpt0", "nul~", "日本", strings.Repeat("-a", 200), strings.Repeat("a", 128), strings.Repeat("a", 129),
		"a.\u00e9.b", "con..", "a..b", "v1", "_a", "~a", "a~", "A.b-c~1", "a\x00b", "a\n",
	} {
		f.Add(s)
	}
	shape := regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._~-]{0,127}$`)
	device := regexp.MustCompile(`(?i)^(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?$`)
	isName := func(s string) bool {
		return shape.MatchString(s) && !strings.Contains(s, "..") && s[len(s)-1] != '.' && !device.MatchString(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, err := snapshot.ParseName(s)
		if (err == nil) != isName(s) || err == nil && string(name) != s {
			t.Fatalf("ParseName(%q) = %q, %v; it is a name: %v", s, name, err, isName(s))
		}
		if err == nil {
			return
		}
		ne, ok := errors.AsType[*snapshot.NameError](err)
		if !ok || !isName(ne.Suggestion) {
			t.Fatalf("ParseName(%q) = %v, want a *NameError that suggests a name", s, err)
		}
	})
}

func TestNameErrorNamesTheLimit(t *testing.T) {
	t.Parallel()
	_, err := snapshot.ParseName(strings.Repeat("a", 300))
	if err == nil || !strings.Contains(err.Error(), "at most 128 characters, this one has 300") {
		t.Errorf("ParseName of 300 letters: %v, want the limit named", err)
	}
}

func TestAutoName(t *testing.T) {
	t.Parallel()
	now := time.Date(2031, 12, 31, 23, 59, 59, 999e6, time.UTC)
	used := map[snapshot.Name]bool{}
	var got []snapshot.Name
	for range 3 {
		n := snapshot.AutoName("pre-load~", now, func(n snapshot.Name) bool { return used[n] })
		if _, err := snapshot.ParseName(string(n)); err != nil {
			t.Errorf("AutoName made %q: %v", n, err)
		}
		used[n] = true
		got = append(got, n)
	}
	want := []snapshot.Name{"pre-load~20311231T235959999Z", "pre-load~20311231T235959999Z-2", "pre-load~20311231T235959999Z-3"}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("AutoName %d = %q, want %q", i, got[i], want[i])
		}
	}
	next := snapshot.AutoName("pre-load~", now.Add(time.Millisecond), func(snapshot.Name) bool { return false })
	if next <= got[2] {
		t.Errorf("%q does not sort after %q", next, got[2])
	}
}

func TestReservedPrefix(t *testing.T) {
	t.Parallel()
	for name, want := range map[snapshot.Name]bool{
		"pre-load~x": true, "PRE-LOAD~x": true, "pre-new~": true, "pre-delete~1": true, "pre-compact~1": true,
		"pre-anything~1": true, "pre-a-b~": true, "pre-~": false, "pre-v1~": false,
		"pre-load": false, "autosave~": false, "manual-1": false, "x-pre-load~": false,
	} {
		if got := snapshot.ReservedPrefix(name); got != want {
			t.Errorf("ReservedPrefix(%q) = %v, want %v", name, got, want)
		}
	}
}
