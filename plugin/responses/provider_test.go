package responses_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/plugin"
	"sess/plugin/responses"
	"sess/plugin/responses/responsestest"
	"sess/store/transcript"
)

// desk is a plugin, a server that it asks, and a conversation as a chat keeps it.
type desk struct {
	*testing.T
	*responses.Plugin
	server  *responsestest.Server
	to      plugin.Endpoint
	history []transcript.HistoryItem
	state   json.RawMessage
	tools   []plugin.Tool
	deltas  []plugin.Delta // of the last turn
}

func newDesk(t *testing.T, config string) *desk {
	t.Helper()
	d := &desk{T: t, Plugin: responses.New(responses.Options{Build: "b1"}), server: responsestest.New()}
	t.Cleanup(d.server.Close)
	d.to = plugin.Endpoint{
		Provider: "cloud", Model: "gpt-x", BaseURL: d.server.URL + "/v1", APIKey: "k3y-secret", KeyOrigin: "the variable K", MaxRetries: -1,
	}
	if err := d.Configure(t.Context(), plugin.Configuration{Config: json.RawMessage(config)}, nil); err != nil {
		t.Fatal(err)
	}
	return d
}

// read is a history as the disk gives it: encoded and decoded again.
func (d *desk) read() iter.Seq2[transcript.HistoryItem, error] {
	return func(yield func(transcript.HistoryItem, error) bool) {
		for _, item := range d.history {
			record, err := item.AppendJSON(nil)
			var stored transcript.HistoryItem
			if err == nil {
				err = json.Unmarshal(record, &stored)
			}
			if !yield(stored, err) {
				return
			}
		}
	}
}

// ask sends what stands in the history.
func (d *desk) ask(ctx context.Context) (plugin.TurnResult, error) {
	d.deltas = nil
	return d.Turn(ctx, d.to, plugin.TurnRequest{System: "be brief", History: d.read(), Tools: d.tools, State: d.state}, func(delta plugin.Delta) {
		d.deltas = append(d.deltas, delta)
	})
}

// say asks a question, and keeps the answer.
func (d *desk) say(text string) plugin.TurnResult {
	d.Helper()
	d.history = append(d.history, transcript.HistoryItem{Role: transcript.RoleUser, Content: text})
	return d.goOn()
}

func (d *desk) goOn() plugin.TurnResult {
	d.Helper()
	got, err := d.ask(d.Context())
	if err != nil {
		d.Fatalf("Turn: %v", err)
	}
	d.history = append(d.history, transcript.HistoryItem{Role: transcript.RoleAssistant, Content: got.Text, ToolCalls: got.ToolCalls, Native: got.Native})
	d.state = got.State
	return got
}

// inputs is the input of the last request.
func (d *desk) inputs() []string {
	var got []string
	for _, item := range d.server.Last().Body.Input {
		got = append(got, string(item))
	}
	return got
}

func (d *desk) equal(what string, want, got any) {
	d.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		d.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestAnAnswer(t *testing.T) {
	t.Parallel()
	d := newDesk(t, `{}`)
	d.to.MaxTokens, d.to.Parameters = 50, json.RawMessage(`{"reasoning":{"effort": "low"}}`)
	d.tools = []plugin.Tool{{Name: "look", Description: "looks", Schema: json.RawMessage(`{"type":"object"}`)}}
	d.server.Script(responsestest.Reply{Text: "hello", Thought: "hm", Calls: []responsestest.Call{{ID: "c1", Name: "look", Arguments: `{"a":1}`}}})
	got := d.say("hi <you>")

	req := d.server.Last()
	d.equal("path and key", []string{"/v1/responses", "k3y-secret"}, []string{req.Path, req.Key})
	d.equal("request", responsestest.Body{
		Model: "gpt-x", Instructions: "be brief", Stream: true, Include: []string{"reasoning.encrypted_content"}, MaxTokens: 50,
		Reasoning: json.RawMessage(`{"effort": "low"}`),
		Tools:     []json.RawMessage{json.RawMessage(`{"type":"function","name":"look","description":"looks","parameters":{"type":"object"},"strict":false}`)},
		Input:     []json.RawMessage{json.RawMessage(`{"role":"user","content":"hi \u003cyou\u003e"}`)},
	}, req.Body)
	call := transcript.ToolCall{ID: "c1", Name: "look", Arguments: json.RawMessage(`{"a":1}`)}
	d.equal("deltas", []plugin.Delta{
		{Kind: plugin.DeltaThought, Text: "hm"},
		{Kind: plugin.DeltaText, Text: "he"},
		{Kind: plugin.DeltaText, Text: "llo"},
		{Kind: plugin.DeltaTool, Call: call},
	}, d.deltas)
	d.equal("text and calls", plugin.TurnResult{Text: "hello", ToolCalls: []transcript.ToolCall{call}}, plugin.TurnResult{Text: got.Text, ToolCalls: got.ToolCalls})
	d.equal("usage", plugin.TokenUsage{InputTokens: 90, OutputTokens: 10}, got.Usage)
	d.equal("state", `{"provider":"cloud","tokens":100,"window":200000}`, string(got.State))
	if got.Native == nil || got.Native.Kind != "openai-responses:cloud" || len(got.Native.Items) != 3 {
		t.Errorf("native %+v, want reasoning, message and call", got.Native)
	}
}

// S0-03, S0-42: what the provider said goes back to it byte for byte, with the
// results of its calls, and nothing of it is kept there.
func TestTheWholeConversationGoesBackAsItWas(t *testing.T) {
	t.Parallel()
	d := newDesk(t, `{}`)
	d.server.Script(responsestest.Reply{
		Calls: []responsestest.Call{{ID: "c1", Name: "look", Arguments: `{"a": "<b>"}`}},
		Item:  `{"type":"new_kind","x":[1.0, 2e3,  "\u00e9\/"]}`,
	})
	first := d.say("hi")
	d.history = append(d.history, transcript.HistoryItem{Role: transcript.RoleTool, ToolCallID: "c1", Name: "look", Content: "saw <it>"})
	d.goOn()
	want := []string{`{"role":"user","content":"hi"}`}
	for _, item := range first.Native.Items {
		want = append(want, string(item))
	}
	want = append(want, `{"type":"function_call_output","call_id":"c1","output":"saw \u003cit\u003e"}`)
	d.equal("input", want, d.inputs())
	if !bytes.Contains(d.server.Last().Raw, []byte(`gAAA<1>&\u003c\/+é==`)) || !bytes.Contains(d.server.Last().Raw, []byte(`[1.0, 2e3,  "\u00e9\/"]`)) {
		t.Errorf("the bytes of the first answer are not in %s", d.server.Last().Raw)
	}
	if body := d.server.Last().Body; body.Store || body.Previous != "" {
		t.Errorf("the provider is asked to keep the answer: %+v", body)
	}
}

// With store a request names the last answer and sends what is new.
func TestAStoredAnswerIsGoneOnFrom(t *testing.T) {
	t.Parallel()
	d := newDesk(t, `{"store":true}`)
	first := d.say("one")
	if !strings.Contains(string(first.State), `"continuation":{"responseId":"resp_1","lastItem":"msg_1"}`) {
		t.Errorf("state %s", first.State)
	}
	d.say("two")
	body := d.server.Last().Body
	d.equal("previous answer", "resp_1", body.Previous)
	d.equal("what is new", []string{`{"role":"user","content":"two"}`}, d.inputs())
	whole := func(what string, items int) {
		t.Helper()
		if body := d.server.Last().Body; body.Previous != "" || len(body.Input) != items {
			t.Errorf("%s: went on from %q with %d items", what, body.Previous, len(body.Input))
		}
	}

	// Another provider's answer between is new to this one.
	before, state := slices.Clone(d.history), d.state
	d.history = append(d.history, transcript.HistoryItem{Role: transcript.RoleUser, Content: "x"}, transcript.HistoryItem{
		Role: transcript.RoleAssistant, Content: "y", Native: &transcript.Native{Kind: "other", Items: []json.RawMessage{json.RawMessage(`{"z":1}`)}},
	})
	d.say("three")
	d.equal("what is new", []string{`{"role":"user","content":"x"}`, `{"role":"assistant","content":"y"}`, `{"role":"user","content":"three"}`}, d.inputs())

	d.history, d.state = slices.Clone(before), state
	d.server.Forget()
	d.say("four")
	whole("an answer that the provider has forgotten", 7)
	if n := len(d.server.Requests()); n != 5 {
		t.Errorf("%d requests, want the forgotten one to be asked twice", n)
	}

	d.history, d.state = slices.Clone(before), nil
	d.say("five")
	whole("a conversation without its state", 7)

	d.history, d.state, d.to.Provider = slices.Clone(before), state, "other"
	d.say("six")
	whole("another provider, which cannot read the reasoning", 5)

	d.to.Provider, d.state = "cloud", state
	d.history = slices.Clone(before)
	d.history[3].Native = &transcript.Native{Kind: "openai-responses:cloud", Items: before[1].Native.Items}
	d.say("seven")
	whole("a conversation without the answer that the state is about", 7)
}

// A history of another provider, or with holes, is one that the API takes.
func TestHistoriesOfOthers(t *testing.T) {
	t.Parallel()
	d := newDesk(t, `{}`)
	d.history = []transcript.HistoryItem{
		{Role: transcript.RoleSystem, Content: "rules"},
		{Role: transcript.RoleTool, ToolCallID: "gone", Content: "a result without a call"},
		{Role: transcript.RoleUser, Content: "u"},
		{
			Role: transcript.RoleAssistant, Content: "a", Native: &transcript.Native{Kind: "anthropic", Items: []json.RawMessage{json.RawMessage(`{}`)}},
			ToolCalls: []transcript.ToolCall{{ID: "c1", Name: "t", Arguments: json.RawMessage(`{"x":1}`)}, {ID: "c2", Name: "t", Arguments: json.RawMessage(`"{no json"`)}},
		},
		{Role: transcript.RoleTool, ToolCallID: "c1", Content: "r"},
	}
	d.say("next")
	d.equal("input", []string{
		`{"role":"system","content":"rules"}`, `{"role":"user","content":"u"}`, `{"role":"assistant","content":"a"}`,
		`{"type":"function_call","call_id":"c1","name":"t","arguments":"{\"x\":1}"}`,
		`{"type":"function_call","call_id":"c2","name":"t","arguments":"{no json"}`,
		`{"type":"function_call_output","call_id":"c1","output":"r"}`,
		`{"type":"function_call_output","call_id":"c2","output":"interrupted"}`,
		`{"role":"user","content":"next"}`,
	}, d.inputs())
}

// A model that does not reason is asked once with what it refuses, and never again.
func TestAModelWithoutReasoning(t *testing.T) {
	t.Parallel()
	d := newDesk(t, `{}`)
	d.server.Script(responsestest.Reply{Status: 400, Error: `{"error":{"message":"Encrypted content is not supported with this model.","type":"invalid_request_error","param":"include","code":null}}`})
	d.say("one")
	d.say("two")
	var asked [][]string
	for _, r := range d.server.Requests() {
		asked = append(asked, r.Body.Include)
	}
	d.equal("include", [][]string{{"reasoning.encrypted_content"}, nil, nil}, asked)
}

func TestErrorsOfAnswers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		reply responsestest.Reply
		code  plugin.Code
		want  string // of the text
		said  string // what came until then
	}{
		{"a wrong key", responsestest.Reply{Status: 401, Error: `{"error":{"message":"Incorrect API key provided: k3y-secret","type":"invalid_request_error","code":"invalid_api_key"}}`}, plugin.Denied, "refuses the key of the variable K", ""},
		{"no such model", responsestest.Reply{Status: 404, Error: `{"error":{"message":"The model 'gpt-x' does not exist","type":"invalid_request_error","code":"model_not_found"}}`}, plugin.NotFound, "does not exist", ""},
		{"too many requests", responsestest.Reply{Status: 429, Error: `{"error":{"message":"slow down","type":"rate_limit","code":"rate_limit_exceeded"}}`}, plugin.Unavailable, "slow down", ""},
		{"too long", responsestest.Reply{Status: 400, Error: `{"error":{"message":"Your input exceeds the context window of this model.","type":"invalid_request_error","code":"context_length_exceeded"}}`}, plugin.Usage, "longer than the model can read", ""},
		{"trouble there", responsestest.Reply{Status: 503, Error: `oops`}, plugin.Unavailable, "oops", ""},
		{"a stream that breaks off", responsestest.Reply{Text: "half of it", Event: "cut"}, plugin.Unavailable, "the connection broke before the end of the answer", "half of it"},
		{"an answer that fails", responsestest.Reply{Text: "half of it", Event: `{"type":"response.failed","response":{"error":{"code":"server_error","message":"it broke"}}}`}, plugin.Unavailable, "it broke", "half of it"},
		{"one that is ended early", responsestest.Reply{Text: "half of it", Event: `{"type":"response.incomplete","response":{"incomplete_details":{"reason":"max_output_tokens"}}}`}, plugin.Unavailable, "max_output_tokens", "half of it"},
		{"an error as an event", responsestest.Reply{Text: "half of it", Event: `{"type":"error","code":"rate_limit_exceeded","message":"slow down","param":null}`}, plugin.Unavailable, "slow down", "half of it"},
		{"an event that is none", responsestest.Reply{Text: "half of it", Event: `{"type":`}, plugin.Unavailable, "no JSON", "half of it"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, `{}`)
			d.server.Script(test.reply)
			d.history = []transcript.HistoryItem{{Role: transcript.RoleUser, Content: "hi"}}
			got, err := d.ask(t.Context())
			e := plugin.AsError(err)
			if e == nil || e.Code != test.code || !strings.Contains(e.Message, test.want) || !strings.Contains(e.Message, "cloud/gpt-x") {
				t.Errorf("Turn = %+v, %v, want %s: … %s", got, err, test.code, test.want)
			}
			if test.name == "too long" && !strings.Contains(e.Hint, "sess context compact") {
				t.Errorf("the hint is %q", e.Hint)
			}
			if e != nil && (e.Hint == "" || strings.Contains(e.Text(), "k3y-secret")) {
				t.Errorf("the error is %q", e.Text())
			}
			var said strings.Builder
			for _, delta := range d.deltas {
				said.WriteString(delta.Text)
			}
			d.equal("said", test.said, said.String())
		})
	}
}

func TestACancelledAnswer(t *testing.T) {
	t.Parallel()
	d := newDesk(t, `{}`)
	begun := make(chan struct{})
	d.server.Script(responsestest.Reply{Text: "half of it", Begun: begun, Wait: make(chan struct{})})
	d.history = []transcript.HistoryItem{{Role: transcript.RoleUser, Content: "hi"}}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-begun
		cancel()
	}()
	if _, err := d.ask(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Turn = %v, want the cancellation", err)
	}
}

func TestParametersThatAreNone(t *testing.T) {
	t.Parallel()
	for parameters, want := range map[string]string{
		`{"input":[]}`:        "models.providers.cloud.parameters.input: this is filled in by the program; leave it out",
		`{"store":true}`:      "models.providers.cloud.parameters.store: this is filled in by the program; leave it out",
		`[]`:                  "models.providers.cloud.parameters: want an object",
		`{"temperature":0.5}`: "",
	} {
		d := newDesk(t, `{}`)
		d.to.Parameters = json.RawMessage(parameters)
		_, err := d.ask(t.Context())
		if got := plugin.AsError(err); want == "" && err != nil || want != "" && (got == nil || got.Text() != want) {
			t.Errorf("parameters %s: %v, want %q", parameters, err, want)
		}
	}
}

// What the provider makes of a conversation is kept as it is, but for line breaks.
func TestCompact(t *testing.T) {
	t.Parallel()
	d := newDesk(t, `{}`)
	d.say("one")
	d.say("two")
	got, err := d.Compact(t.Context(), d.to, plugin.CompactRequest{System: "be brief", History: d.read()})
	if err != nil {
		t.Fatal(err)
	}
	req := d.server.Last()
	d.equal("path", "/v1/responses/compact", req.Path)
	d.equal("model and instructions", []string{"gpt-x", "be brief"}, []string{req.Body.Model, req.Body.Instructions})
	if len(req.Body.Input) != 6 || got.Native.Kind != "openai-responses:cloud" || len(got.Native.Items) != 3 {
		t.Errorf("%d items became %d of the kind %q", len(req.Body.Input), len(got.Native.Items), got.Native.Kind)
	}
	d.equal("usage", plugin.TokenUsage{InputTokens: 1006, OutputTokens: 20}, got.Usage)

	d.history = []transcript.HistoryItem{{Role: transcript.RoleSystem, Content: "shorter", Native: &got.Native}}
	d.say("three")
	d.equal("the rest of the conversation", []string{
		`{"role":"user","content":"one"}`, `{"role":"user","content":"two"}`,
		strings.ReplaceAll(string(got.Native.Items[2]), "\n", " "),
		`{"role":"user","content":"three"}`,
	}, d.inputs())
	if !strings.Contains(d.inputs()[2], `zzz<3>&\u003c`) {
		t.Errorf("the compaction is %s", d.inputs()[2])
	}

	d.server.Script(responsestest.Reply{Status: 200, Error: `{"object":"response.compaction"}`}, responsestest.Reply{Status: 500, Error: `no`})
	for _, want := range []string{"has no output", "no (HTTP 500)"} {
		if _, err := d.Compact(t.Context(), d.to, plugin.CompactRequest{History: d.read()}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Compact = %v, want %q", err, want)
		}
	}
}
