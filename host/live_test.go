package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/host"
	"sess/host/server"
	"sess/plugin"
	"sess/store/session"
)

// room is a host with one session, in which its tests talk.
type room struct {
	t *testing.T
	*host.Host
	home string
	ref  plugin.SessionRef
}

func newRoom(t *testing.T, config string) *room {
	t.Helper()
	r := &room{t: t, home: t.TempDir()}
	if config != "" {
		if err := os.WriteFile(filepath.Join(r.home, "config.json"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.Host = openHostWith(t, r.home, allPermissions, newProbe("here"))
	var made struct{ ID, ProjectID string }
	r.must(&made, "sessions.create", `{"id": "s1", "title": "Plans"}`)
	r.ref = plugin.SessionRef{Project: made.ProjectID, ID: made.ID}
	return r
}

// call calls a gateway method, as a person does.
func (r *room) call(method, params string) (json.RawMessage, error) {
	return r.Call(r.t.Context(), plugin.CallerRPC, method, json.RawMessage(params), nil)
}

func (r *room) must(into any, method, params string) {
	r.t.Helper()
	data, err := r.call(method, params)
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, params, err)
	}
	if into == nil {
		return
	}
	if err := json.Unmarshal(data, into); err != nil {
		r.t.Fatalf("%s: %v\n%s", method, err, data)
	}
}

func (r *room) refused(code plugin.Code, method, params string) *plugin.Error {
	r.t.Helper()
	_, err := r.call(method, params)
	e := plugin.AsError(err)
	if err == nil || e.Code != code {
		r.t.Fatalf("%s %s: %v, want %s", method, params, err, code)
	}
	return e
}

// send sends a line and does not wait for what comes of it.
func (r *room) send(line server.ChatLine) server.Exchange {
	r.t.Helper()
	line.Session = r.ref
	x, err := r.Converse(r.t.Context(), line)
	if err != nil {
		r.t.Fatalf("Converse(%q): %v", line.Text, err)
	}
	r.t.Cleanup(x.Close)
	return x
}

func (r *room) watch(after string) server.ChatStream {
	r.t.Helper()
	s, err := r.Watch(r.t.Context(), r.ref, after)
	if err != nil {
		r.t.Fatalf("Watch: %v", err)
	}
	r.t.Cleanup(s.Close)
	return s
}

// until reads events up to the first of a kind, or to the end. What the plugin says
// to the end of a turn comes at any time, and is left out.
func (r *room) until(s server.ChatStream, kind string) []server.ChatEvent {
	r.t.Helper()
	var all []server.ChatEvent
	for {
		e, err := s.Next(r.t.Context())
		if errors.Is(err, io.EOF) && kind == "" {
			return all
		}
		if err != nil {
			r.t.Fatalf("waiting for %q after %s: %v", kind, kinds(all), err)
		}
		if e.Kind == "notice" && strings.Contains(string(e.Data), "turn_ended of") {
			continue
		}
		if all = append(all, e); e.Kind == kind {
			return all
		}
	}
}

// kinds are those of events, each once where several follow each other.
func kinds(events []server.ChatEvent) string {
	var all []string
	for _, e := range events {
		all = append(all, e.Kind)
	}
	return strings.Join(slices.Compact(all), " ")
}

const turnKinds = "turn_start text_delta usage run_finished turn_end"

// S1-07, S1-14: a session is made, turns run in it, and all who follow it see the
// same events, whoever sent the message and however late they came.
func TestConverse(t *testing.T) {
	t.Parallel()
	r := newRoom(t, "")
	one, other := r.watch(""), r.watch("")
	x := r.send(server.ChatLine{Text: "hello there"})
	own := r.until(x, "")
	if got := kinds(own); got != turnKinds {
		t.Errorf("who sent it saw %s, want %s", got, turnKinds)
	}
	answer, err := x.Result(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var message struct{ Role, Content, Status string }
	if err := json.Unmarshal(answer.Message, &message); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, e := range own {
		if e.Kind == session.EventTextDelta {
			var d struct{ Text string }
			if err := json.Unmarshal(e.Data, &d); err != nil {
				t.Fatal(err)
			}
			text.WriteString(d.Text)
		}
	}
	if answer.Status != "complete" || message.Role != "agent" || message.Content != text.String() || message.Content == "" {
		t.Errorf("the answer is %s (%s), streamed was %q", answer.Message, answer.Status, text.String())
	}
	for _, s := range []server.ChatStream{one, other} {
		if diff := cmp.Diff(own, r.until(s, session.EventTurnEnd)); diff != "" {
			t.Errorf("who follows saw (-sent +followed):\n%s", diff)
		}
	}
	// Who comes again has what was missed.
	if diff := cmp.Diff(own[2:], r.until(r.watch(own[1].ID), session.EventTurnEnd)); diff != "" {
		t.Errorf("who went on after the second event saw (-want +got):\n%s", diff)
	}
	var info struct {
		Title, Model, Status string
		Messages             int
		Revision             int64
		Running              bool
		Selected             *string
	}
	r.must(&info, "sessions.get", `{"session": "s1"}`)
	if info.Title != "Plans" || info.Messages != 2 || info.Revision != answer.Revision || info.Status != "idle" || info.Running || info.Selected != nil || info.Model != "offline/echo" {
		t.Errorf("sessions.get: %+v", info)
	}
}

// A turn belongs to the session, not to who sent its message.
func TestTurnOutlivesItsClient(t *testing.T) {
	t.Parallel()
	r := newRoom(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	x, err := r.Converse(ctx, server.ChatLine{Session: r.ref, Text: "slow 20 5ms"})
	if err != nil {
		t.Fatal(err)
	}
	r.until(x, session.EventTextDelta)
	late := r.watch("")
	cancel()
	x.Close()
	if got := kinds(r.until(late, session.EventTurnEnd)); got != turnKinds {
		t.Errorf("who came in the middle of it saw %s, want %s", got, turnKinds)
	}
	answer, err := x.Result(t.Context())
	if err != nil || !strings.Contains(string(answer.Message), "19 20") {
		t.Errorf("the turn of a client that has gone: %+v, %v", answer, err)
	}
}

func TestLineWhileOneRuns(t *testing.T) {
	t.Parallel()
	r := newRoom(t, "")
	x := r.send(server.ChatLine{Text: "slow 100000 1ms"})
	r.until(x, session.EventTextDelta)
	r.refused(plugin.Busy, "sessions.send", `{"session": "s1", "content": "me too"}`)
	var cancelled struct {
		Cancelled bool
		Revision  int64
	}
	r.must(&cancelled, "sessions.cancel", `{"session": "s1"}`)
	answer, err := x.Result(t.Context())
	if err != nil || answer.Status != "cancelled" || !cancelled.Cancelled || cancelled.Revision != answer.Revision {
		t.Errorf("the turn ended as %+v (%v), the cancel as %+v", answer, err, cancelled)
	}
	rest := r.until(x, "")
	if got := kinds(rest); !strings.Contains(got, "run_cancelled turn_end") {
		t.Errorf("the end of a cancelled turn is %s", got)
	}
	var page struct {
		Messages []struct{ Content, Status string }
	}
	r.must(&page, "sessions.messages", `{"session": "s1"}`)
	if n := len(page.Messages); n != 2 || !strings.HasPrefix(page.Messages[1].Content, "1 2") && page.Messages[1].Content != "1 " {
		t.Errorf("after the cancel the session has %+v, want what had come", page.Messages)
	}
	r.must(&cancelled, "sessions.cancel", `{"session": "s1"}`)
	if cancelled.Cancelled {
		t.Error("a second cancel found something to end")
	}
	r.must(nil, "sessions.send", `{"session": "s1", "content": "go on"}`)
}

// What comes for a state of the conversation that is no more is refused, and who
// follows it hears at once that it was replaced.
func TestReplacedElsewhere(t *testing.T) {
	t.Parallel()
	r := newRoom(t, "")
	var first struct{ Revision int64 }
	r.must(&first, "sessions.send", `{"session": "s1", "content": "one"}`)
	s := r.watch("")
	mustDispatch(t, r.Host, "probe", "replace")
	e := r.until(s, "session_replaced")
	var told struct{ Revision int64 }
	if err := json.Unmarshal(e[len(e)-1].Data, &told); err != nil || told.Revision != first.Revision+1 {
		t.Errorf("told was %s, want revision %d", e[len(e)-1].Data, first.Revision+1)
	}
	stale := fmt.Sprintf(`{"session": "s1", "content": "two", "expectedRevision": %d}`, first.Revision)
	if e := r.refused(plugin.Conflict, "sessions.send", stale); e.Details["revision"] != fmt.Sprint(told.Revision) {
		t.Errorf("the conflict is %v, want one that tells the revision %d", e, told.Revision)
	}
	var answer struct{ Notices []string }
	r.must(&answer, "sessions.send", `{"session": "s1", "content": "two"}`)
	// What the plugin had to say of it is told as well, unless it is not done yet.
	if told := strings.Join(answer.Notices, "\n"); strings.Count(told, "this conversation was") != 1 {
		t.Errorf("who does not say a revision is told %q", answer.Notices)
	}
}

// Who follows a session hears that it has gone, by whatever took it away.
func TestGoneElsewhere(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, method, params string }{
		{"deleted", "sessions.invoke", `{"action": "delete", "id": "s1"}`},
		{"deleted by an application", "sessions.deleteSession", `{"projectId": "default", "sessionId": "s1"}`},
		{"with its project", "sessions.deleteProjectSessions", `{"projectId": "default"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t, "")
			r.must(nil, "sessions.create", `{"id": "other", "project": "web", "activate": false}`)
			other, err := r.Watch(t.Context(), plugin.SessionRef{Project: "web", ID: "other"}, "")
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			r.must(nil, "sessions.create", `{"id": "active"}`)
			s := r.watch("")
			r.must(nil, tt.method, tt.params)
			if all := r.until(s, "session_deleted"); len(all) != 1 {
				t.Errorf("before it heard %s", kinds(all))
			}
			r.must(nil, "sessions.invoke", `{"action": "restore", "id": "s1"}`)
			if all := r.until(s, "session_changed"); len(all) != 1 {
				t.Errorf("when it is back it hears %s", kinds(all))
			}
			r.must(nil, "sessions.saveSession", `{"id": "other", "projectId": "web", "title": "Other", "messages": [], "revision": 1}`)
			if all := r.until(other, "session_replaced"); len(all) != 1 {
				t.Errorf("who follows another session heard %s", kinds(all))
			}
		})
	}
}

// Who goes on after an event that nobody knows any more, as that of a gateway
// before a restart, is told to read the messages anew.
func TestWatchAfterAnotherLife(t *testing.T) {
	t.Parallel()
	r := newRoom(t, "")
	s := r.watch("")
	r.must(nil, "sessions.send", `{"session": "s1", "content": "one"}`)
	own := r.until(s, "turn_end")
	again := r.watch("0badc0de-3")
	known := r.watch(own[len(own)-1].ID)
	r.must(nil, "sessions.send", `{"session": "s1", "content": "two"}`)
	if got := kinds(r.until(known, "turn_end")); strings.Contains(got, "session_changed") {
		t.Errorf("after the last event comes %s", got)
	}
	if got := kinds(r.until(again, "turn_end")); !strings.HasPrefix(got, "session_changed ") || strings.Count(got, "session_changed") != 1 {
		t.Errorf("after the id of another life comes %s", got)
	}
}

// S0-09, S0-10: while a snapshot is selected nothing is sent.
func TestSendWhileSelected(t *testing.T) {
	t.Parallel()
	r := newRoom(t, "")
	ref := session.Ref{Project: "default", ID: "s1"}
	if err := r.Sessions().Select(t.Context(), ref, "0190"); err != nil {
		t.Fatal(err)
	}
	before := readFile(t, filepath.Join(r.home, "sessions", "default", "s1.json"))
	r.refused(plugin.ReadOnly, "sessions.send", `{"session": "s1", "content": "hi"}`)
	if now := readFile(t, filepath.Join(r.home, "sessions", "default", "s1.json")); now != before {
		t.Error("a message that was refused changed the session")
	}
	var info struct{ Selected *string }
	r.must(&info, "sessions.get", `{"session": "s1"}`)
	if info.Selected == nil || *info.Selected != "0190" {
		t.Errorf("selected is %v", info.Selected)
	}
	r.must(nil, "sessions.send", `{"session": "s1", "content": "/live"}`)
	r.must(nil, "sessions.send", `{"session": "s1", "content": "hi"}`)
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// What the configuration wants a person to allow waits for one.
func TestApproval(t *testing.T) {
	t.Parallel()
	const ask = `call probe_manage {"action":"new","id":"s2"}`
	for _, tt := range []struct {
		rule    string
		seconds int
		alone   bool
		watched bool
		allow   string // "" gives no answer
		made    bool
	}{
		{"allowed", 0, false, false, "true", true},
		{"refused", 0, false, false, "false", false},
		{"nobody answers in time", 1, false, false, "", false},
		{"nobody is there", 0, true, false, "", false},
		{"somebody else is there", 0, true, true, "true", true},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t, fmt.Sprintf(`{"chat": {"confirm": ["write"], "approvalSeconds": %d}}`, tt.seconds))
			if tt.watched {
				r.watch("")
			}
			x := r.send(server.ChatLine{Text: ask, Alone: tt.alone})
			if tt.allow != "" {
				events := r.until(x, session.EventApprovalRequest)
				var asked struct{ ID, Name, Text string }
				if err := json.Unmarshal(events[len(events)-1].Data, &asked); err != nil || asked.Name != "probe_manage" || asked.Text == "" {
					t.Fatalf("asked is %s (%v)", events[len(events)-1].Data, err)
				}
				var info struct {
					Status   string
					Approval struct{ CallID string }
				}
				r.must(&info, "sessions.get", `{"session": "s1"}`)
				if info.Status != session.StatusPermission || info.Approval.CallID != asked.ID {
					t.Errorf("meanwhile the session is %+v", info)
				}
				r.refused(plugin.NotFound, "sessions.approve", `{"session": "s1", "callId": "nope", "allow": true}`)
				approve := fmt.Sprintf(`{"session": "s1", "callId": %q, "allow": %s}`, asked.ID, tt.allow)
				r.must(nil, "sessions.approve", approve)
				r.refused(plugin.NotFound, "sessions.approve", approve)
			}
			answer, err := x.Result(t.Context())
			if err != nil || answer.Status != "complete" {
				t.Errorf("the turn ended as %+v, %v", answer, err)
			}
			made, err := r.Sessions().Exists(session.Ref{Project: "default", ID: "s2"})
			if err != nil || made != tt.made {
				t.Errorf("the session was made: %v (%v), want %v", made, err, tt.made)
			}
			var info struct {
				Status   string
				Approval *struct{}
			}
			r.must(&info, "sessions.get", `{"session": "s1"}`)
			if info.Status != session.StatusIdle || info.Approval != nil {
				t.Errorf("after the turn the session is %+v", info)
			}
		})
	}
}

// Commands work in a message; where one opens another session, this one stays.
func TestCommandInAMessage(t *testing.T) {
	t.Parallel()
	r := newRoom(t, "")
	s := r.watch("")
	var answer server.ChatAnswer
	r.must(&answer, "sessions.send", `{"session": "s1", "content": "/probe echo hello"}`)
	if answer.Answer == nil || answer.Answer.Text != "hello" || answer.Turn != "" || answer.Message != nil {
		t.Errorf("the answer to a command is %+v", answer)
	}
	if e := r.until(s, "answer"); !strings.Contains(string(e[len(e)-1].Data), `"hello"`) {
		t.Errorf("who follows saw %s", e[len(e)-1].Data)
	}
	r.refused(plugin.Usage, "sessions.send", `{"session": "s1", "content": "/probe ehco hello"}`)
	r.must(&answer, "sessions.send", `{"session": "s1", "content": "/probe new s2"}`)
	if answer.Moved == nil || answer.Moved.Session != "s2" || answer.Session != "s1" {
		t.Errorf("where the conversation goes on: %+v", answer)
	}
	r.until(s, "session_moved")
	r.must(&answer, "sessions.send", `{"session": "s1", "content": "still here?"}`)
	if answer.Session != "s1" || answer.Moved != nil && answer.Turn == "" {
		t.Errorf("the next message went to %+v", answer)
	}
}

// S1-08: without a session there is one on first use; one that is named has to
// exist.
func TestSessionOnFirstUse(t *testing.T) {
	t.Parallel()
	h := openHostWith(t, t.TempDir(), allPermissions, newProbe("here"))
	r := &room{t: t, Host: h}
	r.refused(plugin.NotFound, "sessions.get", `{}`)
	r.refused(plugin.NotFound, "sessions.send", `{"session": "nope", "content": "hi"}`)
	var first, second struct{ SessionID, Turn string }
	r.must(&first, "sessions.send", `{"content": "hi"}`)
	r.must(&second, "sessions.send", `{"content": "again"}`)
	if first.SessionID == "" || second.SessionID != first.SessionID || second.Turn == first.Turn {
		t.Errorf("without a name the messages went to %+v and %+v", first, second)
	}
	r.refused(plugin.Exists, "sessions.create", fmt.Sprintf(`{"id": %q}`, first.SessionID))
	r.refused(plugin.InvalidName, "sessions.create", `{"id": "a/b"}`)
	r.refused(plugin.Usage, "sessions.create", `{"model": "nope/x"}`)
}

func TestMessagesPages(t *testing.T) {
	t.Parallel()
	r := newRoom(t, "")
	for i := range 4 {
		r.must(nil, "sessions.send", fmt.Sprintf(`{"session": "s1", "content": "m%d"}`, i))
	}
	for _, tt := range []struct {
		params string
		first  int
		n      int
	}{
		{``, 0, 8},
		{`, "limit": 3`, 5, 3},
		{`, "limit": 3, "before": 5`, 2, 3},
		{`, "before": 0`, 0, 0},
		{`, "limit": 3, "after": -1`, 0, 3},
		{`, "limit": 3, "after": 5`, 6, 2},
		{`, "after": 99`, 8, 0},
		{`, "after": 9223372036854775807`, 8, 0},
		{`, "before": 9223372036854775807`, 0, 8},
	} {
		var page struct {
			Messages     []struct{ Content string }
			First, Total int
			ReadOnly     bool
		}
		r.must(&page, "sessions.messages", `{"session": "s1"`+tt.params+`}`)
		if page.First != tt.first || len(page.Messages) != tt.n || page.Total != 8 || page.ReadOnly || page.Messages == nil {
			t.Errorf("the page {%s} has %d messages from %d of %d, want %d from %d", tt.params, len(page.Messages), page.First, page.Total, tt.n, tt.first)
		}
		if tt.n > 0 && page.First%2 == 0 && page.Messages[0].Content != fmt.Sprintf("m%d", page.First/2) {
			t.Errorf("the page {%s} begins with %q", tt.params, page.Messages[0].Content)
		}
	}
	for _, bad := range []string{`, "limit": 0`, `, "limit": 1001`, `, "before": -1`, `, "after": -2`, `, "before": 1, "after": 1`, `, "nope": 1`} {
		r.refused(plugin.Usage, "sessions.messages", `{"session": "s1"`+bad+`}`)
	}
}

// A host that stops keeps what came of the answers that it ends.
func TestStopInATurn(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	open := func() *host.Host {
		t.Helper()
		h, err := host.Open(t.Context(), host.Options{
			Home: home, Exe: exe, Environ: os.Environ(), Builtins: [][]byte{fmt.Appendf(nil, probeManifest, allPermissions)},
			Local: map[string]plugin.Plugin{"probe": newProbe("here")},
		})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	r := &room{t: t, Host: open()}
	r.must(nil, "sessions.create", `{"id": "s1"}`)
	r.ref = plugin.SessionRef{Project: "default", ID: "s1"}
	x := r.send(server.ChatLine{Text: "slow 100000 1ms"})
	r.until(x, session.EventTextDelta)
	if err := r.Close(t.Context()); err != nil {
		t.Errorf("Close: %v", err)
	}
	if answer, err := x.Result(t.Context()); plugin.AsError(err).Code != plugin.Unavailable || answer.Turn == "" {
		t.Errorf("the turn ended with %v, %+v, want unavailable", err, answer)
	}
	if _, err := r.Converse(t.Context(), server.ChatLine{Session: r.ref, Text: "hi"}); plugin.AsError(err).Code != plugin.Unavailable {
		t.Errorf("a host that has stopped answers %v", err)
	}
	r.Host = open()
	t.Cleanup(func() {
		if err := r.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	var info struct{ Status string }
	r.must(&info, "sessions.get", `{"session": "s1"}`)
	var page struct {
		Messages []struct{ Content, Status string }
	}
	r.must(&page, "sessions.messages", `{"session": "s1"}`)
	if len(page.Messages) != 2 || !strings.HasPrefix(page.Messages[1].Content, "1 ") || page.Messages[1].Status != "complete" || info.Status != "idle" {
		t.Errorf("after the stop the session is %s with %+v", info.Status, page.Messages)
	}
}

// Who has seen the end of a turn may send at once.
func TestSendAfterTheEnd(t *testing.T) {
	t.Parallel()
	r := newRoom(t, "")
	s := r.watch("")
	for i := range 30 {
		r.send(server.ChatLine{Text: fmt.Sprint("message ", i)})
		r.until(s, session.EventTurnEnd)
		r.send(server.ChatLine{Text: "/probe echo hello"})
		r.until(s, "answer")
	}
}
