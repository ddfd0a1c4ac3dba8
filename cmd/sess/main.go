// Command sess is the one binary: the command line, the chat, and, run again
// by itself, each bundled plugin. It only wires the other packages together.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

func main() {
	// Files are made private by those who make them; this is for what libraries
	// make, such as the sockets of plugins.
	restrict()
	// The first signal lets work end in order, the second one ends the program.
	ends := []os.Signal{syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		ends = append(ends, syscall.SIGHUP)
	}
	ctx := endedBy(ends...)
	// Who writes to a pipe that nobody reads gets an error instead of being
	// killed: a turn that runs is to end in order.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, cancel := context.WithCancel(ctx)
	a := &app{
		args: os.Args[1:], stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, environ: os.Environ(),
		interrupts: newInterrupts(cancel),
	}
	os.Exit(a.run(ctx))
}

// endedBy is a context that ends at the first of these signals. When it has ended
// the next one is deadly: with [signal.NotifyContext] one that comes at once is
// lost.
func endedBy(ends ...os.Signal) context.Context {
	ctx, end := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, ends...)
	go func() {
		first := <-signals
		signal.Stop(signals)
		end(fmt.Errorf("%s signal received", first))
	}()
	return ctx
}

// interrupts decides what Ctrl-C ends: the program, or in a chat at a terminal
// only the answer that is being written.
type interrupts struct {
	mu   sync.Mutex      // guards what follows
	to   chan<- struct{} // nil: the program ends
	over chan struct{}   // closed when to is given back
}

func newInterrupts(end func()) *interrupts {
	i := &interrupts{}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt)
	go func() {
		i.pass(signals)
		signal.Stop(signals) // the next one is deadly
		end()
	}()
	return i
}

// pass hands signals to whoever takes them. It returns at the first one that
// nobody does.
func (i *interrupts) pass(signals <-chan os.Signal) {
	for range signals {
		i.mu.Lock()
		to, over := i.to, i.over
		i.mu.Unlock()
		if to == nil {
			return
		}
		select {
		case to <- struct{}{}:
		case <-over:
			return
		}
	}
}

// take sends further interrupts to a channel, until giveBack is called; one that
// was not received by then ends the program.
func (i *interrupts) take(to chan<- struct{}) (giveBack func()) {
	if i == nil {
		return func() {}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	over := make(chan struct{})
	i.to, i.over = to, over
	return sync.OnceFunc(func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.to = nil
		close(over)
	})
}
