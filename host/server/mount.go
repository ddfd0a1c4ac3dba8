package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"sess/plugin"
	"sess/surfaces"
)

// endpoint is a route of the server itself. Its path may have parameters, as in
// "/sessions/{id}": echo's Param has them.
type endpoint struct {
	method, path string
	// open endpoints are served without a token.
	open  bool
	serve echo.HandlerFunc
}

// mount puts everything on one router: the server's own endpoints, which no
// plugin can take, and for the rest the commands' routes, which may change at
// any time, with those endpoints among them whose paths have parameters: there a
// literal segment wins.
func (s *Server) mount() {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.IPExtractor = echo.ExtractIPDirect()
	e.HTTPErrorHandler = func(err error, c echo.Context) { s.fail(c, err) }
	s.fixed = s.endpoints()
	e.Pre(s.around, s.guard)
	byPath := map[string][]endpoint{}
	for _, ep := range s.fixed {
		if !strings.Contains(ep.path, "{") {
			byPath[ep.path] = append(byPath[ep.path], ep)
		}
	}
	for path, eps := range byPath {
		e.RouteNotFound(path, oneOf(path, eps)) // whatever the method
	}
	e.RouteNotFound("/*", s.serveCommand)
	s.echo = e
}

// oneOf serves the endpoints of one path, each for its method.
func oneOf(path string, eps []endpoint) echo.HandlerFunc {
	var allow []string
	for _, ep := range eps {
		if allow = append(allow, ep.method); ep.method == http.MethodGet {
			allow = append(allow, http.MethodHead)
		}
	}
	slices.Sort(allow)
	return func(c echo.Context) error {
		method := c.Request().Method
		if method == http.MethodHead {
			method = http.MethodGet
		}
		for _, ep := range eps {
			if ep.method == method {
				return ep.serve(c)
			}
		}
		return &statusError{
			status: http.StatusMethodNotAllowed, allow: allow,
			err: plugin.Errorf(plugin.Usage, "%s is not for %s", c.Request().Method, path).WithHint("use %s", strings.Join(allow, " or ")),
		}
	}
}

// rpcPath is where JSON-RPC is spoken.
const rpcPath = "/rpc"

// toolPath is where tools are called. Its errors have the shape of its answers.
const toolPath = "/tools/invoke"

// endpoints lists the server's own endpoints.
func (s *Server) endpoints() []endpoint {
	return slices.Concat(s.pageEndpoints(), []endpoint{
		{http.MethodGet, "/healthz", true, s.serveHealth},
		{http.MethodGet, "/readyz", true, s.serveReady},
		{http.MethodGet, "/openapi.json", false, s.serveOpenAPI},
		{http.MethodGet, "/metrics", false, s.serveMetrics},
		{http.MethodGet, "/tools", false, s.serveTools},
		{http.MethodPost, toolPath, false, s.serveTool},
		{http.MethodGet, rpcPath, false, s.serveRPCSocket},
		{http.MethodPost, rpcPath, false, s.serveRPC},
	}, s.sessionEndpoints(), s.chatEndpoints(), s.completionEndpoints())
}

// statusError is an error whose status the error's code does not tell.
type statusError struct {
	status int
	allow  []string
	err    *plugin.Error
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

// fail answers with an error, unless something was sent already.
func (s *Server) fail(c echo.Context, err error) {
	if c.Response().Committed {
		return
	}
	status := 0
	if e, ok := errors.AsType[*statusError](err); ok {
		status = e.status
		if e.allow != nil {
			c.Response().Header().Set("Allow", strings.Join(e.allow, ", "))
		}
	}
	if e, ok := errors.AsType[*echo.HTTPError](err); ok { // the router's: a method that it does not know
		status = e.Code
		code := plugin.Usage
		if e.Code == http.StatusNotFound {
			code = plugin.NotFound
		}
		err = plugin.Errorf(code, "%s of %q: %s", c.Request().Method, c.Request().URL.Path, strings.ToLower(http.StatusText(e.Code)))
	}
	e := plugin.AsError(err)
	if e.Code == plugin.Internal && e.Details["incident"] == "" {
		e = s.incident(c.Request().Context(), e, nil)
	}
	if status == 0 {
		status = e.Code.Info().HTTP
	}
	if status == http.StatusUnauthorized {
		c.Response().Header().Set("WWW-Authenticate", `Bearer realm="sess"`)
	}
	body := surfaces.HTTPErrorBody
	switch path := c.Request().URL.Path; {
	case path == toolPath:
		body = surfaces.HTTPToolErrorBody
	case strings.HasPrefix(path, completionsRoot):
		body = completionError
	}
	if err := c.Blob(status, echo.MIMEApplicationJSON, body(e)); err != nil {
		s.log.DebugContext(c.Request().Context(), "answer not sent", "err", err)
	}
}

// incident logs an error whose cause must not be sent, under an id that is.
func (s *Server) incident(ctx context.Context, e *plugin.Error, stack []byte) *plugin.Error {
	id := uuid.NewString()
	s.log.LogAttrs(ctx, slog.LevelError, "request failed",
		slog.String("incident", id), slog.String("request_id", plugin.RequestID(ctx)),
		slog.String("err", e.Message), slog.Any("cause", e.Err), slog.String("stack", string(stack)))
	return &plugin.Error{
		Code: plugin.Internal, Message: "the request failed because of a bug",
		Hint: "look for incident " + id + " in the log", Details: map[string]string{"incident": id},
	}
}

// around gives a request its id, its log line and the headers that every answer
// has, and turns a panic into an answer.
func (s *Server) around(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		started := time.Now()
		r := c.Request()
		id := r.Header.Get("X-Request-Id")
		if !plugin.GoodRequestID(id) {
			id = uuid.NewString()
		}
		ctx := plugin.WithRequestID(r.Context(), id)
		c.SetRequest(r.WithContext(ctx))
		if serve, ok := ctx.Value(closingKey{}).(*serving); ok && r.URL.Path == rpcPath && upgrade(r) {
			serve.streams.Add(1) // net/http waits for such a one no more, nor for its line in the log
			defer serve.streams.Done()
		}
		h := c.Response().Header()
		h.Set("X-Request-Id", id)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		defer func() {
			v := recover()
			if v != nil && v != http.ErrAbortHandler {
				s.fail(c, s.incident(ctx, plugin.Errorf(plugin.Internal, "panic: %v", v), debug.Stack()))
			}
			status := c.Response().Status
			s.metrics.request(status)
			level := slog.LevelDebug
			if status == http.StatusUnauthorized || status == http.StatusForbidden {
				level = slog.LevelWarn
			}
			path := r.URL.Path
			if len(path) > 300 { // anybody may send a megabyte of it
				path = path[:300] + "…"
			}
			s.log.LogAttrs(ctx, level, "http request", slog.String("method", r.Method), slog.String("path", path),
				slog.Int("status", status), slog.Int64("duration_ms", time.Since(started).Milliseconds()),
				slog.String("remote", r.RemoteAddr), slog.String("request_id", id))
			if v == http.ErrAbortHandler {
				panic(v) // net/http cuts the connection, and says nothing
			}
		}()
		if err := next(c); err != nil {
			s.fail(c, err)
		}
		s.takeLate(c)
		return nil
	}
}

// takeLate reads what is left of a body that was answered without being read: a
// connection that is closed before is reset, and who sends all of a body first, as
// many programs do, would see that in place of the answer. It takes a bounded amount
// in a bounded time; a little is taken by net/http itself, and gladly.
func (s *Server) takeLate(c echo.Context) {
	const little = 256 << 10
	r := c.Request()
	if r.ProtoMajor != 1 || r.Body == http.NoBody || r.ContentLength >= 0 && r.ContentLength <= little || r.Header.Get("Expect") != "" {
		return // nothing comes, or only if it is asked for
	}
	conn := http.NewResponseController(c.Response())
	if conn.Flush() != nil || conn.SetReadDeadline(time.Now().Add(lateTimeout)) != nil {
		return
	}
	if serve, ok := r.Context().Value(closingKey{}).(*serving); ok {
		defer context.AfterFunc(serve.closing, func() { _ = conn.SetReadDeadline(time.Now()) })() // the server waits for nobody's body
	}
	// An error is the client's, who has gone or takes too long.
	_, _ = io.CopyN(io.Discard, r.Body, 4*max(s.opts.BodyLimit, DefaultBodyLimit))
	_ = conn.SetReadDeadline(time.Time{})
}

// guard lets in only who may, in the order of what must not be told: which host
// this is, which pages are trusted, and then whether the token is right.
func (s *Server) guard(next echo.HandlerFunc) echo.HandlerFunc {
	open := map[string]bool{}
	for _, ep := range s.fixed {
		open[ep.path] = open[ep.path] || ep.open
	}
	return func(c echo.Context) error {
		r, h := c.Request(), c.Response().Header()
		if err := s.access.checkHost(r); err != nil {
			return err
		}
		h.Add("Vary", "Origin")
		cors, err := s.access.checkOrigin(r)
		if err != nil {
			return err
		}
		if cors != "" {
			h.Set("Access-Control-Allow-Origin", cors)
			h.Set("Access-Control-Expose-Headers", "Allow, Link, Location, WWW-Authenticate, X-Notices, X-Request-Id, X-Sess-Project, X-Sess-Session, X-Total-Count")
			if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
				h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE")
				h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, If-Match, Last-Event-ID, X-Request-Id, X-Sess-Project, X-Sess-Session")
				h.Set("Access-Control-Max-Age", "600")
				return c.NoContent(http.StatusNoContent)
			}
		}
		// As it was sent: another spelling of an open path is none.
		if !open[r.URL.EscapedPath()] {
			if err := s.access.checkToken(r); err != nil {
				return &statusError{status: http.StatusUnauthorized, err: plugin.AsError(err)}
			}
		}
		return next(c)
	}
}

// body reads the JSON body of a request, nothing where there is none. It is
// bounded in size, and so is the time that each part of it may take.
func (s *Server) body(c echo.Context) ([]byte, error) {
	r := c.Request()
	tooLarge := func() error {
		return &statusError{
			status: http.StatusRequestEntityTooLarge,
			err: plugin.Errorf(plugin.Usage, "the body has more than %d bytes", s.opts.BodyLimit).
				WithHint("send less, or raise gateway.bodyLimit in the configuration").WithDetail("limit", fmt.Sprint(s.opts.BodyLimit)),
		}
	}
	if r.ContentLength > s.opts.BodyLimit {
		return nil, tooLarge()
	}
	var data bytes.Buffer
	_, err := data.ReadFrom(&patient{
		Reader: http.MaxBytesReader(c.Response(), r.Body, s.opts.BodyLimit), conn: http.NewResponseController(c.Response()),
	})
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, tooLarge()
	}
	if err != nil {
		return nil, &statusError{
			status: http.StatusBadRequest,
			err:    plugin.Errorf(plugin.Usage, "the body did not arrive whole: %w", err).WithHint("send it again"),
		}
	}
	if len(bytes.TrimSpace(data.Bytes())) == 0 {
		return nil, nil
	}
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset := strings.ToLower(params["charset"])
	if err != nil || kind != echo.MIMEApplicationJSON || charset != "" && charset != "utf-8" || r.Header.Get("Content-Encoding") != "" {
		return nil, &statusError{
			status: http.StatusUnsupportedMediaType,
			err: plugin.Errorf(plugin.Usage, "the body is not said to be JSON: Content-Type %q", r.Header.Get("Content-Type")).
				WithHint("send JSON in UTF-8, uncompressed, with Content-Type: application/json"),
		}
	}
	return data.Bytes(), nil
}

// patient gives each part of a body a time of its own, and takes it back at the
// end: a call has no deadline.
type patient struct {
	io.Reader
	conn *http.ResponseController
}

func (p *patient) Read(b []byte) (int, error) {
	if err := p.conn.SetReadDeadline(time.Now().Add(bodyTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	n, err := p.Reader.Read(b)
	if err != nil {
		_ = p.conn.SetReadDeadline(time.Time{}) // what it says is said by the next read
	}
	return n, err
}

// mounts is what the commands offer, as of the last change.
type mounts struct {
	commands []Command
	table    *surfaces.HTTPTable
	tools    *surfaces.HTTPTools
}

// mounted returns what the commands offer now. It is laid out anew only when
// they have changed.
func (s *Server) mounted(ctx context.Context) *mounts {
	now := s.host.Commands(ctx)
	if old := s.mounts.Load(); old != nil && slices.EqualFunc(old.commands, now, sameCommand) {
		return old
	}
	m := &mounts{commands: now, tools: &surfaces.HTTPTools{Off: map[string]string{}}}
	list := make([]surfaces.HTTPCommand, len(now))
	for i := range now {
		c := &now[i]
		list[i] = surfaces.HTTPCommand{Spec: &c.Spec, Documented: c.Plugin != ""}
		if !c.HTTP {
			list[i].Off = settingOf(c, "httpRoutes")
		}
		if c.Tool {
			m.tools.Offered = append(m.tools.Offered, &c.Spec)
		} else {
			m.tools.Off[c.Spec.ToolName()] = settingOf(c, "exposeTool")
		}
	}
	own := slices.DeleteFunc(s.operations(m), func(op surfaces.HTTPOperation) bool { return !strings.Contains(op.Path, "{") })
	var problems []string
	m.table, problems = surfaces.NewHTTPTable(own, list)
	for _, r := range m.table.Routes() {
		if r.Own == nil && slices.ContainsFunc(s.fixed, func(ep endpoint) bool { return ep.path == r.Path }) {
			problems = append(problems, fmt.Sprintf("%s %s of %s: the path is the gateway's own", r.Method, r.Path, r.Command.Command))
		}
	}
	for _, p := range problems {
		s.log.WarnContext(ctx, "route left out", "problem", p)
	}
	s.mounts.Store(m)
	return m
}

// sameCommand reports whether two are the same declaration. A Spec's slices never
// change, so it is enough that they are the same ones.
func sameCommand(a, b Command) bool {
	return a.Plugin == b.Plugin && a.HTTP == b.HTTP && a.Tool == b.Tool && a.Spec.Command == b.Spec.Command &&
		same(a.Spec.Verbs, b.Spec.Verbs) && same(a.Spec.Routes, b.Spec.Routes)
}

func same[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// settingOf is the key of the configuration that switches a surface of a
// command. The host's own commands have none.
func settingOf(c *Command, key string) string {
	if c.Plugin == "" {
		return "the program itself"
	}
	return "plugins.entries." + c.Plugin + ".config." + key
}

// serveCommand answers a request for a verb.
func (s *Server) serveCommand(c echo.Context) error {
	r := c.Request()
	route, params, failure := s.mounted(r.Context()).table.Match(r.Method, r.URL.EscapedPath())
	if failure != nil {
		if err := s.absent(r); failure.Status == http.StatusNotFound && err != nil {
			return err
		}
		return &statusError{status: failure.Status, allow: failure.Allow, err: failure.Err}
	}
	if route.Own != nil {
		return s.serveOwn(c, route, params)
	}
	in := surfaces.HTTPInput{Params: params, Query: r.URL.RawQuery}
	if route.Verb.Input != "" && !isJSON(r) {
		in.Content = &patient{Reader: r.Body, conn: http.NewResponseController(c.Response())}
	} else {
		body, err := s.body(c)
		if err != nil {
			return err
		}
		in.Body = body
	}
	out := download{c: c}
	result, err := s.metrics.timed(plugin.CallerHTTP, route.Command.Command, route.Verb.Name, func() (plugin.Result, error) {
		lowered, err := route.Lower(in)
		if err != nil {
			return plugin.Result{}, err
		}
		call := callOf(r.Context(), plugin.CallerHTTP, lowered)
		if route.Verb.Output != "" {
			call.Output = &out
		}
		return s.dispatch(r.Context(), route.Command, call)
	})
	if out.begun {
		return out.end(err)
	}
	return s.send(c, route.Render(r.URL.RequestURI(), result, err))
}

// isJSON reports whether the body of a request is said to be JSON.
func isJSON(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == echo.MIMEApplicationJSON
}

// download sends the output of a call as the body of the answer. Its status and
// headers are sent with the first of it; an error that comes later breaks the answer
// off.
type download struct {
	c               echo.Context
	name, mediaType string
	begun           bool
}

// Begin says what is sent.
func (d *download) Begin(name, mediaType string) error {
	d.name, d.mediaType = name, mediaType
	return nil
}

func (d *download) Write(p []byte) (int, error) {
	if !d.begun {
		d.begun = true
		h := d.c.Response().Header()
		h.Set(echo.HeaderContentType, d.mediaType)
		h.Set(echo.HeaderContentDisposition, mime.FormatMediaType("attachment", map[string]string{"filename": d.name}))
		// What people once said is shown by a browser as text, whatever it is.
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox")
		d.c.Response().WriteHeader(http.StatusOK)
	}
	return d.c.Response().Write(p)
}

func (d *download) end(err error) error {
	if err != nil {
		panic(http.ErrAbortHandler) // so that the client does not take it for the whole
	}
	return nil
}

// serveOwn serves an endpoint of the server itself whose path has parameters.
func (s *Server) serveOwn(c echo.Context, route *surfaces.HTTPRoute, params map[string]string) error {
	var names, values []string
	for name, value := range params {
		names, values = append(names, name), append(values, value)
	}
	c.SetParamNames(names...)
	c.SetParamValues(values...)
	for _, ep := range s.fixed { // a test sees to it that each operation is one
		if ep.method == route.Method && ep.path == route.Path {
			return ep.serve(c)
		}
	}
	return plugin.Errorf(plugin.Internal, "nobody serves %s %s", route.Method, route.Path)
}

// absent says why the command that a path begins with is not there now, as the
// one of a plugin that is switched off, does not start, or objects to its
// configuration; nil where it is there, or where nobody has it.
func (s *Server) absent(r *http.Request) error {
	first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if slices.ContainsFunc(s.mounts.Load().commands, func(c Command) bool { return c.Spec.Command == first }) {
		return nil
	}
	return s.host.Absent(r.Context(), first)
}

// dispatch hands a call of a command to the host.
func (s *Server) dispatch(ctx context.Context, spec *plugin.Spec, call plugin.Call) (plugin.Result, error) {
	call.Argv = append([]string{spec.Command}, call.Argv...)
	result, err := s.host.Dispatch(ctx, call, nil)
	return result, CutShort(ctx, spec.Command, err)
}

func callOf(ctx context.Context, caller plugin.Caller, l surfaces.Lowered) plugin.Call {
	return plugin.Call{
		Argv: l.Argv, Agent: l.Agent, Project: l.Project, Session: l.Session, Caller: caller, Input: l.Input, RequestID: plugin.RequestID(ctx),
	}
}

func (s *Server) send(c echo.Context, a surfaces.HTTPAnswer) error {
	for key, value := range a.Header {
		c.Response().Header().Set(key, value)
	}
	c.Response().Header().Set("Content-Length", strconv.Itoa(len(a.Body)))
	return c.Blob(a.Status, echo.MIMEApplicationJSON, a.Body)
}

// serveTools lists the tools.
func (s *Server) serveTools(c echo.Context) error {
	return c.Blob(http.StatusOK, echo.MIMEApplicationJSON, s.mounted(c.Request().Context()).tools.List())
}

// serveTool calls a tool, as a model does that this program does not run.
func (s *Server) serveTool(c echo.Context) error {
	body, err := s.body(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	spec, lowered, err := s.mounted(ctx).tools.Lower(body)
	if err != nil {
		return s.send(c, surfaces.RenderHTTPTool(plugin.Result{}, err))
	}
	command := plugin.DispatcherFunc(func(ctx context.Context, call plugin.Call, _ plugin.ProgressFunc) (plugin.Result, error) {
		return s.dispatch(ctx, spec, call)
	})
	result, err := s.metrics.timed(plugin.CallerTool, spec.Command, lowered.Verb.Name, func() (plugin.Result, error) {
		return surfaces.ToolCall(ctx, command, lowered.Verb, callOf(ctx, plugin.CallerTool, lowered))
	})
	return s.send(c, surfaces.RenderHTTPTool(result, err))
}

// serveRoot tells a program where it is; see pageEndpoints for browsers.
func (s *Server) serveRoot(c echo.Context) error {
	return sendJSON(c, http.StatusOK, struct {
		Name    string `json:"name"`
		Version string `json:"version"`
		OpenAPI string `json:"openapi"`
		Health  string `json:"health"`
	}{"sess", s.opts.Version, "/openapi.json", "/healthz"})
}

func (s *Server) serveHealth(c echo.Context) error {
	return sendJSON(c, http.StatusOK, struct {
		OK     bool   `json:"ok"`
		Status string `json:"status"`
	}{true, "live"})
}

func (s *Server) serveReady(c echo.Context) error {
	type answer struct {
		OK      bool     `json:"ok"`
		Status  string   `json:"status"`
		Failing []string `json:"failing,omitempty"`
	}
	if err := s.host.Ready(c.Request().Context()); err != nil {
		return sendJSON(c, http.StatusServiceUnavailable, answer{false, "not ready", strings.Split(plugin.AsError(err).Message, "\n")})
	}
	return sendJSON(c, http.StatusOK, answer{true, "ready", nil})
}

func sendJSON(c echo.Context, status int, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return c.Blob(status, echo.MIMEApplicationJSON, append(data, '\n'))
}
