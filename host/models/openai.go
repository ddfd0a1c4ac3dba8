package models

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/google/uuid"

	"sess/plugin/upstream"
	"sess/store/transcript"
)

// openAIURL is where the chat completions of OpenAI are.
const openAIURL = "https://api.openai.com/v1"

// openAI asks a server that speaks the chat completions of OpenAI, as most do.
// Servers differ in what they leave out and add; what they add to an answer goes
// back to them.
type openAI struct {
	*remote
	// What the server was found not to take. A server that is asked for one of them
	// refuses the request, which is sent again without it.
	noUsage, noTools atomic.Bool
}

var _ Model = (*openAI)(nil)

func openOpenAI(id, model string, p Provider, c Config) (Model, error) {
	r, err := openRemote(id, model, p, c, address{baseURL: openAIURL, keyEnv: "OPENAI_API_KEY"})
	if err != nil {
		return nil, err
	}
	return &openAI{remote: r}, r.checkParameters()
}

// Turn asks for the next answer.
func (o *openAI) Turn(ctx context.Context, req Request, emit func(Delta)) (Answer, error) {
	entries, notes, err := collect(req.History, o.calls)
	if err != nil {
		return Answer{}, err
	}
	for _, n := range notes {
		notice(emit, n)
	}
	messages := o.messages(req.System, entries)
	names := toolNames(req.Tools)
	for {
		var a *completion
		err := o.ask(ctx, "/chat/completions", o.body(messages, req.Tools), emit, func() upstream.Reader {
			a = &completion{emit: emit, names: names}
			return a
		})
		if err == nil {
			answer := a.answer(o)
			o.fill(answer.Usage, emit)
			return answer, nil
		}
		if !o.learn(err, len(req.Tools) > 0, emit) {
			return Answer{}, err
		}
	}
}

// calls are those that an answer in the provider's own words asks for.
func (o *openAI) calls(n *transcript.Native) (ids []string, ok bool) {
	if !o.own(n) {
		return nil, false
	}
	for _, item := range n.Items {
		var m struct {
			ToolCalls []struct {
				ID string `json:"id"`
			} `json:"tool_calls"`
		}
		if json.Unmarshal(item, &m) != nil {
			return nil, false
		}
		for _, c := range m.ToolCalls {
			ids = append(ids, c.ID)
		}
	}
	return ids, true
}

// learn notes what the server has just said that it does not take; false if it is
// something else that it refuses.
func (o *openAI) learn(err error, tools bool, emit func(Delta)) bool {
	s, ok := errors.AsType[*upstream.StatusError](err)
	if !ok || s.Status < 400 || s.Status >= 500 {
		return false
	}
	said := strings.ToLower(s.Message)
	switch {
	case strings.Contains(said, "stream_options"):
		return o.noUsage.CompareAndSwap(false, true)
	case tools && (strings.Contains(said, "does not support tools") || strings.Contains(said, "support tool use")):
		notice(emit, fmt.Sprintf("%s cannot call tools, so it is offered none", o.Name()))
		return o.noTools.CompareAndSwap(false, true)
	}
	return false
}

func (o *openAI) body(messages [][]byte, tools []Tool) []byte {
	var b object
	b.set("model", o.model)
	b.raw("messages", list(messages))
	if len(tools) > 0 && !o.noTools.Load() {
		var all [][]byte
		for _, t := range tools {
			var f, whole object
			f.set("name", wireWord(t.Name, maxToolName))
			f.set("description", t.Description)
			f.raw("parameters", schema(t))
			whole.set("type", "function")
			whole.raw("function", f.end())
			all = append(all, whole.end())
		}
		b.raw("tools", list(all))
	}
	b.set("stream", true)
	if !o.noUsage.Load() {
		b.raw("stream_options", []byte(`{"include_usage":true}`))
	}
	if o.config.MaxTokens > 0 {
		b.set(o.limitName(), o.config.MaxTokens)
	}
	for _, name := range slices.Sorted(maps.Keys(o.config.Parameters)) {
		b.raw(name, o.config.Parameters[name])
	}
	return b.end()
}

// limitName is what the bound of an answer is called: OpenAI has a new name for
// it, which others do not know.
func (o *openAI) limitName() string {
	if u, err := url.Parse(o.config.BaseURL); err == nil && u.Hostname() == "api.openai.com" {
		return "max_completion_tokens"
	}
	return "max_tokens"
}

// messages are the conversation as the API has it.
func (o *openAI) messages(system string, entries []entry) [][]byte {
	var all [][]byte
	add := func(role, content string) {
		var m object
		m.set("role", role)
		m.set("content", content)
		all = append(all, m.end())
	}
	if system != "" {
		add("system", system)
	}
	for _, e := range entries {
		id := func(id string) string { return wireWord(id, maxCallID) }
		switch {
		case e.native:
			for _, item := range e.Native.Items {
				all = append(all, item)
			}
			id = func(id string) string { return id } // as it is in the item
		case e.Role == transcript.RoleAssistant:
			all = append(all, openAIMessage(e.HistoryItem))
		default:
			add(string(e.Role), e.Content)
		}
		for i, call := range e.ToolCalls {
			var m object
			m.set("role", "tool")
			m.set("tool_call_id", id(call.ID))
			m.set("content", e.results[i])
			all = append(all, m.end())
		}
	}
	return all
}

// openAIMessage tells an answer anew.
func openAIMessage(h transcript.HistoryItem) []byte {
	var m object
	m.set("role", "assistant")
	if h.Content != "" || len(h.ToolCalls) == 0 {
		m.set("content", h.Content)
	}
	if len(h.ToolCalls) > 0 {
		var calls [][]byte
		for _, c := range h.ToolCalls {
			calls = append(calls, openAICall(wireWord(c.ID, maxCallID), wireWord(c.Name, maxToolName), arguments(c), nil))
		}
		m.raw("tool_calls", list(calls))
	}
	return m.end()
}

// openAICall is a call as it stands in a message. extra are members that the
// server added.
func openAICall(id, name, arguments string, extra map[string]json.RawMessage) []byte {
	var f, c object
	f.set("name", name)
	f.set("arguments", arguments)
	c.set("id", id)
	c.set("type", "function")
	c.raw("function", f.end())
	for _, key := range slices.Sorted(maps.Keys(extra)) {
		c.raw(key, extra[key])
	}
	return c.end()
}

// completion is an answer while it comes.
type completion struct {
	emit  func(Delta)
	names map[string]string
	begun bool

	text, refusal, thought strings.Builder
	details                [][]byte // of the thoughts, for the server alone
	calls                  []*openAICallParts
	finish                 string
	usage                  Usage
}

type openAICallParts struct {
	index     int // as the server counts; -1 where it does not
	id, name  string
	arguments strings.Builder
	extra     map[string]json.RawMessage
}

// openAIDelta is a piece of a message, or all of it.
type openAIDelta struct {
	Content          json.RawMessage   `json:"content"`
	Refusal          string            `json:"refusal"`
	ReasoningContent string            `json:"reasoning_content"`
	Reasoning        string            `json:"reasoning"`
	ReasoningDetails []json.RawMessage `json:"reasoning_details"`
	ToolCalls        []json.RawMessage `json:"tool_calls"`
}

// Event takes one chunk, or a whole answer.
func (a *completion) Event(e upstream.Event) error {
	data := bytes.TrimSpace(e.Data)
	if string(data) == "[DONE]" {
		return upstream.ErrDone
	}
	if len(data) == 0 {
		return nil
	}
	var chunk struct {
		Choices []struct {
			Index        int          `json:"index"`
			Delta        *openAIDelta `json:"delta"`
			Message      *openAIDelta `json:"message"`
			FinishReason string       `json:"finish_reason"`
		} `json:"choices"`
		Usage *struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
			Details    struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
			CacheHit int `json:"prompt_cache_hit_tokens"` // DeepSeek
		} `json:"usage"`
	}
	if err := json.Unmarshal(data, &chunk); err != nil {
		return fmt.Errorf("the answer is not what the API promises: %w", err)
	}
	if u := chunk.Usage; u != nil {
		a.usage = Usage{InputTokens: u.Prompt, OutputTokens: u.Completion, CachedTokens: cmp.Or(u.Details.Cached, u.CacheHit)}
	}
	if chunk.Choices == nil {
		if s := upstream.ParseError(data); s != nil {
			return s
		}
	}
	for _, c := range chunk.Choices {
		if c.Index != 0 {
			continue
		}
		for _, d := range []*openAIDelta{c.Delta, c.Message} {
			if d != nil {
				if err := a.take(d); err != nil {
					return err
				}
			}
		}
		a.finish = cmp.Or(c.FinishReason, a.finish)
	}
	return nil
}

func (a *completion) take(d *openAIDelta) error {
	think := func(text string) {
		if text != "" {
			a.thought.WriteString(text)
			a.begun = true
			a.emit(Delta{Kind: DeltaThought, Text: text})
		}
	}
	think(cmp.Or(d.ReasoningContent, d.Reasoning))
	for _, detail := range d.ReasoningDetails {
		a.details = append(a.details, bytes.Clone(detail))
	}
	text, thought, err := openAIContent(d.Content)
	if err != nil {
		return err
	}
	think(thought)
	a.refusal.WriteString(d.Refusal)
	if text += d.Refusal; text != "" {
		a.text.WriteString(text)
		a.begun = true
		a.emit(Delta{Kind: DeltaText, Text: text})
	}
	for _, call := range d.ToolCalls {
		if err := a.takeCall(call); err != nil {
			return err
		}
	}
	return nil
}

// openAIContent reads a content: a text, or parts, some of which may be thoughts.
func openAIContent(content json.RawMessage) (text, thought string, err error) {
	if len(content) == 0 || string(content) == "null" {
		return "", "", nil
	}
	if json.Unmarshal(content, &text) == nil {
		return text, "", nil
	}
	var parts []struct {
		Type     string          `json:"type"`
		Text     string          `json:"text"`
		Thinking json.RawMessage `json:"thinking"`
	}
	if err := json.Unmarshal(content, &parts); err != nil {
		return "", "", fmt.Errorf("the answer's content is not what the API promises: %w", err)
	}
	for _, p := range parts {
		text += p.Text
		if len(p.Thinking) > 0 {
			inner, _, err := openAIContent(p.Thinking)
			if err != nil {
				return "", "", err
			}
			thought += inner
		}
	}
	return text, thought, nil
}

// takeCall takes a piece of a call. Most servers count the calls; some do not, or
// give all the same number.
func (a *completion) takeCall(data json.RawMessage) error {
	var piece struct {
		Index    *int   `json:"index"`
		ID       string `json:"id"`
		Function struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"function"`
	}
	var all map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(data, &piece), json.Unmarshal(data, &all)); err != nil {
		return fmt.Errorf("a call is not what the API promises: %w", err)
	}
	at := len(a.calls) - 1
	if piece.Index != nil {
		for at >= 0 && a.calls[at].index != *piece.Index {
			at--
		}
	}
	another := at >= 0 && (piece.ID != "" && a.calls[at].id != "" && piece.ID != a.calls[at].id ||
		piece.Index == nil && piece.ID == "" && piece.Function.Name != "" && a.calls[at].name != "")
	if at < 0 || another {
		at = len(a.calls)
		a.calls = append(a.calls, &openAICallParts{index: -1})
		if piece.Index != nil {
			a.calls[at].index = *piece.Index
		}
	}
	c := a.calls[at]
	c.id, c.name = cmp.Or(c.id, piece.ID), cmp.Or(c.name, piece.Function.Name)
	var text string
	if args := piece.Function.Arguments; len(args) > 0 && string(args) != "null" && json.Unmarshal(args, &text) != nil {
		text = string(args) // an object instead of its text
	}
	c.arguments.WriteString(text)
	for _, known := range []string{"index", "id", "type", "function"} {
		delete(all, known)
	}
	if len(all) > 0 {
		if c.extra == nil {
			c.extra = map[string]json.RawMessage{}
		}
		maps.Copy(c.extra, all)
	}
	return nil
}

// End is where a stream ends that does not say so.
func (a *completion) End() error {
	if a.finish == "" {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// Begun reports whether people have seen something.
func (a *completion) Begun() bool { return a.begun }

// answer is the answer that has come.
func (a *completion) answer(o *openAI) Answer {
	answer := Answer{Text: a.text.String(), Usage: a.usage}
	standard := true
	var calls [][]byte
	used := map[string]bool{}
	for _, c := range a.calls {
		if c.id == "" || used[c.id] {
			c.id = "call_" + strings.ReplaceAll(uuid.NewString(), "-", "")
		}
		used[c.id] = true
		args := cmp.Or(c.arguments.String(), "{}")
		calls = append(calls, openAICall(c.id, c.name, args, c.extra))
		standard = standard && c.extra == nil
		call := transcript.ToolCall{ID: c.id, Name: cmp.Or(a.names[c.name], c.name), Arguments: json.RawMessage(args)}
		answer.ToolCalls = append(answer.ToolCalls, call)
		a.emit(Delta{Kind: DeltaTool, Call: call})
	}
	switch {
	case a.finish == "length":
		notice(a.emit, fmt.Sprintf("%s stopped in the middle: the answer is as long as it may be; models.providers.%s.maxTokens may be too small", o.Name(), o.id))
	case a.finish == "content_filter":
		notice(a.emit, fmt.Sprintf("%s stopped in the middle: the provider does not let it say more", o.Name()))
	case answer.Text == "" && len(calls) == 0:
		notice(a.emit, fmt.Sprintf("%s said nothing", o.Name()))
	}
	var m object
	m.set("role", "assistant")
	if text := strings.TrimSuffix(answer.Text, a.refusal.String()); text != "" || len(calls) == 0 && a.refusal.Len() == 0 {
		m.set("content", text)
	}
	if a.refusal.Len() > 0 {
		m.set("refusal", a.refusal.String())
	}
	// Servers that want thoughts back want them with the calls that they led to.
	if a.thought.Len() > 0 && len(calls) > 0 && a.details == nil {
		m.set("reasoning_content", a.thought.String())
		standard = false
	}
	if a.details != nil {
		m.raw("reasoning_details", list(a.details))
		standard = false
	}
	if len(calls) > 0 {
		m.raw("tool_calls", list(calls))
	}
	answer.Native = o.native(m.end(), openAIMessage(stored(answer)), standard)
	return answer
}

// stored is the item of history that an answer becomes without its native part.
func stored(a Answer) transcript.HistoryItem {
	h := transcript.HistoryItem{Role: transcript.RoleAssistant, Content: a.Text, ToolCalls: slices.Clone(a.ToolCalls)}
	for i := range h.ToolCalls {
		var b bytes.Buffer
		if json.Compact(&b, h.ToolCalls[i].Arguments) == nil {
			h.ToolCalls[i].Arguments = b.Bytes()
		}
	}
	return h
}
