package actions

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"sess/dispatch"
	"sess/plugin"
	"sess/plugin/change"
	"sess/store/transcript"
)

// actionDelete is the action in the metadata of the snapshot made before.
const actionDelete = "delete_messages"

func (p *Plugin) deleteVerb() dispatch.Verb {
	return dispatch.Verb{
		Name:    "delete",
		Aliases: []string{"rm", "remove", "del"},
		Summary: "Delete messages from the session",
		Help: "Indices count from 0, those below 0 from the end. A range has its start and not its end, and either may be left out: " +
			"357: is all from 357 on, :3 the first three, -2: the last two. Tool calls go with their messages, and the model no longer " +
			"sees what is deleted. The state before is kept in a snapshot, which sess undo brings back. Called by a model in its turn, it " +
			"waits for the turn to end, and counts from the end that there is then.",
		Examples: []string{"delete 14", "delete 18 22 25", "delete -1", "delete --range=357:"},
		Args:     []plugin.Arg{{Name: "index", Type: plugin.TypeInt, Help: "index of a message", Repeated: true}},
		Flags: func(fs *dispatch.Flags) {
			fs.String("range", "", "a range of messages, as in 357: or 3:9")
		},
		Effect:    plugin.EffectDestroy,
		AfterTurn: true,
		Main:      true,
		Run:       p.delete,
		Check: func(ctx context.Context, in *dispatch.Invocation) error {
			s, err := change.Open(ctx, p.Runtime(), in.Call)
			if err == nil {
				_, err = named(in, records(s, transcript.ListMessages))
			}
			return err
		},
	}
}

// deletion is the answer for programs.
type deletion struct {
	Session string            `json:"session"`
	Deleted int               `json:"deleted"`
	Indices []int             `json:"indices"`         // normalised
	Range   *transcript.Range `json:"range,omitempty"` // the same, where they make one
	// What else was done; see [transcript.Removed].
	Activities  int `json:"activities"`
	History     int `json:"history"`
	Results     int `json:"results"`
	Interrupted int `json:"interrupted"`
	Compacted   int `json:"compacted"`

	Changed  bool    `json:"changed"`
	Revision int64   `json:"revision"`
	Snapshot *string `json:"snapshot"` // null: none was made
}

func (p *Plugin) delete(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	s, err := change.Open(ctx, p.Runtime(), in.Call)
	if err != nil {
		return plugin.Result{}, err
	}
	total := records(s, transcript.ListMessages)
	indices, err := named(in, total)
	if err != nil {
		return plugin.Result{}, err
	}
	out := deletion{Session: s.Ref.ID, Indices: []int{}, Revision: s.Revision}
	if len(indices) == 0 {
		return answer(fmt.Sprintf("the range %s has none of the %d messages of session %s: nothing was deleted", in.String("range"), total, s.Ref.ID), out, nil)
	}
	what, span := change.Describe(indices, total)
	doc := s.Document.Clone()
	removed, err := transcript.RemoveMessages(doc, s.Loader(ctx), s.Seal, indices)
	if err != nil {
		return plugin.Result{}, err
	}
	c := change.Change{
		Document: doc, Trigger: transcript.TriggerDeleteMessages, Action: actionDelete, Reason: "Before deleting " + what,
		Range: span, Note: "deleted " + what,
	}
	if span == nil {
		c.Indices = indices
	}
	done, err := s.Commit(ctx, c)
	if err != nil {
		return plugin.Result{}, err
	}
	out.Deleted, out.Indices, out.Range = removed.Messages, indices, span
	out.Activities, out.History = removed.Activities, removed.Items
	out.Results, out.Interrupted, out.Compacted = removed.Results, removed.Interrupted, removed.Compacted
	out.Changed, out.Revision = done.Changed, done.Revision
	text := fmt.Sprintf("deleted %s of session %s", what, s.Ref.ID)
	if done.Snapshot != "" {
		out.Snapshot = &done.Snapshot
		text += fmt.Sprintf("; the state before is in %s (sess undo takes it back)", done.Snapshot)
	} else {
		text += "; automatic snapshots are switched off, so sess undo cannot take it back"
	}
	if notices := removed.Notices(); len(notices) > 0 {
		text += "; " + strings.Join(notices, "; ")
	}
	return answer(text, out, done.Notices)
}

func answer(text string, out deletion, notices []string) (plugin.Result, error) {
	data, err := json.Marshal(out)
	return plugin.Result{Text: text, Data: data, Notices: notices}, err
}

// named returns the indices that a call names, normalised; none where it is a
// range without messages.
func named(in *dispatch.Invocation, total int) ([]int, error) {
	given := in.ArgInts("index")
	switch {
	case len(given) == 0 && !in.Changed("range"):
		return nil, plugin.Errorf(plugin.Usage, "delete: no message is named").
			WithHint("give indices or a range, as in: sess messages delete 14, or: sess messages delete --range=357:")
	case len(given) > 0 && in.Changed("range"):
		return nil, plugin.Errorf(plugin.Usage, "delete: both indices and --range are given").WithHint("give one of them")
	case in.Changed("range"):
		from, to, err := change.ParseSlice(in.String("range"), total)
		if err != nil {
			return nil, plugin.Errorf(plugin.Usage, "--range: %w", err).
				WithHint("want start:end, either side may be left out, as in --range=357:")
		}
		var indices []int
		for i := from; i < to; i++ {
			indices = append(indices, i)
		}
		return indices, nil
	}
	indices := make([]int, len(given))
	for i, n := range given {
		indices[i] = int(max(min(n, math.MaxInt32), math.MinInt32)) // none is as large
	}
	indices, err := change.Indices(indices, total)
	if err != nil {
		return nil, plugin.Errorf(plugin.NotFound, "%w", err).WithHint("sess messages list shows them")
	}
	return indices, nil
}
