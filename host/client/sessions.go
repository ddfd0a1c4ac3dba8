package client

import (
	"context"
	"encoding/json"

	"sess/plugin"
	"sess/store/transcript"
)

// PersistedSessionStatus is what a session is doing.
type PersistedSessionStatus string

// The states of a session; an error means that its last run failed or was cut
// off.
const (
	StatusIdle              PersistedSessionStatus = "idle"
	StatusRunning           PersistedSessionStatus = "running"
	StatusWaitingPermission PersistedSessionStatus = "waiting-permission"
	StatusError             PersistedSessionStatus = "error"
)

// PersistedChatMessage is a message of a session. Times are epoch milliseconds.
type PersistedChatMessage = transcript.Message

// PersistedChatSession is a session as its clients see it. Times are epoch
// milliseconds. What is nil says nothing when the session is saved: an empty
// list, in contrast, removes what there is. Fields that are not here stay as they
// are stored.
type PersistedChatSession struct {
	ID         string                 `json:"id"`
	ProjectID  string                 `json:"projectId"`
	Title      string                 `json:"title,omitempty"`
	Cwd        string                 `json:"cwd,omitempty"`
	Status     PersistedSessionStatus `json:"status,omitempty"`
	Messages   []PersistedChatMessage `json:"messages,omitzero"`
	Activities []transcript.Activity  `json:"activities,omitzero"`
	ActiveRun  json.RawMessage        `json:"activeRun,omitempty"` // the prompt in flight
	Error      string                 `json:"error,omitempty"`
	Artifacts  []json.RawMessage      `json:"artifacts,omitzero"` // references to files
	CreatedAt  int64                  `json:"createdAt,omitempty"`
	UpdatedAt  int64                  `json:"updatedAt,omitempty"`
	// Revision is the state that this one is based on. A session that was loaded has
	// one; without one a save may make a session and add to it, but not replace
	// anything.
	Revision *int64 `json:"revision,omitempty"`
}

// PersistedSessionManifest says which session was open last; empty ids mean that
// none was.
type PersistedSessionManifest struct {
	Version       int    `json:"version"` // 1
	LastProjectID string `json:"lastProjectId,omitempty"`
	LastSessionID string `json:"lastSessionId,omitempty"`
}

// LoadAllSessionsResult is everything that is kept.
type LoadAllSessionsResult struct {
	Sessions []PersistedChatSession   `json:"sessions"` // of all projects, the newest first
	Manifest PersistedSessionManifest `json:"manifest"`
	Notices  []string                 `json:"notices,omitempty"` // what was left out, and why
}

// DeleteSessionRequest names a session; both ids are required.
type DeleteSessionRequest struct {
	ProjectID string `json:"projectId"`
	SessionID string `json:"sessionId"`
}

// DeleteProjectSessionsRequest names a project.
type DeleteProjectSessionsRequest struct {
	ProjectID string `json:"projectId"`
}

// SaveSessionManifestRequest is what the manifest is to say.
type SaveSessionManifestRequest struct {
	LastProjectID string `json:"lastProjectId,omitempty"`
	LastSessionID string `json:"lastSessionId,omitempty"`
}

// LoadAll returns the live sessions of all projects, and the manifest.
func (c *Client) LoadAll(ctx context.Context) (LoadAllSessionsResult, error) {
	var all LoadAllSessionsResult
	err := c.ask(ctx, "sessions.loadAll", nil, &all)
	return all, err
}

// SaveSession creates or replaces a session, durably, and returns its new
// revision. It is a conflict where the stored one is not that of s, or where s has
// none and something would be lost; nothing has changed then, and the same goes
// for every other error but unavailable.
func (c *Client) SaveSession(ctx context.Context, s PersistedChatSession) (revision int64, err error) {
	var saved struct {
		Revision int64 `json:"revision"`
	}
	err = c.ask(ctx, "sessions.saveSession", s, &saved)
	return saved.Revision, err
}

// DeleteSession moves a session to the trash.
func (c *Client) DeleteSession(ctx context.Context, r DeleteSessionRequest) error {
	return c.ask(ctx, "sessions.deleteSession", r, nil)
}

// DeleteProjectSessions moves all sessions of a project to the trash. One that
// has none is not an error.
func (c *Client) DeleteProjectSessions(ctx context.Context, r DeleteProjectSessionsRequest) error {
	return c.ask(ctx, "sessions.deleteProjectSessions", r, nil)
}

// SaveManifest replaces the manifest.
func (c *Client) SaveManifest(ctx context.Context, r SaveSessionManifestRequest) error {
	return c.ask(ctx, "sessions.saveManifest", r, nil)
}

// ask calls a method and reads its answer into to, which may be nil.
func (c *Client) ask(ctx context.Context, method string, params, to any) error {
	answer, err := c.Call(ctx, method, params, nil)
	if err != nil || to == nil {
		return err
	}
	if err := json.Unmarshal(answer, to); err != nil {
		return plugin.Errorf(plugin.Internal, "the answer of %s is not as it should be: %w", method, err)
	}
	return nil
}
