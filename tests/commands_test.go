package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScriptCommands runs small scripts without the binary: each of their
// commands has to fail where it should, or the real scripts prove nothing.
func TestScriptCommands(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("the scripts use a Unix shell")
	}
	const doc = "\n-- doc.json --\n" + `{"list":[{"name":"alpha","tags":{"b":1,"a":"<x>"}},{"name":"beta"}],"n":1.50,"none":null}` + "\n"
	const snap = "\n-- s.sess.json --\n" + `{"format":"sess/1","meta":{"id":"x","note":"n","updatedAt":"1999-01-01T00:00:00.000Z"},"header":{},` +
		`"lists":{"messages":{"records":1,"tail":[{"role":"user","content":"hi"}]}}}` + "\n"
	tests := []struct {
		name, script string
		fail         string // in the log; "" if the script passes
	}{
		{"exit code as wanted", "wantexit 3 sh -c 'exit 3'", ""},
		{"exit code zero", "wantexit 0 true", ""},
		{"another exit code", "wantexit 3 sh -c 'exit 4'", "ended with exit code 4, want 3"},
		{"success instead of failure", "wantexit 3 true", "ended with exit code 0, want 3"},
		{"killed by a signal", "wantexit 1 sh -c 'kill -9 $$'", "ended with exit code -1"},
		{"no such command", "wantexit 127 no-such-command", "did not run"},
		{"output is kept", "wantexit 3 sh -c 'echo out; echo err >&2; exit 3'\nstdout out\nstderr err", ""},
		{"stdin is passed", "stdin doc.json\nwantexit 0 cat\njsonpath stdout .n 1.50" + doc, ""},
		{"umask", "umask 027 sh -c 'echo > f; mkdir d'\nmode 0640 f\nmode 0750 d", ""},
		{"umask of a failing command", "umask 027 false", "got error exit status 1"},
		{"umask of a command that has to fail", "! umask 027 false", ""},
		{"another mode", "exec sh -c 'echo > f; chmod 644 f'\nmode 0600 f", "f has mode 0644, want 0600"},
		{"a string", "jsonpath doc.json .list.0.name alpha" + doc, ""},
		{"a part as JSON with its keys in order", `jsonpath doc.json .list.0.tags '{"a":"<x>","b":1}'` + doc, ""},
		{"null is a value", "jsonpath doc.json .none null" + doc, ""},
		{"the whole document", "exec echo '[]'\njsonpath stdout . '[]'", ""},
		{"another string", "jsonpath doc.json .list.1.name alpha" + doc, "got beta"},
		{"not this string", "! jsonpath doc.json .list.1.name alpha" + doc, ""},
		{"not this string, where there is nothing", "! jsonpath doc.json .list.2.name alpha" + doc, "has nothing at .list.2.name"},
		{"present", "jsonpath doc.json .list.1.name" + doc, ""},
		{"absent", "! jsonpath doc.json .list.1.tags" + doc, ""},
		{"absent but wanted", "jsonpath doc.json .list.1.tags" + doc, "found is false"},
		{"present but not wanted", "! jsonpath doc.json .none" + doc, "found is true"},
		{"an element that is no number", "jsonpath doc.json .list.first" + doc, "found is false"},
		{"below a string", "jsonpath doc.json .list.0.name.x" + doc, "found is false"},
		{"not JSON", "exec echo hello\njsonpath stdout .", "not JSON"},
		{"two documents", "exec echo '1 2'\njsonpath stdout .", "more than one JSON document"},
		{"no dot", "jsonpath doc.json list" + doc, "does not begin with a dot"},
		{"match", "jsonmatch doc.json .list.0.name ^al" + doc, ""},
		{"no match", "jsonmatch doc.json .list.0.name ^be" + doc, "got alpha"},
		{"no match, as wanted", "! jsonmatch doc.json .list.0.name ^be" + doc, ""},
		{"length of a list", "jsonlen doc.json .list 2" + doc, ""},
		{"another length", "jsonlen doc.json .list 3" + doc, "has length 2, want 3"},
		{"length of a number", "jsonlen doc.json .n 1" + doc, "has length -1"},
		{"a variable", "jsonenv NAME doc.json .list.1.name\nexec echo $NAME\nstdout beta" + doc, ""},
		{"another age", "aged 90d s.sess.json\njsonmatch s.sess.json .meta.updatedAt ^20" + snap, ""},
		{"the age leaves the rest as it is", "aged 90d s.sess.json\njsonpath s.sess.json .meta.note n\njsonpath s.sess.json .lists.messages.tail.0.content hi" + snap, ""},
		{"an age in the future", "aged -36500d s.sess.json\njsonmatch s.sess.json .meta.createdAt ^21" + snap, ""},
		{"no age", "aged old s.sess.json" + snap, "is not a duration"},
		{"the age of something else", "aged 90d doc.json" + doc, "doc.json: "},
		{"same tree", "snaptree a .\nsametree a", ""},
		{"same tree without a home", "snaptree a\nsametree a", ""},
		{"a new file", "snaptree a .\nexec sh -c 'echo > f'\nsametree a", "+ f -rw"},
		{"a new file, as wanted", "snaptree a .\nexec sh -c 'echo > f'\n! sametree a", ""},
		{"a new file, ignored", "snaptree a .\nmkdir .locks\nexec sh -c 'echo > .locks/f'\nsametree a .lock*", ""},
		{"a removed file", "exec sh -c 'echo > f'\nsnaptree a .\nrm f\nsametree a", "- f -rw"},
		{"other bytes of the same length", "exec sh -c 'echo a > f'\nsnaptree a .\nexec sh -c 'echo b > f'\nsametree a", "+ f -rw"},
		{"another mode of a file", "exec sh -c 'echo > f'\nsnaptree a .\nchmod 400 f\nsametree a", "+ f -r--------"},
		{"another target of a link", "exec ln -s x l\nsnaptree a .\nexec ln -sf y l\nsametree a", "to y"},
		{"an unchanged tree where a change is wanted", "snaptree a .\n! sametree a", "since snaptree a"},
		{"a tree that was not remembered", "sametree b", "no snaptree b before"},
		{"homes", "exec sh -c 'test $HOME = $WORK/home && test $SESS_HOME = $WORK/home/.sess && test ! -e $SESS_HOME'", ""},
		{"wrong use", "wantexit 3", "usage: wantexit CODE CMD"},
	}
	bin := t.TempDir()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "script.txtar")
			if err := os.WriteFile(file, []byte(tt.script+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			params := scriptParams(bin, "")
			params.Files = []string{file}
			params.UpdateScripts = false
			var got outcome
			testscript.RunT(&got, params)
			switch {
			case tt.fail == "" && got.failed:
				t.Errorf("script failed:\n%s", &got.log)
			case tt.fail != "" && (!got.failed || !strings.Contains(got.log.String(), tt.fail)):
				t.Errorf("failed is %t, want a failure with %q:\n%s", got.failed, tt.fail, &got.log)
			}
		})
	}
}

// outcome is a testscript.T that notes how a script ended.
type outcome struct {
	failed bool
	log    strings.Builder
}

func (o *outcome) Skip(args ...any)  { o.Fatal(append([]any{"skipped:"}, args...)...) }
func (o *outcome) Fatal(args ...any) { o.Log(args...); o.FailNow() }
func (o *outcome) Log(args ...any)   { fmt.Fprintln(&o.log, args...) }
func (o *outcome) FailNow()          { o.failed = true; runtime.Goexit() }
func (o *outcome) Parallel()         {}
func (o *outcome) Verbose() bool     { return false }

func (o *outcome) Run(_ string, f func(testscript.T)) {
	var wg sync.WaitGroup
	wg.Go(func() { f(o) }) // FailNow ends the goroutine, not the caller
	wg.Wait()
}
