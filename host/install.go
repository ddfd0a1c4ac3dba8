package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/uuid"

	"sess/dispatch"
	"sess/host/chat"
	"sess/host/supervise"
	"sess/plugin"
	"sess/store/durable"
)

// Names below the folder of the installed plugins.
const (
	pluginsLock = pluginsDir + "/.lock"
	stagingDir  = pluginsDir + "/.staging"  // what is being installed
	replacedDir = pluginsDir + "/.replaced" // by id: what an update is about to replace
	removedDir  = pluginsDir + "/.removed"  // what is being deleted
)

// ConfirmDetail is the detail of an error by which a verb asks the person at
// its command line first: the flag that says yes.
const ConfirmDetail = "confirm"

// confirmed refuses what nobody has agreed to. The error says what it is about.
func confirmed(in *dispatch.Invocation, format string, args ...any) error {
	if in.Bool("yes") {
		return nil
	}
	return plugin.Errorf(plugin.Usage, format, args...).
		WithHint("nothing was changed; repeat the command with --yes if you want that").WithDetail(ConfirmDetail, "--yes")
}

// permissionText says in words what a plugin may do.
func permissionText(perms []plugin.Permission) string {
	if len(perms) == 0 {
		return "nothing of the host"
	}
	words := map[plugin.Permission]string{
		plugin.PermSessionRead:  "read conversations",
		plugin.PermSessionWrite: "change conversations",
		plugin.PermSessionNew:   "begin conversations",
	}
	list := make([]string, len(perms))
	for i, p := range perms {
		if list[i] = words[p]; list[i] == "" {
			method, _ := strings.CutPrefix(string(p), "rpc:")
			list[i] = "call " + method
		}
		list[i] += fmt.Sprintf(" (%s)", p)
	}
	return strings.Join(list, ", ")
}

// changing takes the lock under which plugins are installed and removed, and
// clears away what a killed process has left.
func (h *Host) changing(ctx context.Context, operation string) (unlock func(), err error) {
	if err := durable.MkdirAll(h.home, pluginsDir); err != nil {
		return nil, err
	}
	release, err := durable.LockAs(ctx, h.home, pluginsLock, operation, false)
	if locked, ok := errors.AsType[*durable.LockedError](err); ok {
		return nil, plugin.Errorf(plugin.Busy, "plugins are being changed by %s", locked.Holder).WithHint("try again when that is done")
	}
	if err != nil {
		return nil, err
	}
	unlock = func() {
		if err := release(); err != nil {
			h.log.Warn("lock of the plugins not released", "err", err)
		}
	}
	if err := h.clearLeft(); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// clearLeft puts back what an update that was killed had put aside, and removes
// what was only staged, or was removed already.
func (h *Host) clearLeft() error {
	if entries, err := h.home.ReadDir(replacedDir); err == nil {
		for _, e := range entries {
			there, err := durable.Exists(h.home, path.Join(pluginsDir, e.Name()))
			if err == nil && !there {
				err = durable.Move(h.home, path.Join(replacedDir, e.Name()), path.Join(pluginsDir, e.Name()))
			}
			if err != nil {
				return err
			}
		}
	}
	for _, dir := range []string{replacedDir, stagingDir, removedDir} {
		if err := durable.RemoveAll(h.home, dir); err != nil {
			return err
		}
	}
	return nil
}

// installed is what install and update answer.
type installed struct {
	ID          string              `json:"id"`
	Version     string              `json:"version"`
	Was         string              `json:"was,omitempty"` // the version that an update replaced
	Source      string              `json:"source"`
	Enabled     bool                `json:"enabled"`
	Commands    []string            `json:"commands"`
	Permissions []plugin.Permission `json:"permissions"`
	SHA256      string              `json:"sha256"` // of its program
	Files       int                 `json:"files"`
	Bytes       int64               `json:"bytes"`
}

func (s *stagedPackage) answer() installed {
	out := installed{
		ID: s.manifest.ID, Version: s.manifest.Version, Source: s.record.Source, Enabled: true, Commands: s.manifest.Commands,
		Permissions: s.record.Permissions, SHA256: s.record.sum(), Files: len(s.record.Files),
	}
	for _, f := range s.record.Files {
		out.Bytes += f.Bytes
	}
	return out
}

// sourcePath is the place that a word of the command line names.
func sourcePath(in *dispatch.Invocation) (string, error) {
	source := in.Arg("package")
	if source == "" {
		return "", plugin.Errorf(plugin.Usage, "package is empty").WithHint("name the plugin's folder, or its tar.gz")
	}
	if !filepath.IsAbs(source) {
		if in.Call.Cwd == "" {
			return "", plugin.Errorf(plugin.Usage, "%s is relative, and it is not known to which folder", source).WithHint("give the whole path")
		}
		source = filepath.Join(in.Call.Cwd, source)
	}
	return filepath.Clean(source), nil
}

// sourceOf adds to the error of a package that is not there what is known of a
// plugin that was named by its id instead.
func (h *Host) sourceOf(id string, err error) error {
	p := h.plugin(id)
	if !errors.Is(err, &plugin.Error{Code: plugin.NotFound}) || p == nil || p.found.record == nil {
		return err
	}
	return plugin.AsError(err).WithHint("name the new version's folder or tar.gz; %s came from %s", id, p.found.record.Source)
}

// take stages the package that a call names, with the plugins locked until end is
// called.
func (h *Host) take(ctx context.Context, in *dispatch.Invocation, operation string) (source string, s *stagedPackage, end func(), err error) {
	if source, err = sourcePath(in); err != nil {
		return "", nil, nil, err
	}
	unlock, err := h.changing(ctx, operation)
	if err != nil {
		return "", nil, nil, err
	}
	end = func() {
		h.unstage()
		unlock()
	}
	if s, err = h.stage(ctx, source, path.Join(stagingDir, uuid.NewString())); err != nil {
		end()
		return "", nil, nil, err
	}
	return source, s, end, nil
}

func (h *Host) pluginsInstall(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	source, s, end, err := h.take(ctx, in, "sess plugins install")
	if err != nil {
		return plugin.Result{}, err
	}
	defer end()
	m := s.manifest
	found, err := h.find()
	if err != nil {
		return plugin.Result{}, err
	}
	if at := slices.IndexFunc(found, func(c candidate) bool { return c.manifest.ID == m.ID }); at >= 0 {
		e := plugin.Errorf(plugin.Exists, "%s is plugin %s, which is there already, %s", source, m.ID, found[at].origin())
		if found[at].bundled() {
			return plugin.Result{}, e.WithHint("a plugin needs an id of its own")
		}
		return plugin.Result{}, e.WithHint("to replace it: sess plugins update %s", in.Arg("package"))
	}
	if err := h.freeNames(ctx, s, found); err != nil {
		return plugin.Result{}, err
	}
	if err := confirmed(in, "plugin %s %s from %s brings the command %s, runs programs with your rights, and may %s",
		m.ID, m.Version, source, strings.Join(m.Commands, ", "), permissionText(m.Permissions)); err != nil {
		return plugin.Result{}, err
	}
	// A configuration for it may not be there yet: it has to run without one.
	part, missing := pluginPart(m, nil)
	d, err := h.try(ctx, s, part)
	if e := plugin.AsError(err); part != nil && e != nil && e.Code == plugin.Usage {
		missing = []string{e.Message}
		d, err = h.try(ctx, s, nil)
	}
	if err != nil {
		return plugin.Result{}, err
	}
	if err := h.freeShortcuts(ctx, &d.Spec, m.ID); err != nil {
		return plugin.Result{}, err
	}
	s.record.InstalledAt = h.now().UTC()
	if err := s.seal(h.home); err != nil {
		return plugin.Result{}, err
	}
	place := path.Join(pluginsDir, m.ID)
	if err := durable.Move(h.home, s.name, place); err != nil {
		return plugin.Result{}, errors.Join(err, durable.RemoveAll(h.home, place))
	}
	out := s.answer()
	text := fmt.Sprintf("installed %s %s from %s; its command is %s: see sess %s --help", m.ID, m.Version, source, d.Spec.Command, d.Spec.Command)
	if missing != nil {
		found, err := h.find()
		off := false
		if err == nil {
			_, err = h.setEnabled(m.ID, &off, found)
		}
		if err != nil {
			return plugin.Result{}, errors.Join(err, h.discard(m.ID))
		}
		out.Enabled = false
		text = fmt.Sprintf("installed %s %s from %s, switched off: it needs configuration first\n%s\nset it under \"config\" of plugins.entries.%s in %s, then: sess plugins enable %s",
			m.ID, m.Version, source, strings.Join(missing, "\n"), m.ID, h.Config().path, m.ID)
	}
	h.remember(m.ID, s.record.digest(), d)
	return h.applied(ctx, text, out, m.ID)
}

// applied lets the plugins run as they are now and answers a change.
func (h *Host) applied(ctx context.Context, text string, data any, id string) (plugin.Result, error) {
	report, err := h.Reload(ctx)
	if err != nil {
		return plugin.Result{}, err
	}
	res, err := answer(text, data)
	if reason := report.Failed[id]; reason != "" {
		res.Notices = append(res.Notices, fmt.Sprintf("plugin %s does not run: %s", id, reason))
	}
	return res, err
}

// unstage removes what was staged and was not put in its place.
func (h *Host) unstage() {
	if err := durable.RemoveAll(h.home, stagingDir); err != nil {
		h.log.Warn("staged files not removed", "err", err)
	}
}

// putAside moves an installed plugin's files out of their place. What keeps it
// from that is about them.
func (h *Host) putAside(id, to string) error {
	place := path.Join(pluginsDir, id)
	err := durable.Move(h.home, place, to)
	if errors.Is(err, fs.ErrPermission) {
		dir := filepath.Join(h.home.Dir(), filepath.FromSlash(place))
		return plugin.Errorf(plugin.Denied, "cannot move %s: %w", dir, err).WithHint("make it readable and writable for this user, then try again")
	}
	return err
}

// discard takes an installed plugin's files away.
func (h *Host) discard(id string) error {
	if err := durable.MkdirAll(h.home, removedDir); err != nil {
		return err
	}
	gone := path.Join(removedDir, uuid.NewString())
	if err := h.putAside(id, gone); err != nil {
		return err
	}
	// It is gone; what is left of it is cleared away by the next change.
	if err := errors.Join(durable.RemoveAll(h.home, gone), durable.RemoveAll(h.home, describeDir+"/"+id+".json")); err != nil {
		h.log.Warn("files of a removed plugin are left", "plugin", id, "err", err)
	}
	return nil
}

// try starts a staged plugin once and compares what it says of itself with its
// manifest. Without a configuration it is asked for that alone.
func (h *Host) try(ctx context.Context, s *stagedPackage, config json.RawMessage) (plugin.Description, error) {
	m := s.manifest
	c := supervise.Config{
		Manifest: m, Environ: h.opts.Environ, MTLS: m.UsesMTLS(), RuntimeDir: h.opts.RuntimeDir,
		Configuration: h.configuration(config, false), Unconfigured: config == nil, Logger: h.log,
		NewRuntime: func(int) (plugin.Runtime, func()) {
			r := newRuntime(h, m)
			return r, r.close
		},
	}
	h.runInstalled(&c, candidate{manifest: m, record: &s.record, dir: s.dir})
	sup := supervise.New(c)
	d, err := sup.Describe(ctx)
	state := sup.State()
	if cerr := sup.Close(context.WithoutCancel(ctx)); err == nil {
		err = cerr
	}
	switch {
	case err != nil:
		return d, s.doesNotRun(err, state.Stderr)
	case len(m.Commands) != 1:
		return d, plugin.Errorf(plugin.Unavailable, "plugin %s: its plugin.json lists the commands %s, but it brings %s alone",
			m.ID, strings.Join(m.Commands, ", "), d.Spec.Command).WithHint("the plugin's author has to correct it")
	}
	return d, checkDescription(m, &d)
}

// doesNotRun is the error for a staged plugin that could not be started, wrote
// being what it wrote: nobody can look at it any more.
func (s *stagedPackage) doesNotRun(err error, wrote []string) error {
	e := *plugin.AsError(err)
	e.Message = strings.ReplaceAll(e.Message, s.dir, s.record.Source)
	e.Hint = strings.ReplaceAll(e.Hint, s.dir, s.record.Source)
	if strings.Contains(e.Hint, "plugins inspect") {
		e.Hint = "nothing was changed; what it needs, its author has to tell"
	}
	if len(wrote) == 0 {
		return &e
	}
	all := strings.Join(wrote, "\n")
	if last := wrote[max(0, len(wrote)-5):]; !strings.Contains(e.Message, last[len(last)-1]) {
		e.Message += ": it last wrote: " + strings.Join(last, "\n")
	}
	return e.WithDetail("stderr", all)
}

// freeNames refuses a plugin whose command somebody else has.
func (h *Host) freeNames(ctx context.Context, s *stagedPackage, found []candidate) error {
	if err := h.reserved(s.manifest.Commands); err != nil {
		return plugin.AsError(fmt.Errorf("plugin %s from %s: %w", s.manifest.ID, s.record.Source, err))
	}
	staged := candidate{manifest: s.manifest, record: &s.record, dir: s.dir}
	for _, other := range found {
		if other.manifest.ID == s.manifest.ID {
			continue
		}
		if err := staged.clash(other); err != nil {
			return plugin.AsError(fmt.Errorf("plugin %s from %s: %w", s.manifest.ID, s.record.Source, err)).
				WithHint("sess plugins uninstall %s removes the other one", other.manifest.ID)
		}
	}
	// The verbs of the program's own command stand first on the command line too.
	for _, p := range h.plugins() {
		if !slices.Contains(p.Manifest.Commands, ownCommand) || p.sup == nil {
			continue
		}
		spec, err := h.spec(ctx, p)
		if err != nil {
			return err
		}
		for _, command := range s.manifest.Commands {
			for _, v := range spec.Verbs {
				first, _, _ := strings.Cut(v.Name, " ")
				if first == command || slices.Contains(v.Aliases, command) {
					return plugin.Errorf(plugin.Exists, "plugin %s from %s: its command %s is a verb of %s", s.manifest.ID, s.record.Source, command, spec.Command).
						WithHint("the plugin's author has to name it otherwise")
				}
			}
		}
	}
	return nil
}

// freeShortcuts refuses a plugin with a word of the chat that somebody else has.
func (h *Host) freeShortcuts(ctx context.Context, spec *plugin.Spec, id string) error {
	taken := map[string]string{}
	for _, name := range chat.Builtins() {
		taken[name] = "the chat"
	}
	for _, command := range h.Commands(ctx) {
		if command.Plugin == id {
			continue
		}
		taken[command.Spec.Command] = "the command " + command.Spec.Command
		for _, s := range command.Spec.Shortcuts {
			taken[s.Name] = "plugin " + command.Plugin
		}
	}
	for _, s := range spec.Shortcuts {
		if owner := taken[s.Name]; owner != "" {
			return plugin.Errorf(plugin.Exists, "plugin %s: its shortcut /%s is one of %s", id, s.Name, owner).
				WithHint("the plugin's author has to name it otherwise")
		}
	}
	if owner := taken[spec.Command]; owner != "" {
		return plugin.Errorf(plugin.Exists, "plugin %s: its command %s is one of %s", id, spec.Command, owner).
			WithHint("the plugin's author has to name it otherwise")
	}
	return nil
}

func (h *Host) pluginsUninstall(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	unlock, c, found, err := h.change(ctx, in, "sess plugins uninstall")
	if err != nil {
		return plugin.Result{}, err
	}
	defer unlock()
	id := c.manifest.ID
	if c.bundled() {
		return plugin.Result{}, plugin.Errorf(plugin.Denied, "plugin %s is part of this program", id).
			WithHint("to switch it off: sess plugins disable %s", id)
	}
	entry, err := h.entry(id)
	if err != nil {
		return plugin.Result{}, err
	}
	what := "its files in " + c.dir
	if entry != nil {
		what += ", and its entry in " + h.Config().path + ": " + string(entry)
	}
	name := strings.TrimSpace(id + " " + c.manifest.Version) // of a broken one no version is known
	if err := confirmed(in, "plugin %s loses %s", name, what); err != nil {
		return plugin.Result{}, err
	}
	before, err := readConfig(h.Config().path)
	if err != nil {
		return plugin.Result{}, err
	}
	// An entry of a plugin that is not there would be a mistake in the file, so
	// it goes first.
	changed, err := h.setEnabled(id, nil, found)
	if err != nil {
		return plugin.Result{}, err
	}
	if err := h.discard(id); err != nil {
		if changed {
			err = errors.Join(err, durable.Write(h.home, configName, before))
		}
		return plugin.Result{}, err
	}
	text := "uninstalled " + name
	if c.record != nil {
		text += "; it came from " + c.record.Source
	}
	if entry != nil {
		text += "\nits entry in " + h.Config().path + " was: " + string(entry)
	}
	return h.applied(ctx, text, map[string]any{"id": id, "version": c.manifest.Version, "entry": entry}, id)
}

// entry is what the configuration says of a plugin, nil if nothing.
func (h *Host) entry(id string) (json.RawMessage, error) {
	object, err := newConfig(h.opts.Home).read()
	if err != nil {
		return nil, err
	}
	entry := child(child(child(object, "plugins"), "entries"), id)
	if entry == nil {
		return nil, nil
	}
	return json.Marshal(entry)
}

// change is the beginning of a verb that changes one plugin.
func (h *Host) change(ctx context.Context, in *dispatch.Invocation, operation string) (unlock func(), c candidate, found []candidate, err error) {
	if unlock, err = h.changing(ctx, operation); err != nil {
		return nil, c, nil, err
	}
	if found, err = h.find(); err == nil {
		at := slices.IndexFunc(found, func(c candidate) bool { return c.manifest.ID == in.Arg("id") })
		if at >= 0 {
			return unlock, found[at], found, nil
		}
		if _, err = h.named(in.Arg("id")); err == nil { // it was removed just now
			err = plugin.Errorf(plugin.NotFound, "no plugin %q", in.Arg("id")).WithHint("sess plugins list shows all plugins")
		}
	}
	unlock()
	return nil, c, nil, err
}

func (h *Host) pluginsEnable(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	unlock, c, found, err := h.change(ctx, in, "sess plugins enable")
	if err != nil {
		return plugin.Result{}, err
	}
	defer unlock()
	id := c.manifest.ID
	if c.problem != nil {
		return plugin.Result{}, cannotRun(id, c.problem)
	}
	config, err := h.loadConfig(found)
	if err != nil {
		return plugin.Result{}, err
	}
	if problem := config.Problem(id); problem != nil {
		return plugin.Result{}, plugin.AsError(fmt.Errorf("plugin %s needs another configuration first: %w", id, problem)).
			WithHint("set it under \"config\" of plugins.entries.%s there, then: sess plugins enable %s", id, id)
	}
	return h.switchPlugin(ctx, id, true, config.Enabled(id), found)
}

func (h *Host) pluginsDisable(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	unlock, c, found, err := h.change(ctx, in, "sess plugins disable")
	if err != nil {
		return plugin.Result{}, err
	}
	defer unlock()
	config, err := h.loadConfig(found)
	if err != nil {
		return plugin.Result{}, err
	}
	return h.switchPlugin(ctx, c.manifest.ID, false, config.Enabled(c.manifest.ID), found)
}

// switchPlugin writes that a plugin is on or off, and lets it be so.
func (h *Host) switchPlugin(ctx context.Context, id string, on, was bool, found []candidate) (plugin.Result, error) {
	word := map[bool]string{true: "on", false: "off"}[on]
	data := map[string]any{"id": id, "enabled": on}
	if on == was {
		return answer(fmt.Sprintf("plugin %s was switched %s already", id, word), data)
	}
	if _, err := h.setEnabled(id, &on, found); err != nil {
		return plugin.Result{}, err
	}
	res, err := h.applied(ctx, fmt.Sprintf("switched %s plugin %s in %s", word, id, h.Config().path), data, id)
	if p := h.plugin(id); err == nil && on && p != nil && p.sup != nil && res.Notices == nil {
		if _, derr := p.sup.Describe(ctx); derr != nil {
			res.Notices = append(res.Notices, fmt.Sprintf("plugin %s does not run: %v", id, derr))
		}
	}
	return res, err
}
