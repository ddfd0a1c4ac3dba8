package host

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
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
	return answer(plugin.Table([]string{"PLUGIN", "VERSION", "STATE", "FROM", "COMMANDS"}, cells), rows)
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
	p, err := h.named(id)
	if err != nil {
		return plugin.Result{}, err
	}
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
