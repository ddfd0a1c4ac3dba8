package host

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"sess/dispatch"
	"sess/host/chat"
	"sess/plugin"
	"sess/store/session"
)

// commands declares the host's own commands in the same way as a plugin does.
func (h *Host) commands() ([]*dispatch.Dispatcher, error) {
	var all []*dispatch.Dispatcher
	for _, c := range []dispatch.Command{h.sessionsCommand(), h.pluginsCommand()} {
		c.Logger = h.log
		d, err := dispatch.New(c)
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

func (h *Host) sessionsCommand() dispatch.Command {
	id := plugin.Arg{Name: "id", Type: plugin.TypeString, Help: "session id", Complete: "session"}
	required := id
	required.Required = true
	return dispatch.Command{
		Name:    "sessions",
		Summary: "The live conversations",
		Verbs: append([]dispatch.Verb{{
			Name: "list", Aliases: []string{"ls"}, Summary: "List the sessions of all projects, newest first",
			Effect: plugin.EffectRead, Run: h.sessionsList,
		}, {
			Name: "show", Summary: "Show one session, by default the active one",
			Help:   "With --json the whole session is printed, with all its messages.",
			Args:   []plugin.Arg{id},
			Effect: plugin.EffectRead, Run: h.sessionsShow,
		}, {
			Name: "use", Summary: "Make a session the active one",
			Args:   []plugin.Arg{required},
			Effect: plugin.EffectWrite, Run: h.sessionsUse,
		}}, h.notificationVerbs()...),
		Routes: notificationRoutes(),
	}
}

// sessionRow is a session as lists show it.
type sessionRow struct {
	ID        string `json:"id"`
	ProjectID string `json:"projectId"`
	Title     string `json:"title,omitempty"`
	Status    string `json:"status,omitempty"`
	Messages  int    `json:"messages"`
	Bytes     int64  `json:"bytes"`
	Revision  int64  `json:"revision"`
	Active    bool   `json:"active,omitempty"`
	Selected  string `json:"selected,omitempty"`
	CreatedAt int64  `json:"createdAt"` // epoch milliseconds
	UpdatedAt int64  `json:"updatedAt"` // epoch milliseconds
	Problem   string `json:"problem,omitempty"`
}

func (h *Host) sessionsList(ctx context.Context, _ *dispatch.Invocation) (plugin.Result, error) {
	infos, err := h.sessions.List(ctx)
	if err != nil {
		return plugin.Result{}, chat.StoreError(err)
	}
	manifest, err := h.sessions.Manifest(ctx)
	if err != nil {
		return plugin.Result{}, chat.StoreError(err)
	}
	rows := make([]sessionRow, 0, len(infos))
	var cells [][]string
	for _, i := range infos {
		row := sessionRow{
			ID: i.Ref.ID, ProjectID: i.Ref.Project, Title: i.Title, Status: i.Status, Messages: i.Messages, Bytes: i.Bytes,
			Revision: i.Revision, CreatedAt: i.CreatedAt, UpdatedAt: i.UpdatedAt, Problem: i.Problem,
			Active: i.Ref == (session.Ref{Project: manifest.LastProjectID, ID: manifest.LastSessionID}),
		}
		if i.Problem == "" {
			if row.Selected, err = h.sessions.Selected(i.Ref); err != nil {
				return plugin.Result{}, chat.StoreError(err)
			}
		}
		rows = append(rows, row)
		name := row.ID
		if row.Active {
			name += " *"
		}
		if row.Problem != "" {
			cells = append(cells, []string{name, row.ProjectID, "-", "-", "-", "damaged: " + row.Problem})
			continue
		}
		cells = append(cells, []string{name, row.ProjectID, fmt.Sprint(row.Messages), plugin.Size(row.Bytes), plugin.Ago(time.UnixMilli(row.UpdatedAt), h.now()), row.Title})
	}
	if len(rows) == 0 {
		return answer("no sessions yet; sess chat begins one", rows)
	}
	return answer(plugin.Table([]string{"SESSION", "PROJECT", "MSGS", "SIZE", "UPDATED", "TITLE"}, cells)+"\n* the active session", rows)
}

// existing resolves the session named by the argument, else by the call.
func (h *Host) existing(ctx context.Context, in *dispatch.Invocation) (session.Ref, error) {
	ref := session.Ref{Project: in.Call.Project, ID: in.Call.Session}
	if in.Has("id") {
		id, project := in.Arg("id"), ""
		if _, err := session.ParseRef(DefaultProject, id); err != nil {
			return ref, chat.StoreError(err) // an empty one does not stand for the active session
		}
		if in.Call.Project != DefaultProject {
			project = in.Call.Project
		}
		var err error
		if ref, err = h.Resolve(ctx, project, id); err != nil {
			return ref, err
		}
		if ok, err := h.sessions.Exists(ref); err != nil || ok {
			return ref, chat.StoreError(err)
		}
		if ref, err = h.Resolve(ctx, "", id); err != nil {
			return ref, err
		}
	}
	return h.present(ctx, ref)
}

// present is a session that has to be there.
func (h *Host) present(ctx context.Context, ref session.Ref) (session.Ref, error) {
	if ref.ID == "" {
		return ref, plugin.Errorf(plugin.NotFound, "there is no session yet").WithHint("sess chat begins one")
	}
	ok, err := h.sessions.Exists(ref)
	if err != nil || ok {
		return ref, chat.StoreError(err)
	}
	return ref, h.noSession(ctx, ref)
}

// noSession is the error for a session that does not exist, with the project
// where it is, or the near ones.
func (h *Host) noSession(ctx context.Context, ref session.Ref) error {
	e := plugin.Errorf(plugin.NotFound, "no session %q", ref.ID).WithHint("sess sessions list shows all sessions")
	infos, err := h.sessions.List(ctx)
	if err != nil {
		return e
	}
	var ids []string
	for _, i := range infos {
		if i.Ref.ID == ref.ID {
			return plugin.Errorf(plugin.NotFound, "no session %q in project %s", ref.ID, ref.Project).
				WithHint("there is one in project %s", i.Ref.Project)
		}
		ids = append(ids, i.Ref.ID)
	}
	if near := plugin.Nearest(ref.ID, ids); len(near) > 0 {
		return e.WithHint("did you mean %s?", strings.Join(near, " or ")).WithDetail("candidates", strings.Join(near, " "))
	}
	return e
}

func (h *Host) sessionsShow(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	ref, err := h.existing(ctx, in)
	if err != nil {
		return plugin.Result{}, err
	}
	view, err := h.sessions.View(ctx, ref)
	if err != nil {
		return plugin.Result{}, chat.StoreError(err)
	}
	var s struct {
		ID        string `json:"id"`
		ProjectID string `json:"projectId"`
		Title     string `json:"title"`
		Status    string `json:"status"`
		Error     string `json:"error"`
		UpdatedAt int64  `json:"updatedAt"`
		Messages  []struct {
			Role    string `json:"role"`
			Content string `json:"content"`
			Status  string `json:"status"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(view, &s); err != nil {
		return plugin.Result{}, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "session %s in project %s: %s\n%d messages, %s, updated %s\n", s.ID, s.ProjectID, cmp.Or(s.Title, "untitled"), len(s.Messages), s.Status, plugin.Ago(time.UnixMilli(s.UpdatedAt), h.now()))
	if s.Error != "" {
		fmt.Fprintf(&b, "error: %s\n", s.Error)
	}
	const most = 20
	if hidden := len(s.Messages) - most; hidden > 0 {
		fmt.Fprintf(&b, "\n(%d earlier messages: sess sessions show --json)\n", hidden)
		s.Messages = s.Messages[hidden:]
	}
	for _, m := range s.Messages {
		fmt.Fprintf(&b, "\n%s: %s", m.Role, m.Content)
		if m.Status != "complete" {
			fmt.Fprintf(&b, " [%s]", m.Status)
		}
	}
	return plugin.Result{Text: strings.TrimRight(b.String(), "\n"), Data: view}, nil
}

func (h *Host) sessionsUse(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	ref, err := h.existing(ctx, in)
	if err != nil {
		return plugin.Result{}, err
	}
	if err := h.sessions.Activate(ctx, ref); err != nil {
		return plugin.Result{}, chat.StoreError(err)
	}
	h.moved(ctx, ref)
	return answer(fmt.Sprintf("session %s of project %s is the active one", ref.ID, ref.Project),
		sessionRow{ID: ref.ID, ProjectID: ref.Project, Active: true})
}

func (h *Host) pluginsCommand() dispatch.Command {
	id := plugin.Arg{Name: "id", Type: plugin.TypeString, Help: "plugin id", Required: true, Complete: "plugin"}
	any := id
	any.Required = false
	source := plugin.Arg{Name: "package", Type: plugin.TypeString, Help: "the plugin's folder, or a tar.gz of it", Required: true, Complete: "folder"}
	// What is installed runs with all the rights of its user: who installs it has to
	// be there.
	yes := func(fs *dispatch.Flags) { fs.Bool("yes", false, "do it without asking").Short("y").Confirm() }
	return dispatch.Command{
		Name:    "plugins",
		Summary: "The plugins and their processes",
		Verbs: []dispatch.Verb{{
			Name: "list", Aliases: []string{"ls"}, Summary: "List the plugins and their state",
			Effect: plugin.EffectRead, Run: h.pluginsList,
		}, {
			Name: "inspect", Aliases: []string{"info"}, Summary: "Show what a plugin brings and how it fares",
			Help:   "The plugin is started if it does not run, so that what is shown is true. The exit status tells of one that does not run.",
			Args:   []plugin.Arg{id},
			Effect: plugin.EffectRead, Run: h.pluginsInspect,
		}, {
			Name: "doctor", Summary: "Start each plugin, check its files, and say what is wrong",
			Args:   []plugin.Arg{any},
			Effect: plugin.EffectRead, Run: h.pluginsDoctor,
		}, {
			Name: "install", Summary: "Install a plugin from a folder or a tar.gz",
			Help: "Its files are copied, checked and started once before they count; what fails leaves nothing behind. " +
				"What it may ask of the host is shown first, and is to be confirmed. Its program is held to the checksum that it has now.\n\n" +
				"A plugin that needs configuration is installed switched off.",
			Examples: []string{"install ./note", "install note-1.0.0.tar.gz --yes"},
			Args:     []plugin.Arg{source}, Flags: yes,
			Effect: plugin.EffectWrite, ByHand: true, Run: h.pluginsInstall,
		}, {
			Name: "update", Summary: "Replace an installed plugin by another version of it",
			Help: "The version before stays in place until the new one has been checked and started.",
			Args: []plugin.Arg{source, any}, Flags: yes,
			Effect: plugin.EffectWrite, ByHand: true, Run: h.pluginsUpdate,
		}, {
			Name: "uninstall", Aliases: []string{"remove"}, Summary: "Remove an installed plugin, and what config.json says of it",
			Args: []plugin.Arg{id}, Flags: yes,
			Effect: plugin.EffectDestroy, ByHand: true, Run: h.pluginsUninstall,
		}, {
			Name: "enable", Summary: "Switch a plugin on in config.json",
			Args:   []plugin.Arg{id},
			Effect: plugin.EffectWrite, ByHand: true, Run: h.pluginsEnable,
		}, {
			Name: "disable", Summary: "Switch a plugin off in config.json",
			Args:   []plugin.Arg{id},
			Effect: plugin.EffectWrite, ByHand: true, Run: h.pluginsDisable,
		}},
	}
}

// answer makes a result of a text and the same for programs.
func answer(text string, data any) (plugin.Result, error) {
	b, err := json.Marshal(data)
	if err != nil {
		return plugin.Result{}, err
	}
	return plugin.Result{Text: text, Data: b}, nil
}
