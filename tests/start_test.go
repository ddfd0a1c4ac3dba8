package tests

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Every command, and every plugin process, first initialises all packages that
// are linked in, whether it uses them or not. This holds what that may cost, in
// allocations, which are the same on every machine: a table that a new dependency
// fills at every start is to be seen here and not in people's waiting.
func TestInitialisationIsSmall(t *testing.T) {
	t.Parallel()
	const (
		ours = 50    // in a package of this module: what is generated from the protocol has about 20
		any  = 1_500 // in a package of others: protobuf's descriptors have about 1,000
		all  = 6_000
	)
	u := newUser(t)
	cmd := u.command("version")
	cmd.Env = append(cmd.Env, "GODEBUG=inittrace=1")
	var trace bytes.Buffer
	cmd.Stderr = &trace
	if err := cmd.Run(); err != nil {
		t.Fatalf("sess version: %v\n%s", err, trace.String())
	}
	line := regexp.MustCompile(`(?m)^init (\S+) @.* (\d+) allocs$`)
	found := line.FindAllStringSubmatch(trace.String(), -1)
	if len(found) < 20 {
		t.Fatalf("the trace names %d packages:\n%s", len(found), trace.String())
	}
	total := 0
	for _, m := range found {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		total += n
		most := any
		if strings.HasPrefix(m[1], module) {
			most = ours
		}
		if n > most {
			t.Errorf("the start of package %s allocates %d times, want at most %d: do it at the first use", m[1], n, most)
		}
	}
	if total > all {
		t.Errorf("the start of all packages allocates %d times, want at most %d", total, all)
	}
}
