package wire_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sess/plugin"
	"sess/plugin/wire"
	"sess/store/transcript"
)

var _ plugin.Provider = (*testPlugin)(nil)

// Turn does what the name of the model says.
func (p *testPlugin) Turn(ctx context.Context, to plugin.Endpoint, req plugin.TurnRequest, emit func(plugin.Delta)) (plugin.TurnResult, error) {
	if to.Model == "deaf" {
		return plugin.TurnResult{}, plugin.Errorf(plugin.Denied, "%s: wrong key", to.Name()).WithHint("set another one")
	}
	var last transcript.HistoryItem
	items, size := 0, 0
	peak := heap()
	for item, err := range req.History {
		if err != nil {
			return plugin.TurnResult{}, err
		}
		last = item
		items++
		size += len(item.Content)
		if items%1000 == 0 {
			peak = max(peak, heap())
		}
	}
	emit(plugin.Delta{Kind: plugin.DeltaThought, Text: "hm"})
	emit(plugin.Delta{Kind: plugin.DeltaText, Text: "one "})
	emit(plugin.Delta{Kind: plugin.DeltaText, Text: "two"})
	call := transcript.ToolCall{ID: "c1", Name: req.Tools[0].Name, Arguments: json.RawMessage(`{"no json`)}
	emit(plugin.Delta{Kind: plugin.DeltaTool, Call: call})
	switch to.Model {
	case "wait":
		<-ctx.Done()
		return plugin.TurnResult{}, ctx.Err()
	case "exit":
		os.Exit(3)
	case "panic":
		panic("boom")
	case "broken":
		return plugin.TurnResult{Native: &transcript.Native{Kind: "k", Items: []json.RawMessage{[]byte("{")}}}, nil
	}
	return plugin.TurnResult{
		Text:      fmt.Sprintf("%+v %s %s %s %s %d %d", to, string(to.APIKey), req.System, req.State, req.Tools[0].Schema, items, size),
		ToolCalls: []transcript.ToolCall{call},
		Usage:     plugin.TokenUsage{InputTokens: int(peak), OutputTokens: 2, CachedTokens: 3},
		Native:    last.Native,
		State:     req.State,
	}, nil
}

func (p *testPlugin) Compact(_ context.Context, to plugin.Endpoint, req plugin.CompactRequest) (plugin.CompactResult, error) {
	if to.Model == "none" {
		return plugin.CompactResult{}, nil
	}
	out := plugin.CompactResult{Native: transcript.Native{Kind: "k"}, Usage: plugin.TokenUsage{InputTokens: 5, OutputTokens: 1}}
	for item, err := range req.History {
		if err != nil {
			return out, err
		}
		text, _ := json.Marshal(req.System + item.Content)
		out.Native.Items = append(out.Native.Items, text)
	}
	return out, nil
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func items(list ...transcript.HistoryItem) iter.Seq2[transcript.HistoryItem, error] {
	return func(yield func(transcript.HistoryItem, error) bool) {
		for _, item := range list {
			if !yield(item, nil) {
				return
			}
		}
	}
}

// native has what a Go encoder would write otherwise.
var native = &transcript.Native{Kind: "k", Items: []json.RawMessage{
	json.RawMessage(`{"id":"rs_1", "text":"a<b & \u003cc\u003e é\/", "n":1.0}`), json.RawMessage(`"x"`),
}}

// providers are a provider in this process and the same in another one.
func providers(t *testing.T) map[string]plugin.Provider {
	t.Helper()
	remote, _ := configured(t, true, false)
	return map[string]plugin.Provider{"local": &testPlugin{}, "remote": remote}
}

// S0-03: what a provider said in its own words crosses byte for byte, there and
// back, whatever is between it and the host.
func TestAProviderCannotTellWhereItRuns(t *testing.T) {
	t.Parallel()
	for where, p := range providers(t) {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			big := strings.Repeat("ä", 300<<10) // cut in the middle of a character
			to := plugin.Endpoint{
				Provider: "p", Model: "m", BaseURL: "http://u", APIKey: "k3y", KeyOrigin: "o", Timeout: -1, IdleTimeout: time.Minute,
				MaxRetries: -1, MaxTokens: 7, ContextWindow: 8, Parameters: json.RawMessage(`{"x": 1}`),
			}
			req := plugin.TurnRequest{
				System: "be brief", State: json.RawMessage(`{"a": 1}`), Tools: []plugin.Tool{{Name: "t", Description: "d", Schema: json.RawMessage(`{"type":"object"}`)}},
				History: items(
					transcript.HistoryItem{Role: transcript.RoleUser, Content: big, MessageID: "m1"},
					transcript.HistoryItem{Role: transcript.RoleAssistant, Native: native},
				),
			}
			var deltas []plugin.Delta
			got, err := p.Turn(ctx, to, req, func(d plugin.Delta) { deltas = append(deltas, d) })
			if err != nil {
				t.Fatalf("Turn: %v", err)
			}
			call := transcript.ToolCall{ID: "c1", Name: "t", Arguments: json.RawMessage(`{"no json`)}
			want := plugin.TurnResult{
				Text:      fmt.Sprintf(`%+v k3y be brief {"a": 1} {"type":"object"} 2 %d`, to, len(big)),
				ToolCalls: []transcript.ToolCall{call}, Usage: plugin.TokenUsage{InputTokens: got.Usage.InputTokens, OutputTokens: 2, CachedTokens: 3}, Native: native, State: json.RawMessage(`{"a": 1}`),
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Turn (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]plugin.Delta{
				{Kind: plugin.DeltaThought, Text: "hm"},
				{Kind: plugin.DeltaText, Text: "one "},
				{Kind: plugin.DeltaText, Text: "two"},
				{Kind: plugin.DeltaTool, Call: call},
			}, deltas); diff != "" {
				t.Errorf("deltas (-want +got):\n%s", diff)
			}

			to.Model = "deaf"
			_, err = p.Turn(ctx, to, req, nil)
			if e := plugin.AsError(err); e == nil || e.Code != plugin.Denied || e.Text() != "p/deaf: wrong key; set another one" {
				t.Errorf("Turn(deaf) = %v", err)
			}

			broken := plugin.Errorf(plugin.Corrupt, "a chunk is damaged")
			req.History = func(yield func(transcript.HistoryItem, error) bool) {
				_ = yield(transcript.HistoryItem{Content: "x"}, nil) && yield(transcript.HistoryItem{}, broken)
			}
			to.Model = "m"
			if _, err := p.Turn(ctx, to, req, func(plugin.Delta) { t.Error("it answered to half a history") }); !errors.Is(err, broken) {
				t.Errorf("Turn with an unreadable history = %v, want %v", err, broken)
			}

			compact := plugin.CompactRequest{System: "s ", History: items(transcript.HistoryItem{Content: "one"}, transcript.HistoryItem{Content: "two"})}
			shorter, err := p.Compact(ctx, to, compact)
			if diff := cmp.Diff(plugin.CompactResult{
				Native: transcript.Native{Kind: "k", Items: []json.RawMessage{json.RawMessage(`"s one"`), json.RawMessage(`"s two"`)}},
				Usage:  plugin.TokenUsage{InputTokens: 5, OutputTokens: 1},
			}, shorter); err != nil || diff != "" {
				t.Errorf("Compact: %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func turn(ctx context.Context, p plugin.Provider, model string, emit func(plugin.Delta)) (plugin.TurnResult, error) {
	return p.Turn(ctx, plugin.Endpoint{Provider: "p", Model: model}, plugin.TurnRequest{Tools: []plugin.Tool{{Name: "t"}}, History: items()}, emit)
}

// A turn that is cancelled, whose plugin dies, or that has a bug keeps what came
// until then, and says what happened.
func TestTurnsThatBreakOff(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		model string
		is    error
		text  string
	}{
		{"wait", context.Canceled, "plugin test: Turn was cancelled"},
		{"panic", &plugin.Error{Code: plugin.Internal}, "a bug stopped Turn"},
		{"broken", &plugin.Error{Code: plugin.Internal}, "plugin test broke the protocol in Turn: a native item is no JSON"},
		{"exit", wire.ErrStopped, "plugin test stopped during Turn"},
	} {
		t.Run(test.model, func(t *testing.T) {
			t.Parallel()
			remote, _ := configured(t, true, false)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var said strings.Builder
			_, err := turn(ctx, remote, test.model, func(d plugin.Delta) {
				if said.WriteString(d.Text); d.Kind == plugin.DeltaTool && test.model == "wait" {
					cancel()
				}
			})
			if e := plugin.AsError(err); !errors.Is(err, test.is) || e.Message != test.text {
				t.Errorf("Turn(%s) = %v, want %v: %s", test.model, err, test.is, test.text)
			}
			if said.String() != "hmone two" && test.model != "exit" { // whose last words may be lost
				t.Errorf("Turn(%s) said %q", test.model, said.String())
			}
		})
	}
}

func TestACompactionWithoutAResult(t *testing.T) {
	t.Parallel()
	remote, _ := configured(t, true, false)
	_, err := remote.Compact(t.Context(), plugin.Endpoint{Model: "none"}, plugin.CompactRequest{History: items()})
	if e := plugin.AsError(err); e == nil || e.Message != "plugin test broke the protocol in Compact: the native items have no kind" {
		t.Errorf("Compact = %v", err)
	}
}

// A history of 50 MB costs neither side more than a few pieces of it.
func TestALongHistoryNeedsLittleMemory(t *testing.T) {
	remote, _ := configured(t, true, false)
	text := strings.Repeat("x", 1000)
	const count = 50_000
	before, peak := heap(), uint64(0)
	req := plugin.TurnRequest{Tools: []plugin.Tool{{Name: "t"}}, History: func(yield func(transcript.HistoryItem, error) bool) {
		for i := range count {
			if i%1000 == 0 {
				peak = max(peak, heap())
			}
			if !yield(transcript.HistoryItem{Role: transcript.RoleUser, Content: text}, nil) {
				return
			}
		}
	}}
	got, err := remote.Turn(t.Context(), plugin.Endpoint{Provider: "p", Model: "m"}, req, func(plugin.Delta) {})
	if err != nil || !strings.HasSuffix(got.Text, fmt.Sprintf(" %d %d", count, count*len(text))) {
		t.Fatalf("Turn = %q, %v", got.Text, err)
	}
	const limit = 24 << 20
	if peak > before+limit || got.Usage.InputTokens > limit {
		t.Errorf("the host's heap grew from %d to %d bytes, the plugin's to %d", before, peak, got.Usage.InputTokens)
	}
}

// A key is shown by nothing that formats, logs or encodes what it is part of.
func TestASecretStaysSecret(t *testing.T) {
	t.Parallel()
	e := plugin.Endpoint{Provider: "p", Model: "m", APIKey: "k3y"}
	encoded, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{fmt.Sprint(e), fmt.Sprintf("%+v %#v %s %q %x", e, e, e.APIKey, e.APIKey, e.APIKey), string(encoded), fmt.Sprint(e.APIKey.LogValue())} {
		if strings.Contains(text, "k3y") || strings.Contains(text, fmt.Sprintf("%x", "k3y")) {
			t.Errorf("the key is in %q", text)
		}
	}
}
