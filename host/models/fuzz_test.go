package models_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"sess/host/models"
	"sess/plugin"
	"sess/store/transcript"
)

// FuzzAnswers gives models what a server may send, whatever that is: an answer
// that can be stored and goes back with the next request, or an error of the
// program's own.
func FuzzAnswers(f *testing.F) {
	for _, seed := range []string{
		`{"choices":[{"index":0,"delta":{"content":"a","tool_calls":[{"index":0,"id":"x","function":{"name":"a","arguments":{"q":1}},"extra":[1, 2]}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":3}}`,
		`{"choices":[{"message":{"content":[{"type":"text","text":"a"},{"thinking":"t"}],"refusal":"no","reasoning_details":[{"a":1}]}}]}`,
		`{"error":{"message":"x","code":429}}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a b","name":"n","input":{"q":[]}}}`,
		`{"type":"message","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"new"},{"type":"text","text":" "}],"stop_reason":"max_tokens"}`,
		"{\"type\":\"content_block_start\",\"content_block\":{\"type\":\"\xff\"}}",
	} {
		f.Add(seed, "[DONE]", false)
		f.Add(seed, `{"type":"message_stop"}`, true)
	}
	f.Fuzz(func(t *testing.T, one, two string, whole bool) {
		for _, kind := range []string{"openai", "anthropic"} {
			net := &canned{whole: whole, body: one}
			if !whole {
				net.body = "data: " + one + "\n\ndata: " + two + "\n\n"
			}
			none := 0
			m, err := models.Open("x/m", models.Config{
				Transport: net, Providers: map[string]models.Provider{"x": {Kind: kind, BaseURL: "http://desk.test", MaxRetries: &none}},
			})
			if err != nil {
				t.Fatal(err)
			}
			ask := func(items ...transcript.HistoryItem) (models.Answer, error) {
				return m.Turn(context.Background(), models.Request{History: history(items...), Tools: []models.Tool{{Name: "n", Schema: json.RawMessage(`{}`)}}}, func(models.Delta) {})
			}
			a, err := ask(user("hi"))
			if err != nil {
				if e := plugin.AsError(err); e.Code == plugin.Internal {
					t.Errorf("%s: %v", kind, err)
				}
				continue
			}
			item := transcript.HistoryItem{Role: transcript.RoleAssistant, Content: a.Text, Native: a.Native}
			for _, c := range a.ToolCalls {
				if !json.Valid(c.Arguments) {
					c.Arguments, _ = json.Marshal(string(c.Arguments))
				}
				item.ToolCalls = append(item.ToolCalls, c)
			}
			r, err := item.AppendJSON(nil)
			if err != nil {
				t.Fatalf("%s: it cannot be stored: %v", kind, err)
			}
			var stored transcript.HistoryItem
			if err := json.Unmarshal(r, &stored); err != nil {
				t.Fatalf("%s: it cannot be read: %v", kind, err)
			}
			_, _ = ask(user("hi"), stored, user("go on")) // what comes of it is the same again
			if !json.Valid(net.last) {
				t.Errorf("%s: the next request is no JSON: %s", kind, net.last)
			}
		}
	})
}

// canned answers every request alike.
type canned struct {
	whole bool
	body  string
	last  []byte
}

func (c *canned) RoundTrip(r *http.Request) (*http.Response, error) {
	h := http.Header{"Content-Type": {"text/event-stream"}}
	if c.whole {
		h.Set("Content-Type", "application/json")
	}
	if r.Body != nil {
		var err error
		if c.last, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	return &http.Response{StatusCode: http.StatusOK, Header: h, Body: io.NopCloser(strings.NewReader(c.body))}, nil
}
