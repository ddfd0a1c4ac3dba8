package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// snapshotRow is a snapshot in a list of them.
type snapshotRow struct {
	Name, ID, Reason, Digest, Trigger, SessionID string
	Messages                                     int
	Automatic                                    bool
}

// rows are the snapshots below a session, the newest first.
func (w *web) rows(session string) []snapshotRow {
	w.t.Helper()
	var rows []snapshotRow
	w.want(200, &rows, "GET", "/sessions/"+session+"/snapshots", "")
	return rows
}

// snap makes a snapshot of a session.
func (w *web) snap(session, reason string) snapshotRow {
	w.t.Helper()
	var made struct{ Data snapshotRow }
	body, err := json.Marshal(map[string]string{"reason": reason})
	if err != nil {
		w.t.Fatal(err)
	}
	w.want(201, &made, "POST", "/sessions/"+session+"/snapshots", string(body))
	return made.Data
}

// restore brings a snapshot back, and returns the name of the backup, or "".
func (w *web) restore(session, name string) string {
	w.t.Helper()
	var done struct{ Data struct{ Backup *string } }
	w.want(200, &done, "POST", "/sessions/"+session+"/snapshots/"+name+"/restore", "")
	if done.Data.Backup == nil {
		return ""
	}
	return *done.Data.Backup
}

// S0-01, S0-02, S0-04, S0-05, S0-06, S0-07, S0-08, S0-15, S1-15, S1-16, S1-17, S1-30, S1-31: a
// snapshot is a file of its own beside the sessions, which holds the whole
// conversation and never changes, can be looked at, and be brought back.
func TestSnapshotIsAWholeCopy(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	long := strings.TrimSpace(strings.Repeat("as long as it takes ", 4000))
	u.do("--session=one", "chat", "--message", long)
	u.do("--session=one", "chat", "--message", `call sess_manage {"action":"list"}`)
	w := u.serve()
	first := w.snap("one", "the same reason")
	file := filepath.Join(u.home, poolAt, first.Name+".sess.json")
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("a snapshot is no file in the pool: %v", err)
	}
	bundle := w.want(200, nil, "GET", "/sess/export?name="+first.Name, "").body
	for range 3 {
		u.do("--session=one", "chat", "--message", "and later something else")
	}
	if second := w.snap("one", "the same reason"); second.Name == first.Name || second.ID == first.ID {
		t.Errorf("a second snapshot for the same reason is %+v, and the first %+v", second, first)
	}
	after, err := os.ReadFile(file)
	if err != nil || string(after) != string(before) {
		t.Errorf("the file of a snapshot changed: %v", err)
	}
	content := func(bundle string) string { return bundle[strings.Index(bundle, `"header"`):] }
	if again := w.want(200, nil, "GET", "/sess/export?name="+first.Name, "").body; content(again) != content(bundle) {
		t.Error("what a snapshot holds changed after later turns")
	}
	for _, want := range []string{long, `"toolCalls":[`, `"rawOutput":`, `"title":`} {
		if !strings.Contains(bundle, want) {
			t.Errorf("a snapshot lacks %.40s", want)
		}
	}
	var view struct{ Total int }
	if w.want(200, &view, "GET", "/sess/view?name="+first.ID, ""); view.Total != 4 {
		t.Errorf("the snapshot shows %d messages, want 4", view.Total)
	}
	if n := len(u.messages("--session=one")); n != 10 {
		t.Errorf("looking at a snapshot left %d messages in the session, want 10", n)
	}
	w.restore("one", first.Name)
	if n := len(u.messages("--session=one")); n != 4 {
		t.Errorf("restored are %d messages, want 4", n)
	}
	if after, err = os.ReadFile(file); err != nil || string(after) != string(before) {
		t.Errorf("the file of a snapshot changed when it was restored: %v", err)
	}
}

// S0-10, S0-11, S0-41, S0-43, S0-44, S0-45, S0-46, S0-47: restoring replaces the conversation, keeps
// what was there exactly where that differs, and goes back to the live session.
func TestRestoreIsReversible(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.do("--session=one", "chat", "--message", "first")
	w := u.serve()
	a := w.snap("one", "early")
	u.do("--session=one", "chat", "--message", `call sess_manage {"action":"list"}`)
	b := w.snap("one", "late")
	if a.Digest == b.Digest || a.Digest == "" {
		t.Fatalf("two states have the digests %q and %q", a.Digest, b.Digest)
	}

	const notifications = "/sessions/one/notifications"
	w.want(201, nil, "POST", notifications, `{"text":"the export is there","id":"n1"}`)
	w.want(201, nil, "POST", notifications, `{"text":"compacting","id":"n2","status":"running"}`)
	w.want(200, nil, "POST", notifications+"/acknowledge", `{"ids":["n1"]}`)
	told := w.want(200, nil, "GET", notifications, "").body
	w.want(200, nil, "POST", "/sessions/one/snapshots/"+b.Name+"/select", "")
	backup := w.restore("one", a.Name)
	if now := w.want(200, nil, "GET", notifications, "").body; now != told || !strings.Contains(told, "compacting") {
		t.Errorf("after restoring the notifications are %s, before they were %s", now, told)
	}
	if got := w.call("GET", "/sessions/one/snapshots/selected", ""); got.body != "null\n" {
		t.Errorf("after restoring %s is selected, want nothing", got.body)
	}
	kept := w.rows("one")[slices.IndexFunc(w.rows("one"), func(r snapshotRow) bool { return r.Name == backup })]
	if kept.Reason != "before restore" || kept.Digest != b.Digest || !kept.Automatic || kept.Trigger != "load" {
		t.Errorf("the backup is %+v, want the state of %+v for the reason %q", kept, b, "before restore")
	}
	if now := w.snap("one", "restored"); now.Digest != a.Digest {
		t.Errorf("restored was %q, want %q", now.Digest, a.Digest)
	}
	// What people are told and what is shown makes no difference.
	count := len(w.rows("one"))
	w.want(201, nil, "POST", notifications, `{"text":"and another","id":"n3"}`)
	w.want(200, nil, "POST", "/sessions/one/snapshots/"+a.Name+"/select", "")
	if again := w.restore("one", a.Name); again != "" || len(w.rows("one")) != count {
		t.Errorf("restoring what is there already made the backup %q", again)
	}
	if got := w.call("GET", "/sessions/one/snapshots/selected", ""); got.body != "null\n" {
		t.Errorf("after restoring what is there already %s is selected, want nothing", got.body)
	}
	w.restore("one", backup)
	if now := w.snap("one", "and back"); now.Digest != b.Digest {
		t.Errorf("restoring the backup brought %q, want exactly %q", now.Digest, b.Digest)
	}
	if file, err := os.ReadFile(filepath.Join(u.home, poolAt, a.Name+".sess.json")); err != nil || !strings.Contains(string(file), a.ID) {
		t.Errorf("the snapshot that was restored: %v", err)
	}
}

// S0-48, S0-49, S0-50, S0-52: with maxSnapshots 0 no age, count or policy takes an
// automatic snapshot away; people delete what they want, one by one.
func TestAutomaticSnapshotsStay(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.config(`{"plugins":{"entries":{"sess":{"config":{"maxSnapshots":0}}}}}`)
	u.do("--session=one", "chat", "--message", "first")
	w := u.serve()
	states := []snapshotRow{w.snap("one", "a")}
	u.do("--session=one", "chat", "--message", "second")
	states = append(states, w.snap("one", "b"))
	var backups []string
	for i := range 53 { // more than maxSnapshots is without the setting
		backups = append(backups, w.restore("one", states[i%2].Name))
	}
	w.want(200, nil, "POST", "/sess/prune", `{}`)
	names := w.names("/sessions/one/snapshots")
	for _, name := range backups {
		if name == "" || !slices.Contains(names, name) {
			t.Errorf("the backup %q is gone", name)
		}
	}
	w.want(200, nil, http.MethodDelete, "/sessions/one/snapshots/"+backups[0], "")
	if now := w.names("/sessions/one/snapshots"); len(now) != len(names)-1 || slices.Contains(now, backups[0]) {
		t.Errorf("after deleting one of %d there are %d", len(names), len(now))
	}
}

// S0-53: a session that is deleted leaves its snapshots, which can be listed, looked
// at, exported, and restored: then the session is there again under its id.
func TestSnapshotsOutliveTheirSession(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.do("--session=one", "chat", "--message", "what matters")
	u.do("--session=two", "chat", "--message", "something else")
	w := u.serve()
	made := w.snap("one", "before it goes")
	w.want(200, nil, http.MethodDelete, "/sessions/one?project=default", "")
	rows := w.rows("one")
	if len(rows) != 1 || rows[0].ID != made.ID {
		t.Fatalf("the snapshots of the deleted session are %+v", rows)
	}
	w.want(200, nil, "GET", "/sess/view?name="+made.Name, "")
	if bundle := w.want(200, nil, "GET", "/sess/export?name="+made.Name, "").body; !strings.Contains(bundle, "what matters") {
		t.Errorf("its export is %s", bundle)
	}
	if backup := w.restore("one", made.Name); backup != "" {
		t.Errorf("restoring into nothing made the backup %q", backup)
	}
	if got := fmt.Sprint(u.messages("--session=one")); !strings.Contains(got, "what matters") {
		t.Errorf("the session that was restored has %s", got)
	}
	w.refused(404, "POST", "/sessions/two/snapshots/"+made.Name+"/restore", "")
}
