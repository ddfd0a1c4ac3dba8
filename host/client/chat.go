package client

import (
	"context"
	"encoding/json"

	"sess/plugin"
	"sess/store/transcript"
)

// NewSession says what a session is to be. All may be empty.
type NewSession struct {
	ID      string `json:"id,omitempty"`
	Project string `json:"project,omitempty"`
	Title   string `json:"title,omitempty"`
	Model   string `json:"model,omitempty"` // provider/model
	Cwd     string `json:"cwd,omitempty"`
}

// SessionInfo is what there is to know of a session, but for what was said in it.
// Times are epoch milliseconds.
type SessionInfo struct {
	ID        string                 `json:"id"`
	ProjectID string                 `json:"projectId"`
	Title     string                 `json:"title"`
	Cwd       string                 `json:"cwd"`
	Model     string                 `json:"model"`
	Status    PersistedSessionStatus `json:"status"`
	Error     string                 `json:"error"`
	Running   bool                   `json:"running"`  // a turn runs
	Approval  *Approval              `json:"approval"` // what waits for a person; may be nil
	Messages  int                    `json:"messages"`
	Bytes     int64                  `json:"bytes"`
	Revision  int64                  `json:"revision"`
	Selected  string                 `json:"selected"` // the id of the snapshot that is shown instead
	CreatedAt int64                  `json:"createdAt"`
	UpdatedAt int64                  `json:"updatedAt"`
}

// Approval is a tool call that waits for a person.
type Approval struct {
	CallID    string          `json:"callId"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Text      string          `json:"text"`
}

// CreateSession makes a session.
func (c *Client) CreateSession(ctx context.Context, n NewSession) (*Session, error) {
	var info SessionInfo
	if err := c.ask(ctx, "sessions.create", n, &info); err != nil {
		return nil, err
	}
	return &Session{c, plugin.SessionRef{Project: info.ProjectID, ID: info.ID}}, nil
}

// Info tells about the session.
func (s *Session) Info(ctx context.Context) (SessionInfo, error) {
	var info SessionInfo
	err := s.client.ask(ctx, "sessions.get", s.fields(nil), &info)
	return info, err
}

// MessagesPage is a part of the messages of a session, or of the snapshot that is
// shown in its place.
type MessagesPage struct {
	Messages []PersistedChatMessage `json:"messages"`
	First    int                    `json:"first"` // the number of the first one, from 0
	End      int                    `json:"end"`   // the number behind the last one
	Total    int                    `json:"total"`
	Revision int64                  `json:"revision"`
	ReadOnly bool                   `json:"readonly"`
	Snapshot *Snapshot              `json:"snapshot"` // nil: it is the session itself
}

// Messages returns at most limit messages before the one of the number before, or
// the last ones where that is negative.
func (s *Session) Messages(ctx context.Context, limit, before int) (MessagesPage, error) {
	fields := map[string]any{"limit": limit}
	if before >= 0 {
		fields["before"] = before
	}
	var page MessagesPage
	err := s.client.ask(ctx, "sessions.messages", s.fields(fields), &page)
	return page, err
}

// Outgoing is a message for a session, or a slash command.
type Outgoing struct {
	Content string
	Model   string // which one answers from now on; "" leaves it as it is
	// Revision is that of the session as its sender knows it: where it has another
	// the message is refused as a conflict. Nil goes on from any.
	Revision *int64
}

// ChatAnswer is what came of a message or a slash command.
type ChatAnswer struct {
	SessionID  string                `json:"sessionId"`
	ProjectID  string                `json:"projectId"`
	Turn       string                `json:"turn"`
	Status     string                `json:"status"` // complete, cancelled or error; "" where there was no turn
	Model      string                `json:"model"`
	Message    *PersistedChatMessage `json:"message"`
	Activities []transcript.Activity `json:"activities"`
	Usage      json.RawMessage       `json:"usage"`
	Answer     *CommandAnswer        `json:"answer"` // of a slash command
	Revision   int64                 `json:"revision"`
	Notices    []string              `json:"notices"`
	// Moved names the session in which the conversation goes on, where that is
	// another one now.
	Moved *struct {
		SessionID string `json:"sessionId"`
		ProjectID string `json:"projectId"`
	} `json:"moved"`
}

// CommandAnswer is what a slash command answered.
type CommandAnswer struct {
	Text string          `json:"text"`
	Data json.RawMessage `json:"data"`
}

// Send sends a message or a slash command, and waits for what comes of it. When
// ctx ends it waits no more; the turn goes on, and Cancel ends it.
func (s *Session) Send(ctx context.Context, m Outgoing) (ChatAnswer, error) {
	fields := map[string]any{"content": m.Content}
	if m.Model != "" {
		fields["model"] = m.Model
	}
	if m.Revision != nil {
		fields["expectedRevision"] = *m.Revision
	}
	var answer ChatAnswer
	err := s.client.ask(ctx, "sessions.send", s.fields(fields), &answer)
	return answer, err
}

// Cancel ends the turn that runs, and reports whether one did; what came of it is
// kept.
func (s *Session) Cancel(ctx context.Context) (bool, error) {
	var done struct{ Cancelled bool }
	err := s.client.ask(ctx, "sessions.cancel", s.fields(nil), &done)
	return done.Cancelled, err
}

// Approve allows or refuses the tool call that waits for a person.
func (s *Session) Approve(ctx context.Context, callID string, allow bool) error {
	return s.client.ask(ctx, "sessions.approve", s.fields(map[string]any{"callId": callID, "allow": allow}), nil)
}
