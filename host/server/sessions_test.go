package server_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"sess/host/server"
)

// A request becomes the params of the method of the same name; what it says twice
// has to be the same.
func TestSessionEndpoints(t *testing.T) {
	t.Parallel()
	g := start(t, newHost(t), server.Options{BodyLimit: 1000})
	const save, remove = "sessions.saveSession", "sessions.deleteSession"
	for _, tt := range []struct {
		method, target, body string
		header               string // beside the token
		status               int
		call, want           string // the method and its params, or what the error says
	}{
		{"PUT", "/sessions/s1", `{"projectId":"p","x":"<é>"}`, "", 200, save, `{"id":"s1","projectId":"p","x":"<é>"}`},
		{"PUT", "/sessions/s1", ` { "id":"s1" } `, "", 200, save, `{ "id":"s1" }`},
		{"PUT", "/sessions/s1", `{}`, "", 200, save, `{"id":"s1"}`},
		{"PUT", "/sessions/a%2Fb%20c", `{}`, "", 200, save, `{"id":"a/b c"}`},
		{"PUT", "/sessions/s1", `{"projectId":"p"}`, `If-Match: "7"`, 200, save, `{"id":"s1","revision":7,"projectId":"p"}`},
		{"PUT", "/sessions/s1", `{"id":"s1","revision":7}`, `If-Match: "7"`, 200, save, `{"id":"s1","revision":7}`},
		{"PUT", "/sessions/s1", `{"id":"s1","revision":0}`, `If-Match: "0"`, 200, save, `{"id":"s1","revision":0}`},
		{"PUT", "/sessions/s1", `{"id":"s1","revision":6}`, `If-Match: "7"`, 400, "", "revision is 7 in If-Match and 6 in the body"},
		{"PUT", "/sessions/s1", `{"id":"s2"}`, "", 400, "", `id is \"s1\" in the path and \"s2\" in the body`},
		{"PUT", "/sessions/s1", `{"id":null}`, "", 400, "", `and null in the body`},
		{"PUT", "/sessions/s1", `{}`, "If-Match: 7", 400, "", "If-Match: 7 is not one revision"},
		{"PUT", "/sessions/s1", `{}`, `If-Match: W/"7"`, 400, "", "is not one revision"},
		{"PUT", "/sessions/s1", `{}`, "If-Match: *", 400, "", "is not one revision"},
		{"PUT", "/sessions/s1", `{}`, `If-Match: "-1"`, 400, "", "is not one revision"},
		{"PUT", "/sessions/s1", ``, "", 400, "", "the body is no session"},
		{"PUT", "/sessions/s1", `[]`, "", 400, "", "the body is no session"},
		{"PUT", "/sessions/s1", `{"a":`, "", 400, "", "bad JSON"},
		{"PUT", "/sessions/s1", `{"a":"` + strings.Repeat("x", 1000) + `"}`, "", 413, "", "more than 1000 bytes"},
		{"PUT", "/sessions/s1?project=p", `{}`, "", 400, "", `unknown field \"project\": it takes no query`},
		{"PUT", "/sessions/stale", `{}`, "", 409, "", "changed meanwhile"},
		{"PUT", "/sessions/manifest", `{"lastProjectId":"p"}`, "", 200, "sessions.saveManifest", `{"lastProjectId":"p"}`},
		{"PUT", "/sessions/manifest?x=1", `{}`, "", 400, "", "it takes no query"},
		{"POST", "/sessions/manifest", `{}`, "", 405, "", "use PUT"},
		{"POST", "/sessions/s1", `{}`, "", 405, "", "use DELETE or GET or HEAD or PUT"},
		{"DELETE", "/sessions/s1?project=p+q", "", "", 200, remove, `{"projectId":"p q","sessionId":"s1"}`},
		{"DELETE", "/sessions/s1", "", "", 400, "", "project is missing"},
		{"DELETE", "/sessions/s1?project=p&project=q", "", "", 400, "", "project is given twice"},
		{"DELETE", "/sessions/s1?project=p&x=1", "", "", 400, "", "it takes project"},
		{"DELETE", "/sessions/s1?project=%zz", "", "", 400, "", "the query"},
		{"DELETE", "/sessions/s1?project=p", "{}", "", 400, "", "takes no body"},
		{"DELETE", "/projects/p%2Fq/sessions", "", "", 200, "sessions.deleteProjectSessions", `{"projectId":"p/q"}`},
		{"DELETE", "/projects/p/sessions?x", "", "", 400, "", "it takes no query"},
		{"GET", "/projects/p/sessions", "", "", 405, "", "use DELETE"},
		{"GET", "/sessions?project=p", "", "", 400, "", "it takes no query"},
	} {
		var headers []string
		if tt.header != "" {
			headers = append(headers, tt.header)
		}
		a := g.ask(t, tt.method, tt.target, tt.body, headers...)
		if a.status != tt.status {
			t.Errorf("%s %s %s: %d %s\nwant %d", tt.method, tt.target, tt.body, a.status, a.body, tt.status)
			continue
		}
		if tt.call == "" {
			if failure(t, a); !strings.Contains(a.body, tt.want) {
				t.Errorf("%s %s %s %s: %s\nwant %s", tt.method, tt.target, tt.body, tt.header, a.body, tt.want)
			}
			continue
		}
		var called struct{ Caller, Method, Params string }
		if err := json.Unmarshal([]byte(a.body), &called); err != nil || called.Caller != "http" || called.Method != tt.call || called.Params != tt.want {
			t.Errorf("%s %s %s %s: %+v (%v)\nwant a call of %s with %s", tt.method, tt.target, tt.body, tt.header, called, err, tt.call, tt.want)
		}
	}
	if a := g.ask(t, "PUT", "/sessions/noted", `{}`); a.header.Get("X-Notices") != `["sch\u00f6n"]` {
		t.Errorf("the notices of a save are %q", a.header.Get("X-Notices"))
	}
	if a := g.ask(t, "GET", "/metrics", ""); !strings.Contains(a.body, `command="sessions",verb="saveSession"`) {
		t.Errorf("a save is not counted:\n%s", a.body)
	}
}

// Nobody takes a part of the sessions for all of them: what fails on the way cuts
// the connection, what fails before is an error.
func TestLoadAllIsWholeOrFails(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	g := start(t, h, server.Options{})
	h.sessions = `{"sessions":[],"manifest":{"version":1}}`
	if a := g.ask(t, "GET", "/sessions", ""); a.status != 200 || a.body != h.sessions {
		t.Errorf("GET /sessions: %d %s", a.status, a.body)
	}
	h.sessions, h.broken = "", errors.New("the disk is gone")
	if a := g.ask(t, "GET", "/sessions", ""); a.status != 500 {
		t.Errorf("GET /sessions that fails at once: %d %s", a.status, a.body)
	}
	h.sessions = `{"sessions":[`
	req, err := http.NewRequestWithContext(t.Context(), "GET", g.url+"/sessions", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err == nil {
		var rest json.RawMessage
		err = json.NewDecoder(resp.Body).Decode(&rest)
		resp.Body.Close()
	}
	if err == nil {
		t.Error("GET /sessions that fails on the way arrives whole")
	}
	if log := g.log.String(); strings.Contains(log, "panic") || !strings.Contains(log, "sessions not sent whole") {
		t.Errorf("the log:\n%s", log)
	}
}
