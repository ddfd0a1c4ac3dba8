package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"sess/plugin"
	"sess/surfaces"
)

// The gateway methods about live conversations, and where they are over HTTP.
const (
	methodCreate     = "sessions.create"
	methodGet        = "sessions.get"
	methodMessages   = "sessions.messages"
	methodSend       = "sessions.send"
	methodCancelTurn = "sessions.cancel"
	methodApprove    = "sessions.approve"
	methodModels     = "models.list"

	pathMessages = pathSession + "/messages"
	pathEvents   = pathSession + "/events"
	pathCancel   = pathSession + "/cancel"
	pathApprove  = pathSession + "/approve"
)

const (
	mimeEvents = "text/event-stream"
	// pingTime is how often a stream without events says that it lives, so that
	// neither side, nor who is between them, takes it for dead.
	pingTime = 15 * time.Second
	// streamTimeout is how long a client may take to read what it was sent.
	streamTimeout = 30 * time.Second
)

func (s *Server) chatEndpoints() []endpoint {
	return []endpoint{
		{http.MethodPost, pathSessions, false, s.serveCreate},
		{http.MethodGet, pathSession, false, s.serveGet},
		{http.MethodGet, pathMessages, false, s.serveMessages},
		{http.MethodPost, pathMessages, false, s.serveSend},
		{http.MethodGet, pathEvents, false, s.serveEvents},
		{http.MethodPost, pathCancel, false, s.serveAbout(methodCancelTurn)},
		{http.MethodPost, pathApprove, false, s.serveAbout(methodApprove)},
	}
}

func (s *Server) serveCreate(c echo.Context) error {
	if _, err := queryOf(c.Request()); err != nil {
		return err
	}
	body, err := s.body(c)
	if err != nil {
		return err
	}
	result, err := s.rpc.host.Call(c.Request().Context(), plugin.CallerHTTP, methodCreate, body, nil)
	if err != nil {
		return err
	}
	var made struct{ ID, ProjectID string }
	if err := json.Unmarshal(result, &made); err != nil {
		return err
	}
	c.Response().Header().Set("Location", "/sessions/"+url.PathEscape(made.ID)+"?project="+url.QueryEscape(made.ProjectID))
	return c.Blob(http.StatusCreated, echo.MIMEApplicationJSON, append(result, '\n'))
}

func (s *Server) serveGet(c echo.Context) error {
	params, err := aboutSession(c, nil, "project")
	if err != nil {
		return err
	}
	return s.serveMethod(c, http.StatusOK, methodGet, params)
}

// serveAbout serves a method about the session of the path; the rest is in the
// body.
func (s *Server) serveAbout(method string) echo.HandlerFunc {
	return func(c echo.Context) error {
		body, err := s.body(c)
		if err != nil {
			return err
		}
		params, err := aboutSession(c, body, "project")
		if err != nil {
			return err
		}
		return s.serveMethod(c, http.StatusOK, method, params)
	}
}

// aboutSession makes the params of a method of the fields of a body, which may be
// nil, the session of the path, and those fields of the query that are known.
func aboutSession(c echo.Context, body []byte, query ...string) (json.RawMessage, error) {
	fields, err := surfaces.ParseObject(body)
	if err != nil {
		return nil, err
	}
	given, err := queryOf(c.Request(), query...)
	if err != nil {
		return nil, err
	}
	all := map[string]any{}
	maps.Copy(all, fields)
	for name, text := range given {
		all[name] = text
		if name != "project" {
			n, err := strconv.Atoi(text)
			if err != nil {
				return nil, plugin.Errorf(plugin.Usage, "%s: %q is not a whole number", name, text).WithHint("leave it out, or give one").WithDetail("field", name)
			}
			all[name] = n
		}
	}
	if _, twice := fields["session"]; twice {
		return nil, plugin.Errorf(plugin.Usage, "session stands in the path already").WithHint("leave it out of the body").WithDetail("field", "session")
	}
	all["session"] = c.Param("id")
	return json.Marshal(all)
}

// serveMessages answers with a page, and where the ones beside it are.
func (s *Server) serveMessages(c echo.Context) error {
	params, err := aboutSession(c, nil, "project", "limit", "before", "after")
	if err != nil {
		return err
	}
	result, err := s.rpc.host.Call(c.Request().Context(), plugin.CallerHTTP, methodMessages, params, nil)
	if err != nil {
		return err
	}
	var page struct{ First, End, Total int }
	if err := json.Unmarshal(result, &page); err != nil {
		return err
	}
	h := c.Response().Header()
	h.Set("X-Total-Count", strconv.Itoa(page.Total))
	link := func(rel, key string, n int) {
		u := url.URL{Path: c.Request().URL.Path, RawPath: c.Request().URL.RawPath}
		q := c.Request().URL.Query()
		q.Del("before")
		q.Del("after")
		q.Set(key, strconv.Itoa(n))
		u.RawQuery = q.Encode()
		h.Add("Link", fmt.Sprintf("<%s>; rel=%q", u.String(), rel))
	}
	if page.First > 0 {
		link("prev", "before", page.First)
	}
	if page.End < page.Total {
		link("next", "after", page.End-1)
	}
	return c.Blob(http.StatusOK, echo.MIMEApplicationJSON, append(result, '\n'))
}

// sendParams are those of sessions.send, as its client knows them.
type sendParams struct {
	Session  string `json:"session"`
	Project  string `json:"project"`
	Content  string `json:"content"`
	Model    string `json:"model"`
	Revision *int64 `json:"expectedRevision"`
}

// serveSend sends a message, and answers with what comes of it: as it comes, where
// the client takes a stream of events, and otherwise at the end. The turn goes on
// where the client leaves.
func (s *Server) serveSend(c echo.Context) (err error) {
	body, err := s.body(c)
	if err != nil {
		return err
	}
	params, err := aboutSession(c, body, "project")
	if err != nil {
		return err
	}
	var p sendParams
	if err := surfaces.Params(params, &p); err != nil {
		return err
	}
	if strings.TrimSpace(p.Content) == "" {
		return plugin.Errorf(plugin.Usage, "content is missing").WithHint("it is the text of the message").WithDetail("missing", "content")
	}
	done := s.metrics.begin(plugin.CallerHTTP)
	err = plugin.Errorf(plugin.Internal, "panic") // unless it returns
	defer func() { done("sessions", "send", err) }()
	ctx := c.Request().Context()
	x, err := s.host.Converse(ctx, ChatLine{
		Session: plugin.SessionRef{Project: p.Project, ID: p.Session}, Text: p.Content, Model: p.Model, Revision: p.Revision,
	})
	if err != nil {
		return err
	}
	defer x.Close()
	if !takesEvents(c.Request()) {
		answer, err := x.Result(ctx)
		if err != nil {
			return CutShort(ctx, methodSend, err)
		}
		return sendJSON(c, http.StatusOK, answer)
	}
	return s.streamExchange(ctx, c, x)
}

// takesEvents reports whether a client asks for a stream of server-sent events.
func takesEvents(r *http.Request) bool {
	return strings.Contains(strings.ToLower(strings.Join(r.Header.Values("Accept"), ",")), mimeEvents)
}

// streamExchange sends what comes of a line as it comes. What is refused before
// anything comes has the status of its error.
func (s *Server) streamExchange(ctx context.Context, c echo.Context, x Exchange) error {
	out := newEventWriter(c)
	told := false
	for {
		e, err := out.next(ctx, x)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil // its client has gone; the turn goes on
		}
		told = told || e.Kind == "error"
		if err := out.write(e); err != nil {
			return nil
		}
	}
	_, err := x.Result(ctx)
	switch {
	case err == nil && !out.begun: // nothing to say, as of an empty line
		return c.NoContent(http.StatusNoContent)
	case err == nil || told:
	case !out.begun:
		return CutShort(ctx, methodSend, err)
	default:
		e := plugin.AsError(err)
		if e.Code == plugin.Internal && e.Details["incident"] == "" {
			e = s.incident(ctx, e, nil)
		}
		if out.write(ChatEvent{Kind: "error", Data: surfaces.HTTPErrorBody(e)}) != nil {
			return nil
		}
	}
	return err
}

// serveEvents follows a session: what runs in it now, and what comes, until the
// client leaves or the server closes.
func (s *Server) serveEvents(c echo.Context) error {
	r := c.Request()
	query, err := queryOf(r, "project", "after")
	if err != nil {
		return err
	}
	after := query["after"]
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		after = id
	}
	ctx, cancel := whileServing(r.Context())
	defer cancel()
	events, err := s.host.Watch(ctx, plugin.SessionRef{Project: query["project"], ID: c.Param("id")}, after)
	if err != nil {
		return err
	}
	defer events.Close()
	out := newEventWriter(c)
	if err := out.begin(); err != nil {
		return nil
	}
	for {
		e, err := out.next(ctx, events)
		if err != nil || out.write(e) != nil {
			return nil // the stream, its client or the server has ended
		}
	}
}

// eventWriter writes server-sent events, as the HTML standard has them.
type eventWriter struct {
	c     echo.Context
	conn  *http.ResponseController
	begun bool
}

func newEventWriter(c echo.Context) *eventWriter {
	return &eventWriter{c: c, conn: http.NewResponseController(c.Response())}
}

// begin sends the headers, so that the client knows that it is heard.
func (w *eventWriter) begin() error {
	if w.begun {
		return nil
	}
	w.begun = true
	h := w.c.Response().Header()
	h.Set(echo.HeaderContentType, mimeEvents)
	h.Set("X-Accel-Buffering", "no") // a proxy is to pass each event on
	w.c.Response().WriteHeader(http.StatusOK)
	return w.flush()
}

// next waits for an event. Meanwhile it says now and then that the stream lives;
// where that cannot be said the error is that of writing.
func (w *eventWriter) next(ctx context.Context, from ChatStream) (ChatEvent, error) {
	for {
		brief, cancel := context.WithTimeout(ctx, pingTime)
		e, err := from.Next(brief)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return e, err
		}
		if err := w.raw(": \n\n"); err != nil {
			return e, err
		}
	}
}

func (w *eventWriter) write(e ChatEvent) error {
	var b strings.Builder
	if e.ID != "" {
		fmt.Fprintf(&b, "id: %s\n", e.ID)
	}
	fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", e.Kind, e.Data)
	return w.raw(b.String())
}

func (w *eventWriter) raw(text string) error {
	if err := w.begin(); err != nil {
		return err
	}
	if err := w.conn.SetWriteDeadline(time.Now().Add(streamTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := io.WriteString(w.c.Response(), text); err != nil {
		return err
	}
	return w.flush()
}

func (w *eventWriter) flush() error {
	err := w.conn.Flush()
	// What is written next, as the answer to another request, has its own time.
	if clear := w.conn.SetWriteDeadline(time.Time{}); clear != nil && !errors.Is(clear, http.ErrNotSupported) {
		err = errors.Join(err, clear)
	}
	return err
}

// The JSON Schemas of what is told of live conversations.
const (
	infoSchema = `{"type":"object","required":["id","projectId","title","status","running","messages","revision","selected","createdAt","updatedAt"],"properties":{` +
		`"id":{"type":"string"},"projectId":{"type":"string"},"title":{"type":"string"},"cwd":{"type":"string"},"model":{"type":"string"},` +
		`"status":{"type":"string","enum":["idle","running","waiting-permission","error"]},"error":{"type":"string"},"running":{"type":"boolean"},` +
		`"approval":{"type":"object","required":["callId","name","text"],"properties":{"callId":{"type":"string"},"name":{"type":"string"},"arguments":{},"text":{"type":"string"}}},` +
		`"messages":{"type":"integer"},"bytes":{"type":"integer"},"revision":{"type":"integer"},"selected":{"anyOf":[{"type":"string"},{"type":"null"}]},"activeRun":{},"createdAt":{"type":"number"},"updatedAt":{"type":"number"}}}`
	answerSchema = `{"type":"object","required":["sessionId","projectId","revision"],"properties":{"sessionId":{"type":"string"},"projectId":{"type":"string"},"turn":{"type":"string"},` +
		`"status":{"type":"string","enum":["complete","cancelled","error"]},"model":{"type":"string"},"message":{"type":"object"},"activities":{"type":"array","items":{"type":"object"}},` +
		`"usage":{"type":"object"},"answer":{"type":"object","required":["text"],"properties":{"text":{"type":"string"},"data":{}}},` +
		`"moved":{"type":"object","required":["sessionId","projectId"],"properties":{"sessionId":{"type":"string"},"projectId":{"type":"string"}}},` +
		`"revision":{"type":"integer"},"notices":{"type":"array","items":{"type":"string"}}}}`
)

const eventsHelp = "Events have the kinds of the event log: turn_start, text_delta, thought_delta, tool_call_started, tool_call_finished, approval_request, usage, error, run_cancelled, run_finished, turn_end; " +
	"beside them answer (of a slash command), notice, session_replaced and session_changed (read the messages anew), session_deleted, session_moved, and events_dropped where the reader was too slow."

// chatOperations describes the endpoints of live conversations.
func chatOperations() []surfaces.HTTPOperation {
	project := surfaces.HTTPParameter{Name: "project", In: "query", Help: "the project that the session is of; by default it is looked for in all"}
	number := func(name, help string) surfaces.HTTPParameter {
		return surfaces.HTTPParameter{Name: name, In: "query", Help: help, Type: "integer"}
	}
	return []surfaces.HTTPOperation{
		{
			Method: http.MethodPost, Path: pathSessions, ID: methodCreate, Summary: "Make a session",
			Description: "All fields may be left out. It becomes the active session unless activate is false. The messages are what was said before, elsewhere.",
			Request: json.RawMessage(`{"type":"object","additionalProperties":false,"properties":{"id":{"type":"string"},"project":{"type":"string"},"title":{"type":"string"},"model":{"type":"string"},"cwd":{"type":"string"},` +
				`"messages":{"type":"array","items":{"type":"object","required":["role","content"],"properties":{"role":{"type":"string","enum":["user","agent","assistant"]},"content":{"type":"string"}}}},"activate":{"type":"boolean"}}}`),
			Status: http.StatusCreated, Response: json.RawMessage(infoSchema),
		},
		{
			Method: http.MethodGet, Path: pathSession, ID: methodGet, Summary: "Tell about a session, without its messages",
			Parameters: []surfaces.HTTPParameter{project}, Response: json.RawMessage(infoSchema),
		},
		{
			Method: http.MethodGet, Path: pathMessages, ID: methodMessages, Summary: "Read messages of a session, by default the last ones",
			Description: "While a snapshot is selected these are its messages, readonly is true, and snapshot is its metadata. Messages are counted from 0. X-Total-Count says how many there are, Link where the pages beside this one are.",
			Parameters: []surfaces.HTTPParameter{
				project, number("limit", "how many at most: 100 where nothing is said, 1000 at the most"),
				number("before", "only messages before the one with this number"), number("after", "only messages after the one with this number, from there on"),
			},
			Response: json.RawMessage(`{"type":"object","required":["messages","first","end","total","revision","readonly"],"properties":{"messages":{"type":"array","items":{"type":"object"}},"first":{"type":"integer"},"end":{"type":"integer"},"total":{"type":"integer"},"revision":{"type":"integer"},"readonly":{"type":"boolean"},"snapshot":{"type":"object"}}}`),
		},
		{
			Method: http.MethodPost, Path: pathMessages, ID: methodSend, Summary: "Send a message or a slash command",
			Description: "With Accept: text/event-stream what comes of it is sent as it comes, and otherwise as one answer. The turn goes on where the client leaves. The status is 409 while a turn runs (busy), while a snapshot is selected (readonly), and where the session is no more at expectedRevision (conflict). " + eventsHelp,
			Parameters:  []surfaces.HTTPParameter{project},
			Request:     json.RawMessage(`{"type":"object","required":["content"],"properties":{"content":{"type":"string","minLength":1},"model":{"type":"string"},"expectedRevision":{"type":"integer"},"project":{"type":"string"}}}`),
			Response:    json.RawMessage(answerSchema),
		},
		{
			Method: http.MethodGet, Path: pathEvents, ID: "sessions.events", Summary: "Follow a session", Type: mimeEvents,
			Description: "It begins with what runs now, or after the event that after or the header Last-Event-ID names. " + eventsHelp,
			Parameters: []surfaces.HTTPParameter{
				project, {Name: "after", In: "query", Help: "the id of an event"}, {Name: "Last-Event-ID", In: "header", Help: "the same, as browsers send it"},
			},
			Response: json.RawMessage(`{"type":"string"}`),
		},
		{
			Method: http.MethodPost, Path: pathCancel, ID: methodCancelTurn, Summary: "End the turn that runs; what came of it is kept",
			Parameters: []surfaces.HTTPParameter{project}, Request: json.RawMessage(`{"type":"object","properties":{"project":{"type":"string"}}}`),
			Response: json.RawMessage(`{"type":"object","required":["cancelled","revision"],"properties":{"cancelled":{"type":"boolean"},"revision":{"type":"integer"}}}`),
		},
		{
			Method: http.MethodPost, Path: pathApprove, ID: methodApprove, Summary: "Allow or refuse the tool call that waits for a person",
			Parameters: []surfaces.HTTPParameter{project},
			Request:    json.RawMessage(`{"type":"object","required":["callId","allow"],"properties":{"callId":{"type":"string"},"allow":{"type":"boolean"},"project":{"type":"string"}}}`),
			Response:   json.RawMessage(`{"type":"object","required":["callId","allow"],"properties":{"callId":{"type":"string"},"allow":{"type":"boolean"}}}`),
		},
	}
}
