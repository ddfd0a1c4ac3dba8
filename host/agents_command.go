package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sess/dispatch"
	"sess/host/agents"
	"sess/plugin"
	"sess/store/transcript"
)

func (h *Host) agentsCommand() dispatch.Command {
	return dispatch.Command{
		Name:    "agents",
		Summary: "Other agents whose conversations can be saved",
		Verbs: []dispatch.Verb{{
			Name: "list", Aliases: []string{"ls"}, Summary: "List the agents, and what there is of each on this machine",
			Help: "With --agent=<id> the commands for sessions and snapshots work on the conversations of that agent in the present " +
				"folder: they are read, and load makes new ones, but none is ever changed.",
			Examples: []string{"list"},
			Effect:   plugin.EffectRead, Run: h.agentsList,
		}},
	}
}

// agentRow is an agent as lists show it.
type agentRow struct {
	ID            string `json:"id"`
	Name          string `json:"name"`
	State         string `json:"state"` // found, absent, disabled or unreadable
	Home          string `json:"home,omitempty"`
	Conversations int    `json:"conversations"`
	Newest        int64  `json:"newest,omitempty"` // epoch milliseconds
	Unreadable    int    `json:"unreadable,omitempty"`
	Problem       string `json:"problem,omitempty"`
}

// agentRows looks at all agents; it reads heads only.
func (h *Host) agentRows(ctx context.Context) []agentRow {
	var rows []agentRow
	for _, a := range agents.All() {
		rows = append(rows, h.agentRow(ctx, a))
	}
	return rows
}

func (h *Host) agentRow(ctx context.Context, a agents.Agent) agentRow {
	row := agentRow{ID: a.ID(), Name: a.Name(), State: "found", Home: h.agentHome(a)}
	if !h.Config().agentEnabled(a.ID()) {
		row.State, row.Problem = "disabled", fmt.Sprintf("agents.%s.enabled is false in config.json", a.ID())
		return row
	}
	s, err := h.openAgent(a)
	if err == nil {
		defer s.Close()
		for c, e := range s.Conversations(ctx, "") {
			if e != nil {
				err = e
				break
			}
			if c.Problem != "" {
				row.Unreadable++
				row.Problem = filepath.Base(c.File) + ": " + c.Problem
				continue
			}
			row.Conversations++
			row.Newest = max(row.Newest, c.UpdatedAt.UnixMilli())
		}
	}
	if e, ok := errors.AsType[*plugin.Error](err); ok && e.Code == plugin.NotFound {
		row.State = "absent"
	} else if err != nil {
		row.State, row.Problem = "unreadable", plugin.AsError(err).Message
	}
	return row
}

func (h *Host) agentsList(ctx context.Context, _ *dispatch.Invocation) (plugin.Result, error) {
	rows := h.agentRows(ctx)
	var cells [][]string
	for _, r := range rows {
		newest := "-"
		if r.Newest > 0 {
			newest = plugin.Ago(time.UnixMilli(r.Newest), h.now())
		}
		state := r.State
		switch {
		case r.Unreadable > 1:
			state += fmt.Sprintf("; %d cannot be read, such as %s", r.Unreadable, r.Problem)
		case r.Problem != "":
			state += "; " + r.Problem
		}
		cells = append(cells, []string{r.ID, r.Name, fmt.Sprint(r.Conversations), newest, cmp.Or(r.Home, "-"), state})
	}
	return answer(plugin.Table([]string{"AGENT", "NAME", "SESSIONS", "NEWEST", "HOME", "STATE"}, cells), rows)
}

// foreignRow is a conversation of another agent as lists show it.
type foreignRow struct {
	ID        string   `json:"id"`
	Key       string   `json:"key,omitempty"`      // another name, which --session takes, too
	Archived  string   `json:"archived,omitempty"` // what the agent made of it, such as "deleted"
	ProjectID string   `json:"projectId"`
	Folder    string   `json:"cwd"`
	Title     string   `json:"title,omitempty"`
	Model     string   `json:"model,omitempty"`
	Messages  *int     `json:"messages,omitempty"` // absent: not counted
	Bytes     int64    `json:"bytes"`
	Live      bool     `json:"live,omitempty"`
	File      string   `json:"file"`
	Also      []string `json:"also,omitempty"`
	CreatedAt int64    `json:"createdAt,omitempty"` // epoch milliseconds
	UpdatedAt int64    `json:"updatedAt"`           // epoch milliseconds
	Problem   string   `json:"problem,omitempty"`
}

func (f *foreignCall) row(c agents.Conversation) foreignRow {
	row := foreignRow{
		ID: c.ID, Key: c.Key, Archived: c.Archived, ProjectID: f.project, Folder: c.Folder, Title: c.Title, Model: c.Model, Bytes: c.Bytes, Live: c.Live,
		File: c.File, Also: c.Also, UpdatedAt: c.UpdatedAt.UnixMilli(), Problem: c.Problem,
	}
	if c.Folder != f.folder && c.Folder != "" {
		row.ProjectID = agents.Project(c.Folder)
	}
	if !c.CreatedAt.IsZero() {
		row.CreatedAt = c.CreatedAt.UnixMilli()
	}
	if c.Messages >= 0 {
		row.Messages = &c.Messages
	}
	return row
}

// countBytes bounds the conversations that a list reads to count their messages.
const countBytes = 4 << 20

// count counts the messages of a conversation that is not large.
func (f *foreignCall) count(ctx context.Context, row *foreignRow) {
	if row.Messages != nil || row.Problem != "" || row.Bytes > countBytes {
		return
	}
	w := agents.NewWriter(nil)
	if _, err := f.store.Read(ctx, row.ID, w); err == nil {
		row.Messages = new(w.Messages())
	}
}

// sessions answers the sessions command for the conversations of the agent.
func (f *foreignCall) sessions(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := in.Bool("all-projects")
	if in.Bool("trash") {
		return plugin.Result{}, plugin.Errorf(plugin.Denied, "%s has no trash that sess knows", f.agent.Name()).WithHint("leave --trash out")
	}
	list, err := f.conversations(ctx, all || f.folder == "" && f.project == DefaultProject)
	if err != nil {
		return plugin.Result{}, err
	}
	list, page, err := dispatch.Paginate(in, list, func(c agents.Conversation) []string {
		return []string{fmt.Sprintf("%020d", c.UpdatedAt.UnixNano()), opposite(c.ID)}
	})
	if err != nil {
		return plugin.Result{}, err
	}
	rows := make([]foreignRow, 0, len(list))
	var cells [][]string
	const counted = 50
	for i, c := range list {
		row := f.row(c)
		if i < counted {
			f.count(ctx, &row)
		}
		rows = append(rows, row)
		messages := "-"
		if row.Messages != nil {
			messages = fmt.Sprint(*row.Messages)
		}
		title := row.Title
		if row.Live {
			title += " (open)"
		}
		if row.Archived != "" {
			title += " (" + row.Archived + ")"
		}
		if row.Problem != "" {
			title = "cannot be read: " + row.Problem
		}
		line := []string{row.ID, messages, plugin.Size(row.Bytes), plugin.Ago(c.UpdatedAt, f.host.now()), row.Model, title}
		if all {
			line = append(line, row.ProjectID, row.Folder)
		}
		cells = append(cells, line)
	}
	var parts []string
	head := []string{"SESSION", "MSGS", "SIZE", "UPDATED", "MODEL", "TITLE"}
	if all {
		head = append(head, "PROJECT", "FOLDER")
	}
	switch {
	case page.Total == 0:
		parts = append(parts, fmt.Sprintf("%s has no conversation in %s; --all-projects shows those of all folders", f.agent.Name(), f.where()))
	case len(rows) > 0:
		parts = append(parts, plugin.Table(head, cells))
	}
	return answerPage(parts, rows, page)
}

// showBytes bounds the messages that are shown of one conversation, the last
// ones.
const showBytes = 4 << 20

// show shows one conversation.
func (f *foreignCall) show(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := in.Call.Session
	if in.Has("id") {
		id = in.Arg("id")
	}
	c, err := f.choose(ctx, id)
	if err != nil {
		return plugin.Result{}, err
	}
	w := agents.NewWriter(nil)
	var last []agents.Message
	size := 0
	w.Tap(func(m agents.Message) {
		last = append(last, m)
		for size += len(m.Text); size > showBytes; last = last[1:] {
			size -= len(last[0].Text)
		}
	})
	doc, err := f.store.Read(ctx, c.ID, w)
	if err != nil {
		return plugin.Result{}, f.failed(ctx, err)
	}
	c.Title, c.Model, c.Messages = doc.Meta.Title, doc.Meta.Model, doc.Meta.Messages
	type shown struct {
		Role    transcript.Role `json:"role"`
		Content string          `json:"content"`
		Time    int64           `json:"createdAt,omitempty"` // epoch milliseconds
	}
	data := struct {
		foreignRow
		First    int     `json:"first"` // the index of the first message that is shown
		Messages []shown `json:"messages"`
		Count    int     `json:"total"`
	}{foreignRow: f.row(c), First: c.Messages - len(last), Count: c.Messages, Messages: []shown{}}
	for _, m := range last {
		s := shown{Role: m.Role, Content: m.Text}
		if !m.Time.IsZero() {
			s.Time = m.Time.UnixMilli()
		}
		data.Messages = append(data.Messages, s)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "conversation %s of %s in %s: %s\n%d messages, %s, updated %s\n", c.ID, f.agent.Name(), c.Folder, cmp.Or(c.Title, "untitled"),
		c.Messages, plugin.Size(c.Bytes), plugin.Ago(c.UpdatedAt, f.host.now()))
	const most = 20
	if hidden := c.Messages - min(most, len(last)); hidden > 0 {
		fmt.Fprintf(&b, "\n(%d earlier messages: --json shows them)\n", hidden)
	}
	for _, m := range last[max(0, len(last)-most):] {
		fmt.Fprintf(&b, "\n%s: %s", m.Role, m.Text)
	}
	res, err := answer(strings.TrimRight(b.String(), "\n"), data)
	res.Notices = w.Report()
	return res, err
}

// candidates are the conversations of the folder for the shell.
func (f *foreignCall) candidates(ctx context.Context) ([]plugin.Candidate, error) {
	defer f.close() // once mu is free again
	f.mu.Lock()
	defer f.mu.Unlock()
	list, err := f.conversations(ctx, false)
	var out []plugin.Candidate
	for _, c := range list {
		out = append(out, plugin.Candidate{Value: c.ID, Help: c.Title})
	}
	return out, err
}

// agentCandidates are the agents that have a pool, and the others whose
// conversations are on this machine.
func (h *Host) agentCandidates() ([]plugin.Candidate, error) {
	names, err := h.agents()
	if err != nil {
		return nil, err
	}
	var out []plugin.Candidate
	for _, a := range agents.All() {
		s, err := h.openAgent(a)
		if err != nil {
			continue
		}
		names = slices.DeleteFunc(names, func(name string) bool { return name == a.ID() })
		out = append(out, plugin.Candidate{Value: a.ID(), Help: "conversations of " + a.Name()})
		if err := s.Close(); err != nil {
			return nil, err
		}
	}
	for _, name := range names {
		out = append(out, plugin.Candidate{Value: name})
	}
	return out, nil
}
