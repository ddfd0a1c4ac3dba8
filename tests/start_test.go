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

// A command starts the processes that it needs and no other: the plugin's, once,
// where it is the plugin that answers, and none for what the host knows.
func TestProcessesStarted(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.do("chat", "--message", "hello")
	u.do("save", "v1")
	for _, test := range []struct {
		args []string
		want int
	}{
		{[]string{"version"}, 0},
		{[]string{"help"}, 0},
		{[]string{"help", "save"}, 0},
		{[]string{"save", "--help"}, 0},
		{[]string{"completion", "bash"}, 0},
		{[]string{"config", "show"}, 0},
		{[]string{"config", "validate"}, 0},
		{[]string{"sessions", "list"}, 0},
		{[]string{"plugins", "list"}, 0},
		{[]string{"list"}, 1},
		{[]string{"save", "v2"}, 1},
		{[]string{"load", "v1"}, 1},
		{[]string{"plugins", "inspect", "sess"}, 1},
		{[]string{"chat", "--message", "again"}, 1},
	} {
		_, stderr, exit := u.run(append([]string{"-v"}, test.args...)...)
		if exit != 0 {
			t.Errorf("sess %s ended with status %d:\n%s", strings.Join(test.args, " "), exit, stderr)
		}
		if n := strings.Count(stderr, `msg="plugin started"`); n != test.want {
			t.Errorf("sess %s started %d processes, want %d:\n%s", strings.Join(test.args, " "), n, test.want, stderr)
		}
	}
}
