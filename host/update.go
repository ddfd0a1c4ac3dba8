package host

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"sess/dispatch"
	"sess/plugin"
	"sess/store/durable"
)

func (h *Host) pluginsUpdate(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	source, s, end, err := h.take(ctx, in, "sess plugins update")
	if err != nil {
		return plugin.Result{}, h.sourceOf(in.Arg("package"), err)
	}
	defer end()
	m := s.manifest
	if id := in.Arg("id"); id != "" && id != m.ID {
		return plugin.Result{}, plugin.Errorf(plugin.Conflict, "%s is plugin %s, not %s", source, m.ID, id).
			WithHint("to install it beside %s: sess plugins install %s", id, in.Arg("package"))
	}
	found, err := h.find()
	if err != nil {
		return plugin.Result{}, err
	}
	at := slices.IndexFunc(found, func(c candidate) bool { return c.manifest.ID == m.ID })
	if at < 0 {
		return plugin.Result{}, plugin.Errorf(plugin.NotFound, "plugin %s is not installed", m.ID).
			WithHint("sess plugins install %s", in.Arg("package"))
	}
	old := found[at]
	if old.bundled() {
		return plugin.Result{}, plugin.Errorf(plugin.Denied, "plugin %s is part of this program and is updated with it", m.ID).
			WithHint("a plugin needs an id of its own")
	}
	if err := h.freeNames(ctx, s, found); err != nil {
		return plugin.Result{}, err
	}
	var accepted []plugin.Permission
	was := ""
	if old.record != nil {
		accepted, was = old.record.Permissions, old.manifest.Version
	}
	if err := confirmed(in, "%s %s; %s", m.ID, versions(was, m.Version), permissionChange(accepted, m.Permissions)); err != nil {
		return plugin.Result{}, err
	}
	config, err := h.loadConfig(replaceManifest(found, m))
	if err != nil {
		return plugin.Result{}, err
	}
	enabled := config.Enabled(m.ID)
	if problem := config.Problem(m.ID); problem != nil && enabled {
		return plugin.Result{}, plugin.AsError(fmt.Errorf("version %s needs another configuration: %w", m.Version, problem)).
			WithHint("correct the file, or switch the plugin off first with: sess plugins disable %s", m.ID)
	}
	part := config.PluginConfig(m.ID)
	if !enabled {
		part = nil
	}
	d, err := h.try(ctx, s, part)
	if err == nil {
		err = h.freeShortcuts(ctx, &d.Spec, m.ID)
	}
	if err != nil {
		return plugin.Result{}, err
	}
	s.record.InstalledAt = h.now().UTC()
	if err := s.seal(h.home); err != nil {
		return plugin.Result{}, err
	}
	out := s.answer()
	out.Was, out.Enabled = was, enabled
	return h.replace(ctx, s, &d, out)
}

// replace puts a staged plugin in the place of the one that is there, which
// comes back when the new one does not run.
func (h *Host) replace(ctx context.Context, s *stagedPackage, d *plugin.Description, out installed) (plugin.Result, error) {
	id := s.manifest.ID
	place, aside := path.Join(pluginsDir, id), path.Join(replacedDir, id)
	if err := durable.MkdirAll(h.home, replacedDir); err != nil {
		return plugin.Result{}, err
	}
	// Between the two moves the plugin is found where it was put aside.
	if err := h.putAside(id, aside); err != nil {
		return plugin.Result{}, err
	}
	if err := durable.Move(h.home, s.name, place); err != nil {
		return plugin.Result{}, errors.Join(err, durable.Move(h.home, aside, place))
	}
	h.remember(id, s.record.digest(), *d)
	report, err := h.Reload(ctx)
	if reason := report.Failed[id]; err == nil && reason != "" {
		err = plugin.Errorf(plugin.Unavailable, "version %s of plugin %s does not run: %s", s.manifest.Version, id, reason)
	}
	if err != nil {
		back := errors.Join(durable.Move(h.home, place, path.Join(stagingDir, "failed")), durable.Move(h.home, aside, place))
		_, again := h.Reload(ctx)
		if back = errors.Join(back, again); back != nil {
			return plugin.Result{}, errors.Join(err, back)
		}
		return plugin.Result{}, plugin.AsError(err).WithHint("nothing was changed: the version before is in place")
	}
	if err := durable.RemoveAll(h.home, replacedDir); err != nil {
		h.log.Warn("files of a replaced plugin are left", "plugin", id, "err", err)
	}
	return answer(fmt.Sprintf("%s %s", id, versions(out.Was, out.Version)), out)
}

func versions(was, now string) string {
	switch was {
	case "":
		return "is repaired with version " + now
	case now:
		return "is replaced by other files of the same version " + now
	}
	return fmt.Sprintf("goes from version %s to %s", was, now)
}

// permissionChange says what an update asks for.
func permissionChange(was, now []plugin.Permission) string {
	var more, less []plugin.Permission
	for _, p := range now {
		if !slices.Contains(was, p) {
			more = append(more, p)
		}
	}
	for _, p := range was {
		if !slices.Contains(now, p) {
			less = append(less, p)
		}
	}
	switch {
	case more == nil && less == nil:
		return "its permissions stay: it may " + permissionText(now)
	case more == nil:
		return "it no longer may " + permissionText(less)
	case less == nil:
		return "it newly may " + permissionText(more)
	}
	return "it newly may " + permissionText(more) + ", and no longer " + permissionText(less)
}

// replaceManifest is found with another manifest of one of the plugins.
func replaceManifest(found []candidate, m *plugin.Manifest) []candidate {
	found = slices.Clone(found)
	for i := range found {
		if found[i].manifest.ID == m.ID {
			found[i].manifest = m
		}
	}
	return found
}
