package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"sess/plugin"
)

// The gateway methods that keep live sessions for their clients, and the
// endpoints that are the same over HTTP.
const (
	methodLoadAll        = "sessions.loadAll"
	methodSaveSession    = "sessions.saveSession"
	methodDeleteSession  = "sessions.deleteSession"
	methodDeleteProject  = "sessions.deleteProjectSessions"
	methodSaveManifest   = "sessions.saveManifest"
	pathSessions         = "/sessions"
	pathSession          = "/sessions/{id}"
	pathManifest         = "/sessions/manifest"
	pathProjectsSessions = "/projects/{id}/sessions"
)

func (s *Server) sessionEndpoints() []endpoint {
	return []endpoint{
		{http.MethodGet, pathSessions, false, s.serveLoadAll},
		{http.MethodPut, pathManifest, false, s.serveSaveManifest},
		{http.MethodPut, pathSession, false, s.serveSaveSession},
		{http.MethodDelete, pathSession, false, s.serveDeleteSession},
		{http.MethodDelete, pathProjectsSessions, false, s.serveDeleteProject},
	}
}

// serveMethod answers a request with what a gateway method answers.
func (s *Server) serveMethod(c echo.Context, status int, method string, params json.RawMessage) error {
	ctx := c.Request().Context()
	var notices gatheredNotices
	result, err := s.rpc.host.Call(withNotices(ctx, notices.add), plugin.CallerHTTP, method, params, nil)
	notices.send(c)
	if err != nil {
		return CutShort(ctx, method, err)
	}
	return c.Blob(status, echo.MIMEApplicationJSON, append(result, '\n'))
}

// serveLoadAll sends the sessions as they are read: all of them together may be
// more than should be in memory. Where it fails on the way the connection is cut,
// so that nobody takes a part for the whole.
func (s *Server) serveLoadAll(c echo.Context) (err error) {
	if _, err := queryOf(c.Request()); err != nil {
		return err
	}
	done := s.metrics.begin(plugin.CallerHTTP)
	err = plugin.Errorf(plugin.Internal, "panic") // unless it returns
	defer func() { done("sessions", "loadAll", err) }()
	c.Response().Header().Set(echo.HeaderContentType, echo.MIMEApplicationJSON)
	ctx := c.Request().Context()
	if err = s.host.LoadAll(ctx, c.Response()); err != nil && c.Response().Committed {
		s.log.WarnContext(ctx, "sessions not sent whole", "err", err)
		panic(http.ErrAbortHandler)
	}
	return CutShort(ctx, methodLoadAll, err)
}

// serveSaveSession saves the session in the body. The revision that it is based
// on may stand in it, or in the header If-Match.
func (s *Server) serveSaveSession(c echo.Context) error {
	r := c.Request()
	if _, err := queryOf(r); err != nil {
		return err
	}
	body, err := s.body(c)
	if err != nil {
		return err
	}
	base, err := ifMatch(r)
	if err != nil {
		return err
	}
	params, err := addressed(body, c.Param("id"), base)
	if err != nil {
		return err
	}
	return s.serveMethod(c, http.StatusOK, methodSaveSession, params)
}

// addressed is a session as the method takes it: with its id and the revision it
// is based on, which a request may name beside it.
func addressed(session []byte, id string, base *int64) (json.RawMessage, error) {
	var named struct {
		ID       json.RawMessage `json:"id"`
		Revision json.RawMessage `json:"revision"`
	}
	trimmed := bytes.TrimSpace(session)
	if len(trimmed) == 0 || trimmed[0] != '{' {
		return nil, plugin.Errorf(plugin.Usage, "the body is no session").WithHint("send the whole session as one JSON object")
	}
	if err := json.Unmarshal(trimmed, &named); err != nil {
		return nil, plugin.Errorf(plugin.Usage, "bad JSON: %w", err).WithHint("send the whole session as one JSON object")
	}
	var add []byte
	for _, f := range []struct {
		name, where string
		inBody      json.RawMessage
		said        any
		given       bool
	}{
		{"id", "the path", named.ID, id, true},
		{"revision", "If-Match", named.Revision, base, base != nil},
	} {
		if !f.given {
			continue
		}
		value, err := json.Marshal(f.said)
		if err != nil {
			return nil, err
		}
		switch {
		case f.inBody == nil:
			add = fmt.Appendf(add, "%q:%s,", f.name, value)
		case !sameText(f.inBody, value):
			return nil, plugin.Errorf(plugin.Usage, "%s is %s in %s and %s in the body", f.name, value, f.where, shortened(f.inBody)).
				WithHint("leave it out of the body").WithDetail("field", f.name)
		}
	}
	if add == nil {
		return trimmed, nil
	}
	rest := bytes.TrimLeft(trimmed[1:], " \t\r\n")
	if rest[0] == '}' {
		add = add[:len(add)-1]
	}
	out := make([]byte, 0, 1+len(add)+len(rest))
	return append(append(append(out, '{'), add...), rest...), nil
}

// sameText compares two JSON values that are texts or numbers.
func sameText(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && x == y
}

func shortened(value []byte) string {
	if len(value) > 60 {
		return strings.ToValidUTF8(string(value[:60]), "") + "…"
	}
	return string(value)
}

// ifMatch is the revision in the header If-Match (RFC 9110, section 13.1.1); nil
// without one.
func ifMatch(r *http.Request) (*int64, error) {
	given := r.Header.Values("If-Match")
	if len(given) == 0 {
		return nil, nil
	}
	text, quoted := strings.CutPrefix(strings.TrimSpace(given[0]), `"`)
	text, closed := strings.CutSuffix(text, `"`)
	revision, err := strconv.ParseInt(text, 10, 64)
	if err != nil || revision < 0 || !quoted || !closed || len(given) > 1 {
		return nil, plugin.Errorf(plugin.Usage, "If-Match: %s is not one revision", shortened([]byte(strings.Join(given, ", ")))).
			WithHint(`send the revision that you have, as in If-Match: "7"`)
	}
	return &revision, nil
}

func (s *Server) serveDeleteSession(c echo.Context) error {
	query, err := queryOf(c.Request(), "project")
	if err != nil {
		return err
	}
	if query["project"] == "" {
		return plugin.Errorf(plugin.Usage, "project is missing").WithHint("say which project it is of, as in ?project=default").
			WithDetail("missing", "project")
	}
	return s.serveNamed(c, methodDeleteSession, map[string]string{"projectId": query["project"], "sessionId": c.Param("id")})
}

func (s *Server) serveDeleteProject(c echo.Context) error {
	if _, err := queryOf(c.Request()); err != nil {
		return err
	}
	return s.serveNamed(c, methodDeleteProject, map[string]string{"projectId": c.Param("id")})
}

// serveNamed serves a method that a request names all the params of. It takes no
// body.
func (s *Server) serveNamed(c echo.Context, method string, params map[string]string) error {
	body, err := s.body(c)
	if err != nil {
		return err
	}
	if body != nil {
		return plugin.Errorf(plugin.Usage, "%s takes no body", c.Request().Method).WithHint("leave it out")
	}
	data, err := json.Marshal(params)
	if err != nil {
		return err
	}
	return s.serveMethod(c, http.StatusOK, method, data)
}

func (s *Server) serveSaveManifest(c echo.Context) error {
	if _, err := queryOf(c.Request()); err != nil {
		return err
	}
	body, err := s.body(c)
	if err != nil {
		return err
	}
	return s.serveMethod(c, http.StatusOK, methodSaveManifest, body)
}

// queryOf reads the query of a request, which may have these fields, each once.
func queryOf(r *http.Request, known ...string) (map[string]string, error) {
	takes := "it takes no query"
	if len(known) > 0 {
		takes = "it takes " + strings.Join(known, ", ")
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, plugin.Errorf(plugin.Usage, "the query: %w", err).WithHint("write %% as %%25")
	}
	out := map[string]string{}
	for name, given := range values {
		switch {
		case !slices.Contains(known, name):
			return nil, plugin.Errorf(plugin.Usage, "unknown field %q: %s", shortened([]byte(name)), takes).WithDetail("field", shortened([]byte(name)))
		case len(given) > 1:
			return nil, plugin.Errorf(plugin.Usage, "%s is given twice", name).WithHint("give it once").WithDetail("field", name)
		}
		out[name] = given[0]
	}
	return out, nil
}
