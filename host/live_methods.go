package host

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"sess/host/chat"
	"sess/host/server"
	"sess/plugin"
	"sess/store/session"
	"sess/store/transcript"
	"sess/surfaces"
)

// liveMethods are the methods about live conversations.
func (h *Host) liveMethods() []Method {
	return []Method{
		{"sessions.create", h.callCreate},
		{"sessions.get", h.callGet},
		{"sessions.messages", h.callMessages},
		{"sessions.send", h.callSend},
		{"sessions.cancel", h.callCancel},
		{"sessions.approve", h.callApprove},
		{"models.list", h.callModels},
	}
}

// sessionInfo is what there is to know of a session, but for what was said in it.
type sessionInfo struct {
	ID        string          `json:"id"`
	ProjectID string          `json:"projectId"`
	Title     string          `json:"title"`
	Cwd       string          `json:"cwd"`
	Model     string          `json:"model,omitempty"` // "" until a turn has run
	Status    string          `json:"status"`
	Error     string          `json:"error,omitempty"`
	Running   bool            `json:"running"`            // a turn runs, here or in another process
	Approval  *approval       `json:"approval,omitempty"` // what waits for a person
	Messages  int             `json:"messages"`
	Bytes     int64           `json:"bytes"`
	Revision  int64           `json:"revision"`
	Selected  *string         `json:"selected"` // the id of the snapshot that is shown instead
	ActiveRun json.RawMessage `json:"activeRun,omitempty"`
	CreatedAt int64           `json:"createdAt"` // epoch milliseconds
	UpdatedAt int64           `json:"updatedAt"`
}

// info tells about a session that exists.
func (h *Host) info(ctx context.Context, ref session.Ref) (*sessionInfo, error) {
	live, running, err := h.sessions.Settled(ctx, ref)
	if err != nil {
		return nil, chat.StoreError(err)
	}
	selected, err := h.sessions.Selected(ref)
	if err != nil {
		return nil, chat.StoreError(err)
	}
	out := &sessionInfo{
		ID: ref.ID, ProjectID: ref.Project, Title: live.Doc.Meta.Title, Model: live.Doc.Meta.Model, Status: live.Status, Error: live.Error,
		Running: running, Messages: live.Doc.Meta.Messages, Bytes: live.Doc.Meta.Bytes, Revision: live.Revision, ActiveRun: live.ActiveRun,
		CreatedAt: live.CreatedAt, UpdatedAt: live.UpdatedAt,
	}
	_ = json.Unmarshal(live.Get("cwd"), &out.Cwd) // another program may have put something else there
	if selected != "" {
		out.Selected = &selected
	}
	h.live.mu.Lock()
	v := h.live.open[ref]
	h.live.mu.Unlock()
	if v != nil {
		v.mu.Lock()
		out.Approval = v.asked
		v.mu.Unlock()
	}
	return out, nil
}

// there resolves a session that has to exist.
func (h *Host) there(ctx context.Context, ref plugin.SessionRef) (session.Ref, error) {
	at, err := h.Resolve(ctx, ref.Project, ref.ID)
	if err != nil {
		return at, err
	}
	if at.ID == "" {
		return at, plugin.Errorf(plugin.NotFound, "no session is active").WithHint("name one, or make one")
	}
	switch ok, err := h.sessions.Exists(at); {
	case err != nil:
		return at, chat.StoreError(err)
	case !ok:
		return at, h.noSession(ctx, at)
	}
	return at, nil
}

// callCreate makes a session, with what was said before where that is given.
func (h *Host) callCreate(ctx context.Context, _ plugin.Caller, params json.RawMessage, _ plugin.ProgressFunc) (json.RawMessage, error) {
	var p struct {
		ID       string     `json:"id"`
		Project  string     `json:"project"`
		Title    string     `json:"title"`
		Model    string     `json:"model"`
		Cwd      string     `json:"cwd"`
		Messages []saidLine `json:"messages"`
		Activate bool       `json:"activate"`
	}
	p.Activate = true
	if err := surfaces.Params(params, &p); err != nil {
		return nil, err
	}
	ref := session.Ref{Project: projectOr(p.Project), ID: cmp.Or(p.ID, session.NewID(h.now()))}
	live := h.sessions.New(ref, cmp.Or(p.Title, session.DefaultTitle), cmp.Or(p.Cwd, h.opts.Cwd))
	if p.Model != "" {
		m, err := h.openModel(p.Model, false)
		if err != nil {
			return nil, err
		}
		if err := live.Set("model", m.Name()); err != nil {
			return nil, chat.StoreError(err)
		}
	}
	for i, said := range p.Messages {
		r, err := said.record(h.now())
		if err != nil {
			return nil, plugin.Errorf(plugin.Usage, "messages[%d]: %w", i, err).WithHint("leave it out, or say who of the two said it").WithDetail("field", "messages")
		}
		if err := live.Append(transcript.ListMessages, r); err != nil {
			return nil, chat.StoreError(err)
		}
	}
	if err := h.sessions.Create(ctx, live); err != nil {
		return nil, chat.StoreError(err)
	}
	if p.Activate {
		if err := h.sessions.Activate(ctx, ref); err != nil {
			return nil, chat.StoreError(err)
		}
	}
	h.log.Info("session made", "session_id", ref.ID, "project", ref.Project)
	h.upkeep()
	info, err := h.info(ctx, ref)
	if err != nil {
		return nil, err
	}
	return json.Marshal(info)
}

// saidLine is a message of a conversation that was held elsewhere.
type saidLine struct {
	Role    transcript.Role `json:"role"`
	Content string          `json:"content"`
}

func (l saidLine) record(now time.Time) (transcript.Record, error) {
	if l.Role == transcript.RoleAssistant {
		l.Role = transcript.RoleAgent
	}
	if l.Role != transcript.RoleUser && l.Role != transcript.RoleAgent {
		return nil, fmt.Errorf("the role %q is neither user nor agent", l.Role)
	}
	return transcript.Record(rawJSON(transcript.Message{
		ID: uuid.NewString(), Role: l.Role, Content: l.Content, Status: transcript.StatusComplete,
		CreatedAt: now.UnixMilli(), UpdatedAt: now.UnixMilli(),
	})), nil
}

// sessionOf is the session that params are about which name nothing else. It has to
// exist.
func (h *Host) sessionOf(ctx context.Context, params json.RawMessage) (session.Ref, error) {
	var p struct {
		Session string `json:"session"`
		Project string `json:"project"`
	}
	if err := surfaces.Params(params, &p); err != nil {
		return session.Ref{}, err
	}
	return h.there(ctx, plugin.SessionRef{Project: p.Project, ID: p.Session})
}

func (h *Host) callGet(ctx context.Context, _ plugin.Caller, params json.RawMessage, _ plugin.ProgressFunc) (json.RawMessage, error) {
	ref, err := h.sessionOf(ctx, params)
	if err != nil {
		return nil, err
	}
	info, err := h.info(ctx, ref)
	if err != nil {
		return nil, err
	}
	return json.Marshal(info)
}

const (
	pageLimit    = 100     // messages of a page where nothing is said
	maxPageLimit = 1000    // the most that may be said
	pageBytes    = 4 << 20 // of a page that has more than one message
)

// messagesPage is the answer to sessions.messages.
type messagesPage struct {
	Messages []json.RawMessage `json:"messages"`
	First    int               `json:"first"` // the number of the first of them, counted from 0
	End      int               `json:"end"`   // the number after the last
	Total    int               `json:"total"`
	Revision int64             `json:"revision"`
	// ReadOnly says that a snapshot is shown, which Snapshot is the metadata of, and
	// not the conversation.
	ReadOnly bool            `json:"readonly"`
	Snapshot json.RawMessage `json:"snapshot,omitempty"`
}

func (h *Host) callMessages(ctx context.Context, _ plugin.Caller, params json.RawMessage, _ plugin.ProgressFunc) (json.RawMessage, error) {
	var p struct {
		Session string `json:"session"`
		Project string `json:"project"`
		Limit   int    `json:"limit"`
		Before  *int   `json:"before"`
		After   *int   `json:"after"`
	}
	p.Limit = pageLimit
	if err := surfaces.Params(params, &p); err != nil {
		return nil, err
	}
	switch {
	case p.Limit < 1 || p.Limit > maxPageLimit:
		return nil, plugin.Errorf(plugin.Usage, "limit: %d is not from 1 to %d", p.Limit, maxPageLimit).
			WithHint("ask for the rest with before or after").WithDetail("field", "limit")
	case p.Before != nil && p.After != nil:
		return nil, plugin.Errorf(plugin.Usage, "before and after exclude each other").WithHint("give one of them")
	case p.Before != nil && *p.Before < 0:
		return nil, plugin.Errorf(plugin.Usage, "before: %d is not the number of a message, which counts from 0", *p.Before).
			WithHint("leave it out for the last ones").WithDetail("field", "before")
	case p.After != nil && *p.After < -1:
		return nil, plugin.Errorf(plugin.Usage, "after: %d is not the number of a message, which counts from 0", *p.After).
			WithHint("-1 is before the first one").WithDetail("field", "after")
	}
	ref, err := h.there(ctx, plugin.SessionRef{Project: p.Project, ID: p.Session})
	if err != nil {
		return nil, err
	}
	req := session.PageRequest{Before: p.Before, After: p.After, Limit: p.Limit, Bytes: pageBytes}
	selected, err := h.sessions.Selected(ref)
	if err != nil {
		return nil, chat.StoreError(err)
	}
	page, err := h.sessions.Messages(ctx, ref, req)
	if err != nil {
		return nil, chat.StoreError(err)
	}
	out := &messagesPage{Messages: page.Messages, First: page.First, End: page.End, Total: page.Live.Doc.Meta.Messages, Revision: page.Live.Revision}
	if selected != "" {
		if err := h.selectedPage(ctx, ref, selected, req, out); err != nil {
			return nil, err
		}
	}
	if out.Messages == nil {
		out.Messages = []json.RawMessage{}
	}
	return json.Marshal(out)
}

// selectedPage is a page of the snapshot that is shown instead of a session. Who
// keeps the snapshots shows it.
func (h *Host) selectedPage(ctx context.Context, ref session.Ref, snapshot string, req session.PageRequest, out *messagesPage) error {
	type viewed struct {
		Meta     json.RawMessage   `json:"meta"`
		Messages []json.RawMessage `json:"messages"`
		First    int               `json:"first"`
		Total    int               `json:"total"`
	}
	view := func(fields map[string]any) (v viewed, err error) {
		fields["action"], fields["name"] = "view", snapshot
		fields["project"], fields["session"] = ref.Project, ref.ID
		data, err := h.Call(ctx, plugin.CallerHost, snapshotMethod, rawJSON(fields), nil)
		if e := plugin.AsError(err); err != nil && e.Code == plugin.NotFound {
			err = e.WithHint("return to the conversation: POST /sessions/%s/snapshots/selected/clear", ref.ID)
		}
		if err == nil {
			err = json.Unmarshal(data, &v)
		}
		return v, err
	}
	fields := map[string]any{"limit": req.Limit}
	from, end := 0, 0
	if req.Before != nil {
		end = *req.Before
		fields["before"] = end
	}
	if req.After != nil || req.Before != nil && end == 0 { // which the view has no words for
		last, err := view(map[string]any{"limit": 1})
		if err != nil {
			return err
		}
		if req.After != nil {
			from = min(*req.After, last.Total-1) + 1
			end = min(from+req.Limit, last.Total)
			fields["before"], fields["limit"] = end, end-from
		}
		if from == end {
			out.Messages, out.First, out.End, out.Total, out.ReadOnly, out.Snapshot = nil, from, end, last.Total, true, last.Meta
			return nil
		}
	}
	v, err := view(fields)
	out.Messages, out.First, out.End, out.Total, out.ReadOnly, out.Snapshot = session.ShownMessages(v.Messages), v.First, v.First+len(v.Messages), v.Total, true, v.Meta
	return err
}

// snapshotMethod is the method of whoever keeps the snapshots.
const snapshotMethod = "sess.invoke"

func (h *Host) callSend(ctx context.Context, caller plugin.Caller, params json.RawMessage, _ plugin.ProgressFunc) (json.RawMessage, error) {
	var p struct {
		Session  string `json:"session"`
		Project  string `json:"project"`
		Content  string `json:"content"`
		Model    string `json:"model"`
		Revision *int64 `json:"expectedRevision"`
	}
	if err := surfaces.Params(params, &p); err != nil {
		return nil, err
	}
	x, err := h.Converse(ctx, server.ChatLine{
		Session: plugin.SessionRef{Project: p.Project, ID: p.Session}, Text: p.Content, Model: p.Model, Revision: p.Revision, Alone: caller.Internal(),
	})
	if err != nil {
		return nil, err
	}
	defer x.Close()
	answer, err := x.Result(ctx)
	if err != nil {
		return nil, err
	}
	return json.Marshal(answer)
}

// callCancel ends the turn that runs in a session, and answers when what came of
// it is stored.
func (h *Host) callCancel(ctx context.Context, _ plugin.Caller, params json.RawMessage, _ plugin.ProgressFunc) (json.RawMessage, error) {
	ref, err := h.sessionOf(ctx, params)
	if err != nil {
		return nil, err
	}
	var ended *run
	switch v, err := h.live.use(ref); {
	case err != nil:
		return nil, err
	case v != nil:
		defer v.release()
		ended = v.cancel(errTurnCancelled)
	}
	if ended == nil {
		holder, held, err := h.sessions.InUse(ref)
		if err != nil {
			return nil, chat.StoreError(err)
		}
		if held {
			return nil, plugin.Errorf(plugin.Busy, "session %s is in use by %s", ref.ID, holder).WithHint("end it there")
		}
	} else {
		select {
		case <-ended.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	live, err := h.sessions.Outline(ctx, ref)
	if err != nil {
		return nil, chat.StoreError(err)
	}
	return json.Marshal(struct {
		Cancelled bool  `json:"cancelled"` // false: nothing ran
		Revision  int64 `json:"revision"`
	}{ended != nil, live.Revision})
}

// callApprove answers the question whether a tool call may run.
func (h *Host) callApprove(ctx context.Context, caller plugin.Caller, params json.RawMessage, _ plugin.ProgressFunc) (json.RawMessage, error) {
	var p struct {
		Session string `json:"session"`
		Project string `json:"project"`
		CallID  string `json:"callId"`
		Allow   *bool  `json:"allow"`
	}
	if err := surfaces.Params(params, &p); err != nil {
		return nil, err
	}
	switch {
	case p.CallID == "":
		return nil, plugin.Errorf(plugin.Usage, "callId is missing").WithHint("it is the id of the approval_request")
	case p.Allow == nil:
		return nil, plugin.Errorf(plugin.Usage, "allow is missing").WithHint("true or false")
	case caller.Internal():
		return nil, plugin.Errorf(plugin.Denied, "sessions.approve is for people").WithHint("leave it to whoever works with the session")
	}
	ref, err := h.there(ctx, plugin.SessionRef{Project: p.Project, ID: p.Session})
	if err != nil {
		return nil, err
	}
	v, err := h.live.use(ref)
	if err != nil {
		return nil, err
	}
	none := plugin.Errorf(plugin.NotFound, "session %s: no call %q waits for an answer", ref.ID, p.CallID).WithHint("it was answered or has ended")
	if v == nil {
		return nil, none
	}
	defer v.release()
	if err := v.chat.Allow(p.CallID, *p.Allow); err != nil {
		return nil, none
	}
	v.settled(p.CallID)
	return json.Marshal(struct {
		CallID string `json:"callId"`
		Allow  bool   `json:"allow"`
	}{p.CallID, *p.Allow})
}

// callModels lists the models that may be named.
func (h *Host) callModels(_ context.Context, _ plugin.Caller, params json.RawMessage, _ plugin.ProgressFunc) (json.RawMessage, error) {
	if err := noParams(params); err != nil {
		return nil, err
	}
	return json.Marshal(h.modelCandidates())
}
