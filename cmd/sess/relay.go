package main

import (
	"context"
	"time"

	"sess/host"
	"sess/host/client"
	"sess/host/server"
)

// relayTime bounds each attempt to tell the gateway of an event, and how long
// the program's end waits for the last of them.
const relayTime = time.Second

// relay tells the gateway of the home, where one runs, of what happens in this
// process: whoever follows the gateway's events then sees conversations that run
// elsewhere too. A gateway that does not keep up misses some. Close it.
type relay struct {
	socket string
	queue  chan server.Event
	stop   chan struct{} // closed when nothing more is told
	done   chan struct{} // closed when the last was passed on
}

func newRelay(socket string) *relay {
	r := &relay{socket: socket, queue: make(chan server.Event, 64), stop: make(chan struct{}), done: make(chan struct{})}
	go r.run()
	return r
}

// tell never waits.
func (r *relay) tell(e server.Event) {
	select {
	case r.queue <- e:
	default:
	}
}

// close waits a moment for what was told.
func (r *relay) close() {
	close(r.stop)
	select {
	case <-r.done:
	case <-time.After(relayTime):
	}
}

func (r *relay) run() {
	defer close(r.done)
	var c *client.Client
	defer func() {
		if c != nil {
			_ = c.Close() // nothing is expected of it any more
		}
	}()
	for {
		select {
		case e := <-r.queue:
			c = r.pass(c, e)
			continue
		default:
		}
		select {
		case e := <-r.queue:
			c = r.pass(c, e)
		case <-r.stop:
			if len(r.queue) == 0 {
				return
			}
		}
	}
}

// pass sends an event over c, or over a new connection where c is nil or has
// ended. It returns the one to use next, nil where no gateway listens: then the
// next event looks for one again.
func (r *relay) pass(c *client.Client, e server.Event) *client.Client {
	ctx, cancel := context.WithTimeout(context.Background(), relayTime)
	defer cancel()
	if c != nil {
		if _, err := c.Call(ctx, host.RelayMethod, e, nil); err == nil {
			return c
		}
		_ = c.Close() // it has failed already
	}
	c, err := client.Dial(ctx, client.Options{Socket: r.socket})
	if err != nil {
		return nil
	}
	if _, err := c.Call(ctx, host.RelayMethod, e, nil); err != nil {
		_ = c.Close()
		return nil
	}
	return c
}
