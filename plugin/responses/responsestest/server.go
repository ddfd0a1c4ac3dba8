// Package responsestest is a server for tests that speaks as much of the OpenAI
// Responses API as the plugin uses: answers as a stream of events, with reasoning
// and calls of functions, answers that it keeps, compaction, errors, and streams
// that break off. By itself it answers each question the same way; a script says
// otherwise.
package responsestest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
)

// Server is the server. Its address, the configuration's baseURL, is URL. Safe for
// concurrent use. Close it.
type Server struct {
	*httptest.Server

	mu       sync.Mutex // guards what follows
	script   []Reply
	requests []Request
	kept     map[string]bool // ids of answers
	count    int
}

// Request is one request that came.
type Request struct {
	Path string
	Key  string // of the header Authorization
	Raw  []byte // the body
	Body Body
}

// Body is what the tests look at of a request.
type Body struct {
	Model        string            `json:"model"`
	Instructions string            `json:"instructions"`
	Stream       bool              `json:"stream"`
	Store        bool              `json:"store"`
	Previous     string            `json:"previous_response_id"`
	Include      []string          `json:"include"`
	MaxTokens    int               `json:"max_output_tokens"`
	Reasoning    json.RawMessage   `json:"reasoning"`
	Tools        []json.RawMessage `json:"tools"`
	Input        []json.RawMessage `json:"input"`
}

// Reply says what comes of one request. The zero value is a plain answer.
type Reply struct {
	// Text is what the answer says; empty means "answer <number>", or nothing where
	// there are Calls.
	Text string
	// Thought is told as the summary of the model's reasoning.
	Thought string
	// Calls are the functions that the answer calls.
	Calls []Call
	// Item is one more item of the answer, as it is.
	Item string
	// Tokens is how many the conversation has with the answer; 0 means 100.
	Tokens int
	// Status is that of HTTP; 0 means 200. Then Error is the body.
	Status int
	Error  string
	Header map[string]string
	// Event is an event that ends the stream in the place of the answer's end; "cut"
	// ends it without any.
	Event string
	// Begun is closed when the request has come, or part of the answer where there
	// is one; the rest waits until Wait is closed, or whoever asked is gone.
	Begun chan<- struct{}
	Wait  <-chan struct{}
}

// Call is a call of a function.
type Call struct{ ID, Name, Arguments string }

// New starts a server.
func New() *Server {
	s := &Server{kept: map[string]bool{}}
	s.Server = httptest.NewServer(s)
	return s
}

// Script adds what comes of the next requests, one for each.
func (s *Server) Script(replies ...Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = append(s.script, replies...)
}

// Requests lists the requests that have come so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Last is the last request that came.
func (s *Server) Last() Request {
	all := s.Requests()
	if len(all) == 0 {
		return Request{}
	}
	return all[len(all)-1]
}

// Forget makes the server forget the answers that it keeps.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.kept)
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return // whoever asked is gone
	}
	req := Request{Path: r.URL.Path, Key: strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), Raw: raw}
	bad := json.Unmarshal(raw, &req.Body)

	s.mu.Lock()
	s.requests = append(s.requests, req)
	var reply Reply
	if len(s.script) > 0 {
		reply, s.script = s.script[0], s.script[1:]
	}
	s.count++
	a := answer{reply: reply, number: s.count}
	known := s.kept[req.Body.Previous]
	if req.Body.Store && reply.Status == 0 && reply.Event == "" {
		s.kept[a.id("resp")] = true
	}
	s.mu.Unlock()

	maps.Copy(w.Header(), header(reply.Header))
	switch {
	case bad != nil || r.Method != http.MethodPost:
		refuse(w, http.StatusBadRequest, fmt.Sprintf(`{"error":{"message":"no request: %s","type":"invalid_request_error","param":null,"code":null}}`, r.Method))
	case reply.Status != 0:
		refuse(w, reply.Status, reply.Error)
	case req.Body.Previous != "" && !known:
		refuse(w, http.StatusBadRequest, fmt.Sprintf(`{"error":{"message":"Previous response with id '%s' not found.","type":"invalid_request_error","param":"previous_response_id","code":"previous_response_not_found"}}`, req.Body.Previous))
	case strings.HasSuffix(r.URL.Path, "/responses/compact"):
		if reply.wait(r) {
			a.compact(w, req.Body.Input)
		}
	case strings.HasSuffix(r.URL.Path, "/responses"):
		a.stream(w, r)
	default:
		refuse(w, http.StatusNotFound, `{"error":{"message":"no such route","type":"invalid_request_error","param":null,"code":null}}`)
	}
}

func header(values map[string]string) http.Header {
	h := http.Header{}
	for name, value := range values {
		h.Set(name, value)
	}
	return h
}

func refuse(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body) // whoever does not read it has gone
}

// wait tells that the request is here, and waits for the rest to be wanted. It is
// false where nobody wants it any more.
func (r Reply) wait(req *http.Request) bool {
	if r.Begun != nil {
		close(r.Begun)
	}
	if r.Wait == nil {
		return true
	}
	select {
	case <-r.Wait:
		return true
	case <-req.Context().Done():
		return false
	}
}

// answer is one answer.
type answer struct {
	reply  Reply
	number int
}

func (a answer) id(kind string) string { return fmt.Sprintf("%s_%d", kind, a.number) }

// stream writes the answer as events.
func (a answer) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	text := a.reply.Text
	if text == "" && a.reply.Calls == nil {
		text = fmt.Sprintf("answer %d", a.number)
	}
	send := func(kind, fields string) {
		_, _ = fmt.Fprintf(w, "event: %s\ndata: {\"type\":%q,%s}\n\n", kind, kind, fields)
		w.(http.Flusher).Flush()
	}
	send("response.created", fmt.Sprintf(`"response":{"id":%q,"status":"in_progress","error":null}`, a.id("resp")))
	if a.reply.Thought != "" {
		send("response.reasoning_summary_text.delta", fmt.Sprintf(`"item_id":%q,"output_index":0,"delta":%s`, a.id("rs"), quote(a.reply.Thought)))
	}
	if text != "" {
		half := len(text) / 2
		for _, piece := range []string{text[:half], text[half:]} {
			send("response.output_text.delta", fmt.Sprintf(`"item_id":%q,"output_index":1,"content_index":0,"delta":%s`, a.id("msg"), quote(piece)))
			if half > 0 && piece == text[:half] && !a.reply.wait(r) {
				return
			}
		}
	} else if !a.reply.wait(r) {
		return
	}
	if a.reply.Event != "" {
		if a.reply.Event != "cut" {
			_, _ = fmt.Fprintf(w, "data: %s\n\n", a.reply.Event)
		}
		return
	}
	items := []string{a.reasoning()}
	if text != "" {
		items = append(items, fmt.Sprintf(`{"id":%q,"type":"message","status":"completed","content":[{"type":"output_text","annotations":[],"text":%s}],"role":"assistant"}`, a.id("msg"), quote(text)))
	}
	for i, c := range a.reply.Calls {
		items = append(items, fmt.Sprintf(`{"id":"fc_%d_%d","type":"function_call","status":"completed","arguments":%s,"call_id":%q,"name":%q}`, a.number, i, quote(c.Arguments), c.ID, c.Name))
	}
	if a.reply.Item != "" {
		items = append(items, a.reply.Item)
	}
	for i, item := range items {
		send("response.output_item.done", fmt.Sprintf(`"output_index":%d,"item":%s`, i, item))
	}
	tokens := a.reply.Tokens
	if tokens == 0 {
		tokens = 100
	}
	send("response.completed", fmt.Sprintf(`"response":{"id":%q,"status":"completed","error":null,"output":[%s],"usage":{"input_tokens":%d,"output_tokens":10,"total_tokens":%d}}`,
		a.id("resp"), strings.Join(items, ","), tokens-10, tokens))
}

// reasoning is an item that has what Go's encoder would write otherwise.
func (a answer) reasoning() string {
	return fmt.Sprintf(`{"id":%q, "type":"reasoning","encrypted_content":"gAAA<%d>&\u003c\/+é==","summary":[]}`, a.id("rs"), a.number)
}

// compact writes what becomes of a conversation: what users said, and the rest in
// one item. It is written on several lines, as the API does.
func (a answer) compact(w http.ResponseWriter, input []json.RawMessage) {
	var items []string
	for _, item := range input {
		var m struct {
			Role string `json:"role"`
		}
		if json.Unmarshal(item, &m) == nil && m.Role == "user" {
			items = append(items, string(item))
		}
	}
	items = append(items, fmt.Sprintf("{\n      \"id\": %q,\n      \"type\": \"compaction\",\n      \"encrypted_content\": \"zzz<%d>&\\u003c\"\n    }", a.id("cmp"), a.number))
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, "{\n  \"id\": %q,\n  \"object\": \"response.compaction\",\n  \"output\": [\n    %s\n  ],\n  \"usage\": {\"input_tokens\": %d, \"output_tokens\": 20, \"total_tokens\": %d}\n}\n",
		a.id("resp"), strings.Join(items, ",\n    "), 1000+len(input), 1020+len(input))
}

func quote(text string) string {
	data, _ := json.Marshal(text) // a text always has JSON
	return string(data)
}
