package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"sess/host/chat"
	"sess/host/server"
	"sess/plugin"
	"sess/store/durable"
	"sess/store/session"
)

const (
	day = 24 * time.Hour
	// expireEvery is how often a host that stays looks whether sessions expire,
	// beside the times when one is made.
	expireEvery = time.Hour
	// verbExpire is the verb of an event that tells of a session that expired.
	verbExpire = "expire"
)

// expire moves the sessions to the trash that have expired, in the background.
func (h *Host) expire() {
	h.background.Go(func() {
		h.expiring.Lock() // one after the other: the second finds less to do
		defer h.expiring.Unlock()
		h.expireNow(h.life)
	})
}

// keepExpiring looks for sessions that have expired until ctx ends.
func (h *Host) keepExpiring(ctx context.Context) {
	ticks := time.NewTicker(expireEvery)
	defer ticks.Stop()
	for {
		h.expire()
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
	}
}

// expireNow moves the sessions to the trash that have expired, and tells of them.
func (h *Host) expireNow(ctx context.Context) {
	c := h.Config().Sessions
	moved, err := h.sessions.Expire(ctx, session.Policy{
		Max: c.Max, MaxAge: time.Duration(c.MaxAgeDays) * day, TrashAge: time.Duration(c.TrashDays) * day, Keep: h.namedSources,
	})
	for _, m := range moved {
		h.expired(m)
	}
	if err != nil && ctx.Err() == nil {
		h.log.Error("sessions that have expired stay for now", "err", err)
	}
}

// expired tells of a session that went. It is no one's wish, so it is to be found
// in every log.
func (h *Host) expired(m session.Moved) {
	h.log.Warn("session expired", "session_id", m.Ref.ID, "project", m.Ref.Project, "why", m.Why)
	data, err := json.Marshal(map[string]string{"id": m.Ref.ID, "projectId": m.Ref.Project})
	if err != nil {
		data = nil // strings can be encoded
	}
	h.events.publish(server.Event{Kind: sessionsChanged, Project: m.Ref.Project, Session: m.Ref.ID, Verb: verbExpire, Data: data})
}

// namedSources are the sessions from which a snapshot was made that has a name of
// people's. The sess plugin knows them: where it cannot be asked, nobody does.
func (h *Host) namedSources(ctx context.Context) (map[session.Ref]bool, error) {
	agents, err := h.agents()
	if err != nil {
		return nil, err
	}
	if !slices.Contains(agents, DefaultAgent) {
		agents = append(agents, DefaultAgent) // all may be in one pool
	}
	sources := map[session.Ref]bool{}
	for _, agent := range agents {
		params, err := json.Marshal(map[string]any{"action": "list", "allProjects": true, "agent": agent})
		if err != nil {
			return nil, err
		}
		answer, err := h.Call(ctx, plugin.CallerHost, snapshotMethod, params, nil)
		if err != nil {
			return nil, fmt.Errorf("list the snapshots of agent %s: %w", agent, err)
		}
		var list []struct {
			SessionID string `json:"sessionId"`
			ProjectID string `json:"projectId"`
		}
		if err := json.Unmarshal(answer, &list); err != nil {
			return nil, fmt.Errorf("list the snapshots of agent %s: %w", agent, err)
		}
		for _, s := range list {
			sources[session.Ref{Project: projectOr(s.ProjectID), ID: s.SessionID}] = true
		}
	}
	return sources, nil
}

// agents lists the agents that have a folder in the home.
func (h *Host) agents() ([]string, error) {
	entries, err := h.home.ReadDir("agents")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && !durable.Ignored(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// announce tells in a chat which sessions have expired since somebody was told last,
// and what else happened when nobody was there.
func (h *Host) announce(ctx context.Context, out chat.Sink) {
	defer h.tellTroubles(out)
	expired, err := h.sessions.Expired(ctx)
	if err != nil {
		h.log.Error("which sessions have expired is not known", "err", err)
		return
	}
	if len(expired) == 0 {
		return
	}
	const most = 3
	var names []string
	for _, t := range expired[:min(most, len(expired))] {
		names = append(names, fmt.Sprintf("%s (%s)", t.Ref.ID, t.Title))
	}
	if more := len(expired) - most; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	text := fmt.Sprintf("not used for long, so moved to the trash: %s; sess sessions restore %s brings it back", strings.Join(names, ", "), expired[0].Ref.ID)
	if days := h.Config().Sessions.TrashDays; days > 0 {
		text += fmt.Sprintf(" within %d days", days)
	}
	out.Event(chat.Event{Kind: chat.EventNotice, Text: text})
}
