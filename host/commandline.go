package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"sess/plugin"
	"sess/surfaces"
)

// Program is the command line of a program over a host: what stands first on it
// is a command of the program's own, one of the host's, or a verb of the command
// that has the program's name.
type Program struct {
	// Name is the program's.
	Name string
	// Local are the commands that the program answers itself, without a host.
	Local []plugin.Spec
	// Top names the one of Local whose verbs stand first.
	Top string
}

// Line is a command line, and what the environment of its writer adds to it. It
// means the same in the writer's process and in a gateway.
type Line struct {
	Args []string `json:"args"`
	// Home is what a --home among Args says, as far as can be told without
	// knowing the verbs: the host at that home is the one to ask.
	Home string `json:"home,omitempty"`
	Cwd  string `json:"cwd,omitempty"`
	// Project and Session hold where Args name none.
	Project string `json:"project,omitempty"`
	Session string `json:"session,omitempty"`
	// AtHome is the home whose gateway is meant, and StartBy the time after which
	// the writer goes on without it. A gateway refuses a line that is for another
	// one, or that it reads too late. Zero values leave both open.
	AtHome  string    `json:"atHome,omitempty"`
	StartBy time.Time `json:"startBy,omitzero"`
	// Files says that the writer lends files to the gateway that answers.
	Files bool `json:"files,omitempty"`
	// HelpOnly is why nothing but help can be had; nil: everything can.
	HelpOnly *plugin.Error `json:"-"`
}

// Portable reports whether l can be sent to another process: JSON has no bytes
// that are not UTF-8.
func (l *Line) Portable() bool {
	for _, s := range append([]string{l.Home, l.Cwd, l.Project, l.Session, l.AtHome}, l.Args...) {
		if !utf8.ValidString(s) {
			return false
		}
	}
	return true
}

// Reply is what a command line is answered with.
type Reply struct {
	Result plugin.Result
	Effect plugin.Effect
	Err    error
	// JSON and Quiet are the flags that say how it is printed.
	JSON, Quiet bool
	// Own is an argv that the program has to answer itself.
	Own []string
	// OtherHome is set when the verbs show that another home is meant than the
	// line's: this one, "" being the usual one. Nothing was done.
	OtherHome *string
	// Refused is set when a gateway did not take the line. Nothing was done.
	Refused bool
}

// CommandLine answers a line. caller says how far whoever wrote it is trusted.
func (h *Host) CommandLine(ctx context.Context, p *Program, line Line, caller plugin.Caller, progress plugin.ProgressFunc) Reply {
	commands := h.ProgramCommands(ctx, p)
	// Should the line be wrong, the error is printed as the flags before the
	// mistake ask for.
	first, _, _ := surfaces.SplitHostFlags(line.Args, func([]string) *plugin.Verb { return nil })
	flags, argv, err := surfaces.SplitHostFlags(line.Args, func(words []string) *plugin.Verb {
		if v := p.Find(words); v != nil {
			return v
		}
		return commands.Find(words)
	})
	if err != nil {
		return Reply{Effect: plugin.EffectWrite, Err: err, JSON: first.JSON, Quiet: first.Quiet}
	}
	if flags.Home != line.Home {
		return Reply{OtherHome: &flags.Home}
	}
	out := Reply{Effect: plugin.EffectWrite, JSON: flags.JSON, Quiet: flags.Quiet}
	topic, help := surfaces.HelpTopic(argv, func(word string) bool {
		isCommand := func(s plugin.Spec) bool { return s.Command == word }
		return slices.ContainsFunc(commands.Specs, isCommand)
	})
	switch {
	case flags.Version:
		out.Own = []string{"version"}
	case len(argv) == 0, help, flags.Help:
		out.Effect = plugin.EffectRead
		out.Result, out.Err = h.help(ctx, p, commands, topic)
	case line.HelpOnly != nil:
		out.Err = line.HelpOnly
	case p.localFor(argv[0]) != nil:
		out.Own = argv
	default:
		call := plugin.Call{
			Argv:    argv,
			Agent:   flags.Agent,
			Project: cmp.Or(flags.Project, line.Project),
			Session: cmp.Or(flags.Session, line.Session),
			Caller:  caller,
			Cwd:     line.Cwd,
		}
		if files := plugin.FilesOf(ctx); files != nil && flags.JSON {
			ctx = plugin.WithFiles(ctx, namedFiles{files})
		}
		out.Result, out.Effect, out.Err = h.dispatchLine(ctx, p, commands, call, progress)
	}
	return out
}

func (h *Host) dispatchLine(ctx context.Context, p *Program, commands *surfaces.Commands, call plugin.Call, progress plugin.ProgressFunc) (plugin.Result, plugin.Effect, error) {
	effect := plugin.EffectWrite
	argv := call.Argv
	spec, verb, rest := commands.Resolve(argv)
	if spec == nil {
		_, err := h.Spec(ctx, p.Name) // why the program's own verbs are not there
		return plugin.Result{}, effect, cmp.Or(err, error(plugin.Errorf(plugin.Usage, "unknown command %q", argv[0])))
	}
	if verb == nil && spec.Command == p.Name && len(rest) == len(argv) {
		if err := h.unknown(ctx, p, commands, argv[0]); err != nil {
			return plugin.Result{}, effect, err
		}
	}
	if verb != nil {
		effect = verb.Effect
	}
	call.Argv = append([]string{spec.Command}, rest...)
	res, err := h.Dispatch(ctx, call, progress)
	return res, effect, err
}

// ProgramCommands lists everything that can stand first on the command line.
func (h *Host) ProgramCommands(ctx context.Context, p *Program) *surfaces.Commands {
	c := p.Commands()
	var specs []plugin.Spec
	for _, spec := range h.Specs(ctx) {
		specs = append(specs, *spec)
	}
	specs = append(specs, h.OwnSpecs()...)
	c.Specs = append(specs, c.Specs...)
	return c
}

// Commands lists what can stand first on the command line without a host.
func (p *Program) Commands() *surfaces.Commands {
	c := &surfaces.Commands{Prog: p.Name}
	for _, spec := range p.Local {
		if spec.Command != p.Top {
			c.Specs = append(c.Specs, spec)
			continue
		}
		for _, v := range spec.Verbs {
			if !v.Internal {
				c.Host = append(c.Host, plugin.Candidate{Value: v.Name, Help: v.Summary})
			}
		}
	}
	c.Host = append(c.Host, plugin.Candidate{Value: "help", Help: "Tell how something is used"})
	return c
}

// localFor is the command of the program's own that word begins.
func (p *Program) localFor(word string) *plugin.Spec {
	for i := range p.Local {
		spec := &p.Local[i]
		v, _ := spec.Find([]string{word})
		if spec.Command == word || spec.Command == p.Top && v != nil {
			return spec
		}
	}
	return nil
}

// Find is the [surfaces.FindVerb] of the program's own commands.
func (p *Program) Find(words []string) *plugin.Verb {
	spec := p.localFor(words[0])
	if spec == nil {
		return nil
	}
	if spec.Command == words[0] {
		words = words[1:]
	}
	v, _ := spec.Find(words)
	return v
}

// Help is the help for what argv names among the program's own commands; false
// means that it names none of them.
func (p *Program) Help(argv []string) (text string, ok bool, err error) {
	if len(argv) == 0 {
		return "", false, nil
	}
	spec := p.localFor(argv[0])
	switch {
	case spec == nil:
		return "", false, nil
	case spec.Command == argv[0]:
		text, err = surfaces.Help(spec, p.Name+" "+argv[0], argv[1:])
	default:
		text, err = surfaces.Help(spec, p.Name, argv[:1])
	}
	return text, true, err
}

// help renders the help for what argv names; nothing is the whole program.
func (h *Host) help(ctx context.Context, p *Program, commands *surfaces.Commands, argv []string) (res plugin.Result, err error) {
	res.Text, err = h.helpText(ctx, p, commands, argv)
	if err == nil {
		res.Data, err = json.Marshal(res.Text)
	}
	return res, err
}

func (h *Host) helpText(ctx context.Context, p *Program, commands *surfaces.Commands, argv []string) (string, error) {
	if text, ok, err := p.Help(argv); ok {
		return text, err
	}
	spec, verb, rest := commands.Resolve(argv)
	if spec == nil {
		_, err := h.Spec(ctx, p.Name)
		if len(argv) == 0 && err != nil {
			// What else there is can still be used.
			return overview(p, &plugin.Spec{Summary: "The verbs are not there: " + plugin.AsError(err).Text()}, commands), nil
		}
		return "", err
	}
	if spec.Command != p.Name || len(argv) > 0 && argv[0] == p.Name {
		return surfaces.Help(spec, p.Name+" "+spec.Command, rest)
	}
	if len(argv) == 0 {
		return overview(p, spec, commands), nil
	}
	if verb == nil {
		if err := h.unknown(ctx, p, commands, argv[0]); err != nil {
			return "", err
		}
	}
	return surfaces.Help(spec, p.Name, rest)
}

// overview is the help of the whole program: the verbs of its own command, and
// what else can stand first.
func overview(p *Program, spec *plugin.Spec, commands *surfaces.Commands) string {
	var names []string
	for _, c := range commands.Host {
		names = append(names, c.Value)
	}
	for _, s := range commands.Specs {
		if s.Command != p.Name {
			names = append(names, s.Command)
		}
	}
	return surfaces.HelpCommand(spec, p.Name, names...) + "\n\n" + surfaces.ExitStatuses()
}

// unknown is [Program.unknown], but tells of a plugin that does not run as such.
func (h *Host) unknown(ctx context.Context, p *Program, commands *surfaces.Commands, word string) error {
	if err := h.Absent(ctx, word); err != nil {
		return err
	}
	return p.unknown(commands, word)
}

// unknown is the error for a first word that is neither a command nor a verb;
// nil lets the verbs' own dispatcher answer.
func (p *Program) unknown(commands *surfaces.Commands, word string) error {
	var names []string
	for _, c := range commands.Host {
		names = append(names, c.Value)
	}
	for _, s := range commands.Specs {
		if s.Command != p.Name {
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
			WithHint("leave it out; %s help <verb> lists the flags of a verb", p.Name)
	}
	e := plugin.Errorf(plugin.Usage, "unknown command %q", word)
	if near := plugin.Nearest(word, names); len(near) > 0 {
		return e.WithHint("did you mean %s?", strings.Join(near, " or ")).WithDetail("candidates", strings.Join(near, ", "))
	}
	return e.WithHint("%s help lists the commands", p.Name)
}

// replyWire is a Reply as JSON. What is printed byte for byte travels as bytes.
type replyWire struct {
	Text    string        `json:"text,omitempty"`
	Data    []byte        `json:"data,omitempty"` // base64
	Notices []string      `json:"notices,omitempty"`
	Page    *plugin.Page  `json:"page,omitempty"`
	Effect  plugin.Effect `json:"effect,omitempty"`
	JSON    bool          `json:"json,omitempty"`
	Quiet   bool          `json:"quiet,omitempty"`
	Own     []string      `json:"own,omitempty"`
	Home    *string       `json:"otherHome,omitempty"`
	Refused bool          `json:"refused,omitempty"`
	Error   *errorWire    `json:"error,omitempty"`
}

type errorWire struct {
	Message string            `json:"error"`
	Code    plugin.Code       `json:"code"`
	Hint    string            `json:"hint,omitempty"`
	Details map[string]string `json:"details,omitempty"`
	// Ended is "canceled" or "deadline" when the call's context ended it.
	Ended string `json:"ended,omitempty"`
}

// MarshalJSON writes a reply for another process. The cause of its error stays.
func (r Reply) MarshalJSON() ([]byte, error) {
	w := replyWire{
		Text: r.Result.Text, Data: r.Result.Data, Notices: r.Result.Notices, Page: r.Result.Page,
		Effect: r.Effect, JSON: r.JSON, Quiet: r.Quiet, Own: r.Own, Home: r.OtherHome, Refused: r.Refused,
	}
	if r.Err != nil {
		e := plugin.AsError(r.Err)
		w.Error = &errorWire{Message: e.Message, Code: e.Code, Hint: e.Hint, Details: e.Details}
		switch {
		case errors.Is(e, context.Canceled):
			w.Error.Ended = "canceled"
		case errors.Is(e, context.DeadlineExceeded):
			w.Error.Ended = "deadline"
		}
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (r *Reply) UnmarshalJSON(data []byte) error {
	var w replyWire
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*r = Reply{
		Result: plugin.Result{Text: w.Text, Data: w.Data, Notices: w.Notices, Page: w.Page},
		Effect: w.Effect, JSON: w.JSON, Quiet: w.Quiet, Own: w.Own, OtherHome: w.Home, Refused: w.Refused,
	}
	if w.Error != nil {
		e := &plugin.Error{Code: w.Error.Code, Message: w.Error.Message, Hint: w.Error.Hint, Details: w.Error.Details}
		switch w.Error.Ended {
		case "canceled":
			e.Err = context.Canceled
		case "deadline":
			e.Err = context.DeadlineExceeded
		}
		r.Err = e
	}
	return nil
}
