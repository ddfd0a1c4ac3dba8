package chat_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/host/chat"
	"sess/plugin"
)

func TestTerminal(t *testing.T) {
	t.Parallel()
	tool := chat.Tool{Name: "pad_manage", Arguments: json.RawMessage(`{"action":"list"}`), Text: "a table\nof rows"}
	broken := chat.Tool{Name: "pad_manage", Failed: true, Text: "error (usage): no"}
	result := plugin.Result{Text: "saved v1", Data: json.RawMessage(`{"name":"v1"}`), Notices: []string{"nearly full"}}
	text := func(s string) chat.Event { return chat.Event{Kind: chat.EventText, Text: s} }
	thought := func(s string) chat.Event { return chat.Event{Kind: chat.EventThought, Text: s} }
	for _, tt := range []struct {
		rule       string
		events     []chat.Event
		out, notes string
	}{
		{"text streams, and its line ends with the turn", []chat.Event{text("a "), text("b"), {Kind: chat.EventTurnEnded}}, "a b\n", ""},
		{"thoughts stand beside it", []chat.Event{thought("hm "), thought("yes"), text("b"), {Kind: chat.EventTurnEnded}}, "b\n", "(thinking) hm yes\n"},
		{"tools", []chat.Event{text("x"), {Kind: chat.EventToolStarted, Tool: tool}, {Kind: chat.EventToolFinished, Tool: tool}, {Kind: chat.EventToolFinished, Tool: broken}}, "x\n", "· pad_manage {\"action\":\"list\"}\n· pad_manage: a table\n· pad_manage: failed: error (usage): no\n"},
		{"an answer", []chat.Event{{Kind: chat.EventAnswer, Result: result}}, "saved v1\n", "note: nearly full\n"},
		{"an error as JSON", []chat.Event{{Kind: chat.EventError, Err: plugin.Errorf(plugin.NotFound, "no snapshot v9"), JSON: true}}, `{"error":"no snapshot v9","code":"not_found"}` + "\n", ""},
		{"an answer as JSON", []chat.Event{{Kind: chat.EventAnswer, Result: result, JSON: true, Effect: plugin.EffectRead}}, "{\"name\":\"v1\"}\n", "note: nearly full\n"},
		{"a notice", []chat.Event{{Kind: chat.EventNotice, Text: "replaced"}}, "", "· replaced\n"},
		{"an error", []chat.Event{{Kind: chat.EventError, Err: &plugin.Error{Message: "no v9", Hint: "try v1"}}}, "", "error: no v9\nhint: try v1\n"},
		{"nothing acts on the terminal", []chat.Event{text("\x1b[31m"), {Kind: chat.EventNotice, Text: "\x1b]0;x\a"}}, "\\x1b[31m\n", "· \\x1b]0;x\\x07\n"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			t.Parallel()
			var out, notes bytes.Buffer
			terminal := chat.NewTerminal(&out, &notes)
			for _, e := range tt.events {
				terminal.Event(e)
			}
			if diff := cmp.Diff([]string{tt.out, tt.notes}, []string{out.String(), notes.String()}); diff != "" {
				t.Errorf("shown (-want +got):\n%s", diff)
			}
		})
	}
}
