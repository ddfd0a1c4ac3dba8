package tests

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// Every refusal names what it is about, why, and one step that works; here the
// steps are taken.
func TestAdviceWorks(t *testing.T) {
	t.Parallel()
	// In advice, HOME stands for the folder.
	tests := []struct {
		name    string
		before  [][]string    // commands
		prepare func(u *user) // what no command does
		args    []string      // is refused
		exit    int           // with this status
		text    string        // names the thing and the cause
		advice  string        // is in the hint
		then    []string      // does what the advice says
		heal    func(u *user) // what has to be done by hand first
		again   bool          // and then the refused command works
	}{
		{
			name: "a name in use", before: [][]string{{"save", "v1"}}, args: []string{"save", "v1"}, exit: 4,
			text: "there is a snapshot v1 already", advice: "run: sess save v1 --overwrite", then: []string{"save", "v1", "--overwrite"},
		},
		{
			name: "a name in use, in another case", before: [][]string{{"save", "v1"}, {"save", "v2"}}, args: []string{"copy", "v2", "V1"}, exit: 4,
			text: "there is a snapshot v1 already", advice: "run: sess copy v2 v1 --overwrite", then: []string{"copy", "v2", "v1", "--overwrite"},
		},
		{
			name: "an unknown name", args: []string{"load", "nosuch"}, exit: 3,
			text: `there is no snapshot "nosuch"`, advice: "see the names with: sess list --include-auto", then: []string{"list", "--include-auto"},
		},
		{
			name: "a misspelt name", before: [][]string{{"save", "review"}}, args: []string{"load", "reveiw"}, exit: 3,
			text: `there is no snapshot "reveiw"`, advice: "did you mean review?", then: []string{"load", "review"},
		},
		{
			name: "what is no name, to save", args: []string{"save", "sql opt"}, exit: 2,
			text: "a name has no spaces", advice: "try sql-opt", then: []string{"save", "sql-opt"},
		},
		{
			name: "what is no name, to load", before: [][]string{{"save", "sql-opt"}}, args: []string{"load", "sql opt"}, exit: 2,
			text: "a name has no spaces", advice: "did you mean sql-opt?", then: []string{"load", "sql-opt"},
		},
		{
			name: "what is no name and like none", args: []string{"load", "~"}, exit: 2,
			text: `"~" is no name for a snapshot`, advice: "see the names with: sess list --include-auto", then: []string{"list", "--include-auto"},
		},
		{
			name: "the place of a file is taken", prepare: func(u *user) { u.mkdir(filepath.Join(u.pool(), "v1.sess.json")) },
			args: []string{"save", "v1"}, exit: 4,
			text: "v1.sess.json is no file of a snapshot", advice: "choose another name, or move that out of the way", then: []string{"save", "v2"},
			heal: func(u *user) { u.remove(filepath.Join(u.pool(), "v1.sess.json")) }, again: true,
		},
		{
			name: "a damaged snapshot, to load", before: [][]string{{"save", "v1"}}, prepare: (*user).damage,
			args: []string{"load", "v1"}, exit: 7,
			text: "snapshot v1 is damaged", advice: "see what is wrong with: sess verify v1", heal: (*user).damagedIsTold, then: []string{"list"},
		},
		{
			name: "a damaged snapshot, checked", before: [][]string{{"save", "v1"}}, prepare: (*user).damage,
			args: []string{"verify"}, exit: 7,
			text: "v1: it is empty", advice: "put away with: sess delete v1", then: []string{"delete", "v1"},
		},
		{
			name: "damage in the trash", before: [][]string{{"save", "v1"}}, prepare: func(u *user) { u.damage(); u.do("delete", "v1") },
			args: []string{"verify"}, exit: 7,
			text: "v1 in the trash: it is empty", advice: "sess trash list", then: []string{"trash", "list"},
		},
		{
			name: "many to delete", before: [][]string{{"save", "v1"}}, args: []string{"delete", "--prefix=v"}, exit: 2,
			text: "takes 1 snapshot; nothing was deleted", advice: "run: sess delete --prefix=v --confirm", then: []string{"delete", "--prefix=v", "--confirm"},
		},
		{
			name: "the trash to empty", before: [][]string{{"save", "v1"}, {"delete", "v1"}}, args: []string{"trash", "empty"}, exit: 2,
			text: "1 snapshot", advice: "sess trash empty --confirm", then: []string{"trash", "empty", "--confirm"},
		},
		{
			name: "not in the trash", args: []string{"trash", "restore", "v1"}, exit: 3,
			text: `there is no snapshot "v1" in the trash`, advice: "sess trash list", then: []string{"trash", "list"},
		},
		{
			name: "back to a name in use", before: [][]string{{"save", "v1"}, {"delete", "v1"}, {"save", "v1"}}, args: []string{"undo"}, exit: 4,
			text: "v1", advice: "sess trash restore v1 --as=v1-restored", then: []string{"trash", "restore", "v1", "--as=v1-restored"},
		},
		{
			name: "nothing to undo", args: []string{"undo"}, exit: 3,
			text: "there is nothing to undo", advice: "sess list --include-auto", then: []string{"list", "--include-auto"},
		},
		{
			name: "an unknown session", args: []string{"sessions", "show", "nosuch"}, exit: 3,
			text: `no session "nosuch"`, advice: "sess sessions list", then: []string{"sessions", "list"},
		},
		{
			name: "what is no session", args: []string{"save", "v1", "--session=../x"}, exit: 2,
			text: "a session id does not begin with a dot", advice: "sess sessions list", then: []string{"sessions", "list"},
		},
		{
			name: "what is no project", args: []string{"chat", "--message", "hello", "--project=/w/spec-rl"}, exit: 2,
			text: "a project id has no slashes", advice: "try w-spec-rl", then: []string{"chat", "--message", "hello", "--project=w-spec-rl"},
		},
		{
			name: "what is no agent", args: []string{"list", "--agent=a/b"}, exit: 2,
			text: `agent "a/b"`, advice: "leave --agent out for the agent main", then: []string{"list"},
		},
		{
			name: "an unknown plugin", args: []string{"plugins", "inspect", "nosuch"}, exit: 3,
			text: `no plugin "nosuch"`, advice: "sess plugins list", then: []string{"plugins", "list"},
		},
		{
			name: "a plugin that is off", prepare: func(u *user) { u.config(`{"plugins":{"entries":{"sess":{"enabled":false}}}}`) },
			args: []string{"list"}, exit: 9,
			text: "plugin sess is switched off", advice: "sess plugins enable sess",
			then: []string{"plugins", "enable", "sess"}, again: true,
		},
		{
			name: "a configuration of a wrong type", prepare: func(u *user) { u.config(`{"plugins":{"entries":{"sess":{"config":{"maxSnapshots":"ten"}}}}}`) },
			args: []string{"list"}, exit: 2,
			text: "plugins.entries.sess.config.maxSnapshots: want integer", advice: "sess config validate",
			heal: func(u *user) { u.config(`{"plugins":{"entries":{"sess":{"config":{"maxSnapshots":10}}}}}`) },
			then: []string{"config", "validate"}, again: true,
		},
		{
			name: "a configuration that is none", prepare: func(u *user) { u.config(`{`) }, args: []string{"save", "v1"}, exit: 2,
			text: "config.json", advice: "sess config validate", heal: func(u *user) { u.config(`{}`) },
			then: []string{"config", "validate"}, again: true,
		},
		{
			name: "an unknown verb", args: []string{"lsit"}, exit: 2,
			text: `unknown command "lsit"`, advice: "did you mean list?", then: []string{"list"},
		},
		{
			name: "a verb that is like none", args: []string{"xyzzy"}, exit: 2,
			text: `unknown command "xyzzy"`, advice: "sess help", then: []string{"help"},
		},
		{
			name: "half a verb", args: []string{"trash"}, exit: 2,
			text: "trash needs a second word", advice: "trash list", then: []string{"trash", "list"},
		},
		{
			name: "an unknown flag", args: []string{"save", "v1", "--overwrit"}, exit: 2,
			text: "unknown flag --overwrit", advice: "did you mean --overwrite?", then: []string{"save", "v1", "--overwrite"},
		},
		{
			name: "a flag that is like none", args: []string{"save", "v1", "--shiny"}, exit: 2,
			text: "unknown flag --shiny", advice: "leave it out", then: []string{"save", "v1"},
		},
		{
			name: "a flag before the command", args: []string{"--shiny", "list"}, exit: 2,
			text: "unknown flag --shiny", advice: "leave it out", then: []string{"list"},
		},
		{
			name: "a flag without its value", args: []string{"save", "v1", "--note"}, exit: 2,
			text: "--note needs a value", advice: "write --note=<text>", then: []string{"save", "v1", "--note=text"},
		},
		{
			name: "a number that is none", args: []string{"list", "--limit=abc"}, exit: 2,
			text: `--limit: "abc" is not a whole number`, advice: "such as 20", then: []string{"list", "--limit=20"},
		},
		{
			name: "a duration that is none", args: []string{"prune", "--older-than=30"}, exit: 2,
			text: `--older-than: "30"`, advice: "7d", then: []string{"prune", "--older-than=7d"},
		},
		{
			name: "a word too many", args: []string{"save", "v1", "--note=two", "words"}, exit: 2,
			text: `unexpected "words"`, advice: "put quotes around a value that has spaces", then: []string{"save", "v1", "--note=two words"},
		},
		{
			name: "no name", args: []string{"save"}, exit: 2,
			text: "save: the name is missing", advice: "sess save v1", then: []string{"save", "v1"},
		},
		{
			name: "an unknown model", args: []string{"chat", "--message", "hello", "--model=nosuch/x"}, exit: 2,
			text: "nosuch", advice: "the providers are anthropic, offline, ollama, openai", then: []string{"chat", "--message", "hello", "--model=offline/echo"},
		},
		{
			name: "an unknown shell", args: []string{"completion", "csh"}, exit: 2,
			text: `"csh"`, advice: "bash, zsh, fish", then: []string{"completion", "fish"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			u := newUser(t)
			u.do("chat", "--message", "hello")
			for _, args := range tt.before {
				u.do(args...)
			}
			if tt.prepare != nil {
				tt.prepare(u)
			}
			var failure struct{ Error, Hint string }
			u.fails(tt.exit, &failure, tt.args...)
			advice := strings.ReplaceAll(tt.advice, "HOME", u.home)
			if !strings.Contains(failure.Error, tt.text) || !strings.Contains(failure.Hint, advice) {
				t.Errorf("sess %q says %q, %q; want %q, %q", tt.args, failure.Error, failure.Hint, tt.text, advice)
			}
			if tt.heal != nil {
				tt.heal(u)
			}
			u.do(tt.then...)
			if tt.again {
				u.do(tt.args...)
			}
		})
	}
}

func (u *user) mkdir(dir string) {
	u.t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		u.t.Fatal(err)
	}
}

func (u *user) remove(name string) {
	u.t.Helper()
	if err := os.Remove(name); err != nil {
		u.t.Fatal(err)
	}
}

// damage leaves nothing of the snapshot v1.
func (u *user) damage() {
	u.t.Helper()
	if err := os.Truncate(filepath.Join(u.pool(), "v1.sess.json"), 0); err != nil {
		u.t.Fatal(err)
	}
}

// damagedIsTold has verify say what is wrong with v1.
func (u *user) damagedIsTold() {
	u.t.Helper()
	var failure struct{ Error string }
	if u.fails(7, &failure, "verify", "v1"); !strings.Contains(failure.Error, "v1: it is empty") {
		u.t.Errorf("verify v1 says %q", failure.Error)
	}
}

func (u *user) config(text string) {
	u.t.Helper()
	u.mkdir(u.home)
	if err := os.WriteFile(filepath.Join(u.home, "config.json"), []byte(text), 0o600); err != nil {
		u.t.Fatal(err)
	}
}

// While a turn runs, what would change its session is refused with the holder
// and the way out; saving is not. When the turn has been stopped, it works.
func TestAdviceWhileATurnRuns(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no interrupts to send")
	}
	u := newUser(t)
	u.do("chat", "--message", "hello")
	u.do("save", "v1")
	chat := u.command("chat", "--message", "slow 5000 20ms")
	out, err := chat.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := chat.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadByte(); err != nil { // the turn has begun
		t.Fatal(err)
	}
	u.do("save", "meanwhile")
	for _, refused := range []struct {
		args         []string
		text, advice string
	}{
		{[]string{"load", "v1"}, "session ", "wait for the turn to end, or stop it"},
		{[]string{"new"}, "session ", "wait for the turn to end, or stop it"},
		{[]string{"chat", "--message", "me too"}, fmt.Sprintf("is in use by process %d (turn)", chat.Process.Pid), "send the message again when that has ended"},
	} {
		var failure struct{ Code, Error, Hint string }
		u.fails(5, &failure, refused.args...)
		if failure.Code != "busy" || !strings.Contains(failure.Error, refused.text) || !strings.Contains(failure.Hint, refused.advice) {
			t.Errorf("sess %q while a turn runs: %+v", refused.args, failure)
		}
	}
	if err := chat.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if exit := u.exit(chat.Wait()); exit != 130 {
		t.Errorf("the interrupted chat ended with status %d, want 130", exit)
	}
	u.do("load", "v1")
	u.do("chat", "--message", "me too")
	if got := u.messages(); !slices.Contains(got, "me too") || len(got) != 4 {
		t.Errorf("the session has %q", got)
	}
}
