package upstream

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"sess/plugin"
)

// The defaults of [Options].
const (
	DefaultTimeout    = 30 * time.Minute
	DefaultIdle       = 5 * time.Minute
	DefaultMaxRetries = 4
	connectTimeout    = 15 * time.Second
)

// Options is how a [Client] reaches its provider. BaseURL is required.
type Options struct {
	// BaseURL is what the paths of requests are put behind.
	BaseURL string
	Key     Key
	// Authorize writes the key into a request's header; nil means "Authorization:
	// Bearer". It is called only where there is a key.
	Authorize func(h http.Header, key string)
	// Header goes with every request.
	Header http.Header
	// Getenv is the environment; nil is an empty one.
	Getenv func(string) string
	// Timeout bounds one whole answer, Idle the silence before and within it. 0
	// means the default, a negative value no bound.
	Timeout, Idle time.Duration
	// MaxRetries is how often a request is sent again; 0 means the default, a
	// negative value never.
	MaxRetries int
	// Transport sends the requests; nil means one of the client's own. Clients
	// that share one share its connections.
	Transport http.RoundTripper
}

// Client talks to one provider. Safe for concurrent use.
type Client struct {
	opts Options
	base *url.URL
	http *http.Client
}

// NewTransport returns a transport for the [Options] of any number of clients.
func NewTransport() *http.Transport {
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: connectTimeout, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout: connectTimeout,
		ForceAttemptHTTP2:   true,
		MaxIdleConns:        16,
		IdleConnTimeout:     90 * time.Second,
	}
}

// New makes a client; it does no I/O. An address that cannot be one is an error
// with the code usage.
func New(o Options) (*Client, error) {
	base, err := url.Parse(o.BaseURL)
	switch {
	case err != nil:
		return nil, plugin.Errorf(plugin.Usage, "baseURL: this is no address: %w", errors.Unwrap(err)).WithHint("write it as https://host/v1")
	case base.Scheme != "http" && base.Scheme != "https" || base.Host == "":
		return nil, plugin.Errorf(plugin.Usage, "baseURL: %q is no address of a server", o.BaseURL).WithHint("write it as https://host/v1")
	case base.User != nil:
		return nil, plugin.Errorf(plugin.Usage, "baseURL: an address must not hold a password").WithHint("put the key into a file and name that with apiKeyFile")
	}
	o.Timeout = orDefault(o.Timeout, DefaultTimeout)
	o.Idle = orDefault(o.Idle, DefaultIdle)
	o.MaxRetries = orDefault(o.MaxRetries, DefaultMaxRetries)
	if o.Getenv == nil {
		o.Getenv = func(string) string { return "" }
	}
	if o.Authorize == nil {
		o.Authorize = func(h http.Header, key string) { h.Set("Authorization", "Bearer "+key) }
	}
	if o.Transport == nil {
		o.Transport = NewTransport()
	}
	return &Client{opts: o, base: base, http: &http.Client{
		Transport: o.Transport,
		// The key would go wherever a redirect leads.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// orDefault gives 0 its meaning, and negative values theirs, which is 0 here.
func orDefault[T ~int | ~int64](v, d T) T { return max(0, cmp.Or(v, d)) }

// Request is one request.
type Request struct {
	// Model is what errors are about: "<provider>/<model>".
	Model string
	Path  string // behind the base URL, with a leading slash
	Body  []byte // JSON; nil makes it a GET
	// Notice is told, in a sentence for people, before each pause; it may be nil.
	Notice func(text string)
}

// Reader takes the events of one attempt. An error that it returns ends the
// attempt; a [*StatusError] is treated as if the provider had refused the request
// with it.
type Reader interface {
	// Event takes the next event.
	Event(e Event) error
	// End is told that the stream has ended by itself; it returns
	// [io.ErrUnexpectedEOF] if something is missing.
	End() error
	// Begun reports whether anybody has seen some of the answer. Then the request
	// is not sent again.
	Begun() bool
}

// ErrDone is what [Reader.Event] returns when the answer is complete, whatever
// else comes.
var ErrDone = errors.New("the answer is complete")

// Stream sends a request and hands the events of the answer to a reader; begin
// makes one for each attempt. When ctx ends it returns the context's error;
// every other error is a [*plugin.Error].
func (c *Client) Stream(ctx context.Context, req Request, begin func() Reader) error {
	for attempt := 0; ; attempt++ {
		key, err := c.opts.Key.Read(c.opts.Getenv)
		if err != nil {
			return forModel(req.Model, err)
		}
		reader := begin()
		err = c.attempt(ctx, req, key, reader)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		}
		pause, again := c.pause(err, attempt)
		if !again || reader.Begun() {
			return c.explain(ctx, req, key, err, reader.Begun())
		}
		if req.Notice != nil {
			req.Notice(fmt.Sprintf("%s: %s; asking again in %s (%d of %d)", req.Model, hide(reason(err), key), inWords(pause), attempt+1, c.opts.MaxRetries))
		}
		if err := wait(ctx, pause); err != nil {
			return err
		}
	}
}

// Post sends a request whose answer is one JSON document, like Stream.
func (c *Client) Post(ctx context.Context, req Request) ([]byte, error) {
	var whole *document
	err := c.Stream(ctx, req, func() Reader {
		whole = &document{}
		return whole
	})
	if err != nil {
		return nil, err
	}
	return whole.data, nil
}

// document reads an answer that is one document.
type document struct{ data []byte }

func (d *document) Event(e Event) error {
	if !e.Whole {
		return errors.New("the answer is a stream of events, not one document")
	}
	d.data = bytes.Clone(e.Data)
	return ErrDone
}

func (d *document) End() error { return io.ErrUnexpectedEOF }

func (d *document) Begun() bool { return false }

var (
	errIdle  = errors.New("nothing came")
	errWhole = errors.New("the answer took too long")
	errPage  = errors.New("a page for people came instead of an answer")
)

// What is read of an answer that is one document, of one that is a stream, and of
// an error, in bytes. A stream takes some hundred for every word.
const (
	answerLimit = 64 << 20
	streamLimit = 256 << 20
	errorLimit  = 64 << 10
)

var errEndless = fmt.Errorf("the answer is larger than %d MB", streamLimit>>20)

// attempt sends the request once.
func (c *Client) attempt(ctx context.Context, req Request, key string, reader Reader) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if c.opts.Timeout > 0 {
		defer time.AfterFunc(c.opts.Timeout, func() { cancel(errWhole) }).Stop()
	}
	touch := func() {}
	if c.opts.Idle > 0 {
		timer := time.AfterFunc(c.opts.Idle, func() { cancel(errIdle) })
		defer timer.Stop()
		touch = func() { timer.Reset(c.opts.Idle) }
	}
	err := c.exchange(ctx, req, key, reader, touch)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (c *Client) exchange(ctx context.Context, req Request, key string, reader Reader, touch func()) error {
	method, body := http.MethodGet, io.Reader(nil)
	if req.Body != nil {
		method, body = http.MethodPost, bytes.NewReader(req.Body)
	}
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.base.String(), "/")+req.Path, body)
	if err != nil {
		return err
	}
	maps.Copy(r.Header, c.opts.Header)
	r.Header.Set("Accept", "text/event-stream, application/json")
	r.Header.Set("User-Agent", "sess")
	// It is not sent, and says that the request may be: a connection that the
	// provider has given up since it was last used costs nobody a pause.
	r.Header["Idempotency-Key"] = []string{}
	if req.Body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		c.opts.Authorize(r.Header, key)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // all that matters of it was read
	touch()
	stream := &touching{Reader: resp.Body, touch: touch, left: streamLimit}
	if resp.StatusCode != http.StatusOK {
		return readStatus(resp, io.LimitReader(stream, errorLimit))
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch kind {
	case "text/html":
		return errPage
	case "application/json":
		data, err := io.ReadAll(io.LimitReader(stream, answerLimit+1))
		switch {
		case err != nil:
			return err
		case len(data) > answerLimit:
			return fmt.Errorf("the answer is larger than %d MB", answerLimit>>20)
		}
		err = reader.Event(Event{Data: inUTF8(data), Whole: true})
		if errors.Is(err, ErrDone) {
			return nil
		}
		if err != nil {
			return err
		}
		return reader.End()
	}
	err = readEvents(stream, reader.Event)
	switch {
	case errors.Is(err, ErrDone):
		return nil
	case err != nil:
		return err
	}
	return reader.End()
}

// touching tells of every read that brought something, and ends what has no end.
type touching struct {
	io.Reader
	touch func()
	left  int
}

func (t *touching) Read(p []byte) (int, error) {
	if t.left <= 0 {
		return 0, errEndless
	}
	n, err := t.Reader.Read(p[:min(len(p), t.left)])
	if n > 0 {
		t.touch()
	}
	t.left -= n
	return n, err
}

// wait waits for a pause to pass, or for the end of ctx.
func wait(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
