package host

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"unicode/utf8"

	"sess/host/chat"
	"sess/host/server"
	"sess/plugin"
	"sess/store/session"
	"sess/surfaces"
)

// The verbs of events that tell of what a client changed in sessions of its own.
const (
	verbSaveSession   = "saveSession"
	verbDeleteSession = "deleteSession"
	verbDeleteProject = "deleteProjectSessions"
)

// persistMethods lists the methods by which clients keep sessions of their own
// here.
func (h *Host) persistMethods() []Method {
	return []Method{
		{"sessions.loadAll", h.callLoadAll},
		{"sessions.saveSession", h.callSaveSession},
		{"sessions.deleteSession", h.callDeleteSession},
		{"sessions.deleteProjectSessions", h.callDeleteProject},
		{"sessions.saveManifest", h.callSaveManifest},
	}
}

// LoadAll writes {"sessions":[…],"manifest":{…}} to w: the live sessions of all
// projects as clients see them, the newest first, as they are read. Those that
// cannot be read are left out, and told of as "notices". After an error a part
// may have been written.
func (h *Host) LoadAll(ctx context.Context, w io.Writer) error {
	manifest, err := h.sessions.Manifest(ctx)
	if err != nil {
		return plugin.AsError(chat.StoreError(err))
	}
	out := bufio.NewWriterSize(w, 64<<10)
	put := func(parts ...[]byte) {
		for _, p := range parts {
			_, _ = out.Write(p) // Flush tells
		}
	}
	put([]byte(`{"sessions":[`))
	var notices []string
	first := true
	for object, err := range h.sessions.LoadAll(ctx) {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			notices = append(notices, "left out: "+plugin.AsError(chat.StoreError(err)).Text())
			continue
		case !first:
			put([]byte{','})
		}
		first = false
		put(object)
	}
	last, err := json.Marshal(manifest)
	if err != nil {
		return err
	}
	put([]byte(`],"manifest":`), last)
	if notices != nil {
		told, err := json.Marshal(notices)
		if err != nil {
			return err
		}
		put([]byte(`,"notices":`), told)
	}
	put([]byte{'}'})
	return out.Flush()
}

func (h *Host) callLoadAll(ctx context.Context, _ plugin.Caller, params json.RawMessage, _ plugin.ProgressFunc) (json.RawMessage, error) {
	if err := noParams(params); err != nil {
		return nil, err
	}
	var all bytes.Buffer
	err := h.LoadAll(ctx, &all)
	return all.Bytes(), err
}

// callSaveSession answers sessions.saveSession. The params are the session itself;
// its revision, where it has one, is the one that it is based on.
func (h *Host) callSaveSession(ctx context.Context, _ plugin.Caller, params json.RawMessage, _ plugin.ProgressFunc) (json.RawMessage, error) {
	if !utf8.Valid(params) {
		return nil, plugin.Errorf(plugin.Usage, "the session is not UTF-8").WithHint("send JSON in UTF-8")
	}
	revision, err := h.sessions.SaveSession(ctx, params, nil)
	if err != nil {
		return nil, chat.StoreError(err)
	}
	var named struct {
		ID        string `json:"id"`
		ProjectID string `json:"projectId"`
	}
	if err := json.Unmarshal(params, &named); err != nil {
		return nil, err // not for what has been stored
	}
	answer, err := json.Marshal(map[string]int64{"revision": revision})
	if err == nil {
		h.persisted(session.Ref{Project: named.ProjectID, ID: named.ID}, verbSaveSession, answer)
	}
	return answer, err
}

// persisted tells of what a client changed.
func (h *Host) persisted(ref session.Ref, verb string, data json.RawMessage) {
	h.events.publish(server.Event{
		Kind: sessionsChanged, Agent: DefaultAgent, Project: ref.Project, Session: ref.ID, Verb: verb, Data: data,
	})
}

func (h *Host) callDeleteSession(ctx context.Context, _ plugin.Caller, params json.RawMessage, _ plugin.ProgressFunc) (json.RawMessage, error) {
	var p struct {
		ProjectID string `json:"projectId"`
		SessionID string `json:"sessionId"`
	}
	if err := surfaces.Params(params, &p); err != nil {
		return nil, err
	}
	if err := given("projectId", p.ProjectID, "sessionId", p.SessionID); err != nil {
		return nil, err
	}
	ref := session.Ref{Project: p.ProjectID, ID: p.SessionID}
	if err := h.sessions.Delete(ctx, ref); err != nil {
		return nil, chat.StoreError(err)
	}
	h.persisted(ref, verbDeleteSession, nil)
	return json.RawMessage("{}"), nil
}

// given refuses params that are missing; names and values alternate.
func given(params ...string) error {
	for i := 0; i < len(params); i += 2 {
		if name := params[i]; params[i+1] == "" {
			return plugin.Errorf(plugin.Usage, "%s is missing", name).WithHint("say which is meant").WithDetail("missing", name)
		}
	}
	return nil
}

func (h *Host) callDeleteProject(ctx context.Context, _ plugin.Caller, params json.RawMessage, _ plugin.ProgressFunc) (json.RawMessage, error) {
	var p struct {
		ProjectID string `json:"projectId"`
	}
	if err := surfaces.Params(params, &p); err != nil {
		return nil, err
	}
	if err := given("projectId", p.ProjectID); err != nil {
		return nil, err
	}
	n, err := h.sessions.DeleteProject(ctx, p.ProjectID)
	if n > 0 { // after an error too
		h.persisted(session.Ref{Project: p.ProjectID}, verbDeleteProject, nil)
	}
	if err != nil {
		return nil, chat.StoreError(err)
	}
	return json.Marshal(map[string]int{"deleted": n})
}

// callSaveManifest answers sessions.saveManifest, which replaces the whole
// manifest. Fields that are empty or not known are dropped.
func (h *Host) callSaveManifest(ctx context.Context, _ plugin.Caller, params json.RawMessage, _ plugin.ProgressFunc) (json.RawMessage, error) {
	fields, err := surfaces.ParseObject(params)
	if err != nil {
		return nil, err
	}
	var m session.Manifest
	for name, into := range map[string]*string{"lastProjectId": &m.LastProjectID, "lastSessionId": &m.LastSessionID} {
		value, there := fields[name]
		if !there || value == nil || value == "" {
			continue
		}
		text, ok := value.(string)
		if !ok {
			return nil, plugin.Errorf(plugin.Usage, "%s is not a string", name).WithHint("give an id").WithDetail("field", name)
		}
		if _, err := session.ParseRef(text, text); err != nil {
			return nil, chat.StoreError(err)
		}
		*into = text
	}
	if err := h.sessions.SaveManifest(ctx, m); err != nil {
		return nil, chat.StoreError(err)
	}
	h.persisted(session.Ref{Project: m.LastProjectID, ID: m.LastSessionID}, "saveManifest", nil)
	return json.RawMessage("{}"), nil
}
