package dispatch_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sess/dispatch"
	"sess/plugin"
)

// echo answers with everything that the verb was given, as JSON.
func echo(_ context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	got := map[string]any{"argv": in.Call.Argv}
	switch in.Call.Argv[0] {
	case "save", "s":
		got = map[string]any{
			"name": in.Arg("name"), "note": in.String("note"), "tags": in.Map("tags"), "overwrite": in.Bool("overwrite"),
			"limit": in.Int("limit"), "keep": in.Duration("keep").String(), "file": in.Strings("file"),
			"format": in.String("format"), "backup": in.Bool("backup"), "noteGiven": in.Changed("note"),
			"tagsGiven": in.Changed("tags"), "trigger": in.String("trigger"),
		}
	case "drop":
		got = map[string]any{"session-id": in.Arg("id"), "indices": in.ArgInts("indices"), "first": in.ArgInt("indices"), "quick": in.Bool("quick")}
	case "copy", "clone":
		got = map[string]any{"from": in.Arg("from"), "to": in.Arg("to"), "hasTo": in.Has("to")}
	}
	data, err := json.Marshal(got)
	return plugin.Result{Data: data}, err
}

func command() dispatch.Command {
	return dispatch.Command{
		Name:    "sess",
		Summary: "named snapshots",
		Verbs: []dispatch.Verb{
			{
				Name: "save", Aliases: []string{"s"}, Summary: "save", Effect: plugin.EffectWrite, Main: true, Run: echo,
				Args: []plugin.Arg{{Name: "name", Type: plugin.TypeString, Required: true}},
				Flags: func(fs *dispatch.Flags) {
					fs.String("note", "", "text").Short("n")
					fs.Map("tags", "pairs")
					fs.Bool("overwrite", false, "replace").Short("o")
					fs.Int("limit", 20, "how many").Min(1).Max(100)
					fs.Duration("keep", 36*time.Hour, "how long")
					fs.Strings("file", "files")
					fs.String("format", "md", "format").Enum("md", "json")
					fs.Bool("backup", true, "back up first").Negatable()
					fs.String("trigger", "manual", "who asked").Internal()
				},
			},
			{
				Name: "drop", Summary: "drop messages", Effect: plugin.EffectDestroy, Run: echo,
				Args: []plugin.Arg{
					{Name: "id", Type: plugin.TypeString, Required: true},
					{Name: "indices", Type: plugin.TypeInt, Required: true, Repeated: true},
				},
				Flags: func(fs *dispatch.Flags) { fs.Bool("quick", false, "quick") },
			},
			{
				Name: "copy", Aliases: []string{"clone"}, Summary: "copy", Effect: plugin.EffectWrite, Run: echo,
				Args: []plugin.Arg{
					{Name: "from", Type: plugin.TypeString, Required: true},
					{Name: "to", Type: plugin.TypeString},
				},
			},
			{Name: "list", Aliases: []string{"ls"}, Summary: "list", Effect: plugin.EffectRead, Run: echo},
			{Name: "trash list", Summary: "list the trash", Effect: plugin.EffectRead, Run: echo},
			{Name: "trash restore", Summary: "restore", Effect: plugin.EffectWrite, Run: echo},
			{Name: "op", Summary: "records", Effect: plugin.EffectWrite, Internal: true, Run: echo},
		},
	}
}

func newDispatcher(t *testing.T, cmd dispatch.Command) *dispatch.Dispatcher {
	t.Helper()
	d, err := dispatch.New(cmd)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return d
}

// saved is the answer of save with everything at its default but what is given.
func saved(changes map[string]any) map[string]any {
	m := map[string]any{
		"name": "v1", "note": "", "tags": nil, "overwrite": false, "limit": 20.0, "keep": "36h0m0s", "file": nil,
		"format": "md", "backup": true, "noteGiven": false, "tagsGiven": false, "trigger": "manual",
	}
	maps.Copy(m, changes)
	return m
}

func TestDispatchReadsValues(t *testing.T) {
	t.Parallel()
	d := newDispatcher(t, command())
	tests := []struct {
		name   string
		argv   []string
		caller plugin.Caller
		want   map[string]any
	}{
		{"defaults", []string{"save", "v1"}, "", saved(nil)},
		{"an alias", []string{"s", "v1"}, "", saved(nil)},
		{"flags before the argument", []string{"save", "--note=x", "v1"}, "", saved(map[string]any{"note": "x", "noteGiven": true})},
		{"flags after the argument", []string{"save", "v1", "--note", "x", "-o"}, "", saved(map[string]any{"note": "x", "noteGiven": true, "overwrite": true})},
		{"short flags", []string{"save", "-on", "x", "v1"}, "", saved(map[string]any{"note": "x", "noteGiven": true, "overwrite": true})},
		{"a value that looks like a flag", []string{"save", "v1", "--note", "--overwrite"}, "", saved(map[string]any{"note": "--overwrite", "noteGiven": true})},
		{"an empty value is given", []string{"save", "v1", "--note="}, "", saved(map[string]any{"noteGiven": true})},
		{"after -- all are arguments", []string{"save", "--note=x", "--", "--note=y"}, "", saved(map[string]any{"name": "--note=y", "note": "x", "noteGiven": true})},
		{"a lone dash is an argument", []string{"save", "-"}, "", saved(map[string]any{"name": "-"})},
		{"an empty argument is given", []string{"save", ""}, "", saved(map[string]any{"name": ""})},
		{"bool values", []string{"save", "v1", "--overwrite=true", "--backup=false"}, "", saved(map[string]any{"overwrite": true, "backup": false})},
		{"negated", []string{"save", "v1", "--no-backup"}, "", saved(map[string]any{"backup": false})},
		{"negated twice over", []string{"save", "v1", "--no-backup=false"}, "", saved(nil)},
		{"the same bool twice", []string{"save", "v1", "-o", "--overwrite"}, "", saved(map[string]any{"overwrite": true})},
		{"int", []string{"save", "v1", "--limit=7"}, "", saved(map[string]any{"limit": 7.0})},
		{"days and hours", []string{"save", "v1", "--keep=1d12h30m"}, "", saved(map[string]any{"keep": "36h30m0s"})},
		{"zero duration", []string{"save", "v1", "--keep=0"}, "", saved(map[string]any{"keep": "0s"})},
		{"enum", []string{"save", "v1", "--format=json"}, "", saved(map[string]any{"format": "json"})},
		{"repeated strings keep commas", []string{"save", "v1", "--file=a,b", "--file", ""}, "", saved(map[string]any{"file": []any{"a,b", ""}})},
		{"pairs", []string{"save", "v1", "--tags=a=1,b=x=y", "--tags", "c="}, "", saved(map[string]any{"tagsGiven": true, "tags": map[string]any{"a": "1", "b": "x=y", "c": ""}})},
		{
			"quoted pairs",
			[]string{"save", "v1", "--tags=\"a=1,2\",\"b=say \"\"hi\"\"\r\n\",c=5\" disk"},
			"",
			saved(map[string]any{"tagsGiven": true, "tags": map[string]any{"a": "1,2", "b": "say \"hi\"\r\n", "c": `5" disk`}}),
		},
		{"no pairs", []string{"save", "v1", "--tags="}, "", saved(map[string]any{"tagsGiven": true, "tags": map[string]any{}})},
		{"internal flag of a plugin", []string{"save", "v1", "--trigger=compact"}, plugin.PluginCaller("x"), saved(map[string]any{"trigger": "compact"})},
		{
			"negative numbers where numbers are wanted",
			[]string{"drop", "s1", "3", "-1", "--quick", "-2"},
			"",
			map[string]any{"session-id": "s1", "indices": []any{3.0, -1.0, -2.0}, "first": 3.0, "quick": true},
		},
		{"optional argument left out", []string{"clone", "a"}, "", map[string]any{"from": "a", "to": "", "hasTo": false}},
		{"two words", []string{"trash", "restore"}, "", map[string]any{"argv": []any{"trash", "restore"}}},
		{"internal verb of the host", []string{"op"}, plugin.CallerHost, map[string]any{"argv": []any{"op"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, err := d.Dispatch(t.Context(), plugin.Call{Argv: tt.argv, Caller: tt.caller}, nil)
			if err != nil {
				t.Fatalf("Dispatch(%q): %v", tt.argv, plugin.AsError(err).Text())
			}
			var got map[string]any
			if err := json.Unmarshal(r.Data, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Dispatch(%q) (-want +got):\n%s", tt.argv, diff)
			}
		})
	}
}

func TestDispatchRefuses(t *testing.T) {
	t.Parallel()
	d := newDispatcher(t, command())
	const saveFlags = "--note, --tags, --overwrite, --limit, --keep, --file, --format, --backup, --no-backup"
	const durations = "; write a number with a unit, such as 36h, 7d or 2w; 0 for none"
	tests := []struct {
		argv []string
		want string
	}{
		{nil, "sess: no verb is given; the verbs are save, drop, copy, list, trash list, trash restore"},
		{[]string{"--note=x", "save", "v1"}, `sess: "--note=x" stands where the verb should; write the verb first, then its flags`},
		{[]string{"sav", "v1"}, `unknown verb "sav"; did you mean save?`},
		{[]string{"SAVE", "v1"}, `unknown verb "SAVE"; did you mean save?`},
		{[]string{"clon"}, `unknown verb "clon"; did you mean clone?`},
		{[]string{"xyzzy", "v1"}, `unknown verb "xyzzy"; the verbs are save, drop, copy, list, trash list, trash restore`},
		{[]string{"op"}, `unknown verb "op"; the verbs are save, drop, copy, list, trash list, trash restore`},
		{[]string{"trash"}, "trash needs a second word; write one of trash list, trash restore"},
		{[]string{"trash", "--json"}, "trash needs a second word; write one of trash list, trash restore"},
		{[]string{"trash", "restor", "x"}, `unknown verb "trash restor"; did you mean trash restore?`},
		{[]string{"trash", "xyzzy"}, `unknown verb "trash xyzzy"; did you mean trash list or trash restore?`},
		{[]string{"trsh", "list"}, `unknown verb "trsh list"; did you mean trash list?`},
		{[]string{"save"}, "save: <name> is missing; usage: save <name> [flags]"},
		{[]string{"drop", "s1"}, "drop: <indices> is missing; usage: drop <id> <indices>... [flags]"},
		{[]string{"save", "sql", "opt"}, `unexpected "opt": save takes <name> only; leave it out, or put quotes around a value that has spaces`},
		{[]string{"copy", "a", "b", "c"}, `unexpected "c": copy takes <from> and <to> only; leave it out, or put quotes around a value that has spaces`},
		{[]string{"list", "x"}, `unexpected "x": list takes no arguments; usage: list`},
		{[]string{"save", "v1", "--nte=x"}, "unknown flag --nte: save takes " + saveFlags + "; did you mean --note?"},
		{[]string{"save", "v1", "--xyzzy"}, "unknown flag --xyzzy: save takes " + saveFlags + "; leave it out; an argument that begins with a dash comes after --"},
		{[]string{"save", "v1", "--trigger=x"}, "unknown flag --trigger: save takes " + saveFlags + "; leave it out; an argument that begins with a dash comes after --"},
		{[]string{"save", "v1", "--help"}, "unknown flag --help: save takes " + saveFlags + "; usage: save <name> [flags]"},
		{[]string{"save", "v1", "-test.v"}, "unknown flag -test.v: save takes " + saveFlags + "; leave it out; an argument that begins with a dash comes after --"},
		{[]string{"save", "-1"}, "unknown flag -1: save takes " + saveFlags + "; leave it out; an argument that begins with a dash comes after --"},
		{[]string{"save", "v1", "-o日"}, "unknown flag -日: save takes " + saveFlags + "; leave it out; an argument that begins with a dash comes after --"},
		{[]string{"save", "v1", "---note=x"}, "unknown flag ---note: save takes " + saveFlags + "; did you mean --note?"},
		{[]string{"list", "--all"}, "unknown flag --all: list takes no flags; usage: list"},
		{[]string{"save", "v1", "--note"}, "--note needs a value; write --note=<text>"},
		{[]string{"save", "v1", "-n"}, "--note needs a value; write --note=<text>"},
		{[]string{"save", "v1", "--format"}, "--format needs a value; write --format=<md|json>"},
		{[]string{"save", "v1", "--note=a", "--note=b"}, "--note is given twice; give it once"},
		{[]string{"save", "v1", "--backup", "--no-backup"}, "--backup is both on and off; give it once"},
		{[]string{"save", "v1", "--overwrite=1"}, `--overwrite: "1" is neither true nor false; write --overwrite, or --overwrite=false`},
		{[]string{"save", "v1", "--no-backup=x"}, `--no-backup: "x" is neither true nor false; write --no-backup, or --no-backup=false`},
		{[]string{"save", "v1", "--limit=abc"}, `--limit: "abc" is not a whole number; write digits only, such as 20`},
		{[]string{"save", "v1", "--limit=99999999999999999999"}, `--limit: "99999999999999999999" is not a whole number; write digits only, such as 20`},
		{[]string{"save", "v1", "--limit", "-1"}, "--limit: -1 is too small; want a number from 1"},
		{[]string{"save", "v1", "--limit=0"}, "--limit: 0 is too small; want a number from 1"},
		{[]string{"save", "v1", "--limit=101"}, "--limit: 101 is too large; want a number up to 100"},
		{[]string{"save", "v1", "--format=xml"}, `--format: "xml" is not allowed; want one of md, json`},
		{[]string{"save", "v1", "--keep=forever"}, `--keep: "forever" is not a duration` + durations},
		{[]string{"save", "v1", "--keep=-1h"}, `--keep: "-1h" is a negative duration` + durations},
		{[]string{"save", "v1", "--tags=a"}, `--tags: "a" has no =; write --tags=key=value`},
		{[]string{"save", "v1", "--tags=a=1,"}, `--tags: "" has no =; write --tags=key=value`},
		{[]string{"save", "v1", "--tags==1"}, `--tags: "=1" has no key; write --tags=key=value`},
		{[]string{"save", "v1", "--tags=a=1", "--tags=a=2"}, `--tags: the key "a" is given twice; give it once`},
		{[]string{"save", "v1", `--tags="a=1`}, `--tags: the quote before "a=1" is not closed; quote a pair that holds a comma as "key=a,b", a quote in it twice`},
		{[]string{"save", "v1", `--tags="a=1"2`}, `--tags: "2" follows a closing quote; quote a pair that holds a comma as "key=a,b", a quote in it twice`},
		{[]string{"drop", "s1", "two"}, `<indices>: "two" is not a whole number; write digits only, such as 20`},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.argv, " "), func(t *testing.T) {
			t.Parallel()
			_, err := d.Dispatch(t.Context(), plugin.Call{Argv: tt.argv, Caller: plugin.CallerCLI}, nil)
			e, ok := errors.AsType[*plugin.Error](err)
			if !ok || e.Code != plugin.Usage {
				t.Fatalf("Dispatch(%q) = %v, want a usage error", tt.argv, err)
			}
			if diff := cmp.Diff(tt.want, e.Text()); diff != "" {
				t.Errorf("Dispatch(%q) (-want +got):\n%s", tt.argv, diff)
			}
		})
	}
}

func TestUnknownVerbListsCandidates(t *testing.T) {
	t.Parallel()
	d := newDispatcher(t, command())
	_, err := d.Dispatch(t.Context(), plugin.Call{Argv: []string{"sav"}}, nil)
	if got := plugin.AsError(err).Details["candidates"]; got != "save" {
		t.Errorf("candidates of %q = %q, want %q", "sav", got, "save")
	}
}

func TestParseDuration(t *testing.T) {
	t.Parallel()
	good := map[string]time.Duration{
		"": 0, "0": 0, "0s": 0, "7d": 168 * time.Hour, "2w": 336 * time.Hour, "1.5d": 36 * time.Hour,
		"1w1d1h": 193 * time.Hour, "90m": 90 * time.Minute, "250ms": 250 * time.Millisecond, "5µs": 5 * time.Microsecond,
	}
	for in, want := range good {
		if got, err := dispatch.ParseDuration(in); err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v, want %v", in, got, err, want)
		}
	}
	bad := []string{
		"forever", "1Y", "5", "-1h", "+1h", "1d-1h", "d", "1", "00", ".", ".d", "1.2.3h", "1 d", "7D", "99999999w",
		"200000000w", "1d1", strings.Repeat("9", 400) + "h", "∞",
	}
	for _, in := range bad {
		if got, err := dispatch.ParseDuration(in); !errors.Is(err, &plugin.Error{Code: plugin.Usage}) {
			t.Errorf("ParseDuration(%q) = %v, %v, want a usage error", in, got, err)
		}
	}
}

func TestRunErrors(t *testing.T) {
	t.Parallel()
	cause := errors.New("disk on fire")
	fail := func(err error) func(context.Context, *dispatch.Invocation) (plugin.Result, error) {
		return func(context.Context, *dispatch.Invocation) (plugin.Result, error) {
			return plugin.Result{Text: "half"}, err
		}
	}
	verb := func(name string, run func(context.Context, *dispatch.Invocation) (plugin.Result, error)) dispatch.Verb {
		return dispatch.Verb{Name: name, Summary: "x", Effect: plugin.EffectRead, Run: run}
	}
	var buf bytes.Buffer
	d := newDispatcher(t, dispatch.Command{
		Name: "x", Summary: "x", Logger: slog.New(slog.NewTextHandler(&buf, nil)),
		Verbs: []dispatch.Verb{
			verb("wrapped", fail(fmt.Errorf("load v1: %w", plugin.Errorf(plugin.NotFound, "no snapshot v1")))),
			verb("canceled", fail(context.Canceled)),
			verb("plain", fail(cause)),
			verb("panics", func(context.Context, *dispatch.Invocation) (plugin.Result, error) { panic("oh no") }),
			verb("typo", func(_ context.Context, in *dispatch.Invocation) (plugin.Result, error) {
				return plugin.Result{Text: in.String("nmae")}, nil
			}),
		},
	})
	call := func(verb string) *plugin.Error {
		t.Helper()
		r, err := d.Dispatch(t.Context(), plugin.Call{Argv: []string{verb}, RequestID: "r1"}, nil)
		e, ok := errors.AsType[*plugin.Error](err)
		if !ok || r.Text != "" {
			t.Fatalf("Dispatch(%q) = %+v, %v, want no result and a *plugin.Error", verb, r, err)
		}
		return e
	}

	if e := call("wrapped"); e.Code != plugin.NotFound || e.Message != "load v1: no snapshot v1" {
		t.Errorf("wrapped: %+v", e)
	}
	if e := call("canceled"); !errors.Is(e, context.Canceled) {
		t.Errorf("canceled: %v is not context.Canceled", e)
	}
	if buf.Len() != 0 {
		t.Errorf("logged what is no bug: %s", buf.String())
	}
	for verb, logged := range map[string]string{"plain": "disk on fire", "panics": "oh no", "typo": `no string flag`} {
		buf.Reset()
		e := call(verb)
		if e.Code != plugin.Internal || e.Details["incident"] == "" || !strings.Contains(e.Hint, e.Details["incident"]) {
			t.Errorf("%s: %+v, want internal with an incident", verb, e)
		}
		for _, want := range []string{e.Details["incident"], logged, "request_id=r1"} {
			if !strings.Contains(buf.String(), want) {
				t.Errorf("%s: log %q does not have %q", verb, buf.String(), want)
			}
		}
		if strings.Contains(e.Text(), "goroutine") {
			t.Errorf("%s: the stack was sent: %s", verb, e.Text())
		}
	}
	if e := call("plain"); !errors.Is(e, cause) {
		t.Errorf("plain: %v lost its cause", e)
	}

	silent := newDispatcher(t, dispatch.Command{
		Name: "x", Summary: "x", Logger: slog.New(slog.DiscardHandler),
		Verbs: []dispatch.Verb{verb("panics", func(context.Context, *dispatch.Invocation) (plugin.Result, error) { panic("oh no") })},
	})
	_, err := silent.Dispatch(t.Context(), plugin.Call{Argv: []string{"panics"}}, nil)
	if e := plugin.AsError(err); e == nil || e.Hint != "" || e.Details["incident"] != "" || !strings.HasSuffix(e.Message, "panic: oh no") {
		t.Errorf("without a log: %+v, want the panic and no incident", e)
	}
}

// Inside a turn a verb that has to wait for its end is checked and does not run.
func TestAfterTurnIsCheckedInsideATurn(t *testing.T) {
	t.Parallel()
	gone := plugin.Errorf(plugin.NotFound, "there is no x")
	verb := func(name string, check func(context.Context, *dispatch.Invocation) error) dispatch.Verb {
		return dispatch.Verb{
			Name: name, Summary: "s", Effect: plugin.EffectWrite, AfterTurn: true, Check: check,
			Args: []plugin.Arg{{Name: "name", Type: plugin.TypeString, Required: true}},
			Run: func(context.Context, *dispatch.Invocation) (plugin.Result, error) {
				return plugin.Result{Text: "ran"}, nil
			},
		}
	}
	d, err := dispatch.New(dispatch.Command{Name: "sess", Summary: "s", Verbs: []dispatch.Verb{
		verb("load", func(_ context.Context, in *dispatch.Invocation) error {
			if in.Arg("name") == "x" {
				return gone
			}
			return nil
		}),
		verb("fork", nil),
	}})
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		argv, turn, text string
		code             plugin.Code // empty: success
	}{
		{"load x", "", "ran", ""},
		{"load x", "t1", "", plugin.NotFound},
		{"load a", "t1", "", ""},
		{"load", "t1", "", plugin.Usage},
		{"fork x", "t1", "", ""},
		{"fork", "t1", "", plugin.Usage},
	}
	for _, tt := range tests {
		res, err := d.Dispatch(t.Context(), plugin.Call{Argv: strings.Fields(tt.argv), Turn: tt.turn}, nil)
		var code plugin.Code
		if err != nil {
			code = plugin.AsError(err).Code
		}
		if res.Text != tt.text || code != tt.code {
			t.Errorf("%s in turn %q = %q, %v; want %q, code %q", tt.argv, tt.turn, res.Text, err, tt.text, tt.code)
		}
	}
}

// A verb for people is denied to everybody else, whatever the words.
func TestByHand(t *testing.T) {
	t.Parallel()
	d, err := dispatch.New(dispatch.Command{Name: "plugins", Summary: "s", Verbs: []dispatch.Verb{{
		Name: "install", Summary: "s", Effect: plugin.EffectWrite, ByHand: true,
		Run: func(context.Context, *dispatch.Invocation) (plugin.Result, error) {
			return plugin.Result{Text: "ran"}, nil
		},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := d.Dispatch(t.Context(), plugin.Call{Argv: []string{"install"}, Caller: plugin.CallerCLI}, nil); err != nil || res.Text != "ran" {
		t.Errorf("at the command line: %q, %v", res.Text, err)
	}
	for _, caller := range []plugin.Caller{"", plugin.CallerHTTP, plugin.CallerRPC, plugin.CallerTool, plugin.CallerSlash, plugin.CallerHost, plugin.PluginCaller("x")} {
		for _, argv := range [][]string{{"install"}, {"install", "x", "--y"}} {
			if _, err := d.Dispatch(t.Context(), plugin.Call{Argv: argv, Caller: caller}, nil); plugin.AsError(err) == nil || plugin.AsError(err).Code != plugin.Denied {
				t.Errorf("%v by %q: %v, want it denied", argv, caller, err)
			}
		}
	}
}

func TestDispatchHonoursContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := newDispatcher(t, command()).Dispatch(ctx, plugin.Call{Argv: []string{"list"}}, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Dispatch under an ended context: %v, want context.Canceled", err)
	}
}

func TestDispatchConcurrently(t *testing.T) {
	t.Parallel()
	d := newDispatcher(t, command())
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			note := fmt.Sprintf("note %d", i)
			r, err := d.Dispatch(t.Context(), plugin.Call{Argv: []string{"save", "v1", "--note", note}}, nil)
			if err != nil || !bytes.Contains(r.Data, []byte(`"`+note+`"`)) {
				t.Errorf("Dispatch with %q: %s, %v", note, r.Data, err)
			}
		})
	}
	wg.Wait()
}

func TestProgressReachesCaller(t *testing.T) {
	t.Parallel()
	d := newDispatcher(t, dispatch.Command{Name: "x", Summary: "x", Verbs: []dispatch.Verb{{
		Name: "work", Summary: "x", Effect: plugin.EffectRead,
		Run: func(_ context.Context, in *dispatch.Invocation) (plugin.Result, error) {
			in.Progress(plugin.Progress{Stage: "reading", Done: 1})
			return plugin.Result{}, nil
		},
	}}})
	var got []plugin.Progress
	for _, f := range []plugin.ProgressFunc{nil, func(p plugin.Progress) { got = append(got, p) }} {
		if _, err := d.Dispatch(t.Context(), plugin.Call{Argv: []string{"work"}}, f); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]plugin.Progress{{Stage: "reading", Done: 1}}, got); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
}

func TestSpecIsDerived(t *testing.T) {
	t.Parallel()
	spec := newDispatcher(t, command()).Spec()
	want := plugin.Verb{
		Name: "save", Aliases: []string{"s"}, Summary: "save", Effect: plugin.EffectWrite, Main: true,
		Args: []plugin.Arg{{Name: "name", Type: plugin.TypeString, Required: true}},
		Flags: []plugin.Flag{
			{Name: "note", Short: "n", Type: plugin.TypeString, Help: "text"},
			{Name: "tags", Type: plugin.TypeMap, Help: "pairs"},
			{Name: "overwrite", Short: "o", Type: plugin.TypeBool, Help: "replace"},
			{Name: "limit", Type: plugin.TypeInt, Help: "how many", Default: "20"},
			{Name: "keep", Type: plugin.TypeDuration, Help: "how long", Default: "36h"},
			{Name: "file", Type: plugin.TypeStrings, Help: "files"},
			{Name: "format", Type: plugin.TypeString, Help: "format", Default: "md", Enum: []string{"md", "json"}},
			{Name: "backup", Type: plugin.TypeBool, Help: "back up first", Default: "true", Negatable: true},
			{Name: "trigger", Type: plugin.TypeString, Help: "who asked", Default: "manual", Internal: true},
		},
	}
	if diff := cmp.Diff(want, spec.Verbs[0], cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("Spec of save (-want +got):\n%s", diff)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	run := func(context.Context, *dispatch.Invocation) (plugin.Result, error) { return plugin.Result{}, nil }
	verb := func(name string, change func(*dispatch.Verb)) dispatch.Verb {
		v := dispatch.Verb{Name: name, Summary: "x", Effect: plugin.EffectRead, Run: run}
		if change != nil {
			change(&v)
		}
		return v
	}
	one := func(change func(*dispatch.Verb)) dispatch.Command {
		return dispatch.Command{Verbs: []dispatch.Verb{verb("do", change)}}
	}
	args := func(args ...plugin.Arg) dispatch.Command {
		return one(func(v *dispatch.Verb) { v.Args = args })
	}
	flags := func(f func(fs *dispatch.Flags)) dispatch.Command {
		return one(func(v *dispatch.Verb) { v.Flags = f })
	}
	str := func(name string) plugin.Arg { return plugin.Arg{Name: name, Type: plugin.TypeString} }
	tests := []struct {
		want string
		cmd  dispatch.Command
	}{
		{`command "x": want a summary and verbs`, dispatch.Command{}},
		{`command "X y": want a name in kebab-case`, dispatch.Command{Name: "X y"}},
		{`command "1x": want a name in kebab-case`, dispatch.Command{Name: "1x"}},
		{`command "x--y": want a name in kebab-case`, dispatch.Command{Name: "x--y"}},
		{`command "x-": want a name in kebab-case`, dispatch.Command{Name: "x-"}},
		{`want one or two words in kebab-case`, dispatch.Command{Verbs: []dispatch.Verb{verb("do_it", nil)}}},
		{`want one or two words in kebab-case`, dispatch.Command{Verbs: []dispatch.Verb{verb("a b c", nil)}}},
		{`the name "do" is taken`, dispatch.Command{Verbs: []dispatch.Verb{verb("do", nil), verb("do", nil)}}},
		{`the name "do" is taken`, dispatch.Command{Verbs: []dispatch.Verb{verb("do", nil), verb("y", func(v *dispatch.Verb) { v.Aliases = []string{"do"} })}}},
		{`the name "help" is taken`, dispatch.Command{Verbs: []dispatch.Verb{verb("help", nil)}}},
		{`"a" also begins verbs of two words`, dispatch.Command{Verbs: []dispatch.Verb{verb("a b", nil), verb("a", func(v *dispatch.Verb) { v.Args = []plugin.Arg{str("n")} })}}},
		{`one word in kebab-case`, one(func(v *dispatch.Verb) { v.Aliases = []string{"do this"} })},
		{`want a summary`, one(func(v *dispatch.Verb) { v.Summary = "" })},
		{`want Run`, one(func(v *dispatch.Verb) { v.Run = nil })},
		{`want the example "x do" to begin with it`, one(func(v *dispatch.Verb) { v.Examples = []string{"do", "do it", "x do"} })},
		{`unknown effect "big"`, one(func(v *dispatch.Verb) { v.Effect = "big" })},
		{`want a name in kebab-case`, args(str("Name"))},
		{`want the type string or int`, args(plugin.Arg{Name: "n", Type: plugin.TypeMap})},
		{`only the last argument repeats`, args(plugin.Arg{Name: "n", Type: plugin.TypeString, Repeated: true}, str("m"))},
		{`it is required but follows an optional one`, args(str("n"), plugin.Arg{Name: "m", Type: plugin.TypeString, Required: true})},
		{`the same field "n" as`, args(str("n"), str("n"))},
		{`objects use the field "session" themselves`, args(str("session"))},
		{`the name is taken`, flags(func(fs *dispatch.Flags) { fs.Bool("json", false, "") })},
		{`the name is taken`, flags(func(fs *dispatch.Flags) { fs.Bool("help", false, "") })},
		{`the name is taken`, flags(func(fs *dispatch.Flags) { fs.String("a", "", ""); fs.String("a", "", "") })},
		{`the name is taken`, flags(func(fs *dispatch.Flags) { fs.Bool("a", true, "").Negatable(); fs.Bool("no-a", false, "") })},
		{`the same field "backup" as`, flags(func(fs *dispatch.Flags) { fs.Bool("backup", false, ""); fs.Bool("no-backup", false, "") })},
		{`objects use the field "action" themselves`, flags(func(fs *dispatch.Flags) { fs.String("action", "", "") })},
		{`the short form "q" is taken`, flags(func(fs *dispatch.Flags) { fs.Bool("quick", false, "").Short("q") })},
		{`want one letter`, flags(func(fs *dispatch.Flags) { fs.Bool("quick", false, "").Short("1") })},
		{`want a name in kebab-case`, flags(func(fs *dispatch.Flags) { fs.Bool("a_b", false, "") })},
		{`only a bool can be negated`, flags(func(fs *dispatch.Flags) { fs.Int("a", 0, "").Negatable() })},
		{`it is negative already`, flags(func(fs *dispatch.Flags) { fs.Bool("no-a", false, "").Negatable() })},
		{`only a string has an enum`, flags(func(fs *dispatch.Flags) { fs.Int("a", 0, "").Enum("1") })},
		{`only an int has limits`, flags(func(fs *dispatch.Flags) { fs.String("a", "", "").Min(1) })},
		{`bad default`, flags(func(fs *dispatch.Flags) { fs.String("a", "z", "").Enum("x", "y") })},
		{`bad default`, flags(func(fs *dispatch.Flags) { fs.Int("a", 3, "").Max(2) })},
		{`it leads to no verb`, dispatch.Command{Routes: []plugin.Route{{Method: "GET", Path: "/x", Argv: []string{"nope"}}}}},
		{`want a method of HTTP and a path`, dispatch.Command{Routes: []plugin.Route{{Method: "get", Path: "/x", Argv: []string{"nope"}}}}},
		{`GET is for verbs that only read`, dispatch.Command{
			Verbs:  []dispatch.Verb{verb("do", func(v *dispatch.Verb) { v.Effect = plugin.EffectWrite })},
			Routes: []plugin.Route{{Method: "GET", Path: "/x", Argv: []string{"do"}}},
		}},
		{`shortcut "y": it leads to no verb`, dispatch.Command{Shortcuts: []plugin.Shortcut{{Name: "y", Argv: []string{"nope"}}}}},
		{`shortcut "x": want a free name`, dispatch.Command{Shortcuts: []plugin.Shortcut{{Name: "x", Argv: []string{"nope"}}}}},
	}
	for _, tt := range tests {
		t.Run(tt.want, func(t *testing.T) {
			t.Parallel()
			if tt.cmd.Name == "" {
				tt.cmd.Name = "x"
			}
			if tt.cmd.Verbs != nil {
				tt.cmd.Summary = "x"
			}
			if _, err := dispatch.New(tt.cmd); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("New: %v, want an error with %q", err, tt.want)
			}
		})
	}
}

func FuzzDispatch(f *testing.F) {
	for _, s := range []string{"save v1 --note=x", "drop s -1 -- -2", "save --tags=\"a=1,2\" v", "trash restore", "save -on", "---", "save -test.v", "save --keep=1d"} {
		f.Add(s)
	}
	d, err := dispatch.New(command())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, line string) {
		_, err := d.Dispatch(t.Context(), plugin.Call{Argv: strings.Split(line, " "), Caller: plugin.CallerTool}, nil)
		if err != nil && !errors.Is(err, &plugin.Error{Code: plugin.Usage}) {
			t.Errorf("Dispatch(%q) = %v, want a result or a usage error", line, err)
		}
	})
}
