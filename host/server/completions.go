package server

import (
	"cmp"
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"sess/plugin"
	"sess/surfaces"
)

// What programs expect that are made for chat completions as OpenAI offers them
// (API reference of platform.openai.com, "Chat Completions", November 2026): enough
// of it that existing chat clients can hold their conversations here.
//
// A request says everything that was said before. Here that is a session's
// business, so only the last message of a request is new. Which session it belongs
// to says the header X-Sess-Session; without it, what was said before does: it is
// the session in which exactly that was answered last, or else a new one that
// begins with it. Each answer names its session in the same header.
const (
	completionsRoot = "/v1/"
	completionsPath = completionsRoot + "chat/completions"
	modelsPath      = completionsRoot + "models"

	sessionHeader = "X-Sess-Session"
	projectHeader = "X-Sess-Project"
)

// ownModel stands for the model that a session talks with, or the default one.
const ownModel = "sess"

// maxThreads is how many conversations are known by what was said in them.
const maxThreads = 1024

// threads finds the session of a conversation by what was said in it until now. It
// forgets the one that was not used for longest; such a conversation goes on in a
// new session. Safe for concurrent use.
type threads struct {
	mu     sync.Mutex // guards what follows
	bySaid map[digest]*list.Element
	byRef  map[plugin.SessionRef]*list.Element
	recent list.List // of thread, the latest first
}

type digest = [sha256.Size]byte

// thread is a session, and what was said in it until now.
type thread struct {
	said digest
	ref  plugin.SessionRef
}

// find returns the session in which that is all that was said.
func (t *threads) find(said digest) (plugin.SessionRef, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.bySaid[said]
	if e == nil {
		return plugin.SessionRef{}, false
	}
	t.recent.MoveToFront(e)
	return e.Value.(thread).ref, true
}

// keep notes what was said in a session until now.
func (t *threads) keep(said digest, ref plugin.SessionRef) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bySaid == nil {
		t.bySaid, t.byRef = map[digest]*list.Element{}, map[plugin.SessionRef]*list.Element{}
	}
	t.forget(t.bySaid[said])
	t.forget(t.byRef[ref])
	e := t.recent.PushFront(thread{said, ref})
	t.bySaid[said], t.byRef[ref] = e, e
	if t.recent.Len() > maxThreads {
		t.forget(t.recent.Back())
	}
}

// forget removes an element, which may be nil. The caller holds mu.
func (t *threads) forget(e *list.Element) {
	if e == nil {
		return
	}
	old := t.recent.Remove(e).(thread)
	delete(t.bySaid, old.said)
	delete(t.byRef, old.ref)
}

// saidIn is the digest of a conversation: of its project, and of who said what.
func saidIn(project string, messages []completionMessage) digest {
	h := sha256.New()
	put := func(s string) {
		_ = binary.Write(h, binary.BigEndian, int64(len(s))) // a hash takes all
		_, _ = io.WriteString(h, s)
	}
	put(project)
	for _, m := range messages {
		put(m.Role)
		put(strings.TrimSpace(m.text))
	}
	return digest(h.Sum(nil))
}

// completionMessage is a message of a request.
type completionMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`

	text string
}

// read takes the text out of a message: it is a string, or a list of parts.
func (m *completionMessage) read() error {
	if len(m.Content) == 0 || string(m.Content) == "null" || json.Unmarshal(m.Content, &m.text) == nil {
		return nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(m.Content, &parts); err != nil {
		return plugin.Errorf(plugin.Usage, "the content of a message of %s is neither a text nor a list of parts", cmp.Or(m.Role, "nobody")).
			WithHint("send a text")
	}
	var texts []string
	for _, p := range parts {
		if p.Type != "text" {
			return plugin.Errorf(plugin.Usage, "a message has a part of the type %q", p.Type).WithHint("send text only")
		}
		texts = append(texts, p.Text)
	}
	m.text = strings.Join(texts, "\n")
	return nil
}

// completion is a request. What else it may have is not looked at.
type completion struct {
	Model         string              `json:"model"`
	Messages      []completionMessage `json:"messages"`
	Stream        bool                `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	N          *int            `json:"n"`
	ToolChoice json.RawMessage `json:"tool_choice"`

	system string
	before []completionMessage // what was said before, by user and assistant
	last   string              // the message to answer
}

// parseCompletion reads a request.
func parseCompletion(body []byte) (*completion, error) {
	var q completion
	if len(body) == 0 {
		return nil, plugin.Errorf(plugin.Usage, "the request has no body").WithHint("send messages and a model")
	}
	if err := json.Unmarshal(body, &q); err != nil {
		return nil, surfaces.BadJSON(err).WithHint("send one JSON object, with messages and a model")
	}
	var choice string
	switch {
	case q.N != nil && *q.N != 1:
		return nil, plugin.Errorf(plugin.Usage, "n is %d", *q.N).WithHint("ask for one answer at a time")
	case len(q.ToolChoice) > 0 && string(q.ToolChoice) != "null" &&
		(json.Unmarshal(q.ToolChoice, &choice) != nil || choice == "required"):
		return nil, plugin.Errorf(plugin.Usage, "tool_choice asks for a tool of the client's").
			WithHint("leave it out: the tools that are called are those of the gateway")
	}
	var system []string
	for i := range q.Messages {
		m := &q.Messages[i]
		if err := m.read(); err != nil {
			return nil, err
		}
		switch m.Role {
		case "system", "developer":
			system = append(system, m.text)
		case "user", "assistant":
			if m.text != "" || m.Role == "user" {
				q.before = append(q.before, *m)
			}
		case "tool", "function": // of tools that are called elsewhere
		default:
			return nil, plugin.Errorf(plugin.Usage, "messages[%d] has the role %q", i, m.Role).WithHint("use system, user or assistant")
		}
	}
	n := len(q.before)
	if n == 0 || q.before[n-1].Role != "user" || strings.TrimSpace(q.before[n-1].text) == "" {
		return nil, plugin.Errorf(plugin.Usage, "the last message is not one of the user").WithHint("end messages with what is to be answered")
	}
	q.last, q.before = q.before[n-1].text, q.before[:n-1]
	q.system = strings.Join(system, "\n\n")
	if q.Model == ownModel {
		q.Model = ""
	}
	return &q, nil
}

// sessionOf finds the session that a request goes on with, or makes it.
func (s *Server) sessionOf(ctx context.Context, r *http.Request, q *completion) (plugin.SessionRef, error) {
	ref := plugin.SessionRef{Project: r.Header.Get(projectHeader), ID: r.Header.Get(sessionHeader)}
	if ref.ID != "" {
		return ref, nil
	}
	if len(q.before) > 0 {
		if found, ok := s.threads.find(saidIn(ref.Project, q.before)); ok {
			return found, nil
		}
	}
	type said struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	fields := struct {
		Project  string `json:"project,omitempty"`
		Model    string `json:"model,omitempty"` // refused before there is a session
		Messages []said `json:"messages"`
		Activate bool   `json:"activate"`
	}{Project: ref.Project, Model: q.Model, Messages: []said{}}
	for _, m := range q.before {
		fields.Messages = append(fields.Messages, said{m.Role, m.text})
	}
	params, err := json.Marshal(fields)
	if err != nil {
		return ref, err
	}
	result, err := s.rpc.host.Call(ctx, plugin.CallerHTTP, methodCreate, params, nil)
	if err != nil {
		return ref, err
	}
	var made struct{ ID, ProjectID string }
	err = json.Unmarshal(result, &made)
	return plugin.SessionRef{Project: made.ProjectID, ID: made.ID}, err
}

// completionUsage counts tokens.
type completionUsage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

func usageOf(answer *ChatAnswer) *completionUsage {
	var u struct{ InputTokens, OutputTokens int }
	if len(answer.Usage) > 0 && json.Unmarshal(answer.Usage, &u) != nil {
		return &completionUsage{}
	}
	return &completionUsage{u.InputTokens, u.OutputTokens, u.InputTokens + u.OutputTokens}
}

type completionChoice struct {
	Index        int              `json:"index"`
	Message      *completionDelta `json:"message,omitempty"`
	Delta        *completionDelta `json:"delta,omitempty"`
	FinishReason *string          `json:"finish_reason"`
	Logprobs     *struct{}        `json:"logprobs"`
}

type completionDelta struct {
	Role      string  `json:"role,omitempty"`
	Content   *string `json:"content,omitempty"`
	Reasoning string  `json:"reasoning_content,omitempty"`
	Refusal   *string `json:"refusal,omitempty"`
}

type completionObject struct {
	ID      string             `json:"id"`
	Object  string             `json:"object"`
	Created int64              `json:"created"`
	Model   string             `json:"model"`
	Choices []completionChoice `json:"choices"`
	Usage   *completionUsage   `json:"usage,omitempty"`
}

// serveCompletion answers a request for a completion.
func (s *Server) serveCompletion(c echo.Context) (err error) {
	body, err := s.body(c)
	if err != nil {
		return err
	}
	q, err := parseCompletion(body)
	if err != nil {
		return err
	}
	done := s.metrics.begin(plugin.CallerHTTP)
	err = plugin.Errorf(plugin.Internal, "panic") // unless it returns
	defer func() { done("chat", "completions", err) }()
	r := c.Request()
	ctx := r.Context()
	ref, err := s.sessionOf(ctx, r, q)
	if err != nil {
		return err
	}
	x, err := s.host.Converse(ctx, ChatLine{Session: ref, Text: q.last, Model: q.Model, System: q.system, Alone: true})
	if err != nil {
		return err
	}
	defer x.Close()
	a := &completionAnswer{
		Server: s, c: c, q: q, x: x, project: r.Header.Get(projectHeader), ref: x.Session(),
		object: completionObject{ID: "chatcmpl-" + plugin.RequestID(ctx), Created: time.Now().Unix(), Model: cmp.Or(q.Model, ownModel)},
	}
	if q.Stream {
		return a.stream(ctx)
	}
	return a.whole(ctx)
}

// completionAnswer is the answer to one request.
type completionAnswer struct {
	*Server
	c       echo.Context
	q       *completion
	x       Exchange
	project string // as the request has it
	ref     plugin.SessionRef
	object  completionObject
}

// named puts the session that the conversation goes on in into the header.
func (a *completionAnswer) named(moved *SessionName) {
	if moved != nil {
		a.ref = plugin.SessionRef{Project: moved.Project, ID: moved.Session}
	}
	h := a.c.Response().Header()
	h.Set(sessionHeader, a.ref.ID)
	h.Set(projectHeader, a.ref.Project)
}

// text is what was answered: by the model, or to a command.
func (a *completionAnswer) text(answer *ChatAnswer) string {
	if answer.Answer != nil {
		return strings.TrimSpace(strings.Join(append([]string{answer.Answer.Text}, answer.Notices...), "\n"))
	}
	var m struct{ Content string }
	_ = json.Unmarshal(answer.Message, &m) // it is there once a turn has ended
	return m.Content
}

// refused is what a command answered that failed: it is part of the conversation
// like other answers.
func (a *completionAnswer) refused(err error) (text string, ok bool) {
	if !surfaces.IsSlash(strings.TrimSpace(a.q.last)) || strings.HasPrefix(strings.TrimSpace(a.q.last), "//") {
		return "", false
	}
	e := plugin.AsError(err)
	switch e.Code {
	case plugin.Internal, plugin.Unavailable, plugin.Busy:
		return "", false
	}
	return "error: " + e.Text(), true
}

// keep notes what was said, so that the next request is known by it.
func (a *completionAnswer) keep(text string) {
	said := append(a.q.before[:len(a.q.before):len(a.q.before)],
		completionMessage{Role: "user", text: a.q.last}, completionMessage{Role: "assistant", text: text})
	a.threads.keep(saidIn(a.project, said), a.ref)
}

func (a *completionAnswer) whole(ctx context.Context) error {
	answer, err := a.x.Result(ctx)
	var text string
	if err == nil {
		text = a.text(answer)
	} else if answer == nil { // its client has gone; the turn goes on
		return CutShort(ctx, methodSend, err)
	} else {
		var spoken bool
		if text, spoken = a.refused(err); !spoken {
			a.named(nil)
			return CutShort(ctx, methodSend, err)
		}
	}
	a.named(answer.Moved)
	a.keep(text)
	stop := "stop"
	a.object.Object, a.object.Model, a.object.Usage = "chat.completion", cmp.Or(answer.Model, a.object.Model), usageOf(answer)
	a.object.Choices = []completionChoice{{Message: &completionDelta{Role: "assistant", Content: &text}, FinishReason: &stop}}
	return sendJSON(a.c, http.StatusOK, a.object)
}

// stream sends the answer in chunks.
func (a *completionAnswer) stream(ctx context.Context) error {
	out := newEventWriter(a.c)
	a.object.Object = "chat.completion.chunk"
	chunk := func(d completionDelta, finish *string) error {
		if !out.begun {
			a.named(nil)
			d.Role = "assistant"
		}
		a.object.Choices = []completionChoice{{Delta: &d, FinishReason: finish}}
		data, err := json.Marshal(a.object)
		if err != nil {
			return err
		}
		return out.raw("data: " + string(data) + "\n\n")
	}
	var said strings.Builder
	say := func(text string) error {
		said.WriteString(text)
		return chunk(completionDelta{Content: &text}, nil)
	}
	for {
		e, err := out.next(ctx, a.x)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = a.pass(e, say, chunk)
		}
		if err != nil {
			return nil // its client has gone; the turn goes on
		}
	}
	answer, err := a.x.Result(ctx)
	if answer == nil {
		return nil // its client has gone; the turn goes on
	}
	if err != nil {
		text, spoken := a.refused(err)
		if !spoken {
			return a.broken(ctx, out, CutShort(ctx, methodSend, err))
		}
		if say(text) != nil {
			return nil
		}
	} else if text := a.text(answer); text != said.String() && strings.HasPrefix(text, said.String()) {
		if say(text[said.Len():]) != nil { // of a command, or what this client was too slow for
			return nil
		}
	}
	if answer.Moved != nil {
		a.ref = plugin.SessionRef{Project: answer.Moved.Project, ID: answer.Moved.Session}
	}
	a.keep(said.String())
	stop := "stop"
	if chunk(completionDelta{}, &stop) != nil {
		return nil
	}
	if a.q.StreamOptions.IncludeUsage {
		a.object.Choices, a.object.Usage = []completionChoice{}, usageOf(answer)
		data, err := json.Marshal(a.object)
		if err != nil {
			return err
		}
		if out.raw("data: "+string(data)+"\n\n") != nil {
			return nil
		}
	}
	_ = out.raw("data: [DONE]\n\n") // whether it arrives is the client's affair
	return nil
}

// pass sends on what of an event these clients know.
func (a *completionAnswer) pass(e ChatEvent, say func(string) error, chunk func(completionDelta, *string) error) error {
	var about struct {
		Text      string `json:"text"`
		Model     string `json:"model"`
		Session   string `json:"sessionId"`
		ProjectID string `json:"projectId"`
	}
	if json.Unmarshal(e.Data, &about) != nil {
		return nil
	}
	switch e.Kind {
	case "turn_start":
		a.object.Model = about.Model
	case "text_delta":
		return say(about.Text)
	case "thought_delta":
		return chunk(completionDelta{Reasoning: about.Text}, nil)
	case "session_moved":
		a.ref = plugin.SessionRef{Project: about.ProjectID, ID: about.Session}
	}
	return nil
}

// broken tells of an answer that failed: by its status, or where part of it was
// sent as the last chunk.
func (a *completionAnswer) broken(ctx context.Context, out *eventWriter, err error) error {
	if !out.begun {
		a.named(nil)
		return err
	}
	e := plugin.AsError(err)
	if e.Code == plugin.Internal && e.Details["incident"] == "" {
		e = a.incident(ctx, e, nil)
	}
	_ = out.raw("data: " + string(completionError(e)) + "\n\n")
	return err
}

// completionError is the body of an error as these clients expect it.
func completionError(e *plugin.Error) []byte {
	kind := "invalid_request_error"
	switch status := e.Code.Info().HTTP; {
	case status >= 500:
		kind = "server_error"
	case e.Code == plugin.Denied:
		kind = "authentication_error"
	}
	data, err := json.Marshal(map[string]any{"error": map[string]any{"message": e.Text(), "type": kind, "code": e.Code}})
	if err != nil {
		return []byte(`{"error":{"message":"the request failed","type":"server_error"}}`) // texts can be encoded
	}
	return data
}

// serveModels lists the models that may be named.
func (s *Server) serveModels(c echo.Context) error {
	result, err := s.rpc.host.Call(c.Request().Context(), plugin.CallerHTTP, methodModels, nil, nil)
	if err != nil {
		return err
	}
	var named []struct{ Value string }
	if err := json.Unmarshal(result, &named); err != nil {
		return err
	}
	type model struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		OwnedBy string `json:"owned_by"`
	}
	all := []model{{ownModel, "model", s.opts.StartedAt.Unix(), "sess"}}
	for _, m := range named {
		provider, _, _ := strings.Cut(m.Value, "/")
		all = append(all, model{m.Value, "model", s.opts.StartedAt.Unix(), provider})
	}
	return sendJSON(c, http.StatusOK, struct {
		Object string  `json:"object"`
		Data   []model `json:"data"`
	}{"list", all})
}

func (s *Server) completionEndpoints() []endpoint {
	return []endpoint{
		{http.MethodGet, modelsPath, false, s.serveModels},
		{http.MethodPost, completionsPath, false, s.serveCompletion},
	}
}

const completionFailure = `{"type":"object","required":["error"],"properties":{"error":{"type":"object","required":["message","type"],"properties":{"message":{"type":"string"},"type":{"type":"string"},"code":{"type":"string"}}}}}`

// completionOperations describes the endpoints for programs that are made for
// OpenAI's.
func completionOperations() []surfaces.HTTPOperation {
	return []surfaces.HTTPOperation{
		{
			Method: http.MethodGet, Path: modelsPath, ID: "v1.models", Summary: "List the models, for clients of OpenAI's API",
			Description: fmt.Sprintf("%q is the model that a session talks with, or the configured default.", ownModel),
			Response:    json.RawMessage(`{"type":"object","required":["object","data"],"properties":{"object":{"const":"list"},"data":{"type":"array","items":{"type":"object","required":["id"],"properties":{"id":{"type":"string"}}}}}}`),
			Failure:     json.RawMessage(completionFailure),
		},
		{
			Method: http.MethodPost, Path: completionsPath, ID: "v1.chat.completions", Summary: "Answer a message, for clients of OpenAI's API",
			Description: "Only the last message is new to the session. The session is the one that the header " + sessionHeader + " names; without it, the one in which exactly the messages before were said, " +
				"or else a new one that begins with them. The answer has the same header. System messages are the instruction of the turn. Slash commands work as in a chat. The tools that are called are those of the gateway.",
			Parameters: []surfaces.HTTPParameter{
				{Name: sessionHeader, In: "header", Help: "the session to go on with"}, {Name: projectHeader, In: "header", Help: "its project"},
			},
			Request:  json.RawMessage(`{"type":"object","required":["messages"],"properties":{"model":{"type":"string"},"messages":{"type":"array","minItems":1,"items":{"type":"object","required":["role"],"properties":{"role":{"type":"string"},"content":{}}}},"stream":{"type":"boolean"},"stream_options":{"type":"object","properties":{"include_usage":{"type":"boolean"}}}}}`),
			Response: json.RawMessage(`{"type":"object","required":["id","object","choices"],"properties":{"id":{"type":"string"},"object":{"type":"string"},"created":{"type":"integer"},"model":{"type":"string"},"choices":{"type":"array","items":{"type":"object"}},"usage":{"type":"object"}}}`),
			Failure:  json.RawMessage(completionFailure),
		},
	}
}
