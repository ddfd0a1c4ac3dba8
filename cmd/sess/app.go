package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sess/dispatch"
	"sess/host"
	"sess/plugin"
	"sess/plugin/sess"
	"sess/surfaces"
)

// prog is the program's name, and the command whose verbs need no prefix.
const prog = "sess"

// closeTime bounds how long the program waits for its plugins at the end.
const closeTime = 5 * time.Second

// app is one run of the program.
type app struct {
	args           []string
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string
	interrupts     *interrupts // nil: of no concern to this run

	out   *output // writes to stdout
	flags surfaces.HostFlags
	host  *host.Host // nil until a command needs it
	// defaults opens the host without the configuration.
	defaults bool
	local    []*dispatch.Dispatcher
}

// builtins lists the bundled plugins.
func builtins() [][]byte { return [][]byte{sess.ManifestJSON} }

func (a *app) getenv(name string) string {
	for _, kv := range slices.Backward(a.environ) {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}

// run runs the program and returns its exit status.
func (a *app) run(ctx context.Context) int {
	a.out = &output{w: a.stdout}
	if len(a.args) > 0 && a.args[0] == "plugin" {
		return a.plugin(a.args[1:])
	}
	if len(a.args) > 0 && a.args[0] == "__complete" {
		return a.complete(ctx, a.args[1:])
	}
	res, effect, err := a.command(ctx)
	if a.host != nil {
		// The end of the call's context must not cut the plugins' own end short.
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
		defer cancel()
		if cerr := a.host.Close(end); cerr != nil && err == nil {
			err = cerr
		}
	}
	out := surfaces.RenderCLI(res, err, surfaces.CLIOptions{
		Prog: prog, JSON: a.flags.JSON, Quiet: a.flags.Quiet, Effect: effect,
	})
	if _, ok := errors.AsType[*shownError](err); ok {
		out.Stderr = nil
	}
	return a.print(out)
}

// print returns the exit status. What cannot be told of on stderr is only told
// by that.
func (a *app) print(out surfaces.CLIOutput) int {
	_, failed := a.stderr.Write(out.Stderr)
	_, _ = a.out.Write(out.Stdout) // remembered
	told, exit := a.out.failure(out.Exit)
	if told != nil {
		_, failed = a.stderr.Write(told)
	}
	if failed != nil {
		return max(exit, 1)
	}
	return exit
}

// command parses the command line and does what it says.
func (a *app) command(ctx context.Context) (plugin.Result, plugin.Effect, error) {
	var res plugin.Result
	fail := func(err error) (plugin.Result, plugin.Effect, error) { return res, plugin.EffectWrite, err }
	var err error
	if a.local, err = a.localCommands(); err != nil {
		return fail(err)
	}
	// Which flags belong to a verb is known from the Specs, which lie in the
	// home; where the home is, a first pass without them tells.
	first, words, _ := surfaces.SplitHostFlags(a.args, func([]string) *plugin.Verb { return nil })
	a.flags = first // should the next step fail, its error is printed as asked for
	var find surfaces.FindVerb = func(words []string) *plugin.Verb { return a.find(ctx, words) }
	if len(words) == 0 || a.localFor(words[0]) != nil || words[0] == "help" {
		find = a.findLocal
	}
	flags, argv, err := surfaces.SplitHostFlags(a.args, find)
	if err != nil {
		return fail(err)
	}
	if a.flags = flags; flags.Home != first.Home {
		if err := a.closeHost(ctx); err != nil {
			return fail(err)
		}
	}
	switch {
	case flags.Version:
		argv = []string{"version"}
	case len(argv) == 0, argv[0] == "help", flags.Help:
		res, err := a.help(ctx, argv)
		if err != nil {
			return fail(err)
		}
		res.Data, err = json.Marshal(res.Text)
		return res, plugin.EffectRead, err
	}
	return a.dispatch(ctx, argv)
}

// dispatch sends argv to whom it is for.
func (a *app) dispatch(ctx context.Context, argv []string) (plugin.Result, plugin.Effect, error) {
	call := plugin.Call{
		Argv:    argv,
		Agent:   a.flags.Agent,
		Project: cmp.Or(a.flags.Project, a.getenv("SESS_PROJECT")),
		Session: cmp.Or(a.flags.Session, a.getenv("SESS_SESSION")),
		Caller:  plugin.CallerCLI,
	}
	call.Cwd, _ = os.Getwd()
	if d := a.localFor(argv[0]); d != nil {
		spec := d.Spec()
		if spec.Command == argv[0] {
			call.Argv = argv[1:]
		}
		res, err := d.Dispatch(ctx, call, nil)
		v, _ := spec.Find(call.Argv)
		return res, effect(v), err
	}
	h, err := a.open(ctx)
	if err != nil {
		return plugin.Result{}, plugin.EffectWrite, err
	}
	commands := a.commands(ctx)
	spec, verb, rest := commands.Resolve(argv)
	if spec == nil {
		_, err := h.Spec(ctx, prog) // why the program's own verbs are not there
		return plugin.Result{}, plugin.EffectWrite, cmp.Or(err, error(plugin.Errorf(plugin.Usage, "unknown command %q", argv[0])))
	}
	if verb == nil && spec.Command == prog && len(rest) == len(argv) {
		if err := a.unknown(commands, argv[0]); err != nil {
			return plugin.Result{}, plugin.EffectWrite, err
		}
	}
	call.Argv = append([]string{spec.Command}, rest...)
	progress := newProgress(a.stderr, a.flags.Quiet)
	res, err := h.Dispatch(ctx, call, progress.report)
	progress.done()
	return res, effect(verb), err
}

func effect(v *plugin.Verb) plugin.Effect {
	if v == nil {
		return plugin.EffectWrite
	}
	return v.Effect
}

// unknown is the error for a first word that is neither a command nor a verb;
// nil lets the verbs' own dispatcher answer.
func (a *app) unknown(commands *surfaces.Commands, word string) error {
	var names []string
	for _, c := range commands.Host {
		names = append(names, c.Value)
	}
	for _, s := range commands.Specs {
		if s.Command != prog {
			names = append(names, s.Command)
			continue
		}
		for _, v := range s.Verbs {
			if strings.HasPrefix(v.Name, word+" ") {
				return nil // the first of two words: the dispatcher lists the second
			}
			if !v.Internal {
				names = append(append(names, v.Name), v.Aliases...)
			}
		}
	}
	if strings.HasPrefix(word, "-") {
		return plugin.Errorf(plugin.Usage, "unknown flag %s before a command", word).
			WithHint("leave it out; %s help <verb> lists the flags of a verb", prog)
	}
	e := plugin.Errorf(plugin.Usage, "unknown command %q", word)
	if near := plugin.Nearest(word, names); len(near) > 0 {
		return e.WithHint("did you mean %s?", strings.Join(near, " or ")).WithDetail("candidates", strings.Join(near, ", "))
	}
	return e.WithHint("sess help lists the commands")
}

// homeDir is the folder where everything is kept.
func (a *app) homeDir() (string, error) {
	if dir := cmp.Or(a.flags.Home, a.getenv("SESS_HOME")); dir != "" {
		return filepath.Abs(dir)
	}
	user := a.userHome()
	if user == "" {
		return "", plugin.Errorf(plugin.Usage, "no home folder is known: HOME is not set").
			WithHint("name a folder with --home or SESS_HOME")
	}
	return filepath.Join(user, ".sess"), nil
}

func (a *app) userHome() string { return cmp.Or(a.getenv("HOME"), a.getenv("USERPROFILE")) }

// open opens the host, once.
func (a *app) open(ctx context.Context) (*host.Host, error) {
	if a.host != nil {
		return a.host, nil
	}
	home, err := a.homeDir()
	if err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cwd, err := os.Getwd()
	if err != nil {
		cwd = ""
	}
	a.host, err = host.Open(ctx, host.Options{
		Home: home, Exe: exe, Builtins: builtins(), Cwd: cwd,
		UserHome: a.userHome(), Environ: a.environ, Logger: a.logger(), Defaults: a.defaults,
	})
	return a.host, err
}

func (a *app) closeHost(ctx context.Context) error {
	if a.host == nil {
		return nil
	}
	h := a.host
	a.host = nil
	return h.Close(ctx)
}

// logger is where logs go beside the home's log file: with -v to stderr. What
// libraries write to the log of the process goes the same way.
func (a *app) logger() *slog.Logger {
	if !a.flags.Verbose {
		slog.SetDefault(slog.New(slog.DiscardHandler))
		return nil
	}
	logger := slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	slog.SetDefault(logger)
	return logger
}

// commands lists everything that can stand first on the command line.
func (a *app) commands(ctx context.Context) *surfaces.Commands {
	c := &surfaces.Commands{Prog: prog}
	h, err := a.open(ctx)
	if err == nil {
		for _, spec := range h.Specs(ctx) {
			c.Specs = append(c.Specs, *spec)
		}
		c.Specs = append(c.Specs, h.OwnSpecs()...)
	}
	for _, d := range a.local {
		spec := d.Spec()
		if spec.Command != topCommand {
			c.Specs = append(c.Specs, spec)
			continue
		}
		for _, v := range spec.Verbs {
			c.Host = append(c.Host, plugin.Candidate{Value: v.Name, Help: v.Summary})
		}
	}
	c.Host = append(c.Host, plugin.Candidate{Value: "help", Help: "Tell how something is used"})
	return c
}

// find resolves the verb that words begin with.
func (a *app) find(ctx context.Context, words []string) *plugin.Verb {
	if v := a.findLocal(words); v != nil {
		return v
	}
	return a.commands(ctx).Find(words)
}

func (a *app) findLocal(words []string) *plugin.Verb {
	d := a.localFor(words[0])
	if d == nil {
		return nil
	}
	spec := d.Spec()
	if spec.Command == words[0] {
		words = words[1:]
	}
	v, _ := spec.Find(words)
	return v
}

// localFor is the command of this process, without a host, that word begins.
func (a *app) localFor(word string) *dispatch.Dispatcher {
	for _, d := range a.local {
		spec := d.Spec()
		v, _ := spec.Find([]string{word})
		if spec.Command == word || spec.Command == topCommand && v != nil {
			return d
		}
	}
	return nil
}

// shownError is an error that people have been shown: only its exit status is
// left to tell.
type shownError struct{ err error }

func (e *shownError) Error() string { return e.err.Error() }
func (e *shownError) Unwrap() error { return e.err }
