package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sess/plugin"
	"sess/plugin/actions"
	"sess/store/durable/durabletest"
	"sess/store/session"
	"sess/store/transcript"
)

// seed writes a session with n messages, as other programs write one.
func (u *user) seed(id string, n int) {
	u.t.Helper()
	messages := make([]json.RawMessage, n)
	for i := range messages {
		messages[i] = json.RawMessage(message(i, fmt.Sprint("message ", i)))
	}
	data, err := json.Marshal(map[string]any{
		"version": 1, "id": id, "projectId": "default", "title": "A talk", "status": "idle", "messages": messages, "activities": []any{}, "artifacts": []any{},
	})
	if err != nil {
		u.t.Fatal(err)
	}
	dir := filepath.Join(u.home, "sessions", "default")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		u.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, id+".json"), data, 0o600); err != nil {
		u.t.Fatal(err)
	}
}

// madeBefore is what a snapshot says that was made before a deletion.
type madeBefore struct {
	Name, Reason, Trigger, Plugin, Action string
	Automatic                             bool
	Messages                              int
	Indices                               []int
	Range                                 json.RawMessage
}

// S0-18, S0-19, S0-20, S0-22: a deletion makes one automatic snapshot first, in
// the name of the plugin session-actions, however many messages go.
// S0-31, S0-32, S0-33, S0-35: its reason says what was deleted from what it holds.
// S0-36, S0-37, S0-38, S0-39: its metadata say the same for programs.
func TestSnapshotBeforeDeletion(t *testing.T) {
	t.Parallel()
	const total = 400
	u := newUser(t)
	cases := []struct {
		target, reason string
		deleted        int
		indices        []int
		span           string
	}{
		{"/messages/14", "Before deleting message [14]", 1, []int{14}, ""},
		{"/messages/-1", "Before deleting message [399]", 1, []int{399}, ""},
		{"/messages?index=25&index=18&index=22&index=18", "Before deleting messages [18, 22, 25]", 3, []int{18, 22, 25}, ""},
		{"/messages?index=-400&index=-1", "Before deleting messages [0, 399]", 2, []int{0, 399}, ""},
		{"/messages?range=357:", "Before deleting messages [357:]", 43, nil, `{"start":357,"end":null}`},
		{"/messages?index=399&index=398&index=-3", "Before deleting messages [397:]", 3, nil, `{"start":397,"end":null}`},
		{"/messages?range=:3", "Before deleting messages [:3]", 3, nil, `{"start":0,"end":3}`},
		{"/messages?range=3:9", "Before deleting messages [3:9]", 6, nil, `{"start":3,"end":9}`},
		{"/messages?range=-2:", "Before deleting messages [398:]", 2, nil, `{"start":398,"end":null}`},
		{"/messages?range=399:500", "Before deleting message [399]", 1, []int{399}, ""},
		{"/messages?range=7:8", "Before deleting message [7]", 1, []int{7}, ""},
		{"/messages?range=:", "Before deleting messages [0:]", 400, nil, `{"start":0,"end":null}`},
	}
	for i := range cases {
		u.seed(fmt.Sprint("talk-", i), total)
	}
	w := u.serve()
	for i, c := range cases {
		path := fmt.Sprint("/sessions/talk-", i)
		var answer struct {
			Data struct {
				Deleted  int
				Changed  bool
				Snapshot string
			}
		}
		w.want(200, &answer, "DELETE", path+c.target, "")
		var made []madeBefore
		w.want(200, &made, "GET", path+"/snapshots", "")
		want := []madeBefore{{
			Name: answer.Data.Snapshot, Reason: c.reason, Trigger: "delete-messages", Plugin: "session-actions", Action: "delete_messages",
			Automatic: true, Messages: total, Indices: c.indices, Range: json.RawMessage(c.span),
		}}
		if c.span == "" {
			want[0].Range = nil
		}
		if diff := cmp.Diff(want, made); diff != "" {
			t.Errorf("DELETE %s: the snapshots (-want +got):\n%s", c.target, diff)
		}
		if left := len(u.messages(fmt.Sprint("talk-", i))); left != total-c.deleted || answer.Data.Deleted != c.deleted || !answer.Data.Changed {
			t.Errorf("DELETE %s: %+v, and %d messages are left", c.target, answer.Data, left)
		}
		if i > 0 {
			continue
		}
		// S0-40: people read the reason, and not the metadata behind it.
		shown := u.do("view", made[0].Name, "--limit=1")
		if !strings.Contains(shown, c.reason) || strings.Contains(shown, "delete_messages") || strings.Contains(shown, "session-actions") {
			t.Errorf("view shows\n%s", shown)
		}
	}
}

// S0-24, S0-25: a deletion that has nothing to delete, or is refused, makes no
// snapshot and leaves the session as it was.
func TestNoSnapshotWithoutDeletion(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.seed("talk", 10)
	file := filepath.Join(u.home, "sessions", "default", "talk.json")
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	w := u.serve()
	untouched := func(what string) {
		t.Helper()
		if now, err := os.ReadFile(file); err != nil || string(now) != string(before) {
			t.Errorf("%s: the session changed (%v)", what, err)
		}
		if names := w.names("/sessions/talk/snapshots"); len(names) > 0 {
			t.Errorf("%s: snapshots %q", what, names)
		}
	}
	for _, c := range []struct {
		target string
		status int
		code   string
	}{
		{"?range=10:", 200, ""},
		{"?range=4:4", 200, ""},
		{"?range=9:2", 200, ""},
		{"?range=100:200", 200, ""},
		{"", 400, "usage"},
		{"?range=x", 400, "usage"},
		{"?range=1", 400, "usage"},
		{"?index=x", 400, "usage"},
		{"?index=1&range=2:", 400, "usage"},
		{"?index=10&index=11", 404, "not_found"},
		{"?index=3&index=10", 404, "not_found"},
		{"?index=-11", 404, "not_found"},
		{"?index=9223372036854775807", 404, "not_found"},
	} {
		target := "/sessions/talk/messages" + c.target
		if c.status == 200 {
			var answer struct {
				Data struct {
					Deleted  int
					Changed  bool
					Snapshot *string
				}
			}
			w.want(200, &answer, "DELETE", target, "")
			if answer.Data.Deleted != 0 || answer.Data.Changed || answer.Data.Snapshot != nil {
				t.Errorf("DELETE %s: %+v", target, answer.Data)
			}
		} else if code, text := w.refused(c.status, "DELETE", target, ""); code != c.code {
			t.Errorf("DELETE %s: %s %q, want %s", target, code, text, c.code)
		}
		untouched("DELETE " + target)
	}
	w.refused(404, "DELETE", "/sessions/nosuch/messages/0", "")
	if _, err := os.Stat(filepath.Join(u.home, "sessions", "default", "nosuch.json")); !os.IsNotExist(err) {
		t.Errorf("a session was made that somebody named: %v", err)
	}

	// What is shown read-only cannot be changed, nor what a turn is changing.
	w.want(201, nil, "POST", "/sessions/talk/snapshots", `{"reason":"mine"}`)
	name := w.names("/sessions/talk/snapshots")[0]
	w.want(200, nil, "POST", "/sessions/talk/snapshots/"+name+"/select", "")
	if code, text := w.refused(409, "DELETE", "/sessions/talk/messages/0", ""); code != "readonly" || !strings.Contains(text, "sess deselect") {
		t.Errorf("while a snapshot is shown: %s %q", code, text)
	}
	w.want(200, nil, "POST", "/sessions/talk/snapshots/selected/clear", "")
	w.want(200, nil, "DELETE", "/sessions/talk/snapshots/"+name, "")
	locked, err := w.host.Sessions().Lock(t.Context(), session.Ref{Project: "default", ID: "talk"}, "a turn", true)
	if err != nil {
		t.Fatal(err)
	}
	code, text := w.refused(409, "DELETE", "/sessions/talk/messages/0", "")
	if err := locked.Unlock(); err != nil {
		t.Fatal(err)
	}
	if code != "busy" {
		t.Errorf("in a turn: %s %q", code, text)
	}
	untouched("while it could not be changed")
}

// watched is a plugin whose every call of its host is seen by a test.
type watched struct {
	plugin.Plugin
	runtime *watchedRuntime
}

func (w watched) Configure(ctx context.Context, c plugin.Configuration, r plugin.Runtime) error {
	w.runtime.Runtime = r
	return w.Plugin.Configure(ctx, c, w.runtime)
}

// watchedRuntime asks before, and tells after, each call. An error of either is
// the answer.
type watchedRuntime struct {
	plugin.Runtime
	before, after func(service string) error
}

func watch[T any](r *watchedRuntime, service string, call func() (T, error)) (T, error) {
	if err := r.before(service); err != nil {
		return *new(T), err
	}
	v, err := call()
	if failed := r.after(service); failed != nil && err == nil {
		err = failed
	}
	return v, err
}

func (r *watchedRuntime) Session(ctx context.Context, ref plugin.SessionRef) (*plugin.Session, error) {
	return watch(r, "Session", func() (*plugin.Session, error) { return r.Runtime.Session(ctx, ref) })
}

func (r *watchedRuntime) ReadChunks(ctx context.Context, ids []transcript.ID) plugin.Chunks {
	chunks, err := watch(r, "ReadChunks", func() (plugin.Chunks, error) { return r.Runtime.ReadChunks(ctx, ids), nil })
	if err != nil {
		return func(yield func(plugin.Chunk, error) bool) { yield(plugin.Chunk{}, err) }
	}
	return chunks
}

func (r *watchedRuntime) Stage(ctx context.Context, req plugin.StageRequest) (*plugin.Stage, error) {
	return watch(r, "Stage", func() (*plugin.Stage, error) { return r.Runtime.Stage(ctx, req) })
}

func (r *watchedRuntime) WriteChunks(ctx context.Context, stage string, chunks plugin.Chunks) ([]transcript.ID, error) {
	return watch(r, "WriteChunks", func() ([]transcript.ID, error) { return r.Runtime.WriteChunks(ctx, stage, chunks) })
}

func (r *watchedRuntime) Commit(ctx context.Context, req plugin.CommitRequest) (int64, error) {
	return watch(r, "Commit", func() (int64, error) { return r.Runtime.Commit(ctx, req) })
}

func (r *watchedRuntime) OpState(ctx context.Context, ref plugin.SessionRef, op string) (plugin.OpState, error) {
	return watch(r, "OpState", func() (plugin.OpState, error) { return r.Runtime.OpState(ctx, ref, op) })
}

// Call is known by the verb that it calls: "op open", "save".
func (r *watchedRuntime) Call(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	var p struct{ Argv []string }
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, err
	}
	service := method
	if len(p.Argv) > 0 {
		service = p.Argv[0]
	}
	if service == "op" {
		service += " " + p.Argv[1]
	}
	return watch(r, service, func() (json.RawMessage, error) { return r.Runtime.Call(ctx, method, params) })
}

// watchedRig opens a copy of a home with a deletion that a test watches.
func watchedRig(t *testing.T, template string, now time.Time) (*rig, *watchedRuntime) {
	t.Helper()
	none := func(string) error { return nil }
	rt := &watchedRuntime{before: none, after: none}
	r, err := openRigWith(t, copyOf(t, template), durabletest.Unsynced, func() time.Time { return now }, watched{actions.New("test"), rt})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return r, rt
}

// deletionHome is a home with a session whose first chunks a deletion has to
// make anew, and the steps that it takes.
func deletionHome(t *testing.T) (home string, now time.Time, steps []string) {
	t.Helper()
	start := time.Now().Add(10 * time.Minute)
	home = homeWith(t, start, func(r *rig) error { return r.write("first", 30) })
	now = start.Add(time.Minute)
	r, rt := watchedRig(t, home, now)
	rt.before = func(service string) error {
		steps = append(steps, service)
		return nil
	}
	if _, err := r.run("messages", "delete", "1"); err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{"Session", "Stage", "op open", "save", "WriteChunks", "Commit", "op close"} {
		if !slices.Contains(steps, step) {
			t.Fatalf("a deletion takes the steps %q, without %s", steps, step)
		}
	}
	return home, now, steps
}

// outcome is how many messages a session has, and the snapshots with the automatic
// ones.
func (r *rig) outcome() (messages int, snapshots []string) {
	r.Helper()
	live, _, err := r.Sessions().Settled(r.Context(), session.Ref{Project: "default", ID: talkID})
	if err != nil {
		r.Fatal(err)
	}
	result, err := r.answer("list", "--include-auto")
	if err != nil {
		r.Fatal(err)
	}
	var list []struct{ Name string }
	if err := json.Unmarshal(result.Data, &list); err != nil {
		r.Fatal(err)
	}
	for _, s := range list {
		snapshots = append(snapshots, s.Name)
	}
	return live.Doc.List(transcript.ListMessages).Records, snapshots
}

// settledAs checks that a deletion has happened whole, with its snapshot, or not at
// all.
func (r *rig) settledAs(done bool) {
	r.Helper()
	messages, snapshots := r.outcome()
	if want := map[bool]int{true: 29, false: 30}[done]; messages != want {
		r.Errorf("there are %d messages, want %d", messages, want)
	}
	if want := map[bool]int{true: 1, false: 0}[done]; len(snapshots) != want {
		r.Errorf("snapshots %q, want %d", snapshots, want)
	}
	if !done {
		return
	}
	if err := r.sess("undo"); err != nil {
		r.Errorf("undo: %v", err)
	}
	if messages, _ := r.outcome(); messages != 30 {
		r.Errorf("after undo there are %d messages, want 30", messages)
	}
}

// S0-30: where a step of a deletion fails, the snapshot is gone before the failure
// is answered, and the session is as it was. Where no snapshot can be made nothing
// is deleted.
func TestDeletionFails(t *testing.T) {
	t.Parallel()
	home, now, steps := deletionHome(t)
	for k, step := range steps {
		for _, code := range []plugin.Code{plugin.NoSpace, plugin.Internal} {
			t.Run(fmt.Sprintf("%d %s %s", k, step, code), func(t *testing.T) {
				t.Parallel()
				r, rt := watchedRig(t, home, now)
				at := 0
				rt.before = func(string) error {
					if at++; at == k+1 {
						return plugin.Errorf(code, "the test's own failure")
					}
					return nil
				}
				file := filepath.Join(r.home, "sessions", "default", talkID+".json")
				before, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				result, err := r.run("messages", "delete", "1")
				if step == "op close" { // it has happened
					if err != nil || len(result.Notices) != 1 || !strings.Contains(result.Notices[0], "the record for undo is not finished yet") {
						t.Errorf("%q, %v; want it done, with a notice", result.Notices, err)
					}
					if messages, snapshots := r.outcome(); messages != 29 || len(snapshots) != 1 {
						t.Errorf("%d messages, snapshots %q", messages, snapshots)
					}
					return
				}
				if e := plugin.AsError(err); err == nil || e.Code != code || !strings.Contains(e.Message, "the test's own failure") {
					t.Errorf("%v, want the failure", err)
				}
				r.settledAs(false)
				if after, err := os.ReadFile(file); err != nil || step != "Commit" && string(after) != string(before) {
					t.Errorf("the file of the session changed (%v)", err)
				}
			})
		}
	}
	// The commit may have landed though its answer was lost.
	t.Run("the answer is lost", func(t *testing.T) {
		t.Parallel()
		r, rt := watchedRig(t, home, now)
		rt.after = func(service string) error {
			if service == "Commit" {
				return plugin.Errorf(plugin.Unavailable, "the connection broke")
			}
			return nil
		}
		if _, err := r.run("messages", "delete", "1"); err != nil {
			t.Errorf("%v, want it done", err)
		}
		r.settledAs(true)
	})
	t.Run("nobody knows", func(t *testing.T) {
		t.Parallel()
		r, rt := watchedRig(t, home, now)
		rt.after = func(service string) error {
			if service == "Commit" || service == "OpState" {
				return plugin.Errorf(plugin.Unavailable, "the connection broke")
			}
			return nil
		}
		if _, err := r.run("messages", "delete", "1"); err == nil || !strings.Contains(err.Error(), "whether it was changed is not known") {
			t.Errorf("%v, want that nobody knows", err)
		}
		if _, snapshots := r.outcome(); len(snapshots) != 1 {
			t.Errorf("snapshots %q, want the one made before", snapshots)
		}
	})
}

// S0-28: a deletion that is interrupted at any of its steps has happened whole or
// not at all, and leaves no snapshot then.
func TestDeletionInterrupted(t *testing.T) {
	t.Parallel()
	home, now, steps := deletionHome(t)
	for k, step := range steps {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d %s late=%t", k, step, late), func(t *testing.T) {
				t.Parallel()
				r, rt := watchedRig(t, home, now)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				at := 0
				interrupt := func(string) error {
					if at++; at == k+1 {
						cancel()
					}
					return nil
				}
				if late {
					rt.after = interrupt
				} else {
					rt.before = interrupt
				}
				_, err := r.Dispatch(ctx, plugin.Call{Argv: []string{"messages", "delete", "1"}, Caller: plugin.CallerCLI}, nil)
				r.settledAs(err == nil)
			})
		}
	}
}

// The process of the plugin dies at any of its steps: what it had begun is settled
// as soon as the sess plugin hears of it.
func TestDeletionDies(t *testing.T) {
	t.Parallel()
	home, now, steps := deletionHome(t)
	for k, step := range steps {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d %s late=%t", k, step, late), func(t *testing.T) {
				t.Parallel()
				r, rt := watchedRig(t, home, now)
				at := 0
				dead := plugin.Errorf(plugin.Unavailable, "this process is dead")
				rt.before = func(string) error {
					if at++; at > k+1 || at == k+1 && !late {
						return dead
					}
					return nil
				}
				rt.after = func(string) error {
					if at > k {
						return dead
					}
					return nil
				}
				_, err := r.run("messages", "delete", "1")
				if notices := r.Notify(t.Context(), plugin.Event{Kind: plugin.EventPluginEnded, Plugin: "session-actions"}); len(notices) > 0 {
					t.Errorf("notices %q", notices)
				}
				r.settledAs(slices.Index(steps, "Commit") < k || step == "Commit" && late)
				if err == nil && step != "op close" {
					t.Error("it reported success")
				}
			})
		}
	}
}

// S0-29: a deletion from a session that has changed meanwhile is a conflict: it
// is not applied, and no snapshot is left. One that meets a turn is busy.
func TestDeletionConflicts(t *testing.T) {
	t.Parallel()
	home, now, steps := deletionHome(t)
	for k := 1; k <= slices.Index(steps, "Commit"); k++ {
		t.Run(fmt.Sprintf("changed before %d %s", k, steps[k]), func(t *testing.T) {
			t.Parallel()
			r, rt := watchedRig(t, home, now)
			at := 0
			rt.before = func(string) error {
				if at++; at == k+1 {
					return r.write("meanwhile", 1)
				}
				return nil
			}
			_, err := r.run("messages", "delete", "1")
			if !errors.Is(err, &plugin.Error{Code: plugin.Conflict}) || plugin.AsError(err).Hint == "" {
				t.Errorf("%v, want a conflict and what to do", err)
			}
			if messages, snapshots := r.outcome(); messages != 31 || len(snapshots) > 0 {
				t.Errorf("%d messages and the snapshots %q, want 31 and none", messages, snapshots)
			}
		})
	}
	t.Run("a turn began", func(t *testing.T) {
		t.Parallel()
		r, rt := watchedRig(t, home, now)
		var locked *session.Locked
		rt.before = func(service string) (err error) {
			if service == "Commit" {
				locked, err = r.Sessions().Lock(t.Context(), session.Ref{Project: "default", ID: talkID}, "a turn", true)
			}
			return err
		}
		_, err := r.run("messages", "delete", "1")
		if err := locked.Unlock(); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(err, &plugin.Error{Code: plugin.Busy}) || plugin.AsError(err).Hint == "" {
			t.Errorf("%v, want busy and what to do", err)
		}
		r.settledAs(false)
	})
}

// What is deleted of a tool call and its result leaves a history that a provider
// takes, and the answer tells what was done about the other half.
func TestDeletionOfHalfAToolCall(t *testing.T) {
	t.Parallel()
	now := time.Now().Add(10 * time.Minute)
	home := homeWith(t, now, func(r *rig) error {
		return r.append(4, func(i int) transcript.Record { return message(i, fmt.Sprint("text ", i)) })
	},
		func(r *rig) error {
			return r.remember(
				transcript.HistoryItem{Role: transcript.RoleUser, Content: "text 0", MessageID: "m0"},
				transcript.HistoryItem{Role: transcript.RoleAssistant, MessageID: "m1", ToolCalls: []transcript.ToolCall{{ID: "t1", Name: "look"}}},
				transcript.HistoryItem{Role: transcript.RoleTool, Content: "42", ToolCallID: "t1", MessageID: "m2"},
				transcript.HistoryItem{Role: transcript.RoleAssistant, Content: "text 3", MessageID: "m3"},
			)
		})
	for _, c := range []struct {
		index, text string
		field       string
		want        []string
	}{
		{"1", "1 result went with its tool call", "results", []string{"user text 0", "assistant text 3"}},
		{"2", "1 tool call lost its result; it is marked as interrupted", "interrupted", []string{"user text 0", "assistant ", "tool interrupted", "assistant text 3"}},
	} {
		r, _ := watchedRig(t, home, now.Add(time.Minute))
		result, err := r.run("messages", "delete", c.index)
		if err != nil || !strings.Contains(result.Text, c.text) {
			t.Errorf("delete %s: %q, %v; want %q", c.index, result.Text, err, c.text)
		}
		var counts map[string]any
		if err := json.Unmarshal(result.Data, &counts); err != nil || counts[c.field] != 1.0 {
			t.Errorf("delete %s: %s in %s (%v), want 1", c.index, c.field, result.Data, err)
		}
		live, _, err := r.Sessions().Settled(t.Context(), session.Ref{Project: "default", ID: talkID})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for rec, err := range live.Doc.List(transcript.ListHistory).All(r.Sessions().Plain, 0, 10) {
			var item transcript.HistoryItem
			if err := errors.Join(err, json.Unmarshal(rec, &item)); err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%s %s", item.Role, item.Content))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("delete %s: history (-want +got):\n%s", c.index, diff)
		}
		if err := r.sess("undo"); err != nil {
			t.Errorf("undo: %v", err)
		}
		if live, _, err = r.Sessions().Settled(t.Context(), session.Ref{Project: "default", ID: talkID}); err != nil || live.Doc.List(transcript.ListHistory).Records != 4 {
			t.Errorf("after undo the history has %d items (%v), want 4", live.Doc.List(transcript.ListHistory).Records, err)
		}
	}
}

// remember adds items to the history of the session.
func (r *rig) remember(items ...transcript.HistoryItem) error {
	ctx := r.Context()
	locked, err := r.Sessions().Lock(ctx, session.Ref{Project: "default", ID: talkID}, "test", false)
	if err != nil {
		return err
	}
	live, err := locked.Read(ctx)
	if err == nil {
		for _, item := range items {
			record, encoding := item.AppendJSON(nil)
			err = errors.Join(err, encoding, live.Append(transcript.ListHistory, record))
		}
		if err == nil {
			_, err = locked.Write(ctx, live, live.Revision)
		}
	}
	return errors.Join(err, locked.Unlock())
}
