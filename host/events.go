package host

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"sess/host/chat"
	"sess/host/server"
	"sess/plugin"
	"sess/store/session"
	"sess/surfaces"
)

// Kinds of [server.Event]. A change that a command made is "<command>.changed".
const (
	turnStarted     = "turn.started"
	turnEnded       = "turn.ended"
	sessionReplaced = "session.replaced"
	sessionSelected = "session.selected"
	pluginsChanged  = "plugins.changed"
	sessionsChanged = "sessions.changed"
	eventsDropped   = "events.dropped"
	changed         = ".changed"
)

// eventQueue is how many events a subscription keeps for its reader.
const eventQueue = 256

// hub numbers what happens and passes it on. Nobody who tells it something ever
// waits for a reader.
type hub struct {
	now  func() time.Time
	tell func(server.Event) // beside the subscriptions; it does not wait

	mu   sync.Mutex // guards what follows
	seq  int64
	subs map[*subscription]bool
	over bool
}

// newHub makes a hub; tell may be nil.
func newHub(now func() time.Time, tell func(server.Event)) *hub {
	if tell == nil {
		tell = func(server.Event) {}
	}
	return &hub{now: now, tell: tell, subs: map[*subscription]bool{}}
}

// publish numbers an event and gives it to those whom it concerns.
func (b *hub) publish(e server.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seq++
	e.Seq, e.Time = b.seq, b.now().UTC()
	b.tell(e)
	for s := range b.subs {
		if s.wants(e) {
			s.add(e)
		}
	}
}

func (b *hub) subscribe(filter server.EventFilter) *subscription {
	filter.Kinds = slices.Clone(filter.Kinds)
	s := &subscription{hub: b, filter: filter, ready: make(chan struct{}, 1), closed: make(chan struct{})}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		close(s.closed)
		return s
	}
	b.subs[s] = true
	return s
}

// close ends all subscriptions, once their readers have what came until now.
func (b *hub) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.subs {
		close(s.closed)
	}
	clear(b.subs)
	b.over = true
}

// subscription is a ring of the last events that its reader has not yet taken.
type subscription struct {
	hub    *hub
	filter server.EventFilter
	ready  chan struct{} // holds a value when the queue is not empty
	closed chan struct{}

	mu      sync.Mutex // guards what follows; taken after hub.mu
	queue   []server.Event
	dropped int64
	last    server.Event // the youngest that was dropped
}

var _ server.Subscription = (*subscription)(nil)

func (s *subscription) wants(e server.Event) bool {
	f := s.filter
	if f.Project != "" && f.Project != e.Project || f.Session != "" && f.Session != e.Session {
		return false
	}
	return len(f.Kinds) == 0 || slices.ContainsFunc(f.Kinds, func(kind string) bool {
		return e.Kind == kind || strings.HasPrefix(e.Kind, kind+".")
	})
}

func (s *subscription) add(e server.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == eventQueue {
		s.dropped++
		s.last = s.queue[0]
		copy(s.queue, s.queue[1:])
		s.queue = s.queue[:eventQueue-1]
	}
	s.queue = append(s.queue, e)
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// take returns the next event, if there is one.
func (s *subscription) take() (server.Event, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropped > 0 {
		e := server.Event{Seq: s.last.Seq, Time: s.last.Time, Kind: eventsDropped, Dropped: s.dropped}
		s.dropped = 0
		return e, true
	}
	if len(s.queue) == 0 {
		return server.Event{}, false
	}
	e := s.queue[0]
	s.queue = s.queue[1:]
	return e, true
}

// Next waits for the next event.
func (s *subscription) Next(ctx context.Context) (server.Event, error) {
	for {
		if e, ok := s.take(); ok {
			return e, nil
		}
		select {
		case <-s.ready:
		case <-s.closed:
			if e, ok := s.take(); ok {
				return e, nil
			}
			return server.Event{}, io.EOF
		case <-ctx.Done():
			return server.Event{}, ctx.Err()
		}
	}
}

// Close ends the subscription. What its reader has not taken is dropped.
func (s *subscription) Close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if s.hub.subs[s] {
		delete(s.hub.subs, s)
		close(s.closed)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue, s.dropped = nil, 0
}

// Subscribe begins to gather what happens in the host.
func (h *Host) Subscribe(filter server.EventFilter) server.Subscription {
	return h.events.subscribe(filter)
}

// publishChange tells of what a call changed. A call from inside a turn to a
// verb that waits for the turn's end has only been checked.
func (h *Host) publishChange(ctx context.Context, command string, call plugin.Call, res plugin.Result) {
	spec, err := h.Spec(ctx, command)
	if err != nil {
		return // it has just answered a call, and is gone: there is nothing to tell it by
	}
	verb, _ := spec.Find(call.Argv)
	if command+changed == pluginsChanged {
		return // Reload has told of it, and of what it did
	}
	if verb == nil || verb.Effect == plugin.EffectRead || verb.Internal || verb.AfterTurn && call.Turn != "" {
		return
	}
	h.events.publish(server.Event{
		Kind: command + changed, Agent: call.Agent, Project: call.Project, Session: call.Session,
		Verb: verb.Name, Data: identity(res.Data),
	})
}

// identity is what of an answer says which thing it is about: never content.
func identity(data json.RawMessage) json.RawMessage {
	const longest = 200 // bytes
	var answer map[string]json.RawMessage
	if json.Unmarshal(data, &answer) != nil {
		return nil
	}
	found := map[string]string{}
	for _, key := range []string{"id", "name", "from", "to", "op", "projectId", "sessionId"} {
		var text string
		if json.Unmarshal(answer[key], &text) == nil && text != "" && len(text) <= longest {
			found[key] = text
		}
	}
	if len(found) == 0 {
		return nil
	}
	out, err := json.Marshal(found)
	if err != nil {
		return nil // strings can be encoded
	}
	return out
}

// publishParams are those of events.publish.
type publishParams struct {
	Kind    string            `json:"kind"`
	Agent   string            `json:"agent"`
	Project string            `json:"project"`
	Session string            `json:"session"`
	Verb    string            `json:"verb"`
	Data    map[string]string `json:"data"`
}

// callPublish answers events.publish: a plugin tells of what it changed on its
// own.
func (h *Host) callPublish(_ context.Context, caller plugin.Caller, params json.RawMessage, _ plugin.ProgressFunc) (json.RawMessage, error) {
	id, ok := strings.CutPrefix(string(caller), string(plugin.PluginCaller("")))
	if !ok {
		return nil, plugin.Errorf(plugin.Denied, "only plugins may publish events").
			WithHint("events.subscribe follows them")
	}
	var p publishParams
	if err := surfaces.Params(params, &p); err != nil {
		return nil, err
	}
	from, err := h.named(id)
	if err != nil {
		return nil, err
	}
	var kinds []string
	for _, c := range from.Manifest.Commands {
		kinds = append(kinds, c+changed)
	}
	if !slices.Contains(kinds, p.Kind) {
		return nil, plugin.Errorf(plugin.Denied, "plugin %s may not publish events of the kind %q", id, p.Kind).
			WithHint("it may publish %s", strings.Join(kinds, ", "))
	}
	data, err := json.Marshal(p.Data)
	if err != nil {
		return nil, err
	}
	if err := checkEventData(data); err != nil {
		return nil, err
	}
	if len(p.Data) == 0 {
		data = nil
	}
	h.events.publish(server.Event{
		Kind: p.Kind, Agent: cmp.Or(p.Agent, DefaultAgent), Project: projectOr(p.Project), Session: p.Session, Verb: p.Verb, Data: data,
	})
	return json.RawMessage("{}"), nil
}

// checkEventData refuses more data than an event may carry.
func checkEventData(data json.RawMessage) error {
	const most = 4 << 10 // bytes
	if len(data) > most {
		return plugin.Errorf(plugin.Usage, "data has %d bytes, more than the %d that an event may carry", len(data), most).
			WithHint("give ids and names only")
	}
	return nil
}

// RelayMethod is the gateway method by which another process of the same home,
// such as a chat, tells of what happens in it. Its params are an event; number
// and time are the gateway's own.
const RelayMethod = "events.relay"

// callRelay answers [RelayMethod].
func (h *Host) callRelay(ctx context.Context, _ plugin.Caller, params json.RawMessage, _ plugin.ProgressFunc) (json.RawMessage, error) {
	if !server.AtSocket(ctx) {
		return nil, plugin.Errorf(plugin.Denied, "only programs at the gateway's socket may tell of what happens in them").
			WithHint("events.subscribe follows events")
	}
	var e server.Event
	if err := surfaces.Params(params, &e); err != nil {
		return nil, err
	}
	command, isChange := strings.CutSuffix(e.Kind, changed)
	relayed := []string{turnStarted, turnEnded, sessionReplaced, sessionSelected}
	switch {
	case slices.Contains(relayed, e.Kind):
	case isChange && slices.Contains(h.commandNames(), command):
	default:
		return nil, plugin.Errorf(plugin.Usage, "events of the kind %q are not relayed", e.Kind).
			WithHint("relay %s or <command>%s", strings.Join(relayed, ", "), changed)
	}
	if err := checkEventData(e.Data); err != nil {
		return nil, err
	}
	h.events.publish(e)
	return json.RawMessage("{}"), nil
}

// selectSnapshot shows a snapshot in place of a session, or with an empty id the
// session itself, and tells of it.
func (h *Host) selectSnapshot(ctx context.Context, ref session.Ref, snapshot string) error {
	if err := h.sessions.Select(ctx, ref, snapshot); err != nil {
		return err
	}
	about := struct {
		Selected *string `json:"selected"`
	}{}
	if snapshot != "" {
		about.Selected = &snapshot
	}
	h.events.publish(server.Event{Kind: sessionSelected, Project: ref.Project, Session: ref.ID, Data: rawJSON(about)})
	return nil
}

// turnSink passes a chat's events on, and tells of the beginning and the end of
// its turns.
func (h *Host) turnSink(agent string, out chat.Sink, shown func() (project, session string)) chat.Sink {
	kinds := map[chat.EventKind]string{chat.EventTurnStarted: turnStarted, chat.EventTurnEnded: turnEnded}
	return chat.SinkFunc(func(e chat.Event) {
		if kind := kinds[e.Kind]; kind != "" {
			project, session := shown()
			about := struct {
				Turn     string `json:"turn"`
				Revision int64  `json:"revision,omitempty"`
			}{e.Turn, e.Revision}
			data, err := json.Marshal(about)
			if err != nil {
				data = nil // a string and a number can be encoded
			}
			h.events.publish(server.Event{Kind: kind, Agent: cmp.Or(agent, DefaultAgent), Project: project, Session: session, Data: data})
		}
		out.Event(e)
	})
}
