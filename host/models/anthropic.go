package models

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"sess/plugin/upstream"
	"sess/store/transcript"
)

const (
	anthropicURL     = "https://api.anthropic.com"
	anthropicVersion = "2023-06-01"
	// anthropicTokens bounds an answer where nobody says how long it may be: the
	// API wants a bound.
	anthropicTokens = 8192
)

// anthropic asks a server that speaks the Messages API of Anthropic.
type anthropic struct{ *remote }

var _ Model = (*anthropic)(nil)

func openAnthropic(id, model string, p Provider, c Config) (Model, error) {
	if p.BaseURL != "" { // with the version or, as Anthropic's clients want it, without
		p.BaseURL = strings.TrimSuffix(strings.TrimSuffix(p.BaseURL, "/"), "/v1") + "/v1"
	}
	r, err := openRemote(id, model, p, c, address{
		baseURL: anthropicURL + "/v1", keyEnv: "ANTHROPIC_API_KEY",
		authorize: func(h http.Header, key string) { h.Set("X-Api-Key", key) },
		header:    http.Header{"Anthropic-Version": {anthropicVersion}},
	})
	if err != nil {
		return nil, err
	}
	return &anthropic{r}, r.checkParameters()
}

// Turn asks for the next answer.
func (c *anthropic) Turn(ctx context.Context, req Request, emit func(Delta)) (Answer, error) {
	entries, notes, err := collect(req.History, c.calls)
	if err != nil {
		return Answer{}, err
	}
	for _, n := range notes {
		notice(emit, n)
	}
	names := toolNames(req.Tools)
	var a *anthropicAnswer
	err = c.ask(ctx, "/messages", c.body(req, entries), emit, func() upstream.Reader {
		a = &anthropicAnswer{emit: emit, names: names}
		return a
	})
	if err != nil {
		return Answer{}, err
	}
	answer := a.answer(c)
	c.fill(answer.Usage, emit)
	return answer, nil
}

// calls are those that an answer in the provider's own words asks for.
func (c *anthropic) calls(n *transcript.Native) (ids []string, ok bool) {
	if !c.own(n) {
		return nil, false
	}
	for _, item := range n.Items {
		var m struct {
			Content []struct {
				Type string `json:"type"`
				ID   string `json:"id"`
			} `json:"content"`
		}
		if json.Unmarshal(item, &m) != nil {
			return nil, false
		}
		for _, b := range m.Content {
			if b.Type == "tool_use" {
				ids = append(ids, b.ID)
			}
		}
	}
	return ids, true
}

func (c *anthropic) body(req Request, entries []entry) []byte {
	system := []string{req.System}
	called := map[string]bool{}
	var b object
	b.set("model", c.model)
	b.set("max_tokens", cmp.Or(c.config.MaxTokens, anthropicTokens))
	for _, e := range entries {
		if e.Role == transcript.RoleSystem {
			system = append(system, e.Content)
		}
		for _, call := range e.ToolCalls {
			called[wireWord(call.Name, maxToolName)] = true
		}
	}
	if text := strings.Join(slices.DeleteFunc(system, blank), "\n\n"); text != "" {
		b.raw("system", list([][]byte{anthropicText(text)}))
	}
	b.raw("messages", list(anthropicMessages(entries)))
	var tools [][]byte
	tool := func(name, description string, schema []byte) {
		var t object
		t.set("name", name)
		t.set("description", description)
		t.raw("input_schema", schema)
		tools = append(tools, t.end())
	}
	for _, t := range req.Tools {
		tool(wireWord(t.Name, maxToolName), t.Description, schema(t))
	}
	if len(tools) == 0 && len(called) > 0 { // the API wants to know the tools that were called
		for _, name := range slices.Sorted(maps.Keys(called)) {
			tool(name, "This tool is not here any more.", []byte(`{"type":"object"}`))
		}
		b.raw("tool_choice", []byte(`{"type":"none"}`))
	}
	if len(tools) > 0 {
		b.raw("tools", list(tools))
	}
	b.set("stream", true)
	for _, name := range slices.Sorted(maps.Keys(c.config.Parameters)) {
		b.raw(name, c.config.Parameters[name])
	}
	return b.end()
}

func blank(text string) bool { return strings.TrimSpace(text) == "" }

// anthropicMessages are the conversation as the API has it: it begins with the
// user, and what the user says stands in one message with the results of tools
// before it. Texts that are blank are not allowed.
func anthropicMessages(entries []entry) [][]byte {
	var all, user [][]byte // user: the blocks of the message that is still open
	flush := func() {
		if len(user) > 0 {
			all = append(all, anthropicMessage("user", user))
			user = nil
		}
	}
	for _, e := range entries {
		switch {
		case e.Role == transcript.RoleSystem:
			continue
		case e.Role == transcript.RoleUser:
			if !blank(e.Content) {
				user = append(user, anthropicText(e.Content))
			}
			continue
		}
		var message [][]byte
		id := func(id string) string { return wireWord(id, maxCallID) }
		if e.native {
			for _, item := range e.Native.Items {
				message = append(message, item)
			}
			id = func(id string) string { return id } // as it is in the item
		} else if blocks := anthropicBlocks(e.HistoryItem); len(blocks) > 0 {
			message = [][]byte{anthropicMessage("assistant", blocks)}
		}
		if len(message) == 0 {
			continue
		}
		if len(all) == 0 && len(user) == 0 {
			user = append(user, anthropicText("(What was said before is not here.)"))
		}
		flush()
		all = append(all, message...)
		for i, call := range e.ToolCalls {
			var r object
			r.set("type", "tool_result")
			r.set("tool_use_id", id(call.ID))
			if !blank(e.results[i]) {
				r.raw("content", list([][]byte{anthropicText(e.results[i])}))
			}
			user = append(user, r.end())
		}
	}
	if n := len(user); n > 0 { // what it has read until here the provider may keep for the next request
		user[n-1] = slices.Concat(user[n-1][:len(user[n-1])-1], []byte(`,"cache_control":{"type":"ephemeral"}}`))
	}
	flush()
	return all
}

func anthropicMessage(role string, blocks [][]byte) []byte {
	var m object
	m.set("role", role)
	m.raw("content", list(blocks))
	return m.end()
}

func anthropicText(text string) []byte {
	var b object
	b.set("type", "text")
	b.set("text", text)
	return b.end()
}

// anthropicBlocks tells an answer anew.
func anthropicBlocks(h transcript.HistoryItem) [][]byte {
	var blocks [][]byte
	if !blank(h.Content) {
		blocks = append(blocks, anthropicText(h.Content))
	}
	for _, c := range h.ToolCalls {
		blocks = append(blocks, anthropicCall(wireWord(c.ID, maxCallID), wireWord(c.Name, maxToolName), []byte(arguments(c))))
	}
	return blocks
}

// anthropicCall is a call as it stands in a message. The API takes no input but
// an object; what else a model wrote it is told inside one.
func anthropicCall(id, name string, input []byte) []byte {
	if fields := map[string]json.RawMessage{}; json.Unmarshal(input, &fields) != nil || fields == nil {
		var o object
		o.set("input", string(input))
		input = o.end()
	}
	var b object
	b.set("type", "tool_use")
	b.set("id", id)
	b.set("name", name)
	b.raw("input", input)
	return b.end()
}

// anthropicAnswer is an answer while it comes.
type anthropicAnswer struct {
	emit  func(Delta)
	names map[string]string
	begun bool

	blocks []*anthropicBlock
	stop   string
	usage  struct {
		Input      int `json:"input_tokens"`
		Output     int `json:"output_tokens"`
		CacheRead  int `json:"cache_read_input_tokens"`
		CacheWrite int `json:"cache_creation_input_tokens"`
	}
}

// anthropicBlock is one block of an answer: as it began, and what was added.
type anthropicBlock struct {
	index     int
	start     json.RawMessage
	kind      string
	id, name  string
	text      strings.Builder // of a text or a thought; the input of a call
	signature strings.Builder
}

// Event takes one event.
func (a *anthropicAnswer) Event(e upstream.Event) error {
	var event struct {
		Type    string `json:"type"`
		Index   int    `json:"index"`
		Message struct {
			Usage json.RawMessage `json:"usage"`
		} `json:"message"`
		Block json.RawMessage `json:"content_block"`
		Delta struct {
			Type       string `json:"type"`
			Text       string `json:"text"`
			JSON       string `json:"partial_json"`
			Thinking   string `json:"thinking"`
			Signature  string `json:"signature"`
			StopReason string `json:"stop_reason"`
		} `json:"delta"`
		Usage json.RawMessage `json:"usage"`
	}
	if err := json.Unmarshal(e.Data, &event); err != nil {
		return fmt.Errorf("the answer is not what the API promises: %w", err)
	}
	count := func(usage json.RawMessage) error {
		if len(usage) == 0 || json.Unmarshal(usage, &a.usage) == nil { // what it does not have stays as it is
			return nil
		}
		return fmt.Errorf("the usage is not what the API promises: %s", usage)
	}
	switch event.Type {
	case "message_start":
		return count(event.Message.Usage)
	case "content_block_start":
		return a.begin(event.Index, event.Block)
	case "content_block_delta":
		b := a.block(event.Index)
		if b == nil {
			return fmt.Errorf("the answer adds to block %d, which it has not begun", event.Index)
		}
		d := event.Delta
		b.text.WriteString(d.Text + d.JSON + d.Thinking)
		b.signature.WriteString(d.Signature)
		a.show(DeltaText, d.Text)
		a.show(DeltaThought, d.Thinking)
	case "message_delta":
		a.stop = cmp.Or(event.Delta.StopReason, a.stop)
		return count(event.Usage)
	case "message_stop":
		return upstream.ErrDone
	case "error":
		if s := upstream.ParseError(e.Data); s != nil {
			return s
		}
		return &upstream.StatusError{Message: string(e.Data)}
	case "message": // all of it at once
		return a.whole(e.Data)
	}
	return nil // such as a ping
}

func (a *anthropicAnswer) show(kind DeltaKind, text string) {
	if text != "" {
		a.begun = true
		a.emit(Delta{Kind: kind, Text: text})
	}
}

func (a *anthropicAnswer) block(index int) *anthropicBlock {
	i := slices.IndexFunc(a.blocks, func(b *anthropicBlock) bool { return b.index == index })
	if i < 0 {
		return nil
	}
	return a.blocks[i]
}

// begin begins a block. It may have its text or its thought already; a call's
// input comes after it, unless it is all there.
func (a *anthropicAnswer) begin(index int, data json.RawMessage) error {
	var start struct {
		Type      string          `json:"type"`
		ID        string          `json:"id"`
		Name      string          `json:"name"`
		Text      string          `json:"text"`
		Thinking  string          `json:"thinking"`
		Signature string          `json:"signature"`
		Input     json.RawMessage `json:"input"`
	}
	if err := json.Unmarshal(data, &start); err != nil {
		return fmt.Errorf("a block is not what the API promises: %w", err)
	}
	b := &anthropicBlock{index: index, start: bytes.Clone(data), kind: start.Type, id: start.ID, name: start.Name}
	a.blocks = append(a.blocks, b)
	switch b.kind {
	case "text":
		b.text.WriteString(start.Text)
		a.show(DeltaText, start.Text)
	case "thinking":
		b.text.WriteString(start.Thinking)
		b.signature.WriteString(start.Signature)
		a.show(DeltaThought, start.Thinking)
	case "tool_use":
		if input := string(start.Input); input != "{}" && input != "null" {
			b.text.WriteString(input)
		}
	}
	return nil
}

// whole takes an answer that is no stream.
func (a *anthropicAnswer) whole(data []byte) error {
	var message struct {
		Content []json.RawMessage `json:"content"`
		Stop    string            `json:"stop_reason"`
		Usage   json.RawMessage   `json:"usage"`
	}
	if err := json.Unmarshal(data, &message); err != nil {
		return fmt.Errorf("the answer is not what the API promises: %w", err)
	}
	if len(message.Usage) > 0 {
		if err := json.Unmarshal(message.Usage, &a.usage); err != nil {
			return fmt.Errorf("the usage is not what the API promises: %w", err)
		}
	}
	a.stop = message.Stop
	for i, block := range message.Content {
		if err := a.begin(i, block); err != nil {
			return err
		}
	}
	return upstream.ErrDone
}

// End is where a stream ends that does not say so.
func (a *anthropicAnswer) End() error {
	if a.stop == "" {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// Begun reports whether people have seen something.
func (a *anthropicAnswer) Begun() bool { return a.begun }

// answer is the answer that has come.
func (a *anthropicAnswer) answer(c *anthropic) Answer {
	answer := Answer{Usage: Usage{
		InputTokens: a.usage.Input + a.usage.CacheRead + a.usage.CacheWrite, OutputTokens: a.usage.Output, CachedTokens: a.usage.CacheRead,
	}}
	standard := true
	var blocks [][]byte
	for _, b := range a.blocks {
		switch b.kind {
		case "text":
			answer.Text += b.text.String()
			if !blank(b.text.String()) {
				blocks = append(blocks, anthropicText(b.text.String()))
			}
		case "tool_use":
			input := cmp.Or(b.text.String(), "{}")
			blocks = append(blocks, anthropicCall(b.id, b.name, []byte(input)))
			call := transcript.ToolCall{ID: b.id, Name: cmp.Or(a.names[b.name], b.name), Arguments: json.RawMessage(input)}
			answer.ToolCalls = append(answer.ToolCalls, call)
			a.emit(Delta{Kind: DeltaTool, Call: call})
		case "thinking":
			var t object
			t.set("type", b.kind)
			t.set("thinking", b.text.String())
			t.set("signature", b.signature.String())
			blocks, standard = append(blocks, t.end()), false
		default:
			blocks, standard = append(blocks, b.start), false
		}
	}
	switch {
	case a.stop == "max_tokens":
		notice(a.emit, fmt.Sprintf("%s stopped in the middle: the answer is as long as it may be; models.providers.%s.maxTokens may be too small", c.Name(), c.id))
	case a.stop == "model_context_window_exceeded":
		notice(a.emit, fmt.Sprintf("%s stopped in the middle: this conversation fills all that it can read; /sess new begins another one, and this one stays", c.Name()))
	case a.stop == "refusal":
		notice(a.emit, fmt.Sprintf("%s stopped in the middle: the provider does not let it say more", c.Name()))
	case answer.Text == "" && len(answer.ToolCalls) == 0:
		notice(a.emit, fmt.Sprintf("%s said nothing", c.Name()))
	}
	if len(blocks) > 0 {
		answer.Native = c.native(anthropicMessage("assistant", blocks), anthropicMessage("assistant", anthropicBlocks(stored(answer))), standard)
	}
	return answer
}
