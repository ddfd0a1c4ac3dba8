package tests

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sess/host"
	"sess/host/server"
)

// served is a gateway in this process, so that the race detector watches it. Its
// plugins are processes of the binary under test.
type served struct {
	t     testing.TB
	host  *host.Host
	url   string
	token string
}

// serve begins to serve a user's home, until the test ends.
func serve(t testing.TB, u *user) *served {
	t.Helper()
	manifest, err := os.ReadFile(filepath.Join(root, "plugin.json"))
	if err != nil {
		t.Fatal(err)
	}
	h, err := host.Open(context.WithoutCancel(t.Context()), host.Options{
		Home: u.home, Exe: u.bin, Builtins: [][]byte{manifest}, Background: true, UserHome: u.dir, RuntimeDir: u.tmp, Environ: u.env,
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &served{t: t, host: h, token: strings.Repeat("token-of-the-tests-", 2)}
	srv, err := server.New(h, server.Options{Token: s.token, StartedAt: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.url = "http://" + listener.Addr().String()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ctx, listener) }()
	t.Cleanup(func() {
		stop()
		err := <-ended
		end, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := errors.Join(err, h.Close(end)); err != nil {
			t.Errorf("the gateway's end: %v", err)
		}
	})
	return s
}

// ask sends a request with the token and returns the status and the body. body
// is sent as JSON unless it is nil.
func (s *served) ask(method, path string, body any) (int, []byte, http.Header) {
	s.t.Helper()
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			s.t.Fatal(err)
		}
		content = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, content)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp.StatusCode, answer, resp.Header
}

// route calls a verb by its route: GET with a query where it only reads, and
// otherwise POST with a body.
func (s *served) route(path string, read bool, fields map[string]any) (status int, body []byte) {
	s.t.Helper()
	if !read {
		status, body, _ = s.ask("POST", path, fields)
		return status, body
	}
	query := url.Values{}
	for key, value := range fields {
		list, ok := value.([]any)
		if !ok {
			list = []any{value}
		}
		for _, item := range list {
			query.Add(key, fmt.Sprint(item))
		}
	}
	status, body, _ = s.ask("GET", path+"?"+query.Encode(), nil)
	return status, body
}
