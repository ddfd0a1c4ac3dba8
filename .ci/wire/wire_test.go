// Package wire holds the wire formats of models against the providers' own Go
// clients: they read what the provider of the tests sends, and they know every
// member of what the program sends. It is a module of its own, since the program
// is not built with them: their tables of types would slow down each start.
package wire

import (
	"encoding/json"
	"iter"
	"sess/host/models"
	"sess/host/models/modelstest"
	"sess/store/transcript"
	"slices"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// answer has all that an answer may have.
func answer(whole bool) modelstest.Answer {
	return modelstest.Answer{
		Thought: "let me see", Text: "I look <it> up.", Whole: whole, Usage: &modelstest.Usage{Input: 100, Output: 20, Cached: 40},
		Calls: []modelstest.Call{{ID: "c1", Name: "pad_manage", Arguments: `{"action":"list"}`}, {ID: "c2", Name: "pad_manage", Arguments: `{}`}},
	}
}

func server(t *testing.T, answers ...modelstest.Answer) *modelstest.Server {
	t.Helper()
	s := modelstest.New()
	t.Cleanup(s.Close)
	s.Answers(answers...)
	return s
}

func TestOpenAIReadsTheTestsProvider(t *testing.T) {
	s := server(t, answer(false), answer(true))
	client := openai.NewClient(option.WithBaseURL(s.URL+"/v1"), option.WithAPIKey("k"), option.WithMaxRetries(0))
	params := openai.ChatCompletionNewParams{Model: "m1", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")}}
	stream := client.Chat.Completions.NewStreaming(t.Context(), params)
	acc := openai.ChatCompletionAccumulator{}
	for stream.Next() {
		if !acc.AddChunk(stream.Current()) {
			t.Fatalf("a chunk does not belong there: %s", stream.Current().RawJSON())
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	whole, err := client.Chat.Completions.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []openai.ChatCompletion{acc.ChatCompletion, *whole} {
		if len(c.Choices) != 1 {
			t.Fatalf("%d choices", len(c.Choices))
		}
		m := c.Choices[0].Message
		var calls []modelstest.Call
		for _, call := range m.ToolCalls {
			calls = append(calls, modelstest.Call{ID: call.ID, Name: call.Function.Name, Arguments: call.Function.Arguments})
		}
		if diff := cmp.Diff(answer(false).Calls, calls); diff != "" || m.Content != answer(false).Text || c.Choices[0].FinishReason != "tool_calls" {
			t.Errorf("read %q, end %s, calls (-want +got):\n%s", m.Content, c.Choices[0].FinishReason, diff)
		}
		if u := c.Usage; u.PromptTokens != 100 || u.CompletionTokens != 20 || u.PromptTokensDetails.CachedTokens != 40 {
			t.Errorf("usage %+v", u)
		}
	}
}

func TestAnthropicReadsTheTestsProvider(t *testing.T) {
	s := server(t, answer(false), answer(true))
	client := anthropic.NewClient(anthropicoption.WithBaseURL(s.URL), anthropicoption.WithAPIKey("k"), anthropicoption.WithMaxRetries(0))
	params := anthropic.MessageNewParams{Model: "m1", MaxTokens: 10, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hi"))}}
	stream := client.Messages.NewStreaming(t.Context(), params)
	streamed := anthropic.Message{}
	for stream.Next() {
		if err := streamed.Accumulate(stream.Current()); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	whole, err := client.Messages.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []anthropic.Message{streamed, *whole} {
		var text, thought, signature string
		var calls []modelstest.Call
		for _, block := range m.Content {
			switch block.Type {
			case "text":
				text += block.Text
			case "thinking":
				thought, signature = block.Thinking, block.Signature
			case "tool_use":
				calls = append(calls, modelstest.Call{ID: block.ID, Name: block.Name, Arguments: string(block.Input)})
			}
		}
		if diff := cmp.Diff(answer(false).Calls, calls); diff != "" || text != answer(false).Text || thought != answer(false).Thought || signature != modelstest.Signature {
			t.Errorf("read %q, thought %q %q, calls (-want +got):\n%s", text, thought, signature, diff)
		}
		if u := m.Usage; m.StopReason != "tool_use" || u.InputTokens != 60 || u.CacheReadInputTokens != 40 || u.OutputTokens != 20 {
			t.Errorf("end %s, usage %+v", m.StopReason, u)
		}
	}
}

// What the program sends survives the way through the providers' own types: they
// know every member of it, but for those named in extra.
func TestRequestsAreTheAPIs(t *testing.T) {
	history := []transcript.HistoryItem{
		{Role: transcript.RoleSystem, Content: "The user is Ann."}, {Role: transcript.RoleUser, Content: "hi"},
	}
	tools := []models.Tool{{Name: "pad_manage", Description: "A pad", Schema: json.RawMessage(`{"type":"object","properties":{"action":{"type":"string"}},"required":["action"]}`)}}
	for _, tt := range []struct {
		kind  string
		extra []string
		read  func(body []byte) ([]byte, error)
	}{
		{"openai", []string{"stream", "reasoning_content"}, func(body []byte) ([]byte, error) {
			var p openai.ChatCompletionNewParams
			if err := json.Unmarshal(body, &p); err != nil {
				return nil, err
			}
			return json.Marshal(p)
		}},
		{"anthropic", []string{"stream"}, func(body []byte) ([]byte, error) {
			var p anthropic.MessageNewParams
			if err := json.Unmarshal(body, &p); err != nil {
				return nil, err
			}
			return json.Marshal(p)
		}},
	} {
		s := server(t, answer(false), modelstest.Answer{Text: "done"})
		base := s.URL
		if tt.kind == "openai" {
			base += "/v1"
		}
		model, err := models.Open("x/m1", models.Config{Providers: map[string]models.Provider{"x": {Kind: tt.kind, BaseURL: base, MaxTokens: 77}}})
		if err != nil {
			t.Fatal(err)
		}
		told := slices.Clone(history)
		for range 2 {
			a, err := model.Turn(t.Context(), models.Request{System: "Be brief.", History: sequence(told), Tools: tools}, func(models.Delta) {})
			if err != nil {
				t.Fatal(err)
			}
			told = append(told, transcript.HistoryItem{Role: transcript.RoleAssistant, Content: a.Text, ToolCalls: a.ToolCalls, Native: a.Native})
			for _, call := range a.ToolCalls {
				told = append(told, transcript.HistoryItem{Role: transcript.RoleTool, ToolCallID: call.ID, Content: "none"})
			}
		}
		for i, r := range s.Requests() {
			again, err := tt.read(r.Body)
			if err != nil {
				t.Errorf("%s, request %d: %v\n%s", tt.kind, i, err, r.Body)
				continue
			}
			if diff := cmp.Diff(value(t, r.Body, tt.extra), value(t, again, tt.extra)); diff != "" {
				t.Errorf("%s, request %d (-sent +known):\n%s", tt.kind, i, diff)
			}
		}
	}
}

func sequence(items []transcript.HistoryItem) iter.Seq2[transcript.HistoryItem, error] {
	return func(yield func(transcript.HistoryItem, error) bool) {
		for _, item := range items {
			if !yield(item, nil) {
				return
			}
		}
	}
}

// value is a JSON value without the members of its objects that are named.
func value(t *testing.T, data []byte, without []string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	var strip func(v any)
	strip = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, name := range without {
				delete(v, name)
			}
			for _, inner := range v {
				strip(inner)
			}
		case []any:
			for _, inner := range v {
				strip(inner)
			}
		}
	}
	strip(v)
	return v
}
