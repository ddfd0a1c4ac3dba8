package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"sess/plugin"
)

// Verb declares one thing that a command can do. The fields that it shares
// with [plugin.Verb] mean the same there.
type Verb struct {
	Name     string // one or two words in kebab-case
	Summary  string // one line
	Help     string // further paragraphs, may be empty
	Aliases  []string
	Examples []string
	Args     []plugin.Arg
	// Flags declares the verb's flags; nil means none. It is called once, by
	// New.
	Flags     func(fs *Flags)
	Effect    plugin.Effect
	AfterTurn bool
	ByHand    bool
	Main      bool
	Internal  bool
	Input     string
	Output    string
	// Check answers a call of an AfterTurn verb that is made inside a turn: an
	// error says why the verb could not run. It changes nothing. Nil leaves it at
	// the check of the words.
	Check func(ctx context.Context, in *Invocation) error
	// Run does the work. It is called concurrently. What it returns goes to the
	// caller through [plugin.AsError]; a panic becomes an internal error.
	Run func(ctx context.Context, in *Invocation) (plugin.Result, error)
}

// Command declares a command: its verbs, and further ways to them.
type Command struct {
	Name      string
	Summary   string
	Verbs     []Verb // in the order of help
	Routes    []plugin.Route
	Shortcuts []plugin.Shortcut
	// Logger gets panics and internal errors; nil means that whoever passes them
	// on logs them, as what serves a plugin does.
	Logger *slog.Logger
}

// verb is a checked declaration.
type verb struct {
	Verb
	spec  plugin.Verb
	flags []*Flag
}

// New checks the declarations and returns their dispatcher. The error names
// every mistake found; each is one of the program, not of its users.
func New(cmd Command) (*Dispatcher, error) {
	d := &Dispatcher{
		log:   cmd.Logger,
		verbs: map[string]*verb{},
		spec: plugin.Spec{
			Command:   cmd.Name,
			Summary:   cmd.Summary,
			Routes:    slices.Clone(cmd.Routes),
			Shortcuts: slices.Clone(cmd.Shortcuts),
		},
	}
	var c checker
	for _, decl := range cmd.Verbs {
		v := c.verb(decl)
		d.verbs[v.Name] = v
		d.spec.Verbs = append(d.spec.Verbs, v.spec)
	}
	if err := errors.Join(append(c.errs, d.spec.Check())...); err != nil {
		return nil, fmt.Errorf("declare %s: %w", cmd.Name, err)
	}
	return d, nil
}

// checker collects the mistakes of a declaration that its Spec does not show.
type checker struct{ errs []error }

func (c *checker) bad(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf(format, args...))
}

func (c *checker) verb(decl Verb) *verb {
	var fs Flags
	if decl.Flags != nil {
		decl.Flags(&fs)
	}
	v := &verb{Verb: decl, flags: fs.list, spec: plugin.Verb{
		Name: decl.Name, Aliases: slices.Clone(decl.Aliases), Summary: decl.Summary, Help: decl.Help,
		Examples: slices.Clone(decl.Examples), Args: slices.Clone(decl.Args), Effect: decl.Effect,
		AfterTurn: decl.AfterTurn, ByHand: decl.ByHand, Main: decl.Main, Internal: decl.Internal,
		Input: decl.Input, Output: decl.Output,
	}}
	for _, f := range fs.list {
		v.spec.Flags = append(v.spec.Flags, f.spec)
	}
	if decl.Run == nil {
		c.bad("verb %q: want Run", decl.Name)
	}
	for _, example := range decl.Examples {
		if example != decl.Name && !strings.HasPrefix(example, decl.Name+" ") {
			c.bad("verb %q: want the example %q to begin with it", decl.Name, example)
		}
	}
	for _, f := range fs.list {
		where := fmt.Sprintf("verb %q, flag %q", decl.Name, f.spec.Name)
		if (f.min != nil || f.max != nil) && f.spec.Type != plugin.TypeInt {
			c.bad("%s: only an int has limits", where)
		} else if _, err := f.newValue(); err != nil {
			c.bad("%s: bad default: %w", where, err)
		}
	}
	return v
}
