package tests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// finding is one of what sess doctor looks at.
type finding struct{ Check, State, Text, Fix string }

// doctor runs sess doctor, which has to end with the status, and returns what it
// found failed.
func (u *user) doctor(exit int) []finding {
	u.t.Helper()
	var all, failed []finding
	if exit == 0 {
		u.answer(&all, "doctor")
	} else {
		var e refusal
		u.fails(exit, &e, "doctor")
		if err := json.Unmarshal([]byte(e.Details["findings"]), &all); err != nil {
			u.t.Fatalf("doctor: %v\n%+v", err, e)
		}
	}
	for _, f := range all {
		if f.State == "failed" {
			failed = append(failed, f)
		}
	}
	return failed
}

// sess doctor finds what is wrong, one thing or several, and says what to do.
func TestDoctor(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.doctor(0)
	if _, err := os.Stat(u.home); !os.IsNotExist(err) {
		t.Errorf("doctor made the home: %v", err)
	}
	u.do("chat", "--message", "hello")
	u.do("save", "v1")
	if out := u.do("doctor"); !strings.Contains(out, "snapshots  ok      1, none of them damaged") {
		t.Errorf("doctor of a healthy home says:\n%s", out)
	}

	sessions, err := filepath.Glob(filepath.Join(u.home, "sessions", "default", "*.json"))
	if err != nil || len(sessions) != 1 {
		t.Fatalf("sessions: %q, %v", sessions, err)
	}
	snapshot := filepath.Join(u.home, "agents", "main", "sessions", "v1.sess.json")
	write(t, snapshot, "{", 0o600)
	wants := func(exit int, checks ...string) {
		t.Helper()
		failed := u.doctor(exit)
		if len(failed) != len(checks) {
			t.Fatalf("doctor found %+v, want %q", failed, checks)
		}
		for i, f := range failed {
			if f.Check != checks[i] || f.Fix == "" {
				t.Errorf("doctor found %+v, want %s and what to do", f, checks[i])
			}
		}
	}
	wants(7, "snapshots")
	file := filepath.Join(u.home, "config.json")
	write(t, file, `{"gateway": {"listen": 7}}`, 0o600)
	wants(2, "config") // nothing else can be asked, which is told without telling it again
	if _, stderr, _ := u.run("doctor"); strings.Count(stderr, "gateway.listen") != 1 || !strings.Contains(stderr, "snapshots  note    not looked at, because of what config says") {
		t.Errorf("doctor of a home with a bad configuration says:\n%s", stderr)
	}
	write(t, file, `{"plugins": {"entries": {"sess": {"config": {"storageDir": "../../.."}}}}}`, 0o600)
	if failed := u.doctor(2); len(failed) == 0 || failed[0].Check != "plugin" || !strings.Contains(failed[0].Text, "config") {
		t.Errorf("doctor of a plugin that does not take its configuration: %+v", failed)
	}
}

// A home that is a file, or cannot be made, is told as such by every command, and by
// sess doctor as the one thing that is wrong.
func TestHomeThatCannotBe(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	write(t, file, "x", 0o600)
	for _, home := range []string{file, filepath.Join(file, "home")} {
		for _, args := range [][]string{{"doctor"}, {"list"}, {"chat", "--message", "x"}, {"plugins", "list"}, {"gateway", "start"}, {"config", "show"}} {
			if _, stderr, exit := u.run(append([]string{"--home=" + home}, args...)...); exit != 6 && exit != 9 || !strings.Contains(stderr, "cannot use "+home+" as the home folder: ") || strings.Count(stderr, "--home or SESS_HOME") != 1 {
				t.Errorf("sess %v with the home %s ends with %d and says:\n%s", args, home, exit, stderr)
			}
		}
	}
}
