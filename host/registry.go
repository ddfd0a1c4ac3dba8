package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"sess/host/chat"
	"sess/host/server"
	"sess/host/supervise"
	"sess/plugin"
	"sess/store/durable"
)

// Plugin is one plugin that the host knows.
type Plugin struct {
	Manifest *plugin.Manifest // of a broken one only the id
	Enabled  bool
	Bundled  bool

	config  json.RawMessage
	settled func() map[string]any // the same, parsed at the first call
	found   candidate
	build   string // identifies the executable
	problem error  // why it cannot run; nil
	sup     keeper // nil: switched off, or a problem

	mu   sync.Mutex          // guards desc
	desc *plugin.Description // of this build; nil until asked for
}

// registry is the configuration, and the plugins as it wants them. It never
// changes: Reload makes another one.
type registry struct {
	config  *Config
	plugins []*Plugin
}

// plugins lists the plugins that there are now: the bundled ones, then the
// installed ones in order of their ids.
func (h *Host) plugins() []*Plugin { return h.registry.Load().plugins }

// plugin finds a plugin by its id, or returns nil.
func (h *Host) plugin(id string) *Plugin {
	all := h.plugins()
	if at := slices.IndexFunc(all, func(p *Plugin) bool { return p.Manifest.ID == id }); at >= 0 {
		return all[at]
	}
	return nil
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

func manifestsOf(found []candidate) []*plugin.Manifest {
	all := make([]*plugin.Manifest, len(found))
	for i := range found {
		all[i] = found[i].manifest
	}
	return all
}

// find lists the plugins that there are; the configuration says how they run.
func (h *Host) find() ([]candidate, error) { return find(h.opts.Home, h.opts.Builtins) }

func (h *Host) loadConfig(found []candidate) (*Config, error) {
	if h.opts.Defaults {
		return defaultConfig(h.opts.Home, manifestsOf(found))
	}
	return LoadConfig(h.opts.Home, manifestsOf(found))
}

// register prepares the host's own commands and the plugins' supervisors. No
// process is started.
func (h *Host) register(found []candidate, config *Config) error {
	own, err := h.commands()
	if err != nil {
		return err
	}
	h.own = own
	r := &registry{config: config}
	for _, c := range found {
		r.plugins = append(r.plugins, h.newPlugin(c, config))
	}
	h.registry.Store(r)
	return nil
}

// newPlugin prepares a plugin as the configuration wants it.
func (h *Host) newPlugin(c candidate, config *Config) *Plugin {
	m := c.manifest
	p := &Plugin{
		Manifest: m, Enabled: config.Enabled(m.ID), Bundled: c.bundled(),
		config: config.PluginConfig(m.ID), found: c, build: h.build, problem: c.problem,
	}
	p.settled = sync.OnceValue(p.parseConfig)
	if c.record != nil {
		p.build = c.record.digest()
	}
	if problem := config.Problem(m.ID); problem != nil && p.problem == nil {
		p.problem = supervise.AtStep(problem, supervise.StepConfig)
	}
	if taken := h.reserved(m.Commands); taken != nil && p.problem == nil && !p.Bundled {
		p.problem = supervise.AtStep(taken, supervise.StepManifest)
	}
	if !p.Enabled || p.problem != nil {
		return p
	}
	configuration := h.configuration(p.config, h.opts.Background)
	services := func() (plugin.Runtime, func()) {
		r := newRuntime(h, m)
		return r, func() {
			r.close()
			h.pluginEnded(m.ID)
		}
	}
	if here := h.opts.Local[m.ID]; here != nil {
		p.sup = newLocal(m.ID, here, configuration, services)
		return p
	}
	s := supervise.Config{
		Manifest:      m,
		Exe:           h.opts.Exe,
		Args:          []string{"plugin", "serve", m.Builtin},
		Environ:       h.opts.Environ,
		MTLS:          m.UsesMTLS(),
		RuntimeDir:    h.opts.RuntimeDir,
		Configuration: configuration,
		NewRuntime:    func(int) (plugin.Runtime, func()) { return services() },
		ReadOnly:      func(call plugin.Call) bool { return h.readOnly(p, call) },
		Logger:        h.log,
		Known: func() (plugin.Description, bool) {
			if d, ok := h.cached(p); ok {
				return *d, true
			}
			return plugin.Description{}, false
		},
	}
	if p.Bundled {
		s.Build = h.build
		// A bundled plugin of a one-shot call talks through a private folder
		// only; leaving out the key exchange saves a third of its start.
		s.MTLS = s.MTLS && h.opts.Background
		s.Env = proxies(h.opts.Environ)
	} else {
		h.runInstalled(&s, c)
	}
	p.sup = supervise.New(s)
	return p
}

// proxies are the variables of an environment that say how the network is reached.
// A proxy's address may have a password in it, so only plugins that are part of
// this program get them.
func proxies(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return !slices.Contains([]string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}, strings.ToUpper(name))
	})
}

// configuration is what a plugin is given at its start.
func (h *Host) configuration(config json.RawMessage, background bool) plugin.Configuration {
	return plugin.Configuration{
		Config: config, AgentsDir: filepath.Join(h.home.Dir(), "agents"), UserHome: h.opts.UserHome, Background: background,
	}
}

// runInstalled says how the program of an installed plugin runs.
func (h *Host) runInstalled(s *supervise.Config, c candidate) {
	s.Exe = filepath.Join(c.dir, filepath.FromSlash(c.record.Program))
	s.Args = c.manifest.Command[1:]
	s.Dir = c.dir
	s.SHA256 = c.record.sum()
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(c.record.Files)), func(name string) bool { return name == c.record.Program })
	s.Check = func() error { return checkFiles(c.dir, c.record, others...) }
	if !c.manifest.UsesMux() {
		// One that multiplexes notices the end of the host by itself.
		s.Guard = []string{h.opts.Exe, "plugin", "guard", "--"}
	}
}

// reserved tells which of some commands a plugin may not have, as the host or
// the program answers it.
func (h *Host) reserved(commands []string) error {
	taken := append([]string{
		// routes and what else people take for a command
		"agents", "assets", "client", "config", "events", "gateway", "healthz", "help", "mcp", "metrics", "models", "openapi",
		"plugin", "plugins", "program", "projects", "readyz", "rpc", "sessions", "tools", "v1", "web",
	}, h.opts.Reserved...)
	for _, d := range h.own {
		taken = append(taken, d.Spec().Command)
	}
	taken = append(taken, chat.Builtins()...)
	for _, command := range commands {
		if slices.Contains(taken, command) {
			return plugin.Errorf(plugin.Exists, "its command %s is one of this program", command).
				WithHint("the plugin's author has to name it otherwise")
		}
	}
	return nil
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
	if json.Unmarshal(data, &d) != nil || d.Build != p.build || !slices.Contains(p.Manifest.Commands, d.Description.Spec.Command) {
		return nil, false
	}
	return &d.Description, true
}

// describe returns what a plugin says about itself; it is started only when no
// cached answer of this build is there.
func (h *Host) describe(ctx context.Context, p *Plugin) (*plugin.Description, error) {
	if p.sup == nil {
		return nil, h.absence(p)
	}
	if d, ok := h.cached(p); ok {
		return d, nil
	}
	d, err := p.sup.Describe(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkDescription(p.Manifest, &d); err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.desc = &d
	p.mu.Unlock()
	h.remember(p.Manifest.ID, p.build, d)
	return &d, nil
}

// remember keeps what a plugin says of itself, for help and completion.
func (h *Host) remember(id, build string, d plugin.Description) {
	data, err := json.Marshal(description{Build: build, Description: d})
	if err == nil {
		if err = durable.MkdirAll(h.home, describeDir); err == nil {
			err = durable.Write(h.home, describeDir+"/"+id+".json", data)
		}
	}
	if err != nil {
		h.log.Warn("description not cached", "plugin", id, "err", err)
	}
}

// checkDescription compares what a plugin says of itself with its manifest. What
// it lets pass, every surface can offer.
func checkDescription(m *plugin.Manifest, d *plugin.Description) error {
	if !slices.Contains(m.Commands, d.Spec.Command) {
		return plugin.Errorf(plugin.Unavailable, "plugin %s brings the command %q, which its plugin.json does not list", m.ID, d.Spec.Command).
			WithHint("add it to commands in its plugin.json")
	}
	major, _, _ := strings.Cut(plugin.APIVersion, ".")
	if !slices.ContainsFunc(d.API, func(v string) bool { return strings.HasPrefix(v, major+".") }) {
		return plugin.Errorf(plugin.Unavailable, "plugin %s speaks the API %s, this host speaks %s", m.ID, cmp.Or(strings.Join(d.API, ", "), "of no version"), plugin.APIVersion).
			WithHint("install a version of the plugin made for API %s", plugin.APIVersion)
	}
	if err := d.Spec.Check(); err != nil {
		return plugin.Errorf(plugin.Unavailable, "plugin %s declares its command wrongly: %s", m.ID, strings.ReplaceAll(err.Error(), "\n", "; ")).
			WithHint("the plugin's author has to correct it")
	}
	return nil
}

// absence says why a plugin without a supervisor has none.
func (h *Host) absence(p *Plugin) error {
	if !p.Enabled {
		return plugin.Errorf(plugin.Unavailable, "plugin %s is switched off", p.Manifest.ID).
			WithHint("sess plugins enable %s", p.Manifest.ID)
	}
	e := cannotRun(p.Manifest.ID, p.problem)
	e.Code = plugin.Unavailable
	return e
}

// cannotRun is the error for whoever wants something of a plugin that has a problem.
func cannotRun(id string, problem error) *plugin.Error {
	e := plugin.AsError(problem)
	why := strings.TrimPrefix(e.Message, "plugin "+id+": ")
	return &plugin.Error{Code: e.Code, Message: fmt.Sprintf("plugin %s cannot run: %s", id, why), Hint: e.Hint, Details: e.Details, Err: e}
}

// Absent says why the command of a plugin is not there now; nil where it is, or
// where no plugin has it.
func (h *Host) Absent(ctx context.Context, command string) error {
	for _, p := range h.plugins() {
		// Of a broken one the commands are not known: its id is a good guess.
		if slices.Contains(p.Manifest.Commands, command) || p.Manifest.Commands == nil && p.Manifest.ID == command {
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
	for _, p := range h.plugins() {
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
	for _, p := range h.described(ctx) {
		specs = append(specs, p.spec)
	}
	return specs
}

// describedPlugin is a plugin with what it brings.
type describedPlugin struct {
	*Plugin
	spec *plugin.Spec
}

// described lists the enabled plugins with their Specs. Those that have to be
// started for that are started at the same time; one that cannot be is left out and
// logged.
func (h *Host) described(ctx context.Context) []describedPlugin {
	all := h.plugins()
	specs := make([]*plugin.Spec, len(all))
	var asked sync.WaitGroup
	for i, p := range all {
		if p.sup == nil {
			continue
		}
		asked.Go(func() {
			var err error
			if specs[i], err = h.spec(ctx, p); err != nil {
				h.log.WarnContext(ctx, "plugin left out", "plugin", p.Manifest.ID, "err", err)
			}
		})
	}
	asked.Wait()
	var list []describedPlugin
	for i, p := range all {
		if specs[i] != nil {
			list = append(list, describedPlugin{p, specs[i]})
		}
	}
	return list
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
	config := p.settled()
	on, given := config[key].(bool)
	return config != nil && (on || !given)
}

// parseConfig is nil where the configuration is no object.
func (p *Plugin) parseConfig() map[string]any {
	config := map[string]any{}
	if json.Unmarshal(p.config, &config) != nil {
		return nil
	}
	return config
}

// Notify tells all plugins about an event and gathers their notices, in the
// order of the plugins. They are told at the same time: one that hangs keeps no
// other waiting. A plugin that fails gives a notice as well.
func (h *Host) Notify(ctx context.Context, event plugin.Event) []string {
	defer h.upkeep()
	all := h.plugins()
	notices := make([][]string, len(all))
	var told sync.WaitGroup
	for i, p := range all {
		if p.sup == nil {
			continue
		}
		kinds := []plugin.EventKind{event.Kind}
		if event.Kind == plugin.EventTurnEnded && h.answers(p, event.Model) {
			kinds = append(kinds, plugin.EventTurnAnswered)
		}
		kinds = slices.DeleteFunc(kinds, func(k plugin.EventKind) bool { return !p.Manifest.Hears(k) })
		if len(kinds) == 0 {
			continue
		}
		told.Go(func() {
			for _, kind := range kinds {
				own := event
				own.Kind = kind
				notices[i] = append(notices[i], h.notify(ctx, p, own)...)
			}
		})
	}
	told.Wait()
	return slices.Concat(notices...)
}

// notify tells one plugin about an event.
func (h *Host) notify(ctx context.Context, p *Plugin, event plugin.Event) []string {
	n, err := p.sup.Notify(ctx, event)
	if next := h.plugin(p.Manifest.ID); errors.Is(err, supervise.ErrClosed) && next != nil && next != p && next.sup != nil {
		n, err = next.sup.Notify(ctx, event) // it was replaced just now
	}
	if err != nil {
		n = append(n, fmt.Sprintf("plugin %s was not told of %s: %v", p.Manifest.ID, strings.ReplaceAll(string(event.Kind), "_", " "), err))
		h.log.Warn("notify", "plugin", p.Manifest.ID, "event", event.Kind, "err", err)
	}
	return n
}

// providers are the plugins that talk to models, by their ids: those that say so,
// and those that were not asked yet.
func (h *Host) providers() map[string]plugin.Provider {
	all := map[string]plugin.Provider{}
	for _, p := range h.plugins() {
		if p.sup == nil {
			continue
		}
		if d, known := h.cached(p); !known || slices.Contains(d.Abilities, plugin.AbilityProvider) {
			all[p.Manifest.ID] = p.sup
		}
	}
	return all
}

// answers reports whether a plugin is the one that talks to a model.
func (h *Host) answers(p *Plugin, model string) bool {
	provider, _, _ := strings.Cut(model, "/")
	configured, ok := h.Config().Models.Providers[provider]
	return ok && configured.Kind == p.Manifest.ID
}

// endedTime bounds how long the others may take to hear of a plugin's end. Calls
// that its end has broken are answered after that.
const endedTime = 5 * time.Second

// pluginEnded tells the plugins that run of the end of another one's process: it
// may have asked them for something that it will not finish.
func (h *Host) pluginEnded(id string) {
	h.mu.Lock()
	closing := h.closing
	h.mu.Unlock()
	if closing {
		return // they all end, and settle what they have
	}
	ctx, cancel := context.WithTimeout(h.life, endedTime)
	defer cancel()
	var told sync.WaitGroup
	for _, p := range h.plugins() {
		if p.sup == nil || p.Manifest.ID == id || !p.Manifest.Hears(plugin.EventPluginEnded) || p.sup.State().Phase != supervise.Ready {
			continue
		}
		told.Go(func() {
			notices, err := p.sup.Notify(ctx, plugin.Event{Kind: plugin.EventPluginEnded, Plugin: id})
			if err != nil {
				h.log.Error("not told that another plugin ended", "plugin", p.Manifest.ID, "event", plugin.EventPluginEnded, "err", err)
			}
			for _, n := range notices {
				h.troubles.add(n)
			}
		})
	}
	told.Wait()
}

// CheckPlugins starts every plugin that is switched on, so that each of them
// judges its configuration: a schema cannot say everything. It returns all that
// they object to.
func (h *Host) CheckPlugins(ctx context.Context) error {
	var objections []string
	for _, p := range h.plugins() {
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
		return configError(h.Config().path, objections)
	}
	return nil
}

// tell is Notify in the background, for what happens in a call: whom it concerns
// is still answering that. What the plugins answer is told in the next chat.
func (h *Host) tell(event plugin.Event) {
	if event.Kind == plugin.EventSessionReplaced {
		h.events.publish(server.Event{Kind: sessionReplaced, Project: event.Project, Session: event.Session, Data: fmt.Appendf(nil, `{"revision":%d}`, event.Revision)})
	}
	h.background.Go(func() {
		for _, n := range h.Notify(h.life, event) {
			h.log.Info("notice", "event", event.Kind, "session_id", event.Session, "text", n)
			h.troubles.add(n)
		}
	})
}
