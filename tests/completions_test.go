package tests

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// completer is a chat client as there are many: it keeps what was said, and sends
// all of it each time.
type completer struct {
	t      *testing.T
	client openai.Client
	model  string
	said   []openai.ChatCompletionMessageParamUnion
	with   []option.RequestOption
	// session is the one that the last answer named.
	session string
}

func (a asker) completer(t *testing.T, with ...option.RequestOption) *completer {
	return &completer{
		t: t, model: "sess", with: with,
		client: openai.NewClient(option.WithBaseURL(a.url+"/v1"), option.WithAPIKey(a.token), option.WithMaxRetries(0)),
	}
}

func (c *completer) params(text string) openai.ChatCompletionNewParams {
	c.said = append(c.said, openai.UserMessage(text))
	return openai.ChatCompletionNewParams{Model: c.model, Messages: c.said}
}

// say sends a message and returns the whole answer.
func (c *completer) say(text string) *openai.ChatCompletion {
	c.t.Helper()
	var resp *http.Response
	answer, err := c.client.Chat.Completions.New(c.t.Context(), c.params(text), append(c.with, option.WithResponseInto(&resp))...)
	if err != nil {
		c.t.Fatalf("%q: %v", text, err)
	}
	c.session = resp.Header.Get("X-Sess-Session")
	if len(answer.Choices) != 1 || answer.Choices[0].FinishReason != "stop" || answer.Choices[0].Message.Role != "assistant" {
		c.t.Fatalf("%q was answered with %s", text, answer.RawJSON())
	}
	c.said = append(c.said, openai.AssistantMessage(answer.Choices[0].Message.Content))
	return answer
}

// stream sends a message and reads the answer as it comes.
func (c *completer) stream(text string) (answer string, usage openai.CompletionUsage) {
	c.t.Helper()
	params := c.params(text)
	params.StreamOptions.IncludeUsage = openai.Bool(true)
	var resp *http.Response
	s := c.client.Chat.Completions.NewStreaming(c.t.Context(), params, append(c.with, option.WithResponseInto(&resp))...)
	var acc openai.ChatCompletionAccumulator
	for s.Next() {
		acc.AddChunk(s.Current())
	}
	if err := s.Err(); err != nil {
		c.t.Fatalf("%q: %v", text, err)
	}
	c.session = resp.Header.Get("X-Sess-Session")
	if len(acc.Choices) != 1 || acc.Choices[0].FinishReason != "stop" {
		c.t.Fatalf("%q was answered with %+v", text, acc.ChatCompletion)
	}
	answer = acc.Choices[0].Message.Content
	c.said = append(c.said, openai.AssistantMessage(answer))
	return answer, acc.Usage
}

// refused sends a message that has to be refused.
func (c *completer) refused(status int, code, text string) {
	c.t.Helper()
	_, err := c.client.Chat.Completions.New(c.t.Context(), c.params(text), c.with...)
	c.said = c.said[:len(c.said)-1]
	failed, ok := errors.AsType[*openai.Error](err)
	if !ok || failed.StatusCode != status || failed.Code != code || failed.Message == "" || failed.Type == "" {
		c.t.Errorf("%q: %v, want status %d with the code %s", text, err, status, code)
	}
}

// A chat client that is made for OpenAI's API, with its official library, holds a
// conversation here without knowing of sessions.
func TestCompletions(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	a := u.gateway().asker()
	u.chat("mine")
	c := a.completer(t)
	first := c.say("hello")
	if got := first.Choices[0].Message.Content; !strings.Contains(got, `"hello"`) || first.Model != "offline/echo" || first.Usage.CompletionTokens == 0 || c.session == "" {
		t.Errorf("the first answer, in session %q: %s", c.session, first.RawJSON())
	}
	session := c.session
	second, usage := c.stream("and more")
	if !strings.Contains(second, "2 messages from you") || c.session != session || usage.CompletionTokens == 0 {
		t.Errorf("the second answer, in session %s after %s: %q, usage %+v", c.session, session, second, usage)
	}
	p := a.page(t, session, "")
	if p.Total != 4 || p.Messages[3].Content != second {
		t.Errorf("the session has %q", p.contents())
	}
	// What people are at is still what it was.
	if got := u.messages(); len(got) != 2 || got[0] != "mine" {
		t.Errorf("the active session has %q", got)
	}
	// Commands are part of the conversation for the client, not for the model.
	if got := c.say("/sess save v1").Choices[0].Message.Content; !strings.HasPrefix(got, "saved v1") {
		t.Errorf("/sess save v1: %q", got)
	}
	if got, _ := c.stream("/sess list"); !strings.Contains(got, "v1") {
		t.Errorf("/sess list: %q", got)
	}
	if got := c.say("/sess sav v2").Choices[0].Message.Content; !strings.HasPrefix(got, "error: ") || !strings.Contains(got, "save") {
		t.Errorf("a wrong command is answered with %q", got)
	}
	if got, _ := c.stream("/sess view nope"); !strings.HasPrefix(got, "error: ") {
		t.Errorf("a command that fails is answered with %q", got)
	}
	if got, _ := c.stream("third"); !strings.Contains(got, "3 messages from you") || c.session != session {
		t.Errorf("after commands, in session %s: %q", c.session, got)
	}
	c.say("/sess load v1")
	if got := c.say("fourth").Choices[0].Message.Content; !strings.Contains(got, "3 messages from you") {
		t.Errorf("after a load: %q", got)
	}
	// Who says something else after the first answer begins a branch.
	branch := a.completer(t)
	branch.said = append(branch.said, c.said[:2]...)
	if got := branch.say("otherwise").Choices[0].Message.Content; !strings.Contains(got, "2 messages from you") || branch.session == session {
		t.Errorf("a branch, in session %s: %q", branch.session, got)
	}
	if got := a.page(t, branch.session, "").contents(); len(got) != 4 || got[0] != "hello" {
		t.Errorf("the branch has %q", got)
	}
	// A new session, by command: the conversation goes on there.
	c.say("/new")
	if got := c.say("fresh").Choices[0].Message.Content; !strings.Contains(got, "first message") || c.session == session {
		t.Errorf("after /new, in session %s: %q", c.session, got)
	}
}

// With the header the session is that one, whatever the request says of what was
// said before; and its own project is meant.
func TestCompletionsInASession(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	a := u.gateway().asker()
	a.must(t, "POST", "/sessions", map[string]any{"id": "s1", "project": "web"}, nil)
	a.say(t, "s1", "before")
	c := a.completer(t, option.WithHeader("X-Sess-Session", "s1"), option.WithHeader("X-Sess-Project", "web"))
	c.said = append(c.said, openai.SystemMessage("Be brief."), openai.UserMessage("never said"), openai.AssistantMessage("nor this"))
	if got := c.say("now").Choices[0].Message.Content; !strings.Contains(got, "2 messages from you") || c.session != "s1" {
		t.Errorf("in session %s: %q", c.session, got)
	}
	a.must(t, "POST", "/sessions/s1/messages", sayThis{Content: "/sess save v1"}, nil)
	a.must(t, "POST", "/sessions/s1/snapshots/v1/select", map[string]any{"project": "web"}, nil)
	c.refused(409, "readonly", "three")
}

func TestCompletionsRefused(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	a := u.gateway().asker()
	c := a.completer(t)
	models, err := c.client.Models.List(t.Context())
	if err != nil || len(models.Data) < 2 || models.Data[0].ID != "sess" || models.Data[1].ID != "offline/echo" {
		t.Errorf("the models: %+v, %v", models, err)
	}
	c.model = "nope/x"
	c.refused(400, "usage", "hello")
	var sessions []struct{ ID string }
	if a.must(t, "GET", "/sessions/list", nil, &sessions); len(sessions) != 0 {
		t.Errorf("a request that was refused left the sessions %v", sessions)
	}
	c.model = "offline/echo"
	c.refused(400, "usage", " ")
	c.refused(503, "unavailable", "fail")
	c.with = []option.RequestOption{option.WithHeader("X-Sess-Session", "nope")}
	c.refused(404, "not_found", "hello")
	c.with = []option.RequestOption{option.WithAPIKey("wrong")}
	c.refused(401, "denied", "hello")
	for _, body := range []map[string]any{
		{"messages": []any{}},
		{"messages": []any{map[string]any{"role": "assistant", "content": "hi"}}},
		{"messages": []any{map[string]any{"role": "user", "content": []any{map[string]any{"type": "image_url"}}}}},
		{"n": 2, "messages": []any{map[string]any{"role": "user", "content": "hi"}}},
		{"tool_choice": "required", "messages": []any{map[string]any{"role": "user", "content": "hi"}}},
	} {
		if status, answer, err := a.ask(t.Context(), "POST", "/v1/chat/completions", body); err != nil || status != 400 || !strings.Contains(string(answer), `"invalid_request_error"`) {
			t.Errorf("%v: %d %s (%v), want 400", body, status, answer, err)
		}
	}
	for _, tt := range []struct {
		body any
		want string
	}{
		{[]any{}, "array is not an object"},
		{map[string]any{"messages": "hi"}, "messages: string is not a list"},
		{map[string]any{"messages": []any{1}}, "messages: number is not an object"},
		{map[string]any{"stream": "yes"}, "stream: string is not a boolean"},
	} {
		status, answer, err := a.ask(t.Context(), "POST", "/v1/chat/completions", tt.body)
		if err != nil || status != 400 || !strings.Contains(string(answer), tt.want) || strings.Contains(string(answer), "server.") {
			t.Errorf("%v: %d %s (%v), want 400 with %q", tt.body, status, answer, err, tt.want)
		}
	}
	var answer struct {
		Choices []struct{ Message struct{ Content string } }
	}
	a.must(t, "POST", "/v1/chat/completions", map[string]any{"messages": []any{
		map[string]any{"role": "user", "content": []any{map[string]any{"type": "text", "text": "one"}, map[string]any{"type": "text", "text": "part"}}},
	}}, &answer)
	if len(answer.Choices) != 1 || !strings.Contains(answer.Choices[0].Message.Content, "one") {
		t.Errorf("a message of two parts is answered with %+v", answer)
	}
	// A client that cannot be asked has what destroys refused, and says so.
	alone := a.completer(t)
	alone.say("/sess save v1")
	if got := alone.say(`call sess_manage {"action":"delete","name":"v1"}`).Choices[0].Message.Content; !strings.Contains(got, "only a person may allow it") {
		t.Errorf("what a person has to allow: %q", got)
	}
}
