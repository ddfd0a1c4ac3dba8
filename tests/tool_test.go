package tests

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sess/plugin"
	"sess/surfaces"
)

// A model that lists more snapshots than fit into one answer, and then those
// that the answer leaves out, sees each of them once: one in a chat here, and one
// that another program runs.
func TestModelWalksALongList(t *testing.T) {
	t.Parallel()
	const many = 30
	u := newUser(t)
	u.chat("hello")
	var all, lines []string
	for i := range many {
		all = append(all, fmt.Sprintf("s%03d", i))
		lines = append(lines, fmt.Sprintf("/sess save s%03d --note=%q", i, strings.Repeat("words ", 150)))
	}
	u.chat(lines...)
	slices.Reverse(all)
	s := asker{u.serve().url, webToken}

	for _, tt := range []struct {
		name string
		// list returns the answer to {"action":"list"}, after what is named unless
		// that is "", and what is to be named next.
		list func(after string) (answer, data, next string)
	}{
		{"chat", func(after string) (string, string, string) {
			if after != "" {
				after = `,"after":` + strconv.Quote(after)
			}
			events := u.chat(`call sess_manage {"action":"list"` + after + `}`)
			i := slices.IndexFunc(events, func(e chatEvent) bool { return e.Kind == "tool_finished" && !e.Failed })
			if i < 0 {
				t.Fatalf("the model's call has no answer: %+v", events)
			}
			_, data, _ := modelAnswer(events[i].Text)
			_, next, _ := strings.Cut(events[i].Text, `call again with the same fields and with "after": "`)
			next, _, _ = strings.Cut(next, `"`)
			return events[i].Text, string(data), next
		}},
		{"HTTP", func(after string) (string, string, string) {
			args := map[string]any{"action": "list"}
			if after != "" {
				args["after"] = after
			}
			status, body, err := s.ask(t.Context(), "POST", "/tools/invoke", map[string]any{"tool": "sess_manage", "args": args})
			var answer struct {
				Result struct {
					Text string
					Data json.RawMessage
					Page plugin.Page
				}
			}
			if err := errors.Join(err, json.Unmarshal(body, &answer)); err != nil || status != 200 || answer.Result.Page.Total != many {
				t.Fatalf("the answer has status %d: %v\n%s", status, err, body)
			}
			return answer.Result.Text + string(answer.Result.Data), string(answer.Result.Data), answer.Result.Page.Next
		}},
	} {
		var shown []string
		pages, after := 0, ""
		for {
			answer, data, next := tt.list(after)
			var part []struct{ Name string }
			if err := json.Unmarshal([]byte(data), &part); err != nil || len(answer) > surfaces.MaxToolText {
				t.Fatalf("%s: an answer of %d bytes whose data has the error %v:\n%s", tt.name, len(answer), err, answer)
			}
			for _, s := range part {
				shown = append(shown, s.Name)
			}
			pages++
			if after = next; next == "" || len(part) == 0 {
				break
			}
		}
		if !slices.Equal(shown, all) || pages < 2 {
			t.Errorf("%s: the model was shown %d snapshots on %d pages\n%q\nwant these %d, on several\n%q", tt.name, len(shown), pages, shown, many, all)
		}
	}
}

// modelAnswer takes apart what a model is told: the text without what stands
// beside it, the data, and the code of an error.
func modelAnswer(text string) (said string, data json.RawMessage, code plugin.Code) {
	if coded, ok := strings.CutPrefix(text, "error ("); ok {
		code, text, _ := strings.Cut(coded, "): ")
		return text, nil, plugin.Code(code)
	}
	at := strings.LastIndex("\n\n"+text, "\n\n") // the data is one line
	said, data = strings.TrimSpace(text[:max(0, at-2)]), json.RawMessage(text[at:])
	if !json.Valid(data) {
		said, data = text, nil
	}
	return modelNote.ReplaceAllString(said, ""), data, ""
}

var modelNote = regexp.MustCompile(`(?m)\n(note: |to go on, call again ).*`)
