package models_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sess/host/models"
	"sess/plugin"
	"sess/store/transcript"
)

func open(t *testing.T, c models.Config) models.Model {
	t.Helper()
	m, err := models.Open("", c)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return m
}

func user(text string) transcript.HistoryItem {
	return transcript.HistoryItem{Role: transcript.RoleUser, Content: text}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	config := models.Config{Default: "desk", Providers: map[string]models.Provider{
		"desk":  {Kind: "offline", Model: "echo"},
		"bare":  {Kind: "offline"},
		"cloud": {Kind: "telepathy", Model: "m"},
	}}
	tests := []struct {
		rule, name string
		config     models.Config
		want, err  string
	}{
		{"nothing configured", "", models.Config{}, "offline/echo", ""},
		{"the configured default", "", config, "desk/echo", ""},
		{"a provider alone means its model", "offline", config, "offline/echo", ""},
		{"a whole name", "bare/echo", config, "bare/echo", ""},
		{"a provider without a model", "bare", config, "", `model "bare" names no model of the provider bare; write bare/<model>`},
		{"an unknown model", "offline/opus", config, "", `model offline/opus: the offline provider has no model "opus"; use offline/echo`},
		{"an unknown provider", "nope/x", config, "", `model "nope/x": there is no provider "nope"; the providers are anthropic, bare, cloud, desk, offline, ollama, openai`},
		{"an unknown kind", "cloud", config, "", `models.providers.cloud.kind: unknown kind "telepathy"; the kinds are offline, openai, anthropic`},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			t.Parallel()
			m, err := models.Open(tt.name, tt.config)
			if tt.err != "" {
				e := plugin.AsError(err)
				if e == nil || e.Code != plugin.Usage || e.Text() != tt.err {
					t.Fatalf("Open(%q) error = %v, want usage: %s", tt.name, err, tt.err)
				}
				return
			}
			if err != nil || m.Name() != tt.want {
				t.Errorf("Open(%q) = %v, %v, want %s", tt.name, m, err, tt.want)
			}
		})
	}
}

// history is what a request has of these items.
func history(items ...transcript.HistoryItem) iter.Seq2[transcript.HistoryItem, error] {
	return func(yield func(transcript.HistoryItem, error) bool) {
		for _, item := range items {
			if !yield(item, nil) {
				return
			}
		}
	}
}

func TestOfflineAnswers(t *testing.T) {
	t.Parallel()
	tools := []models.Tool{{Name: "sess_manage"}, {Name: "notes"}}
	call := func(id, args string) transcript.ToolCall {
		return transcript.ToolCall{ID: id, Name: "sess_manage", Arguments: json.RawMessage(args)}
	}
	result := func(text string) transcript.HistoryItem {
		return transcript.HistoryItem{Role: transcript.RoleTool, Name: "sess_manage", Content: text}
	}
	long := strings.Repeat("ä", 100)
	tests := []struct {
		rule    string
		history []transcript.HistoryItem
		want    string
		calls   []transcript.ToolCall
	}{
		{"the first message", []transcript.HistoryItem{user("hi")}, `You said: "hi". This is your first message in this conversation.`, nil},
		{
			"it counts what it sees",
			[]transcript.HistoryItem{user("one"), {Role: transcript.RoleAssistant, Content: "x"}, user("two"), user("three")},
			`You said: "three". This conversation has 3 messages from you; the first was "one".`, nil,
		},
		{
			"long text is cut between characters",
			[]transcript.HistoryItem{user(long)},
			`You said: "` + strings.Repeat("ä", 59) + `…". This is your first message in this conversation.`, nil,
		},
		{"nothing said", nil, "Nobody has said anything yet.", nil},
		{"a call", []transcript.HistoryItem{user(`call sess_manage {"action":"list"}`)}, "", []transcript.ToolCall{call("call_1", `{"action":"list"}`)}},
		{
			"several calls, and ids that the history does not have",
			[]transcript.HistoryItem{{Role: transcript.RoleAssistant, ToolCalls: []transcript.ToolCall{{ID: "call_2"}}}, user("call sess_manage\n\n  call sess_manage {\"a\":1}\n")},
			"",
			[]transcript.ToolCall{call("call_3", `{}`), call("call_4", `{"a":1}`)},
		},
		{"an unknown tool", []transcript.HistoryItem{user("call nope {}")}, `There is no tool "nope". The tools are: sess_manage, notes.`, nil},
		{"broken arguments", []transcript.HistoryItem{user(`call notes {"a"`)}, `What follows "call notes" is not one JSON object: {"a"`, nil},
		{"prose that begins with call", []transcript.HistoryItem{user("call me later")}, `You said: "call me later". This is your first message in this conversation.`, nil},
		{"a result is quoted", []transcript.HistoryItem{user("call sess_manage"), result("two\nlines")}, "sess_manage answered:\n> two\n> lines", nil},
		{"two results", []transcript.HistoryItem{result("a"), result("b")}, "sess_manage answered:\n> a\nsess_manage answered:\n> b", nil},
		{"slow counts", []transcript.HistoryItem{user("slow 3 1us")}, "1 2 3", nil},
		{"a thought comes before the answer", []transcript.HistoryItem{user("think of it")}, `(of it)You said: "think of it". This is your first message in this conversation.`, nil},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			t.Parallel()
			var streamed strings.Builder
			var calls []transcript.ToolCall
			thinking := false
			answer, err := open(t, models.Config{}).Turn(t.Context(), models.Request{History: history(tt.history...), Tools: tools}, func(d models.Delta) {
				if d.Kind == models.DeltaThought != thinking {
					streamed.WriteString(map[bool]string{false: "(", true: ")"}[thinking])
					thinking = !thinking
				}
				streamed.WriteString(d.Text)
				if d.Kind == models.DeltaTool {
					calls = append(calls, d.Call)
				}
			})
			if err != nil {
				t.Fatalf("Turn: %v", err)
			}
			if streamed.String() != tt.want {
				t.Errorf("streamed %q, want %q", streamed.String(), tt.want)
			}
			if !strings.HasSuffix(tt.want, answer.Text) || answer.Text == "" != (tt.calls != nil) {
				t.Errorf("answer %q, want the end of %q", answer.Text, tt.want)
			}
			if diff := cmp.Diff(tt.calls, answer.ToolCalls); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(answer.ToolCalls, calls); diff != "" {
				t.Errorf("streamed calls (-answer +streamed):\n%s", diff)
			}
			if answer.Usage.OutputTokens == 0 {
				t.Errorf("usage %+v counts nothing", answer.Usage)
			}
		})
	}
}

// A history that breaks off is no shorter history.
func TestOfflineUnreadableHistory(t *testing.T) {
	t.Parallel()
	broken := errors.New("unreadable")
	past := func(yield func(transcript.HistoryItem, error) bool) {
		_ = yield(user("hello"), nil) && yield(transcript.HistoryItem{}, broken)
	}
	_, err := open(t, models.Config{}).Turn(t.Context(), models.Request{History: past}, func(d models.Delta) { t.Errorf("emitted %+v", d) })
	if !errors.Is(err, broken) {
		t.Errorf("Turn = %v, want the history's error", err)
	}
}

// With what its last answer left behind, the model reads only what was said since,
// and answers as if it had read all. What another provider left is no use to it,
// nor is what tells of more than there is.
func TestOfflineGoesOn(t *testing.T) {
	t.Parallel()
	m := open(t, models.Config{})
	tools := []models.Tool{{Name: "notes"}}
	var items []transcript.HistoryItem
	ask := func(state json.RawMessage, again bool) (answer models.Answer, from int) {
		t.Helper()
		from = -1
		req := models.Request{History: history(items...), Tools: tools, State: state, Items: len(items)}
		if again {
			req.Since = func(item int) iter.Seq2[transcript.HistoryItem, error] {
				from = item
				return history(items[item:]...)
			}
		}
		answer, err := m.Turn(t.Context(), req, func(models.Delta) {})
		if err != nil {
			t.Fatal(err)
		}
		return answer, from
	}
	var state json.RawMessage
	for i, say := range []string{"one", "call notes {}\ncall notes {}", "", "two", "call notes {}"} {
		switch say {
		case "":
			items = append(items, transcript.HistoryItem{Role: transcript.RoleTool, Name: "notes", Content: "a"}, transcript.HistoryItem{Role: transcript.RoleTool, Name: "notes", Content: "b"})
		default:
			items = append(items, user(say))
		}
		whole, _ := ask(nil, false)
		answer, from := ask(state, true)
		state = answer.State
		answer.State = nil
		if diff := cmp.Diff(whole, answer); diff != "" {
			t.Errorf("after %q (-all read +gone on):\n%s", say, diff)
		}
		if i > 0 && from <= 0 {
			t.Errorf("after %q it read all again", say)
		}
		for _, other := range []string{`{"openai-responses":{"id":"x"}}`, `{"offline":{"items":99,"messages":5}}`, `{"offline":{"items":-1}}`, `[]`} {
			answer, _ := ask(json.RawMessage(other), true)
			if answer.Text != whole.Text {
				t.Errorf("with the state %s it said %q, want %q", other, answer.Text, whole.Text)
			}
		}
		items = append(items, transcript.HistoryItem{Role: transcript.RoleAssistant, Content: answer.Text, ToolCalls: answer.ToolCalls})
	}
}

func TestOfflineWithoutTools(t *testing.T) {
	t.Parallel()
	answer, err := open(t, models.Config{}).Turn(t.Context(), models.Request{History: history(user("call x {}"))}, func(models.Delta) {})
	if want := `There is no tool "x", nor any other.`; err != nil || answer.Text != want {
		t.Errorf("Turn = %q, %v, want %q", answer.Text, err, want)
	}
}

func TestOfflineFailure(t *testing.T) {
	t.Parallel()
	_, err := open(t, models.Config{}).Turn(t.Context(), models.Request{History: history(user("fail"))}, func(models.Delta) {})
	if !errors.Is(err, &plugin.Error{Code: plugin.Unavailable}) {
		t.Errorf("Turn = %v, want unavailable", err)
	}
}

func TestOfflinePaceAndCancel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
		defer cancel()
		words := 0
		_, err := open(t, models.Config{Pace: time.Hour}).Turn(ctx, models.Request{History: history(user("slow 100 10s"))}, func(models.Delta) { words++ })
		if !errors.Is(err, context.DeadlineExceeded) || words != 2 {
			t.Errorf("Turn = %v after %d words, want a deadline after 2", err, words)
		}
	})
}
