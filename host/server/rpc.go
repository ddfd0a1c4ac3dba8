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

// serve answers what comes over a connection until it ends: by its client, or
// because the server closes. A client that only asks nothing more, and still
// reads, gets its answers first. When closing ends, new calls are refused and
// those that run may come to their end within the grace time; the others are cut
// short and say so. The transport is closed then, and nothing that was called runs
// any more. One connection too many is refused, and so is one that comes too late:
// then the transport is as it was.
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
