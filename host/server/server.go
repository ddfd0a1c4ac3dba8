package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
	"golang.org/x/net/netutil"

	"sess/plugin"
	"sess/surfaces"
)

// DefaultBodyLimit is the most that the body of a request may have, in bytes,
// where nothing else is configured.
const DefaultBodyLimit = 8 << 20

const (
	// defaultGrace is how long calls may still run when the server closes.
	defaultGrace = 4 * time.Second
	// headerTimeout bounds the time that a client takes to send its headers,
	// bodyTimeout that between two parts of a body, idleTimeout the time between
	// two requests. An answer has no limit: a call may take as long as it does.
	headerTimeout = 10 * time.Second
	bodyTimeout   = 30 * time.Second
	idleTimeout   = 2 * time.Minute
	// lateTimeout bounds the time that is taken for a body after the answer.
	lateTimeout = 30 * time.Second
	// headerLimit is more than net/http's own, so that a token of 1 MiB is refused
	// like every other wrong one.
	headerLimit = 1<<20 + 64<<10
	// maxNetConns is how many connections over the network may be open.
	maxNetConns = 512
)

// Options configures a server. Token is required.
type Options struct {
	// Listen is the address as configured, "127.0.0.1:7777". Its host is one that
	// requests may name.
	Listen string
	// Token is what every request has to show.
	Token string
	// AllowedOrigins lists the origins of pages that may call, beside the server's
	// own: "https://notes.example".
	AllowedOrigins []string
	// AllowedHosts lists further names under which the server is reached, with or
	// without a port.
	AllowedHosts []string
	// BodyLimit is in bytes; 0 means DefaultBodyLimit.
	BodyLimit int64
	// TLSCert and TLSKey are the paths of PEM files; with them the server speaks
	// TLS only.
	TLSCert, TLSKey string
	// Insecure lets a server without TLS listen where other machines reach it.
	Insecure bool
	// Grace is how long calls may still run when the server closes; 0 means 4 s.
	Grace time.Duration
	// Version and StartedAt are what the server tells about itself; without a
	// version it is "unknown".
	Version   string
	StartedAt time.Time
	// Logger receives what an operator should know; nil drops it. No token is ever
	// logged.
	Logger *slog.Logger
}

// Server serves a host over the network. Safe for concurrent use. It has no
// state that would have to be closed: each Serve ends with its context.
type Server struct {
	host    Host
	opts    Options
	log     *slog.Logger
	access  *access
	certs   []tls.Certificate
	echo    *echo.Echo
	fixed   []endpoint
	metrics *metrics
	rpc     *rpc
	mounts  atomic.Pointer[mounts]
	threads threads
	// conns is how many connections over the network there may be. Others wait:
	// each takes a descriptor, and the host needs some for its files.
	conns int
}

// New prepares a server; nothing listens yet. Errors have the code usage and
// name the setting to change, or denied where a TLS file cannot be read.
func New(h Host, o Options) (*Server, error) {
	s := &Server{host: h, opts: o, log: o.Logger, metrics: newMetrics(), conns: maxNetConns}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.opts.BodyLimit = cmp.Or(o.BodyLimit, DefaultBodyLimit)
	s.opts.Grace = cmp.Or(o.Grace, defaultGrace)
	s.opts.Version = cmp.Or(o.Version, "unknown")
	if o.TLSCert != "" || o.TLSKey != "" {
		cert, err := tls.LoadX509KeyPair(o.TLSCert, o.TLSKey)
		if err != nil {
			return nil, plugin.Errorf(plugin.Denied, "cannot use the TLS certificate %s with the key %s: %w", o.TLSCert, o.TLSKey, err).
				WithHint("correct gateway.tls in the configuration")
		}
		s.certs = append(s.certs, cert)
	}
	if o.Listen != "" {
		if err := CheckListen(o.Listen, s.certs != nil, o.Insecure); err != nil {
			return nil, err
		}
	}
	var err error
	if s.access, err = newAccess(s.opts, s.certs != nil); err != nil {
		return nil, err
	}
	s.rpc = newRPC(&measured{h, s}, s.log, s.opts.BodyLimit, s.opts.Grace)
	s.mount()
	return s, nil
}

// CheckListen refuses an address that is none, and one that other machines reach
// over a connection that everybody on the way can read, unless insecure says
// that this is meant.
func CheckListen(address string, tls, insecure bool) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return plugin.Errorf(plugin.Usage, "gateway.listen: %q is not an address: %w", address, err).
			WithHint("write host:port, as in 127.0.0.1:7777")
	}
	if tls || insecure || loopback(host) {
		return nil
	}
	return plugin.Errorf(plugin.Usage, "gateway.listen: other machines can reach %s, and what goes there could be read on the way, the token too", address).
		WithHint("listen on 127.0.0.1, or set gateway.tls, or set gateway.insecure to true if something else protects the connection")
}

// loopback reports whether a host is this machine, and only for itself.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback() || host == "localhost"
}

// closingKey is where the context of a request keeps what it has of Serve.
type closingKey struct{}

// serving is one Serve.
type serving struct {
	closing context.Context // ends when it begins to close
	streams sync.WaitGroup  // connections that are HTTP no more
}

// whileServing returns a context that also ends when the server begins to
// close: for streams, which would last until the end of the grace time.
func whileServing(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	serve, ok := ctx.Value(closingKey{}).(*serving)
	if !ok {
		return ctx, cancel
	}
	stop := context.AfterFunc(serve.closing, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// Serve answers HTTP on a listener, with TLS if that is configured, until ctx
// ends; it closes the listener. Then streams end at once, calls that run may
// finish within the grace time, and what still runs is cancelled. It returns nil
// when ctx ended it.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	if tcp, ok := listener.Addr().(*net.TCPAddr); ok {
		if err := CheckListen(tcp.String(), s.certs != nil, s.opts.Insecure); err != nil {
			return errors.Join(err, listener.Close())
		}
	}
	listener = netutil.LimitListener(listener, s.conns)
	calls, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	serve := &serving{closing: ctx}
	defer serve.streams.Wait()
	base := context.WithValue(calls, closingKey{}, serve)
	srv := &http.Server{
		Handler:           s.echo,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerLimit,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		// Or "OPTIONS *" would be answered before anybody asks who it is.
		DisableGeneralOptionsHandler: true,
		BaseContext:                  func(net.Listener) context.Context { return base },
	}
	closed := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		shutdown := func(most time.Duration) error {
			brief, end := context.WithTimeout(context.WithoutCancel(calls), most)
			defer end()
			return srv.Shutdown(brief)
		}
		err := shutdown(s.opts.Grace)
		if err != nil { // what still runs has to end now
			cancel(errStopping)
			err = shutdown(cutTime)
		}
		if err != nil {
			err = srv.Close()
		}
		closed <- err
	})
	var err error
	if s.certs != nil {
		srv.TLSConfig = &tls.Config{Certificates: s.certs, MinVersion: tls.VersionTLS12}
		err = srv.ServeTLS(listener, "", "")
	} else {
		err = srv.Serve(listener)
	}
	if stop() { // ctx has not ended
		return errors.Join(fmt.Errorf("serve %s: %w", listener.Addr(), err), srv.Close())
	}
	return <-closed
}

// ServeSocket answers JSON-RPC 2.0, one message in each line, on a listener that
// only this user can reach: nobody is asked for a token. It ends with ctx as Serve
// does, and closes the listener.
func (s *Server) ServeSocket(ctx context.Context, listener net.Listener) error {
	return s.rpc.serveLines(ctx, listener)
}

// gatheredNotices are the warnings of the methods that a request called.
type gatheredNotices struct {
	mu  sync.Mutex // guards all: a batch is called at once
	all []string
}

func (n *gatheredNotices) add(more []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, more...)
}

// send puts them into a header of the answer.
func (n *gatheredNotices) send(c echo.Context) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if header := surfaces.NoticesHeader(n.all); header != "" {
		c.Response().Header().Set("X-Notices", header)
	}
}

// serveRPC answers a request or a batch in the body.
func (s *Server) serveRPC(c echo.Context) error {
	ctx := c.Request().Context()
	if err := s.rpc.enter(ctx, kindPost); err != nil {
		return err
	}
	defer s.rpc.gone(kindPost)
	message, err := s.body(c)
	if err != nil {
		return err
	}
	var notices gatheredNotices
	status, answer := s.rpc.post(withNotices(ctx, notices.add), message)
	notices.send(c)
	if answer == nil {
		return c.NoContent(status)
	}
	return c.Blob(status, echo.MIMEApplicationJSON, answer)
}

// serveRPCSocket answers what comes over a WebSocket, until it or the server
// closes.
func (s *Server) serveRPCSocket(c echo.Context) error {
	if !upgrade(c.Request()) {
		c.Response().Header().Set("Upgrade", "websocket")
		return &statusError{
			status: http.StatusUpgradeRequired,
			err: plugin.Errorf(plugin.Usage, "GET /rpc is for WebSockets").
				WithHint("POST a JSON-RPC 2.0 request, or upgrade to a WebSocket"),
		}
	}
	closing := c.Request().Context()
	if serve, ok := closing.Value(closingKey{}).(*serving); ok {
		closing = serve.closing
	}
	return s.rpc.serveWebSocket(closing, c.Response(), c.Request())
}
