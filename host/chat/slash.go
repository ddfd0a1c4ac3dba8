package chat

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"sess/host/models"
	"sess/plugin"
	"sess/store/session"
	"sess/surfaces"
)

// builtin is one of the chat's own commands.
type builtin struct {
	name, args, summary string
	run                 func(c *Chat, ctx context.Context, words []string) (plugin.Result, error)
}

// builtins lists the chat's own commands in the order of help.
func builtins() []builtin {
	return []builtin{
		{"help", "[command [verb]]", "List the commands, or explain one", (*Chat).help},
		{"session", "", "Show what session this is", (*Chat).showSession},
		{"events", "[n]", "Show the last events of the latest turn", (*Chat).showEvents},
		{"model", "[provider/model]", "Show the models, or talk with another one in this session", (*Chat).modelCommand},
		{"tools", "", "List what the model may call", (*Chat).showTools},
		{"live", "", "Leave a snapshot that is shown, back to the conversation", (*Chat).goLive},
		{"exit", "", "Leave the chat; the session stays", exit},
		{"quit", "", "The same as /exit", exit},
	}
}

// Builtins lists the names of the chat's own commands, without the slash. No
// plugin may bring a command or shortcut of such a name.
func Builtins() []string {
	var names []string
	for _, b := range builtins() {
		names = append(names, b.name)
	}
	return names
}

func exit(*Chat, context.Context, []string) (plugin.Result, error) { return plugin.Result{}, ErrExit }

// slash answers a line that is a command. Beside an error it returns whether
// the line asked for JSON.
func (c *Chat) slash(ctx context.Context, text string) (inJSON bool, err error) {
	commands := c.opts.Commands()
	lower := surfaces.Slash{Builtins: Builtins(), Specs: specs(commands), Absent: c.opts.Absent}
	call, err := lower.Lower(text)
	if err != nil {
		return call.JSON, err
	}
	var result plugin.Result
	effect := plugin.EffectRead
	switch {
	case call.Builtin != "":
		words := slices.DeleteFunc(call.Argv, func(w string) bool { return w == "--json" })
		call.JSON = len(words) < len(call.Argv)
		all := builtins()
		b := all[slices.IndexFunc(all, func(b builtin) bool { return b.name == call.Builtin })]
		if b.args == "" && len(words) > 0 {
			return call.JSON, plugin.Errorf(plugin.Usage, "/%s takes no words, not even %q", b.name, words[0]).WithHint("type /%s", b.name)
		}
		result, err = b.run(c, ctx, words)
	case call.Help:
		result, err = helpFor(call.Spec, call.Argv)
	default:
		if verb, _ := call.Spec.Find(call.Argv); verb != nil {
			effect = verb.Effect
		}
		result, err = c.dispatch(ctx, commands, call)
		// What it did is told first, then what the chat shows because of it.
		defer c.settle(context.WithoutCancel(ctx))
	}
	if err != nil {
		return call.JSON, err
	}
	c.out.Event(Event{Kind: EventAnswer, Result: result, Effect: effect, JSON: call.JSON})
	return call.JSON, nil
}

// dispatch has a plugin's command answered. What it does to this chat's session
// is expected, so only what happened before is told.
func (c *Chat) dispatch(ctx context.Context, commands []Command, call surfaces.SlashCall) (plugin.Result, error) {
	if live, err := c.store.Outline(ctx, c.Ref()); err == nil {
		c.see(live)
	}
	command := commands[slices.IndexFunc(commands, func(o Command) bool { return o.Spec.Command == call.Spec.Command })]
	return command.Dispatcher.Dispatch(ctx, c.call(plugin.CallerSlash, call.Argv), nil)
}

// doubt tells if a message reads like a command without its slash, as answers
// and hints name them for the command line too. It is the model's all the same.
func (c *Chat) doubt(text string) {
	words := strings.Fields(text)
	for _, o := range c.opts.Commands() {
		if len(words) < 2 || words[0] != o.Spec.Command {
			continue
		}
		if v, n := o.Spec.Find(words[1:]); v != nil && !v.Internal {
			c.notice(fmt.Sprintf("this goes to the model; the command is /%s", strings.Join(words[:1+n], " ")))
		}
	}
}

func specs(commands []Command) []plugin.Spec {
	list := make([]plugin.Spec, len(commands))
	for i := range commands {
		list[i] = commands[i].Spec
	}
	return list
}

// helpFor is the help on a plugin's command, as it is typed in a chat.
func helpFor(spec *plugin.Spec, argv []string) (plugin.Result, error) {
	text, err := surfaces.Help(spec, "/"+spec.Command, argv)
	return plugin.Result{Text: text}, err
}

func (c *Chat) help(_ context.Context, words []string) (plugin.Result, error) {
	commands := c.opts.Commands()
	if len(words) > 0 {
		name := strings.ToLower(strings.TrimPrefix(words[0], "/"))
		for i := range commands {
			if commands[i].Spec.Command == name {
				return helpFor(&commands[i].Spec, words[1:])
			}
		}
		for _, b := range builtins() {
			if b.name == name {
				return plugin.Result{Text: strings.TrimSpace("/"+b.name+" "+b.args) + "  " + b.summary}, nil
			}
		}
		return plugin.Result{}, plugin.Errorf(plugin.Usage, "there is no help on %q", words[0]).WithHint("/help lists the commands")
	}
	rows := [][]string{}
	for _, o := range commands {
		summary := o.Spec.Summary
		if o.Plugin != "" && o.Plugin != o.Spec.Command {
			summary += " (plugin " + o.Plugin + ")"
		}
		rows = append(rows, []string{"/" + o.Spec.Command, summary})
		for _, s := range o.Spec.Shortcuts {
			rows = append(rows, []string{"/" + s.Name, fmt.Sprintf("%s (/%s %s)", s.Summary, o.Spec.Command, strings.Join(s.Argv, " "))})
		}
	}
	for _, b := range builtins() {
		rows = append(rows, []string{strings.TrimSpace("/" + b.name + " " + b.args), b.summary})
	}
	rows = append(rows, []string{"//", "Begin a message with a slash: //etc is sent as /etc"})
	return plugin.Result{Text: plugin.Table(nil, rows)}, nil
}

// sessionInfo is the data of /session.
type sessionInfo struct {
	ID       string `json:"id"`
	Project  string `json:"projectId"`
	Title    string `json:"title"`
	Messages int    `json:"messages"`
	Revision int64  `json:"revision"`
	Model    string `json:"model"`
	Status   string `json:"status"`
	Cwd      string `json:"cwd,omitempty"`
	Snapshot string `json:"snapshot,omitempty"` // shown instead
	// Usage is what the turns took whose event logs are there.
	Usage        models.Usage `json:"usage"`
	CreatedAt    int64        `json:"createdAt"` // epoch milliseconds
	UpdatedAt    int64        `json:"updatedAt"`
	LastActiveAt int64        `json:"lastActiveAt,omitempty"` // it was opened last
}

func (c *Chat) showSession(ctx context.Context, _ []string) (plugin.Result, error) {
	ref := c.Ref()
	live, err := c.store.Outline(ctx, ref)
	if err != nil {
		return plugin.Result{}, StoreError(err)
	}
	if _, err := c.store.Selected(ref); err != nil {
		return plugin.Result{}, StoreError(err)
	}
	selected := c.shownSnapshot(ctx)
	info := sessionInfo{
		ID: ref.ID, Project: ref.Project, Title: live.Doc.Meta.Title, Messages: live.Doc.Meta.Messages,
		Revision: live.Revision, Model: c.modelName(live), Status: live.Status, Snapshot: selected,
		CreatedAt: live.CreatedAt, UpdatedAt: live.UpdatedAt,
	}
	meta, err := c.store.Meta(ref)
	if err != nil {
		return plugin.Result{}, StoreError(err)
	}
	info.LastActiveAt = meta.LastActiveAt
	if info.Usage, err = c.usage(ctx, ref); err != nil {
		return plugin.Result{}, StoreError(err)
	}
	_ = json.Unmarshal(live.Get("cwd"), &info.Cwd)
	rows := [][]string{
		{"session", info.ID},
		{"project", info.Project},
		{"title", info.Title},
		{"messages", strconv.Itoa(info.Messages)},
		{"revision", strconv.FormatInt(info.Revision, 10)},
		{"model", info.Model},
		{"status", info.Status},
		{"cwd", info.Cwd},
		{"snapshot", info.Snapshot},
		{"tokens", fmt.Sprintf("%d in, %d out", info.Usage.InputTokens, info.Usage.OutputTokens)},
		{"created", clock(info.CreatedAt)},
		{"changed", clock(info.UpdatedAt)},
		{"opened", clock(info.LastActiveAt)},
	}
	rows = slices.DeleteFunc(rows, func(row []string) bool { return row[1] == "" })
	return plugin.Result{Text: plugin.Table(nil, rows), Data: json.RawMessage(record(info))}, nil
}

// usage adds up what the session's turns took, as their logs have it.
func (c *Chat) usage(ctx context.Context, ref session.Ref) (sum models.Usage, err error) {
	turns, err := c.store.Turns(ctx, ref)
	for _, n := range turns {
		events, _, err := c.store.ReadTurn(ctx, ref, n)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has just gone
		}
		if err != nil {
			return sum, err
		}
		for _, e := range events {
			var u models.Usage
			if e.Type == session.EventUsage && json.Unmarshal(e.Raw, &u) == nil {
				sum = sum.Add(u)
			}
		}
	}
	return sum, err
}

// clock is a time for people, "" for none.
func clock(ms int64) string {
	if ms == 0 {
		return ""
	}
	return time.UnixMilli(ms).Local().Format(time.DateTime)
}

const (
	defaultEvents = 10
	eventWidth    = 100 // characters of an event that are shown
)

func (c *Chat) showEvents(ctx context.Context, words []string) (plugin.Result, error) {
	most := defaultEvents
	if len(words) > 0 {
		n, err := strconv.Atoi(words[0])
		if err != nil || n < 1 || len(words) > 1 {
			return plugin.Result{}, plugin.Errorf(plugin.Usage, "/events takes one number from 1, not %q", strings.Join(words, " ")).
				WithHint("type /events %d", defaultEvents)
		}
		most = n
	}
	ref := c.Ref()
	turns, err := c.store.Turns(ctx, ref)
	if err != nil {
		return plugin.Result{}, StoreError(err)
	}
	if len(turns) == 0 {
		return plugin.Result{Text: "no turn has run in this session yet", Data: json.RawMessage("[]")}, nil
	}
	last := turns[len(turns)-1]
	events, warnings, err := c.store.ReadTurn(ctx, ref, last)
	if err != nil {
		return plugin.Result{}, StoreError(err)
	}
	shown := events[max(0, len(events)-most):]
	text := fmt.Sprintf("turn %d: %d events", last, len(events))
	if len(shown) < len(events) {
		text += fmt.Sprintf(", the last %d", len(shown))
	}
	raw := []json.RawMessage{}
	rows := [][]string{}
	for _, e := range shown {
		raw = append(raw, e.Raw)
		rows = append(rows, []string{strconv.Itoa(e.Seq), e.Time.Local().Format("15:04:05.000"), e.Type, cut(fields(e), eventWidth)})
	}
	return plugin.Result{Text: text + "\n" + plugin.Table(nil, rows), Data: json.RawMessage(record(raw)), Notices: warnings}, nil
}

// fields is what an event says beside its number, time and type.
func fields(e session.Event) string {
	var all map[string]json.RawMessage
	if json.Unmarshal(e.Raw, &all) != nil {
		return string(e.Raw)
	}
	for _, k := range []string{"seq", "time", "type"} {
		delete(all, k)
	}
	if len(all) == 0 {
		return ""
	}
	return string(record(all))
}

func (c *Chat) showTools(context.Context, []string) (plugin.Result, error) {
	type tool struct {
		Name        string          `json:"name"`
		Plugin      string          `json:"plugin"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"inputSchema"`
	}
	tools := []tool{}
	for _, o := range c.opts.Commands() {
		if o.Tool {
			tools = append(tools, tool{o.Spec.ToolName(), o.Plugin, o.Spec.Summary, surfaces.ToolSchema(&o.Spec).InputSchema})
		}
	}
	if len(tools) == 0 {
		return plugin.Result{Text: "the model may call no tool", Data: json.RawMessage("[]")}, nil
	}
	slices.SortFunc(tools, func(a, b tool) int { return cmp.Compare(a.Name, b.Name) })
	rows := [][]string{}
	for _, t := range tools {
		rows = append(rows, []string{t.Name, t.Plugin, t.Description})
	}
	return plugin.Result{Text: plugin.Table(nil, rows), Data: json.RawMessage(record(tools))}, nil
}

func (c *Chat) goLive(ctx context.Context, _ []string) (plugin.Result, error) {
	ref := c.Ref()
	selected, err := c.store.Selected(ref)
	if err != nil {
		return plugin.Result{}, StoreError(err)
	}
	if selected == "" {
		return plugin.Result{Text: "the conversation itself is shown already"}, nil
	}
	if err := c.opts.Select(ctx, ref, ""); err != nil {
		return plugin.Result{}, StoreError(err)
	}
	return plugin.Result{Text: "back to the conversation"}, nil
}
