package main

import (
	"io"
	"slices"
	"strings"
	"testing"
)

func TestSaysYes(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]bool{"y\n": true, " YES \nmore": true, "n\n": false, "\n": false, "": false, "yesterday\n": false} {
		var asked strings.Builder
		in := strings.NewReader(answer)
		if got := saysYes(in, &asked, "do it?"); got != want || asked.String() != "do it?\nGo on? [y/N] " {
			t.Errorf("saysYes(%q) = %t after %q, want %t", answer, got, asked.String(), want)
		}
		if rest, _ := io.ReadAll(in); strings.HasPrefix(answer, " YES") && string(rest) != "more" {
			t.Errorf("saysYes(%q) left %q", answer, rest)
		}
	}
}

func TestWithFlag(t *testing.T) {
	t.Parallel()
	for _, tt := range [][2]string{{"plugins install x", "plugins install x --yes"}, {"plugins install -- -x", "plugins install --yes -- -x"}} {
		if got := withFlag(strings.Fields(tt[0]), "--yes"); !slices.Equal(got, strings.Fields(tt[1])) {
			t.Errorf("withFlag(%s) = %q, want %s", tt[0], got, tt[1])
		}
	}
}
