package server

import (
	"encoding/json"
	"strconv"

	"sess/plugin"
	"sess/surfaces"
)

// own finds a method that belongs to a connection. What it returns beside the
// result is to be done when that was sent.
func (c *rpcConn) own(method string) func(params json.RawMessage) (any, func(), error) {
	switch method {
	case methodCancel:
		return c.cancel
	case methodSubscribe:
		return c.subscribe
	case methodUnsubscribe:
		return c.unsubscribe
	case methodFilesAnswer:
		return c.filesAnswer
	}
	return nil
}

// cancel ends a call that runs. One that has just ended is not an error.
func (c *rpcConn) cancel(params json.RawMessage) (any, func(), error) {
	var p struct {
		ID json.RawMessage `json:"id"`
	}
	if err := surfaces.Params(params, &p); err != nil {
		return nil, nil, err
	}
	if p.ID == nil {
		return nil, nil, plugin.Errorf(plugin.Usage, "id is missing").WithHint("give the id of the call").WithDetail("missing", "id")
	}
	c.mu.Lock()
	end := c.calls[string(p.ID)]
	c.mu.Unlock()
	if end != nil {
		end(nil)
	}
	return map[string]bool{"cancelled": end != nil}, nil, nil
}

// subscribe begins to gather events. They are sent once the client knows of the
// subscription.
func (c *rpcConn) subscribe(params json.RawMessage) (any, func(), error) {
	var p struct {
		Kinds   []string `json:"kinds"`
		Project string   `json:"project"`
		Session string   `json:"session"`
	}
	if err := surfaces.Params(params, &p); err != nil {
		return nil, nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.draining:
		return nil, nil, refuseStopping()
	case len(c.subs) == maxSubscriptions:
		return nil, nil, plugin.Errorf(plugin.Busy, "this connection has %d subscriptions, the most that it may", maxSubscriptions).
			WithHint("end one with %s", methodUnsubscribe)
	}
	c.lastSub++
	id := strconv.Itoa(c.lastSub)
	sub := c.host.Subscribe(EventFilter{Kinds: p.Kinds, Project: p.Project, Session: p.Session})
	c.subs[id] = sub
	pass := func() { c.work.Go(func() { c.pass(id, sub) }) }
	return map[string]string{"subscription": id}, pass, nil
}

// pass sends the events of a subscription until it ends.
func (c *rpcConn) pass(id string, sub Subscription) {
	for {
		e, err := sub.Next(c.ctx)
		if err != nil {
			return
		}
		told, err := notification("event", eventParams{id, e})
		if err != nil {
			c.log.Warn("event left out", "kind", e.Kind, "err", err)
			continue
		}
		c.send(told)
	}
}

type eventParams struct {
	Subscription string `json:"subscription"`
	Event        Event  `json:"event"`
}

func (c *rpcConn) unsubscribe(params json.RawMessage) (any, func(), error) {
	var p struct {
		Subscription string `json:"subscription"`
	}
	if err := surfaces.Params(params, &p); err != nil {
		return nil, nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	sub := c.subs[p.Subscription]
	if sub == nil {
		return nil, nil, plugin.Errorf(plugin.NotFound, "there is no subscription %q on this connection", p.Subscription).
			WithHint("give what %s answered", methodSubscribe)
	}
	delete(c.subs, p.Subscription)
	sub.Close()
	return struct{}{}, nil, nil
}

func (c *rpcConn) closeSubscriptions() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.subs {
		s.Close()
	}
}
