package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/host/chat"
	"sess/host/models"
	"sess/plugin"
	"sess/store/session"
	"sess/store/transcript"
)

func TestToolCall(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.equal("shown", []string{
		`tool_started: pad_manage {"action":"save","name":"v1","note":"--x"}`,
		"tool_finished: pad_manage failed=false saved v1 --x\n\n{\"did\":\"save\"}",
		"text: pad_manage answered:\n> saved v1 --x\n> \n> {\"did\":\"save\"}",
	}, d.send(`call pad_manage {"action":"save","name":"v1","note":"--x"}`))
	call := d.pad.lastCall()
	if call.Caller != plugin.CallerTool || call.Turn == "" || call.Session != "s1" {
		t.Errorf("the call %+v is not one of the model in its turn of s1", call)
	}
	d.equal("history", []string{
		`user: call pad_manage {"action":"save","name":"v1","note":"--x"}`,
		`assistant [call_1 pad_manage {"action":"save","name":"v1","note":"--x"}]: `,
		"tool of call_1: saved v1 --x\n\n{\"did\":\"save\"}",
		"assistant: pad_manage answered:\n> saved v1 --x\n> \n> {\"did\":\"save\"}",
	}, d.history())
	activities := records[transcript.Activity](d, transcript.ListActivities)
	if len(activities) != 1 || activities[0].Status != transcript.StatusCompleted || activities[0].Title != "pad_manage save" {
		t.Errorf("activities %+v, want one that is completed", activities)
	}
	d.equal("events", []string{"turn_start", "tool_call_started", "tool_call_finished", "text_delta", "usage", "run_finished", "turn_end"}, d.logged())
	// What the model saved in its turn is what was committed: with the call.
	if saved := d.pad.states["v1"].List(transcript.ListHistory).Records; saved != 2 {
		t.Errorf("the state saved in the turn has %d items of history, want 2", saved)
	}
}

// S3-20: what is too large for the session's file is whole in the event log and in
// history.
func TestLargeToolCall(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	note := strings.Repeat("n", 9_000)
	d.send(`call pad_manage {"action":"save","name":"v1","note":"` + note + `"}`)
	activities := records[transcript.Activity](d, transcript.ListActivities)
	if len(activities) != 1 || activities[0].RawInput != nil || activities[0].RawOutput != nil || activities[0].Title != "pad_manage save" {
		t.Errorf("activities %+v, want one without input and output", activities)
	}
	whole := map[string]bool{}
	events, _, err := d.store.ReadTurn(t.Context(), d.ref, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		whole[e.Type] = strings.Contains(string(e.Raw), note)
	}
	history := d.history()
	if !whole[session.EventToolCallStarted] || !whole[session.EventToolCallFinished] || !strings.Contains(history[1], note) || !strings.Contains(history[2], note) {
		t.Errorf("the call is whole in the event log: %v, history has %d items", whole, len(history))
	}
}

func TestToolFailures(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ rule, arguments, want string }{
		{"a plugin's error", `{"action":"load","name":"nope","session":"s1x"}`, "error (not_found): there is no nope; save it first"},
		{"an unknown field", `{"action":"save","nmae":"v1"}`, `error (usage): unknown field "nmae"`},
		{"no object", ``, "error (usage): "},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			shown := d.send("call pad_manage " + tt.arguments)
			if got := shown[len(shown)-1]; !strings.HasPrefix(got, "text: pad_manage answered:\n> "+tt.want) {
				t.Errorf("the model was told %q, want %q", got, tt.want)
			}
			activities := records[transcript.Activity](d, transcript.ListActivities)
			if len(activities) != 1 || activities[0].Status != transcript.StatusFailed {
				t.Errorf("activities %+v, want one that failed", activities)
			}
			if live := d.live(); live.Status != session.StatusIdle {
				t.Errorf("status %s, want idle: the turn itself went well", live.Status)
			}
		})
	}
}

func TestToolsOffered(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var offered []models.Tool
	d.open(modelFunc(func(_ context.Context, req models.Request, _ func(models.Delta)) (models.Answer, error) {
		offered = req.Tools
		return models.Answer{}, nil
	}))
	d.send("hi")
	if len(offered) != 1 || offered[0].Name != "pad_manage" || offered[0].Description == "" || !json.Valid(offered[0].Schema) || !strings.Contains(string(offered[0].Schema), `"load"`) {
		t.Errorf("the model was offered %+v", offered)
	}
	d.opts.Commands = nil
	d.open(offline(t))
	d.equal("without plugins", []string{`text: There is no tool "pad_manage", nor any other.`}, d.send("call pad_manage {}"))
	d.equal("the list", []string{"answer: the model may call no tool"}, d.send("/tools"))
}

// modelFunc makes a function a model.
type modelFunc func(ctx context.Context, req models.Request, emit func(models.Delta)) (models.Answer, error)

func (modelFunc) Name() string { return "test/model" }

func (f modelFunc) Turn(ctx context.Context, req models.Request, emit func(models.Delta)) (models.Answer, error) {
	return f(ctx, req, emit)
}

func TestModelsOddities(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	round := 0
	d.open(modelFunc(func(_ context.Context, req models.Request, emit func(models.Delta)) (models.Answer, error) {
		round++
		answers := []models.Answer{
			{Text: "let me see", ToolCalls: []transcript.ToolCall{{ID: "a", Name: "nope"}, {ID: "b", Name: "pad_manage", Arguments: json.RawMessage(`{"act`)}}, State: json.RawMessage(`{"continuation":"r1"}`)},
			{Text: "so be it"},
		}
		if round == 2 && string(req.State) != `{"continuation":"r1"}` {
			t.Errorf("the second request has the state %s", req.State)
		}
		emit(models.Delta{Kind: models.DeltaText, Text: answers[round-1].Text})
		return answers[round-1], nil
	}))
	shown := d.send("go")
	for i, want := range []string{
		"text: let me see",
		"tool_started: nope {}",
		`tool_finished: nope failed=true error (usage): unknown tool "nope"; the tools are pad_manage`,
		`tool_started: pad_manage "{\"act"`,
		`tool_finished: pad_manage failed=true error (usage): `,
		"text: \n\nso be it",
	} {
		if !strings.HasPrefix(shown[i], want) {
			t.Errorf("shown[%d] = %q, want %q", i, shown[i], want)
		}
	}
	d.equal("messages", []string{"user complete: go", "agent complete: let me see\n\nso be it"}, d.messages())
	if got := string(d.live().Get("providerState")); got != `{"continuation":"r1"}` {
		t.Errorf("stored state %s", got)
	}
}

// S0-03: what a provider says is kept in its own words, byte for byte, and is
// what the next request has; each item tells which message it belongs to.
func TestNativeHistory(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	native := &transcript.Native{Kind: "test", Items: []json.RawMessage{
		json.RawMessage(`{ "signature":"A\/b=", "n":1.0 }`), json.RawMessage(`{"text":"<\u00e4>"}`),
	}}
	var sent []transcript.HistoryItem
	d.open(modelFunc(func(_ context.Context, req models.Request, emit func(models.Delta)) (models.Answer, error) {
		sent = nil
		for item, err := range req.History {
			if err != nil {
				t.Error(err)
			}
			sent = append(sent, item)
		}
		if len(sent) == 1 {
			return models.Answer{ToolCalls: []transcript.ToolCall{{ID: "a", Name: "nope"}}, Native: native}, nil
		}
		emit(models.Delta{Kind: models.DeltaText, Text: "done"})
		return models.Answer{Text: "done"}, nil
	}))
	d.send("go", "on")
	messages := records[transcript.Message](d, transcript.ListMessages)
	var ids []string
	for _, m := range messages {
		ids = append(ids, m.ID)
	}
	var of []string
	for _, item := range records[transcript.HistoryItem](d, transcript.ListHistory) {
		of = append(of, item.MessageID)
	}
	d.equal("the messages of the items", []string{ids[0], ids[1], ids[1], ids[1], ids[2], ids[3]}, of)
	if len(sent) != 5 || len(sent[1].ToolCalls) != 1 {
		t.Fatalf("the second turn was told %+v", sent)
	}
	if diff := cmp.Diff(native, sent[1].Native); diff != "" {
		t.Errorf("native (-said +sent):\n%s", diff)
	}
}

// What a model wants people to know is told once a turn, and is not part of the
// answer. Tokens count, too, if the turn fails.
func TestModelNotices(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	rounds := 0
	d.open(modelFunc(func(_ context.Context, _ models.Request, emit func(models.Delta)) (models.Answer, error) {
		rounds++
		emit(models.Delta{Kind: models.DeltaNotice, Text: "asking again in 1s"})
		emit(models.Delta{Kind: models.DeltaText, Text: "a"})
		if rounds == 2 {
			return models.Answer{}, plugin.Errorf(plugin.Unavailable, "gone")
		}
		return models.Answer{Text: "a", ToolCalls: []transcript.ToolCall{{ID: "x", Name: "nope"}}, Usage: models.Usage{InputTokens: 5, OutputTokens: 2}}, nil
	}))
	shown := d.fail(plugin.Unavailable, "go")
	d.equal("told", []string{"notice: asking again in 1s", "text: a"}, shown[:2])
	for _, line := range shown[2:] {
		if strings.HasPrefix(line, "notice: ") {
			t.Errorf("told again: %s", line)
		}
	}
	d.equal("messages", []string{"user complete: go", "agent error: a\n\na"}, d.messages())
	d.equal("events", []string{"turn_start", "text_delta", "tool_call_started", "tool_call_finished", "text_delta", "usage", "error", "turn_end"}, d.logged())
}

func TestEndlessToolCalls(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	rounds := 0
	d.open(modelFunc(func(context.Context, models.Request, func(models.Delta)) (models.Answer, error) {
		rounds++
		return models.Answer{ToolCalls: []transcript.ToolCall{{ID: string(rune('a' + rounds)), Name: "nope"}}}, nil
	}))
	d.fail(plugin.Unavailable, "go")
	if rounds != 16 {
		t.Errorf("the model was asked %d times, want 16", rounds)
	}
	if live := d.live(); live.Status != session.StatusError || !strings.Contains(live.Error, "after 16 rounds") {
		t.Errorf("status %s, error %q", live.Status, live.Error)
	}
	d.open(offline(t))
	d.equal("afterwards", []string{"text: " + seen("hi", 2, "go")}, d.send("hi"))
}

func TestModelError(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.equal("shown", []string{"error: unavailable: offline/echo failed because it was told to; say something else"}, d.fail(plugin.Unavailable, "fail"))
	if live := d.live(); live.Status != session.StatusError || live.Error != "offline/echo failed because it was told to" || live.ActiveRun != nil {
		t.Errorf("status %s, error %q, active run %s", live.Status, live.Error, live.ActiveRun)
	}
	d.equal("messages", []string{"user complete: fail", "agent error: "}, d.messages())
	d.equal("events", []string{"turn_start", "error", "turn_end"}, d.logged())
	d.equal("the next turn", []string{"text: " + seen("hi", 2, "fail")}, d.send("hi"))
	if live := d.live(); live.Status != session.StatusIdle || live.Error != "" {
		t.Errorf("then: status %s, error %q, want idle", live.Status, live.Error)
	}
}

// cancelOn sends a line and cancels it at the n-th event of a kind.
func (d *desk) cancelOn(line string, kind chat.EventKind, n int) []string {
	d.t.Helper()
	ctx, cancel := context.WithCancel(d.t.Context())
	defer cancel()
	d.shown.take()
	d.shown.on = func(e chat.Event) {
		if e.Kind == kind {
			if n--; n == 0 {
				cancel()
			}
		}
	}
	defer func() { d.shown.on = nil }()
	if err := d.chat.Send(ctx, line); !errors.Is(err, context.Canceled) {
		d.t.Fatalf("Send(%q) = %v, want context canceled", line, err)
	}
	return d.shown.take()
}

func TestCancelKeepsWhatCame(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.equal("shown", []string{"text: 1 2 3 ", "notice: interrupted; what came until then is kept"}, d.cancelOn("slow 1000 1ms", chat.EventText, 3))
	d.equal("messages", []string{"user complete: slow 1000 1ms", "agent complete: 1 2 3 "}, d.messages())
	d.equal("history", []string{"user: slow 1000 1ms", "assistant: 1 2 3 "}, d.history())
	d.equal("events", []string{"turn_start", "text_delta", "run_cancelled", "turn_end"}, d.logged())
	if live := d.live(); live.Status != session.StatusIdle || live.ActiveRun != nil {
		t.Errorf("status %s, active run %s, want idle", live.Status, live.ActiveRun)
	}
	d.equal("the next turn", []string{"text: " + seen("hi", 2, "slow 1000 1ms")}, d.send("hi"))
}

func TestCancelBeforeAnythingCame(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.equal("shown", []string{"notice: interrupted; what came until then is kept"}, d.cancelOn("slow 1000 1h", chat.EventTurnStarted, 1))
	d.equal("messages", []string{"user complete: slow 1000 1h", "agent error: "}, d.messages())
}

func TestCancelBeforeTheTurn(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.chat.Send(ctx, "hi"); !errors.Is(err, context.Canceled) {
		t.Errorf("Send = %v, want context canceled", err)
	}
	d.equal("shown", []string{"notice: interrupted before the message was stored; send it again"}, d.shown.take())
	d.equal("messages", nil, d.messages())
}

func TestCancelBetweenTools(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	line := "call pad_manage {\"action\":\"save\",\"name\":\"a\"}\ncall pad_manage {\"action\":\"save\",\"name\":\"b\"}\ncall pad_manage {\"action\":\"load\",\"name\":\"a\"}"
	d.cancelOn(line, chat.EventToolFinished, 1)
	d.equal("history", []string{
		"user: " + line,
		`assistant [call_1 pad_manage {"action":"save","name":"a"}] [call_2 pad_manage {"action":"save","name":"b"}] [call_3 pad_manage {"action":"load","name":"a"}]: `,
		"tool of call_1: saved a\n\n{\"did\":\"save\"}",
		"tool of call_2: interrupted",
		"tool of call_3: interrupted",
	}, d.history())
	var states []string
	for _, a := range records[transcript.Activity](d, transcript.ListActivities) {
		states = append(states, string(a.Status))
	}
	d.equal("activities", []string{"completed", "failed", "failed"}, states)
	if len(d.pad.calls) != 1 {
		t.Errorf("%d calls reached the plugin, want 1", len(d.pad.calls))
	}
}

func TestQueuedUntilTheTurnEnds(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.send("one", "/pad save v1", "two")
	d.equal("shown", []string{
		`tool_started: pad_manage {"action":"load","name":"v1"}`,
		"tool_finished: pad_manage failed=false queued: load runs when this turn ends",
		"text: pad_manage answered:\n> queued: load runs when this turn ends",
		"notice: pad load v1: loaded v1",
	}, d.send(`call pad_manage {"action":"load","name":"v1"}`))
	if call := d.pad.lastCall(); call.Caller != plugin.CallerHost || call.Turn != "" {
		t.Errorf("the queued call is %+v, want one of the host outside a turn", call)
	}
	d.equal("no notice of what the chat did itself", []string{"text: " + seen("three", 2, "one")}, d.send("three"))

	d.equal("a call that could not run", []string{
		`tool_started: pad_manage {"action":"load","name":"v0"}`,
		"tool_finished: pad_manage failed=true error (invalid_name): v0 is no name; try v1",
		"text: pad_manage answered:\n> error (invalid_name): v0 is no name; try v1",
	}, d.send(`call pad_manage {"action":"load","name":"v0"}`))

	shown := d.fail(plugin.NotFound, `call pad_manage {"action":"load","name":"v9"}`)
	d.equal("a queued call that fails", []string{"error: not_found: queued pad load v9: there is no v9; save it first"}, shown[len(shown)-1:])
	d.equal("new from the model", []string{
		"notice: pad new: started s2",
		`notice: this chat now shows session s2 of project default: "Fresh", 0 messages`,
	}, d.send(`call pad_manage {"action":"new"}`)[3:])
	d.equal("in the new session", []string{"text: " + first}, d.send("hi"))
}

func TestQueueOfAnInterruptedTurn(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.send("one", "/pad save v1")
	shown := d.cancelOn(`call pad_manage {"action":"load","name":"v1"}`, chat.EventToolFinished, 1)
	d.equal("shown", []string{
		"notice: interrupted; what came until then is kept",
		"notice: not run, since the turn was interrupted: pad load v1",
	}, shown[len(shown)-2:])
	if n := len(d.messages()); n != 4 {
		t.Errorf("the session has %d messages, want 4: nothing was loaded", n)
	}
}

func TestNotify(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	told, release := make(chan plugin.Event, 10), make(chan struct{})
	d.opts.Agent = "writer"
	d.opts.Notify = func(_ context.Context, e plugin.Event) ([]string, error) {
		told <- e
		<-release
		if len(told) == 1 {
			return nil, plugin.Errorf(plugin.NoSpace, "autosave: the disk is full").WithHint("make room")
		}
		return []string{"autosaved"}, nil
	}
	d.open(offline(t))
	d.equal("a turn does not wait for it", []string{"text: " + first}, d.send("hi"))
	d.send("ho")
	close(release)
	if err := d.chat.Close(t.Context()); err != nil {
		t.Fatalf("Close: %v", err)
	}
	d.equal("told before the end", []string{"notice: after the turn: autosave: the disk is full; make room", "notice: autosaved"}, d.shown.take())
	one, two := <-told, <-told
	if one.Kind != plugin.EventTurnEnded || one.Session != "s1" || one.Project != "default" || one.Agent != "writer" || one.Turn == "" {
		t.Errorf("event %+v", one)
	}
	if two.Revision <= one.Revision || two.Revision != d.live().Revision || two.Turn == one.Turn {
		t.Errorf("events %+v and %+v, want the turns in their order", one, two)
	}
	if len(told) != 0 {
		t.Errorf("%d more events", len(told))
	}
}

func TestCloseGivesUpOnPlugins(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.opts.Notify = func(ctx context.Context, _ plugin.Event) ([]string, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	d.open(offline(t))
	d.send("hi", "ho")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.chat.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Close = %v, want context canceled", err)
	}
	// One for each turn, also for the one that was still waiting.
	d.equal("told", []string{"notice: after the turn: context canceled", "notice: after the turn: context canceled"}, d.shown.take())
}

func TestTornEventLogIsTold(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.send("hi")
	file := filepath.Join(d.dir, "default", "s1", "turn-001.jsonl")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data[:len(data)-5], 0o600); err != nil {
		t.Fatal(err)
	}
	shown := d.send("ho")
	if len(shown) != 2 || !strings.HasPrefix(shown[0], "notice: ") || !strings.Contains(shown[0], "turn-001.jsonl") {
		t.Errorf("shown %q, want a notice that names the file", shown)
	}
	d.equal("messages", []string{"user complete: hi", "agent complete: " + first, "user complete: ho", "agent complete: " + seen("ho", 2, "hi")}, d.messages())
}

// S1-14: what is asked of a person is in the log of the turn, and so is every other
// kind of event where it happens.
func TestEventKinds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		line string
		want []string
	}{
		{"think of it", []string{"turn_start", "thought_delta", "text_delta", "usage", "run_finished", "turn_end"}},
		{`call pad_manage {"action":"save","name":"v1"}`, []string{
			"turn_start", "tool_call_started", "approval_request", "tool_call_finished", "text_delta", "usage", "run_finished", "turn_end",
		}},
		{"fail", []string{"turn_start", "error", "turn_end"}},
		{"slow 100000 1ms", []string{"turn_start", "text_delta", "run_cancelled", "turn_end"}},
	} {
		d := newDesk(t)
		d.opts.Confirm = func() []string { return []string{"save"} }
		d.open(offline(t))
		ctx, cancel := context.WithCancel(t.Context())
		d.shown.on = func(e chat.Event) {
			switch {
			case e.Kind == chat.EventQuestion:
				if err := d.chat.Allow(e.Tool.ID, true); err != nil {
					t.Errorf("Allow: %v", err)
				}
			case e.Kind == chat.EventText && strings.HasPrefix(tt.line, "slow"):
				cancel()
			}
		}
		_ = d.chat.Send(ctx, tt.line) // two of them fail, as their logs say
		cancel()
		d.equal(tt.line, tt.want, d.logged())
	}
}

// S1-22: a command shows the last events of the turn that runs, as many as it is
// told to.
func TestEventsOfTheTurnThatRuns(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.send("hi")
	other, err := chat.Open(t.Context(), d.store, d.ref, offline(t), d.shown, d.opts)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := other.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
	}()
	seen := 0
	d.shown.on = func(e chat.Event) {
		if e.Kind == chat.EventText && seen == 0 {
			seen++
			if err := other.Send(t.Context(), "/events 1"); err != nil {
				t.Errorf("/events 1: %v", err)
			}
		}
	}
	got := strings.Join(d.send("ho"), "\n")
	if !strings.Contains(got, "answer: turn 2: 2 events, the last 1\n2  ") || !strings.Contains(got, "  text_delta  ") {
		t.Errorf("shown:\n%s", got)
	}
}

func TestConfirm(t *testing.T) {
	t.Parallel()
	const line = `call pad_manage {"action":"save","name":"v1"}`
	for _, tt := range []struct {
		rule, confirm string
		allow         bool
		want          string // the model is told
		status        string // of the session while a person is asked
	}{
		{"a verb, allowed", "save", true, "saved v1", session.StatusPermission},
		{"a command's verb, refused", "pad save", false, "error (denied): pad save v1: a person did not allow it; ask what to do instead", session.StatusPermission},
		{"an effect, allowed", "write", true, "saved v1", session.StatusPermission},
		{"another verb", "load", false, "saved v1", ""},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			d.opts.Confirm = func() []string { return []string{tt.confirm} }
			d.open(offline(t))
			status := ""
			d.shown.on = func(e chat.Event) {
				if e.Kind != chat.EventQuestion {
					return
				}
				status = d.live().Status
				if err := d.chat.Allow("another", true); !errors.Is(err, &plugin.Error{Code: plugin.NotFound}) {
					t.Errorf("Allow of another call = %v, want not_found", err)
				}
				if err := d.chat.Allow(e.Tool.ID, tt.allow); err != nil {
					t.Errorf("Allow: %v", err)
				}
			}
			shown := d.send(line)
			if got, want := shown[len(shown)-1], "text: pad_manage answered:\n> "+tt.want; !strings.HasPrefix(got, want) {
				t.Errorf("shown %q, want %q", got, want)
			}
			if status != tt.status {
				t.Errorf("while a person is asked the status is %q, want %q", status, tt.status)
			}
			if live := d.live(); live.Status != session.StatusIdle {
				t.Errorf("afterwards the status is %q", live.Status)
			}
		})
	}
}

func TestCancelWhileAPersonIsAsked(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.opts.Confirm = func() []string { return []string{"save"} }
	d.open(offline(t))
	d.cancelOn(`call pad_manage {"action":"save","name":"v1"}`, chat.EventQuestion, 1)
	if len(d.pad.calls) != 0 {
		t.Errorf("%d calls reached the plugin, want none", len(d.pad.calls))
	}
	if live := d.live(); live.Status != session.StatusIdle {
		t.Errorf("status %q, want idle", live.Status)
	}
}

// forgetful is a model that reads all of a conversation each time.
type forgetful struct{ models.Model }

func (m forgetful) Turn(ctx context.Context, req models.Request, emit func(models.Delta)) (models.Answer, error) {
	req.Since = nil
	return m.Model.Turn(ctx, req, emit)
}

// What the store finds wrong with a session is told under the code that says
// what to do about it.
func TestWhatIsWrongWithASession(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", transcript.MaxChunk)
	for _, tt := range []struct {
		what string
		harm func(d *desk, chunk string) error
		code plugin.Code
	}{
		{"a damaged chunk", func(_ *desk, chunk string) error { return os.WriteFile(chunk, []byte("no chunk"), 0o600) }, plugin.Corrupt},
		{"a missing chunk", func(_ *desk, chunk string) error { return os.Remove(chunk) }, plugin.Corrupt},
		{"a damaged file", func(d *desk, _ string) error {
			return os.WriteFile(filepath.Join(d.dir, "default", "s1.json"), []byte("{"), 0o600)
		}, plugin.Corrupt},
		{"no file", func(d *desk, _ string) error { return os.Remove(filepath.Join(d.dir, "default", "s1.json")) }, plugin.NotFound},
	} {
		t.Run(tt.what, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			d.open(forgetful{offline(t)})
			d.send(long, "hi")
			chunks, err := filepath.Glob(filepath.Join(d.dir, ".chunks", "*.zst"))
			if err != nil || len(chunks) == 0 {
				t.Fatalf("chunks: %v, %v", chunks, err)
			}
			for _, chunk := range chunks {
				if err := tt.harm(d, chunk); err != nil && !errors.Is(err, os.ErrNotExist) {
					t.Fatal(err)
				}
			}
			if shown := d.fail(tt.code, "go on"); !strings.Contains(strings.Join(shown, "\n"), "; ") {
				t.Errorf("shown %q, want a way on", shown)
			}
		})
	}
}
