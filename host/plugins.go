package host

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"sess/dispatch"
	"sess/host/supervise"
	"sess/plugin"
)

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
		Bundled: p.Bundled, Commands: slices.Concat([]string{}, p.Manifest.Commands),
	}
	switch {
	case !p.Enabled:
		row.State, row.Reason = "disabled", "disabled in "+h.Config().path
	case p.problem != nil:
		row.State, row.Reason = string(supervise.Failed), p.problem.Error()
	default:
		s := p.sup.State()
		row.State, row.Reason, row.PID, row.Restarts = string(s.Phase), "", s.PID, s.Restarts
		if s.LastError != nil {
			row.Reason = s.LastError.Error()
		}
	}
	return row
}

func (h *Host) pluginsList(_ context.Context, _ *dispatch.Invocation) (plugin.Result, error) {
	all := h.plugins()
	rows := make([]pluginRow, 0, len(all))
	var cells [][]string
	for _, p := range all {
		row := h.pluginRow(p)
		rows = append(rows, row)
		from := "installed"
		if row.Bundled {
			from = "bundled"
		}
		cells = append(cells, []string{row.ID, row.Version, row.State, from, strings.Join(row.Commands, " ")})
	}
	lines := []string{plugin.Table([]string{"PLUGIN", "VERSION", "STATE", "FROM", "COMMANDS"}, cells)}
	for _, row := range rows {
		if row.State == string(supervise.Failed) && row.Reason != "" {
			lines = append(lines, fmt.Sprintf("%s: %s", row.ID, strings.TrimPrefix(row.Reason, "plugin "+row.ID+": ")))
		}
	}
	return answer(strings.Join(lines, "\n"), rows)
}

// named is the plugin that somebody means, by its id.
func (h *Host) named(id string) (*Plugin, error) {
	if p := h.plugin(id); p != nil {
		return p, nil
	}
	var ids []string
	for _, p := range h.plugins() {
		ids = append(ids, p.Manifest.ID)
	}
	e := plugin.Errorf(plugin.NotFound, "no plugin %q", id).WithHint("sess plugins list shows all plugins")
	if near := plugin.Nearest(id, ids); len(near) > 0 {
		e = e.WithHint("did you mean %s?", near[0])
	}
	return nil, e
}

// inspection is what plugins inspect shows.
type inspection struct {
	pluginRow
	Description  string                 `json:"description,omitempty"`
	Protocol     int                    `json:"protocol,omitempty"`
	Build        string                 `json:"build,omitempty"`
	API          []string               `json:"api,omitempty"`
	Permissions  []plugin.Permission    `json:"permissions"`
	Config       json.RawMessage        `json:"config"`
	ConfigSchema json.RawMessage        `json:"configSchema"`
	Surfaces     map[string]string      `json:"surfaces,omitempty"`
	Verbs        []string               `json:"verbs,omitempty"`
	Services     []plugin.ServiceStatus `json:"services"`
	Source       string                 `json:"source,omitempty"`
	InstalledAt  *time.Time             `json:"installedAt,omitempty"`
	Dir          string                 `json:"dir,omitempty"`
	SHA256       string                 `json:"sha256,omitempty"` // of its program, as installed
	LastError    string                 `json:"lastError,omitempty"`
	Stderr       string                 `json:"stderr,omitempty"`
}

// inspect tells all that is known of a plugin; it is started for that. The error
// is why it does not run.
func (h *Host) inspect(ctx context.Context, p *Plugin) (inspection, error) {
	out := inspection{
		Description: p.Manifest.Description, Protocol: p.Manifest.Protocol,
		Permissions: slices.Concat([]plugin.Permission{}, p.Manifest.Permissions),
		Config:      p.config, ConfigSchema: p.Manifest.ConfigSchema, Services: []plugin.ServiceStatus{}, Dir: p.found.dir,
	}
	if r := p.found.record; r != nil {
		out.Source, out.InstalledAt, out.SHA256 = r.Source, &r.InstalledAt, r.sum()
	}
	var failure error
	if p.Enabled && p.problem != nil {
		failure = h.absence(p)
	}
	if p.sup != nil {
		// Asking the process itself is what makes the answer true.
		d, err := p.sup.Describe(ctx)
		if err == nil {
			err = checkDescription(p.Manifest, &d)
		}
		if err == nil {
			var services []plugin.ServiceStatus
			services, err = p.sup.Status(ctx)
			out.Services = append(out.Services, services...) // a list, also of none
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
		state := p.sup.State()
		out.Stderr = strings.Join(state.Stderr, "\n")
		if state.LastError != nil {
			out.LastError = state.LastError.Error()
		}
	}
	out.pluginRow = h.pluginRow(p)
	if failure != nil {
		out.State, out.Reason = string(supervise.Failed), failure.Error()
	}
	return out, failure
}

// pluginsInspect answers for a plugin that does not run with an error, so that
// nobody takes it for one that does; all that is known of it is in there.
func (h *Host) pluginsInspect(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	p, err := h.named(in.Arg("id"))
	if err != nil {
		return plugin.Result{}, err
	}
	out, failure := h.inspect(ctx, p)
	text := h.inspectText(out)
	if failure == nil {
		return answer(text, out)
	}
	data, err := json.Marshal(out)
	if err != nil {
		return plugin.Result{}, err
	}
	e := plugin.AsError(failure)
	return plugin.Result{}, (&plugin.Error{
		Code: e.Code, Message: e.Message + "\n" + text, Hint: e.Hint, Details: e.Details, Err: e,
	}).WithDetail("plugin", string(data))
}

// ownCommand is the command whose verbs stand first on the command line.
const ownCommand = "sess"

// surfaces says by what name each surface offers a plugin's command.
func (p *Plugin) surfaces(spec *plugin.Spec) map[string]string {
	all := map[string]string{"slash": "/" + spec.Command, "cli": ownCommand, "rpc": spec.Command + ".invoke"}
	if spec.Command != ownCommand {
		all["cli"] += " " + spec.Command
	}
	for _, short := range spec.Shortcuts {
		all["slash"] += " /" + short.Name
	}
	if p.exposes("exposeTool") {
		all["tool"] = spec.ToolName()
	}
	if p.exposes("httpRoutes") {
		all["http"] = "/" + spec.Command + "/{verb}"
		for _, r := range spec.Routes {
			all["http"] += ", " + r.Method + " " + r.Path
		}
	}
	return all
}

// configFields tells of each field of a plugin's configuration what it is set to,
// what it may be, and what holds without it.
func configFields(schema, config json.RawMessage) []string {
	var s struct {
		Properties map[string]struct {
			Type    any               `json:"type"`
			Enum    []json.RawMessage `json:"enum"`
			Default json.RawMessage   `json:"default"`
		} `json:"properties"`
		Required []string `json:"required"`
	}
	var set map[string]json.RawMessage
	if json.Unmarshal(schema, &s) != nil {
		return nil
	}
	_ = json.Unmarshal(config, &set) // of a wrong one nothing is known
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		f := s.Properties[name]
		var about []string
		switch {
		case f.Enum != nil:
			about = append(about, fmt.Sprintf("one of %s", f.Enum))
		case f.Type != nil:
			about = append(about, strings.Trim(fmt.Sprint(f.Type), "[]"))
		}
		switch {
		case f.Default != nil:
			about = append(about, "default "+string(f.Default))
		case slices.Contains(s.Required, name):
			about = append(about, "required")
		}
		value := "not set"
		if set[name] != nil {
			value = string(set[name])
		}
		lines = append(lines, fmt.Sprintf("%s = %s (%s)", name, value, strings.Join(about, ", ")))
	}
	return lines
}

func (h *Host) inspectText(p inspection) string {
	var b strings.Builder
	line := func(key, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s %s\n", key+":", fmt.Sprintf(format, args...))
	}
	list := func(key string, lines []string) {
		if len(lines) > 0 {
			line(key, "%s", strings.Join(lines, "\n"+strings.Repeat(" ", 13)))
		}
	}
	line("plugin", "%s", strings.TrimSpace(p.ID+" "+p.Version))
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
	if p.API != nil { // it was asked
		spoken := fmt.Sprintf("protocol %d, API %s", p.Protocol, strings.Join(p.API, " "))
		if p.Build != "" {
			spoken = p.Build + ", " + spoken
		}
		line("build", "%s", spoken)
		var names []string
		for _, s := range []struct{ key, label string }{{"slash", "chat"}, {"cli", "command line"}, {"tool", "tool"}, {"http", "HTTP"}, {"rpc", "RPC"}} {
			if p.Surfaces[s.key] == "" {
				continue
			}
			for name := range strings.SplitSeq(p.Surfaces[s.key], ", ") {
				names = append(names, s.label+" "+name)
			}
		}
		list("surfaces", names)
		line("verbs", "%s", strings.Join(p.Verbs, ", "))
	}
	perms := make([]string, len(p.Permissions))
	for i, perm := range p.Permissions {
		perms[i] = string(perm)
	}
	if p.Source != "" {
		line("installed", "%s, from %s", p.InstalledAt.Local().Format(time.DateTime), p.Source)
		line("checksum", "SHA-256 %s", p.SHA256)
	}
	if p.Dir != "" {
		line("folder", "%s", p.Dir)
	}
	line("permissions", "%s", cmp.Or(strings.Join(perms, " "), "none"))
	list("config", configFields(p.ConfigSchema, p.Config))
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
	if p.LastError != "" && p.LastError != p.Reason {
		line("last error", "%s", p.LastError)
	}
	if p.Stderr != "" {
		line("wrote last", "%s", strings.ReplaceAll(p.Stderr, "\n", "\n             "))
	}
	return strings.TrimRight(b.String(), "\n")
}

// checkup is what plugins doctor finds out about one plugin.
type checkup struct {
	ID      string `json:"id"`
	Version string `json:"version,omitempty"`
	// State is "ready", "disabled" or "failed".
	State string `json:"state"`
	// Step is where its start failed; see [supervise.Step].
	Step  string `json:"step,omitempty"`
	Error string `json:"error,omitempty"`
	Hint  string `json:"hint,omitempty"`
	// Code is the error's.
	Code   plugin.Code `json:"code,omitempty"`
	Stderr string      `json:"stderr,omitempty"` // what it wrote last
}

// checkPlugin checks the files of a plugin and starts it.
func (h *Host) checkPlugin(ctx context.Context, p *Plugin) (checkup, error) {
	c := checkup{ID: p.Manifest.ID, Version: p.Manifest.Version, State: "disabled"}
	err := p.problem
	if err == nil && p.found.record != nil {
		if err = checkFiles(p.found.dir, p.found.record); err != nil {
			err = supervise.AtStep(err, supervise.StepChecksum).
				WithHint("install it again with: sess plugins update <folder or tar.gz> %s", c.ID)
		}
	}
	if err == nil && p.sup != nil {
		c.State = string(supervise.Ready)
		if err = p.sup.Start(ctx); err == nil {
			_, err = h.describe(ctx, p)
		}
		if err != nil {
			c.Stderr = strings.Join(p.sup.State().Stderr, "\n")
		}
	}
	if err == nil {
		return c, nil
	}
	e := plugin.AsError(err)
	c.State, c.Step, c.Error, c.Hint = string(supervise.Failed), cmp.Or(e.Details[supervise.StepDetail], string(supervise.StepStart)), e.Message, e.Hint
	c.Code = e.Code
	return c, e
}

func (h *Host) pluginsDoctor(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	plugins := h.plugins()
	if in.Has("id") {
		p, err := h.named(in.Arg("id"))
		if err != nil {
			return plugin.Result{}, err
		}
		plugins = []*Plugin{p}
	}
	checked := make([]checkup, len(plugins))
	failures := make([]error, len(plugins))
	var checking sync.WaitGroup
	for i, p := range plugins {
		checking.Go(func() { checked[i], failures[i] = h.checkPlugin(ctx, p) })
	}
	checking.Wait()
	var text strings.Builder
	ill := 0
	var worst *plugin.Error
	for i, c := range checked {
		if text.Len() > 0 {
			text.WriteByte('\n')
		}
		fmt.Fprintf(&text, "%s: %s", strings.TrimSpace(c.ID+" "+c.Version), c.State)
		if failures[i] == nil {
			continue
		}
		ill++
		if e := plugin.AsError(failures[i]); worst == nil {
			worst = e
		}
		fmt.Fprintf(&text, " (%s): %s", c.Step, c.Error)
		if c.Hint != "" {
			fmt.Fprintf(&text, "\n  what to do: %s", c.Hint)
		}
		if c.Stderr != "" {
			fmt.Fprintf(&text, "\n  it wrote last: %s", strings.ReplaceAll(c.Stderr, "\n", "\n    "))
		}
	}
	if worst == nil {
		return answer(text.String(), checked)
	}
	data, err := json.Marshal(checked)
	if err != nil {
		return plugin.Result{}, err
	}
	return plugin.Result{}, plugin.Errorf(worst.Code, "%d of %d plugins do not run:\n%s", ill, len(checked), text.String()).
		WithDetail("plugins", string(data))
}
