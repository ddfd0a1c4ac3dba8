package responses

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"sess/dispatch"
	"sess/plugin"
	"sess/plugin/change"
	"sess/store/transcript"
)

// command declares the verbs.
func (p *Plugin) command() dispatch.Command {
	return dispatch.Command{
		Name:    "context",
		Summary: "What the model sees of a conversation: show and compact",
		Verbs: []dispatch.Verb{
			{
				Name:    "compact",
				Summary: "Put a shorter form in the place of the beginning of what the model sees",
				Help: "The provider makes the shorter form, so the session's model has to be one of a provider of the kind responses. People see " +
					"all messages as before, and the conversation as it was is kept in a snapshot: sess undo takes the compaction back. Without " +
					"--range all but the last turns are compacted; keepTurns in the configuration says how many those are.",
				Examples: []string{"compact", "compact --range=:277"},
				Flags: func(fs *dispatch.Flags) {
					fs.String("range", "", "the messages to compact, from the first on: \":277\" is those before message 277, \":-4\" all but the last four")
				},
				Effect: plugin.EffectWrite, AfterTurn: true, Main: true,
				Run: p.runCompact,
			},
			{
				Name:     "show",
				Summary:  "Show how much of the model's window the conversation fills, and what of it is compacted",
				Examples: []string{"show"},
				Effect:   plugin.EffectRead, Main: true,
				Run: p.runShow,
			},
		},
		Routes: []plugin.Route{
			{Method: "GET", Path: "/sessions/{id}/context", Argv: []string{"show", "--session={id}"}},
			{Method: "POST", Path: "/sessions/{id}/compact", Argv: []string{"compact", "--session={id}"}},
		},
		Shortcuts: []plugin.Shortcut{{Name: "compact", Argv: []string{"compact"}, Summary: "Make what the model sees of this conversation shorter"}},
	}
}

// compaction is the data of an answer to compact.
type compaction struct {
	Session   string            `json:"session"`
	Compacted bool              `json:"compacted"`
	Range     *transcript.Range `json:"range,omitempty"`
	Snapshot  string            `json:"snapshot,omitempty"`
	Revision  int64             `json:"revision"`
	// Usage counts the tokens of what was compacted, and of what it has become.
	Usage *plugin.TokenUsage `json:"usage,omitempty"`
}

func (p *Plugin) runCompact(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	return p.compact(ctx, in.Call, in.String("range"), in.Progress)
}

// compact compacts the messages of a range, or without one all but the last turns.
// Nothing is changed and no snapshot made before the provider has answered.
func (p *Plugin) compact(ctx context.Context, call plugin.Call, slice string, progress plugin.ProgressFunc) (plugin.Result, error) {
	s, err := change.Open(ctx, p.Runtime(), call)
	if err != nil {
		return plugin.Result{}, err
	}
	load := s.Loader(ctx)
	doc := s.Document.Clone()
	end, err := p.end(doc, load, slice)
	if err != nil {
		return plugin.Result{}, err
	}
	before := transcript.CompactionOf(doc.Header).Messages()
	share := 0
	if end > before {
		if share, err = transcript.HistoryOf(doc, load, end); err != nil {
			return plugin.Result{}, err
		}
	}
	if share == 0 || share == 1 && before > 0 {
		return resultOf(nothingToDo(doc, slice, end, before), compaction{Session: s.Ref.ID, Revision: s.Revision})
	}
	span := transcript.Range{End: new(end)}
	progress.Report(plugin.Progress{Stage: fmt.Sprintf("compacting messages [%s]", change.Slice(span))})
	made, err := p.ask(ctx, s, end)
	if err != nil {
		return plugin.Result{}, err
	}
	err = transcript.Compact(doc, load, s.Seal, transcript.Record(made.Item), transcript.Compaction{
		Plugin: ID, Provider: made.Provider, Range: span, At: p.now().UnixMilli(),
	})
	if err != nil {
		return plugin.Result{}, err
	}
	done, err := s.Commit(ctx, change.Change{
		Document: doc, Trigger: transcript.TriggerCompact, Action: "compact_conversation", Range: &span,
		Reason: fmt.Sprintf("Before compacting conversation [%s]", change.Slice(span)),
		Note:   fmt.Sprintf("messages [%s] were compacted for the model", change.Slice(span)),
	})
	if err != nil {
		return plugin.Result{}, err
	}
	text := fmt.Sprintf("compacted messages [%s] for the model", change.Slice(span))
	if made.Usage != (plugin.TokenUsage{}) {
		text += fmt.Sprintf(": %d tokens became %d", made.Usage.InputTokens, made.Usage.OutputTokens)
	}
	if done.Snapshot != "" {
		text += fmt.Sprintf("; the conversation as it was is kept as %s", done.Snapshot)
	}
	result, err := resultOf(text, compaction{
		Session: s.Ref.ID, Compacted: true, Range: &span, Snapshot: done.Snapshot, Revision: done.Revision, Usage: &made.Usage,
	})
	result.Notices = done.Notices
	return result, err
}

// end is the first message that is not compacted.
func (p *Plugin) end(doc *transcript.Document, load transcript.Loader, slice string) (int, error) {
	n := doc.List(transcript.ListMessages).Records
	if slice != "" {
		start, end, err := change.ParseSlice(slice, n)
		switch {
		case err != nil:
			return 0, plugin.Errorf(plugin.Usage, "--range: %w", err).WithHint("want the messages from the first on, as in --range=:277")
		case start != 0:
			return 0, plugin.Errorf(plugin.Usage, "--range: %q does not begin at the first message", slice).
				WithHint("only the beginning of a conversation can be compacted: --range=:%d", end)
		}
		return end, nil
	}
	end, kept := n, 0
	for end > 0 && kept < p.config.KeepTurns {
		end--
		for r, err := range doc.List(transcript.ListMessages).All(load, end, end+1) {
			var m transcript.Message
			if err != nil {
				return 0, err
			}
			if json.Unmarshal(r, &m) == nil && m.Role == transcript.RoleUser {
				kept++
			}
		}
	}
	return end, nil
}

// nothingToDo says why nothing was compacted.
func nothingToDo(doc *transcript.Document, slice string, end, before int) string {
	switch n := doc.List(transcript.ListMessages).Records; {
	case n == 0:
		return "nothing to compact: the conversation has no messages"
	case before > 0:
		return fmt.Sprintf("nothing to compact: messages [:%d] are compacted already", before)
	case slice == "":
		return "nothing to compact: the last turns stay as they are; --range=:<n> says otherwise"
	default:
		return fmt.Sprintf("nothing to compact: the model sees nothing of messages [:%d]", end)
	}
}

// madeShorter is what models.compact answers.
type madeShorter struct {
	Provider string            `json:"provider"`
	Usage    plugin.TokenUsage `json:"usage"`
	Item     json.RawMessage   `json:"item"` // of history
}

// ask has the host ask the session's model: it knows where that is, and the key.
func (p *Plugin) ask(ctx context.Context, s *change.Session, end int) (madeShorter, error) {
	params, err := json.Marshal(map[string]any{"project": s.Ref.Project, "session": s.Ref.ID, "revision": s.Revision, "messages": end})
	if err != nil {
		return madeShorter{}, err
	}
	out, err := p.Runtime().Call(ctx, "models.compact", params)
	if err != nil {
		return madeShorter{}, err
	}
	var made madeShorter
	if err := json.Unmarshal(out, &made); err != nil {
		return madeShorter{}, fmt.Errorf("the answer to models.compact: %w", err)
	}
	return made, nil
}

// fill is how much of a model's window a conversation fills.
type fill struct {
	Session       string     `json:"session"`
	Model         string     `json:"model,omitempty"`
	Messages      int        `json:"messages"`
	Compacted     int        `json:"compacted"` // of the messages
	CompactedAt   *time.Time `json:"compactedAt,omitempty"`
	Tokens        int        `json:"tokens"`        // 0: not known
	ContextWindow int        `json:"contextWindow"` // 0: not known
	CompactAt     float64    `json:"compactAt"`
}

// look reads how full a session is. The tokens are those after its last answer, if
// that was of a provider of this plugin.
func (p *Plugin) look(ctx context.Context, ref plugin.SessionRef) (fill, error) {
	live, err := p.Runtime().Session(ctx, ref)
	if err != nil {
		return fill{}, err
	}
	var header struct {
		Model string `json:"model"`
		State state  `json:"providerState"`
	}
	_ = json.Unmarshal(live.Document.Header, &header) // of another provider's state nothing is known
	c := transcript.CompactionOf(live.Document.Header)
	f := fill{
		Session: live.Ref.ID, Model: header.Model, Messages: live.Document.List(transcript.ListMessages).Records, Compacted: c.Messages(),
		CompactAt: p.config.CompactAt,
	}
	if c.Messages() > 0 {
		f.CompactedAt = new(time.UnixMilli(c.At).UTC())
	}
	if provider, _, _ := strings.Cut(header.Model, "/"); provider == header.State.Provider && header.State.Window > 0 {
		f.Tokens, f.ContextWindow = header.State.Tokens, header.State.Window
	}
	return f, nil
}

func (p *Plugin) runShow(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	if in.Call.Foreign != "" {
		return plugin.Result{}, plugin.Errorf(plugin.Denied, "what %s sends to its model is its own business", in.Call.Foreign).WithHint("leave --agent out for the sessions of sess")
	}
	if in.Call.Session == "" { // asking for it would make one
		return plugin.Result{}, plugin.Errorf(plugin.NotFound, "no session is active").WithHint("sess chat begins one; sess sessions list shows those that there are")
	}
	f, err := p.look(ctx, plugin.SessionRef{Project: in.Call.Project, ID: in.Call.Session})
	if err != nil {
		return plugin.Result{}, err
	}
	rows := [][]string{{"session", f.Session}, {"model", cmp.Or(f.Model, "none yet")}, {"messages", fmt.Sprint(f.Messages)}}
	if f.CompactedAt != nil {
		rows = append(rows, []string{"compacted", fmt.Sprintf("messages [:%d], %s", f.Compacted, f.CompactedAt.Local().Format(time.DateTime))})
	}
	tokens := "not known: the last answer was not of a provider of the kind responses, or the conversation has changed since"
	if f.Tokens > 0 {
		tokens = fmt.Sprintf("%d of %d (%d%%)", f.Tokens, f.ContextWindow, 100*f.Tokens/f.ContextWindow)
	}
	rows = append(rows, []string{"tokens", tokens})
	var text strings.Builder
	for _, row := range rows {
		fmt.Fprintf(&text, "%-11s%s\n", row[0]+":", row[1])
	}
	return resultOf(strings.TrimSuffix(text.String(), "\n"), f)
}

// Notify compacts a conversation after a turn of a model of this plugin that filled
// too much of its window.
func (p *Plugin) Notify(ctx context.Context, e plugin.Event) ([]string, error) {
	if e.Kind != plugin.EventTurnAnswered || p.config.CompactAt == 0 {
		return nil, nil
	}
	f, err := p.look(ctx, plugin.SessionRef{Project: e.Project, ID: e.Session})
	if err != nil {
		return nil, err
	}
	if f.Tokens == 0 || float64(f.Tokens) <= p.config.CompactAt*float64(f.ContextWindow) {
		return nil, nil
	}
	full := fmt.Sprintf("the conversation fills %d%% of the model's window", 100*f.Tokens/f.ContextWindow)
	result, err := p.compact(ctx, plugin.Call{Agent: e.Agent, Project: e.Project, Session: e.Session}, "", nil)
	if err != nil {
		return []string{full + " and could not be compacted: " + plugin.AsError(err).Text()}, nil
	}
	var did compaction
	if err := json.Unmarshal(result.Data, &did); err != nil || !did.Compacted {
		return nil, err // what fills it are the last turns
	}
	return append([]string{full + ": " + result.Text}, result.Notices...), nil
}

func resultOf(text string, data any) (plugin.Result, error) {
	encoded, err := json.Marshal(data)
	return plugin.Result{Text: text, Data: encoded}, err
}
