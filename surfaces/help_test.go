package surfaces_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"sess/plugin"
	"sess/surfaces"
)

const commandHelp = `named snapshots of conversations

usage: sess <verb> [arguments] [flags]

  save <name>        keep the conversation under a name
  load <name>        go back to a snapshot (also restore, get)
  list               list the snapshots (also ls, show)
  new [<name>]       start a fresh conversation (also reset, fresh)
  copy <from> <to>   copy a snapshot (also cp)
  delete [<name>]    remove snapshots (also rm)

more:   drop, tag, trash list, trash restore

sess help <verb> tells about one verb, and the flags of every verb.`

const saveHelp = `keep the conversation under a name

usage: sess save <name> [flags]

The snapshot holds the whole conversation.

An existing name is refused unless --overwrite is given.

arguments:
  <name>   name of a snapshot

flags:
  -n, --note=<text>           text to remember it by
      --tags=<key=value>      labels (may be repeated)
      --include-file=<text>   files to keep with it (may be repeated)
  -o, --overwrite             replace a snapshot of this name

examples:
  sess save v1
  sess save v2 --note="before the refactoring"

flags of every verb:
      --agent=<agent>       agent whose snapshots are meant (default main)
      --project=<project>   project of the session and its snapshots
      --session=<session>   session to work on (default: the active one)
      --json                print one JSON document
  -q, --quiet               print only what was asked for
  -v, --verbose             log to stderr
      --home=<folder>       where everything is kept (default ~/.sess, or
                            SESS_HOME)
      --url=<text>          work through the gateway at this address (or
                            SESS_GATEWAY_URL)
      --token=<text>        its token (better in SESS_GATEWAY_TOKEN: others see
                            your command lines)
      --token-file=<file>   a file with its token
  -h, --help                tell how it is used
      --version             print the version`

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ argv, want string }{
		{"", commandHelp},
		{"save", saveHelp},
	} {
		got, err := surfaces.Help(spec(t), "sess", strings.Fields(tt.argv))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("Help(%q) (-want +got):\n%s", tt.argv, diff)
		}
		lines := strings.Split(got, "\n")
		if tt.argv == "" && len(lines) > 24 {
			t.Errorf("Help(%q) has %d lines, want at most 24", tt.argv, len(lines))
		}
		for _, line := range lines {
			if utf8.RuneCountInString(line) > 80 {
				t.Errorf("Help(%q): line of more than 80 columns: %q", tt.argv, line)
			}
		}
	}
}

func TestHelpFindsVerbs(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"restore v1":       "usage: sess load <name> [flags]",
		"trash restore":    "usage: sess trash restore <name>",
		"trash":            "trash restore <name>",
		"new":              "--[no-]backup",
		"list":             "--sort=<updated|name>",
		"delete --confirm": "--confirm",
	}
	for argv, want := range tests {
		got, err := surfaces.Help(spec(t), "sess", strings.Fields(argv))
		if err != nil || !strings.Contains(got, want) {
			t.Errorf("Help(%q) = %v:\n%s\nwant it to have %q", argv, err, got, want)
		}
	}
	refused := map[string]string{
		"sav":   `no help for "sav": there is no such verb; did you mean save?`,
		"xyzzy": `no help for "xyzzy": there is no such verb; sess help lists the verbs`,
	}
	for argv, want := range refused {
		_, err := surfaces.Help(spec(t), "sess", strings.Fields(argv))
		if diff := cmp.Diff(want, text(t, err)); diff != "" {
			t.Errorf("Help(%q) (-want +got):\n%s", argv, diff)
		}
	}
}

func TestHelpHidesInternals(t *testing.T) {
	t.Parallel()
	spec := spec(t)
	all := surfaces.HelpCommand(spec, "sess") + surfaces.HelpVerb(&spec.Verbs[0], "sess") + surfaces.ToolSchema(spec).Description +
		string(surfaces.ToolSchema(spec).InputSchema)
	for _, hidden := range []string{"trigger", "records of operations"} {
		if strings.Contains(all, hidden) {
			t.Errorf("help or schema shows %q, which is for plugins only", hidden)
		}
	}
	if _, err := surfaces.Help(spec, "sess", []string{"op"}); err == nil {
		t.Error("Help shows an internal verb")
	}
}

func TestHelpWithoutMainVerbs(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("word ", 40)
	got := surfaces.HelpCommand(&plugin.Spec{Command: "x", Summary: "a thing", Verbs: []plugin.Verb{
		{Name: "a-rather-long-verb of-two-words", Summary: long},
		{Name: "b", Summary: "short"},
	}}, "/x")
	want := `a thing

usage: /x <verb> [arguments] [flags]

  a-rather-long-verb of-two-words
      word word word word word word word word word word word word word word word
      word word word word word word word word word word word word word word word
      word word word word word word word word word word
  b   short

/x help <verb> tells about one verb.`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("HelpCommand (-want +got):\n%s", diff)
	}
}

func TestHelpInAChat(t *testing.T) {
	t.Parallel()
	got, err := surfaces.Help(spec(t), "/sess", []string{"save"})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(got, "--home") || strings.Contains(got, "flags of every verb") {
		t.Errorf("help in a chat offers flags that a chat refuses:\n%s", got)
	}
}

func TestHelpNamesWhatStandsBesideTheVerbs(t *testing.T) {
	t.Parallel()
	got := surfaces.HelpCommand(spec(t), "sess", "chat", "demo")
	if want := "\nmore:   drop, tag, trash list, trash restore\nbeside: chat, demo\n\nsess help <verb> "; !strings.Contains(got, want) {
		t.Errorf("HelpCommand:\n%s\nwant it to have %q", got, want)
	}
	got = surfaces.HelpCommand(&plugin.Spec{Summary: "a thing", Verbs: []plugin.Verb{{Name: "b", Summary: "short"}}}, "x", "chat")
	if want := "  b   short\n\nbeside: chat\n\nx help <verb> "; !strings.Contains(got, want) {
		t.Errorf("HelpCommand:\n%s\nwant it to have %q", got, want)
	}
}

func TestExitStatuses(t *testing.T) {
	t.Parallel()
	const want = `exit status: 0 done, 1 internal, 2 usage or invalid_name, 3 not_found, 4 exists
             or conflict, 5 busy or readonly, 6 denied, 7 corrupt or
             newer_format, 8 no_space, 9 unavailable, 124 deadline, 130
             interrupted`
	if diff := cmp.Diff(want, surfaces.ExitStatuses()); diff != "" {
		t.Errorf("ExitStatuses (-want +got):\n%s", diff)
	}
}
