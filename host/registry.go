package host

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"sess/dispatch"
	"sess/host/server"
	"sess/host/supervise"
	"sess/plugin"
	"sess/store/durable"
)

// Plugin is one plugin that the host knows.
type Plugin struct {
	Manifest *plugin.Manifest
	Enabled  bool
	Bundled  bool

	config json.RawMessage
	sup    keeper // nil: switched off

	mu   sync.Mutex          // guards desc
	desc *plugin.Description // of this build; nil until asked for
}

// manifests reads those of the bundled plugins.
func manifests(builtins [][]byte) ([]*plugin.Manifest, error) {
	var all []*plugin.Manifest
	for _, data := range builtins {
		m, err := plugin.ParseManifest(data)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(all, func(o *plugin.Manifest) bool { return o.ID == m.ID }) {
			return nil, plugin.Errorf(plugin.Exists, "plugin id %s is taken", m.ID)
		}
		all = append(all, m)
	}
	return all, nil
}

// register prepares the plugins' supervisors. No process is started.
func (h *Host) register(all []*plugin.Manifest) error {
	for _, m := range all {
		h.add(m)
	}
	own, err := h.commands()
	if err != nil {
		return err
	}
	h.own = own
	return nil
}

func (h *Host) add(m *plugin.Manifest) {
	config := h.config.PluginConfig(m.ID)
	p := &Plugin{Manifest: m, Enabled: h.config.Enabled(m.ID), Bundled: m.Builtin != "", config: config}
	h.plugins = append(h.plugins, p)
	if !p.Enabled {
		return
	}
	configuration := plugin.Configuration{
		Config:     config,
		AgentsDir:  filepath.Join(h.home.Dir(), "agents"),
		UserHome:   h.opts.UserHome,
		Background: h.opts.Background,
	}
	services := func() (plugin.Runtime, func()) {
		r := newRuntime(h, m)
		return r, r.close
	}
	if here := h.opts.Local[m.ID]; here != nil {
		p.sup = newLocal(m.ID, here, configuration, services)
		return
	}
	p.sup = supervise.New(supervise.Config{
		Manifest: m,
		Exe:      h.opts.Exe,
		Args:     []string{"plugin", "serve", m.Builtin},
		Environ:  h.opts.Environ,
		// A bundled plugin of a one-shot call talks through a private folder
		// only; leaving out the key exchange saves a third of its start.
		MTLS:          m.UsesMTLS() && (h.opts.Background || !p.Bundled),
		RuntimeDir:    h.opts.RuntimeDir,
		Build:         h.build,
		Configuration: configuration,
		NewRuntime:    func(int) (plugin.Runtime, func()) { return services() },
		ReadOnly:      func(call plugin.Call) bool { return h.readOnly(p, call) },
		Logger:        h.log,
	})
}

func (h *Host) readOnly(p *Plugin, call plugin.Call) bool {
	d, ok := h.cached(p)
	if !ok {
		return false
	}
	v, _ := d.Spec.Find(call.Argv)
	return v != nil && v.Effect == plugin.EffectRead
}

// describeDir holds what plugins last said about themselves, so that help and
// completion start no process. It is a cache: losing it costs one start.
const describeDir = "plugins/.describe"

// description is a cached answer, good for one build of one executable.
type description struct {
	Build       string             `json:"build"`
	Description plugin.Description `json:"description"`
}

func (h *Host) cached(p *Plugin) (*plugin.Description, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.desc != nil {
		return p.desc, true
	}
	data, err := durable.ReadFile(h.home, describeDir+"/"+p.Manifest.ID+".json", 4<<20)
	if err != nil {
		return nil, false
	}
	d, ok := h.parseDescription(p, data)
	p.desc = d
	return d, ok
}

// parseDescription reads a cached answer. One that is not of this build, or not of
// this plugin, is none.
func (h *Host) parseDescription(p *Plugin, data []byte) (*plugin.Description, bool) {
	var d description
	if json.Unmarshal(data, &d) != nil || d.Build != h.build || !slices.Contains(p.Manifest.Commands, d.Description.Spec.Command) {
		return nil, false
	}
	return &d.Description, true
}

// describe returns what a plugin says about itself; it is started only when no
// cached answer of this build is there.
func (h *Host) describe(ctx context.Context, p *Plugin) (*plugin.Description, error) {
	if p.sup == nil {
		return nil, h.switchedOff(p)
	}
	if d, ok := h.cached(p); ok {
		return d, nil
	}
	d, err := p.sup.Describe(ctx)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(p.Manifest.Commands, d.Spec.Command) {
		return nil, plugin.Errorf(plugin.Unavailable, "plugin %s brings the command %q, which its plugin.json does not list", p.Manifest.ID, d.Spec.Command).
			WithHint("add it to commands in its plugin.json")
	}
	p.mu.Lock()
	p.desc = &d
	p.mu.Unlock()
	data, err := json.Marshal(description{Build: h.build, Description: d})
	if err == nil {
		if err = durable.MkdirAll(h.home, describeDir); err == nil {
			err = durable.Write(h.home, describeDir+"/"+p.Manifest.ID+".json", data)
		}
	}
	if err != nil {
		h.log.Warn("description not cached", "plugin", p.Manifest.ID, "err", err)
	}
	return &d, nil
}

func (h *Host) switchedOff(p *Plugin) error {
	return plugin.Errorf(plugin.Unavailable, "plugin %s is switched off", p.Manifest.ID).
		WithHint("remove plugins.entries.%s.enabled from %s", p.Manifest.ID, h.config.path)
}

// absent says why the command of a plugin is not there now; nil where it is, or
// where no plugin has it.
func (h *Host) absent(ctx context.Context, command string) error {
	for _, p := range h.plugins {
		if slices.Contains(p.Manifest.Commands, command) {
			_, err := h.describe(ctx, p)
			return err
		}
	}
	return nil
}

func (h *Host) spec(ctx context.Context, p *Plugin) (*plugin.Spec, error) {
	d, err := h.describe(ctx, p)
	if err != nil {
		return nil, err
	}
	return &d.Spec, nil
}

// Spec returns the Spec of a command: the host's own or a plugin's.
func (h *Host) Spec(ctx context.Context, command string) (*plugin.Spec, error) {
	for _, d := range h.own {
		if spec := d.Spec(); spec.Command == command {
			return &spec, nil
		}
	}
	for _, p := range h.plugins {
		if slices.Contains(p.Manifest.Commands, command) {
			return h.spec(ctx, p)
		}
	}
	_, err := h.dispatcher(command)
	return nil, err
}

// Specs returns the Specs of all enabled plugins. One that cannot be started is
// left out and logged: the others go on.
func (h *Host) Specs(ctx context.Context) []*plugin.Spec {
	var specs []*plugin.Spec
	for _, p := range h.plugins {
		if p.sup == nil {
			continue
		}
		spec, err := h.spec(ctx, p)
		if err != nil {
			h.log.Warn("plugin left out", "plugin", p.Manifest.ID, "err", err)
			continue
		}
		specs = append(specs, spec)
	}
	return specs
}

// OwnSpecs returns the Specs of the host's own commands.
func (h *Host) OwnSpecs() []plugin.Spec {
	var specs []plugin.Spec
	for _, d := range h.own {
		specs = append(specs, d.Spec())
	}
	return specs
}

// exposes reports whether a plugin offers an optional surface: one that its
// configuration does not switch off by a boolean of that name.
func (p *Plugin) exposes(key string) bool {
	var config map[string]any
	if json.Unmarshal(p.config, &config) != nil {
		return false
	}
	on, given := config[key].(bool)
	return on || !given
}

// Notify tells all plugins about an event and gathers their notices, in the
// order of the plugins. They are told at the same time: one that hangs keeps no
// other waiting. A plugin that fails gives a notice as well.
func (h *Host) Notify(ctx context.Context, event plugin.Event) []string {
	defer h.upkeep()
	notices := make([][]string, len(h.plugins))
	var told sync.WaitGroup
	for i, p := range h.plugins {
		if p.sup == nil {
			continue
		}
		told.Go(func() {
			n, err := p.sup.Notify(ctx, event)
			if err != nil {
				n = append(n, fmt.Sprintf("plugin %s was not told of %s: %v", p.Manifest.ID, strings.ReplaceAll(string(event.Kind), "_", " "), err))
				h.log.Warn("notify", "plugin", p.Manifest.ID, "event", event.Kind, "err", err)
			}
			notices[i] = n
		})
	}
	told.Wait()
	return slices.Concat(notices...)
}

// CheckPlugins starts every plugin that is switched on, so that each of them
// judges its configuration: a schema cannot say everything. It returns all that
// they object to.
func (h *Host) CheckPlugins(ctx context.Context) error {
	var objections []string
	for _, p := range h.plugins {
		if p.sup == nil {
			continue
		}
		_, err := p.sup.Describe(ctx)
		if e := plugin.AsError(err); err != nil && e.Code == plugin.Usage {
			objections = append(objections, e.Message)
		} else if err != nil {
			return e
		}
	}
	if len(objections) > 0 {
		return configError(h.config.path, objections)
	}
	return nil
}

// tell is Notify in the background, for what happens in a call: whom it concerns
// is still answering that. What the plugins answer goes to the log.
func (h *Host) tell(event plugin.Event) {
	if event.Kind == plugin.EventSessionReplaced {
		h.events.publish(server.Event{Kind: sessionReplaced, Project: event.Project, Session: event.Session})
	}
	h.background.Go(func() {
		for _, n := range h.Notify(h.life, event) {
			h.log.Info("notice", "event", event.Kind, "session_id", event.Session, "text", n)
		}
	})
}

// pluginRow is a plugin as lists show it.
type pluginRow struct {
	ID       string   `json:"id"`
	Name     string   `json:"name,omitempty"`
	Version  string   `json:"version"`
	State    string   `json:"state"`
	Reason   string   `json:"reason,omitempty"`
	Bundled  bool     `json:"bundled"`
	Commands []string `json:"commands"`
	PID      int      `json:"pid,omitempty"`
	Restarts int      `json:"restarts"`
}

func (h *Host) pluginRow(p *Plugin) pluginRow {
	row := pluginRow{
		ID: p.Manifest.ID, Name: p.Manifest.Name, Version: p.Manifest.Version,
		Bundled: p.Bundled, Commands: p.Manifest.Commands, State: "disabled", Reason: "disabled in " + h.config.path,
	}
	if p.sup != nil {
		s := p.sup.State()
		row.State, row.Reason, row.PID, row.Restarts = string(s.Phase), "", s.PID, s.Restarts
		if s.LastError != nil {
			row.Reason = s.LastError.Error()
		}
	}
	return row
}

func (h *Host) pluginsList(_ context.Context, _ *dispatch.Invocation) (plugin.Result, error) {
	rows := make([]pluginRow, 0, len(h.plugins))
	var cells [][]string
	for _, p := range h.plugins {
		row := h.pluginRow(p)
		rows = append(rows, row)
		from := "installed"
		if row.Bundled {
			from = "bundled"
		}
		cells = append(cells, []string{row.ID, row.Version, row.State, from, strings.Join(row.Commands, " ")})
	}
	return answer(plugin.Table([]string{"PLUGIN", "VERSION", "STATE", "FROM", "COMMANDS"}, cells), rows)
}

// inspection is what plugins inspect shows.
type inspection struct {
	pluginRow
	Description  string                 `json:"description,omitempty"`
	Protocol     int                    `json:"protocol"`
	Build        string                 `json:"build,omitempty"`
	API          []string               `json:"api,omitempty"`
	Permissions  []plugin.Permission    `json:"permissions"`
	Config       json.RawMessage        `json:"config"`
	ConfigSchema json.RawMessage        `json:"configSchema"`
	Surfaces     map[string]string      `json:"surfaces,omitempty"`
	Verbs        []string               `json:"verbs,omitempty"`
	Services     []plugin.ServiceStatus `json:"services"`
	Stderr       string                 `json:"stderr,omitempty"`
}

func (h *Host) pluginsInspect(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	id := in.Arg("id")
	at := slices.IndexFunc(h.plugins, func(p *Plugin) bool { return p.Manifest.ID == id })
	if at < 0 {
		var ids []string
		for _, p := range h.plugins {
			ids = append(ids, p.Manifest.ID)
		}
		e := plugin.Errorf(plugin.NotFound, "no plugin %q", id).WithHint("sess plugins list shows all plugins")
		if near := plugin.Nearest(id, ids); len(near) > 0 {
			e = e.WithHint("did you mean %s?", near[0])
		}
		return plugin.Result{}, e
	}
	p := h.plugins[at]
	out := inspection{
		Description: p.Manifest.Description, Protocol: p.Manifest.Protocol, Permissions: p.Manifest.Permissions,
		Config: p.config, ConfigSchema: p.Manifest.ConfigSchema, Services: []plugin.ServiceStatus{},
	}
	var failure error
	if p.sup != nil {
		// Asking the process itself is what makes the answer true.
		d, err := p.sup.Describe(ctx)
		if err == nil {
			out.Services, err = p.sup.Status(ctx)
		}
		if failure = err; err == nil {
			out.Build, out.API = d.Build, d.API
			out.Surfaces = p.surfaces(&d.Spec)
			for _, v := range d.Spec.Verbs {
				if !v.Internal {
					out.Verbs = append(out.Verbs, v.Name)
				}
			}
		}
		out.Stderr = strings.Join(p.sup.State().Stderr, "\n")
	}
	out.pluginRow = h.pluginRow(p)
	if failure != nil {
		return plugin.Result{}, failure
	}
	res, err := answer(h.inspectText(out), out)
	return res, err
}

// ownCommand is the command whose verbs stand first on the command line.
const ownCommand = "sess"

// surfaces says by what name each surface offers a plugin's command.
func (p *Plugin) surfaces(spec *plugin.Spec) map[string]string {
	all := map[string]string{"slash": "/" + spec.Command, "cli": ownCommand, "rpc": spec.Command + ".invoke"}
	if spec.Command != ownCommand {
		all["cli"] += " " + spec.Command
	}
	if p.exposes("exposeTool") {
		all["tool"] = spec.ToolName()
	}
	return all
}

func (h *Host) inspectText(p inspection) string {
	var b strings.Builder
	line := func(key, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s %s\n", key+":", fmt.Sprintf(format, args...))
	}
	line("plugin", "%s %s", p.ID, p.Version)
	if p.Description != "" {
		line("about", "%s", p.Description)
	}
	state := p.State
	if p.PID != 0 {
		state += fmt.Sprintf(", process %d", p.PID)
	}
	if p.Restarts > 0 {
		state += fmt.Sprintf(", %d restarts", p.Restarts)
	}
	if p.Reason != "" {
		state += " (" + p.Reason + ")"
	}
	line("state", "%s", state)
	if p.Build != "" {
		line("build", "%s, protocol %d, API %s", p.Build, p.Protocol, strings.Join(p.API, " "))
		var names []string
		for _, s := range []struct{ key, label string }{{"slash", "chat"}, {"cli", "command line"}, {"tool", "tool"}, {"rpc", "RPC"}} {
			if name := p.Surfaces[s.key]; name != "" {
				names = append(names, s.label+" "+name)
			}
		}
		line("surfaces", "%s", strings.Join(names, ", "))
		line("verbs", "%s", strings.Join(p.Verbs, ", "))
	}
	perms := make([]string, len(p.Permissions))
	for i, perm := range p.Permissions {
		perms[i] = string(perm)
	}
	line("permissions", "%s", strings.Join(perms, " "))
	line("config", "%s", p.Config)
	for _, s := range p.Services {
		text := s.Schedule
		if s.Running {
			text += ", running now"
		}
		switch at := s.Next.Local().Format(time.DateTime); {
		case s.Next.IsZero():
		case s.Next.Before(h.now()):
			text += ", due since " + at
		default:
			text += ", next " + at
		}
		if s.Last.IsZero() {
			text += ", never ran"
		} else {
			text += ", last " + s.Last.Local().Format(time.DateTime)
		}
		if s.Result != "" {
			text += ": " + s.Result
		}
		line(s.Name, "%s", strings.TrimPrefix(text, ", "))
	}
	return strings.TrimRight(b.String(), "\n")
}
