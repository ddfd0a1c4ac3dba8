package server

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/creachadair/jrpc2"

	"sess/plugin"
)

// rpcConn is one connection, from its beginning to its end.
type rpcConn struct {
	*rpc
	caller  plugin.Caller
	wire    transport
	ctx     context.Context
	end     context.CancelCauseFunc
	calling context.Context // of the calls; ends before ctx, so that they can say why
	cut     context.CancelCauseFunc
	work    sync.WaitGroup

	writing chan struct{} // holds a value while something is written
	later   chan []byte   // what nobody waits for until it is written; taken by who writes

	mu       sync.Mutex // guards what follows
	calls    map[string]context.CancelCauseFunc
	files    map[string]*clientFiles // of calls that have asked for some
	running  int                     // calls, those without an id too
	draining bool
	drained  chan struct{} // closed when draining and nothing runs
	subs     map[string]Subscription
	lastSub  int
}

// waitDrained waits for the end of a draining connection, and reports whether it
// came in time.
func (c *rpcConn) waitDrained(most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-c.ctx.Done():
	case <-c.drained:
	case <-timer.C:
		return false
	}
	return true
}

// drain refuses what comes from now on, and ends the connection when nothing
// runs any more.
func (c *rpcConn) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.draining {
		c.draining = true
		c.quiet()
	}
}

// quiet tells when a draining connection has nothing left to do. c.mu is held.
func (c *rpcConn) quiet() {
	if c.draining && c.running == 0 {
		select {
		case <-c.drained:
		default:
			close(c.drained)
		}
	}
}

// send writes a message, after those that were left for later. A reader that is
// slow makes it wait.
func (c *rpcConn) send(message []byte) {
	select {
	case c.writing <- struct{}{}:
		defer func() { <-c.writing }()
	case <-c.ctx.Done():
		return
	}
	for len(c.later) > 0 {
		c.write(<-c.later)
	}
	if message != nil {
		c.write(message)
	}
}

// write writes a message. c.writing is held.
func (c *rpcConn) write(message []byte) {
	if c.ctx.Err() != nil {
		return
	}
	if err := c.wire.send(message); err != nil {
		c.end(err)
	}
}

// leave writes a message soon, or not at all where the reader is slow. It never
// waits.
func (c *rpcConn) leave(message []byte) {
	select {
	case c.later <- message:
		c.work.Go(func() { c.send(nil) })
	default:
	}
}

// read takes messages until there are no more, and says why.
func (c *rpcConn) read() error {
	for {
		message, err := c.wire.recv()
		if large, ok := errors.AsType[*tooLarge](err); ok {
			c.send(protocolFailure(nil, jrpc2.InvalidRequest, large.refusal()))
			continue
		}
		if err != nil {
			return err
		}
		c.message(message)
	}
}

// message begins to answer a message: one request, or a batch of them. What can
// be answered at once is, so that the reader of a client that asks too much and
// reads nothing stops here.
func (c *rpcConn) message(message []byte) {
	requests, batch, refusal := parseRPC(message)
	if refusal != nil {
		c.send(refusal)
		return
	}
	answers := make([][]byte, len(requests))
	runs := make([]func() []byte, len(requests))
	var after []func()
	running, last := 0, 0
	for i, req := range requests {
		var then func()
		if answers[i], runs[i], then = c.begin(req); runs[i] != nil {
			running, last = running+1, i
		}
		if then != nil {
			after = append(after, then)
		}
	}
	if running == 0 {
		c.reply(answers, batch, after)
		return
	}
	c.work.Go(func() {
		defer c.over(running)
		var all sync.WaitGroup
		for i, run := range runs[:last] {
			if run != nil {
				all.Go(func() { answers[i] = run() })
			}
		}
		answers[last] = runs[last]() // most messages have one: it needs no goroutine more
		all.Wait()
		c.reply(answers, batch, after)
	})
}

// reply sends the answers to a message, then does what was to wait for that.
func (c *rpcConn) reply(answers [][]byte, batch bool, after []func()) {
	if all := joinRPC(answers, batch); all != nil {
		c.send(all)
	}
	for _, f := range after {
		f()
	}
}

// begin answers a request at once, or lets it run: then its id is taken, and a
// cancel that comes later finds it. after, if there is one, has to be called when
// the answer was sent.
func (c *rpcConn) begin(req *jrpc2.ParsedRequest) (answer []byte, run func() []byte, after func()) {
	if req.Error != nil {
		return refuseRPC(req), nil, nil
	}
	if own := c.own(req.Method); own != nil {
		result, after, err := own(req.Params)
		return c.answer(c.ctx, req, result, err), nil, after
	}
	ctx, cancel := context.WithCancelCause(c.calling)
	if err := c.take(req.ID, cancel); err != nil {
		cancel(nil)
		return c.answer(c.ctx, req, nil, err), nil, nil
	}
	return nil, func() []byte {
		defer cancel(nil)
		ctx := withNotices(ctx, func(notices []string) { c.tellNotices(req, notices) })
		ctx, end := c.withFiles(ctx, req)
		defer end()
		result, err := c.call(ctx, c.caller, req, c.progress(req))
		c.mu.Lock()
		delete(c.calls, req.ID)
		c.mu.Unlock()
		return c.answer(ctx, req, result, err)
	}, nil
}

// take counts a call, and notes how it is cancelled.
func (c *rpcConn) take(id string, cancel context.CancelCauseFunc) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.draining:
		return refuseStopping()
	case id != "" && c.calls[id] != nil:
		return plugin.Errorf(plugin.Usage, "a call with the id %s is running already", id).WithHint("give each call its own id")
	case c.running == maxCalls:
		return plugin.Errorf(plugin.Busy, "%d calls of this connection are running, the most that may", maxCalls).
			WithHint("wait for one to end, then try again").WithDetail("limit", strconv.Itoa(maxCalls))
	}
	c.running++
	if id != "" {
		c.calls[id] = cancel
	}
	return nil
}

// over ends n calls, whose answers have been queued.
func (c *rpcConn) over(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running -= n
	c.quiet()
}

// progress passes steps of a call on where there is room for them.
func (c *rpcConn) progress(req *jrpc2.ParsedRequest) plugin.ProgressFunc {
	if req.ID == "" {
		return nil
	}
	return func(p plugin.Progress) {
		told, err := notification("progress", progressParams{json.RawMessage(req.ID), p.Stage, p.Done, p.Total, p.Unit})
		if err != nil {
			return // the id is JSON, and the rest can be encoded
		}
		c.leave(told) // if it is lost the next one tells more
	}
}

// tellNotices sends the warnings that belong to the answer of a call, ahead of it.
func (c *rpcConn) tellNotices(req *jrpc2.ParsedRequest, notices []string) {
	if req.ID == "" {
		return
	}
	if told, err := notification("notices", noticesParams{json.RawMessage(req.ID), notices}); err == nil { // it is JSON
		c.send(told)
	}
}

type noticesParams struct {
	RequestID json.RawMessage `json:"requestId"`
	Notices   []string        `json:"notices"`
}

type progressParams struct {
	RequestID json.RawMessage `json:"requestId"`
	Stage     string          `json:"stage"`
	Done      int64           `json:"done"`
	Total     int64           `json:"total,omitempty"`
	Unit      string          `json:"unit,omitempty"`
}
