package surfaces_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"sess/plugin"
	"sess/surfaces"
)

func TestSplit(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, line string
		want       []string
	}{
		{"nothing", "", nil},
		{"blanks only", " \t\n", nil},
		{"words", "/sess save v1", []string{"/sess", "save", "v1"}},
		{"blanks of all kinds", "  a \t b\r\nc\u00a0d\u3000e\u2003f ", []string{"a", "b", "c", "d", "e", "f"}},
		{"double quotes", `save "sql opt"`, []string{"save", "sql opt"}},
		{"single quotes", `save 'it is' '\x "y"'`, []string{"save", "it is", `\x "y"`}},
		{"escaped quotes", `"say \"hi\"" "a\\b" "a\nb"`, []string{`say "hi"`, `a\b`, `a\nb`}},
		{"backslashes", `a\ b \"c it\'s`, []string{"a b", `"c`, "it's"}},
		{"empty quotes are a word", `a "" ''`, []string{"a", "", ""}},
		{"quotes within a word", `--note="a b"'c d'e`, []string{"--note=a bc de"}},
		{"a line end within quotes", "\"a\nb\"", []string{"a\nb"}},
		{"typographic quotes", `“a b” „c d“ „e f” «g h» »i j« ‘k l’ ‚m n‘ ”o p”`, []string{"a b", "c d", "e f", "g h", "i j", "k l", "m n", "o p"}},
		{"typographic quotes of a value", `--note=“a b” x`, []string{"--note=a b", "x"}},
		{"an apostrophe is text", "it’s ’tis", []string{"it’s", "’tis"}},
		{"an apostrophe within quotes", "‘it’s fine’", []string{"it’s fine"}},
		{"a quote within a word is text", "a“b”", []string{"a“b”"}},
		{"plain quotes within typographic ones", `“say "hi" now”`, []string{`say "hi" now`}},
		{"typographic dashes of a flag", "—note ––note –note ―x=1 —日", []string{"--note", "--note", "--note", "--x=1", "--日"}},
		{"a long dash alone", "a — b", []string{"a", "--", "b"}},
		{"other dashes are text", "a – b —1 a—b ———x \"—x\"", []string{"a", "–", "b", "—1", "a—b", "———x", "—x"}},
		{"bytes that are no characters", "a\xff \"\xff\"", []string{"a\xff", "\xff"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := surfaces.Split(tt.line)
			if err != nil {
				t.Fatalf("Split(%q): %v", tt.line, err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Split(%q) (-want +got):\n%s", tt.line, diff)
			}
		})
	}
}

func TestSplitRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		`/sess save "open`: `the quote at character 12 is not closed: "open; close it, or write a backslash before it`,
		"é it's":           "the quote at character 5 is not closed: 's; close it, or write a backslash before it",
		"“a b":             "the quote at character 1 is not closed: “a b; close it at the end of a word, or use plain double quotes",
		`a\`:               `the line ends in a backslash; write \\ for a backslash`,
		`"a\`:              `the quote at character 1 is not closed: "a\; close it, or write a backslash before it`,
	}
	for line, want := range tests {
		_, err := surfaces.Split(line)
		if diff := cmp.Diff(want, text(t, err)); diff != "" {
			t.Errorf("Split(%q) (-want +got):\n%s", line, diff)
		}
	}
}

func slash(t *testing.T) *surfaces.Slash {
	t.Helper()
	return &surfaces.Slash{Specs: []plugin.Spec{*spec(t)}, Builtins: []string{"tools", "help"}}
}

func TestSlashLower(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, line string
		want       surfaces.SlashCall
	}{
		{"a verb", `/sess save v1 --note="x y"`, surfaces.SlashCall{Argv: []string{"save", "v1", "--note=x y"}}},
		{"any case", "/SESS Save X", surfaces.SlashCall{Argv: []string{"save", "X"}}},
		{"two words in any case", "/Sess Trash RESTORE X", surfaces.SlashCall{Argv: []string{"trash", "restore", "X"}}},
		{"an unknown verb is left to the dispatcher", "/sess Sav X", surfaces.SlashCall{Argv: []string{"Sav", "X"}}},
		{"a shortcut", "/Snapshot v1 —overwrite", surfaces.SlashCall{Argv: []string{"save", "v1", "--overwrite"}}},
		{"json before the verb", "/sess --json LIST", surfaces.SlashCall{Argv: []string{"list"}, JSON: true}},
		{"json after the verb", "/sess list --json", surfaces.SlashCall{Argv: []string{"list"}, JSON: true}},
		{"json as a value", "/sess save v1 --note --json", surfaces.SlashCall{Argv: []string{"save", "v1", "--note", "--json"}}},
		{"json after --", "/sess save -- --json", surfaces.SlashCall{Argv: []string{"save", "--", "--json"}}},
		{"help for a verb", "/sess save --help", surfaces.SlashCall{Argv: []string{"save"}, Help: true}},
		{"help first", "/sess HELP Save", surfaces.SlashCall{Argv: []string{"save"}, Help: true}},
		{"nothing but the command", "/sess", surfaces.SlashCall{Help: true}},
		{"the chat's own", "/Tools --x 'a b'", surfaces.SlashCall{Builtin: "tools", Argv: []string{"--x", "a b"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := slash(t)
			got, err := s.Lower(tt.line)
			if err != nil {
				t.Fatalf("Lower(%q): %s", tt.line, text(t, err))
			}
			if tt.want.Builtin == "" {
				tt.want.Spec = &s.Specs[0]
			}
			if len(got.Argv) == 0 {
				got.Argv = nil
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Lower(%q) (-want +got):\n%s", tt.line, diff)
			}
		})
	}
}

// A command that is known, but not there now, is not taken for a slip.
func TestSlashLowerTellsWhyACommandIsAbsent(t *testing.T) {
	t.Parallel()
	s := slash(t)
	s.Absent = func(command string) error {
		if command != "snapper" {
			return nil
		}
		return plugin.Errorf(plugin.Unavailable, "plugin snapper is switched off")
	}
	for _, line := range []string{"/snapper list", "/SNAPPER"} {
		if _, err := s.Lower(line); !errors.Is(err, &plugin.Error{Code: plugin.Unavailable}) || err.Error() != "plugin snapper is switched off" {
			t.Errorf("Lower(%q) = %v, want what Absent says", line, err)
		}
	}
	_, err := s.Lower("/snap")
	if diff := cmp.Diff("unknown command /snap; did you mean /snapshot?", text(t, err)); diff != "" {
		t.Errorf("Lower(/snap) (-want +got):\n%s", diff)
	}
}

func TestSlashLowerRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"hello":                   `"hello" is no command; the commands are /tools, /help, /sess, /snapshot`,
		"/ses save":               "unknown command /ses; did you mean /sess?",
		"/save v1":                "unknown command /save; did you mean /sess save?",
		"/RM v1":                  "unknown command /RM; did you mean /sess rm?",
		"/snap":                   "unknown command /snap; did you mean /snapshot?",
		"/xyzzy":                  "unknown command /xyzzy; the commands are /tools, /help, /sess, /snapshot",
		"/":                       "unknown command /; the commands are /tools, /help, /sess, /snapshot",
		`/sess save "open`:        `the quote at character 12 is not closed: "open; close it, or write a backslash before it`,
		"/sess list --session=s1": "--session: a slash command works on its own chat's session; leave it out, or use the command line",
		"/sess --home /x list":    "--home: a slash command works on its own chat's session; leave it out, or use the command line",
		"/sess list -v":           "--verbose has no meaning in a chat; leave it out",
		"/sess list --agent=":     "--agent is empty; name one, or leave --agent out for the default",
	}
	for line, want := range tests {
		_, err := slash(t).Lower(line)
		if diff := cmp.Diff(want, text(t, err)); diff != "" {
			t.Errorf("Lower(%q) (-want +got):\n%s", line, diff)
		}
	}
}

func TestIsSlash(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{"/sess": true, " \u00a0/x": true, "a /sess": false, "": false} {
		if got := surfaces.IsSlash(line); got != want {
			t.Errorf("IsSlash(%q) = %v, want %v", line, got, want)
		}
	}
}

func FuzzSplit(f *testing.F) {
	for _, s := range []string{`/sess save "a \"b\"" 'c'`, "“a b” —x ‘it’s’", `a\`, `"`, "„x“\u00a0é\xff", `--note=»a«`, "\"\\\\\""} {
		f.Add(s)
	}
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	f.Fuzz(func(t *testing.T, line string) {
		words, err := surfaces.Split(line)
		if err != nil {
			text(t, err)
		}
		total := 0
		quoted := make([]string, len(words))
		for i, w := range words {
			total += utf8.RuneCountInString(w)
			quoted[i] = `"` + quote.Replace(w) + `"`
		}
		// A dash of two bytes or more may become two of one; nothing else grows.
		if total > 2*utf8.RuneCountInString(line) {
			t.Errorf("Split(%q) = %q: longer than the line", line, words)
		}
		// Any words can be written so that they are read again.
		again, err := surfaces.Split(strings.Join(quoted, " "))
		if err != nil {
			t.Fatalf("Split of %q: %v", quoted, err)
		}
		if diff := cmp.Diff(words, again); diff != "" {
			t.Errorf("Split(%q), quoted and split again (-want +got):\n%s", line, diff)
		}
	})
}
