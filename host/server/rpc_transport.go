package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"sess/plugin"
	"sess/surfaces"
)

// lineReader reads one message in each line; the last one needs no end.
type lineReader struct {
	in    *bufio.Reader
	limit int64
}

func newLineReader(in io.Reader, limit int64) *lineReader {
	return &lineReader{bufio.NewReaderSize(in, 16<<10), limit}
}

func (r *lineReader) recv() ([]byte, error) {
	for {
		line, err := r.line()
		if err != nil || len(bytes.TrimSpace(line)) > 0 {
			return line, err
		}
	}
}

// line reads to the end of a line. Of one that is too long nothing is kept.
func (r *lineReader) line() ([]byte, error) {
	var line []byte
	size := int64(0)
	for {
		part, err := r.in.ReadSlice('\n')
		size += int64(len(part))
		if size <= r.limit+1 { // the line's end is no part of the message
			line = append(line, part...)
		} else {
			line = nil
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && (!errors.Is(err, io.EOF) || size == 0):
			return nil, err
		case size > r.limit+1:
			return nil, &tooLarge{r.limit}
		}
		return line, nil
	}
}

// lineTransport has one message in each line, both ways.
type lineTransport struct {
	*lineReader
	conn   net.Conn
	closed chan struct{}
	once   sync.Once // closes closed
}

func newLineTransport(conn net.Conn, limit int64) *lineTransport {
	return &lineTransport{lineReader: newLineReader(conn, limit), conn: conn, closed: make(chan struct{})}
}

func (t *lineTransport) send(message []byte) error {
	if err := t.conn.SetWriteDeadline(time.Now().Add(sendTime(len(message)))); err != nil {
		return err
	}
	_, err := t.conn.Write(append(message, '\n'))
	return err
}

func (t *lineTransport) left() {
	if !waitHangUp(t.conn) {
		<-t.closed
	}
}

func (t *lineTransport) close() error {
	t.once.Do(func() { close(t.closed) })
	return t.conn.Close()
}

// sendTime is how long a reader may take for a message: what a slow line needs,
// and no more.
func sendTime(size int) time.Duration {
	const slowest = 100 << 10 // bytes a second
	return 10*time.Second + time.Duration(size/slowest)*time.Second
}

// socketTransport has one message in each message of a WebSocket.
type socketTransport struct {
	conn  *websocket.Conn
	limit int64
	ctx   context.Context // its end cuts the connection
	cut   context.CancelFunc
}

func newSocketTransport(conn *websocket.Conn, limit int64) *socketTransport {
	conn.SetReadLimit(-1) // it would end the connection; recv goes on after a message that is too large
	ctx, cut := context.WithCancel(context.Background())
	return &socketTransport{conn: conn, limit: limit, ctx: ctx, cut: cut}
}

func (t *socketTransport) recv() ([]byte, error) {
	_, r, err := t.conn.Reader(t.ctx)
	if err != nil {
		return nil, err
	}
	message, err := io.ReadAll(io.LimitReader(r, t.limit+1))
	if err == nil && int64(len(message)) > t.limit {
		if _, err = io.Copy(io.Discard, r); err == nil {
			err = &tooLarge{t.limit}
		}
	}
	return message, err
}

func (t *socketTransport) send(message []byte) error {
	ctx, cancel := context.WithTimeout(t.ctx, sendTime(len(message)))
	defer cancel()
	return t.conn.Write(ctx, websocket.MessageText, message)
}

// left is at once: a WebSocket is closed in both directions.
func (t *socketTransport) left() {}

// close says goodbye to a client that listens.
func (t *socketTransport) close() error {
	goodbye := time.AfterFunc(time.Second, t.cut)
	defer t.cut()
	defer goodbye.Stop()
	return t.conn.Close(websocket.StatusGoingAway, "")
}

// The kinds of transports.
const (
	kindSocket    = "socket"
	kindWebSocket = "websocket"
	kindPost      = "post" // one for each request
)

// serveLines accepts connections that carry one message in each line, until ctx
// ends. It closes the listener, and returns when no connection is left.
func (r *rpc) serveLines(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() }) // Accept tells
	defer stop()
	var conns sync.WaitGroup
	defer conns.Wait()
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			conns.Go(func() { r.serveLine(ctx, conn) })
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("serve %s: %w", l.Addr(), err)
		default:
			// Out of descriptors, most likely: wait for some to come back.
			r.log.WarnContext(ctx, "accept a connection", "err", err)
			select {
			case <-time.After(acceptPause):
			case <-ctx.Done():
			}
		}
	}
}

func (r *rpc) serveLine(closing context.Context, conn net.Conn) {
	t := newLineTransport(conn, r.socketLimit)
	err := r.serve(atSocket(closing), t, kindSocket, plugin.CallerRPC)
	if err == nil {
		return
	}
	if err := errors.Join(t.send(failRPC(nil, surfaces.RenderRPCError(err))), t.close()); err != nil {
		r.log.Debug("refuse a connection", "err", err)
	}
}

const acceptPause = 100 * time.Millisecond

// serveWebSocket upgrades a request and answers what comes until the client goes
// or closing ends. Who may do so, and from which page, was decided before. The error
// says why there was no upgrade; nothing was sent then.
func (r *rpc) serveWebSocket(closing context.Context, w http.ResponseWriter, req *http.Request) error {
	kept := &keepErrors{ResponseWriter: w}
	conn, err := websocket.Accept(kept, req, &websocket.AcceptOptions{
		Subprotocols:       subprotocols(req.Header),
		InsecureSkipVerify: true, // the server has rules of its own for pages
		CompressionMode:    websocket.CompressionDisabled,
	})
	if err != nil {
		return &statusError{
			status: max(kept.status, http.StatusBadRequest),
			err:    plugin.Errorf(plugin.Usage, "no WebSocket: %w", err).WithHint("upgrade as RFC 6455 says, over HTTP/1.1"),
		}
	}
	t := newSocketTransport(conn, r.limit)
	if err := r.serve(closing, t, kindWebSocket, plugin.CallerRPC); err != nil {
		if err := errors.Join(t.send(failRPC(nil, surfaces.RenderRPCError(err))), t.close()); err != nil {
			r.log.DebugContext(req.Context(), "refuse a connection", "err", err)
		}
	}
	return nil
}

// keepErrors keeps back an answer that is an error, for one in the shape that all
// others have.
type keepErrors struct {
	http.ResponseWriter
	status int // of the error; 0 is none
}

func (k *keepErrors) WriteHeader(status int) {
	if status >= http.StatusBadRequest {
		k.status = status
		return
	}
	k.ResponseWriter.WriteHeader(status)
}

func (k *keepErrors) Write(b []byte) (int, error) {
	if k.status != 0 {
		return len(b), nil
	}
	return k.ResponseWriter.Write(b)
}

func (k *keepErrors) Unwrap() http.ResponseWriter { return k.ResponseWriter }

// subprotocols lists what a client may get back of the ones that it offers, as a
// page must get one of its own. That which holds the token is the last choice.
func subprotocols(header http.Header) []string {
	var plain, secret []string
	for _, line := range header.Values("Sec-WebSocket-Protocol") {
		for p := range strings.SplitSeq(line, ",") {
			p = strings.TrimSpace(p)
			if strings.HasPrefix(p, protocolPrefix) {
				secret = append(secret, p)
			} else {
				plain = append(plain, p)
			}
		}
	}
	return append(plain, secret...)
}

// post answers one request or one batch. The status is 200 whatever the calls
// have come to, 204 where no answer is wanted, and 400 where there was no request.
// The calls end with ctx, as when the client goes.
func (r *rpc) post(ctx context.Context, message []byte) (status int, answer []byte) {
	requests, batch, refusal := parseRPC(message)
	if refusal != nil {
		return http.StatusBadRequest, refusal
	}
	answers := make([][]byte, len(requests))
	var all sync.WaitGroup
	for i, req := range requests {
		if req.Error != nil {
			answers[i] = refuseRPC(req)
			continue
		}
		all.Go(func() {
			result, err := r.call(ctx, plugin.CallerRPC, req, nil)
			answers[i] = r.answer(ctx, req, result, err)
		})
	}
	all.Wait()
	if answer = joinRPC(answers, batch); answer == nil {
		return http.StatusNoContent, nil
	}
	return http.StatusOK, answer
}
