package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"sess/host/agents"
	"sess/plugin"
	"sess/store/chunk"
	"sess/store/transcript"
)

// AgentEntry is agents.<id>: what the configuration says of another agent.
type AgentEntry struct {
	Enabled *bool  `json:"enabled"` // nil means true
	Home    string `json:"home"`    // where its data is; empty: where it puts it by itself
}

// agentEnabled reports whether the conversations of an agent may be read.
func (c *Config) agentEnabled(id string) bool {
	on := c.Agents[id].Enabled
	return on == nil || *on
}

// agentHome is the folder of an agent's data; "" where that is not known.
func (h *Host) agentHome(a agents.Agent) string {
	if dir := h.Config().Agents[a.ID()].Home; dir != "" {
		return h.opts.path(dir)
	}
	return a.DefaultHome(agents.Env{UserHome: h.opts.UserHome, Get: func(key string) string {
		value, _ := lookupEnv(h.opts.Environ, key)
		return value
	}})
}

// openAgent opens the conversations of an agent.
func (h *Host) openAgent(a agents.Agent) (agents.Store, error) {
	if !h.Config().agentEnabled(a.ID()) {
		return nil, plugin.Errorf(plugin.Denied, "agents.%s.enabled is false in config.json: conversations of %s are not read", a.ID(), a.Name()).
			WithHint("take it out, or set it to true, in %s", ConfigPath(h.opts.Home))
	}
	dir := h.agentHome(a)
	if dir == "" {
		return nil, plugin.Errorf(plugin.NotFound, "where %s keeps its conversations is not known", a.Name()).
			WithHint("name the folder as agents.%s.home in %s", a.ID(), ConfigPath(h.opts.Home))
	}
	s, err := a.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, plugin.Errorf(plugin.NotFound, "%s has no conversations here: there is no %s", a.Name(), dir).
			WithHint("if it keeps them elsewhere, name the folder as agents.%s.home in %s", a.ID(), ConfigPath(h.opts.Home))
	}
	if err != nil {
		return nil, plugin.Errorf(plugin.Denied, "the conversations of %s cannot be read: %w", a.Name(), err).
			WithHint("sess agents list tells what is wrong with which")
	}
	return s, nil
}

// foreignCall is a call about the conversations of another agent. What plugins
// ask of the runtime while they serve it is about those.
type foreignCall struct {
	host  *Host
	agent agents.Agent
	// project is the pool of the call, folder the one that it stands for: "" where
	// only the project is known.
	project, folder string

	mu     sync.Mutex   // guards what follows; held while the store is read
	closed bool         // the call has ended
	store  agents.Store // nil until it is needed
	read   string       // the conversation that was read last
	report []string     // of that, until it is told
}

// foreign makes a call to another agent one about that agent's conversations and
// its folder's pool; nil where the agent is none of the others.
func (h *Host) foreign(call *plugin.Call) *foreignCall {
	a := agents.Find(call.Agent)
	call.Foreign = ""
	if a == nil {
		return nil
	}
	f := &foreignCall{host: h, agent: a, folder: agents.RealPath(call.Cwd), project: call.Project}
	switch own := agents.Project(f.folder); {
	case f.folder == "":
	case f.project == "":
		f.project = own
	case f.project != own:
		f.folder = ""
	}
	f.project = projectOr(f.project)
	call.Project, call.Foreign = f.project, a.Name()
	return f
}

// same reports whether two calls are about the same conversations; nil stands for
// the host's own.
func (f *foreignCall) same(o *foreignCall) bool {
	if f == nil || o == nil {
		return f == o
	}
	return f.agent.ID() == o.agent.ID() && f.project == o.project && f.folder == o.folder
}

// foreignCallOf is the call that a plugin's request belongs to, if that is about
// another agent's conversations.
func (h *Host) foreignCallOf(ctx context.Context) *foreignCall {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.foreigns[plugin.RequestID(ctx)]
}

// open opens the agent's store at first need. The caller holds mu.
func (f *foreignCall) open() (agents.Store, error) {
	if f.closed {
		return nil, plugin.Errorf(plugin.Unavailable, "the call that this belongs to has ended").WithHint("repeat the command")
	}
	if f.store == nil {
		s, err := f.host.openAgent(f.agent)
		if err != nil {
			return nil, err
		}
		f.store = s
	}
	return f.store, nil
}

func (f *foreignCall) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	if f.store == nil {
		return
	}
	if err := f.store.Close(); err != nil {
		f.host.log.Warn("an agent's store is closed with an error", "agent", f.agent.ID(), "err", err)
	}
	f.store = nil
}

// conversations lists those of the call's folder, or all, newest first. The
// caller holds mu.
func (f *foreignCall) conversations(ctx context.Context, all bool) ([]agents.Conversation, error) {
	s, err := f.open()
	if err != nil {
		return nil, err
	}
	folder := f.folder
	if all {
		folder = ""
	}
	var list []agents.Conversation
	for c, err := range s.Conversations(ctx, folder) {
		if err != nil {
			return nil, f.failed(ctx, err)
		}
		if all || folder != "" || agents.Project(c.Folder) == f.project {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b agents.Conversation) int {
		return cmp.Or(b.UpdatedAt.Compare(a.UpdatedAt), cmp.Compare(a.ID, b.ID))
	})
	return list, nil
}

// failed explains what went wrong with an agent's store.
func (f *foreignCall) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if e, ok := errors.AsType[*plugin.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*agents.RefusedError](err); ok {
		return plugin.Errorf(plugin.Corrupt, "%s would not accept the conversation: %s; nothing was written", f.agent.Name(), e.Reason).
			WithHint("what was said in it is shown by: sess --agent=%s view <name>", f.agent.ID())
	}
	if e, ok := errors.AsType[*agents.UnreadableError](err); ok {
		return plugin.Errorf(plugin.Corrupt, "a conversation of %s cannot be read whole: %s", f.agent.Name(), e.Reason).
			WithHint("name another one with --session; sess --agent=%s sessions list shows them", f.agent.ID())
	}
	if code, hint, known := agents.Advice(f.agent, err); known {
		return plugin.Errorf(code, "conversations of %s: %w", f.agent.Name(), err).WithHint("%s", hint)
	}
	if errors.Is(err, fs.ErrPermission) {
		return plugin.Errorf(plugin.Denied, "conversations of %s: %w", f.agent.Name(), err).WithHint("sess agents list tells what can be read")
	}
	return fmt.Errorf("conversations of %s: %w", f.agent.Name(), err)
}

// inUse is how long after its last change a conversation counts as one that
// somebody works on.
const inUse = 5 * time.Minute

// choose finds the conversation that a call is about: the named one, else the
// one that is worked on in the folder, else the one worked on last. Where two
// are worked on nobody can tell which is meant. The caller holds mu.
func (f *foreignCall) choose(ctx context.Context, id string) (agents.Conversation, error) {
	if f.folder == "" && f.project == DefaultProject {
		return agents.Conversation{}, plugin.Errorf(plugin.Usage, "the folder whose conversations of %s are meant is not known", f.agent.Name()).
			WithHint("name its project, as sess --agent=%s sessions list --all-projects shows it, with --project", f.agent.ID())
	}
	list, err := f.conversations(ctx, false)
	if err != nil {
		return agents.Conversation{}, err
	}
	if id != "" {
		return f.named(ctx, list, id)
	}
	list = slices.DeleteFunc(list, func(c agents.Conversation) bool { return c.Problem != "" || c.Archived != "" })
	if len(list) == 0 {
		return agents.Conversation{}, plugin.Errorf(plugin.NotFound, "%s has no conversation in %s", f.agent.Name(), f.where()).
			WithHint("sess --agent=%s sessions list --all-projects shows those of all folders", f.agent.ID())
	}
	now := f.host.now()
	busy := slices.DeleteFunc(slices.Clone(list), func(c agents.Conversation) bool { return !c.Live && now.Sub(c.UpdatedAt) > inUse })
	switch len(busy) {
	case 0:
		return list[0], nil
	case 1:
		return busy[0], nil
	}
	var names, ids []string
	for _, c := range busy {
		names = append(names, fmt.Sprintf("%s (%s, %s)", c.ID, cmp.Or(c.Title, "untitled"), plugin.Ago(c.UpdatedAt, now)))
		ids = append(ids, c.ID)
	}
	return agents.Conversation{}, plugin.Errorf(plugin.Usage, "%d conversations of %s are being worked on in %s: %s", len(busy), f.agent.Name(), f.where(), strings.Join(names, "; ")).
		WithHint("name one with --session=%s", ids[0]).WithDetail("candidates", strings.Join(ids, " "))
}

// where is the call's folder for people.
func (f *foreignCall) where() string { return cmp.Or(f.folder, "project "+f.project) }

// named is the conversation of that id in the folder; of one that is elsewhere
// the error says where.
func (f *foreignCall) named(ctx context.Context, list []agents.Conversation, id string) (agents.Conversation, error) {
	same := func(c agents.Conversation) bool { return c.ID == id }
	if at := slices.IndexFunc(list, same); at >= 0 {
		return list[at], nil
	}
	// Some agents have names for their conversations, which one after the other may have.
	if at := slices.IndexFunc(list, func(c agents.Conversation) bool { return c.Key == id && c.Archived == "" }); at >= 0 {
		return list[at], nil
	}
	all, err := f.conversations(ctx, true)
	if err != nil {
		return agents.Conversation{}, err
	}
	e := plugin.Errorf(plugin.NotFound, "%s has no conversation %q in %s", f.agent.Name(), id, f.where())
	if at := slices.IndexFunc(all, same); at >= 0 {
		return agents.Conversation{}, e.WithHint("it is one of %s: run the command there, or with --project=%s", all[at].Folder, agents.Project(all[at].Folder))
	}
	var ids []string
	for _, c := range all {
		ids = append(ids, c.ID)
	}
	if near := plugin.Nearest(id, ids); len(near) > 0 {
		return agents.Conversation{}, e.WithHint("did you mean %s?", strings.Join(near, " or ")).WithDetail("candidates", strings.Join(near, " "))
	}
	return agents.Conversation{}, e.WithHint("sess --agent=%s sessions list --all-projects shows those that there are", f.agent.ID())
}

// session is the conversation as the runtime gives it. Its chunks are named but
// nowhere stored: chunks makes them again.
func (f *foreignCall) session(ctx context.Context, ref plugin.SessionRef) (*plugin.Session, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, err := f.choose(ctx, ref.ID)
	if err != nil {
		return nil, err
	}
	if c.Problem != "" {
		return nil, plugin.Errorf(plugin.Corrupt, "conversation %s of %s cannot be read: %s", c.ID, f.agent.Name(), c.Problem).
			WithHint("name another one with --session; sess --agent=%s sessions list shows them", f.agent.ID())
	}
	w := agents.NewWriter(nil)
	doc, err := f.store.Read(ctx, c.ID, w)
	if err != nil {
		return nil, f.failed(ctx, err)
	}
	if f.read != c.ID {
		f.read, f.report = c.ID, w.Report()
	}
	return &plugin.Session{Ref: plugin.SessionRef{Project: f.project, ID: c.ID}, Revision: 1, Document: *doc, Status: "idle"}, nil
}

// chunks streams chunks of the conversation that was read last. It is read again
// for that, so that nothing has to be stored meanwhile.
func (f *foreignCall) chunks(ctx context.Context, ids []transcript.ID) plugin.Chunks {
	return func(yield func(plugin.Chunk, error) bool) {
		enough := errors.New("all that was asked for is there")
		f.mu.Lock()
		defer f.mu.Unlock()
		wanted := make(map[transcript.ID]bool, len(ids))
		for _, id := range ids {
			wanted[id] = true
		}
		store, err := f.open()
		if err != nil {
			yield(plugin.Chunk{}, err)
			return
		}
		gone := false
		_, err = store.Read(ctx, f.read, agents.NewWriter(func(s transcript.Sealed) error {
			if !wanted[s.ID] {
				return nil
			}
			delete(wanted, s.ID)
			gone = !yield(plugin.Chunk{ID: s.ID, Frame: chunk.Encode(s)}, nil)
			if gone || len(wanted) == 0 {
				return enough
			}
			return nil
		}))
		switch {
		case gone:
		case err != nil && !errors.Is(err, enough):
			yield(plugin.Chunk{}, f.failed(ctx, err))
		case len(wanted) > 0:
			yield(plugin.Chunk{}, plugin.Errorf(plugin.NotFound, "conversation %s of %s was changed while it was read", f.read, f.agent.Name()).WithHint("repeat the command"))
		}
	}
}

// stage refuses what cannot become a conversation of the agent.
func (f *foreignCall) stage(req plugin.StageRequest) error {
	if req.Session.ID != "" {
		return f.onlyNew()
	}
	if of := agents.AgentOf(&req.Document); of != f.agent.ID() {
		return plugin.Errorf(plugin.Denied, "the snapshot is no conversation of %s", f.agent.Name()).
			WithHint("load it without --agent=%s, or with the agent that it is of", f.agent.ID())
	}
	return nil
}

// onlyNew is the refusal of whatever would change a conversation.
func (f *foreignCall) onlyNew() error {
	return plugin.Errorf(plugin.Denied, "conversations of %s are never changed in place", f.agent.Name()).
		WithHint("make a new one of a snapshot with: sess --agent=%s load <name>", f.agent.ID())
}

// restore makes a conversation of a staged document.
func (f *foreignCall) restore(ctx context.Context, doc *transcript.Document, load transcript.Loader, title string) (plugin.MadeSession, []string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	store, err := f.open()
	if err != nil {
		return plugin.MadeSession{}, nil, err
	}
	from := agents.FolderOf(doc)
	to := cmp.Or(f.folder, from)
	if to == "" || f.folder == "" && agents.Project(from) != f.project {
		return plugin.MadeSession{}, nil, plugin.Errorf(plugin.Usage, "the folder to make the conversation for is not known").
			WithHint("run the command in that folder")
	}
	made, err := store.Restore(ctx, doc, load, agents.Target{Folder: to, Title: title, Now: f.host.now()})
	if err != nil {
		return plugin.MadeSession{}, nil, f.failed(ctx, err)
	}
	notes := made.Notes
	if from != "" && from != to {
		notes = append(notes, fmt.Sprintf("the snapshot is of %s, the conversation was made for %s", from, to))
	}
	return plugin.MadeSession{
		Ref:  plugin.SessionRef{Project: f.project, ID: made.ID},
		File: filepath.Clean(made.File), Resume: made.Resume,
	}, notes, nil
}

// takeReport returns what is to be told of the reading, once.
func (f *foreignCall) takeReport() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var notices []string
	for _, note := range f.report {
		notices = append(notices, fmt.Sprintf("conversation %s: %s", f.read, note))
	}
	f.report = nil
	return notices
}
