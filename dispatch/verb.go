package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
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
	Main      bool
	Internal  bool
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
	// Logger gets panics and internal errors; nil means that they are not
	// logged.
	Logger *slog.Logger
}

// verb is a checked declaration.
type verb struct {
	Verb
	spec  plugin.Verb
	flags []*Flag
}

// isKebab reports whether s is words of lower-case letters and digits, joined by
// hyphens, that begins with a letter.
func isKebab(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz"
	for word := range strings.SplitSeq(s, "-") {
		if word == "" || strings.Trim(word, letters+"0123456789") != "" {
			return false
		}
	}
	return strings.Contains(letters, s[:1])
}

// hostFields are the object fields that surfaces take for themselves.
var hostFields = []string{"action", "argv", "agent", "project", "session"}

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
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	var c checker
	if !isKebab(cmd.Name) {
		c.bad("command %q: want a name in kebab-case", cmd.Name)
	}
	if cmd.Summary == "" || len(cmd.Verbs) == 0 {
		c.bad("command %q: want a summary and verbs", cmd.Name)
	}
	for _, decl := range cmd.Verbs {
		v := c.verb(decl)
		d.verbs[v.Name] = v
		d.spec.Verbs = append(d.spec.Verbs, v.spec)
	}
	c.names(d.spec.Verbs)
	c.ways(&d.spec)
	if err := errors.Join(c.errs...); err != nil {
		return nil, fmt.Errorf("declare %s: %w", cmd.Name, err)
	}
	return d, nil
}

// checker collects the mistakes of a declaration.
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
		AfterTurn: decl.AfterTurn, Main: decl.Main, Internal: decl.Internal,
	}}
	for _, f := range fs.list {
		v.spec.Flags = append(v.spec.Flags, f.spec)
	}
	effects := []plugin.Effect{plugin.EffectRead, plugin.EffectWrite, plugin.EffectDestroy}
	switch {
	case decl.Summary == "":
		c.bad("verb %q: want a summary", decl.Name)
	case decl.Run == nil:
		c.bad("verb %q: want Run", decl.Name)
	case !slices.Contains(effects, decl.Effect):
		c.bad("verb %q: unknown effect %q", decl.Name, decl.Effect)
	}
	fields := map[string]string{}
	c.args(v, fields)
	c.flags(v, fields)
	return v
}

func (c *checker) args(v *verb, fields map[string]string) {
	optional := false
	for i, a := range v.spec.Args {
		where := fmt.Sprintf("verb %q, argument %q", v.Name, a.Name)
		switch {
		case !isKebab(a.Name):
			c.bad("%s: want a name in kebab-case", where)
		case a.Type != plugin.TypeString && a.Type != plugin.TypeInt:
			c.bad("%s: want the type string or int", where)
		case a.Repeated && i < len(v.spec.Args)-1:
			c.bad("%s: only the last argument repeats", where)
		case a.Required && optional:
			c.bad("%s: it is required but follows an optional one", where)
		}
		optional = optional || !a.Required
		c.field(where, plugin.Camel(a.Name), fields)
	}
}

func (c *checker) flags(v *verb, fields map[string]string) {
	shorts := map[string]bool{"h": true}
	names := map[string]bool{"help": true, "version": true}
	for _, f := range plugin.HostFlags() {
		names[f.Name] = true
		shorts[f.Short] = f.Short != ""
	}
	for _, fl := range v.flags {
		f := &fl.spec
		where := fmt.Sprintf("verb %q, flag %q", v.Name, f.Name)
		_, err := fl.newValue()
		number := f.Type == plugin.TypeInt
		switch {
		case !isKebab(f.Name):
			c.bad("%s: want a name in kebab-case", where)
		case names[f.Name]:
			c.bad("%s: the name is taken, by the host or by the verb itself", where)
		case f.Short != "" && (len(f.Short) != 1 || !isLetter(f.Short[0])):
			c.bad("%s: want one letter as its short form", where)
		case shorts[f.Short]:
			c.bad("%s: the short form %q is taken, by the host or by the verb itself", where, f.Short)
		case f.Type != plugin.TypeBool && (f.Negatable || f.Confirm || strings.HasPrefix(f.Name, "no-")):
			c.bad("%s: only a bool can be negated or confirm", where)
		case f.Negatable && strings.HasPrefix(f.Name, "no-"):
			c.bad("%s: it is negative already", where)
		case f.Enum != nil && f.Type != plugin.TypeString:
			c.bad("%s: only a string has an enum", where)
		case (fl.min != nil || fl.max != nil) && !number:
			c.bad("%s: only an int has limits", where)
		case err != nil:
			c.bad("%s: bad default: %w", where, err)
		}
		names[f.Name] = true
		shorts[f.Short] = f.Short != ""
		if f.Negatable {
			names["no-"+f.Name] = true
		}
		if !f.Internal { // objects never carry internal flags
			c.field(where, f.Field(), fields)
		}
	}
}

// field makes sure that an object can name every argument and flag.
func (c *checker) field(where, field string, taken map[string]string) {
	if slices.Contains(hostFields, field) {
		c.bad("%s: objects use the field %q themselves", where, field)
	}
	if other, ok := taken[field]; ok {
		c.bad("%s: in objects it has the same field %q as %s", where, field, other)
	}
	taken[field] = where
}

func isLetter(b byte) bool { return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' }

// names checks that a word can mean one verb only.
func (c *checker) names(verbs []plugin.Verb) {
	taken := map[string]bool{"help": true}
	alone := map[string]*plugin.Verb{} // verbs of one word, with their aliases
	groups := map[string]bool{}        // first words of verbs of two
	for i := range verbs {
		v := &verbs[i]
		first, second, two := strings.Cut(v.Name, " ")
		if !isKebab(first) || two && !isKebab(second) {
			c.bad("verb %q: want one or two words in kebab-case", v.Name)
		}
		if two {
			groups[first] = true
		} else {
			alone[first] = v
		}
		for _, name := range append([]string{v.Name}, v.Aliases...) {
			if taken[name] {
				c.bad("verb %q: the name %q is taken", v.Name, name)
			}
			taken[name] = true
		}
		for _, a := range v.Aliases {
			if !isKebab(a) {
				c.bad("verb %q: want the alias %q to be one word in kebab-case", v.Name, a)
			}
			alone[a] = v
		}
	}
	for _, g := range slices.Sorted(maps.Keys(groups)) {
		// A verb without arguments can share its word with a group: what follows
		// it is never meant for it.
		if v := alone[g]; v != nil && len(v.Args) > 0 {
			c.bad("verb %q: %q also begins verbs of two words", v.Name, g)
		}
	}
}

// ways checks the routes and shortcuts.
func (c *checker) ways(spec *plugin.Spec) {
	methods := []string{"GET", "POST", "PUT", "PATCH", "DELETE"}
	for _, r := range spec.Routes {
		v, _ := spec.Find(r.Argv)
		switch {
		case !slices.Contains(methods, r.Method) || !strings.HasPrefix(r.Path, "/"):
			c.bad("route %s %s: want a method of HTTP and a path", r.Method, r.Path)
		case v == nil:
			c.bad("route %s %s: it leads to no verb", r.Method, r.Path)
		case r.Method == "GET" && v.Effect != plugin.EffectRead:
			c.bad("route %s %s: GET is for verbs that only read", r.Method, r.Path)
		}
	}
	taken := map[string]bool{spec.Command: true}
	for _, s := range spec.Shortcuts {
		v, _ := spec.Find(s.Argv)
		switch {
		case !isKebab(s.Name) || taken[s.Name]:
			c.bad("shortcut %q: want a free name in kebab-case", s.Name)
		case v == nil:
			c.bad("shortcut %q: it leads to no verb", s.Name)
		}
		taken[s.Name] = true
	}
}
