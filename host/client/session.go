package client

import (
	"context"
	"encoding/json"
	"errors"
	"maps"

	"sess/plugin"
	"sess/store/transcript"
)

// Session is one session of a gateway, for what is about it: its conversation,
// snapshots and notifications. It is made by [Client.Session], and safe for
// concurrent use.
type Session struct {
	client *Client
	ref    plugin.SessionRef
}

// Session returns the session of an id. Where several projects have one of that
// id the error says so; [Client.SessionOf] names the project. One that was deleted
// has its snapshots still: that it is not there is found out by what needs it.
func (c *Client) Session(ctx context.Context, id string) (*Session, error) {
	return c.SessionOf(ctx, "", id)
}

// SessionOf is [Client.Session] for one of a project.
func (c *Client) SessionOf(ctx context.Context, project, id string) (*Session, error) {
	s := &Session{c, plugin.SessionRef{Project: project, ID: id}}
	if id == "" {
		return nil, plugin.Errorf(plugin.Usage, "the id of the session is empty").WithHint("LoadAll lists the sessions")
	}
	info, err := s.Info(ctx)
	switch {
	case err == nil:
		s.ref.Project = info.ProjectID
	case !errors.Is(err, &plugin.Error{Code: plugin.NotFound}):
		return nil, err
	}
	return s, nil
}

// Ref names the session. The project is empty where the session is not there, and
// none was named.
func (s *Session) Ref() plugin.SessionRef { return s.ref }

// Snapshot is a snapshot of a session.
type Snapshot struct {
	Name  string `json:"name"`
	State string `json:"state,omitempty"` // in lists: "ok", or what keeps it from being read
	transcript.Meta
}

// ListSnapshots lists the snapshots of the session, the newest first.
func (s *Session) ListSnapshots(ctx context.Context) ([]Snapshot, error) {
	var list []Snapshot
	err := s.sess(ctx, "list", map[string]any{"includeAuto": true, "ofSession": s.ref.ID}, &list)
	return list, err
}

// CreateSnapshot makes a snapshot under a name. Where that is empty it is given
// one; reason is for people, and may be empty.
func (s *Session) CreateSnapshot(ctx context.Context, name, reason string) (Snapshot, error) {
	fields := map[string]any{"autoName": true, "reason": reason}
	if name != "" {
		fields["name"] = name
	}
	var made Snapshot
	return made, s.changed(ctx, "save", fields, &made)
}

// RestoreSnapshot brings a snapshot back in place of what the session is now,
// which is kept as a snapshot where it differs. It is for a name or an id of a
// snapshot of this session, as are the following.
func (s *Session) RestoreSnapshot(ctx context.Context, name string) error {
	return s.changed(ctx, "load", s.about(name), nil)
}

// DeleteSnapshot moves a snapshot to the trash.
func (s *Session) DeleteSnapshot(ctx context.Context, name string) error {
	return s.changed(ctx, "delete", s.about(name), nil)
}

// SelectSnapshot shows a snapshot in place of the session, which cannot be
// changed until [Session.ClearSelectedSnapshot].
func (s *Session) SelectSnapshot(ctx context.Context, name string) error {
	return s.changed(ctx, "select", s.about(name), nil)
}

// ClearSelectedSnapshot shows the session itself again.
func (s *Session) ClearSelectedSnapshot(ctx context.Context) error {
	return s.changed(ctx, "deselect", nil, nil)
}

// SelectedSnapshot returns the snapshot that is shown in place of the session; nil
// where none is.
func (s *Session) SelectedSnapshot(ctx context.Context) (*Snapshot, error) {
	var shown *Snapshot
	err := s.sess(ctx, "selected", nil, &shown)
	return shown, err
}

// about are the fields of a verb that is for a snapshot of this session alone.
func (s *Session) about(name string) map[string]any {
	return map[string]any{"name": name, "onlySession": s.ref.ID}
}

// sess calls a verb of the command sess.
func (s *Session) sess(ctx context.Context, verb string, fields map[string]any, to any) error {
	all := s.fields(fields)
	all["action"] = verb
	return s.client.ask(ctx, "sess.invoke", all, to)
}

// changed is sess for a verb that changes something, whose data are read into to.
func (s *Session) changed(ctx context.Context, verb string, fields map[string]any, to any) error {
	var answer struct {
		Data json.RawMessage `json:"data"`
	}
	err := s.sess(ctx, verb, fields, &answer)
	if err == nil && to != nil {
		err = json.Unmarshal(answer.Data, to)
	}
	return err
}

// fields are those of a call about the session.
func (s *Session) fields(fields map[string]any) map[string]any {
	all := map[string]any{"session": s.ref.ID}
	if s.ref.Project != "" {
		all["project"] = s.ref.Project
	}
	maps.Copy(all, fields)
	return all
}

// Notification is a sentence for the people who work with a session. Times are
// epoch milliseconds.
type Notification struct {
	ID             string `json:"id,omitempty"` // that of an earlier one replaces it
	Kind           string `json:"kind,omitempty"`
	Text           string `json:"text"`
	Status         string `json:"status,omitempty"` // running, done or failed; "" is done
	CreatedAt      int64  `json:"createdAt"`
	UpdatedAt      int64  `json:"updatedAt"`
	AcknowledgedAt int64  `json:"acknowledgedAt,omitempty"`
}

// Notifications are those of a session: what nobody has acknowledged, and the
// rest.
type Notifications struct {
	Operations   []Notification `json:"operations"`
	Acknowledged []Notification `json:"acknowledged"`
}

// Notifications returns what there is to tell of the session.
func (s *Session) Notifications(ctx context.Context) (Notifications, error) {
	var all Notifications
	err := s.client.ask(ctx, "sessions.notifications.list", s.fields(nil), &all)
	return all, err
}

// Notify adds a notification, and returns it as it is kept. Its times are made
// there.
func (s *Session) Notify(ctx context.Context, n Notification) (Notification, error) {
	fields := map[string]any{"text": n.Text}
	for name, value := range map[string]string{"id": n.ID, "kind": n.Kind, "status": n.Status} {
		if value != "" {
			fields[name] = value
		}
	}
	var kept struct{ Data Notification }
	err := s.client.ask(ctx, "sessions.notifications.add", s.fields(fields), &kept)
	return kept.Data, err
}

// Acknowledge notes that notifications have been seen; without ids all.
func (s *Session) Acknowledge(ctx context.Context, ids ...string) (Notifications, error) {
	fields := map[string]any{"ids": ids}
	if len(ids) == 0 {
		fields = map[string]any{"all": true}
	}
	var left struct{ Data Notifications }
	err := s.client.ask(ctx, "sessions.notifications.acknowledge", s.fields(fields), &left)
	return left.Data, err
}
