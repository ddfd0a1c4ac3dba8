package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// answersTime is how long what was asked before the input ended may take.
const answersTime = 5 * time.Second

// stdioTransport is the protocol's stdio transport: a message in each line. Unlike
// the library's it goes on after a line that is no message, as others do, and
// answers what was asked before its input ended.
type stdioTransport struct {
	in  io.Reader
	out io.Writer
}

var _ mcp.Transport = (*stdioTransport)(nil)

// Connect begins to read. A read that waits for input is given up at the end.
func (t *stdioTransport) Connect(context.Context) (mcp.Connection, error) {
	c := &stdioConn{out: t.out, lines: make(chan inputLine), closed: make(chan struct{}), answered: make(chan struct{}, 1)}
	go func() {
		in := newLineReader(t.in, defaultSocketLimit)
		for {
			data, err := in.recv()
			select {
			case c.lines <- inputLine{data, err}:
			case <-c.closed:
				return
			}
			if _, long := errors.AsType[*tooLarge](err); err != nil && !long {
				return
			}
		}
	}()
	return c, nil
}

// inputLine is a line of the input, or why there is none.
type inputLine struct {
	data []byte
	err  error
}

type stdioConn struct {
	lines    chan inputLine
	closed   chan struct{}
	once     sync.Once
	answered chan struct{} // holds a value when waiting may have become 0

	waiting atomic.Int64 // requests without an answer

	mu  sync.Mutex // guards out while a line is written, which takes as long as the client wants
	out io.Writer
}

// SessionID is empty: there is one session.
func (c *stdioConn) SessionID() string { return "" }

// Read waits for the next message.
func (c *stdioConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.closed:
			return nil, io.EOF
		case l := <-c.lines:
			if _, long := errors.AsType[*tooLarge](l.err); long {
				if err := c.refuse(jsonrpc.CodeInvalidRequest, l.err.Error()); err != nil {
					return nil, err
				}
				continue
			}
			if l.err != nil {
				c.awaitAnswers(ctx)
				return nil, l.err
			}
			msg, err := jsonrpc.DecodeMessage(l.data)
			if err != nil {
				code, why := int64(jsonrpc.CodeParseError), "the line is not JSON"
				if json.Valid(l.data) {
					code, why = jsonrpc.CodeInvalidRequest, "the line is not one message of JSON-RPC 2.0"
				}
				if err := c.refuse(code, why); err != nil {
					return nil, err
				}
				continue
			}
			if req, ok := msg.(*jsonrpc.Request); ok && req.IsCall() {
				c.waiting.Add(1)
			}
			return msg, nil
		}
	}
}

// awaitAnswers waits until what was asked is answered, though not for long.
func (c *stdioConn) awaitAnswers(ctx context.Context) {
	enough := time.NewTimer(answersTime)
	defer enough.Stop()
	for {
		if c.waiting.Load() <= 0 {
			return
		}
		select {
		case <-c.answered:
		case <-enough.C:
			return
		case <-c.closed:
			return
		case <-ctx.Done():
			return
		}
	}
}

// refuse answers a line of which nobody can tell whose request it was.
func (c *stdioConn) refuse(code int64, why string) error {
	type failure struct {
		Code    int64  `json:"code"`
		Message string `json:"message"`
	}
	data, err := json.Marshal(struct {
		Version string  `json:"jsonrpc"`
		ID      *int    `json:"id"`
		Error   failure `json:"error"`
	}{"2.0", nil, failure{code, why}})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err = c.out.Write(append(data, '\n'))
	return err
}

// Write sends a message.
func (c *stdioConn) Write(ctx context.Context, msg jsonrpc.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	data, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err = c.out.Write(append(data, '\n'))
	if _, ok := msg.(*jsonrpc.Response); ok {
		c.waiting.Add(-1)
		select {
		case c.answered <- struct{}{}:
		default:
		}
	}
	return err
}

// Close gives the input up; out stays open.
func (c *stdioConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}
