package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coder/websocket"

	"sess/plugin"
)

// socket has one message in each line.
type socket struct {
	conn net.Conn
	in   *bufio.Reader
}

func dialSocket(ctx context.Context, path string) (wire, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, unreachable(path, hintHere, err)
	}
	return &socket{conn, bufio.NewReader(conn)}, nil
}

func (s *socket) recv() ([]byte, error) {
	line, err := s.in.ReadBytes('\n')
	if err != nil {
		return nil, err // also for a line without an end
	}
	return line, nil
}

func (s *socket) send(ctx context.Context, message []byte) error {
	stop := context.AfterFunc(ctx, func() {
		_ = s.conn.SetWriteDeadline(time.Unix(1, 0)) // the write tells
	})
	defer stop()
	_, err := s.conn.Write(message)
	return err
}

func (s *socket) close() error { return s.conn.Close() }

// web has one message in each message of a WebSocket.
type web struct {
	conn *websocket.Conn
	life context.Context
	end  context.CancelFunc
}

func dialWeb(ctx context.Context, address, token string) (wire, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, plugin.Errorf(plugin.Usage, "%q is no address of a gateway", address).
			WithHint("write it as sess gateway status prints it, such as https://host:7777")
	}
	conn, resp, err := websocket.Dial(ctx, strings.TrimSuffix(address, "/")+"/rpc", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + token}},
	})
	if err != nil {
		return nil, refusal(address, resp, err)
	}
	conn.SetReadLimit(-1) // answers may be large
	w := &web{conn: conn}
	w.life, w.end = context.WithCancel(context.Background())
	return w, nil
}

// refusal is what the gateway said instead of a WebSocket, if it said anything.
func refusal(address string, resp *http.Response, err error) error {
	if resp == nil {
		if e, ok := errors.AsType[*url.Error](err); ok { // what it names is known
			err = e.Err
		}
		return unreachable(address, hintAway, err)
	}
	var said struct {
		Error string
		Code  plugin.Code
		Hint  string
	}
	if body, _ := io.ReadAll(resp.Body); json.Unmarshal(body, &said) == nil && said.Code != "" {
		if resp.StatusCode == http.StatusUnauthorized { // its hint is for those who write headers
			said.Hint = "on the gateway's machine, sess gateway token prints it"
		}
		return &plugin.Error{Code: said.Code, Message: said.Error, Hint: said.Hint}
	}
	return plugin.Errorf(plugin.Unavailable, "%s answered %s: it is no gateway of this program", address, resp.Status).
		WithHint("sess gateway status, where the gateway runs, prints its address")
}

func (w *web) recv() ([]byte, error) {
	_, message, err := w.conn.Read(w.life)
	return message, err
}

func (w *web) send(ctx context.Context, message []byte) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.life, cancel)()
	return w.conn.Write(ctx, websocket.MessageText, message)
}

// goodbyeTime is how long the gateway may take to take leave.
const goodbyeTime = time.Second

func (w *web) close() error {
	goodbye := time.AfterFunc(goodbyeTime, w.end)
	defer w.end()
	defer goodbye.Stop()
	return w.conn.Close(websocket.StatusNormalClosure, "")
}
