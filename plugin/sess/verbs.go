package sess

import (
	"context"
	"encoding/json"
	"fmt"

	"sess/dispatch"
	"sess/plugin"
	"sess/store/snapshot"
	"sess/store/transcript"
)

// commandName is the command that the verbs belong to.
const commandName = "sess"

// commands is the one list of verbs, in the order of help.
func (p *Plugin) commands() dispatch.Command {
	verbs := []verb{
		saveVerb(), loadVerb(), listVerb(), newVerb(), copyVerb(), renameVerb(), deleteVerb(),
		viewVerb(), selectVerb(), deselectVerb(), selectedVerb(), pinVerb(), unpinVerb(), tagVerb(), undoVerb(), redoVerb(),
		trashListVerb(), trashRestoreVerb(), trashEmptyVerb(), pruneVerb(), verifyVerb(),
		exportVerb(), importVerb(), searchVerb(),
		opOpenVerb(), opCloseVerb(), opWithdrawVerb(),
	}
	command := dispatch.Command{
		Name:    commandName,
		Summary: "Named snapshots of conversations: save, go back, branch",
		Routes:  sessionRoutes(),
		Shortcuts: []plugin.Shortcut{
			{Name: "snapshot", Argv: []string{"save"}, Summary: "Save this conversation under a name"},
			{Name: "snapshots", Argv: []string{"list"}, Summary: "List the snapshots"},
			{Name: "new", Argv: []string{"new"}, Summary: "Start a fresh conversation"},
		},
		Logger: p.options.Logger,
	}
	for _, v := range verbs {
		command.Verbs = append(command.Verbs, v.bind(p))
	}
	return command
}

// verb is a declaration whose handler works on a request.
type verb struct {
	dispatch.Verb
	run func(ctx context.Context, r *request) (plugin.Result, error)
	// check says why a verb that waits for the end of a turn could not run; nil
	// where only its run can tell.
	check func(ctx context.Context, r *request) error
}

// bind gives the verb the plugin it works for.
func (v verb) bind(p *Plugin) dispatch.Verb {
	serve := func(ctx context.Context, in *dispatch.Invocation, run func(context.Context, *request) (plugin.Result, error)) (plugin.Result, error) {
		s, err := p.configured()
		if err != nil {
			return plugin.Result{}, err
		}
		r := &request{service: s, Invocation: in}
		result, err := r.serve(ctx, run)
		if err != nil {
			return plugin.Result{}, r.explain(ctx, err)
		}
		return result, nil
	}
	v.Verb.Run = func(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
		return serve(ctx, in, v.run)
	}
	if v.check != nil {
		v.Verb.Check = func(ctx context.Context, in *dispatch.Invocation) error {
			_, err := serve(ctx, in, func(ctx context.Context, r *request) (plugin.Result, error) {
				return plugin.Result{}, v.check(ctx, r)
			})
			return err
		}
	}
	return v.Verb
}

// request is one call of a verb.
type request struct {
	*service
	*dispatch.Invocation

	key   poolKey
	agent string            // also where the pool is shared
	ref   plugin.SessionRef // the session the call is about, as it was named
	// whenTaken makes the command that works where the name turns out to be taken.
	whenTaken func(stored string) string
	notices   []string
}

func (r *request) serve(ctx context.Context, run func(context.Context, *request) (plugin.Result, error)) (plugin.Result, error) {
	key, err := r.pools.key(r.Call.Agent, r.Call.Project)
	if err != nil {
		return plugin.Result{}, err
	}
	r.key, r.agent = key, r.Call.Agent
	if r.agent == "" {
		r.agent = defaultAgent
	}
	r.ref = plugin.SessionRef{Project: key.Project, ID: r.Call.Session}
	result, err := run(ctx, r)
	result.Notices = append(result.Notices, r.notices...)
	return result, err
}

// explain turns an error into what every surface shows.
func (r *request) explain(ctx context.Context, err error) *plugin.Error {
	e := explainTaken(err, r.whenTaken)
	e.Hint = ofAgent(e.Hint, r.agent)
	if e.Hint != emptyTheTrash() {
		return e
	}
	if pool, err := r.pools.existing(ctx, r.key); err == nil && pool != nil {
		if _, bytes, err := pool.EmptyTrash(ctx, 0, true); err == nil && bytes == 0 {
			return e.WithHint("free some space on the disk of %s, then try again; the trash is empty, and to delete a snapshot takes a little space, too", pool.Dir())
		}
	}
	return e
}

// pool is the pool of the call, made where it is missing; not for a session that
// is missing as well: the call is refused then, and has to leave nothing behind.
func (r *request) pool(ctx context.Context) (*snapshot.Pool, error) {
	pool, err := r.pools.existing(ctx, r.key)
	if err != nil || pool != nil {
		return pool, err
	}
	if r.ref.ID != "" || r.Call.Foreign != "" {
		if _, err := r.runtime.Session(ctx, r.ref); err != nil {
			return nil, err
		}
	}
	return r.pools.get(ctx, r.key)
}

// find resolves the text of a call to a snapshot that exists; the pool is
// opened, never made.
func (r *request) find(ctx context.Context, text string) (*snapshot.Pool, snapshot.Name, error) {
	pool, err := r.pools.existing(ctx, r.key)
	if err != nil {
		return nil, "", err
	}
	if pool == nil {
		return nil, "", snapshot.Find(text)
	}
	name, err := pool.Resolve(ctx, text)
	return pool, name, err
}

// findOf is find for verbs with [onlySessionFlag].
func (r *request) findOf(ctx context.Context, text string) (*snapshot.Pool, snapshot.Name, error) {
	pool, name, err := r.find(ctx, text)
	session := r.String("only-session")
	if err != nil || session == "" {
		return pool, name, err
	}
	entries, err := pool.List(ctx)
	if err != nil {
		return nil, "", err
	}
	for _, e := range entries {
		if e.Name == name && e.Meta.SessionID == session {
			return pool, name, nil
		}
	}
	return nil, "", plugin.Errorf(plugin.NotFound, "session %s has no snapshot %q", session, text).
		WithHint("see those it has with: %s", command("list", "--include-auto", "--of-session="+session))
}

// target parses a name that the call wants to write to.
func (r *request) target(text string) (snapshot.Name, error) {
	name, err := snapshot.ParseName(text)
	if err != nil {
		return "", err
	}
	if snapshot.ReservedPrefix(name) && !r.Call.Caller.Internal() {
		return "", plugin.Errorf(plugin.InvalidName, "%s begins like the program's own backups", name).
			WithHint("choose a name without pre-…~ in front; backups can be loaded, copied from and deleted")
	}
	return name, nil
}

// op says who asks, for the record that undo needs.
func (r *request) op(kind snapshot.OpKind, name snapshot.Name) snapshot.OpInfo {
	return snapshot.OpInfo{
		Kind: kind, Agent: r.agent, Project: r.key.Project, Session: r.ref.ID,
		Caller: string(r.Call.Caller), Name: string(name), RequestID: r.Call.RequestID,
	}
}

// overwrite reports whether a taken name may be replaced.
func (r *request) overwrite() bool { return r.Bool("overwrite") || r.config.AllowOverwrite }

// hiddenNote is what people must know of a name with a ~.
func hiddenNote(name snapshot.Name) string {
	if !name.Auto() {
		return ""
	}
	return "; the ~ in its name marks it auto-managed: lists hide it, and it is evicted first"
}

// replacedNote is what people must know where a name was taken over.
func (r *request) replacedNote(e snapshot.Entry) string {
	if !e.Replaced {
		return ""
	}
	return fmt.Sprintf("; the version before is in the trash (%s brings it back)", r.typed("undo"))
}

// metaJSON is a snapshot's metadata as one JSON object that begins with its
// name; more pairs may follow.
func metaJSON(name snapshot.Name, meta transcript.Meta, more ...pair) (json.RawMessage, error) {
	first, err := object(pair{"name", name})
	if err != nil {
		return nil, err
	}
	rest, err := object(more...)
	if err != nil {
		return nil, err
	}
	out := append(first[:len(first)-1], ',')
	out = append(out, meta.AppendJSON(nil)[1:]...) // it has members always
	if len(more) > 0 {
		out = append(append(out[:len(out)-1], ','), rest[1:]...)
	}
	return out, nil
}

// entryJSON is a snapshot in a list: its metadata, where that can be read, and
// its state.
func entryJSON(e snapshot.Entry, more ...pair) (json.RawMessage, error) {
	state := append([]pair{{"state", e.State}, {"auto", e.Name.Auto()}}, more...)
	if e.State == snapshot.StateOK {
		return metaJSON(e.Name, e.Meta, state...)
	}
	head := []pair{{"name", e.Name}, {"updatedAt", e.Meta.UpdatedAt}, {"problem", cause(e.Problem)}}
	return object(append(head, state...)...)
}

// pair is a key and its value in an [object].
type pair struct {
	key   string
	value any
}

// object encodes pairs in their order.
func object(pairs ...pair) (json.RawMessage, error) {
	out := []byte{'{'}
	for i, p := range pairs {
		if i > 0 {
			out = append(out, ',')
		}
		k, err := json.Marshal(p.key)
		if err != nil {
			return nil, err
		}
		v, err := json.Marshal(p.value)
		if err != nil {
			return nil, err
		}
		out = append(append(append(out, k...), ':'), v...)
	}
	return append(out, '}'), nil
}

// answer is a result with data made of pairs.
func answer(text string, pairs ...pair) (plugin.Result, error) {
	data, err := object(pairs...)
	return plugin.Result{Text: text, Data: data}, err
}

// Arguments and flags that several verbs have.

func nameArg(help string) plugin.Arg {
	return plugin.Arg{Name: "name", Type: plugin.TypeString, Help: help, Required: true, Complete: completeSnapshot}
}

func noteFlag(fs *dispatch.Flags) { fs.String("note", "", "free text kept with the snapshot") }

func overwriteFlag(fs *dispatch.Flags) {
	fs.Bool("overwrite", false, "replace a snapshot that has the name; the old one goes to the trash")
}
