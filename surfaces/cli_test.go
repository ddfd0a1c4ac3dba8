package surfaces_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/plugin"
	"sess/surfaces"
)

func commands(t *testing.T) *surfaces.Commands {
	t.Helper()
	other := plugin.Spec{Command: "actions", Summary: "edit sessions", Verbs: []plugin.Verb{
		{Name: "drop", Summary: "drop messages", Effect: plugin.EffectDestroy, Args: []plugin.Arg{{Name: "session-id", Type: plugin.TypeString, Complete: "session"}}},
	}}
	return &surfaces.Commands{
		Prog: "sess", Specs: []plugin.Spec{*spec(t), other},
		Host: []plugin.Candidate{{Value: "gateway", Help: "the server"}},
	}
}

func TestSplitHostFlags(t *testing.T) {
	t.Parallel()
	find := commands(t).Find
	tests := []struct {
		name, line, argv string
		want             surfaces.HostFlags
	}{
		{"none", "save v1 --note=x", "save v1 --note=x", surfaces.HostFlags{}},
		{"before the verb", "--agent a --json save v1", "save v1", surfaces.HostFlags{Agent: "a", JSON: true}},
		{"after the verb", "save v1 --project=p --session s --home=/h -q", "save v1", surfaces.HostFlags{Project: "p", Session: "s", Home: "/h", Quiet: true}},
		{"between two words", "trash --json list", "trash list", surfaces.HostFlags{JSON: true}},
		{"behind the command's name", "sess save v1 --note --json", "sess save v1 --note --json", surfaces.HostFlags{}},
		{"the value of a flag stays", "save x --note --json", "save x --note --json", surfaces.HostFlags{}},
		{"also of a short flag", "save x -on --json -v", "save x -on --json", surfaces.HostFlags{Verbose: true}},
		{"a boolean has no value", "save --overwrite --json x", "save --overwrite x", surfaces.HostFlags{JSON: true}},
		{"a negated flag has no value", "new --no-backup --json", "new --no-backup", surfaces.HostFlags{JSON: true}},
		{"an inline value ends it", "save x --note= --json", "save x --note=", surfaces.HostFlags{JSON: true}},
		{"after -- nothing is taken", "save -- --json", "save -- --json", surfaces.HostFlags{}},
		{"letters together", "list -qv", "list", surfaces.HostFlags{Quiet: true, Verbose: true}},
		{"letters with a value", "list -qv=false", "list", surfaces.HostFlags{Quiet: true}},
		{"letters of both stay", "save x -qo", "save x -qo", surfaces.HostFlags{}},
		{"off", "list --json=false", "list", surfaces.HostFlags{}},
		{"help", "save -h", "save", surfaces.HostFlags{Help: true}},
		{"version", "--version", "", surfaces.HostFlags{Version: true}},
		{"unknown flags stay", "save --nmae x -z", "save --nmae x -z", surfaces.HostFlags{}},
		{"numbers stay", "drop -1 -- -2", "drop -1 -- -2", surfaces.HostFlags{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			host, argv, err := surfaces.SplitHostFlags(strings.Fields(tt.line), find)
			if err != nil {
				t.Fatalf("SplitHostFlags(%q): %v", tt.line, err)
			}
			if diff := cmp.Diff(tt.want, host); diff != "" {
				t.Errorf("host flags of %q (-want +got):\n%s", tt.line, diff)
			}
			if got := strings.Join(argv, " "); got != tt.argv {
				t.Errorf("argv of %q = %q, want %q", tt.line, got, tt.argv)
			}
		})
	}
}

func TestSplitHostFlagsRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"list --session=":          "--session is empty; name one, or leave --session out for the default",
		"list --session":           "--session needs a value; write --session=<text>",
		"list --agent a --agent b": "--agent is given twice; give it once",
		"list --json --json=false": "--json is both on and off; give it once",
		"list --json=1":            `--json: "1" is neither true nor false; write --json, or leave it out`,
	}
	for line, want := range tests {
		_, _, err := surfaces.SplitHostFlags(strings.Fields(line), commands(t).Find)
		if diff := cmp.Diff(want, text(t, err)); diff != "" {
			t.Errorf("SplitHostFlags(%q) (-want +got):\n%s", line, diff)
		}
	}
}

// A mistake in one flag does not hide how its error is to be shown.
func TestSplitHostFlagsKeepsTheOthersBesideAnError(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"list --session= --json", "--json list --session", "--json list --json=false"} {
		host, _, err := surfaces.SplitHostFlags(strings.Fields(line), commands(t).Find)
		if err == nil || !host.JSON {
			t.Errorf("SplitHostFlags(%q) = %+v, %v; want an error and JSON", line, host, err)
		}
	}
}

// Every flag that the contract gives to the host has its place.
func TestEveryHostFlagIsTaken(t *testing.T) {
	t.Parallel()
	for _, f := range plugin.HostFlags() {
		word := "--" + f.Name
		if f.Type != plugin.TypeBool {
			word += "=x"
		}
		host, argv, err := surfaces.SplitHostFlags([]string{word}, commands(t).Find)
		if err != nil || len(argv) > 0 || reflect.ValueOf(host).IsZero() {
			t.Errorf("SplitHostFlags(%q) = %+v, %q, %v; want it taken", word, host, argv, err)
		}
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	tests := []struct{ line, command, verb, rest string }{
		{"save v1", "sess", "save", "save v1"},
		{"sess save v1", "sess", "save", "save v1"},
		{"actions drop x", "actions", "drop", "drop x"},
		{"actions save x", "actions", "", "save x"},
		{"xyzzy", "sess", "", "xyzzy"},
		{"", "sess", "", ""},
	}
	for _, tt := range tests {
		spec, verb, rest := commands(t).Resolve(strings.Fields(tt.line))
		got := ""
		if verb != nil {
			got = verb.Name
		}
		if spec.Command != tt.command || got != tt.verb || strings.Join(rest, " ") != tt.rest {
			t.Errorf("Resolve(%q) = %s, %q, %q; want %s, %q, %q", tt.line, spec.Command, got, rest, tt.command, tt.verb, tt.rest)
		}
	}
}

func TestRenderCLI(t *testing.T) {
	t.Parallel()
	result := plugin.Result{Text: "saved v1", Data: json.RawMessage("{\n \"name\": \"<v1>\"}"), Notices: []string{"the disk is nearly full"}}
	failed := plugin.Errorf(plugin.NotFound, "no snapshot v9").WithHint("did you mean v1?").WithDetail("candidates", "v1")
	tests := []struct {
		name           string
		result         plugin.Result
		err            error
		opts           surfaces.CLIOptions
		stdout, stderr string
		exit           int
	}{
		{"text", result, nil, surfaces.CLIOptions{}, "saved v1\n", "note: the disk is nearly full\n", 0},
		{"error as json after something", result, failed, surfaces.CLIOptions{JSON: true}, `{"error":"no snapshot v9","code":"not_found","hint":"did you mean v1?","details":{"candidates":"v1"},"text":"saved v1","data":{"name":"<v1>"}}` + "\n", "", 3},
		{"quiet change", result, nil, surfaces.CLIOptions{Quiet: true, Effect: plugin.EffectWrite}, "", "", 0},
		{"quiet read", result, nil, surfaces.CLIOptions{Quiet: true, Effect: plugin.EffectRead}, "saved v1\n", "", 0},
		{"nothing to say", plugin.Result{}, nil, surfaces.CLIOptions{}, "", "", 0},
		{"json of a change", result, nil, surfaces.CLIOptions{JSON: true, Effect: plugin.EffectWrite}, `{"text":"saved v1","data":{"name":"<v1>"}}` + "\n", "note: the disk is nearly full\n", 0},
		{"json of a read", result, nil, surfaces.CLIOptions{JSON: true, Effect: plugin.EffectRead, Quiet: true}, `{"name":"<v1>"}` + "\n", "", 0},
		{"json of an empty list", plugin.Result{Text: "no snapshots", Data: json.RawMessage(`[]`)}, nil, surfaces.CLIOptions{JSON: true, Effect: plugin.EffectRead}, "[]\n", "", 0},
		{"json of a text", plugin.Result{Text: "usage: <x>"}, nil, surfaces.CLIOptions{JSON: true, Effect: plugin.EffectRead}, `"usage: <x>"` + "\n", "", 0},
		{"json of nothing", plugin.Result{}, nil, surfaces.CLIOptions{JSON: true, Effect: plugin.EffectRead}, "null\n", "", 0},
		{
			"json of a page",
			plugin.Result{Data: json.RawMessage(`[1]`), Page: &plugin.Page{Total: 3, Next: "abc"}},
			nil,
			surfaces.CLIOptions{JSON: true, Effect: plugin.EffectRead},
			"[1]\n", "note: these are not all 3; for the next ones add --after=abc\n", 0,
		},
		{
			"json of the last page",
			plugin.Result{Data: json.RawMessage(`[1]`), Page: &plugin.Page{Total: 3}},
			nil,
			surfaces.CLIOptions{JSON: true, Effect: plugin.EffectRead},
			"[1]\n", "", 0,
		},
		{
			"quiet json of a page",
			plugin.Result{Data: json.RawMessage(`[1]`), Page: &plugin.Page{Total: 3, Next: "abc"}},
			nil,
			surfaces.CLIOptions{JSON: true, Quiet: true, Effect: plugin.EffectRead},
			"[1]\n", "", 0,
		},
		{"json keeps control characters escaped", plugin.Result{Data: json.RawMessage(`"\u001b[31m"`)}, nil, surfaces.CLIOptions{JSON: true, Effect: plugin.EffectRead}, `"\u001b[31m"` + "\n", "", 0},
		{"broken json", plugin.Result{Data: json.RawMessage(`{`)}, nil, surfaces.CLIOptions{JSON: true}, `{"error":"the answer is not JSON","code":"internal","hint":"run it again without --json"}` + "\n", "", 1},
		{"error", plugin.Result{}, failed, surfaces.CLIOptions{}, "", "sess: no snapshot v9\nhint: did you mean v1?\n", 3},
		{"error of another program", plugin.Result{}, failed, surfaces.CLIOptions{Prog: "x"}, "", "x: no snapshot v9\nhint: did you mean v1?\n", 3},
		{"error as json", plugin.Result{}, failed, surfaces.CLIOptions{JSON: true, Effect: plugin.EffectRead}, `{"error":"no snapshot v9","code":"not_found","hint":"did you mean v1?","details":{"candidates":"v1"}}` + "\n", "", 3},
		{"interrupted", plugin.Result{}, fmt.Errorf("save: %w", context.Canceled), surfaces.CLIOptions{}, "", "sess: save: context canceled\n", 130},
		{"deadline", plugin.Result{}, plugin.AsError(context.DeadlineExceeded), surfaces.CLIOptions{}, "", "sess: context deadline exceeded\n", 124},
		{"controls in text", plugin.Result{Text: "a\x1b[31mb\tc\nd"}, nil, surfaces.CLIOptions{}, `a\x1b[31mb` + "\tc\nd\n", "", 0},
		{"controls in an error", plugin.Result{}, plugin.Errorf(plugin.Usage, "bad \x1b]0;x\a"), surfaces.CLIOptions{}, "", `sess: bad \x1b]0;x\x07` + "\n", 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out := surfaces.RenderCLI(tt.result, tt.err, tt.opts)
			if got := string(out.Stdout); got != tt.stdout {
				t.Errorf("stdout = %q, want %q", got, tt.stdout)
			}
			if got := string(out.Stderr); got != tt.stderr {
				t.Errorf("stderr = %q, want %q", got, tt.stderr)
			}
			if out.Exit != tt.exit {
				t.Errorf("exit = %d, want %d", out.Exit, tt.exit)
			}
		})
	}
}

func TestRenderCLIExitsByCode(t *testing.T) {
	t.Parallel()
	for _, info := range plugin.Codes() {
		if got := surfaces.RenderCLI(plugin.Result{}, plugin.Errorf(info.Code, "x"), surfaces.CLIOptions{}).Exit; got != info.Exit {
			t.Errorf("exit of %s = %d, want %d", info.Code, got, info.Exit)
		}
	}
}

func TestPrintable(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"plain é 日本 👩‍👩‍👧\n\t": "plain é 日本 👩‍👩‍👧\n\t",
		"\x00\x07\r\x7f":       `\x00\x07\x0d\x7f`,
		"\u009b31m":            `\u009b31m`,
		"a\u202eb\u2066c":      `a\u202eb\u2066c`,
		"\u2028":               `\u2028`,
		"\xff\xc3":             `\xff\xc3`,
		"\ufffd":               "\ufffd",
	}
	for in, want := range tests {
		if got := surfaces.Printable(in); got != want {
			t.Errorf("Printable(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzSplitHostFlags(f *testing.F) {
	for _, s := range []string{"save x --note --json", "-qv=false list", "--session", "list --agent=a -- --json", "save -on -q", "-=", "--=", "trash -v list"} {
		f.Add(s)
	}
	d := fixture(f)
	spec := d.Spec()
	c := surfaces.Commands{Prog: "sess", Specs: []plugin.Spec{spec}}
	f.Fuzz(func(t *testing.T, line string) {
		words := strings.Split(line, " ")
		_, argv, err := surfaces.SplitHostFlags(words, c.Find)
		if err != nil {
			text(t, err)
			return
		}
		// What is left stands in the order in which it was typed.
		for _, w := range words {
			if len(argv) > 0 && argv[0] == w {
				argv = argv[1:]
			}
		}
		if len(argv) > 0 {
			t.Errorf("SplitHostFlags(%q) made up %q", words, argv)
		}
	})
}
