package tests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/host"
	"sess/host/client"
	"sess/plugin"
)

// rpc connects to the gateway.
func (g *gateway) rpc(o client.Options) *client.Client {
	g.t.Helper()
	c, err := client.Dial(g.t.Context(), o)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = c.Close() }) // the gateway may have ended before
	return c
}

func (g *gateway) token() string { return strings.TrimSpace(g.do("gateway", "token", "--show")) }

// A chat is a process of its own: whoever follows the gateway hears of its turns
// and of what it saves all the same. Only at the socket may somebody tell of that.
func TestEventsOfAChat(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	g := u.gateway()
	remote := g.rpc(client.Options{URL: g.Address, Token: g.token()})
	follow, err := remote.Subscribe(t.Context(), client.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	u.chat("a secret", "/sess save v1")
	var told []string
	for range 3 {
		e, err := follow.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if e.Session == "" || e.Project != "default" || bytes.Contains(e.Data, []byte("secret")) {
			t.Errorf("event %+v: want one of the chat's session, without what was said", e)
		}
		told = append(told, strings.TrimSpace(e.Kind+" "+e.Verb))
	}
	if want := []string{"turn.started", "turn.ended", "sess.changed save"}; !slices.Equal(told, want) {
		t.Errorf("events %q, want %q", told, want)
	}
	local := g.rpc(client.Options{Socket: g.Socket})
	for _, tt := range []struct {
		where  *client.Client
		params string
		code   plugin.Code
	}{
		{remote, `{"kind":"turn.ended"}`, plugin.Denied},
		{local, `{"kind":"plugins.removed"}`, plugin.Usage},
		{local, `{"kind":"ghost.changed"}`, plugin.Usage},
		{local, `{"kind":"turn.ended","data":{"text":"` + strings.Repeat("x", 5000) + `"}}`, plugin.Usage},
	} {
		if _, err := tt.where.Call(t.Context(), host.RelayMethod, json.RawMessage(tt.params), nil); !errors.Is(err, &plugin.Error{Code: tt.code}) {
			t.Errorf("relay %.60s: %v, want %s", tt.params, err, tt.code)
		}
	}
}

// What one client does through the gateway, another one sees; what it is told of
// does not say what the conversation is about.
func TestRPC(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.do("chat", "--message", "a secret")
	g := u.gateway()
	local, remote := g.rpc(client.Options{Socket: g.Socket}), g.rpc(client.Options{URL: g.Address, Token: g.token()})
	follow, err := remote.Subscribe(t.Context(), client.Filter{Kinds: []string{"sess", "session"}})
	if err != nil {
		t.Fatal(err)
	}
	call := func(c *client.Client, method, params string) string {
		t.Helper()
		out, err := c.Call(t.Context(), method, json.RawMessage(params), nil)
		if err != nil {
			t.Fatalf("%s %s: %v", method, params, err)
		}
		return string(out)
	}
	saved := call(local, "sess.invoke", `{"action":"save","name":"v1","note":"--overwrite"}`)
	if !strings.HasPrefix(saved, `{"text":"saved v1: 2 messages`) {
		t.Errorf("save = %s", saved)
	}
	list := call(remote, "sess.invoke", `{"action":"ls"}`)
	var rows []struct{ Name, Note string }
	if err := json.Unmarshal([]byte(list), &rows); err != nil || len(rows) != 1 || rows[0].Name != "v1" || rows[0].Note != "--overwrite" {
		t.Errorf("list = %s (%v), want a bare list of v1", list, err)
	}
	if whole := call(remote, "sess.invoke", `{"argv":["list","--limit=1"]}`); !strings.HasPrefix(whole, `{"text":"NAME`) || !strings.Contains(whole, `"page":{"total":1}`) {
		t.Errorf("list as a command line = %s, want text, data and page", whole)
	}
	u.do("chat", "--message", "another secret")
	call(remote, "sess.invoke", `{"argv":["load","v1"]}`)
	var told []string
	for range 3 {
		e, err := follow.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		told = append(told, e.Kind+" "+e.Verb)
		if text := string(e.Data); strings.Contains(text, "secret") {
			t.Errorf("the event %s tells what was said: %s", e.Kind, text)
		}
	}
	if diff := cmp.Diff([]string{"sess.changed save", "session.replaced ", "sess.changed load"}, told); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	for params, code := range map[string]plugin.Code{
		`{"action":"load","name":"nosuch"}`: plugin.NotFound, `{"action":"save","name":"v1"}`: plugin.Exists, `{"action":"save","name":"a b"}`: plugin.InvalidName,
		`{"action":"save","name":"x","trigger":"load"}`: plugin.Usage, `{"argv":["save","x","--trigger=load"]}`: plugin.Usage,
		`{"argv":["op","open"]}`: plugin.Usage, `{"action":"list","turn":"t"}`: plugin.Usage,
	} {
		for _, c := range []*client.Client{local, remote} {
			if _, err := c.Call(t.Context(), "sess.invoke", json.RawMessage(params), nil); !errors.Is(err, &plugin.Error{Code: code}) {
				t.Errorf("sess.invoke %s: %v, want %s", params, err, code)
			}
		}
	}
	u.do("gateway", "stop")
	if _, err := follow.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("a subscription of a gateway that has ended: %v, want io.EOF", err)
	}
	if _, err := local.Call(t.Context(), "sess.invoke", json.RawMessage(`{"action":"list"}`), nil); !errors.Is(err, &plugin.Error{Code: plugin.Unavailable}) {
		t.Errorf("a call of a gateway that has ended: %v, want unavailable", err)
	}
	if exit := g.end(); exit != 0 {
		t.Errorf("the gateway ended with %d", exit)
	}
}

// Many clients of all kinds work at once, and the plugin is killed meanwhile. What
// was said to be saved is there, each under its own name; what failed says why;
// nothing that only reads fails.
func TestMixedClients(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.configure(`{"maxSnapshots":0}`)
	u.do("chat", "--message", "hello")
	g := u.gateway()
	token := g.token()
	invoke := func(c *client.Client) func(params string) error {
		return func(params string) error {
			_, err := c.Call(t.Context(), "sess.invoke", json.RawMessage(params), nil)
			return err
		}
	}
	post := func(path, body string) (string, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.Address+path, strings.NewReader(body))
		if err != nil {
			return "", err
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		return string(answer), err
	}
	// failed reads the code out of an answer in whichever shape a surface has it.
	failed := func(answer string, err error) error {
		var said struct {
			Code  plugin.Code
			Error json.RawMessage
		}
		if err == nil {
			err = json.Unmarshal([]byte(answer), &said)
		}
		if err != nil || len(said.Error) == 0 {
			return err
		}
		for _, info := range plugin.Codes() {
			if said.Code == info.Code || bytes.Contains(said.Error, fmt.Appendf(nil, `"code":%q`, info.Code)) {
				return plugin.Errorf(info.Code, "%s", answer)
			}
		}
		return errors.New(answer)
	}
	kinds := []func() func(params string) error{
		func() func(string) error { return invoke(g.rpc(client.Options{Socket: g.Socket})) },
		func() func(string) error { return invoke(g.rpc(client.Options{URL: g.Address, Token: token})) },
		func() func(string) error {
			return func(params string) error {
				return failed(post("/rpc", `{"jsonrpc":"2.0","id":1,"method":"sess.invoke","params":`+params+`}`))
			}
		},
		func() func(string) error {
			return func(params string) error {
				return failed(post("/tools/invoke", `{"tool":"sess_manage","args":`+params+`}`))
			}
		},
	}
	const clients, saves = 64, 2
	var (
		all    sync.WaitGroup
		mu     sync.Mutex // guards what follows
		saved  = map[string]string{}
		killed = sync.OnceFunc(func() {
			var rows []struct{ PID int }
			u.answer(&rows, "plugins", "list")
			if p, err := os.FindProcess(rows[0].PID); err != nil || rows[0].PID == 0 || p.Kill() != nil {
				t.Errorf("the plugin's process %v could not be killed (%v)", rows, err)
			}
		})
	)
	for n := range clients {
		ask := kinds[n%len(kinds)]()
		all.Go(func() {
			for i := range saves {
				name := fmt.Sprintf("c%d-%d", n, i)
				err := ask(fmt.Sprintf(`{"action":"save","name":%q,"note":"by %s"}`, name, name))
				mu.Lock()
				if err == nil {
					saved[name] = "by " + name
				} else if !errors.Is(err, &plugin.Error{Code: plugin.Unavailable}) {
					t.Errorf("save %s: %v", name, err)
				}
				half := len(saved) >= clients/2
				mu.Unlock()
				if half {
					killed()
				}
				if err := ask(`{"action":"list","limit":1}`); err != nil {
					t.Errorf("client %d: list: %v", n, err)
				}
			}
		})
	}
	all.Wait()
	killed()
	var rows []struct{ Name, Note string }
	u.answer(&rows, "list")
	there := map[string]string{}
	for _, r := range rows {
		there[r.Name] = r.Note
	}
	for name, note := range saved {
		if there[name] != note {
			t.Errorf("%s was saved with the note %q and has %q", name, note, there[name])
		}
	}
	if len(saved) < clients {
		t.Errorf("%d of %d saves succeeded", len(saved), clients*saves)
	}
	u.do("verify")
	u.do("gateway", "stop")
	if exit := g.end(); exit != 0 {
		t.Errorf("the gateway ended with %d", exit)
	}
}

// A client that closes its side after its requests gets the answers, in which
// order they may come.
func TestRPCHalfClosed(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.chat("hello")
	g := u.gateway()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: g.Socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = io.WriteString(conn, `{"jsonrpc":"2.0","id":1,"method":"sess.invoke","params":{"action":"save","name":"v1"}}`+"\n"+
		`{"jsonrpc":"2.0","id":2,"method":"gateway.version"}`)
	if err == nil {
		err = conn.CloseWrite()
	}
	if err != nil {
		t.Fatal(err)
	}
	answers, err := io.ReadAll(conn)
	if text := string(answers); err != nil || strings.Count(text, `"result"`) != 2 || !strings.Contains(text, "saved v1") {
		t.Errorf("answers (%v):\n%s", err, text)
	}
}

// What verify has to warn of is heard over RPC, too.
func TestRPCNotices(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.chat("hello")
	u.do("save", "v1")
	u.gateway()
	file := filepath.Join(u.pool(), "v1.sess.json")
	data, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, bytes.Replace(data, []byte(`"sess/1"`), []byte(`"sess/99"`), 1), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{{"verify"}, {"gateway", "call", "sess.invoke", `--params={"action":"verify"}`}} {
		if _, stderr, exit := u.run(argv...); exit != 0 || !strings.Contains(stderr, "v1 was not checked: written by a newer version") {
			t.Errorf("%v: status %d, %q; want the warning", argv, exit, stderr)
		}
	}
}
