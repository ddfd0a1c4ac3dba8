package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"sess/plugin"
)

// Options say where the gateway is: Socket, or URL and Token.
type Options struct {
	// Socket is the path of its unix socket.
	Socket string
	// URL is its address, "http://127.0.0.1:7777"; Token lets in.
	URL, Token string
}

// Client is a connection to a gateway. Safe for concurrent use. Close it.
type Client struct {
	where string // for messages, as is hint
	hint  string
	wire  wire
	read  chan struct{} // closed when nothing is read any more

	writing chan struct{} // holds a value while a message is written

	mu      sync.Mutex // guards what follows
	last    int64      // id of a call
	calls   map[string]*call
	subs    map[string]*Subscription
	notices func([]string) // may be nil
	closed  bool
	failure error // why the connection has ended; nil while it lives
}

var _ plugin.Dispatcher = (*Client)(nil)

// wire carries messages.
type wire interface {
	recv() ([]byte, error)
	// send writes a message. When ctx ends meanwhile, the connection is of no use
	// any more.
	send(ctx context.Context, message []byte) error
	close() error
}

// call waits for its answer.
type call struct {
	size   int // of the request, in bytes
	steps  chan plugin.Progress
	answer chan answer       // has room for it
	files  chan *fileRequest // has room for the one that may be open
	// first sees a good answer before anything that was sent after it; it may be
	// nil.
	first func(result json.RawMessage)
}

type answer struct {
	result json.RawMessage
	err    error
}

// Dial connects. A gateway that is not there is unavailable, one that does not
// take the token denied. ctx bounds the connecting only.
func Dial(ctx context.Context, o Options) (*Client, error) {
	c := &Client{read: make(chan struct{}), writing: make(chan struct{}, 1), calls: map[string]*call{}, subs: map[string]*Subscription{}}
	var err error
	switch {
	case (o.Socket == "") == (o.URL == ""):
		return nil, plugin.Errorf(plugin.Usage, "give either a socket or a URL of the gateway")
	case o.Socket != "":
		c.where, c.hint = o.Socket, hintHere
		c.wire, err = dialSocket(ctx, o.Socket)
	default:
		c.where, c.hint = o.URL, hintAway
		c.wire, err = dialWeb(ctx, o.URL, o.Token)
	}
	if err != nil {
		return nil, err
	}
	go func() {
		defer close(c.read)
		c.fail(c.receive())
	}()
	return c, nil
}

// unreachable is the error for a gateway that cannot be connected to.
func unreachable(where, hint string, err error) error {
	return plugin.Errorf(plugin.Unavailable, "cannot reach the gateway at %s: %w", where, err).WithHint("%s", hint)
}

// What can be done about a gateway that is not there: on this machine, and at a
// URL, which may be anywhere.
const (
	hintHere = "sess gateway status tells whether it runs, sess gateway start starts it"
	hintAway = "is it running, and at this address? On its machine, sess gateway status tells"
)

// Close ends the connection, and with it the calls that run and all
// subscriptions.
func (c *Client) Close() error {
	c.mu.Lock()
	again := c.closed
	c.closed = true
	c.mu.Unlock()
	if again {
		return nil
	}
	err := c.wire.close()
	<-c.read
	return err
}

// message is whatever the gateway sends.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *failure        `json:"error"`
}

type failure struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    struct {
		Code    plugin.Code       `json:"code"`
		Hint    string            `json:"hint"`
		Details map[string]string `json:"details"`
	} `json:"data"`
}

func (f *failure) err() *plugin.Error {
	e := &plugin.Error{Code: f.Data.Code, Message: f.Message, Hint: f.Data.Hint, Details: f.Data.Details}
	if e.Code == "" { // not one of our gateways
		e.Code = plugin.Internal
		for _, info := range plugin.Codes() {
			if info.JSONRPC == f.Code {
				e.Code = info.Code
			}
		}
	}
	return e
}

// receive passes on what the gateway sends, until it sends no more.
func (c *Client) receive() error {
	for {
		line, err := c.wire.recv()
		if err != nil {
			return err
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			return fmt.Errorf("what it sent is not JSON-RPC: %w", err)
		}
		switch {
		case m.Method != "":
			c.told(m.Method, m.Params)
		case m.Error != nil && isNull(m.ID):
			if err := c.refused(m.Error.err()); err != nil {
				return err
			}
		default:
			c.answered(&m)
		}
	}
}

// OnNotices sets who hears the warnings that belong to answers without room for
// them: bare data, as of a verb that only reads. f hears them before the call
// returns; it must not use the client.
func (c *Client) OnNotices(f func(notices []string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notices = f
}

func isNull(id json.RawMessage) bool { return len(id) == 0 || string(id) == "null" }

func (c *Client) answered(m *message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting := c.calls[string(m.ID)]
	if waiting == nil {
		return // it was given up
	}
	delete(c.calls, string(m.ID))
	if m.Error != nil {
		waiting.answer <- answer{err: m.Error.err()}
		return
	}
	if waiting.first != nil {
		waiting.first(m.Result)
	}
	waiting.answer <- answer{result: m.Result}
}

// refused takes an error that belongs to no call: of a message that was too
// large to be read, or of the whole connection.
func (c *Client) refused(e *plugin.Error) error {
	limit, err := strconv.Atoi(e.Details["limit"])
	if err != nil {
		return e
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, waiting := range c.calls {
		if waiting.size > limit {
			delete(c.calls, id)
			waiting.answer <- answer{err: e}
		}
	}
	return nil
}

// told takes a notification. One that nobody waits for is dropped.
func (c *Client) told(method string, params json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch method {
	case "progress":
		var p struct {
			RequestID json.RawMessage `json:"requestId"`
			Stage     string          `json:"stage"`
			Done      int64           `json:"done"`
			Total     int64           `json:"total"`
			Unit      string          `json:"unit"`
		}
		if json.Unmarshal(params, &p) != nil {
			return
		}
		if waiting := c.calls[string(p.RequestID)]; waiting != nil {
			select {
			case waiting.steps <- plugin.Progress{Stage: p.Stage, Done: p.Done, Total: p.Total, Unit: p.Unit}:
			default: // the next one tells more
			}
		}
	case "file":
		var p fileRequest
		if json.Unmarshal(params, &p) != nil {
			return
		}
		if waiting := c.calls[string(p.RequestID)]; waiting != nil {
			select {
			case waiting.files <- &p:
			default: // it asks for one thing at a time
			}
		}
	case "notices":
		var p struct {
			Notices []string `json:"notices"`
		}
		if json.Unmarshal(params, &p) == nil && c.notices != nil {
			c.notices(p.Notices)
		}
	case "event":
		var p struct {
			Subscription string `json:"subscription"`
			Event        Event  `json:"event"`
		}
		if json.Unmarshal(params, &p) != nil {
			return
		}
		if s := c.subs[p.Subscription]; s != nil {
			s.add(p.Event)
		}
	}
}

// fail ends everything that waits.
func (c *Client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, said := errors.AsType[*plugin.Error](err)
	switch {
	case c.closed:
		e = plugin.Errorf(plugin.Unavailable, "the connection to the gateway at %s was closed", c.where)
	case !said:
		e = plugin.Errorf(plugin.Unavailable, "the gateway at %s has gone: %w", c.where, err).
			WithHint("%s; look whether it was done before you try again", c.hint)
	}
	c.failure = e
	for id, waiting := range c.calls {
		delete(c.calls, id)
		waiting.answer <- answer{err: e}
	}
	for id, s := range c.subs {
		delete(c.subs, id)
		close(s.over)
	}
}

// lastWords is how long a gateway that takes no more may go on to speak.
const lastWords = time.Second

// abandon ends a connection that nothing can be sent to any more. What the gateway
// says last is a better reason for that than ours.
func (c *Client) abandon(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lastWords)
	defer cancel()
	select {
	case <-c.read:
	case <-ctx.Done():
		_ = c.wire.close() // then the reader ends
		<-c.read
	}
}

// cancelTime is how long the gateway may take to answer a call that was
// cancelled: what it has come to is worth knowing.
const cancelTime = 3 * time.Second

// Call calls a gateway method; params are anything that becomes a JSON object, or
// nil. When ctx ends the gateway is told to cancel the call. Errors are
// [*plugin.Error] values with code, hint and details as the gateway has them.
func (c *Client) Call(ctx context.Context, method string, params any, progress plugin.ProgressFunc) (json.RawMessage, error) {
	return c.call(ctx, method, params, callOptions{progress: progress})
}

// CallWithFiles is Call for a method whose params say that the gateway may use
// files of the caller.
func (c *Client) CallWithFiles(ctx context.Context, method string, params any, progress plugin.ProgressFunc, files plugin.Files) (json.RawMessage, error) {
	return c.call(ctx, method, params, callOptions{progress: progress, files: files})
}

type callOptions struct {
	progress plugin.ProgressFunc
	first    func(json.RawMessage) // as in call
	files    plugin.Files
}

func (c *Client) call(ctx context.Context, method string, params any, o callOptions) (json.RawMessage, error) {
	waiting := &call{steps: make(chan plugin.Progress, 16), answer: make(chan answer, 1), files: make(chan *fileRequest, 1), first: o.first}
	lent := &lent{files: o.files}
	defer lent.end()
	c.mu.Lock()
	c.last++
	id := c.last
	c.mu.Unlock()
	request, err := encode(request{Version: "2.0", ID: id, Method: method, Params: params})
	if err != nil {
		return nil, plugin.Errorf(plugin.Usage, "the params of %s are not JSON: %w", method, err)
	}
	waiting.size = len(request)
	key := strconv.FormatInt(id, 10)
	c.mu.Lock()
	if c.failure != nil {
		defer c.mu.Unlock()
		return nil, c.failure
	}
	c.calls[key] = waiting
	c.mu.Unlock()
	switch err := c.send(ctx, request); {
	case errors.Is(err, errNotSent):
		c.forget(key)
		return nil, c.outcome(ctx, method, &plugin.Error{Code: plugin.Unavailable})
	case err != nil:
		c.abandon(ctx)
	}
	for {
		select {
		case step := <-waiting.steps:
			o.progress.Report(step)
		case wanted := <-waiting.files:
			if err := c.answerFile(ctx, lent.serve(ctx, wanted)); err != nil {
				c.abandon(ctx)
			}
		case a := <-waiting.answer:
			for len(waiting.steps) > 0 {
				o.progress.Report(<-waiting.steps)
			}
			return a.result, c.outcome(ctx, method, a.err)
		case <-ctx.Done():
			return c.cancel(ctx, method, id, waiting)
		}
	}
}

// answerFile tells the gateway what became of what it wanted of a file. When ctx
// has ended nothing is told: the call is cancelled next.
func (c *Client) answerFile(ctx context.Context, a fileAnswer) error {
	message, err := encode(request{Version: "2.0", Method: "files.answer", Params: a})
	if err == nil {
		err = c.send(ctx, message)
	}
	if errors.Is(err, errNotSent) {
		return nil
	}
	return err
}

// cancel asks the gateway to end a call, and waits for what has come of it.
func (c *Client) cancel(ctx context.Context, method string, id int64, waiting *call) (json.RawMessage, error) {
	end, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelTime)
	defer stop()
	note, err := encode(request{Version: "2.0", Method: "rpc.cancel", Params: map[string]int64{"id": id}})
	if err == nil {
		err = c.send(end, note)
	}
	if err == nil {
		select {
		case a := <-waiting.answer:
			return a.result, c.outcome(ctx, method, a.err)
		case <-end.Done():
		}
	}
	c.forget(strconv.FormatInt(id, 10))
	return nil, c.outcome(ctx, method, &plugin.Error{Code: plugin.Unavailable})
}

// forget gives up a call: its answer is not waited for.
func (c *Client) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, id)
}

// outcome is the error of a call. One that only says that the caller's context
// has ended gets that as its cause.
func (c *Client) outcome(ctx context.Context, method string, err error) error {
	if err == nil {
		return nil
	}
	if own := ctx.Err(); own != nil && errors.Is(err, &plugin.Error{Code: plugin.Unavailable}) {
		text := "was cancelled"
		if errors.Is(own, context.DeadlineExceeded) {
			text = "did not answer before the deadline"
		}
		return &plugin.Error{Code: plugin.Unavailable, Message: fmt.Sprintf("%s %s", method, text), Err: own}
	}
	return err
}

type request struct {
	Version string `json:"jsonrpc"`
	ID      int64  `json:"id,omitempty"`
	Method  string `json:"method"`
	Params  any    `json:"params,omitempty"`
}

// encode writes a message in one line.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// errNotSent means that the caller's context has ended before anything was sent.
var errNotSent = errors.New("nothing was sent")

// send writes a message. One that was begun is finished when ctx ends, unless the
// gateway takes no more: half a message would spoil the connection for others.
func (c *Client) send(ctx context.Context, message []byte) error {
	if ctx.Err() != nil {
		return errNotSent
	}
	select {
	case c.writing <- struct{}{}:
		defer func() { <-c.writing }()
	case <-ctx.Done():
		return errNotSent
	}
	finish, give := context.WithCancel(context.WithoutCancel(ctx))
	defer give()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastWords, give) })()
	return c.wire.send(finish, message)
}

// dispatchParams are those of gateway.dispatch.
type dispatchParams struct {
	Argv      []string `json:"argv"`
	Agent     string   `json:"agent,omitempty"`
	Project   string   `json:"project,omitempty"`
	Session   string   `json:"session,omitempty"`
	Cwd       string   `json:"cwd,omitempty"`
	RequestID string   `json:"requestId,omitempty"`
	Files     bool     `json:"files,omitempty"`
}

// Dispatch answers a call whose first word is a command. Who the caller is, and
// whether the call is made in a turn, is the gateway's to say.
func (c *Client) Dispatch(ctx context.Context, call plugin.Call, progress plugin.ProgressFunc) (plugin.Result, error) {
	out, err := c.CallWithFiles(ctx, "gateway.dispatch", dispatchParams{
		Argv: call.Argv, Agent: call.Agent, Project: call.Project, Session: call.Session,
		Cwd: call.Cwd, RequestID: call.RequestID, Files: call.Input != nil || call.Output != nil,
	}, progress, streams{call.Input, call.Output})
	if err != nil {
		return plugin.Result{}, err
	}
	var whole struct {
		Text    string          `json:"text"`
		Data    json.RawMessage `json:"data"`
		Notices []string        `json:"notices"`
		Page    *plugin.Page    `json:"page"`
	}
	if err := json.Unmarshal(out, &whole); err != nil {
		return plugin.Result{}, plugin.Errorf(plugin.Internal, "the gateway's answer is no result: %w", err)
	}
	if string(whole.Data) == "null" {
		whole.Data = nil
	}
	return plugin.Result{Text: whole.Text, Data: whole.Data, Notices: whole.Notices, Page: whole.Page}, nil
}
