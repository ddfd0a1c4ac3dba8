package main

import (
	"errors"
	"io"
	"sync"
	"syscall"

	"sess/plugin"
	"sess/surfaces"
)

// exitPipe is the status when nobody reads the output any more: the one that a
// shell shows of a program that SIGPIPE ended.
const exitPipe = 141

// output is stdout. It remembers that something could not be written, since
// much of what is shown is written where an error has nowhere to go.
type output struct {
	w io.Writer

	mu     sync.Mutex // guards what follows
	err    error      // the first one
	broken func()     // called once, when err is set; may be nil
}

func (o *output) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := o.w.Write(p)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil && o.err == nil {
		o.err = err
		if o.broken != nil {
			o.broken()
		}
	}
	return n, err
}

// onFailure has f called at the first write that fails; f must not write.
func (o *output) onFailure(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.broken = f
}

// failure is what there is to tell, and the exit status, when something could
// not be written; nil and the status that was meant otherwise. A reader that has
// gone knows it.
func (o *output) failure(exit int) ([]byte, int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.err == nil:
		return nil, exit
	case errors.Is(o.err, syscall.EPIPE):
		return nil, exitPipe
	}
	err := plugin.AsError(o.err)
	err = plugin.Errorf(err.Code, "cannot write the output: %w", o.err).
		WithHint("what the command did stays done; send the output elsewhere")
	out := surfaces.RenderCLI(plugin.Result{}, err, surfaces.CLIOptions{Prog: prog})
	return out.Stderr, out.Exit
}
