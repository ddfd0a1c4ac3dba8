// Package modelstest is a model's provider for tests: a server on the loopback
// interface that speaks the wire formats of OpenAI (chat completions) and
// Anthropic (Messages), and answers as it was told.
//
// It gives the events of an answer one by one, as a provider does, and keeps every
// request that it got, so that a test can say what a model was told, to the byte.
package modelstest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Answer is one answer. The zero value says nothing and ends.
type Answer struct {
	Thought string // comes first, word by word
	Text    string // word by word
	Calls   []Call
	// Usage is what the answer counts; nil leaves it out where the API allows it.
	Usage *Usage
	// Stop is why it ends, in the words of the API; "" is the usual reason.
	Stop string
	// Whole sends one JSON document instead of a stream.
	Whole bool

	// Hold, where it is not nil, is waited for after the first word, unless the
	// request ends before.
	Hold <-chan struct{}
	// Cut breaks the connection instead of ending the answer.
	Cut bool
	// Events are sent as they are instead of all the above, each as the data of one
	// event.
	Events []string

	// Status other than 0 refuses the request with it: with Body, and with the
	// members of Header.
	Status int
	Body   string
	Header map[string]string
}

// Call is a call of a tool. Arguments are sent in two pieces.
type Call struct{ ID, Name, Arguments string }

// Usage counts tokens.
type Usage struct{ Input, Output, Cached int }

// Request is a request that came.
type Request struct {
	Method, Path string
	Header       http.Header
	Body         []byte
	At           time.Time
}

// Server is the provider. Safe for concurrent use. Close it.
type Server struct {
	// URL is where it is, without the version: the API of OpenAI is at URL + "/v1".
	URL string

	http *httptest.Server

	mu       sync.Mutex // guards what follows
	answers  []Answer
	requests []Request
	models   []string
	arrived  chan struct{} // closed and replaced with every request
}

// New starts a server.
func New() *Server {
	s := &Server{arrived: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", s.serve(openAI{}))
	mux.HandleFunc("POST /v1/messages", s.serve(anthropic{}))
	mux.HandleFunc("GET /v1/models", s.list)
	s.http = httptest.NewServer(mux)
	s.URL = s.http.URL
	return s
}

// Close breaks what still runs, and ends the server.
func (s *Server) Close() {
	s.http.CloseClientConnections()
	s.http.Close()
}

// Answers adds the answers to the next requests. Without one left a request is
// refused with the status 418, which nobody sends again.
func (s *Server) Answers(answers ...Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers = append(s.answers, answers...)
}

// Models sets the names of the models that it says it has.
func (s *Server) Models(names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.models = names
}

// Requests are the requests for answers that came, in their order.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Arrived is closed when the next request for an answer comes.
func (s *Server) Arrived() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.arrived
}

func (s *Server) list(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data := []map[string]string{}
	for _, name := range s.models {
		data = append(data, map[string]string{"id": name, "object": "model"})
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(encode(map[string]any{"object": "list", "data": data}))
}

// next notes a request and takes the answer to it.
func (s *Server) next(r *http.Request, body []byte) Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, Request{r.Method, r.URL.Path, r.Header.Clone(), body, time.Now()})
	close(s.arrived)
	s.arrived = make(chan struct{})
	if len(s.answers) == 0 {
		return Answer{Status: http.StatusTeapot, Body: fmt.Sprintf(`{"error":{"message":"the test has no answer to request %d"}}`, len(s.requests))}
	}
	a := s.answers[0]
	s.answers = s.answers[1:]
	return a
}

// api is a wire format.
type api interface {
	// stream gives an answer event by event, and returns false where send did.
	stream(a Answer, send func(name string, data any) bool, hold func() bool) bool
	whole(a Answer) any
}

func (s *Server) serve(format api) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client is gone
		}
		a := s.next(r, body)
		for name, value := range a.Header {
			w.Header().Set(name, value)
		}
		switch {
		case a.Status != 0:
			if w.Header().Get("Content-Type") == "" {
				w.Header().Set("Content-Type", "application/json")
			}
			w.WriteHeader(a.Status)
			_, _ = io.WriteString(w, a.Body)
			return
		case a.Whole:
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(encode(format.whole(a)))
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		out := http.NewResponseController(w)
		send := func(name string, data any) bool {
			text, ok := data.(string)
			if !ok {
				text = string(encode(data))
			}
			if name != "" {
				name = "event: " + name + "\n"
			}
			_, err := fmt.Fprintf(w, "%sdata: %s\n\n", name, text)
			return err == nil && out.Flush() == nil
		}
		held := a.Hold == nil
		hold := func() bool {
			if held {
				return true
			}
			held = true
			select {
			case <-a.Hold:
				return true
			case <-r.Context().Done():
				return false
			}
		}
		if a.Events != nil {
			for _, e := range a.Events {
				if !send("", e) || !hold() {
					return
				}
			}
		} else if !format.stream(a, send, hold) {
			return
		}
		if a.Cut {
			panic(http.ErrAbortHandler)
		}
	}
}

// words are the pieces of a text.
func words(text string) []string {
	if text == "" {
		return nil
	}
	return strings.SplitAfter(text, " ")
}

// halves are the two pieces of a call's arguments.
func halves(text string) []string { return []string{text[:len(text)/2], text[len(text)/2:]} }

// encode is the JSON of what this package makes.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("modelstest: a %T has no JSON: %v", v, err))
	}
	return data
}

// fields is a JSON object.
type fields = map[string]any

// openAI is the format of chat completions.
type openAI struct{}

func (openAI) usage(u *Usage) any {
	if u == nil {
		return nil
	}
	return fields{
		"prompt_tokens": u.Input, "completion_tokens": u.Output, "total_tokens": u.Input + u.Output,
		"prompt_tokens_details": fields{"cached_tokens": u.Cached},
	}
}

func (openAI) stop(a Answer) string {
	switch {
	case a.Stop != "":
		return a.Stop
	case a.Calls != nil:
		return "tool_calls"
	}
	return "stop"
}

func (o openAI) stream(a Answer, send func(string, any) bool, hold func() bool) bool {
	chunk := func(delta fields, finish any) bool {
		return send("", fields{"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "test", "choices": []any{
			fields{"index": 0, "delta": delta, "finish_reason": finish},
		}})
	}
	ok := chunk(fields{"role": "assistant", "content": ""}, nil)
	for _, w := range words(a.Thought) {
		ok = ok && chunk(fields{"reasoning_content": w}, nil) && hold()
	}
	for _, w := range words(a.Text) {
		ok = ok && chunk(fields{"content": w}, nil) && hold()
	}
	for i, c := range a.Calls {
		ok = ok && chunk(fields{"tool_calls": []any{fields{
			"index": i, "id": c.ID, "type": "function", "function": fields{"name": c.Name, "arguments": ""},
		}}}, nil)
		for _, half := range halves(c.Arguments) {
			ok = ok && chunk(fields{"tool_calls": []any{fields{"index": i, "function": fields{"arguments": half}}}}, nil)
		}
	}
	ok = ok && hold()
	if a.Cut || !ok {
		return ok
	}
	ok = chunk(fields{}, o.stop(a))
	if a.Usage != nil {
		ok = ok && send("", fields{"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": []any{}, "usage": o.usage(a.Usage)})
	}
	return ok && send("", "[DONE]")
}

func (o openAI) whole(a Answer) any {
	message := fields{"role": "assistant", "content": a.Text}
	if a.Thought != "" {
		message["reasoning_content"] = a.Thought
	}
	var calls []any
	for _, c := range a.Calls {
		calls = append(calls, fields{"id": c.ID, "type": "function", "function": fields{"name": c.Name, "arguments": c.Arguments}})
	}
	if calls != nil {
		message["tool_calls"] = calls
	}
	return fields{"id": "chatcmpl-1", "object": "chat.completion", "usage": o.usage(a.Usage), "choices": []any{
		fields{"index": 0, "message": message, "finish_reason": o.stop(a)},
	}}
}

// anthropic is the format of Messages.
type anthropic struct{}

// Signature is that of every thought of an Anthropic answer.
const Signature = "EqQB+/c2lnbmF0dXJl=="

func (anthropic) usage(u *Usage) fields {
	if u == nil {
		u = &Usage{}
	}
	return fields{"input_tokens": u.Input - u.Cached, "cache_read_input_tokens": u.Cached, "cache_creation_input_tokens": 0, "output_tokens": u.Output}
}

func (anthropic) stop(a Answer) string {
	switch {
	case a.Stop != "":
		return a.Stop
	case a.Calls != nil:
		return "tool_use"
	}
	return "end_turn"
}

func (f anthropic) stream(a Answer, send func(string, any) bool, hold func() bool) bool {
	event := func(name string, data fields) bool {
		data["type"] = name
		return send(name, data)
	}
	index := 0
	block := func(start fields, deltas ...fields) bool {
		ok := event("content_block_start", fields{"index": index, "content_block": start})
		for _, d := range deltas {
			ok = ok && event("content_block_delta", fields{"index": index, "delta": d}) && hold()
		}
		ok = ok && event("content_block_stop", fields{"index": index})
		index++
		return ok
	}
	before := f.usage(a.Usage)
	before["output_tokens"] = 1
	ok := event("message_start", fields{"message": fields{
		"id": "msg_1", "type": "message", "role": "assistant", "model": "test", "content": []any{}, "stop_reason": nil, "usage": before,
	}}) && event("ping", fields{})
	if a.Thought != "" {
		var deltas []fields
		for _, w := range words(a.Thought) {
			deltas = append(deltas, fields{"type": "thinking_delta", "thinking": w})
		}
		deltas = append(deltas, fields{"type": "signature_delta", "signature": Signature})
		ok = ok && block(fields{"type": "thinking", "thinking": "", "signature": ""}, deltas...)
	}
	if a.Text != "" {
		var deltas []fields
		for _, w := range words(a.Text) {
			deltas = append(deltas, fields{"type": "text_delta", "text": w})
		}
		ok = ok && block(fields{"type": "text", "text": ""}, deltas...)
	}
	for _, c := range a.Calls {
		var deltas []fields
		for _, half := range halves(c.Arguments) {
			deltas = append(deltas, fields{"type": "input_json_delta", "partial_json": half})
		}
		ok = ok && block(fields{"type": "tool_use", "id": c.ID, "name": c.Name, "input": fields{}}, deltas...)
	}
	ok = ok && hold()
	if a.Cut || !ok {
		return ok
	}
	return event("message_delta", fields{"delta": fields{"stop_reason": f.stop(a), "stop_sequence": nil}, "usage": fields{"output_tokens": f.usage(a.Usage)["output_tokens"]}}) &&
		event("message_stop", fields{})
}

func (f anthropic) whole(a Answer) any {
	content := []any{}
	if a.Thought != "" {
		content = append(content, fields{"type": "thinking", "thinking": a.Thought, "signature": Signature})
	}
	if a.Text != "" {
		content = append(content, fields{"type": "text", "text": a.Text})
	}
	for _, c := range a.Calls {
		content = append(content, fields{"type": "tool_use", "id": c.ID, "name": c.Name, "input": json.RawMessage(cmp.Or(c.Arguments, "{}"))})
	}
	return fields{"id": "msg_1", "type": "message", "role": "assistant", "content": content, "stop_reason": f.stop(a), "usage": f.usage(a.Usage)}
}

// TooManyRequests is a refusal that asks for a pause.
func TooManyRequests(pause time.Duration) Answer {
	return Answer{
		Status: http.StatusTooManyRequests, Body: `{"error":{"message":"Too many requests.","type":"rate_limit_error"}}`,
		Header: map[string]string{"Retry-After": strconv.FormatFloat(pause.Seconds(), 'f', -1, 64)},
	}
}
