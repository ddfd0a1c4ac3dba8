package client

import (
	"context"
	"encoding/json"
	"io"
	"sync"
	"time"
)

// Event is something that happened in the gateway.
type Event struct {
	// Seq grows by one with each event of one life of the gateway.
	Seq int64 `json:"seq"`
	// Kind is "turn.started", "turn.ended", "session.replaced", "session.selected",
	// "<command>.changed", "plugins.changed" or "events.dropped".
	Kind    string    `json:"kind"`
	Time    time.Time `json:"time"`
	Agent   string    `json:"agent,omitempty"`
	Project string    `json:"project,omitempty"`
	Session string    `json:"session,omitempty"`
	// Verb is that of a change. Data says what an event is about, by names and ids.
	Verb string          `json:"verb,omitempty"`
	Data json.RawMessage `json:"data,omitempty"`
	// Dropped is how many events were missed, in "events.dropped" only.
	Dropped int64 `json:"dropped,omitempty"`
}

// Filter chooses events; an empty field chooses all.
type Filter struct {
	// Kinds are kinds, or the parts of them before the dot.
	Kinds   []string `json:"kinds,omitempty"`
	Project string   `json:"project,omitempty"`
	Session string   `json:"session,omitempty"`
}

// queueLength is how many events wait for their reader.
const queueLength = 256

// Subscription is a bounded queue of events, for one reader. When that is too
// slow the oldest are dropped, and an event of the kind "events.dropped" says how
// many. It may be closed by anyone.
type Subscription struct {
	client *Client
	id     string
	ready  chan struct{} // holds a value when there is something to take
	over   chan struct{} // closed when no more will come

	mu      sync.Mutex // guards what follows; taken after Client.mu
	queue   []Event
	dropped int64
	last    Event // the youngest that was dropped
}

// Subscribe follows what happens in the gateway from now on. filter is a [Filter],
// anything that becomes a JSON object like one, or nil for all that happens.
func (c *Client) Subscribe(ctx context.Context, filter any) (*Subscription, error) {
	s := &Subscription{client: c, ready: make(chan struct{}, 1), over: make(chan struct{})}
	var bad error
	_, err := c.call(ctx, "events.subscribe", filter, callOptions{first: func(result json.RawMessage) { // c.mu is held
		var r struct {
			Subscription string `json:"subscription"`
		}
		if bad = json.Unmarshal(result, &r); bad == nil {
			s.id = r.Subscription
			c.subs[s.id] = s
		}
	}})
	if err != nil {
		return nil, err
	}
	return s, bad
}

func (s *Subscription) add(e Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == queueLength {
		s.dropped++
		s.last = s.queue[0]
		s.queue = append(s.queue[:0], s.queue[1:]...)
	}
	s.queue = append(s.queue, e)
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

func (s *Subscription) take() (Event, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropped > 0 {
		e := Event{Seq: s.last.Seq, Kind: "events.dropped", Time: s.last.Time, Dropped: s.dropped}
		s.dropped = 0
		return e, true
	}
	if len(s.queue) == 0 {
		return Event{}, false
	}
	e := s.queue[0]
	s.queue = append(s.queue[:0], s.queue[1:]...)
	return e, true
}

// Next waits for the next event. When the subscription was closed, or the gateway
// has gone, it answers io.EOF.
func (s *Subscription) Next(ctx context.Context) (Event, error) {
	for {
		if e, ok := s.take(); ok {
			return e, nil
		}
		select {
		case <-s.ready:
		case <-s.over:
			if e, ok := s.take(); ok {
				return e, nil
			}
			return Event{}, io.EOF
		case <-ctx.Done():
			return Event{}, ctx.Err()
		}
	}
}

// Close ends the subscription.
func (s *Subscription) Close(ctx context.Context) error {
	s.client.mu.Lock()
	open := s.client.subs[s.id] == s
	if open {
		delete(s.client.subs, s.id)
		close(s.over)
	}
	s.client.mu.Unlock()
	if !open {
		return nil
	}
	_, err := s.client.Call(ctx, "events.unsubscribe", map[string]string{"subscription": s.id}, nil)
	return err
}
