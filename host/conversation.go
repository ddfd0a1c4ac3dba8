package host

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"sess/host/agents"
	"sess/host/chat"
	"sess/host/models"
	"sess/plugin"
	"sess/store/session"
	"sess/surfaces"
)

// ChatOptions say which conversation to open, and where it is shown.
type ChatOptions struct {
	Agent, Project, Session string
	Cwd                     string
	Model                   string // provider/model; "" is the session's own, or else the configured one
	Out                     chat.Sink
	// Paced lets the offline model write at a speed that a person can follow.
	Paced bool
}

// pace is the offline model's pause between two words for people.
const pace = 12 * time.Millisecond

// OpenChat opens a chat on a session, and makes it where it does not exist: the
// one that is named, or where none is named and none is active a new one.
func (h *Host) OpenChat(ctx context.Context, o ChatOptions) (*chat.Chat, error) {
	if a := agents.Find(o.Agent); a != nil {
		return nil, plugin.Errorf(plugin.Denied, "a conversation of %s goes on in %s itself", a.Name(), a.Name()).
			WithHint("leave --agent out to talk here; sess --agent=%s sessions list shows its conversations", a.ID())
	}
	var model models.Model
	if o.Model != "" {
		m, err := h.openModel(o.Model, o.Paced)
		if err != nil {
			return nil, err
		}
		model = m
	}
	ref, err := h.ensure(ctx, plugin.SessionRef{Project: o.Project, ID: o.Session})
	if err != nil {
		return nil, err
	}
	switch ok, err := h.sessions.Exists(ref); {
	case err != nil:
		return nil, chat.StoreError(err)
	case !ok:
		// A session of that id in another project is more likely meant.
		if elsewhere, err := h.projectsOf(ctx, ref.ID); err != nil || len(elsewhere) > 0 {
			return nil, cmp.Or(err, h.noSession(ctx, ref))
		}
		if ref, err = h.makeSession(ctx, ref); err != nil {
			return nil, err
		}
		o.Out.Event(chat.Event{Kind: chat.EventNotice, Text: fmt.Sprintf("session %s of project %s is new", ref.ID, ref.Project)})
	}
	if err := h.sessions.Activate(ctx, ref); err != nil {
		return nil, chat.StoreError(err)
	}
	var c *chat.Chat
	c, err = h.newChat(ctx, ref, model, o.Out, chatSetup{
		ChatOptions: o,
		moved: func(call plugin.Call, ref session.Ref) {
			// What becomes of another session leaves the chat where it is.
			if own := c.Ref(); own == (session.Ref{Project: projectOr(call.Project), ID: call.Session}) {
				c.Switch(ref)
			}
		},
		notify: func(ctx context.Context, e plugin.Event) ([]string, error) {
			return append(h.Notify(ctx, e), h.troubles.take()...), nil
		},
	})
	if err == nil {
		h.announce(ctx, o.Out)
	}
	return c, err
}

// chatSetup is a chat, and how its host is told of what happens in it.
type chatSetup struct {
	ChatOptions
	// moved is told of calls that made another session the active one.
	moved  func(plugin.Call, session.Ref)
	follow func(kind string, fields any)
	notify func(ctx context.Context, e plugin.Event) ([]string, error)
}

// newChat opens a chat on a session that exists; without a model it is the
// session's own. ctx lasts as long as the chat.
func (h *Host) newChat(ctx context.Context, ref session.Ref, model models.Model, out chat.Sink, o chatSetup) (c *chat.Chat, err error) {
	sink := h.turnSink(o.Agent, out, func() (project, session string) {
		shown := c.Ref()
		return shown.Project, shown.ID
	})
	c, err = chat.Open(ctx, h.sessions, ref, model, sink, chat.Options{
		Commands:  func() []chat.Command { return h.chatCommands(ctx, o.moved) },
		Absent:    func(command string) error { return h.Absent(ctx, command) },
		Notify:    o.notify,
		Follow:    o.follow,
		OpenModel: (&modelOpener{host: h, paced: o.Paced}).open,
		Models:    h.modelCandidates,
		Complete:  h.Complete,
		Agent:     o.Agent, Cwd: o.Cwd, Now: h.now,
		Confirm: func() []string { return h.Config().Chat.Confirm },
		Select:  h.selectSnapshot,
	})
	return c, err
}

// openModel makes the model with a name, "" being the configured default.
func (h *Host) openModel(name string, paced bool) (models.Model, error) {
	return models.Open(name, h.models(paced))
}

// modelOpener makes the models of one chat. A model remembers what its provider
// does not take, so the one that was made last serves on, until another one is asked
// for or the configuration has changed. Safe for concurrent use.
type modelOpener struct {
	host  *Host
	paced bool

	mu     sync.Mutex // guards what follows
	config *Config    // that the model was made with
	model  models.Model
}

func (o *modelOpener) open(name string) (models.Model, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	config := o.host.Config()
	if o.model != nil && o.model.Name() == name && o.config == config {
		return o.model, nil
	}
	m, err := o.host.openModel(name, o.paced)
	if err == nil {
		o.model, o.config = m, config
	}
	return m, err
}

// models is the configuration of the models, with what they need of the host.
func (h *Host) models(paced bool) models.Config {
	c := h.Config().Models
	c.Getenv = func(name string) string {
		value, _ := lookupEnv(h.opts.Environ, name)
		return value
	}
	c.Path = h.opts.path
	c.Transport = h.transport
	c.Plugins = h.providers()
	if paced {
		c.Pace = pace
	}
	return c
}

// chatCommands lists what a chat offers: the plugins' commands, which the model
// may call too, and the host's own.
func (h *Host) chatCommands(ctx context.Context, moved func(plugin.Call, session.Ref)) []chat.Command {
	follow := func(command string) plugin.Dispatcher {
		return plugin.DispatcherFunc(func(ctx context.Context, call plugin.Call, progress plugin.ProgressFunc) (plugin.Result, error) {
			call.Argv = append([]string{command}, call.Argv...)
			res, ref, err := h.Follow(ctx, call, progress)
			if ref != nil {
				moved(call, *ref)
			}
			return res, err
		})
	}
	var all []chat.Command
	for _, p := range h.described(ctx) {
		all = append(all, chat.Command{Spec: *p.spec, Dispatcher: follow(p.spec.Command), Plugin: p.Manifest.ID, Tool: p.exposes("exposeTool")})
	}
	for _, d := range h.own {
		spec := d.Spec()
		all = append(all, chat.Command{Spec: spec, Dispatcher: follow(spec.Command)})
	}
	return all
}

// Complete asks for the values of an argument: the host's own kinds are
// answered here, the rest by the command's plugin.
func (h *Host) Complete(ctx context.Context, command string, req plugin.CompleteRequest) ([]plugin.Candidate, error) {
	switch req.Kind {
	case "session":
		if f := h.foreign(&req.Call); f != nil {
			return f.candidates(ctx)
		}
		infos, err := h.sessions.List(ctx)
		if err != nil {
			return nil, chat.StoreError(err)
		}
		var out []plugin.Candidate
		for _, i := range infos {
			out = append(out, plugin.Candidate{Value: i.Ref.ID, Help: i.Title})
		}
		return out, nil
	case "project":
		infos, err := h.sessions.List(ctx)
		if err != nil {
			return nil, chat.StoreError(err)
		}
		var out []plugin.Candidate
		for _, i := range infos {
			if !slices.ContainsFunc(out, func(c plugin.Candidate) bool { return c.Value == i.Ref.Project }) {
				out = append(out, plugin.Candidate{Value: i.Ref.Project})
			}
		}
		return out, nil
	case "agent":
		return h.agentCandidates()
	case "trashed-session":
		trashed, err := h.sessions.Trashed(ctx)
		var out []plugin.Candidate
		for _, t := range trashed {
			out = append(out, plugin.Candidate{Value: t.Ref.ID, Help: t.Title})
		}
		return out, chat.StoreError(err)
	case "model":
		return h.modelCandidates(), nil
	case "shell":
		var out []plugin.Candidate
		for _, s := range surfaces.Shells() {
			out = append(out, plugin.Candidate{Value: s})
		}
		return out, nil
	case "plugin":
		var out []plugin.Candidate
		for _, p := range h.plugins() {
			out = append(out, plugin.Candidate{Value: p.Manifest.ID, Help: p.Manifest.Description})
		}
		return out, nil
	}
	for _, p := range h.plugins() {
		if p.sup != nil && slices.Contains(p.Manifest.Commands, command) {
			if h.foreign(&req.Call) == nil {
				ref, err := h.Resolve(ctx, req.Call.Project, req.Call.Session)
				if err != nil {
					return nil, err
				}
				req.Call.Project, req.Call.Session = ref.Project, ref.ID
			}
			if req.Call.Agent == "" {
				req.Call.Agent = DefaultAgent
			}
			return p.sup.Complete(ctx, req)
		}
	}
	return nil, fmt.Errorf("nobody completes %q", req.Kind)
}

// modelCandidates are the models that the configuration knows by name.
func (h *Host) modelCandidates() []plugin.Candidate {
	config := h.Config().Models
	out := []plugin.Candidate{{Value: cmp.Or(config.Default, models.Default), Help: "the configured default"}}
	for _, id := range slices.Sorted(maps.Keys(config.Providers)) {
		model := config.Providers[id].Model
		if name := id + "/" + model; model != "" && name != out[0].Value {
			out = append(out, plugin.Candidate{Value: name})
		}
	}
	return out
}
