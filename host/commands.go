package host

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
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
	for _, c := range []dispatch.Command{h.sessionsCommand(), h.pluginsCommand(), h.agentsCommand()} {
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
	trashed := required
	trashed.Complete = "trashed-session"
	title := plugin.Arg{Name: "title", Type: plugin.TypeString, Help: "the new title", Required: true}
	return dispatch.Command{
		Name:    "sessions",
		Summary: "The live conversations",
		Verbs: append([]dispatch.Verb{{
			Name: "list", Aliases: []string{"ls"}, Summary: "List the sessions of all projects, newest first",
			Examples: []string{"list", "list --trash", "list --limit=20"},
			Flags: func(fs *dispatch.Flags) {
				fs.Bool("trash", false, "those that were deleted or have expired")
				fs.Bool("all-projects", false, "of another agent: those of all folders, not of the present one only")
				fs.Paged()
			},
			Effect: plugin.EffectRead, Run: h.sessionsList,
		}, {
			Name: "show", Summary: "Show one session, by default the active one",
			Help:   "With --json the whole session is printed, with all its messages; of more than 3.25 MB of them the newest, and omitted counts the others.",
			Args:   []plugin.Arg{id},
			Effect: plugin.EffectRead, Run: h.sessionsShow,
		}, {
			Name: "use", Summary: "Make a session the active one",
			Args:   []plugin.Arg{required},
			Effect: plugin.EffectWrite, Run: h.sessionsUse,
		}, {
			Name: "rename", Summary: "Give a session another title",
			Help:     "No title that is made automatically replaces it.",
			Examples: []string{`rename 20311231_0123abcd "The launch"`},
			Args:     []plugin.Arg{required, title},
			Effect:   plugin.EffectWrite, Run: h.sessionsRename,
		}, {
			Name: "pin", Summary: "Keep a session from ever expiring",
			Help:   "Above sessions.max in config.json the sessions that were not used for longest go to the trash.",
			Args:   []plugin.Arg{required},
			Effect: plugin.EffectWrite, Run: func(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
				return h.sessionsPin(ctx, in, true)
			},
		}, {
			Name: "unpin", Summary: "Let a pinned session expire again",
			Args:   []plugin.Arg{required},
			Effect: plugin.EffectWrite, Run: func(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
				return h.sessionsPin(ctx, in, false)
			},
		}, {
			Name: "delete", Summary: "Move a session to the trash",
			Help:   "Its event logs go with it, its snapshots stay. The trash is emptied after sessions.trashDays.",
			Args:   []plugin.Arg{required},
			Effect: plugin.EffectDestroy, Run: h.sessionsDelete,
		}, {
			Name: "restore", Summary: "Bring a session back from the trash",
			Help:   "Of several that had the id, the one deleted last comes back.",
			Args:   []plugin.Arg{trashed},
			Effect: plugin.EffectWrite, Run: h.sessionsRestore,
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
	Pinned    bool   `json:"pinned,omitempty"`
	Selected  string `json:"selected,omitempty"`
	CreatedAt int64  `json:"createdAt"` // epoch milliseconds
	UpdatedAt int64  `json:"updatedAt"` // epoch milliseconds
	Problem   string `json:"problem,omitempty"`
}

func (h *Host) sessionsList(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	if f := h.foreignCallOf(ctx); f != nil {
		return f.sessions(ctx, in)
	}
	if in.Bool("trash") {
		return h.sessionsTrash(ctx, in)
	}
	infos, err := h.sessions.List(ctx)
	if err != nil {
		return plugin.Result{}, chat.StoreError(err)
	}
	infos, page, err := dispatch.Paginate(in, infos, func(i session.Info) []string {
		return []string{fmt.Sprintf("%020d", i.UpdatedAt), opposite(i.Ref.String())}
	})
	if err != nil {
		return plugin.Result{}, err
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
			meta, err := h.sessions.Meta(i.Ref)
			if err != nil {
				return plugin.Result{}, chat.StoreError(err)
			}
			row.Pinned = meta.Pinned
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
		title := row.Title
		if row.Pinned {
			title += " (pinned)"
		}
		cells = append(cells, []string{name, row.ProjectID, fmt.Sprint(row.Messages), plugin.Size(row.Bytes), plugin.Ago(time.UnixMilli(row.UpdatedAt), h.now()), title})
	}
	var parts []string
	switch {
	case page.Total == 0:
		parts = append(parts, "no sessions yet; sess chat begins one")
	case len(rows) > 0:
		parts = append(parts, plugin.Table([]string{"SESSION", "PROJECT", "MSGS", "SIZE", "UPDATED", "TITLE"}, cells))
		if slices.ContainsFunc(rows, func(row sessionRow) bool { return row.Active }) {
			parts = append(parts, "* the active session")
		}
	}
	return answerPage(parts, rows, page)
}

// answerPage is the answer of a list, or of a part of it.
func answerPage[T any](parts []string, rows []T, page *plugin.Page) (plugin.Result, error) {
	if text := dispatch.PageText(len(rows), page); text != "" {
		parts = append(parts, text)
	}
	res, err := answer(strings.Join(parts, "\n"), rows)
	res.Page = page
	return res, err
}

// opposite turns the order of words around: of two the smaller one becomes the
// larger.
func opposite(word string) string {
	turned := []byte(word)
	for i, b := range turned {
		turned[i] = ^b
	}
	return hex.EncodeToString(append(turned, 0xff)) // before the longer ones that begin with it
}

// trashRow is a session in the trash as lists show it.
type trashRow struct {
	ID        string `json:"id"`
	ProjectID string `json:"projectId"`
	Title     string `json:"title,omitempty"`
	Messages  int    `json:"messages"`
	Bytes     int64  `json:"bytes"`
	UpdatedAt int64  `json:"updatedAt"`           // epoch milliseconds
	DeletedAt int64  `json:"deletedAt"`           // epoch milliseconds
	ExpiresAt int64  `json:"expiresAt,omitempty"` // epoch milliseconds; 0: never
	Why       string `json:"why"`
	Problem   string `json:"problem,omitempty"`
}

func (h *Host) trashRow(t session.Trashed) trashRow {
	row := trashRow{
		ID: t.Ref.ID, ProjectID: t.Ref.Project, Title: t.Title, Messages: t.Messages, Bytes: t.Bytes,
		UpdatedAt: t.UpdatedAt, DeletedAt: t.DeletedAt, Why: t.Why, Problem: t.Problem,
	}
	if days := h.Config().Sessions.TrashDays; days > 0 {
		row.ExpiresAt = time.UnixMilli(t.DeletedAt).Add(time.Duration(days) * day).UnixMilli()
	}
	return row
}

// expires says when a session in the trash is removed for good.
func (r trashRow) expires() string {
	if r.ExpiresAt == 0 {
		return "never"
	}
	return time.UnixMilli(r.ExpiresAt).UTC().Format("2006-01-02 15:04")
}

func (h *Host) sessionsTrash(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	trashed, err := h.sessions.Trashed(ctx)
	if err != nil {
		return plugin.Result{}, chat.StoreError(err)
	}
	trashed, page, err := dispatch.Paginate(in, trashed, func(t session.Trashed) []string {
		return []string{fmt.Sprintf("%020d", t.DeletedAt), t.Entry}
	})
	if err != nil {
		return plugin.Result{}, err
	}
	rows := make([]trashRow, 0, len(trashed))
	var cells [][]string
	for _, t := range trashed {
		row := h.trashRow(t)
		rows = append(rows, row)
		cells = append(cells, []string{
			row.ID, row.ProjectID, fmt.Sprint(row.Messages), plugin.Ago(time.UnixMilli(row.DeletedAt), h.now()), row.expires(),
			row.Why, cmp.Or(row.Problem, row.Title),
		})
	}
	var parts []string
	switch {
	case page.Total == 0:
		parts = append(parts, "no sessions are in the trash")
	case len(rows) > 0:
		parts = append(parts, plugin.Table([]string{"SESSION", "PROJECT", "MSGS", "DELETED", "EXPIRES", "WHY", "TITLE"}, cells))
	}
	return answerPage(parts, rows, page)
}

// existing resolves the session named by the argument, else by the call.
func (h *Host) existing(ctx context.Context, in *dispatch.Invocation) (session.Ref, error) {
	if f := h.foreignCallOf(ctx); f != nil {
		return session.Ref{}, f.onlyNew()
	}
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
		return ref, plugin.Errorf(plugin.NotFound, "no session is active").WithHint("sess chat begins one; sess sessions list shows those that there are")
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
	if f := h.foreignCallOf(ctx); f != nil {
		return f.show(ctx, in)
	}
	ref, err := h.existing(ctx, in)
	if err != nil {
		return plugin.Result{}, err
	}
	view, err := h.sessions.Newest(ctx, ref)
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
		Omitted struct {
			Messages int `json:"messages"`
		} `json:"omitted"`
	}
	if err := json.Unmarshal(view, &s); err != nil {
		return plugin.Result{}, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "session %s in project %s: %s\n%d messages, %s, updated %s\n", s.ID, s.ProjectID, cmp.Or(s.Title, "untitled"), s.Omitted.Messages+len(s.Messages), s.Status, plugin.Ago(time.UnixMilli(s.UpdatedAt), h.now()))
	if s.Error != "" {
		fmt.Fprintf(&b, "error: %s\n", s.Error)
	}
	const most = 20
	hidden := max(0, len(s.Messages)-most)
	s.Messages = s.Messages[hidden:]
	switch {
	case s.Omitted.Messages > 0:
		fmt.Fprintf(&b, "\n(%d earlier messages: sess messages list)\n", s.Omitted.Messages+hidden)
	case hidden > 0:
		fmt.Fprintf(&b, "\n(%d earlier messages: sess sessions show --json)\n", hidden)
	}
	for _, m := range s.Messages {
		fmt.Fprintf(&b, "\n%s: %s", m.Role, strings.ReplaceAll(m.Content, "\n", "\n    "))
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

func (h *Host) sessionsRename(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	ref, err := h.existing(ctx, in)
	if err != nil {
		return plugin.Result{}, err
	}
	title := strings.TrimSpace(in.Arg("title"))
	if err := h.sessions.Rename(ctx, ref, title); err != nil {
		return plugin.Result{}, chat.StoreError(err)
	}
	return answer(fmt.Sprintf("session %s of project %s is called %q", ref.ID, ref.Project, title), struct {
		sessionRef
		Title string `json:"title"`
	}{sessionRef{ref.ID, ref.Project}, title})
}

func (h *Host) sessionsPin(ctx context.Context, in *dispatch.Invocation, on bool) (plugin.Result, error) {
	ref, err := h.existing(ctx, in)
	if err != nil {
		return plugin.Result{}, err
	}
	if err := h.sessions.Pin(ctx, ref, on); err != nil {
		return plugin.Result{}, chat.StoreError(err)
	}
	done := "unpinned: it may expire"
	if on {
		done = "pinned: it never expires"
	}
	return answer(fmt.Sprintf("session %s of project %s is %s", ref.ID, ref.Project, done), struct {
		sessionRef
		Pinned bool `json:"pinned"`
	}{sessionRef{ref.ID, ref.Project}, on})
}

func (h *Host) sessionsDelete(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	ref, err := h.existing(ctx, in)
	if err != nil {
		return plugin.Result{}, err
	}
	if err := h.sessions.Delete(ctx, ref); err != nil {
		return plugin.Result{}, chat.StoreError(err)
	}
	text := fmt.Sprintf("session %s of project %s is in the trash; sess sessions restore %s brings it back", ref.ID, ref.Project, ref.ID)
	trashed, err := h.sessions.Trashed(ctx)
	if err != nil {
		return plugin.Result{}, chat.StoreError(err)
	}
	row := trashRow{ID: ref.ID, ProjectID: ref.Project}
	if i := slices.IndexFunc(trashed, func(t session.Trashed) bool { return t.Ref == ref }); i >= 0 {
		if row = h.trashRow(trashed[i]); row.ExpiresAt > 0 {
			text += " until " + row.expires()
		}
	}
	return answer(text, row)
}

func (h *Host) sessionsRestore(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	ref, err := h.inTrash(ctx, in)
	if err != nil {
		return plugin.Result{}, err
	}
	if err := h.sessions.Restore(ctx, ref); err != nil {
		return plugin.Result{}, chat.StoreError(err)
	}
	return answer(fmt.Sprintf("session %s of project %s is back; sess sessions use %s makes it the active one", ref.ID, ref.Project, ref.ID),
		sessionRef{ID: ref.ID, ProjectID: ref.Project})
}

// sessionRef names a session in an answer.
type sessionRef struct {
	ID        string `json:"id"`
	ProjectID string `json:"projectId"`
}

// inTrash finds the session in the trash that a call names: in the call's project,
// else in the only one that has it.
func (h *Host) inTrash(ctx context.Context, in *dispatch.Invocation) (session.Ref, error) {
	if f := h.foreignCallOf(ctx); f != nil {
		return session.Ref{}, f.onlyNew()
	}
	id := in.Arg("id")
	if _, err := session.ParseRef(DefaultProject, id); err != nil {
		return session.Ref{}, chat.StoreError(err)
	}
	trashed, err := h.sessions.Trashed(ctx)
	if err != nil {
		return session.Ref{}, chat.StoreError(err)
	}
	var ids, projects []string
	for _, t := range trashed {
		if ids = append(ids, t.Ref.ID); t.Ref.ID != id {
			continue
		}
		if t.Ref.Project == in.Call.Project {
			return t.Ref, nil
		}
		if !slices.Contains(projects, t.Ref.Project) {
			projects = append(projects, t.Ref.Project)
		}
	}
	switch len(projects) {
	case 1:
		return session.Ref{Project: projects[0], ID: id}, nil
	case 0:
		e := plugin.Errorf(plugin.NotFound, "no session %q is in the trash", id)
		if near := plugin.Nearest(id, ids); len(near) > 0 {
			return session.Ref{}, e.WithHint("did you mean %s?", strings.Join(near, " or ")).WithDetail("candidates", strings.Join(near, " "))
		}
		return session.Ref{}, e.WithHint("sess sessions list --trash shows what is there")
	}
	return session.Ref{}, plugin.Errorf(plugin.Usage, "session %s is in the trash of %d projects: %v", id, len(projects), projects).
		WithHint("name one with --project=%s", projects[0])
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
