// Command sess is the one binary: the command line, the chat, and, run again
// by itself, each bundled plugin. It only wires the other packages together.
package main

import (
	"context"
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
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	ctx, cancel := context.WithCancel(ctx)
	a := &app{
		args: os.Args[1:], stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, environ: os.Environ(),
		interrupts: newInterrupts(cancel),
	}
	os.Exit(a.run(ctx))
}

// interrupts decides what Ctrl-C ends: the program, or in a chat at a terminal
// only the answer that is being written.
type interrupts struct {
	mu sync.Mutex
	to chan<- struct{} // nil: the program ends
}

func newInterrupts(end func()) *interrupts {
	i := &interrupts{}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt)
	go func() {
		for range signals {
			i.mu.Lock()
			to := i.to
			i.mu.Unlock()
			if to == nil {
				signal.Stop(signals) // the next one is deadly
				end()
				return
			}
			to <- struct{}{}
		}
	}()
	return i
}

// take sends further interrupts to a channel; nil gives them back. Whoever
// takes them keeps receiving until then.
func (i *interrupts) take(to chan<- struct{}) {
	if i == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.to = to
}
