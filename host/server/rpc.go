package server

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/creachadair/jrpc2"

	"sess/plugin"
	"sess/surfaces"
)

// Bounds of JSON-RPC.
const (
	// maxConns is how many connections of one kind may be open.
	maxConns = 256
	// maxCalls is how many calls of one connection, or of one batch, may be in
	// flight.
	maxCalls = 64
	// maxSubscriptions is how many a connection may have.
	maxSubscriptions = 16
	// laterQueue is how many messages that may be lost wait for a reader.
	laterQueue = 64
)

// Methods that belong to a connection; the rest is the host's.
const (
	methodCancel      = "rpc.cancel"
	methodSubscribe   = "events.subscribe"
	methodUnsubscribe = "events.unsubscribe"
	methodMethods     = "gateway.methods"
)

// errStopping is why calls end and are refused while the server stops.
var errStopping = errors.New("the gateway is stopping")

// cutTime is how long calls that are cut short may take to say so.
const cutTime = 500 * time.Millisecond

// CutShort is the error of a call that ended with err, and did so because the
// server stopped: that it was cancelled would be blamed on its client. Other
// errors are as they were.
func CutShort(ctx context.Context, what string, err error) error {
	if err == nil || !errors.Is(context.Cause(ctx), errStopping) || !errors.Is(err, context.Canceled) {
		return err
	}
	return unfinished(what, errStopping)
}

// unfinished is the error of a call whose outcome nobody knows.
func unfinished(what string, cause error) *plugin.Error {
	e := plugin.Errorf(plugin.Unavailable, "%s did not come to its end: %w", what, cause)
	if errors.Is(cause, context.Canceled) { // by its client
		e.Message = what + " was cancelled"
	}
	return e.WithHint("what it does may have been done: look before you try again")
}

// rpc answers JSON-RPC 2.0, whatever carries it. Of jrpc2 it has the rules for
// what a request is. The connections are its own: a [jrpc2.Server] keeps a lock
// while it writes to a reader that is slow, and lets one notification that takes
// long hold up every request after it, a cancel as well.
type rpc struct {
	host  Host
	log   *slog.Logger
	limit int64 // bytes of a message from the network
	// socketLimit is that of a message over the socket: what its client, who is
	// this user, reads from a file comes that way, too.
	socketLimit int64
	// grace is how long calls may still run when the server closes.
	grace time.Duration

	mu    sync.Mutex     // guards kinds
	kinds map[string]int // of connections, by the kind of their transport
}

// defaultSocketLimit is as much as a plugin takes at once.
const defaultSocketLimit = 1 << 30

func newRPC(host Host, log *slog.Logger, limit int64, grace time.Duration) *rpc {
	return &rpc{host: host, log: log, limit: limit, socketLimit: defaultSocketLimit, grace: grace, kinds: map[string]int{}}
}

// transport carries messages of one connection.
type transport interface {
	// recv returns the next message, or an error of the type *tooLarge: then the
	// next one can be had still.
	recv() ([]byte, error)
	// send writes one message, in a time that depends on its size only.
	send(message []byte) error
	// left waits, once recv has ended, until nobody reads any more what is sent, or
	// until close.
	left()
	// close ends all of them, also while they wait.
	close() error
}

// tooLarge is a message that was thrown away.
type tooLarge struct{ limit int64 }

func (e *tooLarge) Error() string {
	return fmt.Sprintf("the message has more than the %d bytes that one may have", e.limit)
}

func (e *tooLarge) refusal() *plugin.Error {
	return plugin.Errorf(plugin.Usage, "%w", e).WithHint("send less at once, or raise gateway.bodyLimit").
		WithDetail("limit", strconv.FormatInt(e.limit, 10))
}

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

// serve answers what comes over a connection until it ends: by its client, or
// because the server closes. A client that only asks nothing more, and still
// reads, gets its answers first. When closing ends, new calls are refused and
// those that run may come to their end within the grace time; the others are cut
// short and say so. The transport is closed then, and nothing that was called runs
// any more. One connection too many is
// refused, and so is one that comes too late: then the transport is as it was.
func (r *rpc) serve(closing context.Context, wire transport, kind string, caller plugin.Caller) error {
	if err := r.enter(closing, kind); err != nil {
		return err
	}
	defer r.gone(kind)
	c := &rpcConn{
		rpc: r, caller: caller, wire: wire, writing: make(chan struct{}, 1), later: make(chan []byte, laterQueue),
		calls: map[string]context.CancelCauseFunc{}, files: map[string]*clientFiles{}, subs: map[string]Subscription{}, drained: make(chan struct{}),
	}
	c.ctx, c.end = context.WithCancelCause(context.WithoutCancel(closing))
	c.calling, c.cut = context.WithCancelCause(c.ctx)
	read := make(chan struct{})
	go func() {
		defer close(read)
		err := c.read()
		if errors.Is(err, io.EOF) {
			c.drain()
			wire.left()
		}
		c.end(err)
	}()
	select {
	case <-c.ctx.Done():
	case <-c.drained:
	case <-closing.Done():
		c.drain()
		if !c.waitDrained(r.grace) {
			c.cut(errStopping)
			c.waitDrained(cutTime)
		}
	}
	c.end(errStopping)
	err := wire.close()
	<-read
	c.closeSubscriptions()
	c.work.Wait()
	r.log.Debug("connection ended", "kind", kind, "cause", context.Cause(c.ctx), "err", err)
	return nil
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

func (r *rpc) enter(closing context.Context, kind string) error {
	if closing.Err() != nil {
		return refuseStopping()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kinds[kind] == maxConns {
		return plugin.Errorf(plugin.Busy, "there are %d connections, the most that there may be", maxConns).
			WithHint("close one, then try again")
	}
	r.kinds[kind]++
	return nil
}

func (r *rpc) gone(kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kinds[kind]--
}

func refuseStopping() error {
	return plugin.Errorf(plugin.Unavailable, "%w", errStopping).WithHint("try again when it runs again")
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

// call asks the host. A panic is a bug: it ends the call and nothing else.
func (r *rpc) call(ctx context.Context, caller plugin.Caller, req *jrpc2.ParsedRequest, progress plugin.ProgressFunc) (result any, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{v, debug.Stack()}
		}
	}()
	switch req.Method {
	case methodMethods:
		if err := surfaces.Params(req.Params, &struct{}{}); err != nil {
			return nil, err
		}
		own := []string{methodCancel, methodSubscribe, methodUnsubscribe, methodFilesAnswer, methodMethods}
		return slices.Sorted(slices.Values(append(own, r.host.Methods(ctx)...))), nil
	case methodCancel, methodSubscribe, methodUnsubscribe, methodFilesAnswer:
		return nil, plugin.Errorf(plugin.Usage, "%s needs a connection that stays open", req.Method).
			WithHint("use the WebSocket at /rpc, or the gateway's socket")
	}
	return r.host.Call(ctx, caller, req.Method, req.Params, progress)
}

type panicError struct {
	value any
	stack []byte
}

func (p *panicError) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// answer is the response to a request; nil if it wants none.
func (r *rpc) answer(ctx context.Context, req *jrpc2.ParsedRequest, result any, err error) []byte {
	if err == nil {
		out, bad := encodeRPC(rpcResponse{ID: json.RawMessage(req.ID), Result: result})
		if bad == nil {
			return wanted(req, out)
		}
		err = plugin.Errorf(plugin.Internal, "the answer of %s is not JSON: %w", req.Method, bad)
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = unfinished(req.Method, context.Cause(ctx))
	}
	err = r.incident(ctx, req.Method, err)
	failure := surfaces.RenderRPCError(err)
	if errors.Is(err, ErrUnknownMethod) {
		failure.Code = int(jrpc2.MethodNotFound)
	}
	return wanted(req, failRPC(json.RawMessage(req.ID), failure))
}

func wanted(req *jrpc2.ParsedRequest, answer []byte) []byte {
	if req.ID == "" {
		return nil
	}
	return answer
}

// incident logs a bug under an id that the answer names, too.
func (r *rpc) incident(ctx context.Context, method string, err error) error {
	e := plugin.AsError(err)
	if e.Code != plugin.Internal || e.Details["incident"] != "" {
		return e
	}
	id := strings.ToLower(rand.Text()[:12])
	attrs := []slog.Attr{slog.String("incident", id), slog.String("method", method), slog.String("err", e.Error())}
	if p, ok := errors.AsType[*panicError](err); ok {
		attrs = append(attrs, slog.String("stack", string(p.stack)))
		e = plugin.Errorf(plugin.Internal, "a bug stopped %s", method)
	}
	r.log.LogAttrs(ctx, slog.LevelError, "internal error", attrs...)
	if e.Hint == "" {
		e = e.WithHint("look for incident %s in the log", id)
	}
	return e.WithDetail("incident", id)
}
