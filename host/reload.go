package host

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"sess/host/server"
	"sess/host/supervise"
	"sess/plugin"
)

// ReloadReport says what a reload did, by ids of plugins.
type ReloadReport struct {
	Added   []string `json:"added"`
	Changed []string `json:"changed"`
	Removed []string `json:"removed"`
	// Failed tells of those that are wanted and do not run, and why.
	Failed map[string]string `json:"failed"`
}

// Reload reads the configuration and the installed plugins again and applies
// what has changed: a plugin that is new or has changed is started, in a host
// that stays; then calls go to it; then the one before it finishes what it does
// and ends. All other plugins go on untouched. A wrong configuration is refused
// and changes nothing. A plugin that does not start is in the report; that is no
// error. Reloads wait for one another. When ctx ends, nothing is waited for any
// longer.
func (h *Host) Reload(ctx context.Context) (ReloadReport, error) {
	report, ended, err := h.reload(ctx)
	if err != nil {
		return report, err
	}
	select {
	case <-ended:
	case <-ctx.Done():
	}
	return report, nil
}

// reload is Reload, but for the wait: ended is closed when those that were replaced
// or removed have ended.
func (h *Host) reload(ctx context.Context) (report ReloadReport, ended chan struct{}, err error) {
	h.reloading.Lock()
	defer h.reloading.Unlock()
	report = ReloadReport{Added: []string{}, Changed: []string{}, Removed: []string{}, Failed: map[string]string{}}
	h.mu.Lock()
	closing := h.closing
	h.mu.Unlock()
	if closing {
		return report, nil, plugin.Errorf(plugin.Unavailable, "the host is stopping")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.life, cancel)() // a start must not hold up the end
	found, err := h.find()
	if err != nil {
		return report, nil, err
	}
	config, err := h.loadConfig(found)
	if err != nil {
		return report, nil, err
	}
	old := h.plugins()
	next := &registry{config: config}
	var fresh, gone []*Plugin
	for _, c := range found {
		p := h.newPlugin(c, config)
		at := slices.IndexFunc(old, func(o *Plugin) bool { return o.Manifest.ID == p.Manifest.ID })
		switch {
		case at < 0:
			report.Added = append(report.Added, p.Manifest.ID)
			fresh = append(fresh, p)
		case old[at].same(p) || h.opts.Local[p.Manifest.ID] != nil:
			p = old[at]
		default:
			report.Changed = append(report.Changed, p.Manifest.ID)
			fresh, gone = append(fresh, p), append(gone, old[at])
		}
		next.plugins = append(next.plugins, p)
	}
	for _, o := range old {
		if !slices.ContainsFunc(next.plugins, func(p *Plugin) bool { return p.Manifest.ID == o.Manifest.ID }) {
			report.Removed = append(report.Removed, o.Manifest.ID)
			gone = append(gone, o)
		}
	}
	if h.opts.Background {
		h.startAll(ctx, fresh)
	}
	h.registry.Store(next)
	for _, p := range next.plugins {
		if reason := p.failure(); reason != nil {
			report.Failed[p.Manifest.ID] = reason.Error()
		}
	}
	if len(fresh)+len(gone) > 0 {
		data, err := json.Marshal(report)
		if err != nil {
			return report, nil, err
		}
		h.events.publish(server.Event{Kind: pluginsChanged, Data: data})
	}
	ended = make(chan struct{})
	h.background.Go(func() {
		defer close(ended)
		var ending sync.WaitGroup
		for _, p := range gone {
			if p.sup == nil {
				continue
			}
			ending.Go(func() {
				// Its calls are those of others: they end with the host, not with ctx.
				if err := p.sup.Close(h.life); err != nil {
					h.log.Error("plugin did not end", "plugin", p.Manifest.ID, "err", err)
				}
			})
		}
		ending.Wait()
	})
	return report, ended, nil
}

// Refresh is [Host.Reload] for those that nobody tells of a change: it does nothing
// unless the configuration or the installed plugins may have changed since the last
// time, and waits for no plugin's end. What is wrong with them is logged, and leaves
// all as it was.
func (h *Host) Refresh(ctx context.Context) {
	h.refreshing.Lock()
	defer h.refreshing.Unlock()
	now := h.mark()
	if h.read == now {
		return
	}
	h.read = now // before it is read: what changes meanwhile is noticed by the next
	if _, _, err := h.reload(context.WithoutCancel(ctx)); err != nil {
		h.log.ErrorContext(ctx, "what has changed of the configuration and the plugins is not used", "err", err)
	}
}

// mark is another one whenever the configuration or the folder of the plugins has
// changed.
func (h *Host) mark() string {
	var b strings.Builder
	for _, name := range []string{configName, pluginsDir} {
		if info, err := h.home.Stat(name); err == nil {
			fmt.Fprintf(&b, "%s %d %s\n", name, info.Size(), info.ModTime())
		}
	}
	return b.String()
}

// startAll starts plugins and waits until each runs, or does not.
func (h *Host) startAll(ctx context.Context, plugins []*Plugin) {
	var starting sync.WaitGroup
	for _, p := range plugins {
		if p.sup == nil {
			continue
		}
		starting.Go(func() {
			if _, err := p.sup.Describe(ctx); err != nil && ctx.Err() == nil {
				h.log.Error("plugin does not start", "plugin", p.Manifest.ID, "err", err)
			}
		})
	}
	starting.Wait()
}

// same reports whether two are the same plugin under the same configuration.
func (p *Plugin) same(o *Plugin) bool {
	problem := func(p *Plugin) string {
		if p.problem == nil {
			return ""
		}
		return p.problem.Error()
	}
	return p.Enabled == o.Enabled && p.build == o.build && problem(p) == problem(o) &&
		bytes.Equal(p.config, o.config) && reflect.DeepEqual(p.Manifest, o.Manifest)
}

// failure is why a plugin that is wanted does not run, or nil.
func (p *Plugin) failure() error {
	switch {
	case !p.Enabled:
		return nil
	case p.problem != nil:
		return p.problem
	case p.sup == nil:
		return nil
	}
	if s := p.sup.State(); s.Phase == supervise.Failed || s.Phase == supervise.Backoff {
		return s.LastError
	}
	return nil
}
