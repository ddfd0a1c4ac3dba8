package transcript_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/store/transcript"
)

// S0-03: what a provider said is kept in its own words.
func TestHistoryItemKeepsNativeBytes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ rule, item, want string }{
		{"blanks stay", `{ "type" : "thinking",	"signature":"A/b+c=" }`, ""},
		{"escapes stay as they are", `{"text":"\u003c\u00e4\/ <b> & \u2028"}`, ""},
		{"numbers stay as they are", `{"n":1.0,"m":1E2,"o":100000000000000000001}`, ""},
		{"a name that comes twice stays", `{"a":1,"a":2}`, ""},
		{"what is no object", `"text"`, ""},
		{"a line break is a blank", "{\r\n  \"a\": \"\\n\"\n}", `{    "a": "\n" }`},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			t.Parallel()
			want := tt.want
			if want == "" {
				want = tt.item
			}
			in := transcript.HistoryItem{
				Role: transcript.RoleAssistant, Content: "<ä>", MessageID: "m1",
				ToolCalls: []transcript.ToolCall{{ID: "t1", Name: "pad", Arguments: json.RawMessage(`{"a":"<"}`)}},
				Native:    &transcript.Native{Kind: "x", Items: []json.RawMessage{json.RawMessage(tt.item), json.RawMessage(`1`)}},
			}
			record, err := in.AppendJSON([]byte("# "))
			if err != nil {
				t.Fatalf("AppendJSON: %v", err)
			}
			neutral := `{"role":"assistant","content":"<ä>","toolCalls":[{"id":"t1","name":"pad","arguments":{"a":"<"}}],"messageId":"m1"`
			if whole := `# ` + neutral + `,"native":{"kind":"x","items":[` + want + `,1]}}`; string(record) != whole {
				t.Errorf("AppendJSON = %s\nwant         %s", record, whole)
			}
			if bytes.ContainsAny(record, "\r\n") {
				t.Errorf("%q is more than one line", record)
			}
			var out transcript.HistoryItem
			if err := json.Unmarshal(record[2:], &out); err != nil {
				t.Fatalf("read it again: %v", err)
			}
			in.Native.Items[0] = json.RawMessage(want)
			if diff := cmp.Diff(in, out); diff != "" {
				t.Errorf("read again (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHistoryItemRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		rule string
		item transcript.HistoryItem
		want string
	}{
		{"no JSON", transcript.HistoryItem{Native: &transcript.Native{Kind: "x", Items: []json.RawMessage{json.RawMessage(`{}`), json.RawMessage(`{"a":`)}}}, `native item 1 of kind "x" is not one JSON value`},
		{"nothing", transcript.HistoryItem{Native: &transcript.Native{Kind: "x", Items: []json.RawMessage{nil}}}, `native item 0 of kind "x"`},
		{"two values", transcript.HistoryItem{Native: &transcript.Native{Kind: "x", Items: []json.RawMessage{json.RawMessage(`1 2`)}}}, `native item 0 of kind "x"`},
		{"no UTF-8", transcript.HistoryItem{Native: &transcript.Native{Kind: "x", Items: []json.RawMessage{json.RawMessage("\"\xff\"")}}}, `native item 0 of kind "x"`},
		{"arguments", transcript.HistoryItem{ToolCalls: []transcript.ToolCall{{Arguments: json.RawMessage(`{"a`)}}}, `encode an item of history`},
	} {
		if r, err := tt.item.AppendJSON(nil); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: AppendJSON = %s, %v, want an error with %q", tt.rule, r, err, tt.want)
		}
	}
}

func TestHistoryItemWithoutNative(t *testing.T) {
	t.Parallel()
	r, err := transcript.HistoryItem{Role: transcript.RoleUser, Content: "a < b"}.AppendJSON(nil)
	if want := `{"role":"user","content":"a < b"}`; err != nil || string(r) != want {
		t.Errorf("AppendJSON = %s, %v, want %s", r, err, want)
	}
}
