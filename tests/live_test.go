package tests

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// sse is a stream of server-sent events.
type sse struct {
	*http.Response
	lines *bufio.Reader
	leave context.CancelFunc
}

// event is one of them.
type event struct {
	ID, Kind string
	Data     json.RawMessage
}

// open asks for a stream of events; what the gateway refuses is an answer without
// one.
func (a asker) open(t *testing.T, method, path string, body any, headers ...string) *sse {
	t.Helper()
	s, err := a.stream(t, method, path, body, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// tryOpen is open for a message to a gateway that may be gone.
func (a asker) tryOpen(t *testing.T, path string, body any) (*sse, bool) {
	t.Helper()
	s, err := a.stream(t, "POST", path, body)
	return s, err == nil
}

func (a asker) stream(t *testing.T, method, path string, body any, headers ...string) (*sse, error) {
	t.Helper()
	var content io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		content = bytes.NewReader(data)
	}
	ctx, leave := context.WithCancel(t.Context())
	t.Cleanup(leave)
	req, err := http.NewRequestWithContext(ctx, method, a.url+path, content)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+a.token)
	req.Header.Set("Accept", "text/event-stream")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { resp.Body.Close() })
	return &sse{resp, bufio.NewReader(resp.Body), leave}, nil
}

// next reads an event; io.EOF is the end of the stream.
func (s *sse) next() (e event, err error) {
	for {
		line, err := s.lines.ReadString('\n')
		if err != nil {
			return e, err
		}
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch key {
		case "id":
			e.ID = value
		case "event":
			e.Kind = value
		case "data":
			e.Data = json.RawMessage(value)
		case "":
			if e.Kind != "" {
				return e, nil
			}
		}
	}
}

// until reads events up to the first of a kind, or to the end for "".
func (s *sse) until(t *testing.T, kind string) []event {
	t.Helper()
	var all []event
	for {
		e, err := s.next()
		if errors.Is(err, io.EOF) && kind == "" {
			return all
		}
		if err != nil {
			t.Fatalf("waiting for %q after %s: %v", kind, kindsOf(all), err)
		}
		if all = append(all, e); e.Kind == kind {
			return all
		}
	}
}

// field is a text in the data of an event.
func (e event) field(t *testing.T, name string) string {
	t.Helper()
	var data map[string]any
	if err := json.Unmarshal(e.Data, &data); err != nil {
		t.Fatalf("event %s: %v: %s", e.Kind, err, e.Data)
	}
	return fmt.Sprint(data[name])
}

func kindsOf(events []event) string {
	var all []string
	for _, e := range events {
		all = append(all, e.Kind)
	}
	return strings.Join(slices.Compact(all), " ")
}

// refusedAs is the body of an error.
type refusedAs struct {
	status                  int
	Error, Code, Text, Hint string
	Details                 map[string]string
}

// refused is ask for what the gateway has to refuse.
func (a asker) refused(t *testing.T, status int, code, method, path string, body any) refusedAs {
	t.Helper()
	got, answer, err := a.ask(t.Context(), method, path, body)
	r := refusedAs{status: got}
	if err == nil {
		err = json.Unmarshal(answer, &r)
	}
	if err != nil || got != status || r.Code != code {
		t.Fatalf("%s %s %v: status %d (%v)\n%s\nwant status %d, code %s", method, path, body, got, err, answer, status, code)
	}
	return r
}

// turned is the answer to a message.
type turned struct {
	SessionID, ProjectID, Turn, Status, Model string
	Message                                   struct{ ID, Role, Content, Status string }
	Activities                                []struct{ Name, Status string }
	Usage                                     struct{ InputTokens, OutputTokens int }
	Answer                                    *struct {
		Text string
		Data json.RawMessage
	}
	Moved    *struct{ SessionID, ProjectID string }
	Revision int64
	Notices  []string
}

type sayThis struct {
	Content  string `json:"content"`
	Model    string `json:"model,omitempty"`
	Revision *int64 `json:"expectedRevision,omitempty"`
}

func (a asker) say(t *testing.T, session, text string) (answer turned) {
	t.Helper()
	a.must(t, "POST", "/sessions/"+session+"/messages", sayThis{Content: text}, &answer)
	return answer
}

// pageOf is a page of messages.
type pageOf struct {
	Messages          []struct{ Content, Status string }
	First, End, Total int
	Revision          int64
	ReadOnly          bool
	Snapshot          struct{ Name, ID string }
}

func (a asker) page(t *testing.T, session, query string) (p pageOf) {
	t.Helper()
	a.must(t, "GET", "/sessions/"+session+"/messages"+query, nil, &p)
	return p
}

func (p pageOf) contents() []string {
	var all []string
	for _, m := range p.Messages {
		all = append(all, m.Content)
	}
	return all
}

// S1-07, S1-14: the life of a conversation over HTTP, from its making on.
func TestLiveSession(t *testing.T) {
	t.Parallel()
	g := newUser(t).gateway()
	a := g.asker()
	var made struct{ ID, ProjectID, Title, Status, Model string }
	made.Status = ""
	status, body, err := a.ask(t.Context(), "POST", "/sessions", map[string]any{"project": "web", "title": "Plans", "model": "offline"})
	if err != nil || status != 201 {
		t.Fatalf("POST /sessions: %d %s (%v)", status, body, err)
	}
	if err := json.Unmarshal(body, &made); err != nil || made.ID == "" || made.ProjectID != "web" || made.Title != "Plans" || made.Status != "idle" || made.Model != "offline/echo" {
		t.Fatalf("POST /sessions: %s (%v)", body, err)
	}
	follows := a.open(t, "GET", "/sessions/"+made.ID+"/events", nil)
	if follows.StatusCode != 200 || follows.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("GET events: %d, %s", follows.StatusCode, follows.Header.Get("Content-Type"))
	}
	sends := a.open(t, "POST", "/sessions/"+made.ID+"/messages", sayThis{Content: "hello"})
	own := sends.until(t, "")
	if got := kindsOf(own); got != "turn_start text_delta usage run_finished turn_end" {
		t.Errorf("the stream of a turn is %s", got)
	}
	if diff := cmp.Diff(own, follows.until(t, "turn_end")); diff != "" {
		t.Errorf("who follows sees something else (-sent +followed):\n%s", diff)
	}
	again := a.open(t, "GET", "/sessions/"+made.ID+"/events", nil, "Last-Event-ID: "+own[1].ID)
	if diff := cmp.Diff(own[2:], again.until(t, "turn_end")); diff != "" {
		t.Errorf("who comes again (-want +got):\n%s", diff)
	}
	after := a.open(t, "GET", "/sessions/"+made.ID+"/events?after="+own[1].ID, nil)
	if diff := cmp.Diff(own[2:], after.until(t, "turn_end")); diff != "" {
		t.Errorf("who goes on after an event (-want +got):\n%s", diff)
	}
	answer := a.say(t, made.ID, "and again")
	if answer.Message.Role != "agent" || answer.Status != "complete" || answer.Usage.OutputTokens == 0 || answer.Revision == 0 || answer.Model != "offline/echo" {
		t.Errorf("one answer: %+v", answer)
	}
	p := a.page(t, made.ID, "")
	if p.Total != 4 || p.First != 0 || p.ReadOnly || p.Revision != answer.Revision || p.Messages[2].Content != "and again" || p.Messages[3].Content != answer.Message.Content {
		t.Errorf("the messages: %+v", p)
	}
	status, _, err = a.ask(t.Context(), "GET", "/sessions/"+made.ID+"?project=web", nil)
	if err != nil || status != 200 {
		t.Errorf("GET the session: %d (%v)", status, err)
	}
	a.refused(t, 409, "exists", "POST", "/sessions", map[string]any{"id": made.ID, "project": "web"})
	a.refused(t, 404, "not_found", "GET", "/sessions/nope", nil)
	a.refused(t, 404, "not_found", "GET", "/sessions/nope/events", nil)
	a.refused(t, 404, "not_found", "POST", "/sessions/nope/messages", sayThis{Content: "hi"})
	a.refused(t, 400, "usage", "POST", "/sessions/"+made.ID+"/messages", sayThis{Content: "  "})
	a.refused(t, 400, "usage", "POST", "/sessions/"+made.ID+"/messages", sayThis{Content: "hi", Model: "nope/x"})
	a.refused(t, 400, "usage", "GET", "/sessions/"+made.ID+"/messages?limit=x", nil)
	a.refused(t, 400, "usage", "POST", "/sessions/"+made.ID+"/approve", map[string]any{"callId": "c"})
	a.refused(t, 404, "not_found", "POST", "/sessions/"+made.ID+"/approve", map[string]any{"callId": "c", "allow": true})
	// A segment that is a verb's wins over an id.
	a.must(t, "GET", "/sessions/list", nil, nil)
}

// The pages of a conversation say where those beside them are.
func TestLivePages(t *testing.T) {
	t.Parallel()
	g := newUser(t).gateway()
	a := g.asker()
	a.must(t, "POST", "/sessions", map[string]any{"id": "s1"}, nil)
	for i := range 3 {
		a.say(t, "s1", fmt.Sprintf("m%d", i))
	}
	var backwards []string
	next := "/sessions/s1/messages?limit=4"
	for next != "" {
		s := a.open(t, "GET", next, nil)
		body, err := io.ReadAll(s.Body)
		if err != nil {
			t.Fatal(err)
		}
		var p pageOf
		if err := json.Unmarshal(body, &p); err != nil || s.Header.Get("X-Total-Count") != "6" {
			t.Fatalf("%s: total %s: %v\n%s", next, s.Header.Get("X-Total-Count"), err, body)
		}
		backwards = append(p.contents(), backwards...)
		next = ""
		for _, link := range s.Header.Values("Link") {
			if target, ok := strings.CutSuffix(link, `>; rel="prev"`); ok {
				next = strings.TrimPrefix(target, "<")
			}
		}
	}
	if diff := cmp.Diff(a.page(t, "s1", "").contents(), backwards); diff != "" {
		t.Errorf("all pages (-want +got):\n%s", diff)
	}
	if got := a.page(t, "s1", "?after=3&limit=1").contents(); len(got) != 1 || got[0] != "m2" {
		t.Errorf("after message 3 comes %q", got)
	}
}

// The turn of a client that leaves goes on; one that is cancelled keeps what came.
// S0-59, S3-46, S3-48: while it runs the conversation is not replaced.
func TestLiveTurns(t *testing.T) {
	t.Parallel()
	g := newUser(t).gateway()
	a := g.asker()
	a.must(t, "POST", "/sessions", map[string]any{"id": "s1"}, nil)
	leaves := a.open(t, "POST", "/sessions/s1/messages", sayThis{Content: "slow 30 5ms"})
	leaves.until(t, "text_delta")
	late := a.open(t, "GET", "/sessions/s1/events", nil)
	leaves.leave()
	a.refused(t, 409, "busy", "POST", "/sessions/s1/messages", sayThis{Content: "me too"})
	if got := kindsOf(late.until(t, "turn_end")); got != "turn_start text_delta usage run_finished turn_end" {
		t.Errorf("who came in the middle sees %s", got)
	}
	if p := a.page(t, "s1", ""); len(p.Messages) != 2 || !strings.HasSuffix(p.Messages[1].Content, "29 30") {
		t.Errorf("the turn of a client that left: %+v", p)
	}
	a.must(t, "POST", "/sessions/s1/snapshots", map[string]any{"name": "v1"}, nil)
	cancelled := a.open(t, "POST", "/sessions/s1/messages", sayThis{Content: "slow 100000 1ms"})
	cancelled.until(t, "text_delta")
	a.refused(t, 409, "busy", "POST", "/sessions/s1/snapshots/v1/restore", nil)
	var list []struct{ Name string }
	if a.must(t, "GET", "/sessions/s1/snapshots", nil, &list); len(list) != 1 {
		t.Errorf("a restore that was refused left %+v", list)
	}
	status := func(want string) {
		t.Helper()
		var info struct{ Status string }
		if a.must(t, "GET", "/sessions/s1", nil, &info); info.Status != want {
			t.Errorf("the status is %s, want %s", info.Status, want)
		}
	}
	status("running")
	var ended struct {
		Cancelled bool
		Revision  int64
	}
	a.must(t, "POST", "/sessions/s1/cancel", nil, &ended)
	rest := cancelled.until(t, "")
	if got := kindsOf(rest); !ended.Cancelled || !strings.HasSuffix(got, "run_cancelled turn_end notice") {
		t.Errorf("cancelled %v; the stream ended with %s", ended.Cancelled, got)
	}
	p := a.page(t, "s1", "")
	if len(p.Messages) != 4 || !strings.HasPrefix(p.Messages[3].Content, "1 ") || p.Revision != ended.Revision {
		t.Errorf("after the cancel: %+v, want revision %d and what came", p, ended.Revision)
	}
	a.must(t, "POST", "/sessions/s1/cancel", map[string]any{}, &ended)
	if ended.Cancelled {
		t.Error("a second cancel found something to end")
	}
	status("idle")
	// A failed turn says so, and what it was about.
	failed := a.open(t, "POST", "/sessions/s1/messages", sayThis{Content: "fail"})
	if got := failed.until(t, ""); kindsOf(got) != "turn_start error turn_end" || got[1].field(t, "code") != "unavailable" {
		t.Errorf("a failed turn is %s", kindsOf(got))
	}
	status("error")
	if r := a.refused(t, 503, "unavailable", "POST", "/sessions/s1/messages", sayThis{Content: "fail"}); r.Details["turn"] == "" {
		t.Errorf("the error of a turn does not name it: %+v", r)
	}
}

// While a snapshot is selected its messages are what there is to read, marked as
// such, and nothing can be sent; returning, or restoring it, clears the selection.
// S0-09, S0-10, S0-11, S0-12: selection over HTTP, seen by every client.
func TestLiveSelection(t *testing.T) {
	t.Parallel()
	g := newUser(t).gateway()
	a := g.asker()
	a.must(t, "POST", "/sessions", map[string]any{"id": "s1"}, nil)
	a.say(t, "s1", "one")
	a.say(t, "s1", "/sess save v1")
	saved := a.page(t, "s1", "").contents()
	a.say(t, "s1", "two")
	live := a.page(t, "s1", "").contents()
	selected := func() *string {
		t.Helper()
		var info struct{ Selected *string }
		a.must(t, "GET", "/sessions/s1", nil, &info)
		return info.Selected
	}
	if selected() != nil {
		t.Errorf("%s is selected before anything was", *selected())
	}
	a.must(t, "POST", "/sessions/s1/snapshots/v1/select", nil, nil)
	if selected() == nil {
		t.Error("nothing is selected")
	}
	shape := func() (messages []map[string]any) {
		t.Helper()
		var page struct{ Messages []map[string]any }
		a.must(t, "GET", "/sessions/s1/messages?limit=2&before=2", nil, &page)
		return page.Messages
	}
	inView := shape()
	p := a.page(t, "s1", "")
	if diff := cmp.Diff(saved, p.contents()); diff != "" || !p.ReadOnly || p.Snapshot.Name != "v1" {
		t.Errorf("while v1 is selected (read only %v, snapshot %s) the messages are (-want +got):\n%s", p.ReadOnly, p.Snapshot.Name, diff)
	}
	for _, tt := range []struct {
		query    string
		first, n int
	}{{"?limit=1", 1, 1}, {"?before=1", 0, 1}, {"?before=0", 0, 0}, {"?after=0", 1, 1}, {"?after=-1&limit=1", 0, 1}, {"?after=7", 2, 0}} {
		if p := a.page(t, "s1", tt.query); p.First != tt.first || len(p.Messages) != tt.n || p.Total != 2 || !p.ReadOnly {
			t.Errorf("the page %s of a snapshot: %+v, want %d from %d of 2", tt.query, p, tt.n, tt.first)
		}
	}
	r := a.refused(t, 409, "readonly", "POST", "/sessions/s1/messages", sayThis{Content: "three"})
	if r.Hint == "" {
		t.Errorf("the refusedAs names no way out: %+v", r)
	}
	a.must(t, "POST", "/sessions/s1/snapshots/selected/clear", nil, nil)
	if diff := cmp.Diff(live, a.page(t, "s1", "").contents()); diff != "" || selected() != nil {
		t.Errorf("back in the conversation (-want +got):\n%s", diff)
	}
	inSession := shape()
	if diff := cmp.Diff(inSession, inView); diff != "" {
		t.Errorf("a snapshot shows messages otherwise than the session that it is of (-want +got):\n%s", diff)
	}
	var answer struct{ Message map[string]any }
	a.must(t, "POST", "/sessions/s1/messages", sayThis{Content: "three"}, &answer)
	for field := range inSession[1] {
		if _, has := answer.Message[field]; !has {
			t.Errorf("the message of an answer lacks %s: %v", field, answer.Message)
		}
	}
	a.must(t, "POST", "/sessions/s1/snapshots/v1/select", nil, nil)
	a.must(t, "POST", "/sessions/s1/snapshots/v1/restore", nil, nil)
	if p := a.page(t, "s1", ""); selected() != nil || p.ReadOnly || len(p.Messages) != len(saved) {
		t.Errorf("after the restore: %+v", p)
	}
}

// A load by another surface is told to who follows the conversation, and who still
// has the old one in mind is refused: the live session is what was loaded and the
// new turn, in the file, in the event log, and in what the model is given.
func TestLoadUnderALiveClient(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	g := u.gateway()
	a := g.asker()
	a.must(t, "POST", "/sessions", map[string]any{"id": "s1"}, nil)
	a.say(t, "s1", "one")
	a.say(t, "s1", "two")
	u.do("--session=s1", "save", "alpha")
	for i := range 3 {
		a.say(t, "s1", fmt.Sprintf("discarded %d", i))
	}
	before := a.page(t, "s1", "")
	follows := a.open(t, "GET", "/sessions/s1/events", nil)
	a.must(t, "POST", "/sess/load", map[string]any{"name": "alpha", "session": "s1"}, nil)
	events := follows.until(t, "session_replaced")
	if got := events[len(events)-1].field(t, "revision"); got != fmt.Sprint(before.Revision+1) {
		t.Errorf("the replacement has revision %s, want %d", got, before.Revision+1)
	}
	r := a.refused(t, 409, "conflict", "POST", "/sessions/s1/messages", sayThis{Content: "three", Revision: &before.Revision})
	if !strings.Contains(r.Text, "replaced") || !strings.Contains(r.Text, "alpha") {
		t.Errorf("the conflict does not say what happened: %s", r.Text)
	}
	var answer turned
	a.must(t, "POST", "/sessions/s1/messages", sayThis{Content: "three"}, &answer)
	if len(answer.Notices) != 1 || !strings.Contains(answer.Notices[0], "replaced") {
		t.Errorf("who named no revision is told %q", answer.Notices)
	}
	if !strings.Contains(answer.Message.Content, "3 messages from you") {
		t.Errorf("the model was given something else: %s", answer.Message.Content)
	}
	p := a.page(t, "s1", "")
	if p.Total != 6 || strings.Contains(strings.Join(p.contents(), " "), "discarded") {
		t.Errorf("the session has %q", p.contents())
	}
	// A load survives a restart without a new message.
	a.must(t, "POST", "/sess/load", map[string]any{"name": "alpha", "session": "s1"}, nil)
	u.do("gateway", "stop")
	if exit := g.end(); exit != 0 {
		t.Errorf("the gateway ended with status %d: %s", exit, &g.stderr)
	}
	a = u.gateway().asker()
	if p := a.page(t, "s1", ""); p.Total != 4 {
		t.Errorf("after the restart the session has %q", p.contents())
	}
	if answer := a.say(t, "s1", "hi"); !strings.Contains(answer.Message.Content, "3 messages from you") {
		t.Errorf("after the restart the model is given something else: %s", answer.Message.Content)
	}
}

// Several sessions are open: what is typed in one is about that one; without a
// name the session that was talked in last is meant, and the answer says which.
func TestRightSession(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	a := u.gateway().asker()
	for _, id := range []string{"s1", "s2"} {
		a.must(t, "POST", "/sessions", map[string]any{"id": id}, nil)
		a.say(t, id, "the marker of "+id)
	}
	two := a.page(t, "s2", "")
	if got := a.say(t, "s1", "/sess save x"); !strings.Contains(string(got.Answer.Data), `"s1"`) {
		t.Errorf("x was saved as %s, want it of s1", got.Answer.Data)
	}
	holds := func(name, marker string) {
		t.Helper()
		var view struct{ Messages []struct{ Content string } }
		u.answer(&view, "view", name)
		if len(view.Messages) == 0 || view.Messages[0].Content != "the marker of "+marker {
			t.Errorf("%s holds %+v, want the marker of %s", name, view.Messages, marker)
		}
	}
	holds("x", "s1")
	// s1 was talked in last: a command is no talk with the model, but it is what
	// somebody did in that chat.
	a.must(t, "POST", "/sess/save", map[string]any{"name": "y1"}, nil)
	if out, err := a.rpc(t.Context(), "sess.invoke", map[string]any{"action": "save", "name": "y2"}); err != nil || out.Error != nil {
		t.Fatalf("save by RPC: %v, %+v", err, out.Error)
	}
	u.do("save", "y3")
	for _, name := range []string{"y1", "y2", "y3"} {
		holds(name, "s1")
	}
	a.say(t, "s1", "/sess load x")
	if now := a.page(t, "s2", ""); now.Revision != two.Revision {
		t.Errorf("s2 has revision %d now, want %d", now.Revision, two.Revision)
	}
}

// What destroys is asked about, and whoever follows may answer. S3-47: meanwhile the
// session waits for permission.
func TestApprovalOverHTTP(t *testing.T) {
	t.Parallel()
	g := newUser(t).gateway()
	a := g.asker()
	a.must(t, "POST", "/sessions", map[string]any{"id": "s1"}, nil)
	a.say(t, "s1", "/sess save v1")
	for _, allow := range []bool{false, true} {
		follows := a.open(t, "GET", "/sessions/s1/events", nil)
		sends := a.open(t, "POST", "/sessions/s1/messages", sayThis{Content: `call sess_manage {"action":"delete","name":"v1"}`})
		events := follows.until(t, "approval_request")
		asked := events[len(events)-1]
		var info struct {
			Status   string
			Approval struct{ CallID, Text string }
		}
		a.must(t, "GET", "/sessions/s1", nil, &info)
		if info.Status != "waiting-permission" || info.Approval.CallID != asked.field(t, "id") || !strings.Contains(info.Approval.Text, "delete v1") {
			t.Errorf("meanwhile the session is %+v", info)
		}
		a.must(t, "POST", "/sessions/s1/approve", map[string]any{"callId": asked.field(t, "id"), "allow": allow}, nil)
		sends.until(t, "")
		var list []struct{ Name string }
		a.must(t, "GET", "/sessions/s1/snapshots", nil, &list)
		if gone := len(list) == 0; gone != allow {
			t.Errorf("allowed %v, and the snapshots are %+v", allow, list)
		}
	}
}

// A client that does not read holds nobody up, and many of them see the same.
func TestManyFollowers(t *testing.T) {
	t.Parallel()
	g := newUser(t).gateway()
	a := g.asker()
	a.must(t, "POST", "/sessions", map[string]any{"id": "s1"}, nil)
	var all []*sse
	for range 8 {
		all = append(all, a.open(t, "GET", "/sessions/s1/events", nil))
	}
	stuck := a.open(t, "GET", "/sessions/s1/events", nil) // it reads nothing until the end
	started := time.Now()
	answer := a.say(t, "s1", "slow 20000 1ns")
	took := time.Since(started)
	var text strings.Builder
	for i, s := range all {
		text.Reset()
		for _, e := range s.until(t, "turn_end") {
			if e.Kind == "text_delta" {
				text.WriteString(e.field(t, "text"))
			}
		}
		if text.String() != answer.Message.Content {
			t.Errorf("client %d saw %d bytes of an answer of %d", i, text.Len(), len(answer.Message.Content))
		}
	}
	if got := kindsOf(stuck.until(t, "turn_end")); !strings.HasPrefix(got, "turn_start text_delta") && !strings.HasPrefix(got, "events_dropped") {
		t.Errorf("the one that did not read sees %s", got)
	}
	t.Logf("a turn of 20000 pieces before 9 clients took %v", took)
}

// What others do to a session is told to who follows it: a client that saves it, a
// chat in another process, and its end.
func TestFollowedElsewhere(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	a := u.gateway().asker()
	a.must(t, "POST", "/sessions", map[string]any{"id": "s1"}, nil)
	a.say(t, "s1", "one")
	follows := a.open(t, "GET", "/sessions/s1/events", nil)
	u.do("--session=s1", "chat", "--message", "two")
	events := follows.until(t, "session_changed")
	before := a.page(t, "s1", "")
	if got := events[len(events)-1].field(t, "revision"); got != fmt.Sprint(before.Revision) || before.Total != 4 {
		t.Errorf("after the turn elsewhere revision %s was told, and the session has %+v", got, before)
	}
	var all struct{ Sessions []map[string]any }
	a.must(t, "GET", "/sessions", nil, &all)
	all.Sessions[0]["title"] = "Another"
	a.must(t, "PUT", "/sessions/s1", all.Sessions[0], nil)
	follows.until(t, "session_replaced")

	// A snapshot is shown in place of the session, and the session again: by routes,
	// a command in the conversation, one in another process, and the chat's own.
	u.do("save", "v1")
	a.must(t, "GET", "/sessions/s1/snapshots", nil, &all.Sessions)
	v1 := all.Sessions[0]["id"]
	for _, step := range []struct {
		selected any
		by       func()
	}{
		{v1, func() { a.must(t, "POST", "/sessions/s1/snapshots/v1/select", nil, nil) }},
		{nil, func() { a.must(t, "POST", "/sessions/s1/snapshots/selected/clear", nil, nil) }},
		{v1, func() { a.say(t, "s1", "/sess select v1") }},
		{nil, func() { a.say(t, "s1", "/live") }},
		{v1, func() { u.do("--session=s1", "chat", "--message", "/sess select v1") }},
		{nil, func() { u.do("--session=s1", "chat", "--message", "/live") }},
	} {
		step.by()
		events := follows.until(t, "session_changed")
		var about map[string]any
		if err := json.Unmarshal(events[len(events)-1].Data, &about); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]any{"selected": step.selected}, about); diff != "" {
			t.Errorf("what a follower is told of a selection (-want +got):\n%s", diff)
		}
	}
	a.must(t, "DELETE", "/sessions/s1?project=default", nil, nil)
	follows.until(t, "session_deleted")
	a.refused(t, 404, "not_found", "POST", "/sessions/s1/messages", sayThis{Content: "anybody there?"})
	a.refused(t, 404, "not_found", "GET", "/sessions/s1/events", nil)
}
