package server_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"sess/host/server"
)

// The document is valid, and what the server answers is what it says.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.sessions = `{"sessions":[{"id":"s","projectId":"p","title":"t","cwd":"/","status":"idle","messages":[{"id":"m","role":"user","content":"x","status":"complete","eventIds":[],"artifactIds":[],"uploads":[],"createdAt":1,"updatedAt":2}],"activities":[],"artifacts":[],"createdAt":1,"updatedAt":2,"revision":3}],"manifest":{"version":1},"notices":["one is damaged"]}`
	g := start(t, h, server.Options{})
	first := g.ask(t, "GET", "/openapi.json", "")
	if first.status != 200 {
		t.Fatalf("GET /openapi.json: %d %s", first.status, first.body)
	}
	doc, err := openapi3.NewLoader().LoadFromData([]byte(first.body))
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatalf("the document is not valid: %v", err)
	}
	ids := map[string]string{}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			where := method + " " + path
			if other := ids[op.OperationID]; op.OperationID == "" || other != "" {
				t.Errorf("%s has the operationId %q, as has %s", where, op.OperationID, other)
			}
			ids[op.OperationID] = where
			if where == "POST /plugins/install" {
				t.Errorf("%s is listed, and denied to everybody who could read that", where)
			}
			for _, p := range op.Parameters {
				if p.Value.In == "query" && p.Value.Name == "confirm" {
					t.Errorf("%s has confirm in the query, where no text confirms", where)
				}
			}
			if op.Summary == "" {
				t.Errorf("%s has no summary", where)
			}
			// Every operation is there: with no token the server says so or answers.
			target := strings.NewReplacer("{id}", "x", "{item}", "x").Replace(path)
			a := g.ask(t, method, target, "", "-")
			open := op.Security != nil && len(*op.Security) == 0
			if want := map[bool]int{true: 200, false: 401}[open]; a.status != want {
				t.Errorf("%s without token: status %d, want %d", where, a.status, want)
			}
			// What is refused on the way to an operation is refused as it says.
			for _, refused := range []answer{
				a, g.ask(t, method, target, "", "Host: elsewhere.example"), g.ask(t, method, target, "{"), g.ask(t, method, target, "{}", "Content-Type: text/plain"),
			} {
				var body any
				if err := json.Unmarshal([]byte(refused.body), &body); refused.status >= 400 && err != nil {
					t.Errorf("%s: status %d with the body %q (%v)", where, refused.status, refused.body, err)
				} else if refused.status >= 400 {
					if err := op.Responses.Default().Value.Content.Get("application/json").Schema.Value.VisitJSON(body); err != nil {
						t.Errorf("%s: status %d with a body that is not as the document says: %v", where, refused.status, err)
					}
				}
			}
		}
	}
	for _, want := range []string{
		"GET /notes/list", "POST /notes/trash/restore", "POST /notes-of/{id}/items", "DELETE /notes-of/{id}/items/{item}",
		"GET /plugins/list", "POST /tools/invoke", "GET /metrics",
	} {
		found := false
		for _, where := range ids {
			found = found || where == want
		}
		if !found {
			t.Errorf("the document has no %s", want)
		}
	}
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ method, target, body string }{
		{"GET", "/", ""},
		{"GET", "/healthz", ""},
		{"GET", "/readyz", ""},
		{"GET", "/openapi.json", ""},
		{"GET", "/metrics", ""},
		{"GET", "/tools", ""},
		{"POST", "/tools/invoke", `{"tool":"notes_manage","args":{"action":"save"}}`},
		{"GET", "/plugins/list", ""},
		{"GET", "/notes/fail?code=busy", ""},
		{"POST", "/notes/save", `{"name":"noted","tags":{"a":"b"},"session":"s"}`},
		{"POST", "/notes/delete", `{"confirm":true}`},
		{"POST", "/notes-of/s/items", `{"reason":"why","name":"x"}`},
		{"DELETE", "/notes-of/s/items/x", ""},
		{"GET", "/client.d.ts", ""},
		{"GET", "/sessions", ""},
		{"PUT", "/sessions/s", `{"projectId":"p","messages":[],"other":{}}`},
		{"PUT", "/sessions/stale", `{"projectId":"p"}`},
		{"PUT", "/sessions/manifest", `{"lastProjectId":"p","other":1}`},
		{"DELETE", "/sessions/s?project=p", ""},
		{"DELETE", "/projects/p/sessions", ""},
	} {
		checkAgainst(t, g, router, tt.method, tt.target, tt.body)
	}
	// What the document refuses, the server refuses as well.
	for _, tt := range []struct{ method, target, body string }{
		{"POST", "/notes/save", `{"nmae":"x"}`},
		{"POST", "/notes/save", `{"name":[]}`},
		{"GET", "/notes/fail", ""},
		{"POST", "/notes-of/s/items", `{"session":"x"}`},
		{"POST", "/tools/invoke", `{"args":{}}`},
		{"DELETE", "/sessions/s", ""},
		{"PUT", "/sessions/s", `[]`},
	} {
		req, input := requestFor(t, g, router, tt.method, tt.target, tt.body)
		if err := openapi3filter.ValidateRequest(req.Context(), input); err == nil {
			t.Errorf("the document allows %s %s %s", tt.method, tt.target, tt.body)
		}
		if a := g.ask(t, tt.method, tt.target, tt.body); a.status != 400 {
			t.Errorf("%s %s %s: status %d, want 400", tt.method, tt.target, tt.body, a.status)
		}
	}
}

func requestFor(t *testing.T, g *gateway, router routers.Router, method, target, body string) (*http.Request, *openapi3filter.RequestValidationInput) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	route, params, err := router.FindRoute(req)
	if err != nil {
		t.Fatalf("%s %s is not in the document: %v", method, target, err)
	}
	return req, &openapi3filter.RequestValidationInput{
		Request: req, PathParams: params, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc},
	}
}

func checkAgainst(t *testing.T, g *gateway, router routers.Router, method, target, body string) {
	t.Helper()
	req, input := requestFor(t, g, router, method, target, body)
	if err := openapi3filter.ValidateRequest(req.Context(), input); err != nil {
		t.Errorf("%s %s %s is not as the document says: %v", method, target, body, err)
	}
	a := g.ask(t, method, target, body)
	err := openapi3filter.ValidateResponse(t.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: a.status, Header: a.header,
		Body: io.NopCloser(bytes.NewReader([]byte(a.body))),
	})
	if err != nil {
		t.Errorf("%s %s answers %d %s, which is not as the document says: %v", method, target, a.status, a.body, err)
	}
}

// Every endpoint of the server itself is described.
func TestOpenAPINamesEveryEndpoint(t *testing.T) {
	t.Parallel()
	s, err := server.New(newHost(t), server.Options{Token: token})
	if err != nil {
		t.Fatal(err)
	}
	endpoints, described := s.EndpointsForTest(t.Context())
	slices.Sort(endpoints)
	slices.Sort(described)
	if !slices.Equal(endpoints, described) {
		t.Errorf("endpoints %q, described are %q", endpoints, described)
	}
}
