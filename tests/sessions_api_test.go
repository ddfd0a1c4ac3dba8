package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/host/client"
	"sess/plugin"
	"sess/store/transcript"
)

// sessionClient are the five methods by which a client keeps sessions.
type sessionClient interface {
	LoadAll(ctx context.Context) (client.LoadAllSessionsResult, error)
	SaveSession(ctx context.Context, s client.PersistedChatSession) (int64, error)
	DeleteSession(ctx context.Context, r client.DeleteSessionRequest) error
	DeleteProjectSessions(ctx context.Context, r client.DeleteProjectSessionsRequest) error
	SaveManifest(ctx context.Context, r client.SaveSessionManifestRequest) error
}

// plainHTTP has the five methods of a client that knows HTTP only.
type plainHTTP struct {
	t          *testing.T
	url, token string
}

func (p *plainHTTP) ask(method, path, ifMatch string, body, into any) error {
	p.t.Helper()
	var in io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			p.t.Fatal(err)
		}
		in = strings.NewReader(string(data))
	}
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.url+path, in)
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+p.token)
	req.Header.Set("Content-Type", "application/json")
	if ifMatch != "" {
		req.Header.Set("If-Match", ifMatch)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		var e struct {
			Error, Hint string
			Code        plugin.Code
		}
		if err := json.NewDecoder(resp.Body).Decode(&e); err != nil || e.Code.Info().HTTP != resp.StatusCode {
			p.t.Errorf("%s %s: status %d with %+v (%v)", method, path, resp.StatusCode, e, err)
		}
		return &plugin.Error{Code: e.Code, Message: e.Error, Hint: e.Hint}
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

func (p *plainHTTP) LoadAll(context.Context) (all client.LoadAllSessionsResult, err error) {
	return all, p.ask("GET", "/sessions", "", nil, &all)
}

func (p *plainHTTP) SaveSession(_ context.Context, s client.PersistedChatSession) (int64, error) {
	var ifMatch string
	if s.Revision != nil { // here the header says it
		ifMatch, s.Revision = fmt.Sprintf("%q", fmt.Sprint(*s.Revision)), nil
	}
	var saved struct{ Revision int64 }
	err := p.ask("PUT", "/sessions/"+s.ID, ifMatch, s, &saved)
	return saved.Revision, err
}

func (p *plainHTTP) DeleteSession(_ context.Context, r client.DeleteSessionRequest) error {
	return p.ask("DELETE", "/sessions/"+r.SessionID+"?project="+r.ProjectID, "", nil, &struct{}{})
}

func (p *plainHTTP) DeleteProjectSessions(_ context.Context, r client.DeleteProjectSessionsRequest) error {
	return p.ask("DELETE", "/projects/"+r.ProjectID+"/sessions", "", nil, &struct{}{})
}

func (p *plainHTTP) SaveManifest(_ context.Context, r client.SaveSessionManifestRequest) error {
	return p.ask("PUT", "/sessions/manifest", "", r, &struct{}{})
}

// eachSessionClient runs a test in a new home for each way to the five methods.
func eachSessionClient(t *testing.T, run func(t *testing.T, g *gateway, c sessionClient)) {
	t.Helper()
	for name, open := range map[string]func(t *testing.T, g *gateway) sessionClient{
		"socket": func(_ *testing.T, g *gateway) sessionClient { return g.rpc(client.Options{Socket: g.Socket}) },
		"URL": func(_ *testing.T, g *gateway) sessionClient {
			return g.rpc(client.Options{URL: g.Address, Token: g.token()})
		},
		"HTTP": func(t *testing.T, g *gateway) sessionClient {
			return &plainHTTP{t: t, url: g.Address, token: g.token()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newUser(t).gateway()
			run(t, g, open(t, g))
		})
	}
}

func codeOf(err error) plugin.Code {
	if e, ok := errors.AsType[*plugin.Error](err); ok {
		return e.Code
	}
	return ""
}

// S3-09, S3-10, S3-11, S3-14, S3-15, S3-16, S3-17, S3-18, S3-21, S3-22, S3-23,
// S3-24, S3-25, S3-26, S3-27, S3-28, S3-29, S3-30, S3-71, S3-72, S3-73: an
// application keeps its sessions here as it is documented: it loads at its start,
// saves after each message, says which session is open, deletes one, and all of a
// project.
func TestSessionsOfAnApplication(t *testing.T) {
	t.Parallel()
	eachSessionClient(t, func(t *testing.T, g *gateway, c sessionClient) {
		ctx := t.Context()
		all, err := c.LoadAll(ctx)
		if err != nil || all.Sessions == nil || len(all.Sessions) != 0 || all.Manifest != (client.PersistedSessionManifest{Version: 1}) {
			t.Fatalf("LoadAll of an empty home: %+v, %v", all, err)
		}
		if files, err := filepath.Glob(filepath.Join(g.home, "sessions", "*")); err != nil || len(files) > 0 {
			t.Errorf("loading made %q (%v)", files, err)
		}

		// After each message the whole session is saved, and only the first time it
		// has no revision.
		s := client.PersistedChatSession{
			ID: "chat-1", ProjectID: "shop", Title: "Launch", Cwd: "/work", Status: client.StatusIdle,
			Messages: []client.PersistedChatMessage{}, Activities: []transcript.Activity{}, Artifacts: []json.RawMessage{[]byte(`{"id":"a1","path":"plan.md","kind":"workspace-file","name":"Plan"}`)},
			CreatedAt: 1_790_000_000_000, UpdatedAt: 1_790_000_000_001,
		}
		for i, text := range []string{"Plan the launch", "Here is <the> plan & more"} {
			role := []transcript.Role{"user", "agent"}[i]
			s.Messages = append(s.Messages, client.PersistedChatMessage{
				ID: "m" + string(role), Role: role, Content: text, Status: "complete", CreatedAt: 1_790_000_000_002, UpdatedAt: 1_790_000_000_003,
			})
			revision, err := c.SaveSession(ctx, s)
			if err != nil || revision != int64(i+1) {
				t.Fatalf("save %d: revision %d, %v", i+1, revision, err)
			}
			s.Revision = &revision
		}
		for _, other := range []client.PersistedChatSession{
			{ID: "chat-2", ProjectID: "shop", Title: "Other", Messages: []client.PersistedChatMessage{}},
			{ID: "chat-3", ProjectID: "blog", Title: "Third", Messages: []client.PersistedChatMessage{}},
		} {
			if _, err := c.SaveSession(ctx, other); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.SaveManifest(ctx, client.SaveSessionManifestRequest{LastProjectID: "shop", LastSessionID: "chat-1"}); err != nil {
			t.Fatal(err)
		}

		all, err = c.LoadAll(ctx)
		if err != nil || len(all.Sessions) != 3 || len(all.Notices) > 0 {
			t.Fatalf("LoadAll: %+v, %v", all, err)
		}
		if want := (client.PersistedSessionManifest{Version: 1, LastProjectID: "shop", LastSessionID: "chat-1"}); all.Manifest != want {
			t.Errorf("the manifest is %+v, want %+v", all.Manifest, want)
		}
		found := map[string]client.PersistedChatSession{}
		for _, l := range all.Sessions {
			found[l.ProjectID+"/"+l.ID] = l
		}
		for i := range s.Messages { // every message has its lists
			s.Messages[i].EventIDs, s.Messages[i].ArtifactIDs, s.Messages[i].Uploads = []string{}, []string{}, []json.RawMessage{}
		}
		s.UpdatedAt = found["shop/chat-1"].UpdatedAt // the time of the save, where that is later
		if diff := cmp.Diff(s, found["shop/chat-1"]); diff != "" {
			t.Errorf("the session comes back changed (-saved +loaded):\n%s", diff)
		}

		// The file is a plain session, of its project and id.
		var file struct{ ID, ProjectID, Title string }
		data, err := os.ReadFile(filepath.Join(g.home, "sessions", "shop", "chat-1.json"))
		if err == nil {
			err = json.Unmarshal(data, &file)
		}
		if err != nil || file.ID != "chat-1" || file.ProjectID != "shop" || file.Title != "Launch" {
			t.Errorf("the file has %+v (%v)", file, err)
		}

		if err := c.DeleteSession(ctx, client.DeleteSessionRequest{ProjectID: "shop", SessionID: "chat-2"}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.SaveSession(ctx, client.PersistedChatSession{ID: "chat-2", ProjectID: "shop"}); codeOf(err) != plugin.NotFound {
			t.Errorf("a save that comes late: %v, want that the session was deleted", err)
		}
		if err := c.DeleteProjectSessions(ctx, client.DeleteProjectSessionsRequest{ProjectID: "shop"}); err != nil {
			t.Fatal(err)
		}
		if err := c.DeleteProjectSessions(ctx, client.DeleteProjectSessionsRequest{ProjectID: "nosuch"}); err != nil {
			t.Errorf("deleting the sessions of a project without any: %v", err)
		}
		all, err = c.LoadAll(ctx)
		if err != nil || len(all.Sessions) != 1 || all.Sessions[0].ID != "chat-3" {
			t.Errorf("after the deletions there is %+v, %v; want chat-3", all.Sessions, err)
		}
		if err := c.SaveManifest(ctx, client.SaveSessionManifestRequest{}); err != nil {
			t.Fatal(err)
		}
		if all, err = c.LoadAll(ctx); err != nil || all.Manifest != (client.PersistedSessionManifest{Version: 1}) {
			t.Errorf("the manifest says %+v after it was emptied (%v)", all.Manifest, err)
		}
	})
}

// S3-21, S3-22, S3-24: what is refused says so by its code, and changes nothing.
func TestSessionsOfAnApplicationRefused(t *testing.T) {
	t.Parallel()
	eachSessionClient(t, func(t *testing.T, g *gateway, c sessionClient) {
		ctx := t.Context()
		s := client.PersistedChatSession{ID: "s", ProjectID: "p", Messages: []client.PersistedChatMessage{{ID: "m1", Role: "user", Content: "one", Status: "complete"}}}
		first, err := c.SaveSession(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		s.Revision = &first
		s.Messages[0].Content = "two"
		if _, err := c.SaveSession(ctx, s); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(g.home, "sessions", "p", "s.json")
		before, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		edit := s
		edit.Messages = []client.PersistedChatMessage{{ID: "m1", Role: "user", Content: "three", Status: "complete"}}
		save := func(change func(*client.PersistedChatSession)) error {
			x := edit
			change(&x)
			_, err := c.SaveSession(ctx, x)
			return err
		}
		none := func(*client.PersistedChatSession) {}
		for name, tt := range map[string]struct {
			err  error
			want plugin.Code
		}{
			"an old revision":          {save(none), plugin.Conflict},
			"no revision":              {save(func(s *client.PersistedChatSession) { s.Revision = nil }), plugin.Conflict},
			"no project":               {save(func(s *client.PersistedChatSession) { s.ProjectID = "" }), plugin.Usage},
			"a project that is a path": {save(func(s *client.PersistedChatSession) { s.ProjectID = "../p" }), plugin.InvalidName},
			"deleting without project": {c.DeleteSession(ctx, client.DeleteSessionRequest{SessionID: "s"}), plugin.Usage},
			"deleting what is not":     {c.DeleteSession(ctx, client.DeleteSessionRequest{ProjectID: "p", SessionID: "nosuch"}), plugin.NotFound},
			"a manifest with a path":   {c.SaveManifest(ctx, client.SaveSessionManifestRequest{LastProjectID: "../p"}), plugin.InvalidName},
		} {
			if codeOf(tt.err) != tt.want {
				t.Errorf("%s: %v, want %s", name, tt.err, tt.want)
			}
		}
		g.do("--project=p", "--session=s", "save", "v1")
		g.do("--project=p", "--session=s", "select", "v1")
		now := int64(2)
		if err := save(func(s *client.PersistedChatSession) { s.Revision = &now }); codeOf(err) != plugin.ReadOnly {
			t.Errorf("saving while a snapshot is shown: %v, want readonly", err)
		}
		if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
			t.Errorf("the file has changed (%v):\n%s\n%s", err, before, after)
		}
	})
}

// S3-10, S3-12: a session that cannot be read is told of, and keeps none of the
// others from being loaded.
func TestLoadAllTellsOfWhatIsDamaged(t *testing.T) {
	t.Parallel()
	eachSessionClient(t, func(t *testing.T, g *gateway, c sessionClient) {
		ctx := t.Context()
		if _, err := c.SaveSession(ctx, client.PersistedChatSession{ID: "whole", ProjectID: "p"}); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(g.home, "sessions", "p", "torn.json")
		write(t, file, `{"id":"torn","messages":[`, 0o600)
		write(t, filepath.Join(g.home, "sessions", "manifest.json"), "{", 0o600)
		all, err := c.LoadAll(ctx)
		if err != nil || len(all.Sessions) != 1 || all.Sessions[0].ID != "whole" || all.Manifest.Version != 1 {
			t.Fatalf("LoadAll: %+v, %v", all, err)
		}
		if len(all.Notices) != 1 || !strings.Contains(all.Notices[0], "p/torn") || !strings.Contains(all.Notices[0], "damaged") {
			t.Errorf("the notices are %q", all.Notices)
		}
		if data, err := os.ReadFile(file); err != nil || string(data) != `{"id":"torn","messages":[` {
			t.Errorf("loading changed the damaged file to %q (%v)", data, err)
		}
	})
}

// S3-28, S3-29, S3-30: the manifest is replaced by what it knows of what is saved.
func TestManifestOfAnApplication(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	w := u.serve()
	for _, c := range []struct{ saved, want string }{
		{`{"lastProjectId":"shop","lastSessionId":"s1"}`, `{"version":1,"lastProjectId":"shop","lastSessionId":"s1"}`},
		{`{"lastProjectId":"blog"}`, `{"version":1,"lastProjectId":"blog"}`},
		{`{"version":7,"lastProjectId":"","lastSessionId":"s2","theme":"dark"}`, `{"version":1,"lastSessionId":"s2"}`},
		{`{}`, `{"version":1}`},
	} {
		w.want(200, nil, "PUT", "/sessions/manifest", c.saved)
		var all struct{ Manifest json.RawMessage }
		w.want(200, &all, "GET", "/sessions", "")
		file, err := os.ReadFile(filepath.Join(u.home, "sessions", "manifest.json"))
		if string(all.Manifest) != c.want || err != nil || strings.TrimSpace(string(file)) != c.want {
			t.Errorf("%s is shown as %s and stored as %s (%v), want %s", c.saved, all.Manifest, file, err, c.want)
		}
	}
}
