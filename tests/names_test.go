package tests

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// quote writes a word so that a slash command reads it as it is.
func quote(word string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(word) + `"`
}

// lines has a chat read lines from a pipe.
func (u *user) lines(lines ...string) (stdout, stderr string, exit int) {
	u.t.Helper()
	var out, errs bytes.Buffer
	cmd := u.command("chat")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(strings.Join(lines, "\n")+"\n"), &out, &errs
	exit = u.exit(cmd.Run())
	return out.String(), errs.String(), exit
}

// unchanged remembers the files below the user's folder; the function that it
// returns fails the test if they are others by then. Logs, who had a lock last, and
// when a session was last open, do not count.
func (u *user) unchanged() func() {
	u.t.Helper()
	before, err := readTree(u.dir)
	if err != nil {
		u.t.Fatal(err)
	}
	return func() {
		u.t.Helper()
		after, err := readTree(u.dir)
		if err != nil {
			u.t.Fatal(err)
		}
		changes, err := diffTrees(before, after, []string{"logs", "*.holder", "session_meta.json"})
		if err != nil {
			u.t.Fatal(err)
		}
		if changes != "" {
			u.t.Errorf("files changed:\n%s", changes)
		}
	}
}

// S4-13, S4-15, S4-91, S4-92: A name that would lead out of the store is refused as
// a name wherever one may stand, in an argument, a flag or a variable, and no file
// is read, made or changed for it.
func TestNamesThatLeaveTheStore(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.do("chat", "--message", "hello")
	u.do("save", "alpha")
	canary := []byte(`{"format":"sess/1"}`)
	for _, dir := range []string{u.dir, filepath.Join(u.home, "agents")} { // also two levels above the pool
		if err := os.WriteFile(filepath.Join(dir, "canary.json"), canary, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "canary.sess.json"), canary, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := u.unchanged()
	names := []string{
		"../../canary", "x/../../../canary", "..%2f..%2fcanary", "%2e%2e/canary", "/somewhere/canary",
		`C:\canary`, `..\canary`, ".", "..", "~", "",
	}
	t.Run("names", func(t *testing.T) {
		for _, name := range names {
			t.Run(fmt.Sprintf("%q", name), func(t *testing.T) {
				t.Parallel()
				u := *u
				u.t = t
				refused := func(args ...string) {
					t.Helper()
					stdout, stderr, exit := u.run(args...)
					if exit != 2 || stdout != "" || stderr == "" {
						t.Errorf("sess %q ended with status %d:\n%s%s", args, exit, stdout, stderr)
					}
				}
				for _, words := range [][]string{
					{"save", name},
					{"load", name},
					{"delete", name},
					{"rename", "alpha", name},
					{"copy", "alpha", name},
					{"tag", name, "k=v"},
					{"save", "b", "--project=" + name},
					{"save", "b", "--session=" + name},
				} {
					refused(words...)
				}
				if name != "" { // a variable without a value is as good as none
					env := u.env
					u.env = append(slices.Clone(env), "SESS_PROJECT="+name)
					refused("save", "b")
					u.env = append(slices.Clone(env), "SESS_SESSION="+name)
					refused("save", "b")
					u.env = env
				}
				if name != "" && name != names[0] {
					return // the rest is the same for all
				}
				for _, words := range [][]string{
					{"load", name, "--as-new"},
					{"rename", name, "b"},
					{"copy", name, "b"},
					{"pin", name},
					{"view", name},
					{"verify", name},
					{"select", name},
					{"new", name},
					{"new", "--from=" + name},
					{"list", "--project=" + name},
					{"list", "--agent=" + name},
					{"load", "alpha", "--session=" + name},
					{"chat", "--message", "hello", "--project=" + name},
					{"chat", "--message", "hello", "--session=" + name},
					{"sessions", "show", name},
					{"sessions", "use", name},
				} {
					refused(words...)
				}
			})
		}
	})

	// In a chat, where a NUL can stand as well.
	var lines []string
	for _, name := range append(names, "a\x00b") {
		for _, line := range []string{
			"save %s", "load %s", "delete %s", "rename %s b", "rename alpha %s", "copy %s b", "copy alpha %s",
			"tag %s k=v", "pin %s", "view %s", "verify %s", "new %s", "new --from=%s", "save b --project=%s",
		} {
			lines = append(lines, fmt.Sprintf("/sess "+line, quote(name)))
		}
	}
	stdout, stderr, exit := u.lines(lines...)
	if got := strings.Count(stderr, "error: "); got != len(lines) || stdout != "" || exit != 2 {
		t.Errorf("a chat refused %d of %d lines and ended with status %d:\n%s%s", got, len(lines), exit, stdout, stderr)
	}
	check()
}

// S4-13: names are ASCII. What is not is refused with a name that works, never
// altered, so that no two of them can meet in one file; names that differ by one
// sign are different snapshots.
func TestNamesOfEveryScript(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	accepted := []string{"plan", "a_b", "a-b", "a.b"}
	for _, name := range accepted {
		u.do("new", "--no-backup")
		u.do("chat", "--message", "marker of "+name)
		u.do("save", name)
	}
	list := slices.Sorted(slices.Values(u.names()))
	if want := slices.Sorted(slices.Values(accepted)); !slices.Equal(list, want) {
		t.Fatalf("list = %q, want %q", list, want)
	}
	check := u.unchanged()
	suggested := map[string]bool{}
	for _, name := range []string{"plan計画", "日本", "中国", "😀", "🚀", "👨‍👩‍👧", "caf\u00e9", "cafe\u0301", "a b", "A%20b", "ａ"} {
		var failure struct {
			Code    string
			Error   string
			Details struct{ Suggestion string }
		}
		u.fails(2, &failure, "save", name)
		if failure.Code != "invalid_name" || failure.Details.Suggestion == "" {
			t.Errorf("save %s: %+v", name, failure)
		}
		suggested[failure.Details.Suggestion] = true
		u.fails(2, &failure, "load", name)
		if failure.Code != "invalid_name" {
			t.Errorf("load %s: %+v", name, failure)
		}
		u.fails(2, &failure, "delete", name)
		u.fails(2, &failure, "copy", "plan", name)
		u.fails(2, &failure, "rename", "plan", name)
		stdout, stderr, _ := u.lines("/sess save "+quote(name), "/sess load "+quote(name), "/sess delete "+quote(name))
		if stdout != "" || strings.Count(stderr, "is no name for a snapshot") != 3 {
			t.Errorf("a chat about %s:\n%s%s", name, stdout, stderr)
		}
	}
	check()

	for _, name := range accepted {
		u.do("load", name, "--no-backup")
		if first := u.messages()[0]; first != "marker of "+name {
			t.Errorf("load %s brings back %q", name, first)
		}
	}
	u.do("delete", "plan")
	if list := slices.Sorted(slices.Values(u.names())); !slices.Equal(list, []string{"a-b", "a.b", "a_b"}) {
		t.Errorf("after delete plan the list has %q", list)
	}
	// Everything that was suggested is a name.
	for name := range suggested {
		u.do("save", name, "--overwrite")
	}
}

// The longest name works everywhere; a longer one is refused at once, with the
// limit, and cut nowhere.
func TestLongNames(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.do("chat", "--message", "hello")
	check := u.unchanged()
	for _, name := range []string{
		strings.Repeat("a", 129), strings.Repeat("a", 255), strings.Repeat("a", 256), strings.Repeat("a", 300), strings.Repeat("a", 5000),
	} {
		var failure struct{ Code, Error string }
		u.fails(2, &failure, "save", name)
		if want := fmt.Sprintf("at most 128 characters, this one has %d", len(name)); failure.Code != "invalid_name" || !strings.Contains(failure.Error, want) {
			t.Errorf("save of %d characters: %+v, want %q", len(name), failure, want)
		}
	}
	for _, name := range []string{strings.Repeat("計", 85), strings.Repeat("計", 100), strings.Repeat("👨‍👩‍👧", 64)} {
		_, stderr, exit := u.run("save", name)
		if exit != 2 || !strings.Contains(stderr, "only ASCII letters") || strings.Contains(stderr, "�") || strings.Contains(stderr, `\x`) {
			t.Errorf("save of %d bytes ended with status %d: %s", len(name), exit, stderr)
		}
	}
	check()

	longest := func(end string) string { return strings.Repeat("a", 128-len(end)) + end }
	u.do("save", longest("1"), "--note=x")
	u.do("chat", "--message", "hello again")
	u.do("load", longest("1"))
	u.do("undo")
	u.do("copy", longest("1"), longest("2"))
	u.do("rename", longest("2"), longest("3"))
	u.do("tag", longest("3"), "k=v")
	u.do("pin", longest("3"))
	u.do("view", longest("3"))
	u.do("verify", longest("3"))
	u.do("save", longest("3"), "--overwrite")
	u.do("delete", longest("3"))
	u.do("save", longest("3"))
	// Its neighbour in the trash would have a longer name.
	_, stderr, exit := u.run("trash", "restore", longest("3"))
	_, advice, found := strings.Cut(strings.TrimSpace(stderr), "or run: sess ")
	if exit != 4 || !found {
		t.Fatalf("trash restore over a name ended with status %d: %s", exit, stderr)
	}
	u.do(strings.Fields(advice)...)
	u.do("new", longest("4"), "--from="+longest("1"))
	u.do("delete", "--prefix="+strings.Repeat("a", 100), "--confirm")
	if got := u.names(); len(got) != 0 {
		t.Errorf("after the last delete the list has %q", got)
	}
}

// A slash command reads its line as a shell does, so that what is typed means
// the same as on the command line, whatever keyboard it came from.
func TestSlashLines(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.do("chat", "--message", "hello")
	for line, name := range map[string]string{
		`/sess save "quoted"`:                         "quoted",
		`/sess save 'single'`:                         "single",
		`/sess save “typographic”`:                    "typographic",
		`/sess save „german“`:                         "german",
		`/sess save half"quo"ted`:                     "halfquoted",
		`/sess  save   x1 `:                           "x1",
		"/sess\tsave\tx2":                             "x2",
		"/sess save\nx3":                              "x3",
		"\t/sess save x4\n":                           "x4",
		`/SESS Save x5`:                               "x5",
		`/sess save —note="with a dash" x6`:           "x6",
		`/sess save x7 –note=“it’s fine”`:             "x7",
		`/sess save x8 --note 'say "hi"' --tags=a=b`:  "x8",
		`/snapshot x9`:                                "x9",
		`/sess save -- x10`:                           "x10",
		"/sess save\u00a0x11":                         "x11",
		`/sess save x12 --note="a \"b\" \\ c"`:        "x12",
		`/sess save x13 --note=two\ words`:            "x13",
		`/sess save x14 --note="" --reason='a  b' -q`: "",
	} {
		stdout, stderr, exit := u.run("chat", "--message", line)
		switch {
		case name != "" && (exit != 0 || !strings.Contains(stdout, "saved "+name+":")):
			t.Errorf("%q ended with status %d:\n%s%s", line, exit, stdout, stderr)
		case name == "" && exit != 2:
			t.Errorf("%q ended with status %d, want 2:\n%s%s", line, exit, stdout, stderr)
		}
	}
	notes := map[string]string{
		"x6": "with a dash", "x7": "it’s fine", "x8": `say "hi"`, "x12": `a "b" \ c`, "x13": "two words",
	}
	var list []struct{ Name, Note string }
	u.answer(&list, "list")
	for _, s := range list {
		if s.Note != notes[s.Name] {
			t.Errorf("the note of %s is %q, want %q", s.Name, s.Note, notes[s.Name])
		}
	}
	// What was quoted is loaded the same way, or without quotes.
	for _, line := range []string{`/sess load "quoted"`, `/sess load quoted`, `/sess load “quoted”`} {
		if stdout, stderr, exit := u.run("chat", "--message", line); exit != 0 {
			t.Errorf("%q ended with status %d:\n%s%s", line, exit, stdout, stderr)
		}
	}

	check := u.unchanged()
	for line, want := range map[string]string{
		`/sess save "sql opt"`:         "try sql-opt",
		`/sess save 'it is'`:           "try it-is",
		`/sess save "say \"hi\""`:      "try say-hi",
		`/sess save sql opt`:           `unexpected "opt"`,
		`/sess save sql opt extra`:     `unexpected "opt"`,
		`/sess save "open`:             "the quote at character 12 is not closed",
		`/sess save 'open`:             "the quote at character 12 is not closed",
		`/sess save “open`:             "the quote at character 12 is not closed",
		`/sess save z --note="a b`:     "is not closed",
		`/sess save z\`:                "the line ends in a backslash",
		`/sess save`:                   "the name is missing",
		`/sess save ""`:                "a name is needed",
		`/sess load "sql opt"`:         "no spaces",
		`/sess svae z`:                 "did you mean save?",
		`/ses save z`:                  "did you mean /",
		`/sess save z --overwrit`:      "did you mean --overwrite?",
		`/sess copy quoted`:            "<to> is missing",
		`/sess copy quoted a b`:        `unexpected "b"`,
		`/sess save z --project=other`: "works on its own chat's session",
	} {
		stdout, stderr, exit := u.run("chat", "--message", line)
		if exit != 2 || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%q ended with status %d, want 2 and %q:\n%s%s", line, exit, want, stdout, stderr)
		}
	}
	check()
	if got := len(u.messages()); got != 2 {
		t.Errorf("slash commands left the conversation with %d messages, want 2", got)
	}
	// The command line refuses the same, in the same words.
	for _, words := range [][]string{{"save", "sql opt"}, {"save", "sql", "opt"}, {"save", ""}, {"copy", "quoted"}, {"save"}, {"svae", "z"}} {
		var quoted []string
		for _, w := range words {
			quoted = append(quoted, quote(w))
		}
		_, cli, _ := u.run(words...)
		_, slash, _ := u.run("chat", "--message", "/sess "+strings.Join(quoted, " "))
		cli, slash = strings.TrimPrefix(cli, "sess: "), strings.TrimPrefix(slash, "error: ")
		// A program has commands, and one of them has verbs; in a chat a command has a
		// slash.
		cli = strings.Replace(cli, "unknown command", "unknown verb", 1)
		if slash = strings.ReplaceAll(slash, "/sess ", "sess "); cli != slash {
			t.Errorf("%q is refused differently:\n%s%s", words, cli, slash)
		}
	}
}
