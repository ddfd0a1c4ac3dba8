package responses

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"sess/plugin"
	"sess/plugin/upstream"
	"sess/store/transcript"
)

var _ plugin.Provider = (*Plugin)(nil)

// defaultURL is where OpenAI answers.
const defaultURL = "https://api.openai.com/v1"

// state is what an answer leaves behind for the next request.
type state struct {
	// Provider is the one that answered, by its id in the configuration.
	Provider string `json:"provider"`
	// Tokens is how many tokens the conversation had with the answer.
	Tokens int `json:"tokens"`
	// Window is how many the model takes.
	Window int `json:"window"`
	// Continuation is the answer that the provider keeps; nil where it keeps none.
	// Its key is the one that a copy of the conversation is not given.
	Continuation *continuation `json:"continuation,omitempty"`
}

type continuation struct {
	ResponseID string `json:"responseId"`
	// LastItem is the id of the answer's last item: what stands behind it in the
	// history is new to the provider.
	LastItem string `json:"lastItem"`
}

// turnFields are the fields of a request but for its input.
type turnFields struct {
	Model        string     `json:"model"`
	Instructions string     `json:"instructions,omitempty"`
	Stream       bool       `json:"stream"`
	Store        bool       `json:"store"`
	Previous     string     `json:"previous_response_id,omitempty"`
	Include      []string   `json:"include,omitempty"`
	MaxTokens    int        `json:"max_output_tokens,omitempty"`
	Tools        []toolItem `json:"tools,omitempty"`
}

// Turn asks for an answer. See [plugin.Provider].
func (p *Plugin) Turn(ctx context.Context, to plugin.Endpoint, req plugin.TurnRequest, emit func(plugin.Delta)) (plugin.TurnResult, error) {
	client, err := p.client(to)
	if err != nil {
		return plugin.TurnResult{}, err
	}
	var kept continuation
	var before state
	if p.config.Store && json.Unmarshal(req.State, &before) == nil && before.Provider == to.Provider && before.Continuation != nil {
		kept = *before.Continuation
	}
	in, err := readInput(to, req.History, kept.LastItem)
	if err != nil {
		return plugin.TurnResult{}, err
	}
	fields := turnFields{
		Model: to.Model, Instructions: req.System, Stream: true, Store: p.config.Store, MaxTokens: to.MaxTokens, Tools: tools(req.Tools),
	}
	if in.fresh > 0 {
		fields.Previous = kept.ResponseID
	}
	if !p.isPlain(to) {
		fields.Include = []string{"reasoning.encrypted_content"}
	}
	for {
		a, err := ask(ctx, client, to, fields, in, emit)
		refused, _ := errors.AsType[*upstream.StatusError](err)
		switch {
		case err == nil:
			return a.result(to, p.config.Store)
		case ctx.Err() != nil || a.Begun() || refused == nil:
			return plugin.TurnResult{}, err
		case fields.Previous != "" && (refused.Code == "previous_response_not_found" || refused.Param == "previous_response_id"):
			fields.Previous = "" // it forgot: tell it everything
		case fields.Include != nil && refused.Param == "include":
			fields.Include = nil // a model that does not reason
			p.notePlain(to)
		case refused.Code == "context_length_exceeded":
			return plugin.TurnResult{}, plugin.AsError(err).WithHint("make what it sees shorter with sess context compact, or go on with a model that reads more")
		default:
			return plugin.TurnResult{}, err
		}
	}
}

// client reaches an endpoint.
func (p *Plugin) client(to plugin.Endpoint) (*upstream.Client, error) {
	return upstream.New(upstream.Options{
		BaseURL: cmp.Or(to.BaseURL, defaultURL), Key: upstream.Key{Value: to.APIKey, Origin: to.KeyOrigin},
		Timeout: to.Timeout, Idle: to.IdleTimeout, MaxRetries: to.MaxRetries, Transport: p.transport,
	})
}

// ask sends a request and takes the answer, as far as it comes.
func ask(ctx context.Context, client *upstream.Client, to plugin.Endpoint, fields turnFields, in input, emit func(plugin.Delta)) (*answer, error) {
	a := &answer{emit: emit}
	items := in.items
	if fields.Previous != "" {
		items = items[in.fresh:]
	}
	data, err := body(to, fields, items)
	if err != nil {
		return a, err
	}
	err = client.Stream(ctx, upstream.Request{Model: to.Name(), Path: "/responses", Body: data, Notice: func(text string) {
		emit(plugin.Delta{Kind: plugin.DeltaNotice, Text: text})
	}}, func() upstream.Reader {
		a = &answer{emit: emit}
		return a
	})
	return a, err
}

// answer is an answer while it comes.
type answer struct {
	emit  func(plugin.Delta)
	begun bool

	text  strings.Builder
	part  string // what the end of the text belongs to
	items []json.RawMessage
	calls []transcript.ToolCall
	id    string
	usage usage
}

var _ upstream.Reader = (*answer)(nil)

type usage struct {
	Input  int `json:"input_tokens"`
	Output int `json:"output_tokens"`
	Of     struct {
		Cached int `json:"cached_tokens"`
	} `json:"input_tokens_details"`
}

func (u usage) tokens() plugin.TokenUsage {
	return plugin.TokenUsage{InputTokens: u.Input, OutputTokens: u.Output, CachedTokens: u.Of.Cached}
}

// event is what matters here of an event of the stream.
type event struct {
	Type    string          `json:"type"`
	Delta   string          `json:"delta"`
	ItemID  string          `json:"item_id"`
	Part    int             `json:"content_index"`
	Item    json.RawMessage `json:"item"`
	Code    string          `json:"code"` // of an error, as are Param and Message
	Param   string          `json:"param"`
	Message string          `json:"message"`

	Response struct {
		ID      string        `json:"id"`
		Usage   usage         `json:"usage"`
		Error   *errorDetails `json:"error"`
		Dropped struct {
			Reason string `json:"reason"`
		} `json:"incomplete_details"`
	} `json:"response"`
}

type errorDetails struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Begun reports whether some of the answer was shown.
func (a *answer) Begun() bool { return a.begun }

// End is the end of a stream without the last event.
func (a *answer) End() error { return io.ErrUnexpectedEOF }

// Event takes one event of the stream.
func (a *answer) Event(e upstream.Event) error {
	if e.Whole {
		return errors.New("the answer is one document, not a stream of events")
	}
	var ev event
	// An item may be anything; of an event that is not for us, too.
	if err := json.Unmarshal(e.Data, &ev); err != nil && !isTypeError(err) {
		return fmt.Errorf("an event of the answer is no JSON: %w", err)
	}
	switch ev.Type {
	case "response.output_text.delta", "response.refusal.delta":
		a.say(fmt.Sprintf("%s %d", ev.ItemID, ev.Part), ev.Delta)
	case "response.reasoning_summary_text.delta", "response.reasoning_text.delta":
		a.tell(plugin.Delta{Kind: plugin.DeltaThought, Text: ev.Delta})
	case "response.output_item.done":
		return a.take(ev.Item)
	case "response.completed":
		a.id, a.usage = ev.Response.ID, ev.Response.Usage
		return upstream.ErrDone
	case "response.incomplete":
		return &upstream.StatusError{Message: "the answer was ended early: " + cmp.Or(ev.Response.Dropped.Reason, "no reason was given")}
	case "response.failed":
		if ev.Response.Error == nil {
			return &upstream.StatusError{}
		}
		return &upstream.StatusError{Code: ev.Response.Error.Code, Message: ev.Response.Error.Message}
	case "error":
		if s := upstream.ParseError(e.Data); s != nil {
			return s
		}
		return &upstream.StatusError{Code: ev.Code, Param: ev.Param, Message: ev.Message}
	}
	return nil
}

func isTypeError(err error) bool {
	_, ok := errors.AsType[*json.UnmarshalTypeError](err)
	return ok
}

// take keeps a whole item of the answer, as it is.
func (a *answer) take(item json.RawMessage) error {
	var call struct {
		Type      string `json:"type"`
		CallID    string `json:"call_id"`
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	if err := json.Unmarshal(item, &call); err != nil && !isTypeError(err) {
		return fmt.Errorf("an item of the answer is no JSON: %w", err)
	}
	a.items = append(a.items, item)
	if call.Type == "function_call" {
		c := transcript.ToolCall{ID: call.CallID, Name: call.Name, Arguments: json.RawMessage(call.Arguments)}
		a.calls = append(a.calls, c)
		a.tell(plugin.Delta{Kind: plugin.DeltaTool, Call: c})
	}
	return nil
}

// say passes on a piece of text. What belongs to another part of the answer than
// the text before begins a paragraph.
func (a *answer) say(part, text string) {
	if text == "" {
		return
	}
	if a.text.Len() > 0 && part != a.part {
		text = "\n\n" + text
	}
	a.part = part
	a.text.WriteString(text)
	a.tell(plugin.Delta{Kind: plugin.DeltaText, Text: text})
}

func (a *answer) tell(d plugin.Delta) {
	a.begun = true
	a.emit(d)
}

// result is the answer, complete.
func (a *answer) result(to plugin.Endpoint, stored bool) (plugin.TurnResult, error) {
	after := state{Provider: to.Provider, Tokens: a.usage.Input + a.usage.Output, Window: cmp.Or(to.ContextWindow, defaultWindow)}
	if n := len(a.items); stored && n > 0 && a.id != "" {
		if last := itemID(a.items[n-1]); last != "" {
			after.Continuation = &continuation{a.id, last}
		}
	}
	data, err := json.Marshal(after)
	if err != nil {
		return plugin.TurnResult{}, fmt.Errorf("encode the state of the conversation: %w", err)
	}
	out := plugin.TurnResult{
		Text: a.text.String(), ToolCalls: a.calls, State: data,
		Usage: a.usage.tokens(),
	}
	if len(a.items) > 0 {
		out.Native = &transcript.Native{Kind: nativeKind(to), Items: a.items}
	}
	return out, nil
}

// Compact asks the provider to compact a history. See [plugin.Provider].
func (p *Plugin) Compact(ctx context.Context, to plugin.Endpoint, req plugin.CompactRequest) (plugin.CompactResult, error) {
	client, err := p.client(to)
	if err != nil {
		return plugin.CompactResult{}, err
	}
	in, err := readInput(to, req.History, "")
	if err != nil {
		return plugin.CompactResult{}, err
	}
	to.Parameters = nil // they are those of answers
	data, err := body(to, struct {
		Model        string `json:"model"`
		Instructions string `json:"instructions,omitempty"`
	}{to.Model, req.System}, in.items)
	if err != nil {
		return plugin.CompactResult{}, err
	}
	data, err = client.Post(ctx, upstream.Request{Model: to.Name(), Path: "/responses/compact", Body: data})
	if err != nil {
		return plugin.CompactResult{}, err
	}
	var got struct {
		Output []json.RawMessage `json:"output"`
		Usage  usage             `json:"usage"`
	}
	if err := json.Unmarshal(data, &got); err != nil || len(got.Output) == 0 {
		return plugin.CompactResult{}, plugin.Errorf(plugin.Unavailable, "model %s: the answer to a compaction has no output", to.Name()).
			WithHint("see that models.providers.%s.baseURL is where the OpenAI API is", to.Provider)
	}
	return plugin.CompactResult{
		Native: transcript.Native{Kind: nativeKind(to), Items: got.Output},
		Usage:  got.Usage.tokens(),
	}, nil
}
