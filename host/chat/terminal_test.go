package chat_test

import (
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rivo/uniseg"

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
		{"a question that is too long for a line is shown in full", []chat.Event{{Kind: chat.EventQuestion, Text: "pad delete a…", Tool: chat.Tool{Name: "pad_manage", Arguments: json.RawMessage(`{"action":"delete","name":"ab"}`)}}}, "", "· the model wants to run: pad delete a…\n· in full: pad_manage {\"action\":\"delete\",\"name\":\"ab\"}\n"},
		{"nothing acts on the terminal", []chat.Event{text("\x1b[31m"), {Kind: chat.EventNotice, Text: "\x1b]0;x\a"}}, "\\x1b[31m\n", "· \\x1b]0;x\\x07\n"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			t.Parallel()
			var out, notes bytes.Buffer
			terminal := chat.NewTerminal(&out, &notes, chat.TerminalOptions{})
			for _, e := range tt.events {
				terminal.Event(e)
			}
			if diff := cmp.Diff([]string{tt.out, tt.notes}, []string{out.String(), notes.String()}); diff != "" {
				t.Errorf("shown (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTerminalInColour(t *testing.T) {
	t.Parallel()
	var out, notes bytes.Buffer
	terminal := chat.NewTerminal(&out, &notes, chat.TerminalOptions{Color: true})
	for _, e := range []chat.Event{
		{Kind: chat.EventThought, Text: "hm"},
		{Kind: chat.EventText, Text: "hello"},
		{Kind: chat.EventQuestion, Text: "pad delete a"},
		{Kind: chat.EventError, Err: &plugin.Error{Message: "no v9", Hint: "try v1"}},
		{Kind: chat.EventAnswer, Result: plugin.Result{Text: "saved"}},
	} {
		terminal.Event(e)
	}
	want := []string{"hello\nsaved\n", "\x1b[2m(thinking) hm\x1b[m\n\x1b[1m· the model wants to run: pad delete a\x1b[m\n\x1b[31merror: no v9\nhint: try v1\x1b[m\n"}
	if diff := cmp.Diff(want, []string{out.String(), notes.String()}); diff != "" {
		t.Errorf("shown (-want +got):\n%s", diff)
	}
}

// What streams to a terminal is broken between words, however it is cut.
func TestTerminalBreaksLines(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ rule, text, want string }{
		{"short", "one two", "one two"},
		{"between words", "one two three four five six", "one two \nthree \nfour five\nsix"},
		{"a word that just fits", "one two fives", "one two \nfives"},
		{"a blank at the edge", "one three more", "one three\nmore"},
		{"its own lines stay", "one\n\ntwo\nthree", "one\n\ntwo\nthree"},
		{"a word that no line holds", "see https://example.org/a/b now", "see \nhttps://ex\nample.org/\na/b now"},
		{"wide characters", "日本語の 文字", "日本語の \n文字"},
		{"a line of wide characters", "日本語の文字", "日本語の文\n字"},
		{"code", "so\n```go\nfunc main() { run() }\n```\nthat is all", "so\n```go\nfunc main(\n) { run() \n}\n```\nthat is \nall"},
		{"a table", "|one|two|three|\nthat is all", "|one|two|t\nhree|\nthat is \nall"},
		{"an indent", "  one two three", "  one two\nthree"},
	} {
		for _, size := range []int{1, 2, 3, 5, 1000} {
			var out bytes.Buffer
			terminal := chat.NewTerminal(&out, io.Discard, chat.TerminalOptions{Columns: func() int { return 10 }})
			for rest := []rune(tt.text); len(rest) > 0; {
				n := min(size, len(rest))
				terminal.Event(chat.Event{Kind: chat.EventText, Text: string(rest[:n])})
				rest = rest[n:]
			}
			if got := onScreen(out.String(), 10); got != tt.want {
				t.Errorf("%s, %d characters at a time: %q, want %q", tt.rule, size, got, tt.want)
			}
		}
	}
}

// What commands answer is broken as well, but for lines with columns and JSON.
func TestTerminalBreaksAnswers(t *testing.T) {
	t.Parallel()
	const wide = 20
	for _, tt := range []struct {
		rule, out, notes string
		e                chat.Event
	}{
		{"a sentence", "saved v1: 2 \nmessages, 700 bytes\n", "note: the disk is \nnearly full\n", chat.Event{
			Kind: chat.EventAnswer, Result: plugin.Result{Text: "saved v1: 2 messages, 700 bytes", Notices: []string{"the disk is nearly full"}},
		}},
		{"columns, and a sentence below", "NAME  MSGS  SIZE  UP\nDATED\nthese are not all \nthat there are\n", "", chat.Event{
			Kind: chat.EventAnswer, Effect: plugin.EffectRead, Result: plugin.Result{Text: "NAME  MSGS  SIZE  UPDATED\nthese are not all that there are"},
		}},
		{"JSON", "{\"note\":\"one two thr\nee four\"}\n", "", chat.Event{
			Kind: chat.EventAnswer, JSON: true, Effect: plugin.EffectRead, Result: plugin.Result{Data: json.RawMessage(`{"note":"one two three four"}`)},
		}},
		{"an error", "", "error: there is no \nsnapshot v9\nhint: try v1 or one\nof the others\n", chat.Event{
			Kind: chat.EventError, Err: &plugin.Error{Message: "there is no snapshot v9", Hint: "try v1 or one of the others"},
		}},
	} {
		var out, notes bytes.Buffer
		chat.NewTerminal(&out, &notes, chat.TerminalOptions{Columns: func() int { return wide }}).Event(tt.e)
		if diff := cmp.Diff([]string{tt.out, tt.notes}, []string{onScreen(out.String(), wide), onScreen(notes.String(), wide)}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.rule, diff)
		}
	}
}

// onScreen is what a terminal of a width shows of an output that takes words back.
func onScreen(out string, width int) string {
	var rows []string
	var row []string // by column; "" is the second half of a wide character
	flush := func() {
		rows = append(rows, strings.Join(row, ""))
		row = nil
	}
	for out != "" {
		if rest, ok := strings.CutPrefix(out, "\x1b["); ok {
			n, rest, _ := strings.Cut(rest, "D\x1b[K")
			back, _ := strconv.Atoi(n)
			row, out = row[:len(row)-back], rest
			continue
		}
		c, rest, wide, _ := uniseg.FirstGraphemeClusterInString(out, -1)
		if out = rest; c == "\n" || c == "\r\n" {
			flush()
			continue
		}
		if len(row)+wide > width {
			flush()
		}
		row = append(row, c)
		for range wide - 1 {
			row = append(row, "")
		}
	}
	return strings.Join(append(rows, strings.Join(row, "")), "\n")
}
