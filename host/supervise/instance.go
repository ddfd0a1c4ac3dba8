package supervise

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	goplugin "github.com/hashicorp/go-plugin"

	"sess/plugin"
	"sess/plugin/wire"
)

// killGrace is what a drained process gets for ending by itself.
const killGrace = 2500 * time.Millisecond

// instance is one life of a plugin: a process that is connected and configured.
type instance interface {
	plugin.Plugin
	plugin.Provider
	// pid is the process number.
	pid() int
	// description is what Describe answered.
	description() plugin.Description
	// gone is closed when the process is.
	gone() <-chan struct{}
	// ended says how it ended and why, in one line, and last what it wrote last.
	ended() string
	last() []string
	// end makes the process end, by force once ctx is done, and returns when it
	// is gone.
	end(ctx context.Context)
	// release waits for the calls into the host that still run, and gives up
	// what the host keeps for the process, which must be gone.
	release()
}

// Step is a step of a plugin's start. The error of a start that failed has it as
// the detail [StepDetail].
type Step string

// The steps, in their order.
const (
	StepManifest  Step = "manifest"  // is the plugin made for this host
	StepChecksum  Step = "checksum"  // are its files those that were installed
	StepStart     Step = "start"     // does its program run
	StepHandshake Step = "handshake" // does it say how to reach it
	StepDescribe  Step = "describe"  // does it say what it is
	StepConfig    Step = "config"    // does it take its configuration
)

// StepDetail is the name of the detail that holds a [Step].
const StepDetail = "step"

// AtStep is err as an [*plugin.Error] that has the step.
func AtStep(err error, step Step) *plugin.Error {
	return plugin.AsError(err).WithDetail(StepDetail, string(step))
}

// running is the real instance.
type running struct {
	*wire.Client
	process *process
	client  *goplugin.Client
	desc    plugin.Description
	close   func() // of the runtime
	step    Step   // of its start
}

var _ instance = (*running)(nil)

func (r *running) pid() int                        { return r.process.cmd.Process.Pid }
func (r *running) description() plugin.Description { return r.desc }
func (r *running) gone() <-chan struct{}           { return r.process.done }
func (r *running) ended() string                   { return r.process.ended() }
func (r *running) last() []string                  { return r.process.out.last() }

func (r *running) end(ctx context.Context) {
	// Nothing in go-plugin's own end has a deadline: a plugin that is stopped
	// by a signal would keep it for ever.
	stop := context.AfterFunc(ctx, r.process.kill)
	defer stop()
	r.client.Kill()
	<-r.process.done
}

func (r *running) release() {
	if r.Client != nil {
		r.Client.Close()
	}
	if r.close != nil {
		r.close()
	}
}

// launchProcess starts the plugin's process, checks what it says of itself, and
// configures it, all before ctx ends. n numbers the instance.
func (s *Supervisor) launchProcess(ctx context.Context, n int) (instance, error) {
	m := s.cfg.Manifest
	if m.Protocol != plugin.ProtocolVersion {
		return nil, permanent{AtStep(plugin.Errorf(plugin.Unavailable,
			"plugin %s %s: its plugin.json says protocol %d, this host speaks %d", m.ID, m.Version, m.Protocol, plugin.ProtocolVersion).
			WithHint("install a version of the plugin made for protocol %d", plugin.ProtocolVersion), StepManifest)}
	}
	if err := CheckProgram(m.ID, s.cfg.Exe, s.cfg.SHA256); err != nil {
		return nil, permanent{err}
	}
	if s.cfg.Check != nil {
		if err := s.cfg.Check(); err != nil {
			return nil, permanent{AtStep(err, StepChecksum)}
		}
	}
	sockets, err := s.socketDir(ctx)
	if err != nil {
		return nil, err
	}

	argv := append(append(append([]string(nil), s.cfg.Guard...), s.cfg.Exe), s.cfg.Args...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = s.cfg.Dir
	if cmd.Dir == "" {
		cmd.Dir = filepath.Dir(s.cfg.Exe)
	}
	cmd.Env = environment(s.cfg.Environ, s.cfg.Env)
	expect := expectation{id: m.ID, version: m.Version, path: s.cfg.Exe, mux: m.UsesMux(), mtls: s.cfg.MTLS}
	r := &running{process: newProcess(cmd, expect, &output{log: s.log})}

	config := wire.ClientConfig(m.ID, s.log)
	config.AutoMTLS = s.cfg.MTLS
	config.GRPCBrokerMultiplex = m.UsesMux()
	config.StartTimeout = 2 * s.cfg.StartTimeout // ctx ends first, and explains better
	config.UnixSocketConfig = &goplugin.UnixSocketConfig{TempDir: sockets}
	r.process.attach(config)
	r.client = goplugin.NewClient(config)

	// The end of ctx ends the process, and with it whatever waits for it.
	stop := context.AfterFunc(ctx, r.process.kill)
	defer stop()
	if err := r.connect(ctx, s.cfg, n); err != nil {
		err = r.atStep(r.giveUp(ctx, s.cfg, err))
		s.mu.Lock()
		s.stderr = r.process.out.last()
		s.mu.Unlock()
		return nil, err
	}
	return r, nil
}

// atStep notes in the error of a start how far it came.
func (r *running) atStep(err error) error {
	if p, never := errors.AsType[permanent](err); never {
		return permanent{AtStep(p.error, r.step)}
	}
	return AtStep(err, r.step)
}

// connect brings a process from its start to its readiness.
func (r *running) connect(ctx context.Context, cfg Config, n int) error {
	var err error
	r.step = StepStart
	if r.Client, err = wire.Dispense(r.client); err != nil {
		if r.process.ID() != "" {
			r.step = StepHandshake
		}
		return err
	}
	known := false
	if cfg.Known != nil {
		r.desc, known = cfg.Known()
	}
	if !known {
		if err := r.describe(ctx, cfg); err != nil {
			return err
		}
	}
	if cfg.Unconfigured {
		return nil
	}
	r.step = StepConfig
	runtime, closeRuntime := cfg.NewRuntime(n)
	r.close = closeRuntime
	err = r.Client.Configure(ctx, cfg.Configuration, runtime)
	switch {
	case errors.Is(err, &plugin.Error{Code: plugin.Usage}): // it will not like it better next time
		return permanent{err}
	case err != nil:
		return refusal(cfg, "does not accept its configuration", err)
	case known && r.Client.Build() != r.desc.Build:
		return r.describe(ctx, cfg)
	}
	return nil
}

// describe asks the process what it is. A build other than the configured one is
// refused.
func (r *running) describe(ctx context.Context, cfg Config) error {
	var err error
	r.step = StepDescribe
	if r.desc, err = r.Client.Describe(ctx); err != nil {
		return refusal(cfg, "does not describe itself", err)
	}
	if cfg.Build != "" && r.desc.Build != cfg.Build {
		return permanent{plugin.Errorf(plugin.Unavailable, "plugin %s: %s is build %s, and this host is build %s",
			cfg.Manifest.ID, cfg.Exe, r.desc.Build, cfg.Build).
			WithHint("the program was replaced while the host ran: restart the host")}
	}
	return nil
}

// refusal says which plugin it was that answered a question of its start with an
// error; nil stays nil, and so does what says itself that there was no answer.
func refusal(cfg Config, what string, err error) error {
	if err == nil || errors.Is(err, wire.ErrStopped) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return plugin.AsError(fmt.Errorf("plugin %s %s: %w", cfg.Manifest.ID, what, err))
}

// giveUp ends a process that did not become ready, and says why it did not:
// what was seen of the process explains more than err, which only noticed.
func (r *running) giveUp(ctx context.Context, cfg Config, err error) error {
	id := cfg.Manifest.ID
	started := r.process.ID() != ""
	byItself := false
	if started {
		// Its end may be what err noticed, a little behind it.
		if errors.Is(err, wire.ErrStopped) || r.Client == nil {
			select {
			case <-r.process.done:
			case <-time.After(lingering):
			}
		}
		select {
		case <-r.process.done:
			byItself = ctx.Err() == nil
		default:
		}
		r.process.kill()
	}
	r.client.Kill()
	if started {
		<-r.process.done
	}
	r.release()
	if fault := r.process.failure(); fault != nil {
		return fault
	}
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, context.DeadlineExceeded):
		text := fmt.Sprintf("plugin %s: %s was not ready after %s", id, cfg.Exe, cfg.StartTimeout)
		if last := r.process.out.cause(); last != "" {
			text += ": it last wrote: " + last
		}
		return (&plugin.Error{Code: plugin.Unavailable, Message: text, Err: cause}).
			WithHint("see what it waits for, or whether this machine is overloaded")
	case cause != nil:
		return &plugin.Error{Code: plugin.Unavailable, Message: fmt.Sprintf("plugin %s: the start was given up", id), Err: cause}
	case byItself:
		return plugin.Errorf(plugin.Unavailable, "plugin %s: %s ended at its start (%s)", id, cfg.Exe, r.process.ended()).
			WithHint("sess plugins inspect %s shows what it wrote", id)
	}
	if p, ok := errors.AsType[permanent](err); ok {
		return p
	}
	if _, ok := errors.AsType[*plugin.Error](err); ok {
		return err
	}
	return &plugin.Error{Code: plugin.Unavailable, Message: fmt.Sprintf("plugin %s: start %s: %v", id, cfg.Exe, err), Err: err}
}
