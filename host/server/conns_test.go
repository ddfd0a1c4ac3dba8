package server

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
)

// counted counts its connections.
type counted struct {
	net.Listener
	open, most atomic.Int32
}

type countedConn struct {
	net.Conn
	end func()
}

func (c *counted) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if n := c.open.Add(1); n > c.most.Load() {
		c.most.Store(n) // one goroutine accepts
	}
	return &countedConn{conn, sync.OnceFunc(func() { c.open.Add(-1) })}, nil
}

func (c *countedConn) Close() error {
	c.end()
	return c.Conn.Close()
}

// Connections beyond the bound wait, and are served when others have gone.
func TestServeBoundsConnections(t *testing.T) {
	t.Parallel()
	s, err := New(newRPCHost(), Options{Token: testToken})
	if err != nil {
		t.Fatal(err)
	}
	s.conns = 3
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	listener, done := &counted{Listener: l}, make(chan error, 1)
	go func() { done <- s.Serve(ctx, listener) }()
	var clients sync.WaitGroup
	for range 40 {
		clients.Go(func() {
			client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			resp, err := client.Get("http://" + l.Addr().String() + "/healthz")
			if err != nil {
				t.Error(err)
				return
			}
			if err := resp.Body.Close(); err != nil || resp.StatusCode != 200 {
				t.Errorf("status %d, %v", resp.StatusCode, err)
			}
		})
	}
	clients.Wait()
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if most := listener.most.Load(); most > 3 {
		t.Errorf("%d connections were open at a time, want 3 at most", most)
	}
}
