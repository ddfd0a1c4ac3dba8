package models_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sess/host/models"
	"sess/host/models/modelstest"
	"sess/plugin"
	"sess/store/transcript"
)

const key = "k-t0p-secret"

// desk is a provider with two models that speak to it, one in each format.
type desk struct {
	*modelstest.Server
	config models.Config
}

func newDesk(t *testing.T, answers ...modelstest.Answer) *desk {
	t.Helper()
	s := modelstest.New()
	t.Cleanup(s.Close)
	s.Answers(answers...)
	return &desk{s, models.Config{
		Providers: map[string]models.Provider{
			"oa": {Kind: "openai", BaseURL: s.URL + "/v1", APIKeyEnv: "KEY", Model: "m1"},
			"an": {Kind: "anthropic", BaseURL: s.URL, APIKeyEnv: "KEY", Model: "m1"},
		},
		Getenv: func(name string) string { return map[string]string{"KEY": key}[name] },
	}}
}

// change changes what is configured of a provider.
func (d *desk) change(id string, how func(p *models.Provider)) {
	p := d.config.Providers[id]
	how(&p)
	d.config.Providers[id] = p
}

// said is what came of a request.
type said struct {
	answer  models.Answer
	stream  string // texts; thoughts in brackets
	calls   []transcript.ToolCall
	notices []string
	err     error
}

func (d *desk) ask(ctx context.Context, t *testing.T, model string, req models.Request) said {
	t.Helper()
	m, err := models.Open(model, d.config)
	if err != nil {
		t.Fatalf("Open(%q): %v", model, err)
	}
	return ask(ctx, m, req)
}

func ask(ctx context.Context, m models.Model, req models.Request) said {
	var s said
	thinking := false
	s.answer, s.err = m.Turn(ctx, req, func(delta models.Delta) {
		if now := delta.Kind == models.DeltaThought; now != thinking {
			s.stream += map[bool]string{true: "(", false: ")"}[now]
			thinking = now
		}
		switch delta.Kind {
		case models.DeltaText, models.DeltaThought:
			s.stream += delta.Text
		case models.DeltaTool:
			s.calls = append(s.calls, delta.Call)
		case models.DeltaNotice:
			s.notices = append(s.notices, delta.Text)
		}
	})
	return s
}

func assistant(text string, calls ...transcript.ToolCall) transcript.HistoryItem {
	return transcript.HistoryItem{Role: transcript.RoleAssistant, Content: text, ToolCalls: calls}
}

func call(id, name, arguments string) transcript.ToolCall {
	return transcript.ToolCall{ID: id, Name: name, Arguments: json.RawMessage(arguments)}
}

func result(id, text string) transcript.HistoryItem {
	return transcript.HistoryItem{Role: transcript.RoleTool, ToolCallID: id, Content: text}
}

// next is the history with an answer and what follows it, after a way over the
// disk.
func next(t *testing.T, items []transcript.HistoryItem, a models.Answer, then ...transcript.HistoryItem) []transcript.HistoryItem {
	t.Helper()
	item := transcript.HistoryItem{Role: transcript.RoleAssistant, Content: a.Text, ToolCalls: slices.Clone(a.ToolCalls), Native: a.Native}
	for i, c := range item.ToolCalls {
		if !json.Valid(c.Arguments) { // as a chat stores them
			item.ToolCalls[i].Arguments, _ = json.Marshal(string(c.Arguments))
		}
	}
	r, err := item.AppendJSON(nil)
	if err != nil {
		t.Fatalf("store the answer: %v", err)
	}
	var stored transcript.HistoryItem
	if err := json.Unmarshal(r, &stored); err != nil {
		t.Fatalf("read the answer: %v", err)
	}
	return slices.Concat(items, []transcript.HistoryItem{stored}, then)
}

// body is the one request of a desk.
func (d *desk) body(t *testing.T) string {
	t.Helper()
	all := d.Requests()
	if len(all) == 0 {
		t.Fatal("no request came")
	}
	return string(all[len(all)-1].Body)
}

// member is a member of the last request, as it was sent.
func (d *desk) member(t *testing.T, name string) string {
	t.Helper()
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(d.body(t)), &all); err != nil {
		t.Fatalf("the request is no JSON: %v\n%s", err, d.body(t))
	}
	return string(all[name])
}

func pad() []models.Tool {
	return []models.Tool{{Name: "pad_manage", Description: "A pad <of notes>", Schema: json.RawMessage(`{"type":"object","properties":{"action":{"type":"string"}}}`)}}
}

// Both formats carry the same conversation.
func TestRemoteAnswers(t *testing.T) {
	t.Parallel()
	for _, provider := range []string{"oa", "an"} {
		for _, whole := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s whole=%v", provider, whole), func(t *testing.T) {
				t.Parallel()
				d := newDesk(
					t,
					modelstest.Answer{Thought: "let me see", Text: "I look <it> up.", Calls: []modelstest.Call{{ID: "c1", Name: "pad_manage", Arguments: `{"action":"list"}`}, {ID: "c2", Name: "pad_manage", Arguments: ""}}, Usage: &modelstest.Usage{Input: 100, Output: 20, Cached: 40}, Whole: whole},
					modelstest.Answer{Text: "There is nothing.", Whole: whole},
				)
				items := []transcript.HistoryItem{user("what is there?")}
				s := d.ask(t.Context(), t, provider, models.Request{System: "Be brief.", History: history(items...), Tools: pad()})
				if s.err != nil || s.notices != nil {
					t.Fatalf("Turn: %v, notices %q", s.err, s.notices)
				}
				if want := "(let me see)I look <it> up."; s.stream != want || s.answer.Text != "I look <it> up." {
					t.Errorf("streamed %q, answer %q, want %q", s.stream, s.answer.Text, want)
				}
				calls := []transcript.ToolCall{call("c1", "pad_manage", `{"action":"list"}`), call("c2", "pad_manage", `{}`)}
				if diff := cmp.Diff(calls, s.answer.ToolCalls); diff != "" {
					t.Errorf("calls (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(calls, s.calls); diff != "" {
					t.Errorf("streamed calls (-want +got):\n%s", diff)
				}
				if want := (models.Usage{InputTokens: 100, OutputTokens: 20, CachedTokens: 40}); s.answer.Usage != want {
					t.Errorf("usage %+v, want %+v", s.answer.Usage, want)
				}
				request := d.Requests()[0]
				if !strings.Contains(fmt.Sprint(request.Header), key) || strings.Contains(string(request.Body), key) {
					t.Errorf("the key is not in the header alone: %v", request.Header)
				}
				items = next(t, items, s.answer, result("c1", "none"), result("c2", "no action"))
				s = d.ask(t.Context(), t, provider, models.Request{System: "Be brief.", History: history(items...), Tools: pad()})
				if s.err != nil || s.answer.Text != "There is nothing." || s.answer.ToolCalls != nil || s.answer.Native != nil || s.answer.Usage != (models.Usage{}) {
					t.Errorf("then: %+v, %v", s.answer, s.err)
				}
				if !strings.Contains(d.body(t), string(items[1].Native.Items[0])) {
					t.Errorf("the second request does not have the native item %s:\n%s", items[1].Native.Items[0], d.body(t))
				}
			})
		}
	}
}

func TestOpenAIRequest(t *testing.T) {
	t.Parallel()
	d := newDesk(t, modelstest.Answer{Text: "hm"})
	d.change("oa", func(p *models.Provider) {
		p.MaxTokens, p.Parameters = 50, map[string]json.RawMessage{"temperature": json.RawMessage(`0.50`), "reasoning_effort": json.RawMessage(`"low"`)}
	})
	s := d.ask(t.Context(), t, "oa", models.Request{
		System: "Be <brief>.", Tools: pad(),
		History: history(user("hi"), assistant("", call("c1", "pad_manage", `{"action":"list"}`), call("c2", "pad_manage", `"{\"act"`)), result("c2", "error"), result("c1", "none"), assistant("Nothing."), user("ok")),
	})
	if s.err != nil {
		t.Fatal(s.err)
	}
	want := `{"model":"m1","messages":[{"role":"system","content":"Be <brief>."},{"role":"user","content":"hi"},` +
		`{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"pad_manage","arguments":"{\"action\":\"list\"}"}},{"id":"c2","type":"function","function":{"name":"pad_manage","arguments":"{\"act"}}]},` +
		`{"role":"tool","tool_call_id":"c1","content":"none"},{"role":"tool","tool_call_id":"c2","content":"error"},` +
		`{"role":"assistant","content":"Nothing."},{"role":"user","content":"ok"}],` +
		`"tools":[{"type":"function","function":{"name":"pad_manage","description":"A pad <of notes>","parameters":{"type":"object","properties":{"action":{"type":"string"}}}}}],` +
		`"stream":true,"stream_options":{"include_usage":true},"max_tokens":50,"reasoning_effort":"low","temperature":0.50}`
	if diff := cmp.Diff(want, d.body(t)); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	if r := d.Requests()[0]; r.Path != "/v1/chat/completions" || r.Header.Get("Authorization") != "Bearer "+key {
		t.Errorf("request to %s with %v", r.Path, r.Header)
	}
}

func TestAnthropicRequest(t *testing.T) {
	t.Parallel()
	d := newDesk(t, modelstest.Answer{Text: "hm"})
	d.change("an", func(p *models.Provider) {
		p.BaseURL += "/v1/" // with the version is as good as without
		p.Parameters = map[string]json.RawMessage{"thinking": json.RawMessage(`{"type":"enabled","budget_tokens":2048}`)}
	})
	s := d.ask(t.Context(), t, "an", models.Request{
		System: "Be <brief>.", Tools: pad(),
		History: history(
			user("hi"), transcript.HistoryItem{Role: transcript.RoleSystem, Content: "The user is Ann."}, assistant("  ", call("c1", "pad_manage", `{"action":"list"}`), call("c2", "pad_manage", `"{\"act"`)),
			result("c2", "error"), result("c1", " "), user("and?"), assistant("Nothing."), user(" \n"), user("ok"),
		),
	})
	if s.err != nil {
		t.Fatal(s.err)
	}
	want := `{"model":"m1","max_tokens":8192,"system":[{"type":"text","text":"Be <brief>.\n\nThe user is Ann."}],"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]},` +
		`{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"pad_manage","input":{"action":"list"}},{"type":"tool_use","id":"c2","name":"pad_manage","input":{"input":"{\"act"}}]},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1"},{"type":"tool_result","tool_use_id":"c2","content":[{"type":"text","text":"error"}]},{"type":"text","text":"and?"}]},` +
		`{"role":"assistant","content":[{"type":"text","text":"Nothing."}]},{"role":"user","content":[{"type":"text","text":"ok","cache_control":{"type":"ephemeral"}}]}],` +
		`"tools":[{"name":"pad_manage","description":"A pad <of notes>","input_schema":{"type":"object","properties":{"action":{"type":"string"}}}}],"stream":true,"thinking":{"type":"enabled","budget_tokens":2048}}`
	if diff := cmp.Diff(want, d.body(t)); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	if r := d.Requests()[0]; r.Path != "/v1/messages" || r.Header.Get("X-Api-Key") != key || r.Header.Get("Authorization") != "" || r.Header.Get("Anthropic-Version") != "2023-06-01" {
		t.Errorf("request to %s with %v", r.Path, r.Header)
	}
}

// The Messages API begins with the user, and wants to know tools that were called
// even if they are gone.
func TestAnthropicOddHistories(t *testing.T) {
	t.Parallel()
	d := newDesk(t, modelstest.Answer{Text: "hm"})
	d.ask(t.Context(), t, "an", models.Request{History: history(assistant("", call("c1", "gone.tool", `{}`)), result("c1", "x"), user("ok"))})
	if got := d.member(t, "messages"); !strings.HasPrefix(got, `[{"role":"user","content":[{"type":"text","text":"(What was said before is not here.)"}]},{"role":"assistant",`) {
		t.Errorf("messages %s", got)
	}
	name := "gone_tool_" + hash("gone.tool")
	if got := d.member(t, "tools"); got != `[{"name":"`+name+`","description":"This tool is not here any more.","input_schema":{"type":"object"}}]` {
		t.Errorf("tools %s", got)
	}
	if got := d.member(t, "tool_choice"); got != `{"type":"none"}` {
		t.Errorf("tool choice %s", got)
	}
}

// A call without a result is told as interrupted, a result without a call is not
// told, and one that comes late stands where it belongs. Nothing of that is
// written down.
func TestRepairedHistory(t *testing.T) {
	t.Parallel()
	one, two := call("c1", "pad_manage", `{}`), call("c2", "pad_manage", `{}`)
	for _, tt := range []struct {
		rule    string
		history []transcript.HistoryItem
		want    []string // what the model is told, in short
		notices []string
	}{
		{"a healthy pair", []transcript.HistoryItem{user("a"), assistant("", one), result("c1", "x"), user("b")}, []string{"user a", "calls c1", "c1 x", "user b"}, nil},
		{"ends with a call", []transcript.HistoryItem{user("a"), assistant("", one)}, []string{"user a", "calls c1", "c1 interrupted"}, []string{"1 call of a tool has no result; the model is told that they were interrupted"}},
		{"a call, then the user", []transcript.HistoryItem{assistant("", one), user("b")}, []string{"calls c1", "c1 interrupted", "user b"}, []string{"1 call of a tool has no result; the model is told that they were interrupted"}},
		{"a result of no call", []transcript.HistoryItem{user("a"), result("zz", "x"), user("b")}, []string{"user a", "user b"}, nil},
		{"two calls, one answered", []transcript.HistoryItem{assistant("", one, two), result("c2", "y"), user("b")}, []string{"calls c1 c2", "c1 interrupted", "c2 y", "user b"}, []string{"1 call of a tool has no result; the model is told that they were interrupted"}},
		{"none answered", []transcript.HistoryItem{assistant("", one, two), user("b")}, []string{"calls c1 c2", "c1 interrupted", "c2 interrupted", "user b"}, []string{"2 calls of tools have no result; the model is told that they were interrupted"}},
		{"a late result", []transcript.HistoryItem{assistant("", one), user("b"), result("c1", "x")}, []string{"calls c1", "c1 x", "user b"}, nil},
		{"an id that comes again", []transcript.HistoryItem{assistant("", one), result("c1", "x"), assistant("", one), result("c1", "y")}, []string{"calls c1", "c1 x", "calls c1", "c1 y"}, nil},
		{"two results", []transcript.HistoryItem{assistant("", one), result("c1", "x"), result("c1", "y"), user("b")}, []string{"calls c1", "c1 x", "user b"}, nil},
		{"nothing said", []transcript.HistoryItem{user("a"), assistant(""), user(""), user("b")}, []string{"user a", "user b"}, nil},
		{"unknown items", []transcript.HistoryItem{user("a"), {Role: "critic", Content: "no"}, {}}, []string{"user a"}, []string{"2 items of the history are of a form that this version does not know; the model is not told of them"}},
		{
			"items of another provider alone",
			[]transcript.HistoryItem{user("a"), {Role: transcript.RoleAssistant, Native: &transcript.Native{Kind: "alien", Items: []json.RawMessage{json.RawMessage(`{"secret":1}`)}}}, user("b")},
			[]string{"user a", "user b"},
			[]string{"1 item of the history makes sense to the provider kind alien alone; the model is not told of them"},
		},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, modelstest.Answer{Text: "ok"}, modelstest.Answer{Text: "ok"})
			s := d.ask(t.Context(), t, "oa", models.Request{History: history(tt.history...)})
			if diff := cmp.Diff(tt.want, openAIWords(t, d.member(t, "messages"))); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.notices, s.notices); diff != "" || s.err != nil {
				t.Errorf("notices (-want +got):\n%s, error %v", diff, s.err)
			}
			d.ask(t.Context(), t, "an", models.Request{History: history(tt.history...), Tools: pad()})
			if diff := cmp.Diff(tt.want, anthropicWords(t, d.member(t, "messages"))); diff != "" {
				t.Errorf("told over Messages (-want +got):\n%s", diff)
			}
		})
	}
}

func openAIWords(t *testing.T, messages string) []string {
	t.Helper()
	var all []struct {
		Role, Content string
		ToolCallID    string                `json:"tool_call_id"`
		ToolCalls     []struct{ ID string } `json:"tool_calls"`
	}
	if err := json.Unmarshal([]byte(messages), &all); err != nil {
		t.Fatalf("messages: %v", err)
	}
	var words []string
	for _, m := range all {
		switch {
		case m.ToolCallID != "":
			words = append(words, m.ToolCallID+" "+m.Content)
		case m.ToolCalls != nil:
			var line strings.Builder
			line.WriteString("calls")
			for _, c := range m.ToolCalls {
				line.WriteString(" " + c.ID)
			}
			words = append(words, line.String())
		default:
			words = append(words, m.Role+" "+m.Content)
		}
	}
	return words
}

func anthropicWords(t *testing.T, messages string) []string {
	t.Helper()
	var all []struct {
		Role    string
		Content []struct {
			Type, Text, ID string
			Content        []struct{ Text string }
			ToolUseID      string `json:"tool_use_id"`
		}
	}
	if err := json.Unmarshal([]byte(messages), &all); err != nil {
		t.Fatalf("messages: %v", err)
	}
	var words []string
	for i, m := range all {
		if i == 0 && m.Role != "user" || i > 0 && all[i-1].Role == m.Role {
			t.Errorf("message %d is of %s: they have to take turns, and the user begins", i, m.Role)
		}
		var calls strings.Builder
		for _, b := range m.Content {
			switch {
			case b.Type == "tool_result":
				words = append(words, b.ToolUseID+" "+b.Content[0].Text)
			case b.Type == "tool_use":
				calls.WriteString(" " + b.ID)
			case b.Text != "(What was said before is not here.)":
				words = append(words, m.Role+" "+b.Text)
			}
		}
		if calls.Len() > 0 {
			words = append(words, "calls"+calls.String())
		}
	}
	return words
}

// A conversation goes on with another provider and comes back: each is told its
// own words as they were, and those of others anew.
func TestSwitchingModels(t *testing.T) {
	t.Parallel()
	thinks := func(n int) modelstest.Answer {
		id := fmt.Sprintf("c%d", n)
		return modelstest.Answer{Thought: "hm", Text: "one moment", Calls: []modelstest.Call{{ID: id, Name: "pad_manage", Arguments: `{ "action": "list" }`}}}
	}
	d := newDesk(t, thinks(1), thinks(2), modelstest.Answer{Text: "x"}, modelstest.Answer{Text: "x"})
	items := []transcript.HistoryItem{user("a")}
	items = next(t, items, d.ask(t.Context(), t, "oa", models.Request{History: history(items...), Tools: pad()}).answer, result("c1", "r1"), user("b"))
	items = next(t, items, d.ask(t.Context(), t, "an", models.Request{History: history(items...), Tools: pad()}).answer, result("c2", "r2"), user("c"))

	if s := d.ask(t.Context(), t, "oa", models.Request{History: history(items...)}); s.err != nil || s.notices != nil {
		t.Fatalf("back at the first: %v, %q", s.err, s.notices)
	}
	want := `[{"role":"user","content":"a"},` +
		`{"role":"assistant","content":"one moment","reasoning_content":"hm","tool_calls":[{"id":"c1","type":"function","function":{"name":"pad_manage","arguments":"{ \"action\": \"list\" }"}}]},` +
		`{"role":"tool","tool_call_id":"c1","content":"r1"},{"role":"user","content":"b"},` +
		`{"role":"assistant","content":"one moment","tool_calls":[{"id":"c2","type":"function","function":{"name":"pad_manage","arguments":"{\"action\":\"list\"}"}}]},` +
		`{"role":"tool","tool_call_id":"c2","content":"r2"},{"role":"user","content":"c"}]`
	if diff := cmp.Diff(want, d.member(t, "messages")); diff != "" {
		t.Errorf("the first is told (-want +got):\n%s", diff)
	}
	d.ask(t.Context(), t, "an", models.Request{History: history(items...), Tools: pad()})
	want = `[{"role":"user","content":[{"type":"text","text":"a"}]},` +
		`{"role":"assistant","content":[{"type":"text","text":"one moment"},{"type":"tool_use","id":"c1","name":"pad_manage","input":{"action":"list"}}]},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"r1"}]},{"type":"text","text":"b"}]},` +
		`{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"` + modelstest.Signature + `"},{"type":"text","text":"one moment"},{"type":"tool_use","id":"c2","name":"pad_manage","input":{ "action": "list" }}]},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"c2","content":[{"type":"text","text":"r2"}]},{"type":"text","text":"c","cache_control":{"type":"ephemeral"}}]}]`
	if diff := cmp.Diff(want, d.member(t, "messages")); diff != "" {
		t.Errorf("the second is told (-want +got):\n%s", diff)
	}
}

// Whoever changed an item of history may have left its native words as they were:
// where they ask for other calls they are not sent, as no results would follow.
func TestNativeWordsOfAChangedItem(t *testing.T) {
	t.Parallel()
	for _, provider := range []string{"oa", "an"} {
		d := newDesk(t, modelstest.Answer{Thought: "hm", Text: "one moment", Calls: []modelstest.Call{{ID: "c1", Name: "pad_manage", Arguments: `{}`}, {ID: "c2", Name: "pad_manage", Arguments: `{}`}}}, modelstest.Answer{Text: "x"}, modelstest.Answer{Text: "x"})
		items := []transcript.HistoryItem{user("a")}
		items = next(t, items, d.ask(t.Context(), t, provider, models.Request{History: history(items...), Tools: pad()}).answer, result("c1", "r1"), user("b"))
		items[1].ToolCalls = items[1].ToolCalls[:1]
		d.ask(t.Context(), t, provider, models.Request{History: history(items...), Tools: pad()})
		if got := d.member(t, "messages"); strings.Contains(got, "c2") || strings.Contains(got, "hm") || strings.Count(got, `"c1"`) != 2 {
			t.Errorf("%s is told %s", provider, got)
		}
		items[1].Native.Items[0] = json.RawMessage(`"spoiled"`)
		d.ask(t.Context(), t, provider, models.Request{History: history(items...), Tools: pad()})
		if got := d.member(t, "messages"); strings.Contains(got, "spoiled") || strings.Count(got, `"c1"`) != 2 {
			t.Errorf("%s is told %s", provider, got)
		}
	}
}

// What a server adds to the format goes back to it, and to nobody else.
func TestWordsForOneServerAlone(t *testing.T) {
	t.Parallel()
	d := newDesk(t, modelstest.Answer{Events: []string{
		`{"choices":[{"index":0,"delta":{"reasoning_details":[{"type":"reasoning.encrypted","data":"A=="}]}}]}`,
		`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"pad_manage","arguments":"{}"},"extra_content":{"google":{"thought_signature":"x+/="}}}]}}]}`,
		`{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`, `[DONE]`,
	}}, modelstest.Answer{Text: "x"}, modelstest.Answer{Text: "x"})
	d.config.Providers["other"] = d.config.Providers["oa"]
	items := []transcript.HistoryItem{user("a")}
	items = next(t, items, d.ask(t.Context(), t, "oa", models.Request{History: history(items...), Tools: pad()}).answer, result("c1", "r1"))
	d.ask(t.Context(), t, "oa", models.Request{History: history(items...)})
	own := `{"role":"assistant","reasoning_details":[{"type":"reasoning.encrypted","data":"A=="}],"tool_calls":[{"id":"c1","type":"function","function":{"name":"pad_manage","arguments":"{}"},"extra_content":{"google":{"thought_signature":"x+/="}}}]}`
	if got := d.member(t, "messages"); !strings.Contains(got, own) {
		t.Errorf("its own words are not in %s", got)
	}
	d.ask(t.Context(), t, "other", models.Request{History: history(items...)})
	if got := d.member(t, "messages"); strings.Contains(got, "extra_content") || strings.Contains(got, "reasoning_details") || !strings.Contains(got, `"tool_calls":[{"id":"c1"`) {
		t.Errorf("another server is told %s", got)
	}
}

// Servers that speak the format of OpenAI do so in their own ways.
func TestServersOddities(t *testing.T) {
	t.Parallel()
	chunk := func(delta, finish string) string {
		if finish != "" {
			finish = `,"finish_reason":"` + finish + `"`
		}
		return `{"choices":[{"index":0,"delta":` + delta + finish + `}]}`
	}
	for _, tt := range []struct {
		rule   string
		events []string
		stream string
		calls  []transcript.ToolCall // an empty id stands for any
		usage  models.Usage
		notice string // the beginning of the only one
	}{
		{"no [DONE]", []string{chunk(`{"content":"a"}`, ""), chunk(`{}`, "stop")}, "a", nil, models.Usage{}, ""},
		{"[DONE] alone says that it ends", []string{chunk(`{"content":"a"}`, ""), "[DONE]"}, "a", nil, models.Usage{}, ""},
		{"a thought by another name", []string{chunk(`{"reasoning":"t"}`, ""), chunk(`{"content":"a"}`, "stop")}, "(t)a", nil, models.Usage{}, ""},
		{"a thought in parts of the content", []string{chunk(`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"t"}]}]}`, ""), chunk(`{"content":[{"type":"text","text":"a"}]}`, "stop")}, "(t)a", nil, models.Usage{}, ""},
		{"null for nothing", []string{chunk(`{"content":null,"tool_calls":null}`, ""), chunk(`{"content":"a"}`, "stop"), `{"choices":[],"usage":null}`}, "a", nil, models.Usage{}, ""},
		{"usage in every chunk", []string{`{"choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"prompt_tokens":7,"completion_tokens":1}}`, `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":2,"prompt_cache_hit_tokens":3}}`}, "a", nil, models.Usage{InputTokens: 7, OutputTokens: 2, CachedTokens: 3}, ""},
		{"other choices", []string{`{"choices":[{"index":1,"delta":{"content":"b"}},{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}`}, "a", nil, models.Usage{}, ""},
		{"a whole call without a number and an id", []string{chunk(`{"tool_calls":[{"function":{"name":"pad_manage","arguments":"{\"a\":1}"}}]}`, "stop")}, "", []transcript.ToolCall{call("", "pad_manage", `{"a":1}`)}, models.Usage{}, ""},
		{"two such calls", []string{chunk(`{"tool_calls":[{"function":{"name":"a","arguments":"{}"}},{"function":{"name":"b","arguments":"{}"}}]}`, "tool_calls")}, "", []transcript.ToolCall{call("", "a", `{}`), call("", "b", `{}`)}, models.Usage{}, ""},
		{"calls that all have the number 0", []string{chunk(`{"tool_calls":[{"index":0,"id":"x","function":{"name":"a","arguments":"{}"}}]}`, ""), chunk(`{"tool_calls":[{"index":0,"id":"y","function":{"name":"b","arguments":"{}"}}]}`, "tool_calls")}, "", []transcript.ToolCall{call("x", "a", `{}`), call("y", "b", `{}`)}, models.Usage{}, ""},
		{"calls that all have one id", []string{chunk(`{"tool_calls":[{"index":0,"id":"x","function":{"name":"a","arguments":"{}"}},{"index":1,"id":"x","function":{"name":"b","arguments":"{}"}}]}`, "tool_calls")}, "", []transcript.ToolCall{call("x", "a", `{}`), call("", "b", `{}`)}, models.Usage{}, ""},
		{"calls side by side", []string{chunk(`{"tool_calls":[{"index":0,"id":"x","function":{"name":"a","arguments":""}},{"index":1,"id":"y","function":{"name":"b","arguments":""}}]}`, ""), chunk(`{"tool_calls":[{"index":1,"function":{"arguments":"{\"q\":"}},{"index":0,"function":{"arguments":"{}"}}]}`, ""), chunk(`{"tool_calls":[{"index":1,"function":{"arguments":"2}"}}]}`, "tool_calls")}, "", []transcript.ToolCall{call("x", "a", `{}`), call("y", "b", `{"q":2}`)}, models.Usage{}, ""},
		{"the id and the name again in every piece", []string{chunk(`{"tool_calls":[{"index":0,"id":"x","function":{"name":"a","arguments":"{"}}]}`, ""), chunk(`{"tool_calls":[{"index":0,"id":"x","function":{"name":"a","arguments":"}"}}]}`, "tool_calls")}, "", []transcript.ToolCall{call("x", "a", `{}`)}, models.Usage{}, ""},
		{"arguments that are an object", []string{chunk(`{"tool_calls":[{"index":0,"id":"x","function":{"name":"a","arguments":{"q": 2}}}]}`, "tool_calls")}, "", []transcript.ToolCall{call("x", "a", `{"q": 2}`)}, models.Usage{}, ""},
		{"no arguments", []string{chunk(`{"tool_calls":[{"index":0,"id":"x","function":{"name":"a","arguments":null}}]}`, "tool_calls")}, "", []transcript.ToolCall{call("x", "a", `{}`)}, models.Usage{}, ""},
		{"broken arguments are the tool's business", []string{chunk(`{"tool_calls":[{"index":0,"id":"x","function":{"name":"a","arguments":"{\"q"}}]}`, "tool_calls")}, "", []transcript.ToolCall{call("x", "a", `{"q`)}, models.Usage{}, ""},
		{"a refusal", []string{chunk(`{"refusal":"I will not."}`, "stop")}, "I will not.", nil, models.Usage{}, ""},
		{"too long an answer", []string{chunk(`{"content":"a"}`, "length")}, "a", nil, models.Usage{}, "oa/m1 stopped in the middle: the answer is as long as it may be; models.providers.oa.maxTokens"},
		{"an answer that is not allowed", []string{chunk(`{"content":"a"}`, "content_filter")}, "a", nil, models.Usage{}, "oa/m1 stopped in the middle: the provider does not let it say more"},
		{"no answer", []string{chunk(`{"content":""}`, "stop"), "[DONE]"}, "", nil, models.Usage{}, "oa/m1 said nothing"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, modelstest.Answer{Events: tt.events})
			s := d.ask(t.Context(), t, "oa", models.Request{History: history(user("hi")), Tools: []models.Tool{{Name: "a", Schema: json.RawMessage(`{}`)}}})
			if s.err != nil {
				t.Fatalf("Turn: %v", s.err)
			}
			if s.stream != tt.stream || s.answer.Usage != tt.usage {
				t.Errorf("streamed %q, usage %+v, want %q, %+v", s.stream, s.answer.Usage, tt.stream, tt.usage)
			}
			seen := map[string]bool{}
			for i, c := range s.answer.ToolCalls {
				if c.ID == "" || len(c.ID) > 40 || seen[c.ID] {
					t.Errorf("call %d has the id %q", i, c.ID)
				}
				seen[c.ID] = true
				if i < len(tt.calls) && tt.calls[i].ID == "" {
					s.answer.ToolCalls[i].ID = ""
				}
			}
			if diff := cmp.Diff(tt.calls, s.answer.ToolCalls); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			if got := strings.Join(s.notices, "\n"); (got == "") != (tt.notice == "") || !strings.HasPrefix(got, tt.notice) {
				t.Errorf("notices %q, want %q", s.notices, tt.notice)
			}
		})
	}
}

func TestAnthropicOddities(t *testing.T) {
	t.Parallel()
	start := `{"type":"message_start","message":{"usage":{"input_tokens":5,"cache_creation_input_tokens":3,"cache_read_input_tokens":2,"output_tokens":1}}}`
	block := func(index int, start string, deltas ...string) []string {
		all := []string{fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":%s}`, index, start)}
		for _, d := range deltas {
			all = append(all, fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":%s}`, index, d))
		}
		return append(all, fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, index))
	}
	end := func(reason string) []string {
		return []string{`{"type":"message_delta","delta":{"stop_reason":"` + reason + `"},"usage":{"output_tokens":9}}`, `{"type":"message_stop"}`}
	}
	for _, tt := range []struct {
		rule   string
		events []string
		stream string
		native string // of the content; "" is none
		notice string
	}{
		{"a redacted thought", slices.Concat([]string{start}, block(0, `{"type":"redacted_thinking","data":"Zm9v+/="}`), block(1, `{"type":"text","text":""}`, `{"type":"text_delta","text":"a"}`), end("end_turn")), "a", `[{"type":"redacted_thinking","data":"Zm9v+/="},{"type":"text","text":"a"}]`, ""},
		{"a block of a new type", slices.Concat([]string{start}, block(0, `{"type":"oracle","x":[1,  2]}`), block(1, `{"type":"text","text":"a"}`), end("end_turn")), "a", `[{"type":"oracle","x":[1,  2]},{"type":"text","text":"a"}]`, ""},
		{"an event of a new type", slices.Concat([]string{start, `{"type":"weather","sun":true}`}, block(0, `{"type":"text","text":"a"}`), end("end_turn")), "a", "", ""},
		{"two texts", slices.Concat([]string{start}, block(0, `{"type":"text","text":"a"}`), block(1, `{"type":"text","text":"b"}`), end("end_turn")), "ab", `[{"type":"text","text":"a"},{"type":"text","text":"b"}]`, ""},
		{"a call whose input is there at once", slices.Concat([]string{start}, block(0, `{"type":"tool_use","id":"t1","name":"a","input":{"q":1}}`), end("tool_use")), "", "", ""},
		{"a call whose input breaks off", slices.Concat([]string{start}, block(0, `{"type":"tool_use","id":"t1","name":"a","input":{}}`, `{"type":"input_json_delta","partial_json":"{\"q"}`), end("max_tokens")), "", "", "an/m1 stopped in the middle: the answer is as long as it may be; models.providers.an.maxTokens"},
		{"a refusal", slices.Concat([]string{start}, end("refusal")), "", "", "an/m1 stopped in the middle: the provider does not let it say more"},
		{"a full window", slices.Concat([]string{start}, block(0, `{"type":"text","text":"a"}`), end("model_context_window_exceeded")), "a", "", "an/m1 stopped in the middle: this conversation fills all that it can read"},
		{"no answer", slices.Concat([]string{start}, end("end_turn")), "", "", "an/m1 said nothing"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, modelstest.Answer{Events: tt.events}, modelstest.Answer{Text: "x"})
			items := []transcript.HistoryItem{user("hi")}
			tools := []models.Tool{{Name: "a", Schema: json.RawMessage(`{"type":"object"}`)}}
			s := d.ask(t.Context(), t, "an", models.Request{History: history(items...), Tools: tools})
			if s.err != nil || s.stream != tt.stream || s.answer.Usage != (models.Usage{InputTokens: 10, OutputTokens: 9, CachedTokens: 2}) {
				t.Fatalf("Turn: streamed %q, usage %+v, %v", s.stream, s.answer.Usage, s.err)
			}
			if got := strings.Join(s.notices, "\n"); (got == "") != (tt.notice == "") || !strings.HasPrefix(got, tt.notice) {
				t.Errorf("notices %q, want %q", s.notices, tt.notice)
			}
			var native string
			if s.answer.Native != nil {
				native = string(s.answer.Native.Items[0])
			}
			if want := tt.native; want != "" && native != `{"role":"assistant","content":`+want+`}` || want == "" && native != "" {
				t.Errorf("native %s, want the content %s", native, want)
			}
			items = next(t, items, s.answer, user("go on"))
			if d.ask(t.Context(), t, "an", models.Request{History: history(items...), Tools: tools}); native != "" && !strings.Contains(d.member(t, "messages"), native) {
				t.Errorf("the next request has not the native item: %s", d.member(t, "messages"))
			}
		})
	}
}

// What servers refuse that they do not know is left out, once they have said so.
func TestLearning(t *testing.T) {
	t.Parallel()
	d := newDesk(
		t,
		modelstest.Answer{Status: 422, Body: `{"message":"Extra inputs are not permitted: stream_options","type":"invalid_request_error"}`},
		modelstest.Answer{Status: 400, Body: `{"error":{"message":"registry.ollama.ai/library/tiny:1b does not support tools","type":"api_error"}}`},
		modelstest.Answer{Text: "a"}, modelstest.Answer{Text: "b"},
		modelstest.Answer{Status: 400, Body: `{"error":{"message":"does not support tools either"}}`},
	)
	m, err := models.Open("oa", d.config)
	if err != nil {
		t.Fatal(err)
	}
	req := models.Request{History: history(user("hi")), Tools: pad()}
	s := ask(t.Context(), m, req)
	if diff := cmp.Diff([]string{"oa/m1 cannot call tools, so it is offered none"}, s.notices); diff != "" || s.err != nil || s.stream != "a" {
		t.Errorf("first: %q, %v, notices (-want +got):\n%s", s.stream, s.err, diff)
	}
	if s := ask(t.Context(), m, req); s.err != nil || s.stream != "b" || s.notices != nil {
		t.Errorf("then: %q, %v, notices %q", s.stream, s.err, s.notices)
	}
	if s := ask(t.Context(), m, req); !errors.Is(s.err, &plugin.Error{Code: plugin.Usage}) {
		t.Errorf("a refusal that cannot be helped: %v", s.err)
	}
	var with []string
	for _, r := range d.Requests() {
		with = append(with, fmt.Sprintf("tools %v, options %v", strings.Contains(string(r.Body), `"tools"`), strings.Contains(string(r.Body), "stream_options")))
	}
	if diff := cmp.Diff([]string{"tools true, options true", "tools true, options false", "tools false, options false", "tools false, options false", "tools false, options false"}, with); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// A tool may have a name that providers do not take; it is called by its own.
func TestToolNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 70) + "_manage"
	for _, provider := range []string{"oa", "an"} {
		d := newDesk(t, modelstest.Answer{Text: "x"}, modelstest.Answer{Calls: []modelstest.Call{
			{ID: "c1", Name: strings.Repeat("x", 47) + "_" + hash(long), Arguments: `{}`}, {ID: "c2", Name: "no_te_" + hash("no.te"), Arguments: `{}`}, {ID: "c3", Name: "plain", Arguments: `{}`}, {ID: "c4", Name: "made_up", Arguments: `{}`},
		}})
		var tools []models.Tool
		for _, name := range []string{long, "no.te", "plain"} {
			tools = append(tools, models.Tool{Name: name, Schema: json.RawMessage(`{"type":"object"}`)})
		}
		d.ask(t.Context(), t, provider, models.Request{History: history(user("a")), Tools: tools})
		var got []string
		for _, c := range d.ask(t.Context(), t, provider, models.Request{History: history(user("a")), Tools: tools}).answer.ToolCalls {
			got = append(got, c.Name)
		}
		if diff := cmp.Diff([]string{long, "no.te", "plain", "made_up"}, got); diff != "" {
			t.Errorf("%s: called (-want +got):\n%s", provider, diff)
		}
		for _, name := range []string{strings.Repeat("x", 47) + "_" + hash(long), "no_te_" + hash("no.te"), "plain"} {
			if !strings.Contains(d.member(t, "tools"), `"name":"`+name+`"`) {
				t.Errorf("%s: %s is not among the tools %s", provider, name, d.member(t, "tools"))
			}
		}
	}
}

// An id of another program may be one that providers do not take. Call and result
// stay a pair.
func TestOddCallIDs(t *testing.T) {
	t.Parallel()
	for _, provider := range []string{"oa", "an"} {
		d := newDesk(t, modelstest.Answer{Text: "x"})
		odd := "call|" + strings.Repeat("9", 60)
		d.ask(t.Context(), t, provider, models.Request{Tools: pad(), History: history(user("a"), assistant("", call(odd, "pad_manage", `{}`)), result(odd, "x"))})
		id := "call_" + strings.Repeat("9", 18) + "_" + hash(odd)
		if len(id) != 40 || strings.Count(d.member(t, "messages"), `"`+id+`"`) != 2 {
			t.Errorf("%s: %s is not the id of call and result in %s", provider, id, d.member(t, "messages"))
		}
	}
}

func TestRemoteErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		rule, provider string
		answer         modelstest.Answer
		code           plugin.Code
		text           string
		stream         string
	}{
		{"a wrong key", "oa", modelstest.Answer{Status: 401, Body: `{"error":{"message":"no: ` + key + `"}}`}, plugin.Denied, "model oa/m1: the provider refuses the key of the variable KEY; put a valid key there", ""},
		{"a wrong key, Messages", "an", modelstest.Answer{Status: 401, Body: `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}`}, plugin.Denied, "model an/m1: the provider refuses the key of the variable KEY; put a valid key there", ""},
		{"an unknown model", "oa", modelstest.Answer{Status: 404, Body: `{"error":{"message":"The model m1 does not exist","code":"model_not_found"}}`}, plugin.NotFound, "model oa/m1: The model m1 does not exist (HTTP 404); did you mean oa/m2?", ""},
		{"an unknown model, Messages", "an", modelstest.Answer{Status: 404, Body: `{"type":"error","error":{"type":"not_found_error","message":"model: m1"}}`}, plugin.NotFound, "model an/m1: model: m1 (HTTP 404); did you mean an/m2?", ""},
		{"too long", "an", modelstest.Answer{Status: 400, Body: `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 tokens > 8 maximum"}}`}, plugin.Usage, "model an/m1: this conversation is longer than the model can read: prompt is too long: 9 tokens > 8 maximum (HTTP 400); /sess new begins another one, and this one stays; or go on with a model that reads more", ""},
		{"cut", "oa", modelstest.Answer{Text: "so far so", Cut: true}, plugin.Unavailable, "model oa/m1: the connection broke before the end of the answer; what came is kept; send another message to go on", "so far so"},
		{"cut, Messages", "an", modelstest.Answer{Text: "so far so", Cut: true}, plugin.Unavailable, "model an/m1: the connection broke before the end of the answer; what came is kept; send another message to go on", "so far so"},
		{"an error in the middle", "oa", modelstest.Answer{Events: []string{`{"choices":[{"index":0,"delta":{"content":"so "}}]}`, `{"error":{"message":"the backend died","code":500}}`}}, plugin.Unavailable, "model oa/m1: the backend died (HTTP 500); send the message again in a while", "so "},
		{"an error in the middle, Messages", "an", modelstest.Answer{Events: []string{`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"so "}}`, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`}}, plugin.Unavailable, "model an/m1: Overloaded; send the message again in a while", "so "},
		{"no JSON", "oa", modelstest.Answer{Events: []string{`{"choices":[`}}, plugin.Unavailable, "model oa/m1: the answer is not what the API promises: ", ""},
		{"no JSON, Messages", "an", modelstest.Answer{Events: []string{`[]`}}, plugin.Unavailable, "model an/m1: the answer is not what the API promises: ", ""},
		{"a piece of no block", "an", modelstest.Answer{Events: []string{`{"type":"content_block_delta","index":3,"delta":{"type":"text_delta","text":"a"}}`}}, plugin.Unavailable, "model an/m1: the answer adds to block 3, which it has not begun", ""},
		{"an error that is a whole answer", "oa", modelstest.Answer{Status: 200, Body: `{"error":{"message":"no such deployment","type":"invalid_request_error","code":404}}`}, plugin.NotFound, "model oa/m1: no such deployment (HTTP 404); did you mean oa/m2?", ""},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, tt.answer)
			d.change(tt.provider, func(p *models.Provider) { p.MaxRetries = new(0) })
			d.Models("m2")
			s := d.ask(t.Context(), t, tt.provider, models.Request{History: history(user("hi"))})
			e, ok := errors.AsType[*plugin.Error](s.err)
			if !ok || e.Code != tt.code || !strings.HasPrefix(e.Text(), tt.text) {
				t.Errorf("Turn = %v\nwant %s: %s", s.err, tt.code, tt.text)
			}
			if s.stream != tt.stream {
				t.Errorf("streamed %q, want %q", s.stream, tt.stream)
			}
			if e != nil && strings.Contains(e.Text(), key) {
				t.Errorf("%q tells the key", e.Text())
			}
		})
	}
}

// A request that is refused for a moment is sent again, and people are told why
// they wait.
func TestRemoteRetry(t *testing.T) {
	t.Parallel()
	for _, provider := range []string{"oa", "an"} {
		d := newDesk(t, modelstest.TooManyRequests(50*time.Millisecond), modelstest.TooManyRequests(time.Millisecond), modelstest.Answer{Text: "at last"})
		s := d.ask(t.Context(), t, provider, models.Request{History: history(user("hi"))})
		if s.err != nil || s.stream != "at last" || len(s.notices) != 2 || !strings.HasPrefix(s.notices[0], provider+"/m1: Too many requests (HTTP 429); asking again in 50ms (1 of 4)") {
			t.Errorf("%s: %q, %v, notices %q", provider, s.stream, s.err, s.notices)
		}
		all := d.Requests()
		if len(all) != 3 || all[1].At.Sub(all[0].At) < 50*time.Millisecond || string(all[0].Body) != string(all[2].Body) {
			t.Errorf("%s: %d requests, want 3 that are the same, with a pause", provider, len(all))
		}
	}
}

// The end of the context ends the request at once, at the provider too.
func TestRemoteCancel(t *testing.T) {
	t.Parallel()
	for _, provider := range []string{"oa", "an"} {
		hold := make(chan struct{})
		defer close(hold)
		d := newDesk(t, modelstest.Answer{Text: "one two three", Hold: hold})
		m, err := models.Open(provider, d.config)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var got string
		_, err = m.Turn(ctx, models.Request{History: history(user("hi"))}, func(delta models.Delta) {
			got += delta.Text
			cancel()
		})
		if !errors.Is(err, context.Canceled) || got != "one " {
			t.Errorf("%s: %q, %v, want the first word and context canceled", provider, got, err)
		}
	}
}

func TestContextWindow(t *testing.T) {
	t.Parallel()
	for _, provider := range []string{"oa", "an"} {
		d := newDesk(t, modelstest.Answer{Text: "x", Usage: &modelstest.Usage{Input: 850, Output: 49}}, modelstest.Answer{Text: "x", Usage: &modelstest.Usage{Input: 900, Output: 20}})
		d.change(provider, func(p *models.Provider) { p.ContextWindow = 1000 })
		for i, want := range []string{"", "this conversation fills 92% of what " + provider + "/m1 can read; /sess new begins another one, and this one stays"} {
			s := d.ask(t.Context(), t, provider, models.Request{History: history(user("hi"))})
			if got := strings.Join(s.notices, "\n"); got != want {
				t.Errorf("%s, request %d: notices %q, want %q", provider, i, got, want)
			}
		}
	}
}

// A history that breaks off is no shorter history.
func TestRemoteUnreadableHistory(t *testing.T) {
	t.Parallel()
	broken := errors.New("unreadable")
	for _, provider := range []string{"oa", "an"} {
		d := newDesk(t)
		s := d.ask(t.Context(), t, provider, models.Request{History: func(yield func(transcript.HistoryItem, error) bool) {
			_ = yield(user("hello"), nil) && yield(transcript.HistoryItem{}, broken)
		}})
		if !errors.Is(s.err, broken) || len(d.Requests()) != 0 {
			t.Errorf("%s: %v after %d requests, want the history's error after none", provider, s.err, len(d.Requests()))
		}
	}
}

func TestProviders(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("k-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	net := &recorder{}
	config := models.Config{
		Transport: net, Path: func(name string) string { return filepath.Join(filepath.Dir(file), name) },
		Getenv: func(name string) string { return "env:" + name },
		Providers: map[string]models.Provider{
			"filed":  {Kind: "openai", APIKeyFile: "key"},
			"env":    {Kind: "anthropic", APIKeyEnv: "MINE"},
			"else":   {Kind: "anthropic", BaseURL: "https://else.test/anthropic"},
			"router": {Kind: "openai", BaseURL: "https://router.test/api/v1/", APIKeyEnv: "ROUTER", MaxTokens: 5},
			"mine":   {Kind: "openai", MaxTokens: 5},
		},
	}
	for _, tt := range []struct{ model, request, limit string }{
		{"openai/gpt-5", "https://api.openai.com/v1/chat/completions gpt-5 Bearer env:OPENAI_API_KEY", ""},
		{"anthropic/claude", "https://api.anthropic.com/v1/messages claude env:ANTHROPIC_API_KEY", "max_tokens"},
		{"ollama/llama3.2", "http://localhost:11434/v1/chat/completions llama3.2 ", ""},
		{"filed/m", "https://api.openai.com/v1/chat/completions m Bearer k-file", ""},
		{"env/m", "https://api.anthropic.com/v1/messages m env:MINE", "max_tokens"},
		{"else/m", "https://else.test/anthropic/v1/messages m ", "max_tokens"},
		{"router/meta/llama-3", "https://router.test/api/v1/chat/completions meta/llama-3 Bearer env:ROUTER", "max_tokens"},
		{"mine/m", "https://api.openai.com/v1/chat/completions m Bearer env:OPENAI_API_KEY", "max_completion_tokens"},
	} {
		m, err := models.Open(tt.model, config)
		if err != nil || m.Name() != tt.model {
			t.Errorf("Open(%q) = %v, %v", tt.model, m, err)
			continue
		}
		ask(t.Context(), m, models.Request{History: history(user("hi"))})
		if net.request != tt.request || net.limit != tt.limit {
			t.Errorf("%s asks %q with a limit %q, want %q, %q", tt.model, net.request, net.limit, tt.request, tt.limit)
		}
	}
	for _, tt := range []struct {
		rule string
		p    models.Provider
		want string
	}{
		{"an address that is none", models.Provider{Kind: "openai", BaseURL: "localhost"}, `models.providers.x.baseURL: "localhost" is no address of a server; write it as https://host/v1`},
		{"a parameter of the program", models.Provider{Kind: "openai", Parameters: map[string]json.RawMessage{"stream": json.RawMessage(`false`)}}, `models.providers.x.parameters.stream: this is filled in by the program; leave it out`},
		{"the same for Messages", models.Provider{Kind: "anthropic", Parameters: map[string]json.RawMessage{"system": json.RawMessage(`""`)}}, `models.providers.x.parameters.system: this is filled in by the program; leave it out`},
	} {
		_, err := models.Open("x/m", models.Config{Providers: map[string]models.Provider{"x": tt.p}})
		if e := plugin.AsError(err); e == nil || e.Code != plugin.Usage || e.Text() != tt.want {
			t.Errorf("%s: %v, want usage: %s", tt.rule, err, tt.want)
		}
	}
}

// recorder refuses every request, and remembers the last one.
type recorder struct{ request, limit string }

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	var body map[string]json.RawMessage
	if err := json.NewDecoder(req.Body).Decode(&body); err != nil {
		return nil, err
	}
	var model string
	if err := json.Unmarshal(body["model"], &model); err != nil {
		return nil, err
	}
	r.request = fmt.Sprintf("%s %s %s%s", req.URL, model, req.Header.Get("Authorization"), req.Header.Get("X-Api-Key"))
	r.limit = ""
	for _, name := range []string{"max_tokens", "max_completion_tokens"} {
		if body[name] != nil {
			r.limit += name
		}
	}
	return &http.Response{StatusCode: http.StatusTeapot, Header: http.Header{}, Body: http.NoBody}, nil
}

// hash is the end of a name or an id that stands for another.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}
