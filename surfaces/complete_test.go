package surfaces_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/plugin"
	"sess/surfaces"
)

// split splits at single blanks, so that a trailing one makes an empty word.
func split(line string) []string { return strings.Split(line, " ") }

func TestComplete(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, line, want string }{
		{"verbs, commands, the host's words", "", "save load list new copy delete drop tag trash actions gateway"},
		{"beginnings of verbs", "l", "load list"},
		{"aliases are not shown", "ls", ""},
		{"second words", "trash ", "list restore"},
		{"beginnings of second words", "trash r", "restore"},
		{"verbs of another command", "actions ", "drop"},
		{"verbs behind the own name", "sess c", "copy"},
		{"help takes verbs", "help de", "delete"},
		{"and commands", "help a", "actions"},
		{"flags of the verb, then the host's", "save --n", "--note="},
		{"a flag and its negation", "new --", "--from= --backup --no-backup --agent= --project= --session= --json --quiet --verbose --home= --url= --token= --token-file= --help --version"},
		{"the host's flags before the verb", "--j", "--json"},
		{"internal flags are not shown", "save --tr", ""},
		{"values in the next word", "list --sort ", "updated name"},
		{"values in the same word", "list --sort=n", "--sort=name"},
		{"boolean values", "list --include-auto=f", "--include-auto=false"},
		{"nothing after a mistake", "xyzzy ", ""},
		{"no flags after --", "save -- --n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := commands(t).Complete(split(tt.line))
			var got []string
			for line := range strings.Lines(surfaces.CompletionLines(c.All(nil))) {
				value, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
				got = append(got, value)
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("Complete(%q) (-want +got):\n%s", tt.line, diff)
			}
		})
	}
}

// A verb without arguments can share its word with verbs of two words.
func TestCompleteAfterVerbThatIsAlsoAGroup(t *testing.T) {
	t.Parallel()
	c := surfaces.Commands{Prog: "x", Specs: []plugin.Spec{{Command: "x", Verbs: []plugin.Verb{
		{Name: "trash"}, {Name: "trash list"}, {Name: "trash restore"},
	}}}}
	done := c.Complete(split("trash l"))
	if got := surfaces.CompletionLines(done.All(nil)); got != "list\n" {
		t.Errorf("Complete(%q) = %q, want %q", "trash l", got, "list\n")
	}
}

func TestCompleteWithoutOwnCommand(t *testing.T) {
	t.Parallel()
	c := surfaces.Commands{Prog: "x", Specs: []plugin.Spec{{Command: "y", Summary: "why"}}}
	for line, want := range map[string]string{"": "y\twhy\n", "z ": ""} {
		done := c.Complete(split(line))
		if got := surfaces.CompletionLines(done.All(nil)); got != want {
			t.Errorf("Complete(%q) = %q, want %q", line, got, want)
		}
	}
}

func TestCompleteAsks(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, line, command, kind, argv string
	}{
		{"an argument", "load v", "sess", "snapshot", "load v"},
		{"an argument after flags", "save --note x --json v", "sess", "snapshot", "save --note x v"},
		{"the second argument", "copy a ", "sess", "snapshot", "copy a "},
		{"after --", "load -- -", "sess", "snapshot", "load -- -"},
		{"behind two words", "trash restore ", "sess", "snapshot", "trash restore "},
		{"a flag's value", "new --from v", "sess", "snapshot", "new --from v"},
		{"a flag's value in the same word", "new --from=v", "sess", "snapshot", "new --from v"},
		{"another command's", "actions drop ", "actions", "session", "drop "},
		{"a host flag's value", "list --session s", "", "session", "list s"},
		{"a host flag's value in the same word", "list --agent=", "", "agent", "list --agent "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := commands(t).Complete(split(tt.line))
			if c.Ask == nil {
				t.Fatalf("Complete(%q) asks nothing", tt.line)
			}
			got := []string{c.Ask.Command, c.Ask.Request.Kind, strings.Join(c.Ask.Request.Call.Argv, " ")}
			if diff := cmp.Diff([]string{tt.command, tt.kind, tt.argv}, got); diff != "" {
				t.Errorf("Complete(%q) asks (-want +got):\n%s", tt.line, diff)
			}
		})
	}
	for _, line := range []string{"load v1 ", "list ", "save v1 --note ", "list --limit "} {
		if c := commands(t).Complete(split(line)); c.Ask != nil {
			t.Errorf("Complete(%q) asks %+v, want nothing", line, c.Ask)
		}
	}
	c := commands(t).Complete(split("load --agent a --project=p --session s "))
	call := c.Ask.Request.Call
	if call.Agent != "a" || call.Project != "p" || call.Session != "s" || call.Caller != plugin.CallerCLI {
		t.Errorf("the question's call is %+v", call)
	}
}

func TestCompletionLines(t *testing.T) {
	t.Parallel()
	c := commands(t).Complete([]string{"new", "--from=v"})
	got := surfaces.CompletionLines(c.All([]plugin.Candidate{
		{Value: "v1", Help: "12 messages\tyesterday\n\x1b[31m"},
		{Value: "other"},
		{Value: "v\n2"},
		{Value: "v3"},
	}))
	if want := "--from=v1\t12 messages yesterday \\x1b[31m\n--from=v3\n"; got != want {
		t.Errorf("CompletionLines = %q, want %q", got, want)
	}
}

func TestCompletionScript(t *testing.T) {
	t.Parallel()
	for _, shell := range surfaces.Shells() {
		script, err := surfaces.CompletionScript(shell, "my-sess")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(script, "my-sess __complete -- ") || strings.Contains(script, "PROG") || strings.Contains(script, "FUNC") {
			t.Errorf("the script for %s is not filled in:\n%s", shell, script)
		}
	}
	for _, bad := range [][2]string{{"tcsh", "sess"}, {"bash", "a; b"}} {
		if _, err := surfaces.CompletionScript(bad[0], bad[1]); !errors.Is(err, &plugin.Error{Code: plugin.Usage}) {
			t.Errorf("CompletionScript(%q, %q) = %v, want a usage error", bad[0], bad[1], err)
		}
	}
}

func FuzzComplete(f *testing.F) {
	for _, s := range []string{"", "save --note", "list --sort=", "new --from=v", "trash r", "actions drop -", "help s", "-q= ", "--agent"} {
		f.Add(s)
	}
	d := fixture(f)
	spec := d.Spec()
	c := surfaces.Commands{Prog: "sess", Specs: []plugin.Spec{spec}}
	f.Fuzz(func(t *testing.T, line string) {
		words := split(line)
		done := c.Complete(words)
		for line := range strings.Lines(surfaces.CompletionLines(done.All(nil))) {
			if last := words[len(words)-1]; !strings.HasPrefix(line, last) {
				t.Errorf("Complete(%q) proposes %q, which does not begin with %q", words, line, last)
			}
		}
	})
}

func TestCompleteSlash(t *testing.T) {
	t.Parallel()
	specs := commands(t).Specs
	spec := specs[slices.IndexFunc(specs, func(s plugin.Spec) bool { return s.Command == "sess" })]
	for _, tt := range []struct {
		argv []string
		want string // values, and in brackets what is asked for
	}{
		{[]string{"sa"}, "save"},
		{[]string{"tra"}, "trash"},
		{[]string{"save", "--"}, "--json --help"},
	} {
		c := surfaces.CompleteSlash(&spec, tt.argv)
		var values []string
		for _, cand := range c.All(nil) {
			values = append(values, cand.Value)
		}
		got := strings.Join(values, " ")
		if tt.argv[0] == "save" { // and the verb's own flags before
			if !strings.HasSuffix(got, tt.want) || strings.Contains(got, "--project") || strings.Contains(got, "--home") {
				t.Errorf("CompleteSlash(%q) = %s", tt.argv, got)
			}
			continue
		}
		if got != tt.want {
			t.Errorf("CompleteSlash(%q) = %s, want %s", tt.argv, got, tt.want)
		}
	}
	if c := surfaces.CompleteSlash(&spec, []string{"save", "v1", "--session=x"}); c.Ask != nil {
		t.Errorf("a chat's session cannot be named, but %+v is asked for", c.Ask)
	}
}

func TestLastWord(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		line   string
		before string
		word   string
		from   int
		ok     bool
	}{
		{"", "", "", 0, true},
		{"/se", "", "/se", 0, true},
		{"/sess  sa", "/sess", "sa", 7, true},
		{"/sess ", "/sess", "", 6, true},
		{`/sess save "v`, "", "", 0, false},
		{`/sess save "v 1"`, "/sess save", "v 1", 11, true},
		{`/sess save v\`, "", "", 0, false},
	} {
		before, word, from, ok := surfaces.LastWord(tt.line)
		if got := strings.Join(before, " "); got != tt.before || word != tt.word || from != tt.from || ok != tt.ok {
			t.Errorf("LastWord(%q) = %q, %q, %d, %v", tt.line, before, word, from, ok)
		}
	}
}
