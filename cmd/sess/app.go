package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	// relay tells a running gateway of what happens in the host; nil: nobody
	// would follow it.
	relay *relay
	// stays opens the host for a conversation: the plugins' schedules run.
	stays bool
	// shown is true when the answer has been printed already.
	shown bool
	// before is what was done before a failure, for JSON.
	before plugin.Result
	// told is a notice for people, "" for none.
	told    string
	local   []*dispatch.Dispatcher
	program *host.Program
}

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
	reply := a.command(ctx)
	if a.host != nil {
		// The end of the call's context must not cut the plugins' own end short.
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
		defer cancel()
		if err := a.host.Close(end); err != nil && reply.Err == nil {
			reply.Err = err
		}
		// Whatever becomes of the command, and however little it is to print.
		for _, trouble := range a.host.Troubles() {
			fmt.Fprintln(a.stderr, "note: "+surfaces.Printable(trouble))
		}
	}
	if a.relay != nil {
		a.relay.close()
	}
	if a.shown && reply.Err == nil {
		return a.print(surfaces.CLIOutput{})
	}
	out := surfaces.RenderCLI(reply.Result, reply.Err, surfaces.CLIOptions{
		Prog: prog, JSON: reply.JSON, Quiet: reply.Quiet, Effect: reply.Effect,
	})
	if _, ok := errors.AsType[*shownError](reply.Err); ok {
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

// command does what the command line says.
func (a *app) command(ctx context.Context) host.Reply {
	// Which flags belong to a verb is known from the Specs, which lie in the
	// home; where the home is, a first pass without them tells.
	first, words, _ := surfaces.SplitHostFlags(a.args, func([]string) *plugin.Verb { return nil })
	a.flags = first
	topic := words
	if len(topic) > 0 && topic[0] == "help" {
		topic = topic[1:]
	}
	// A gateway wants nothing of what this program can do by itself.
	if len(topic) > 0 && ownWord(topic[0]) || first.Version {
		if err := a.declare(); err != nil {
			return a.reply(plugin.Result{}, plugin.EffectWrite, err)
		}
	}
	switch {
	case len(words) == 0 && first.Version:
		return a.own(ctx, []string{"version"})
	case len(topic) > 0 && a.localFor(topic[0]) != nil:
		flags, argv, err := surfaces.SplitHostFlags(a.args, a.program.Find)
		if err != nil {
			return a.reply(plugin.Result{}, plugin.EffectWrite, err)
		}
		topic, help := surfaces.HelpTopic(argv, func(word string) bool {
			d := a.localFor(word)
			return d != nil && d.Spec().Command == word
		})
		if a.flags = flags; flags.Version {
			argv = []string{"version"}
		} else if flags.Help || help {
			return a.help(topic)
		}
		return a.own(ctx, argv)
	}
	return a.hosted(ctx, words)
}

// ownWord reports whether a word that stands first is the program's own. It spares
// the others the declarations; whoever is left out is answered all the same.
func ownWord(word string) bool {
	switch word {
	case "chat", "completion", "config", "demo", "doctor", "gateway", "mcp", "up", "version":
		return true
	}
	return false
}

// declare declares what the program answers itself, once.
func (a *app) declare() (err error) {
	if a.local != nil {
		return nil
	}
	if a.local, err = a.localCommands(); err == nil {
		a.program = newProgram(a.local)
	}
	return err
}

// reply is an answer that is printed as the flags say.
func (a *app) reply(res plugin.Result, effect plugin.Effect, err error) host.Reply {
	return host.Reply{Result: res, Effect: effect, Err: err, JSON: a.flags.JSON, Quiet: a.flags.Quiet}
}

// help is the help for a command of the program's own.
func (a *app) help(argv []string) host.Reply {
	text, _, err := a.program.Help(argv)
	data, merr := json.Marshal(text)
	return a.reply(plugin.Result{Text: text, Data: data}, plugin.EffectRead, cmp.Or(err, merr))
}

// own answers a command of the program's own.
func (a *app) own(ctx context.Context, argv []string) host.Reply {
	if err := a.declare(); err != nil {
		return a.reply(plugin.Result{}, plugin.EffectWrite, err)
	}
	if err := a.checkRemote(argv); err != nil {
		return a.reply(plugin.Result{}, plugin.EffectWrite, err)
	}
	d := a.localFor(argv[0])
	call := plugin.Call{
		Argv:    argv,
		Agent:   a.flags.Agent,
		Project: cmp.Or(a.flags.Project, a.getenv("SESS_PROJECT")),
		Session: cmp.Or(a.flags.Session, a.getenv("SESS_SESSION")),
		Caller:  plugin.CallerCLI,
	}
	call.Cwd, _ = os.Getwd()
	spec := d.Spec()
	if spec.Command == argv[0] {
		call.Argv = argv[1:]
	}
	effect := plugin.EffectWrite
	if v, _ := spec.Find(call.Argv); v != nil {
		effect = v.Effect
	}
	res, err := d.Dispatch(ctx, call, nil)
	if err != nil {
		res = a.before
	}
	return a.reply(res, effect, err)
}

// hosted answers what needs a host. words are those of the line, as far as can
// be told without one.
func (a *app) hosted(ctx context.Context, words []string) host.Reply {
	line := host.Line{Args: a.args, Home: a.flags.Home, Project: a.getenv("SESS_PROJECT"), Session: a.getenv("SESS_SESSION")}
	line.Cwd, _ = os.Getwd()
	_, help := surfaces.HelpTopic(words, func(string) bool { return true })
	help = help || len(words) == 0 || a.flags.Help
	agreed := false
	for try := 0; ; try++ {
		reply, err := a.answer(ctx, line, help)
		switch {
		case err != nil:
			return a.reply(plugin.Result{}, plugin.EffectWrite, err)
		case reply.OtherHome != nil && try > 0:
			// The verbs of one home say that the other is meant, and back.
			return a.reply(plugin.Result{}, plugin.EffectWrite, plugin.Errorf(plugin.Usage, "it is not clear which home is meant").
				WithHint("write --home before the verb, and -- before words that look like flags"))
		case reply.OtherHome != nil:
			a.flags.Home, line.Home = *reply.OtherHome, *reply.OtherHome
			if err := a.closeHost(ctx); err != nil {
				return a.reply(plugin.Result{}, plugin.EffectWrite, err)
			}
		case reply.Own != nil:
			a.flags.JSON, a.flags.Quiet = reply.JSON, reply.Quiet
			return a.own(ctx, reply.Own)
		case !agreed && a.asks(&reply):
			e := plugin.AsError(reply.Err)
			if !saysYes(a.stdin, a.stderr, e.Message) { // who has read it once
				reply.Err = plugin.Errorf(e.Code, "nothing was changed")
				return reply
			}
			agreed, line.Args = true, withFlag(line.Args, e.Details[host.ConfirmDetail])
		default:
			return reply
		}
	}
}

// asks reports whether a verb wants the person at the terminal to be asked.
// Elsewhere its error names the flag that says yes.
func (a *app) asks(reply *host.Reply) bool {
	e := plugin.AsError(reply.Err)
	return e != nil && e.Details[host.ConfirmDetail] != "" && !reply.JSON && isTerminal(a.stdin) && isTerminal(a.stderr)
}

// saysYes asks a question and reads one line; only a clear yes is one.
func saysYes(in io.Reader, out io.Writer, question string) bool {
	if _, err := fmt.Fprintf(out, "%s\nGo on? [y/N] ", surfaces.Printable(question)); err != nil {
		return false
	}
	var line []byte
	for b := make([]byte, 1); len(line) < 100; line = append(line, b[0]) { // what follows the line is for others
		if n, err := in.Read(b); n == 0 || err != nil || b[0] == '\n' {
			break
		}
	}
	word := strings.ToLower(strings.TrimSpace(string(line)))
	return word == "y" || word == "yes"
}

// withFlag adds a flag to a command line, in front of where flags end.
func withFlag(args []string, flag string) []string {
	at := slices.Index(args, "--")
	if at < 0 {
		at = len(args)
	}
	return slices.Insert(slices.Clone(args), at, flag)
}

// answer has a line answered by a gateway, or else by a host of this process.
func (a *app) answer(ctx context.Context, line host.Line, help bool) (host.Reply, error) {
	if reply, ok, err := a.throughGateway(ctx, line); ok || err != nil {
		return reply, err
	}
	reply, err := a.alone(ctx, line, help)
	if a.told != "" {
		reply.Result.Notices = append([]string{a.told}, reply.Result.Notices...)
	}
	return reply, err
}

// alone has a line answered by a host of this process.
func (a *app) alone(ctx context.Context, line host.Line, help bool) (host.Reply, error) {
	if err := a.declare(); err != nil {
		return host.Reply{}, err
	}
	h, err := a.open(ctx)
	var notices []string
	if help && errors.Is(err, &plugin.Error{Code: plugin.Usage}) {
		// A wrong configuration must not keep anybody from reading help.
		line.HelpOnly = plugin.AsError(err)
		notices, a.defaults = []string{line.HelpOnly.Text()}, true
		h, err = a.open(ctx)
	}
	if err != nil {
		return host.Reply{}, err
	}
	progress := newProgress(a.stderr, a.flags.Quiet)
	ctx = plugin.WithFiles(ctx, userFiles{stdin: a.stdin, stdout: a.out})
	reply := h.CommandLine(ctx, a.program, line, plugin.CallerCLI, progress.report)
	progress.done()
	reply.Result.Notices = append(notices, reply.Result.Notices...)
	return reply, nil
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
	options, err := a.hostOptions()
	if err != nil {
		return nil, err
	}
	options.Defaults, options.Background = a.defaults, a.stays
	if a.relay != nil {
		options.Events = a.relay.tell
	}
	a.host, err = host.Open(ctx, options)
	return a.host, err
}

// hostOptions are those of a host at the home that is meant.
func (a *app) hostOptions() (host.Options, error) {
	home, err := a.homeDir()
	if err != nil {
		return host.Options{}, err
	}
	exe, err := os.Executable()
	if err != nil {
		return host.Options{}, err
	}
	cwd, err := os.Getwd()
	if err != nil {
		cwd = ""
	}
	return host.Options{
		Home: home, Exe: exe, Builtins: builtins(), Reserved: a.ownWords(), Cwd: cwd, UserHome: a.userHome(), Environ: a.environ, Logger: a.logger(),
	}, nil
}

// ownWords are the words that this program answers without a host.
func (a *app) ownWords() []string {
	var words []string
	for _, d := range a.local {
		spec := d.Spec()
		if spec.Command != topCommand {
			words = append(words, spec.Command)
			continue
		}
		for _, v := range spec.Verbs {
			words = append(append(words, v.Name), v.Aliases...)
		}
	}
	return words
}

func (a *app) closeHost(ctx context.Context) error {
	if a.host == nil {
		return nil
	}
	h := a.host
	a.host, a.defaults = nil, false
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

// newProgram is the command line over the program's own commands.
func newProgram(local []*dispatch.Dispatcher) *host.Program {
	p := &host.Program{Name: prog, Top: topCommand}
	for _, d := range local {
		p.Local = append(p.Local, d.Spec())
	}
	return p
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
