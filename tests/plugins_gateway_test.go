package tests

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"

	"sess/host/client"
	"sess/plugin"
)

// What changes about one plugin takes effect on a running gateway, on all of its
// surfaces, and the other plugins go on in the processes that they have.
func TestPluginsOfAGateway(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.do("chat", "--message", "hello")
	g := u.gateway()
	token := g.token()
	local, remote := g.rpc(client.Options{Socket: g.Socket}), g.rpc(client.Options{URL: g.Address, Token: token})
	call := func(c *client.Client, method, params string) (string, error) {
		out, err := c.Call(t.Context(), method, json.RawMessage(params), nil)
		return string(out), err
	}
	pid := func(id string) int {
		t.Helper()
		var p struct{ PID int }
		u.answer(&p, "plugins", "inspect", id)
		if p.PID == 0 {
			t.Fatalf("plugin %s has no process", id)
		}
		return p.PID
	}
	sess := pid("sess")
	if status, body := g.get(http.DefaultClient, "/note/list", token); status != http.StatusNotFound {
		t.Errorf("before the installation: %d %s", status, body)
	}

	for method, params := range map[string]string{
		"plugins.install": `{"package":"/","yes":true}`, "plugins.invoke": `{"action":"install","package":"/","yes":true}`,
	} {
		for _, c := range []*client.Client{local, remote} {
			if out, err := call(c, method, params); !errors.Is(err, &plugin.Error{Code: plugin.Denied}) {
				t.Errorf("%s over JSON-RPC: %s, %v, want it denied", method, out, err)
			}
		}
	}
	u.do("plugins", "install", "--yes", notePackage(t, nil))
	u.do("note", "add", "one", "text")
	if status, body := g.get(http.DefaultClient, "/note/list", token); status != http.StatusOK || body != "[\"one\"]\n" && body != `["one"]` {
		t.Errorf("GET /note/list: %d %s", status, body)
	}
	if _, body := g.get(http.DefaultClient, "/openapi.json", token); !strings.Contains(body, `"/note/add"`) {
		t.Error("/openapi.json has no /note/add")
	}
	if out, err := call(remote, "note.invoke", `{"action":"add","name":"two","text":"more"}`); err != nil || !strings.Contains(out, "noted two") {
		t.Errorf("note.invoke: %s, %v", out, err)
	}
	if out, err := call(remote, "note.invoke", `{"action":"save","name":"v1","text":"by the plugin"}`); err != nil {
		t.Errorf("note.invoke save: %s, %v", out, err)
	}
	if got := u.names(); len(got) != 1 || got[0] != "v1" {
		t.Errorf("snapshots: %q", got)
	}

	before := pid("note")
	u.do("plugins", "update", "--yes", notePackage(t, func(m map[string]any) { m["version"] = "1.1.0" }))
	if got := u.plugin("note"); got.Version != "1.1.0" || pid("note") == before {
		t.Errorf("after the update: %+v in process %d, before %d", got, pid("note"), before)
	}

	// One that dies again and again is given up, and that is shown.
	for range 5 {
		process, err := os.FindProcess(pid("note"))
		if err != nil {
			t.Fatal(err)
		}
		if err := process.Kill(); err != nil {
			t.Fatal(err)
		}
		gone := process.Pid
		waitFor(t, "the plugin is seen to have ended", func() bool {
			var rows []struct {
				ID, State string
				PID       int
			}
			u.answer(&rows, "plugins", "list")
			for _, row := range rows {
				if row.ID == "note" && (row.PID == gone || row.State == "backoff" || row.State == "starting") {
					return false
				}
			}
			return true
		})
		if u.plugin("note").State == "failed" {
			break
		}
	}
	if got := u.plugin("note"); got.State != "failed" || !strings.Contains(got.Reason, "killed") {
		t.Errorf("after five deaths: %+v, want failed with the reason", got)
	}
	if _, _, exit := u.run("plugins", "inspect", "note"); exit == 0 {
		t.Error("inspect of a plugin that was given up works")
	}
	u.do("plugins", "doctor", "note") // starts it again
	u.do("note", "list")

	u.do("plugins", "uninstall", "--yes", "note")
	if status, body := g.get(http.DefaultClient, "/note/list", token); status != http.StatusNotFound {
		t.Errorf("after it was uninstalled: %d %s", status, body)
	}
	if got := pid("sess"); got != sess {
		t.Errorf("the sess plugin runs in process %d, before in %d", got, sess)
	}
	u.do("list")
}
