package upstream_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"sess/plugin"
	"sess/plugin/upstream"
)

// collector keeps the data of the events, and is done with "[DONE]".
type collector struct {
	got   []string
	begun bool
}

func (c *collector) Event(e upstream.Event) error {
	text := string(e.Data)
	switch {
	case text == "[DONE]":
		return upstream.ErrDone
	case strings.HasPrefix(text, `{"error"`):
		return upstream.ParseError(e.Data)
	case e.Name != "":
		text = e.Name + "=" + text
	case e.Whole:
		text = "whole=" + text
	}
	c.got, c.begun = append(c.got, text), true
	return nil
}

func (c *collector) End() error  { return io.ErrUnexpectedEOF }
func (c *collector) Begun() bool { return c.begun }

// sent is what came of one request.
type sent struct {
	got     []string // by the last attempt
	notices []string
	tries   int
	err     *plugin.Error
	plain   error // an error that is none of the plugin's
}

func send(ctx context.Context, t *testing.T, o upstream.Options) sent {
	t.Helper()
	c, err := upstream.New(o)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	var s sent
	var last *collector
	err = c.Stream(ctx, upstream.Request{
		Model: "desk/m1", Path: "/chat", Body: []byte(`{}`), Notice: func(text string) { s.notices = append(s.notices, text) },
	}, func() upstream.Reader {
		s.tries++
		last = &collector{}
		return last
	})
	if last != nil {
		s.got = last.got
	}
	if e, ok := err.(*plugin.Error); ok {
		s.err = e
	} else {
		s.plain = err
	}
	return s
}

// script answers each request with the next step. It stands for the network where
// time is not real.
type script struct {
	mu    sync.Mutex
	steps []func(*http.Request) (*http.Response, error)
	seen  []*http.Request
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, r)
	if len(s.steps) == 0 {
		return nil, fmt.Errorf("the script has no answer to request %d", len(s.seen))
	}
	step := s.steps[0]
	s.steps = s.steps[1:]
	return step(r)
}

func answer(status int, header http.Header, body io.ReadCloser) (*http.Response, error) {
	if header == nil {
		header = http.Header{}
	}
	if header.Get("Content-Type") == "" {
		header.Set("Content-Type", "text/event-stream")
	}
	return &http.Response{StatusCode: status, Header: header, Body: body}, nil
}

// events answers with these events.
func events(data ...string) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) {
		var b strings.Builder
		for _, d := range data {
			fmt.Fprintf(&b, "data: %s\n\n", d)
		}
		return answer(200, nil, io.NopCloser(strings.NewReader(b.String())))
	}
}

// refuses answers with an error; the header is written as "Name: value".
func refuses(status int, body string, header ...string) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) {
		h := http.Header{"Content-Type": {"application/json"}}
		for _, line := range header {
			name, value, _ := strings.Cut(line, ": ")
			h.Set(name, value)
		}
		return answer(status, h, io.NopCloser(strings.NewReader(body)))
	}
}

// body is one that gives what is written to it, and ends with its request, as
// that of a real connection does.
type body struct {
	io.Reader
	close func() error
}

func (b body) Close() error { return b.close() }

// slowly answers with a body that write fills in its own time.
func slowly(write func(ctx context.Context, w io.Writer)) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		in, out := io.Pipe()
		stop := context.AfterFunc(r.Context(), func() { _ = out.CloseWithError(r.Context().Err()) })
		go func() {
			write(r.Context(), out)
			if stop() {
				_ = out.Close()
			}
		}()
		return answer(200, nil, body{in, in.Close})
	}
}
