package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sess/host/chat"
	"sess/host/models"
	"sess/plugin"
	"sess/store/transcript"
)

// Who follows the turns is told what their event logs have.
func TestFollow(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var told []string
	d.opts.Follow = func(kind string, fields any) {
		data, err := json.Marshal(fields)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		told = append(told, kind+" "+string(data))
	}
	d.open(offline(t))
	d.send("call pad_manage {\"action\":\"save\",\"name\":\"v1\"}")
	turns, err := d.store.Turns(t.Context(), d.ref)
	if err != nil || len(turns) != 1 {
		t.Fatalf("turns %v, %v", turns, err)
	}
	events, _, err := d.store.ReadTurn(t.Context(), d.ref, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(events) != len(told) {
		t.Fatalf("the log has %d events, %d were told:\n%s", len(events), len(told), strings.Join(told, "\n"))
	}
	for i, e := range events {
		kind, data, _ := strings.Cut(told[i], " ")
		if kind != e.Type {
			t.Errorf("event %d is %s, and %s was told", i, e.Type, kind)
		}
		var logged, followed map[string]any
		if err := json.Unmarshal(e.Raw, &logged); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(data), &followed); err != nil {
			t.Fatal(err)
		}
		for key, value := range logged {
			if slices.Contains([]string{"seq", "time", "type"}, key) {
				continue
			}
			if fmt.Sprint(value) != fmt.Sprint(followed[key]) {
				t.Errorf("%s: %s is %v in the log, and %v was told", kind, key, value, followed[key])
			}
		}
	}
}

// What is sent for a state of the conversation that is no more changes nothing.
func TestLineRevision(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.send("one")
	before := d.live()
	stale := before.Revision - 1
	for _, text := range []string{"two", "/pad save v1"} {
		err := d.chat.SendLine(t.Context(), chat.Line{Text: text, Revision: &stale})
		e := plugin.AsError(err)
		if err == nil || e.Code != plugin.Conflict || !strings.Contains(e.Message, "changed elsewhere") || e.Details["revision"] != fmt.Sprint(before.Revision) {
			t.Errorf("%q for revision %d: %v, want a conflict that tells the revision %d", text, stale, err, before.Revision)
		}
	}
	if now := d.live(); now.Revision != before.Revision {
		t.Errorf("revision %d after what was refused, want %d", now.Revision, before.Revision)
	}
	if err := d.chat.SendLine(t.Context(), chat.Line{Text: "two", Revision: &before.Revision}); err != nil {
		t.Errorf("for the revision that it has: %v", err)
	}
}

// A line may have a model and an instruction of its own.
func TestLineModel(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var system string
	other := modelFunc(func(_ context.Context, req models.Request, emit func(models.Delta)) (models.Answer, error) {
		system = req.System
		emit(models.Delta{Kind: models.DeltaText, Text: "as you like"})
		return models.Answer{Text: "as you like"}, nil
	})
	d.opts.OpenModel = func(name string) (models.Model, error) {
		if name == "test/model" {
			return other, nil
		}
		return models.Open(name, models.Config{})
	}
	d.open(offline(t))
	if err := d.chat.SendLine(t.Context(), chat.Line{Text: "hi", Model: "nope/x"}); !errors.Is(err, &plugin.Error{Code: plugin.Usage}) {
		t.Errorf("an unknown model: %v, want usage", err)
	}
	if err := d.chat.SendLine(t.Context(), chat.Line{Text: "hi", Model: "test/model", System: "Be brief."}); err != nil {
		t.Fatal(err)
	}
	if system != "Be brief." || d.live().Doc.Meta.Model != "test/model" {
		t.Errorf("system %q, model %q: not those of the line", system, d.live().Doc.Meta.Model)
	}
	if got := d.send("again"); len(got) != 1 || got[0] != "text: as you like" || system != "" {
		t.Errorf("the next line: %v, with the instruction %q; want the same model, without one", got, system)
	}
	if err := d.chat.SendLine(t.Context(), chat.Line{Text: "back", Model: "offline/echo"}); err != nil {
		t.Fatal(err)
	}
	var last chat.Event
	d.shown.on = func(e chat.Event) {
		if e.Kind == chat.EventTurnEnded {
			last = e
		}
	}
	d.send("and again")
	if last.Message.Role != transcript.RoleAgent || last.Message.Content == "" || last.Usage.OutputTokens == 0 {
		t.Errorf("the end of the turn tells %+v of the answer", last)
	}
}
