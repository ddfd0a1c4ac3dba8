package tests

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sess/host"
	"sess/host/chat"
	"sess/host/client"
	"sess/plugin"
	"sess/plugin/sess"
	"sess/surfaces"
)

// worker is somebody who works with the snapshots of a session, all the time and
// by one surface.
type worker struct {
	name    string // the beginning of its snapshots' names
	surface string
	session string
	// call makes one call, and returns its data or the code of its error.
	call func(verb string, fields map[string]any) (json.RawMessage, plugin.Code)

	kept []string // the snapshots that it has
}

// Many clients of all surfaces work at the same time, and the plugin's process
// is killed in the middle. Nothing that was said to be done is lost, nobody gets
// what is another's, and whoever only reads does not notice.
func TestManyClients(t *testing.T) {
	t.Parallel()
	const many, sessions, rounds = 64, 8, 3
	u := newUser(t)
	u.askNobody()
	w := u.serve() // in this process, where the race detector sees it
	description, err := sess.New(sess.Options{}).Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{t: t, u: u, host: w.host, gateway: asker{w.url, webToken}, spec: &description.Spec}
	kinds := []struct {
		surface string
		open    func(session string) func(string, map[string]any) (json.RawMessage, plugin.Code)
	}{
		{"HTTP", f.http},
		{"tool", f.tool},
		{"slash", f.slash},
		{"model", f.model},
		{"command line", f.typed},
		{"RPC over HTTP", f.rpc},
		{"RPC over WebSocket", f.dispatch},
	}
	for i := range sessions {
		f.say(fmt.Sprintf("s%d", i))
	}
	var clients []*worker
	for i := range many {
		kind := kinds[i%len(kinds)]
		c := &worker{name: fmt.Sprintf("c%02d", i), surface: kind.surface, session: fmt.Sprintf("s%d", i%sessions)}
		if kind.surface == "model" { // a turn has its session for itself
			c.session = c.name
		}
		c.call = kind.open(c.session)
		clients = append(clients, c)
	}

	// The one who makes the call in the middle kills the plugin before.
	middle := int64(many * rounds * 3 / 2)
	var calls atomic.Int64
	var killed sync.Once
	var work sync.WaitGroup
	for _, c := range clients {
		work.Go(func() {
			call := c.call
			c.call = func(verb string, fields map[string]any) (json.RawMessage, plugin.Code) {
				if calls.Add(1) >= middle {
					killed.Do(f.killPlugin)
				}
				return call(verb, fields)
			}
			for round := range rounds {
				c.work(t, round)
			}
		})
	}
	work.Wait()
	if calls.Load() < middle {
		t.Fatalf("%d calls were made: none was the one in the middle", calls.Load())
	}

	// What there is now is what they were told.
	want, got := map[string]string{}, map[string]string{}
	for _, c := range clients {
		for _, name := range c.kept {
			want[name] = c.session
		}
	}
	var list []entry
	f.get("/sess/list", &list)
	for _, e := range list {
		got[e.Name] = e.SessionID
		if e.State != "ok" || e.Note != "of "+e.Name || e.Title != "I am "+e.SessionID {
			t.Errorf("a snapshot that is mixed up: %+v", e)
		}
	}
	for name, session := range want {
		if got[name] != session {
			t.Errorf("%s, of session %s, is lost; there is %q", name, session, got[name])
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s was deleted or never made, and is there", name)
		}
	}
	var verified struct {
		Checked  int
		Problems []json.RawMessage
	}
	if f.get("/sess/verify", &verified); len(verified.Problems) > 0 || verified.Checked < len(list) {
		t.Errorf("verify says %+v", verified)
	}
	if _, restarts := f.plugin(); restarts != 1 {
		t.Errorf("the plugin has started again %d times, want once", restarts)
	}
}

// entry is a snapshot in a list.
type entry struct{ Name, SessionID, Note, Title, State string }

// work saves, looks, copies and deletes, and checks each answer.
func (c *worker) work(t *testing.T, round int) {
	name := fmt.Sprintf("%s-%d", c.name, round)
	code := c.write("save", map[string]any{"name": name, "note": "of " + name}, plugin.Exists)
	if code != "" {
		t.Errorf("%s: save %s: %s", c.surface, name, code)
		return
	}
	c.kept = append(c.kept, name)

	var list []entry
	data, code := c.call("list", map[string]any{"prefix": c.name})
	if err := json.Unmarshal(data, &list); err != nil || code != "" {
		t.Errorf("%s: list of %s: %s %v", c.surface, c.name, code, err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name)
	}
	slices.Sort(names)
	if !slices.Equal(names, c.kept) {
		t.Errorf("%s: %s has %q, and is told %q", c.surface, c.name, c.kept, names)
	}

	var view struct{ Meta entry }
	data, code = c.call("view", map[string]any{"name": name})
	if err := json.Unmarshal(data, &view); err != nil || code != "" || view.Meta.Name != name || view.Meta.Note != "of "+name || view.Meta.SessionID != c.session {
		t.Errorf("%s: view of %s: %s %v %+v", c.surface, name, code, err, view.Meta)
	}
	if round != 1 {
		return
	}
	if code := c.write("delete", map[string]any{"name": name}, plugin.NotFound); code != "" {
		t.Errorf("%s: delete %s: %s", c.surface, name, code)
		return
	}
	c.kept = slices.DeleteFunc(c.kept, func(n string) bool { return n == name })
}

// write makes a change. One whose plugin went away may have been made or not, so
// it is asked for again; done is the code that says that it was.
func (c *worker) write(verb string, fields map[string]any, done plugin.Code) plugin.Code {
	_, code := c.call(verb, fields)
	for range 5 {
		if code != plugin.Unavailable {
			return code
		}
		if _, code = c.call(verb, fields); code == done {
			return ""
		}
	}
	return code
}

// fleet opens clients of one gateway.
type fleet struct {
	t       *testing.T
	u       *user
	host    *host.Host
	gateway asker
	spec    *plugin.Spec
}

// get asks for a document that must be there.
func (f *fleet) get(path string, into any) {
	status, body, err := f.gateway.ask(f.t.Context(), http.MethodGet, path, nil)
	if err = errors.Join(err, json.Unmarshal(body, into)); err != nil || status != http.StatusOK {
		f.t.Errorf("GET %s: status %d: %v\n%s", path, status, err, body)
	}
}

// plugin tells about the process of the sess plugin.
func (f *fleet) plugin() (pid, restarts int) {
	var rows []struct {
		ID            string
		PID, Restarts int
	}
	f.get("/plugins/list", &rows)
	for _, row := range rows {
		if row.ID == "sess" {
			return row.PID, row.Restarts
		}
	}
	f.t.Errorf("there is no plugin sess: %+v", rows)
	return 0, 0
}

func (f *fleet) killPlugin() {
	pid, _ := f.plugin()
	p, err := os.FindProcess(pid)
	if err == nil {
		err = p.Kill()
	}
	if err != nil || pid == 0 {
		f.t.Errorf("kill the plugin, process %d: %v", pid, err)
	}
}

func (f *fleet) answered(data json.RawMessage, code plugin.Code, effect plugin.Effect) (json.RawMessage, plugin.Code) {
	if code != "" || effect == plugin.EffectRead {
		return data, code
	}
	var answer struct{ Data json.RawMessage }
	if err := json.Unmarshal(data, &answer); err != nil {
		f.t.Errorf("an answer that does not parse: %v\n%s", err, data)
	}
	return answer.Data, ""
}

func (f *fleet) http(session string) func(string, map[string]any) (json.RawMessage, plugin.Code) {
	return func(verb string, fields map[string]any) (json.RawMessage, plugin.Code) {
		v, _ := f.spec.Find([]string{verb})
		fields["session"] = session
		status, body, err := f.gateway.route(f.t.Context(), "/sess/"+verb, v.Effect == plugin.EffectRead, fields)
		var failed shownFailure
		if status != http.StatusOK {
			err = errors.Join(err, json.Unmarshal(body, &failed))
		}
		if err != nil {
			f.t.Errorf("%s: status %d: %v: %s", verb, status, err, body)
		}
		return f.answered(body, failed.Code, v.Effect)
	}
}

func (f *fleet) tool(session string) func(string, map[string]any) (json.RawMessage, plugin.Code) {
	return func(verb string, fields map[string]any) (json.RawMessage, plugin.Code) {
		fields["action"] = verb
		_, body, err := f.gateway.ask(f.t.Context(), http.MethodPost, "/tools/invoke", map[string]any{"tool": "sess_manage", "args": fields, "session": session})
		var answer struct {
			Result struct{ Data json.RawMessage }
			Error  struct{ Code plugin.Code }
		}
		if err := errors.Join(err, json.Unmarshal(body, &answer)); err != nil {
			f.t.Errorf("%s: %v\n%s", verb, err, body)
		}
		return answer.Result.Data, answer.Error.Code
	}
}

func (f *fleet) rpc(session string) func(string, map[string]any) (json.RawMessage, plugin.Code) {
	return func(verb string, fields map[string]any) (json.RawMessage, plugin.Code) {
		v, _ := f.spec.Find([]string{verb})
		fields["action"], fields["session"] = verb, session
		answer, err := f.gateway.rpc(f.t.Context(), "sess.invoke", fields)
		if err != nil {
			f.t.Errorf("%s: %v", verb, err)
			return nil, plugin.Internal
		}
		if answer.Error != nil {
			return nil, plugin.Code(answer.Error.Data.Code)
		}
		return f.answered(answer.Result, "", v.Effect)
	}
}

func (f *fleet) dispatch(session string) func(string, map[string]any) (json.RawMessage, plugin.Code) {
	conn, err := client.Dial(f.t.Context(), client.Options{URL: f.gateway.url, Token: f.gateway.token})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = conn.Close() }) // the server ends with the test as well, and may be faster
	return func(verb string, fields map[string]any) (json.RawMessage, plugin.Code) {
		res, err := conn.Dispatch(f.t.Context(), plugin.Call{Argv: append([]string{"sess"}, f.words(verb, fields)...), Session: session}, nil)
		if err != nil {
			return nil, plugin.AsError(err).Code
		}
		return res.Data, ""
	}
}

// words are a call as it is typed.
func (f *fleet) words(verb string, fields map[string]any) []string {
	lowered, err := surfaces.Lower(f.spec, verb, fields)
	if err != nil {
		f.t.Errorf("%s %v: %v", verb, fields, err)
	}
	return lowered.Argv
}

func (f *fleet) typed(session string) func(string, map[string]any) (json.RawMessage, plugin.Code) {
	return func(verb string, fields map[string]any) (json.RawMessage, plugin.Code) {
		v, _ := f.spec.Find([]string{verb})
		var out bytes.Buffer
		cmd := f.u.command(append([]string{"--json", "--session=" + session}, f.words(verb, fields)...)...)
		cmd.Stdout = &out
		var failed shownFailure
		if err := cmd.Run(); err != nil && json.Unmarshal(out.Bytes(), &failed) != nil {
			f.t.Errorf("%s: %v\n%s", verb, err, &out)
		}
		return f.answered(out.Bytes(), failed.Code, v.Effect)
	}
}

// chat opens a chat in the gateway's process. What it shows is appended to the
// events.
func (f *fleet) chat(session string) (c *chat.Chat, events *[]chat.Event) {
	events = new([]chat.Event)
	c, err := f.host.OpenChat(f.t.Context(), host.ChatOptions{
		Session: session, Out: chat.SinkFunc(func(e chat.Event) { *events = append(*events, e) }),
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		end, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := c.Close(end); err != nil {
			f.t.Errorf("the end of a chat: %v", err)
		}
	})
	return c, events
}

// say makes a session that begins with who it is.
func (f *fleet) say(session string) *chat.Chat {
	c, _ := f.chat(session)
	if err := c.Send(f.t.Context(), "I am "+session); err != nil {
		f.t.Fatal(err)
	}
	return c
}

func (f *fleet) slash(session string) func(string, map[string]any) (json.RawMessage, plugin.Code) {
	c, events := f.chat(session)
	return func(verb string, fields map[string]any) (json.RawMessage, plugin.Code) {
		var line strings.Builder
		line.WriteString("/sess")
		for _, w := range f.words(verb, fields) {
			fmt.Fprintf(&line, " %q", w)
		}
		before := len(*events)
		err := c.Send(f.t.Context(), line.String())
		for _, e := range (*events)[before:] {
			switch e.Kind {
			case chat.EventAnswer:
				return e.Result.Data, ""
			case chat.EventError:
				return nil, e.Err.Code
			}
		}
		f.t.Errorf("%s has no answer: %v", &line, err)
		return nil, plugin.Internal
	}
}

func (f *fleet) model(session string) func(string, map[string]any) (json.RawMessage, plugin.Code) {
	c, events := f.chat(session)
	if err := c.Send(f.t.Context(), "I am "+session); err != nil {
		f.t.Fatal(err)
	}
	return func(verb string, fields map[string]any) (json.RawMessage, plugin.Code) {
		fields["action"] = verb
		args, err := json.Marshal(fields)
		before := len(*events)
		err = errors.Join(err, c.Send(f.t.Context(), "call sess_manage "+string(args)))
		for _, e := range (*events)[before:] {
			if e.Kind != chat.EventToolFinished {
				continue
			}
			_, data, code := modelAnswer(e.Tool.Text)
			return data, code
		}
		f.t.Errorf("%s %s has no answer: %v", verb, args, err)
		return nil, plugin.Internal
	}
}
