package supervise

import (
	"context"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
)

// lingering is how long the pipes of a process that is gone are still read: a
// process that left its group may hold their other ends open for ever.
const lingering = 250 * time.Millisecond

// process runs one plugin process for go-plugin, which learns of it no more
// than the handshake and the end.
type process struct {
	cmd    *exec.Cmd
	expect expectation
	out    *output

	lifeline       *os.File // our end of the plugin's stdin
	stdout, stderr *os.File // our ends
	handshake      *io.PipeReader
	deliver        *io.PipeWriter
	done           chan struct{} // closed when all below is final

	mu     sync.Mutex // guards below; held while a signal is sent
	fault  error      // what was wrong with the handshake
	killed bool
	reaped bool
}

var _ runner.Runner = (*process)(nil)

// newProcess prepares a process; Start starts it. cmd brings path, arguments,
// folder and environment.
func newProcess(cmd *exec.Cmd, expect expectation, out *output) *process {
	p := &process{cmd: cmd, expect: expect, out: out, done: make(chan struct{})}
	p.handshake, p.deliver = io.Pipe()
	return p
}

// attach makes go-plugin use p.
func (p *process) attach(config *goplugin.ClientConfig) {
	// Off is more than quiet: it keeps go-plugin from parsing the plugin's
	// lines, at which it can panic.
	config.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Off})
	config.SyncStdout = &printed{out: p.out}
	config.SyncStderr = &printed{out: p.out}
	config.RunnerFunc = func(_ hclog.Logger, handshake *exec.Cmd, _ string) (runner.Runner, error) {
		p.cmd.Env = append(p.cmd.Env, handshake.Env...)
		return p, nil
	}
}

// Start starts the process in a group of its own.
func (p *process) Start(context.Context) error {
	var files [6]*os.File // stdin, stdout and stderr: the reading end, then the writing end
	closeAll := func() {
		for _, f := range files {
			if f != nil {
				_ = f.Close()
			}
		}
	}
	for i := 0; i < len(files); i += 2 {
		var err error
		if files[i], files[i+1], err = os.Pipe(); err != nil {
			closeAll()
			return err
		}
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = files[0], files[3], files[5]
	ownGroup(p.cmd)
	if err := p.exec(); err != nil {
		closeAll()
		return err
	}
	for _, theirs := range []*os.File{files[0], files[3], files[5]} {
		_ = theirs.Close()
	}
	p.lifeline, p.stdout, p.stderr = files[1], files[2], files[4]
	go p.watch()
	return nil
}

func (p *process) exec() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.killed {
		return os.ErrProcessDone
	}
	if err := p.cmd.Start(); err != nil {
		return permanent{explainExec(p.expect.id, p.cmd.Path, err)}
	}
	return nil
}

// watch reads what the process writes, and reaps it.
func (p *process) watch() {
	defer close(p.done)
	var reading sync.WaitGroup
	reading.Go(p.readStdout)
	reading.Go(func() { p.out.read(p.stderr) })

	p.reap()

	read := make(chan struct{})
	go func() {
		reading.Wait()
		close(read)
	}()
	select {
	case <-read:
	case <-time.After(lingering):
	}
	for _, f := range []*os.File{p.lifeline, p.stdout, p.stderr} {
		_ = f.Close()
	}
	_ = p.deliver.Close()
	<-read
	p.out.finish()
}

// reap waits for the end. Between it and the reaping the number of the process,
// and so of its group, is still its own: what is left of the group is killed
// then.
func (p *process) reap() {
	ended := awaitExit(p.cmd.Process)
	if !ended {
		_ = p.cmd.Wait() // the state tells
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if ended {
		killGroup(p.cmd.Process)
		_ = p.cmd.Wait()
	}
	p.reaped = true
}

// readStdout passes the handshake on; what follows is output like any other.
// A process that begins with something else is ended at once.
func (p *process) readStdout() {
	first := true
	readLines(p.stdout, func(line string, cut bool) {
		if !first {
			p.out.line(line, cut)
			return
		}
		first = false
		if err := p.expect.check(line); err != nil {
			p.mu.Lock()
			p.fault = permanent{err}
			p.mu.Unlock()
			p.kill()
			return
		}
		_, _ = io.WriteString(p.deliver, strings.TrimSpace(line)+"\n")
		_ = p.deliver.Close()
	})
}

// kill ends the process and its group, or keeps it from starting. It sends
// nothing once the process is reaped.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killed = true
	if p.cmd.Process != nil && !p.reaped {
		killGroup(p.cmd.Process)
	}
}

// failure is the fault of the handshake, if there was one.
func (p *process) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault
}

// ended is how the process ended and, unless all was well, why, in one line;
// valid when done is closed.
func (p *process) ended() string {
	state := p.cmd.ProcessState
	if cause := p.out.cause(); cause != "" && !state.Success() {
		return state.String() + ": " + cause
	}
	return state.String()
}

// Kill ends the process group.
func (p *process) Kill(context.Context) error {
	p.kill()
	return nil
}

// Wait returns when the process is reaped and its output read.
func (p *process) Wait(context.Context) error {
	<-p.done
	return nil
}

// Stdout is the handshake, and nothing else.
func (p *process) Stdout() io.ReadCloser { return p.handshake }

// Stderr is empty: the lines are read here.
func (p *process) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

// Name is the path of the program.
func (p *process) Name() string { return p.cmd.Path }

// ID is the process number, empty before the start.
func (p *process) ID() string {
	if p.cmd.Process == nil {
		return ""
	}
	return strconv.Itoa(p.cmd.Process.Pid)
}

// Diagnose is the last line that the process wrote.
func (p *process) Diagnose(context.Context) string { return p.out.cause() }

// PluginToHost changes nothing: both see the same folders.
func (p *process) PluginToHost(network, address string) (string, string, error) {
	return network, address, nil
}

// HostToPlugin changes nothing.
func (p *process) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}

// environment is what a plugin's process gets of the host's environment: what
// programs need to run at all, and no settings or secrets. extra is added to it.
func environment(host, extra []string) []string {
	passed := []string{
		"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TZDIR", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR",
		// what Windows programs do not run without
		"SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "TEMP", "TMP",
		"USERNAME", "USERPROFILE", "HOMEDRIVE", "HOMEPATH", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA",
		// what a build that is measured reports to
		"GOCOVERDIR", "GORACE",
	}
	env := []string{} // never nil, which would mean the whole of this process's
	for _, entry := range host {
		name, _, _ := strings.Cut(entry, "=")
		name = strings.ToUpper(name) // Windows knows them in any case
		if slices.Contains(passed, name) || strings.HasPrefix(name, "LC_") {
			env = append(env, entry)
		}
	}
	return append(env, extra...)
}
