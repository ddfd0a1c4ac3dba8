package server

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sess/plugin"
)

// mcpPath is where the Model Context Protocol is spoken, in its streamable HTTP
// transport.
const mcpPath = "/mcp"

const (
	// mcpSession is the header that names a session.
	mcpSession = "Mcp-Session-Id"
	// maxMCPSessions is how many sessions there may be: for a new one the one that
	// was idle longest ends. mcpIdle is how long one may be idle in any case. One
	// with a call or a stream that stands is not.
	maxMCPSessions = 256
	mcpIdle        = 24 * time.Hour
)

// methodInitialize begins a session.
const methodInitialize = "initialize"

// mcpServer is the protocol over HTTP. The library keeps the sessions; which of
// them are in use is known here.
type mcpServer struct {
	speaker *speaker
	handler http.Handler
	now     func() time.Time
	most    int

	ending sync.WaitGroup // of sessions
	mu     sync.Mutex     // guards what follows
	uses   map[string]*mcpUse
}

// mcpUse says how a session is used.
type mcpUse struct {
	running int // requests
	last    time.Time
}

func newMCPServer(s *speaker) *mcpServer {
	m := &mcpServer{
		speaker: s, now: time.Now, most: maxMCPSessions, uses: map[string]*mcpUse{},
		handler: mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s.sdk }, &mcp.StreamableHTTPOptions{
			MaxRequestBodyBytes: -1, DisableLocalhostProtection: true, // the server checks both for all routes
		}),
	}
	s.sdk.AddReceivingMiddleware(m.note)
	return m
}

// note notes a new session, before its client hears of it.
func (m *mcpServer) note(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if method == methodInitialize {
			m.mu.Lock()
			m.uses[req.GetSession().ID()] = &mcpUse{last: m.now()}
			m.mu.Unlock()
		}
		return next(ctx, method, req)
	}
}

// begin notes that a request uses a session. It is false where there is no such
// session, as after a restart of the gateway.
func (m *mcpServer) begin(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	use := m.uses[id]
	if use == nil || m.session(id) == nil {
		delete(m.uses, id)
		return false
	}
	use.running++
	return true
}

// end is what follows begin.
func (m *mcpServer) end(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	use := m.uses[id]
	if use == nil {
		return
	}
	use.running--
	if use.last = m.now(); use.running == 0 && m.session(id) == nil { // its client has closed it
		delete(m.uses, id)
	}
}

// makeRoom ends what is idle for too long, and where there are too many sessions
// the one that is idle longest.
func (m *mcpServer) makeRoom() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	if len(m.uses) < m.most {
		return nil
	}
	oldest := ""
	for id, use := range m.uses {
		if use.running == 0 && (oldest == "" || use.last.Before(m.uses[oldest].last)) {
			oldest = id
		}
	}
	if oldest == "" {
		return plugin.Errorf(plugin.Busy, "there are %d MCP sessions, the most that there may be", m.most).WithHint("close one, then try again")
	}
	m.drop(oldest)
	return nil
}

// expire ends the sessions that are idle for too long. The caller holds mu.
func (m *mcpServer) expire() {
	for id, use := range m.uses {
		if use.running == 0 && m.now().Sub(use.last) > mcpIdle {
			m.drop(id)
		}
	}
}

// drop ends a session in which nothing runs. The caller holds mu.
func (m *mcpServer) drop(id string) {
	delete(m.uses, id)
	if session := m.session(id); session != nil {
		m.ending.Go(func() { _ = session.Close() }) // its client learns of it by the next request
	}
}

// session is the session with an id, nil if there is none.
func (m *mcpServer) session(id string) *mcp.ServerSession {
	for session := range m.speaker.sdk.Sessions() {
		if session.ID() == id {
			return session
		}
	}
	return nil
}

// close ends all sessions, and waits for that.
func (m *mcpServer) close() {
	m.speaker.close()
	m.ending.Wait()
}

func (s *Server) mcpEndpoints() []endpoint {
	return []endpoint{
		{http.MethodPost, mcpPath, false, s.serveMCP},
		{http.MethodGet, mcpPath, false, s.serveMCP},
		{http.MethodDelete, mcpPath, false, s.serveMCP},
	}
}

// serveMCP answers a request of an MCP client: messages by POST, the stream of
// what the server tells by GET, and the end of a session by DELETE.
func (s *Server) serveMCP(c echo.Context) error {
	r, id := c.Request(), c.Request().Header.Get(mcpSession)
	if r.Method != http.MethodPost && id == "" {
		return noMCPSession(http.StatusBadRequest, "the request names no MCP session")
	}
	if r.Method == http.MethodPost {
		body, err := s.body(c)
		if err != nil {
			return err
		}
		if methods := methodsIn(body); slices.Contains(methods, methodInitialize) {
			// Who begins anew may know a session of a gateway that runs no more.
			id = ""
			r.Header.Del(mcpSession)
			if err := s.mcp.makeRoom(); err != nil {
				return err
			}
			s.mcp.speaker.look(r.Context()) // before the client is there, which would be told that they have changed
		} else if id == "" && !slices.Contains(methods, "server/discover") {
			return noMCPSession(http.StatusBadRequest, "the request names no MCP session")
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	if id != "" {
		if !s.mcp.begin(id) {
			return noMCPSession(http.StatusNotFound, "there is no such MCP session; it may have ended with the gateway that it was of, or was idle for too long")
		}
		defer s.mcp.end(id)
	}
	if r.Method == http.MethodGet {
		ctx, cancel := whileServing(r.Context()) // it stands until somebody ends it
		defer cancel()
		r = r.WithContext(ctx)
	}
	w := &mcpWriter{ResponseWriter: c.Response()}
	s.mcp.handler.ServeHTTP(w, r)
	return w.refusal()
}

// mcpWriter keeps back what the library refuses in plain text: errors have one shape
// here.
type mcpWriter struct {
	http.ResponseWriter
	status int // of a refusal; 0 is none
	text   strings.Builder
}

// Unwrap is for [http.ResponseController].
func (w *mcpWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *mcpWriter) WriteHeader(status int) {
	if h := w.Header(); status >= http.StatusBadRequest && strings.HasPrefix(h.Get(echo.HeaderContentType), echo.MIMETextPlain) {
		h.Del(echo.HeaderContentType)
		w.status = status
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *mcpWriter) Write(p []byte) (int, error) {
	if w.status != 0 {
		return w.text.Write(p)
	}
	return w.ResponseWriter.Write(p)
}

// refusal is the error of a request that was refused.
func (w *mcpWriter) refusal() error {
	if w.status == 0 {
		return nil
	}
	code := plugin.Usage
	if w.status >= http.StatusInternalServerError {
		code = plugin.Internal
	}
	return &statusError{status: w.status, err: plugin.Errorf(code, "%s", strings.TrimSpace(w.text.String()))}
}

func noMCPSession(status int, why string) error {
	return &statusError{status: status, err: plugin.Errorf(plugin.NotFound, "%s", why).
		WithHint("send initialize, without the header %s, and then the %[1]s of its answer", mcpSession)}
}

// methodsIn lists the methods of a message, or of a batch of them.
func methodsIn(body []byte) []string {
	type message struct {
		Method string `json:"method"`
	}
	var one message
	if json.Unmarshal(body, &one) == nil {
		return []string{one.Method}
	}
	var batch []message
	_ = json.Unmarshal(body, &batch) // what is neither has no method
	methods := make([]string, len(batch))
	for i, m := range batch {
		methods[i] = m.Method
	}
	return methods
}

// isOAuth reports whether a path is one where MCP clients look for a server that
// gives out tokens. There is none, and they have to be told so before they show
// one: to them another refusal is a server that has failed.
func isOAuth(path string) bool {
	return strings.HasPrefix(path, "/.well-known/") || path == mcpPath+"/.well-known/openid-configuration" || path == "/register"
}

func noOAuth(path string) error {
	return &statusError{status: http.StatusNotFound, err: plugin.Errorf(plugin.NotFound, "%s is not served: nobody gives out tokens here", path).
		WithHint("send the header Authorization: Bearer with what is printed by: sess gateway token --show")}
}

// untilCut returns the context of a call that also ends when the server cuts calls
// short: that of a session's requests outlives them.
func untilCut(ctx context.Context) (context.Context, context.CancelFunc) {
	serve, ok := ctx.Value(closingKey{}).(*serving)
	if !ok {
		return context.WithCancel(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(serve.calls, func() { cancel(context.Cause(serve.calls)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
