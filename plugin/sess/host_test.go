package sess_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sess/plugin"
	"sess/plugin/sess"
	"sess/store/chunk"
	"sess/store/durable"
	"sess/store/durable/durabletest"
	"sess/store/snapshot"
	"sess/store/transcript"
)

// host keeps live sessions as the real one does, documents in memory and chunks
// on the disk, and is the plugin's Runtime.
type host struct {
	t      *testing.T
	dir    string
	fs     durable.FS
	chunks *chunk.Store

	mu       sync.Mutex
	sessions map[plugin.SessionRef]*live
	active   plugin.SessionRef
	stages   map[string]*stage
	serial   int
	told     []string // what was published, as JSON
	// before is asked before each service; its error is the answer.
	before func(service string) error
	// after is told when a service has done its work; its error replaces the
	// answer, as when a connection breaks.
	after func(service string) error
}

type live struct {
	doc      *transcript.Document
	revision int64
	running  bool
	selected string
	ops      map[string]plugin.OpState
}

type stage struct {
	ref      plugin.SessionRef
	doc      *transcript.Document
	revision int64
	batch    *chunk.Batch
}

var _ plugin.Runtime = (*host)(nil)

func newHost(t *testing.T) *host {
	t.Helper()
	dir := t.TempDir()
	fsys, err := durable.OpenDir(filepath.Join(dir, "sessions"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fsys.Close() })
	return &host{
		t: t, dir: dir, fs: fsys, chunks: chunk.Open(fsys, chunk.Options{}),
		sessions: map[plugin.SessionRef]*live{}, stages: map[string]*stage{},
	}
}

// session makes a session, active, with count messages.
func (h *host) session(project, id string, count int) plugin.SessionRef {
	h.t.Helper()
	ref := plugin.SessionRef{Project: project, ID: id}
	h.mu.Lock()
	h.sessions[ref] = &live{
		doc:      &transcript.Document{Header: json.RawMessage(`{"title":"A talk","model":"openai/gpt-5","providerState":{"continuation":"resp_` + id + `"}}`)},
		revision: 1, ops: map[string]plugin.OpState{},
	}
	h.active = ref
	h.mu.Unlock()
	h.say(ref, "message", count)
	return ref
}

// say adds messages, and history with them, to a session.
func (h *host) say(ref plugin.SessionRef, text string, count int) {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.sessions[ref]
	doc := s.doc.Clone()
	batch := h.chunks.NewBatch()
	defer batch.Discard()
	for range count {
		n := doc.List(transcript.ListMessages).Records
		role := []transcript.Role{transcript.RoleUser, transcript.RoleAgent}[n%2]
		message, err := json.Marshal(transcript.Message{
			ID: "m" + strconv.Itoa(n), Role: role, Content: fmt.Sprintf("%s %d", text, n), Status: transcript.StatusComplete,
		})
		if err != nil {
			h.t.Fatal(err)
		}
		item := fmt.Sprintf(`{"role":%q,"content":%q}`, map[transcript.Role]string{transcript.RoleUser: "user", transcript.RoleAgent: "assistant"}[role], text)
		for name, record := range map[string]transcript.Record{transcript.ListMessages: message, transcript.ListHistory: transcript.Record(item)} {
			if err := doc.List(name).Append([]transcript.Record{record}, batch.Seal); err != nil {
				h.t.Fatal(err)
			}
		}
	}
	if err := batch.Commit(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	s.doc = doc
	s.revision++
}

// messages are the contents of a session's messages.
func (h *host) messages(ref plugin.SessionRef) []string {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.sessions[ref]
	if s == nil {
		return nil
	}
	out := []string{}
	l := s.doc.List(transcript.ListMessages)
	for rec, err := range l.All(h.chunks.Plain, 0, l.Records) {
		var m transcript.Message
		if err == nil {
			err = json.Unmarshal(rec, &m)
		}
		if err != nil {
			h.t.Fatal(err)
		}
		out = append(out, m.Content)
	}
	return out
}

// state is all that a failed operation must leave as it was.
func (h *host) state() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var lines []string
	for ref, s := range h.sessions {
		lines = append(lines, fmt.Sprintf("%s/%s %d %s %q", ref.Project, ref.ID, s.revision, s.doc.Digest(), s.selected))
	}
	slices.Sort(lines)
	return strings.Join(append(lines, fmt.Sprint("active ", h.active)), "\n")
}

// hook sets what is asked before, and told after, each service.
func (h *host) hook(before, after func(service string) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.before, h.after = before, after
}

// published is what the plugin has told of.
func (h *host) published() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.told)
}

// change changes a session behind the plugin's back.
func (h *host) change(ref plugin.SessionRef, f func(*live)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f(h.sessions[ref])
}

// peek is a session as it is now.
func (h *host) peek(ref plugin.SessionRef) live {
	h.mu.Lock()
	defer h.mu.Unlock()
	return *h.sessions[ref]
}

func (h *host) enter(service string) error {
	if h.before != nil {
		return h.before(service)
	}
	return nil
}

func (h *host) leave(service string) error {
	if h.after != nil {
		return h.after(service)
	}
	return nil
}

func (h *host) resolve(ref plugin.SessionRef) (plugin.SessionRef, *live) {
	if ref.Project == "" {
		ref.Project = "default"
	}
	if ref.ID == "" {
		if h.active.Project != ref.Project {
			h.serial++
			h.active = plugin.SessionRef{Project: ref.Project, ID: "made-" + strconv.Itoa(h.serial)}
			h.sessions[h.active] = &live{doc: &transcript.Document{}, ops: map[string]plugin.OpState{}}
		}
		ref = h.active
	}
	return ref, h.sessions[ref]
}

func (h *host) Session(_ context.Context, ref plugin.SessionRef) (*plugin.Session, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.enter("Session"); err != nil {
		return nil, err
	}
	ref, s := h.resolve(ref)
	if s == nil {
		return nil, plugin.Errorf(plugin.NotFound, "no session %s", ref.ID)
	}
	doc := s.doc.Clone()
	var header struct{ Title, Model string }
	if doc.Header != nil {
		if err := json.Unmarshal(doc.Header, &header); err != nil {
			return nil, err
		}
	}
	doc.Meta = transcript.Meta{Title: header.Title, Model: header.Model, Messages: doc.List(transcript.ListMessages).Records}
	for _, l := range doc.Lists {
		n, err := l.Bytes(h.chunks.Plain)
		if err != nil {
			return nil, err
		}
		doc.Meta.Bytes += n
	}
	return &plugin.Session{Ref: ref, Revision: s.revision, Document: *doc, Status: "idle", Running: s.running, Selected: s.selected}, h.leave("Session")
}

func (h *host) ReadChunks(_ context.Context, ids []transcript.ID) plugin.Chunks {
	return func(yield func(plugin.Chunk, error) bool) {
		for _, id := range ids {
			h.mu.Lock()
			err := h.enter("ReadChunks")
			h.mu.Unlock()
			var frame []byte
			if err == nil {
				if frame, err = h.chunks.Frame(id); err != nil {
					err = plugin.Errorf(plugin.NotFound, "chunk %s: %w", id, err)
				}
			}
			if !yield(plugin.Chunk{ID: id, Frame: frame}, err) || err != nil {
				return
			}
		}
	}
}

func (h *host) Stage(_ context.Context, req plugin.StageRequest) (*plugin.Stage, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.enter("Stage"); err != nil {
		return nil, err
	}
	if !req.Restore {
		return nil, plugin.Errorf(plugin.Internal, "this plugin only restores")
	}
	st := &stage{ref: req.Session, batch: h.chunks.NewBatch()}
	var now *live
	if req.Session.ID != "" {
		st.ref, now = h.resolve(req.Session)
	}
	doc := req.Document.Clone()
	doc.Meta = transcript.Meta{}
	if req.Fresh {
		doc = transcript.DropContinuation(doc)
	}
	doc, err := normal(doc, st.batch.Seal)
	if err != nil {
		return nil, err
	}
	st.doc = doc
	out := &plugin.Stage{Ref: st.ref, Differs: true}
	if now != nil {
		st.revision, out.Revision = now.revision, now.revision
		present, err := normal(now.doc, nil)
		if err != nil {
			return nil, err
		}
		out.Differs = present.Digest() != doc.Digest()
	}
	if out.Missing, err = h.chunks.Missing(doc.InlineIDs()); err != nil {
		return nil, err
	}
	h.serial++
	out.ID = "stage-" + strconv.Itoa(h.serial)
	h.stages[out.ID] = st
	return out, h.leave("Stage")
}

func normal(doc *transcript.Document, emit transcript.Sealer) (*transcript.Document, error) {
	doc, _, err := transcript.Normalise(doc, nil, emit, nil)
	return doc, err
}

func (h *host) WriteChunks(_ context.Context, id string, chunks plugin.Chunks) ([]transcript.ID, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.enter("WriteChunks"); err != nil {
		return nil, err
	}
	st := h.stages[id]
	var children []transcript.ID
	sent := map[transcript.ID]bool{}
	for c, err := range chunks {
		if err != nil {
			return nil, err
		}
		if err := st.batch.AddFrame(c.ID, c.Frame); err != nil {
			return nil, err
		}
		sent[c.ID] = true
		kind, plain, err := chunk.Decode(c.ID, c.Frame)
		if err != nil {
			return nil, err
		}
		if kind == transcript.KindIndex {
			refs, err := transcript.DecodeIndex(plain)
			if err != nil {
				return nil, err
			}
			for _, r := range refs {
				children = append(append(children, r.IDs...), r.ID)
			}
		}
	}
	missing, err := h.chunks.Missing(slices.DeleteFunc(children, func(id transcript.ID) bool { return id == "" || sent[id] }))
	if err != nil {
		return nil, err
	}
	return missing, h.leave("WriteChunks")
}

func (h *host) Commit(ctx context.Context, req plugin.CommitRequest) (int64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.enter("Commit"); err != nil {
		return 0, err
	}
	st := h.stages[req.Stage]
	s := h.sessions[st.ref]
	switch {
	case s == nil:
		s = &live{ops: map[string]plugin.OpState{}}
		h.sessions[st.ref] = s
	case s.running:
		return 0, plugin.Errorf(plugin.Busy, "session %s runs a turn", st.ref.ID)
	case s.revision != req.Revision:
		return 0, plugin.Errorf(plugin.Conflict, "session %s has revision %d, not %d", st.ref.ID, s.revision, req.Revision)
	case s.ops[req.Op] == plugin.OpVoid:
		return 0, plugin.Errorf(plugin.Conflict, "op %s is void", req.Op)
	}
	if err := st.batch.Commit(ctx); err != nil {
		return 0, err
	}
	delete(h.stages, req.Stage)
	s.doc, s.revision = st.doc, s.revision+1
	s.ops[req.Op] = plugin.OpLanded
	return s.revision, h.leave("Commit")
}

func (h *host) Unstage(_ context.Context, id string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if st := h.stages[id]; st != nil {
		st.batch.Discard()
		delete(h.stages, id)
	}
	return nil
}

func (h *host) OpState(_ context.Context, ref plugin.SessionRef, op string) (plugin.OpState, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.enter("OpState"); err != nil {
		return plugin.OpUnknown, err
	}
	s := h.sessions[ref]
	if s == nil {
		return plugin.OpUnknown, plugin.Errorf(plugin.NotFound, "no session %s", ref.ID)
	}
	if s.ops[op] == "" {
		s.ops[op] = plugin.OpVoid
	}
	return s.ops[op], nil
}

func (h *host) NewSession(ctx context.Context, req plugin.NewSessionRequest) (plugin.MadeSession, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.enter("NewSession"); err != nil {
		return plugin.MadeSession{}, err
	}
	ref := plugin.SessionRef{Project: req.Project, ID: req.ID}
	s := &live{doc: &transcript.Document{Header: json.RawMessage(`{"title":"New session"}`)}, revision: 1, ops: map[string]plugin.OpState{req.Op: plugin.OpLanded}}
	if st := h.stages[req.Stage]; st != nil {
		if err := st.batch.Commit(ctx); err != nil {
			return plugin.MadeSession{Ref: ref}, err
		}
		s.doc = st.doc
		delete(h.stages, req.Stage)
	}
	h.sessions[ref] = s
	h.active = ref
	return plugin.MadeSession{Ref: ref}, h.leave("NewSession")
}

func (h *host) Select(_ context.Context, ref plugin.SessionRef, snapshot string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sessions[ref].selected = snapshot
	return nil
}

func (h *host) Call(_ context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.enter(method); err != nil {
		return nil, err
	}
	switch method {
	case "sessions.list":
		list := []map[string]any{}
		for ref, s := range h.sessions {
			list = append(list, map[string]any{"projectId": ref.Project, "id": ref.ID, "active": ref == h.active, "selected": s.selected})
		}
		return json.Marshal(list)
	case "sessions.use":
		var use struct{ Project, ID string }
		if err := json.Unmarshal(params, &use); err != nil {
			return nil, err
		}
		ref := plugin.SessionRef{Project: use.Project, ID: use.ID}
		if h.sessions[ref] == nil {
			return nil, plugin.Errorf(plugin.NotFound, "no session %s", ref.ID)
		}
		h.active = ref
		return json.RawMessage("{}"), nil
	case "events.publish":
		h.told = append(h.told, string(params))
		return json.RawMessage("{}"), nil
	}
	return nil, plugin.Errorf(plugin.Denied, "method %s is not permitted", method)
}

// clock is a wall clock that the test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2031, 5, 6, 7, 8, 9, 123e6, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// world is a plugin on a host, and a person who calls it.
type world struct {
	*testing.T
	*host
	*clock
	plugin *sess.Plugin
	disk   *durabletest.Faulty // of the pools
	config string
	ref    plugin.SessionRef
	caller plugin.Caller
	agent  string
}

// newWorld starts a plugin with a session of ten messages.
func newWorld(t *testing.T, config string) *world {
	t.Helper()
	w := &world{T: t, host: newHost(t), clock: newClock(), disk: &durabletest.Faulty{}, config: config, caller: plugin.CallerCLI}
	w.ref = w.session("default", "s1", 10)
	w.start(false)
	return w
}

// start makes a plugin as a fresh process would.
func (w *world) start(background bool) {
	w.Helper()
	p := sess.New(sess.Options{Build: "test", Now: w.Now, Pool: snapshot.Options{FS: w.disk.Open}})
	err := p.Configure(w.Context(), plugin.Configuration{
		Config: json.RawMessage(w.config), AgentsDir: filepath.Join(w.dir, "agents"), UserHome: w.dir, Background: background,
	}, w.host)
	if err != nil {
		w.Fatalf("Configure(%s): %v", w.config, err)
	}
	w.plugin = p
	w.Cleanup(func() {
		if err := p.Drain(context.Background()); err != nil {
			w.Errorf("Drain: %v", err)
		}
	})
}

func (w *world) call(argv ...string) (plugin.Result, error) {
	w.Helper()
	return w.plugin.Dispatch(w.Context(), plugin.Call{
		Argv: argv, Caller: w.caller, Agent: w.agent, Project: w.ref.Project, Session: w.ref.ID,
	}, nil)
}

// do makes a call that must succeed.
func (w *world) do(argv ...string) plugin.Result {
	w.Helper()
	result, err := w.call(argv...)
	if err != nil {
		w.Fatalf("sess %q: %v (%s)", argv, plugin.AsError(err).Text(), plugin.AsError(err).Code)
	}
	return result
}

// says makes a call that must answer with exactly this text.
func (w *world) says(want string, argv ...string) plugin.Result {
	w.Helper()
	result := w.do(argv...)
	if result.Text != want {
		w.Errorf("sess %q says\n%s\nwant\n%s", argv, result.Text, want)
	}
	return result
}

// fails makes a call that must fail with this code and, message and hint
// together, exactly this text.
func (w *world) fails(code plugin.Code, want string, argv ...string) *plugin.Error {
	w.Helper()
	result, err := w.call(argv...)
	if err == nil {
		w.Errorf("sess %q says %q, want the error %s", argv, result.Text, code)
		return &plugin.Error{}
	}
	e := plugin.AsError(err)
	if e.Code != code || e.Text() != want {
		w.Errorf("sess %q fails with %s\n%s\nwant %s\n%s", argv, e.Code, e.Text(), code, want)
	}
	return e
}

// names lists what is in the pool, auto-managed ones too.
func (w *world) names() []string {
	w.Helper()
	var list []struct{ Name string }
	w.decode(w.do("list", "--include-auto"), &list)
	names := []string{}
	for _, e := range list {
		names = append(names, e.Name)
	}
	return names
}

func (w *world) decode(result plugin.Result, into any) {
	w.Helper()
	if err := json.Unmarshal(result.Data, into); err != nil {
		w.Fatalf("data %s: %v", result.Data, err)
	}
}

// pool is the folder of the pool.
func (w *world) pool() string { return filepath.Join(w.dir, "agents", "main", "sessions") }

// files maps every file below a folder to its content. Locks do not count, nor
// what a run of the pruner in the background may write.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(path, ".lock") || strings.HasPrefix(d.Name(), ".prune.json") {
			return err
		}
		data, err := os.ReadFile(path)
		out[strings.TrimPrefix(path, dir)] = string(data)
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return out
}

// untouched runs f and fails when it changed a session or the pool.
func (w *world) untouched(f func()) {
	w.Helper()
	sessions, pool := w.state(), files(w.T, w.pool())
	f()
	if now := w.state(); now != sessions {
		w.Errorf("the sessions changed from\n%s\nto\n%s", sessions, now)
	}
	now := files(w.T, w.pool())
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if old, ok := pool[name]; now[name] != old && (ok || !strings.Contains(name, ".chunks")) {
			w.Errorf("file %s of the pool changed or is new", name) // a chunk that nothing names is swept later
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pool)) {
		if _, ok := now[name]; !ok {
			w.Errorf("file %s of the pool is gone", name)
		}
	}
}
