package sess_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sess/plugin"
	"sess/store/transcript"
)

type meta struct {
	Name      string
	ID        string
	SessionID string
	Messages  int
	Note      string
	Tags      map[string]string
	Pinned    bool
	Reason    string
	Automatic bool
	Trigger   string
	Plugin    string
	Action    string
	Indices   []int
	Parent    string
	State     string
	Auto      bool
	CreatedAt time.Time
	UpdatedAt time.Time
	Backup    string
	Changed   bool
	Session   string
	Problem   string
	Digest    string
}

func (w *world) meta(argv ...string) meta {
	w.Helper()
	var m meta
	w.decode(w.do(argv...), &m)
	return m
}

func TestSave(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{"tags":{"team":"core","env":"dev"}}`)
	w.says("saved v1: 10 messages, 1.3 KB", "save", "v1", "--note=--json is fine", "--tags=env=prod,eq=a=b")
	m := w.list("v1")
	want := map[string]string{"team": "core", "env": "prod", "eq": "a=b"}
	if diff := cmp.Diff(want, m.Tags); diff != "" {
		t.Errorf("tags (-want +got):\n%s", diff)
	}
	if m.Note != "--json is fine" || m.Automatic || m.Trigger != "manual" || m.SessionID != "s1" {
		t.Errorf("meta of v1: %+v", m)
	}

	w.untouched(func() {
		w.fails(plugin.Exists, "there is a snapshot v1 already; choose another name, or run: sess save v1 --overwrite", "save", "v1")
		w.fails(plugin.Exists, "there is a snapshot v1 already; choose another name, or run: sess save v1 --overwrite", "save", "V1")
		w.fails(plugin.Usage, "save: the name is missing; give one, as in: sess save v1", "save")
		w.fails(plugin.InvalidName, `"sql opt" is no name for a snapshot: a name has no spaces; try sql-opt`, "save", "sql opt")
		w.fails(plugin.InvalidName, "pre-load~x begins like the program's own backups; choose a name without pre-…~ in front; backups can be loaded, copied from and deleted",
			"save", "pre-load~x")
		w.fails(plugin.Usage, `tag key "a b": want at most 64 letters, digits, dots, hyphens or underscores; put other text into the value or the note`,
			"save", "v2", "--tags=a b=c")
	})

	w.say(w.ref, "more", 2)
	w.add(5 * time.Minute)
	w.says("saved v1: 12 messages, 1.6 KB; the version before is in the trash (sess undo brings it back)", "save", "v1", "--overwrite")
	after := w.list("v1")
	if after.Note != m.Note || !cmp.Equal(after.Tags, m.Tags) || !after.CreatedAt.Equal(m.CreatedAt) || !after.UpdatedAt.After(m.UpdatedAt) || after.ID != m.ID {
		t.Errorf("after the overwrite: %+v, before it: %+v", after, m)
	}
	w.do("undo")
	if got := w.list("v1"); got.Messages != 10 {
		t.Errorf("after the undo v1 has %d messages, want 10", got.Messages)
	}
	if got := w.do("save", "--auto-name").Text; !strings.HasPrefix(got, "saved manual-20310506T071309123Z: 12 messages") {
		t.Errorf("save --auto-name says %q", got)
	}
	w.says("saved mine~: 12 messages, 1.6 KB; the ~ in its name marks it auto-managed: lists hide it, and it is evicted first", "save", "mine~")
}

// list is the entry of one snapshot in the list.
func (w *world) list(name string) meta {
	w.Helper()
	var all []meta
	w.decode(w.do("list", "--include-auto"), &all)
	for _, m := range all {
		if m.Name == name {
			return m
		}
	}
	w.Fatalf("list has no %s: %v", name, all)
	return meta{}
}

// A session whose file another program wrote was never cut into chunks. Its
// snapshot is, or it would be too large to be read.
func TestSaveOfASessionThatWasNeverCut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.change(w.ref, func(l *live) {
		list := &transcript.List{}
		for i := range 400 {
			list.Tail = append(list.Tail, transcript.Record(mustJSON(t, transcript.Message{ID: fmt.Sprint("m", i), Content: strings.Repeat(fmt.Sprint(i, " "), 4000)})))
		}
		list.Records = len(list.Tail)
		l.doc.Lists[transcript.ListMessages] = list
	})
	w.do("save", "v1")
	info, err := os.Stat(filepath.Join(w.pool(), "v1.sess.json"))
	if err != nil || info.Size() > 200<<10 {
		t.Fatalf("the snapshot of 400 messages in %d bytes: %v", info.Size(), err)
	}
	w.do("verify", "v1")
	if got := w.list("v1").Messages; got != 400 {
		t.Errorf("it has %d messages, want 400", got)
	}
}

func TestSaveOfAnEmptySession(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	w.ref = w.session("default", "s2", 0)
	w.says("saved e: 0 messages, 0 bytes", "save", "e")
	w.caller = plugin.PluginCaller("actions")
	w.says("session s2 is empty: nothing was saved", "save", "--auto-name", "--trigger=delete-messages")
	if diff := cmp.Diff([]string{"e"}, w.names()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

func TestNamesThatLeaveTheFolder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	w.do("save", "ok")
	canary := filepath.Join(w.pool(), "..", "..", "canary.sess.json")
	if err := os.WriteFile(canary, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"../../canary", "x/../../../canary", "..%2fcanary", "%2e%2e/canary", "/somewhere/canary", `C:\canary`, `..\canary`,
		"a\x00b", ".", "..", "~", "", "con", "plan計画", "日本", strings.Repeat("a", 129), strings.Repeat("日", 100),
	} {
		for _, argv := range [][]string{
			{"save", "--", name},
			{"load", "--", name},
			{"delete", "--", name},
			{"rename", "--", "ok", name},
			{"rename", "--", name, "b"},
			{"copy", "--", "ok", name},
			{"copy", "--", name, "b"},
			{"tag", "--", name, "a=b"},
			{"pin", "--", name},
			{"view", "--", name},
			{"new", "--", name},
			{"new", "--from=" + name},
			{"verify", "--", name},
			{"trash", "restore", "--as=" + name, "--", "ok"},
		} {
			w.untouched(func() {
				result, err := w.call(argv...)
				if err == nil {
					t.Errorf("sess %q says %q, want a refusal", argv, result.Text)
				} else if e := plugin.AsError(err); e.Code != plugin.InvalidName {
					t.Errorf("sess %q: %s, %s; want invalid_name", argv, e.Code, e.Text())
				}
			})
		}
		w.untouched(func() {
			for _, call := range []plugin.Call{
				{Argv: []string{"list"}, Agent: name}, {Argv: []string{"save", "x"}, Project: name, Session: "s1"},
			} {
				if name == "" || name == "~" || name == "plan計画" || name == "日本" || name == strings.Repeat("a", 129) {
					continue // "not given", or a fine project
				}
				if _, err := w.plugin.Dispatch(t.Context(), call, nil); !errors.Is(err, &plugin.Error{Code: plugin.InvalidName}) && name != "..%2fcanary" && name != "con" {
					t.Errorf("agent or project %q: %v, want invalid_name", name, err)
				}
			}
		})
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	w.do("save", "v1")
	before := w.messages(w.ref)
	w.says("session s1 already equals v1: nothing to do", "load", "v1")
	if got := w.meta("load", "v1"); got.Changed || got.Backup != "" || got.Session != "s1" {
		t.Errorf("a load of what is there already answers %+v", got)
	}
	w.say(w.ref, "more", 3)
	later := w.messages(w.ref)
	w.says("loaded v1 into session s1: 10 messages; the 13 messages before are in pre-load~20310506T070809123Z (sess undo takes it back)", "load", "v1")
	if diff := cmp.Diff(before, w.messages(w.ref)); diff != "" {
		t.Errorf("messages after the load (-want +got):\n%s", diff)
	}
	backup := w.list("pre-load~20310506T070809123Z")
	if backup.Reason != "before restore" || backup.Trigger != "load" || !backup.Automatic || backup.Messages != 13 {
		t.Errorf("the backup is %+v", backup)
	}
	w.do("undo")
	if diff := cmp.Diff(later, w.messages(w.ref)); diff != "" {
		t.Errorf("messages after the undo (-want +got):\n%s", diff)
	}
	w.do("redo")
	if diff := cmp.Diff(before, w.messages(w.ref)); diff != "" {
		t.Errorf("messages after the redo (-want +got):\n%s", diff)
	}
	// The backup can be loaded like any other snapshot.
	w.do("load", "pre-load~20310506T070809123Z")
	if diff := cmp.Diff(later, w.messages(w.ref)); diff != "" {
		t.Errorf("messages after loading the backup (-want +got):\n%s", diff)
	}
	w.says("loaded v1 into session s1: 10 messages; no backup was made, so sess undo cannot take it back", "load", "v1", "--no-backup")
	w.untouched(func() {
		w.fails(plugin.NotFound, "the last load of session s1 cannot be undone or redone: no backup was made; "+
			"look for older backups with: sess list --include-auto --of-session=s1", "undo")
	})
}

func TestLoadsOfOneInstantGetTheirOwnBackups(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	w.do("save", "v1")
	for i := range 4 {
		w.say(w.ref, "round", i+1)
		w.do("load", "v1")
	}
	var got []int
	for _, name := range w.names() {
		if strings.HasPrefix(name, "pre-load~") {
			got = append(got, w.list(name).Messages)
		}
	}
	slices.Reverse(got)
	if diff := cmp.Diff([]int{11, 12, 13, 14}, got); diff != "" {
		t.Errorf("messages of the backups, oldest first (-want +got):\n%s", diff)
	}
}

func TestLoadOfWhatIsNotThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	w.untouched(func() {
		w.fails(plugin.NotFound, `there is no snapshot "nosuch"; see the names with: sess list --include-auto`, "load", "nosuch")
	})
	if _, err := os.Stat(filepath.Join(w.dir, "agents")); !os.IsNotExist(err) {
		t.Errorf("looking for a snapshot made folders: %v", err)
	}
	w.do("save", "review-2031")
	w.do("save", "demo-1")
	w.do("save", "demo_1")
	w.untouched(func() {
		for name, near := range map[string]string{"reveiw-2031": "review-2031", "review-203": "review-2031", "DEMO-1": "demo-1"} {
			e := w.refused(plugin.NotFound, "load", name)
			if !strings.Contains(e.Hint, near) {
				t.Errorf("load %s hints %q, want %s in it", name, e.Hint, near)
			}
		}
		for _, name := range []string{"demo", "demo-", "nosuch"} {
			w.refused(plugin.NotFound, "load", name)
			w.refused(plugin.NotFound, "delete", name)
		}
		w.refused(plugin.InvalidName, "delete", "*")
		w.refused(plugin.InvalidName, "load", "demo%")
	})
}

func (w *world) refused(code plugin.Code, argv ...string) *plugin.Error {
	w.Helper()
	result, err := w.call(argv...)
	if err == nil {
		w.Errorf("sess %q says %q, want the error %s", argv, result.Text, code)
		return &plugin.Error{}
	}
	e := plugin.AsError(err)
	if e.Code != code {
		w.Errorf("sess %q fails with %s: %s; want %s", argv, e.Code, e.Text(), code)
	}
	if e.Hint == "" {
		w.Errorf("sess %q fails with %q and no hint", argv, e.Message)
	}
	return e
}

func TestLoadOfDamagedOnes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	w.do("save", "good")
	data, err := os.ReadFile(filepath.Join(w.pool(), "good.sess.json"))
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, data []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(w.pool(), name+".sess.json"), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("wrong", []byte(strings.Replace(string(data), "message 3", "message 4", 1)))
	write("cut", data[:len(data)/2])
	write("empty", nil)
	write("newer", []byte(`{"format":"sess/99","meta":{"id":"0190b7a4-0000-7000-8000-000000000001","messages":1},"future":{"k":1}}`))
	w.say(w.ref, "more", 1)
	for name, code := range map[string]plugin.Code{
		"wrong": plugin.Corrupt, "cut": plugin.Corrupt, "empty": plugin.Corrupt, "newer": plugin.NewerFormat,
	} {
		w.untouched(func() {
			e := w.refused(code, "load", name)
			if !strings.Contains(e.Message, name) {
				t.Errorf("load %s: %q does not name it", name, e.Message)
			}
			w.refused(code, "load", name, "--as-new")
			w.refused(code, "new", "x", "--from="+name)
		})
	}
	w.untouched(func() {
		for _, argv := range [][]string{{"rename", "newer", "x"}, {"tag", "newer", "a=b"}, {"pin", "newer"}, {"save", "newer", "--overwrite"}, {"copy", "newer", "y"}} {
			w.refused(plugin.NewerFormat, argv...)
		}
		w.refused(plugin.NewerFormat, "verify", "newer")
		if e := w.refused(plugin.Corrupt, "verify"); !strings.Contains(e.Message, "empty") {
			t.Errorf("verify says %q, want the snapshot empty in it", e.Message)
		}
	})
	text := w.do("list").Text
	for _, want := range []string{"damaged: it is empty", "written by a newer version (format sess/99)"} {
		if !strings.Contains(text, want) {
			t.Errorf("list says\n%s\nwant %q in it", text, want)
		}
	}
	w.do("load", "good")
	for _, name := range []string{"cut", "empty", "newer"} {
		w.do("delete", name)
	}
	if diff := cmp.Diff([]string{"good", "wrong"}, slices.DeleteFunc(sorted(w.names()), func(n string) bool { return strings.Contains(n, "~") })); diff != "" {
		t.Errorf("names after deleting (-want +got):\n%s", diff)
	}
}

// Whatever fails on the way of a load, everything stays as it was.
func TestLoadFailsWithoutATrace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	w.say(w.ref, strings.Repeat("long ", 4000), 40) // some chunks
	w.do("save", "v1")
	w.say(w.ref, "more", 3)
	for _, service := range []string{"Session", "Stage", "Commit"} {
		for _, code := range []plugin.Code{plugin.Busy, plugin.Conflict, plugin.NoSpace, plugin.Unavailable, plugin.Denied} {
			w.hook(func(s string) error {
				if s == service {
					return plugin.Errorf(code, "%s is refused", s).WithHint("try again")
				}
				return nil
			}, nil)
			w.untouched(func() { w.refused(code, "load", "v1") })
			if len(w.stages) != 0 {
				t.Errorf("%s refused with %s: a stage is left", service, code)
			}
		}
	}
	w.hook(nil, nil)
	w.change(w.ref, func(s *live) { s.running = true })
	w.untouched(func() {
		w.fails(plugin.Busy, "session s1 runs a turn; wait for the turn to end, or stop it, then try again", "load", "v1")
		w.fails(plugin.Busy, "session s1 runs a turn; wait for the turn to end, or stop it, then try again", "new")
	})
	w.do("save", "during-a-turn")
	w.change(w.ref, func(s *live) { s.running = false })

	// Somebody else changes the session between stage and commit.
	w.hook(func(s string) error {
		if s == "Commit" {
			w.sessions[w.ref].revision++
		}
		return nil
	}, nil)
	revision := w.peek(w.ref).revision
	names := w.names()
	w.refused(plugin.Conflict, "load", "v1")
	w.hook(nil, nil)
	if w.peek(w.ref).revision != revision+1 || !cmp.Equal(names, w.names()) {
		t.Errorf("after a conflict: revision %d, want %d; names %v, want %v", w.peek(w.ref).revision, revision+1, w.names(), names)
	}
}

// Whatever operation of the pool's disk fails, a call that fails has not changed
// the session, and one that has changed it says so.
func TestFullDiskOfThePool(t *testing.T) {
	t.Parallel()
	for verb, before := range map[string][]string{"load": nil, "undo": {"load"}, "redo": {"load", "undo"}} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			run := func(w *world, verb string) error {
				argv := []string{verb}
				if verb == "load" {
					argv = append(argv, "v1")
				}
				_, err := w.call(argv...)
				return err
			}
			for k, fired := 0, true; fired; k++ {
				w := newWorld(t, `{}`)
				w.do("save", "v1")
				w.say(w.ref, "more", 3)
				for _, v := range before {
					if err := run(w, v); err != nil {
						t.Fatalf("%s: %v", v, err)
					}
				}
				sessions := w.state()
				w.disk.FailAt(k, syscall.ENOSPC, false)
				err := run(w, verb)
				fired = w.disk.Fired()
				w.disk.Reset()
				if changed := w.state() != sessions; changed != (err == nil) {
					t.Errorf("operation %d of the disk failing: changed %v, error %v", k, changed, err)
				}
			}
		})
	}
}

// An answer that is lost after the commit is not taken for a failure.
func TestLoadWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	w.do("save", "v1")
	w.say(w.ref, "more", 3)
	w.hook(nil, func(s string) error {
		if s == "Commit" {
			return plugin.Errorf(plugin.Unavailable, "the connection broke")
		}
		return nil
	})
	w.do("load", "v1")
	w.hook(nil, nil)
	if got := len(w.messages(w.ref)); got != 10 {
		t.Errorf("the session has %d messages, want 10", got)
	}
	w.do("undo")
	if got := len(w.messages(w.ref)); got != 13 {
		t.Errorf("after the undo the session has %d messages, want 13", got)
	}
}

// A load whose outcome nobody can tell keeps its backup, and the next process
// finds out.
func TestLoadThatIsSettledByTheNextProcess(t *testing.T) {
	t.Parallel()
	for _, lands := range []bool{true, false} {
		t.Run(fmt.Sprint("landed ", lands), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, `{}`)
			w.do("save", "v1")
			w.say(w.ref, "more", 3)
			broken := func(s string) error {
				if s == "OpState" || s == "Commit" {
					return plugin.Errorf(plugin.Unavailable, "the connection broke")
				}
				return nil
			}
			if lands {
				w.hook(func(s string) error {
					if s == "OpState" {
						return broken(s)
					}
					return nil
				}, broken)
			} else {
				w.hook(broken, nil)
			}
			w.refused(plugin.Unavailable, "load", "v1")
			if n := len(w.names()); n != 2 {
				t.Errorf("names %v, want v1 and the backup", w.names())
			}
			w.hook(nil, nil)
			if err := w.plugin.Drain(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.start(false)
			if lands {
				w.do("undo")
				if got := len(w.messages(w.ref)); got != 13 {
					t.Errorf("after the undo the session has %d messages, want 13", got)
				}
				return
			}
			if diff := cmp.Diff([]string{"v1"}, w.names()); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
			w.refused(plugin.NotFound, "undo")
		})
	}
}

func TestLoadOfBigConversations(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	w.say(w.ref, strings.Repeat("0123456789abcdef", 500), 2500) // index chunks too
	w.do("save", "big")
	want := w.messages(w.ref)
	// Another machine's sessions know none of the chunks.
	fresh := newHost(t)
	fresh.dir = w.dir
	w.host = fresh
	w.ref = w.session("default", "s9", 0)
	w.start(false)
	if got := w.do("load", "big").Text; got != "loaded big into session s9: 2510 messages" {
		t.Errorf("load says %q", got)
	}
	if !cmp.Equal(want, w.messages(w.ref)) {
		t.Error("the messages differ after the way through the pool")
	}
	if header := string(w.peek(w.ref).doc.Header); strings.Contains(header, "resp_s1") {
		t.Errorf("another session continues from the provider's state of s1: %s", header)
	}
	w.do("verify")
}

// A session that goes on while it is saved is read again.
func TestSaveOfASessionThatChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	w.say(w.ref, strings.Repeat("long ", 4000), 40)
	for _, failures := range []int{3, 2} {
		n := 0
		w.hook(func(s string) error {
			if s == "ReadChunks" {
				if n++; n <= failures {
					return plugin.Errorf(plugin.NotFound, "the chunk is gone").WithHint("try again")
				}
			}
			return nil
		}, nil)
		_, err := w.call("save", fmt.Sprint("v", failures))
		if (err == nil) != (failures < 3) {
			t.Errorf("with %d changes save answers %v", failures, err)
		}
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	w.do("save", "v1")
	type answer struct{ Session, Previous, Backup, From string }
	fresh := func(argv ...string) (answer, string) {
		t.Helper()
		var a answer
		result := w.do(argv...)
		w.decode(result, &a)
		return a, strings.ReplaceAll(result.Text, a.Session, "NEW")
	}
	a, text := fresh("new", "clean", "--note=empty")
	if want := "new session NEW: 0 messages, saved as clean; the 10 messages before are in pre-new~20310506T070809123Z (sess undo goes back)"; text != want {
		t.Errorf("new says\n%s\nwant\n%s", text, want)
	}
	if a.Previous != "s1" || w.active.ID != a.Session || len(w.messages(w.ref)) != 10 {
		t.Errorf("new answers %+v; the active session is %v", a, w.active)
	}
	if m := w.list("clean"); m.Messages != 0 || m.Note != "empty" {
		t.Errorf("the fresh state was saved as %+v", m)
	}
	if m := w.list("pre-new~20310506T070809123Z"); m.Messages != 10 || m.Trigger != "new" {
		t.Errorf("the backup is %+v", m)
	}
	w.ref = w.active
	w.says("undo of the new: session s1 is active again (sess redo turns it round)", "undo")
	w.ref = w.active
	w.says("redo of the new: session "+a.Session+" is active again (sess undo turns it round)", "redo")
	w.ref = w.active

	b, text := fresh("new", "--from=v1", "--no-backup")
	if want := "new session NEW from v1: 10 messages"; text != want {
		t.Errorf("new --from says\n%s\nwant\n%s", text, want)
	}
	ref := plugin.SessionRef{Project: "default", ID: b.Session}
	if len(w.messages(ref)) != 10 || strings.Contains(string(w.peek(ref).doc.Header), "resp_") {
		t.Errorf("the session from v1 has %d messages and the header %s", len(w.messages(ref)), w.peek(ref).doc.Header)
	}
	w.ref = w.active
	c, text := fresh("load", "v1", "--as-new")
	if want := "new session NEW from v1: 10 messages; session " + b.Session + " stays as it is (sess undo goes back)"; text != want || c.Previous != b.Session {
		t.Errorf("load --as-new says\n%s\nwant\n%s", text, want)
	}
	w.untouched(func() {
		w.refused(plugin.Exists, "new", "clean")
		w.refused(plugin.Exists, "new", "CLEAN")
		w.refused(plugin.NotFound, "new", "--from=nosuch")
		w.refused(plugin.Usage, "new", "--note=x")
		w.hook(func(s string) error {
			if s == "NewSession" {
				return plugin.Errorf(plugin.NoSpace, "the disk is full").WithHint("free some space")
			}
			return nil
		}, nil)
		w.refused(plugin.NoSpace, "new", "other")
		w.hook(func(s string) error {
			if s == "NewSession" {
				return plugin.Errorf(plugin.Unavailable, "the host is stopping").WithHint("try again")
			}
			return nil
		}, nil)
		w.refused(plugin.Unavailable, "new", "other")
		w.hook(nil, nil)
	})
}

// Inside a turn load and new say whether they could run, and do nothing yet.
func TestLoadAndNewInsideATurnAreChecks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	w.do("save", "v1")
	w.say(w.ref, "more", 1)
	tests := []struct {
		argv string
		code plugin.Code // empty: it could run
	}{
		{"load v1", ""},
		{"load v2", plugin.NotFound},
		{"load v1 --only-session=other", plugin.NotFound},
		{"new", ""},
		{"new v2 --from=v1", ""},
		{"new v1", plugin.Exists},
		{"new pre-new~x", plugin.InvalidName},
		{"new --from=v2", plugin.NotFound},
		{"new --note=x", plugin.Usage},
	}
	w.untouched(func() {
		for _, tt := range tests {
			call := plugin.Call{
				Argv: strings.Fields(tt.argv), Turn: "t1", Caller: plugin.CallerTool,
				Project: w.ref.Project, Session: w.ref.ID,
			}
			_, err := w.plugin.Dispatch(t.Context(), call, nil)
			var code plugin.Code
			if err != nil {
				code = plugin.AsError(err).Code
			}
			if code != tt.code {
				t.Errorf("%s inside a turn: %v, want code %q", tt.argv, err, tt.code)
			}
		}
	})
}

func TestCopyRenameDelete(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	w.do("save", "v1", "--tags=a=b", "--note=first")
	w.do("pin", "v1")
	source := w.list("v1")
	w.says("copied v1 to v2: 10 messages, 1.3 KB", "copy", "v1", "v2", "--note=other")
	if m := w.list("v2"); m.Parent != source.ID || m.ID == source.ID || m.Note != "other" || m.Tags["a"] != "b" || m.Pinned {
		t.Errorf("the copy is %+v", m)
	}
	w.fails(plugin.Exists, "there is a snapshot v2 already; choose another name, or run: sess copy v1 v2 --overwrite", "copy", "v1", "v2")
	w.fails(plugin.Usage, "copy: v1 and v1 are the same snapshot; give the copy another name", "copy", "v1", "v1")
	w.fails(plugin.Usage, "copy: v1 and V1 are the same snapshot; give the copy another name", "copy", "v1", "V1", "--overwrite")
	w.fails(plugin.Exists, "there is a snapshot v2 already; choose another name, or run: sess rename v1 v2 --overwrite", "rename", "v1", "v2")
	const kept = "; the version before is in the trash (sess undo brings it back)"
	w.says("copied v1 to v2: 10 messages, 1.3 KB"+kept, "copy", "v1", "v2", "--overwrite")
	w.do("undo")
	w.says("renamed v2 to v1"+kept, "rename", "v2", "v1", "--overwrite")
	w.do("undo")
	w.says("v1 has that name already: nothing to do", "rename", "v1", "v1")
	w.says("renamed v1 to w1", "rename", "v1", "w1")
	if m := w.list("w1"); m.ID != source.ID || !m.UpdatedAt.Equal(source.UpdatedAt) || m.Note != "first" || !m.Pinned {
		t.Errorf("after the rename: %+v", m)
	}
	w.says("renamed w1 to w1~; the ~ in its name marks it auto-managed: lists hide it, and it is evicted first", "rename", "w1", "w1~")
	w.do("undo")
	w.do("undo")
	if diff := cmp.Diff([]string{"v1", "v2"}, sorted(w.names())); diff != "" {
		t.Errorf("names after two undos (-want +got):\n%s", diff)
	}
	w.says("deleted v1 (sess undo brings it back)", "delete", "v1")
	w.fails(plugin.NotFound, "there is nothing to redo for this session and its snapshots; look for backups with: sess list --include-auto", "redo")
	w.says("undo of the delete: brought back v1 (sess redo turns it round)", "undo")
	w.do("redo")
	w.do("undo")

	w.untouched(func() {
		w.fails(plugin.Usage, "delete: an empty --prefix would take every snapshot; name what is to go, as in --prefix=pre-load~", "delete", "--prefix=", "--confirm")
		e := w.fails(plugin.Usage, "delete: --prefix=v takes 2 snapshots; nothing was deleted; to delete them run: sess delete --prefix=v --confirm", "delete", "--prefix=v")
		if e.Details["count"] != "2" {
			t.Errorf("details %v, want count 2", e.Details)
		}
		w.refused(plugin.Usage, "delete")
		w.refused(plugin.Usage, "delete", "v1", "--prefix=v", "--confirm")
		w.says("no name begins with zz: nothing to delete", "delete", "--prefix=zz", "--confirm")
		w.fails(plugin.InvalidName, `"--no-backup" is no name for a snapshot: a name begins with a letter, a digit or _; see the names with: sess list --include-auto`, "load", "--", "--no-backup")
	})
	if got := w.do("delete", "--prefix=v", "--confirm").Text; !strings.HasPrefix(got, "deleted 2 snapshots: ") {
		t.Errorf("delete --prefix says %q", got)
	}
	if diff := cmp.Diff([]string{}, w.names()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

func sorted(names []string) []string { return slices.Sorted(slices.Values(names)) }

// Deleting the snapshot that a session shows gives the session back.
func TestDeleteOfTheSelected(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	w.do("save", "v1")
	id := w.list("v1").ID
	w.change(w.ref, func(s *live) { s.selected = id })
	w.do("delete", "v1")
	if got := w.peek(w.ref).selected; got != "" {
		t.Errorf("the session still shows %s", got)
	}
}

func TestSelect(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	w.do("save", "v1")
	id := w.list("v1").ID
	w.says("session s1 shows no snapshot", "selected")
	if got := string(w.do("selected").Data); got != "null" {
		t.Errorf("nothing selected is %s, want null", got)
	}
	before := w.peek(w.ref)
	w.says(`session s1 shows v1, read-only (sess deselect goes back)

(4 before these; sess view v1 --before=4 shows them)
[4] user: message 4
[5] agent: message 5
[6] user: message 6
[7] agent: message 7
[8] user: message 8
[9] agent: message 9`, "select", "v1")
	if got := w.peek(w.ref); got.selected != id || got.revision != before.revision {
		t.Errorf("after select: %+v", got)
	}
	w.says("session s1 shows v1, read-only", "selected")
	w.do("save", "still-live")
	w.says("session s1 is shown again", "deselect")
	w.says("session s1 shows no snapshot: nothing to do", "deselect")

	w.do("select", "v1")
	w.do("load", "v1") // nothing differs, and yet the view ends
	if got := w.peek(w.ref).selected; got != "" {
		t.Errorf("after a load the session still shows %s", got)
	}
	w.do("select", "v1")
	w.say(w.ref, "more", 1)
	w.do("load", "v1")
	if got := w.peek(w.ref).selected; got != "" {
		t.Errorf("after a load the session still shows %s", got)
	}
	w.untouched(func() {
		w.refused(plugin.NotFound, "select", "nosuch")
		for _, verb := range []string{"select", "load", "delete"} {
			w.fails(plugin.NotFound, `session s2 has no snapshot "v1"; see those it has with: sess list --include-auto --of-session=s2`, verb, "v1", "--only-session=s2")
		}
	})
	w.do("load", "v1", "--only-session=s1")
}

func TestList(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	w.says("no snapshots yet; save one with: sess save <name>", "list")
	if got := string(w.do("list").Data); got != "[]" {
		t.Errorf("an empty list is %s as JSON, want []", got)
	}
	w.do("save", "first", "--tags=kind=x")
	w.add(12 * time.Second)
	w.do("save", "second", "--tags=kind=y,more=1")
	w.add(2 * time.Hour)
	w.do("save", "mine~")
	w.says(`NAME    MSGS  SIZE  UPDATED  MODEL
-----------------------------------------
second  10    1.3K  2h ago   openai/gpt-5
first   10    1.3K  2h ago   openai/gpt-5
1 auto-managed hidden; --include-auto shows them`, "list")
	w.says(`NAME   MSGS  SIZE  UPDATED  MODEL
----------------------------------------
first  10    1.3K  2h ago   openai/gpt-5`, "list", "--tag=kind=x")
	first := w.do("list", "--limit=1")
	if first.Page == nil || first.Page.Total != 2 || first.Page.Next == "" {
		t.Fatalf("list --limit=1: page %+v, want one of 2 and what follows", first.Page)
	}
	if diff := cmp.Diff(`NAME    MSGS  SIZE  UPDATED  MODEL
-----------------------------------------
second  10    1.3K  2h ago   openai/gpt-5
1 of 2 shown; for the next ones add --after=`+first.Page.Next+`
1 auto-managed hidden; --include-auto shows them`, first.Text); diff != "" {
		t.Errorf("list --limit=1 (-want +got):\n%s", diff)
	}
	w.says(`NAME   MSGS  SIZE  UPDATED  MODEL
----------------------------------------
first  10    1.3K  2h ago   openai/gpt-5
1 of 2 shown; no more follow
1 auto-managed hidden; --include-auto shows them`, "list", "--limit=1", "--after="+first.Page.Next)
	w.says("no snapshot matches; leave a filter out to see more", "list", "--prefix=zz")
	w.says("no snapshot matches; leave a filter out to see more", "list", "--of-session=other", "--all-projects")
	w.fails(plugin.NotFound, "no session other", "list", "--of-session=other")
	for _, bad := range []string{"0", "-1", "abc", "1.5", ""} {
		w.refused(plugin.Usage, "list", "--limit="+bad)
	}
	w.refused(plugin.Usage, "list", "--tag=kind")

	// A clock that was wrong shows.
	w.add(-48 * time.Hour)
	if got := w.do("list").Text; !strings.Contains(got, "in the future (2031-05-06)") {
		t.Errorf("a future date shows as\n%s", got)
	}

	w.do("rename", "first", "third")
	other := w.session("p2", "s2", 1)
	w.ref = other
	w.do("save", "second")
	var all []struct{ Name, Pool string }
	w.decode(w.do("list", "--all-projects"), &all)
	if len(all) != 3 {
		t.Errorf("all projects: %v, want 3 snapshots", all)
	}
	if got := w.do("list").Text; strings.Contains(got, "third") {
		t.Errorf("project p2 lists\n%s", got)
	}
}

// A walk over the pages of a list meets everything that stays exactly once, in
// the list's order, whatever is added and taken away on the way.
func TestWalkOverPages(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		list []string
		add  func(w *world, name string)
		drop func(w *world, name string)
	}{
		{
			[]string{"list", "--all-projects"},
			func(w *world, name string) { w.do("save", name) },
			func(w *world, name string) { w.do("delete", name) },
		},
		{
			[]string{"trash", "list"},
			func(w *world, name string) { w.do("save", name); w.do("delete", name) },
			func(w *world, name string) { w.do("trash", "restore", name) },
		},
	} {
		t.Run(strings.Join(tt.list, " "), func(t *testing.T) {
			t.Parallel()
			const many, limit = 23, 5
			w := newWorld(t, `{}`)
			own, other := w.ref, w.session("other", "s2", 1)
			for i := range many {
				tt.add(w, fmt.Sprintf("s%02d", i))
				if i%3 == 0 { // the others are of one instant
					w.add(time.Second)
				}
			}
			if tt.list[0] == "list" { // these have no id, and the second project's pool counts
				if err := os.WriteFile(filepath.Join(w.pool(), "broken.sess.json"), []byte("no JSON"), 0o600); err != nil {
					t.Fatal(err)
				}
				w.ref = other
				tt.add(w, "theirs")
				w.ref = own
			}
			names := func(argv ...string) []string {
				var list []meta
				w.decode(w.do(argv...), &list)
				out := make([]string, len(list))
				for i, m := range list {
					out[i] = m.Name
				}
				return out
			}
			all := names(tt.list...)
			var walked, dropped, unseen []string
			argv := append(slices.Clone(tt.list), fmt.Sprintf("--limit=%d", limit))
			for after := ""; ; {
				page := argv
				if after != "" {
					page = append(slices.Clone(argv), "--after="+after)
				}
				got := names(page...)
				walked = append(walked, got...)
				result := w.do(page...)
				if result.Page.Next == "" {
					break
				}
				if len(got) != limit || result.Page.Total < int64(len(all)-3) {
					t.Fatalf("sess %q: %d items of %d, and more to come", page, len(got), result.Page.Total)
				}
				after = result.Page.Next
				if len(walked) == 2*limit { // the cursor's own item goes, and one to come
					dropped = []string{walked[2*limit-1], walked[1]}
					unseen = []string{all[2*limit+3]}
					for _, name := range slices.Concat(dropped, unseen) {
						tt.drop(w, name)
					}
					w.add(time.Hour)
					tt.add(w, "added")
				}
			}
			want := slices.DeleteFunc(all, func(name string) bool { return slices.Contains(unseen, name) })
			if diff := cmp.Diff(want, walked); diff != "" || dropped == nil {
				t.Errorf("the walk over %q (-want +got):\n%s", tt.list, diff)
			}
		})
	}

	w := newWorld(t, `{}`)
	for _, name := range []string{"a", "b", "c"} {
		w.do("save", name)
	}
	w.do("delete", "c")
	next := w.do("list", "--limit=1").Page.Next
	for _, bad := range [][]string{
		{"list", "--after="},
		{"list", "--after=nosuch"},
		{"list", "--after=" + next[:len(next)-1]},
		{"list", "--after=" + next + "AA"},
		{"trash", "list", "--after=" + next},
		{"trash", "list", "--limit=0"},
		{"list", "--after=" + next, "--after=" + next},
	} {
		w.refused(plugin.Usage, bad...)
	}
	for _, list := range [][]string{{"list"}, {"list", "--limit=100000"}, {"trash", "list", "--limit=2"}} {
		if result := w.do(list...); result.Page == nil || result.Page.Next != "" || strings.Contains(result.Text, " shown") {
			t.Errorf("sess %q: page %+v and the text\n%s\nwant all on one page", list, result.Page, result.Text)
		}
	}
}

func TestAgentsHavePoolsOfTheirOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	w.do("save", "v1")
	w.agent = "other"
	if diff := cmp.Diff([]string{}, w.names()); diff != "" {
		t.Errorf("another agent sees (-want +got):\n%s", diff)
	}
	w.do("save", "v1")

	shared := newWorld(t, `{"storageDir":"~/shared"}`)
	shared.do("save", "v1")
	shared.agent = "other"
	if diff := cmp.Diff([]string{"v1"}, shared.names()); diff != "" {
		t.Errorf("a shared pool holds (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(filepath.Join(shared.dir, "shared", "v1.sess.json")); err != nil {
		t.Error(err)
	}
}

func TestAliases(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	for verb, aliases := range map[string]string{
		"list": "ls show", "load": "restore get", "delete": "rm remove del", "rename": "mv move", "copy": "cp clone branch", "new": "reset fresh",
	} {
		description, err := w.plugin.Describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for alias := range strings.FieldsSeq(aliases) {
			if v, _ := description.Spec.Find([]string{alias}); v == nil || v.Name != verb {
				t.Errorf("alias %s leads to %v, want %s", alias, v, verb)
			}
		}
	}
}

func TestPinAndTag(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	w.do("save", "v1", "--tags=a=1")
	w.says("pinned v1", "pin", "v1")
	w.says("v1 is pinned already: nothing to do", "pin", "v1")
	w.says("unpinned v1", "unpin", "v1")
	w.says("v1: a=1, b=x=y; note: hello", "tag", "v1", "b=x=y", "--note=hello")
	w.says("v1: a=1, b=x=y; note: hello (as before)", "tag", "v1", "b=x=y")
	w.do("tag", "v1", "--tags=c=1,\"d=x,y\"")
	if got := w.list("v1").Tags["d"]; got != "x,y" {
		t.Errorf("tag d is %q, want x,y", got)
	}
	w.says("v1: no tags", "tag", "v1", "--remove=a", "--remove=b", "--remove=c", "--remove=d", "--note=")
	w.fails(plugin.Usage, "tag: nothing to change is given; as in: sess tag v1 key=value", "tag", "v1")
	w.refused(plugin.Usage, "tag", "v1", "novalue")
	w.refused(plugin.NotFound, "tag", "nosuch", "a=b")
	w.refused(plugin.Usage, "tag", "v1", "--note="+strings.Repeat("x", 4001))
}

func TestView(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	w.do("save", "v1", "--note=hello")
	before := w.state()
	result := w.do("view", "v1", "--limit=2")
	id := w.list("v1").ID
	want := `v1: 10 messages, 1.3 KB, saved 2031-05-06 07:08:09 UTC (now)
id       ` + id + `
session  s1
title    A talk
model    openai/gpt-5
note     hello

(8 before these; --before=8 shows them)
[8] user: message 8
[9] agent: message 9`
	if diff := cmp.Diff(want, result.Text); diff != "" {
		t.Errorf("view says (-want +got):\n%s", diff)
	}
	var data struct {
		Meta     meta
		Header   map[string]json.RawMessage
		Messages []transcript.Message
		First    int
		Total    int
	}
	w.decode(result, &data)
	if data.Meta.Name != "v1" || len(data.Header) != 3 || len(data.Messages) != 2 || data.First != 8 || data.Total != 10 {
		t.Errorf("view answers %s", result.Data)
	}
	for _, tt := range []struct {
		argv []string
		want string // the end of the text
	}{
		{[]string{"--limit=2", "--before=8"}, "\n\n(6 before these; --before=6 shows them)\n[6] user: message 6\n[7] agent: message 7"},
		{[]string{"--before=2"}, "\n\n[0] user: message 0\n[1] agent: message 1"},
		{[]string{"--limit=1", "--before=1000"}, "\n\n(9 before these; --before=9 shows them)\n[9] agent: message 9"},
	} {
		if got := w.do(append([]string{"view", "v1"}, tt.argv...)...); !strings.HasSuffix(got.Text, tt.want) {
			t.Errorf("view v1 %q says\n%s\nwant it to end in\n%s", tt.argv, got.Text, tt.want)
		}
	}
	w.do("view", id)
	if w.state() != before {
		t.Error("a view changed a session")
	}
	w.say(w.ref, strings.Repeat("x", 3<<20), 1)
	w.do("save", "huge")
	if got := w.do("view", "huge"); len(got.Data) > 2<<20 ||
		!strings.HasSuffix(got.Text, "(message 10 is too large to be shown; load the snapshot to read it)\n(10 before it; --before=10 shows them)") {
		t.Errorf("a huge message gives %d bytes of data and the text\n%.300s", len(got.Data), got.Text)
	}
	if got := w.do("view", "huge", "--before=10"); !strings.HasSuffix(got.Text, "[9] agent: message 9") {
		t.Errorf("the messages before the huge one:\n%s", got.Text)
	}
	w.refused(plugin.Usage, "view", "v1", "--limit=0")
	w.refused(plugin.Usage, "view", "v1", "--before=0")
	w.refused(plugin.NotFound, "view", "nosuch")
}

func TestTrash(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{"trashDays":7}`)
	w.says("the trash is empty", "trash", "list")
	w.says("nothing to remove from the trash", "trash", "empty", "--confirm")
	w.do("save", "v1")
	w.do("delete", "v1")
	var list []struct{ Name, Why, Expires string }
	w.decode(w.do("trash", "list"), &list)
	if len(list) != 1 || list[0].Name != "v1" || list[0].Expires != "2031-05-13T07:08:09.123Z" {
		t.Errorf("the trash holds %+v", list)
	}
	w.do("save", "v1")
	w.untouched(func() {
		w.fails(plugin.Exists, "there is a snapshot v1 already; choose another name, or run: sess trash restore v1 --as=v1-restored", "trash", "restore", "v1")
		w.fails(plugin.NotFound, `there is no snapshot "v2" in the trash; did you mean v1?`, "trash", "restore", "v2")
		w.fails(plugin.NotFound, `there is no snapshot "other" in the trash; see the names with: sess trash list`, "trash", "restore", "other")
		w.fails(plugin.InvalidName, `"../v1" is no name for a snapshot: a name has no slashes; did you mean v1?`, "trash", "restore", "../v1")
		e := w.refused(plugin.Usage, "trash", "empty")
		if e.Details["count"] != "1" || !strings.HasSuffix(e.Hint, "sess trash empty --confirm") {
			t.Errorf("trash empty without --confirm: %+v", e)
		}
	})
	w.says("brought back v1-restored: 10 messages, 1.3 KB", "trash", "restore", "v1", "--as=v1-restored")
	w.do("delete", "v1")
	w.says("nothing to remove from the trash", "trash", "empty", "--older-than=2d", "--confirm")
	if got := w.do("trash", "empty", "--confirm").Text; !strings.HasPrefix(got, "removed for good: 1 snapshot, ") {
		t.Errorf("trash empty says %q", got)
	}
	w.refused(plugin.NotFound, "trash", "restore", "v1")

	// What an undo has put back is no longer there for anybody to see, although
	// redo needs a copy of it.
	w.do("copy", "v1-restored", "v2")
	w.do("copy", "v1-restored", "v2", "--overwrite")
	w.do("undo")
	w.decode(w.do("trash", "list"), &list)
	e := w.refused(plugin.Usage, "trash", "empty")
	if len(list) != 0 || e.Details["count"] != "0" || !strings.Contains(e.Message, " that only undo and redo need would be gone for good") {
		t.Errorf("the trash shows %d snapshots, trash empty says %v", len(list), e)
	}
	w.says("nothing to remove from the trash", "trash", "empty", "--older-than=2d", "--confirm")
}

func TestVerify(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	w.says("all is well: 0 snapshots, 0 chunks, 0 bytes", "verify")
	w.say(w.ref, strings.Repeat("0123456789", 2000), 40)
	w.do("save", "v1")
	w.do("save", "v2")
	if got := w.do("verify").Text; !strings.HasPrefix(got, "all is well: 2 snapshots, ") {
		t.Errorf("verify says %q", got)
	}
	chunks, err := filepath.Glob(filepath.Join(w.pool(), ".chunks", "[0-9a-f]*"))
	if err != nil || len(chunks) == 0 {
		t.Fatalf("chunks: %v, %v", chunks, err)
	}
	if err := os.Remove(chunks[0]); err != nil {
		t.Fatal(err)
	}
	w.say(w.ref, "more", 1)
	w.untouched(func() {
		w.refused(plugin.Corrupt, "verify")
		w.refused(plugin.Corrupt, "verify", "v1")
		w.refused(plugin.Corrupt, "load", "v1")
	})
	w.refused(plugin.NotFound, "verify", "nosuch")
}

// What only plugins may use does not exist for anybody else.
func TestInternalsAreUnknownToPeople(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	for _, argv := range [][]string{
		{"save", "x", "--trigger=autosave"}, {"save", "x", "--op=1"}, {"save", "x", "--indices=1"}, {"op", "open", "compact"},
	} {
		for _, caller := range []plugin.Caller{plugin.CallerCLI, plugin.CallerTool, plugin.CallerHTTP, plugin.CallerRPC, plugin.CallerSlash, plugin.CallerMCP} {
			w.caller = caller
			if e := w.refused(plugin.Usage, argv...); !strings.Contains(e.Message, "unknown") {
				t.Errorf("%s: sess %q: %s", caller, argv, e.Text())
			}
		}
	}
}

// There is no index beside the files: what is put into the folder is there, and
// what is taken away is gone, without a restart.
func TestTheFilesAreTheTruth(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	for _, name := range []string{"a", "b", "c"} {
		w.do("save", name)
	}
	data, err := os.ReadFile(filepath.Join(w.pool(), "b.sess.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(w.pool(), "b.sess.json")); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"d.sess.json": data, "e.sess.json.tmp": data, ".f.sess.json": data, "notes.txt": data,
	} {
		if err := os.WriteFile(filepath.Join(w.pool(), name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"a", "c", "d"}, sorted(w.names())); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	w.refused(plugin.NotFound, "load", "b")
	w.say(w.ref, "more", 1)
	w.do("load", "d")
	if n := len(w.messages(w.ref)); n != 10 {
		t.Errorf("after loading the file put there: %d messages, want 10", n)
	}
}

// The same name in two projects is two snapshots, however alike the projects'
// names are.
func TestProjectsDoNotMix(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	projects := []string{"spec-rl", "spec_rl", "spec.rl", "외주", "개인"}
	for i, project := range projects {
		w.ref = w.session(project, "s", i+1)
		w.do("save", "main")
		w.do("save", "auto~")
	}
	w.ref.Project = projects[0]
	w.do("delete", "--prefix=auto", "--confirm")
	for i, project := range projects {
		w.ref.Project = project
		if m := w.list("main"); m.Messages != i+1 {
			t.Errorf("project %s has the snapshot of another: %+v", project, m)
		}
		if n := len(w.names()); n != 2 && i > 0 {
			t.Errorf("project %s has %d snapshots after a deletion in another, want 2", project, n)
		}
	}
}

// A copy is independent of its source, and what people have set on a snapshot
// outlives what is done to it later.
func TestWhatPeopleSetStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `{}`)
	w.do("save", "alpha", "--tags=x=1,y=2", "--note=plan")
	w.do("pin", "alpha")
	w.say(w.ref, strings.Repeat("long ", 10000), 40)
	w.do("save", "alpha", "--overwrite")
	w.do("rename", "alpha", "beta")
	w.do("copy", "beta", "gamma")
	w.do("tag", "gamma", "x=9")
	w.start(false)
	beta := w.list("beta")
	if beta.Note != "plan" || !cmp.Equal(beta.Tags, map[string]string{"x": "1", "y": "2"}) || !beta.Pinned || beta.Messages != 50 {
		t.Errorf("beta is %+v", beta)
	}
	if gamma := w.list("gamma"); gamma.Note != "plan" || gamma.Tags["x"] != "9" || gamma.Pinned {
		t.Errorf("gamma is %+v", gamma)
	}
	w.do("delete", "beta")
	w.do("verify", "gamma")
	w.do("new", "--from=gamma")
	if n := len(w.messages(w.active)); n != 50 {
		t.Errorf("the session from the copy has %d messages, want 50", n)
	}
}
