package plugin

import (
	"iter"
	"slices"
	"strings"
)

// Spec is a plugin's whole command: its verbs, and the extra routes and chat
// shortcuts that lower to them. It is derived from the verbs' declarations
// (package dispatch), never written by hand, and crosses to the host in
// Describe. Every surface is made from it.
type Spec struct {
	// Command is the first word on the command line and after the slash, and
	// the first segment of the routes: "sess". The agent tool is
	// <command>_manage, the gateway method <command>.invoke.
	Command string `json:"command"`
	// Summary is one line, without a final period.
	Summary string `json:"summary"`
	// Verbs stand in the order of help.
	Verbs []Verb `json:"verbs"`
	// Routes and Shortcuts are further ways to the same verbs.
	Routes    []Route    `json:"routes,omitempty"`
	Shortcuts []Shortcut `json:"shortcuts,omitempty"`
}

// Effect says what a verb can do to stored data.
type Effect string

// The effects, from harmless to destructive. GET serves read only; an agent
// host may ask a person before destroy.
const (
	EffectRead    Effect = "read"
	EffectWrite   Effect = "write"
	EffectDestroy Effect = "destroy"
)

// Verb is one thing a command can do.
type Verb struct {
	// Name is one or two words: "save", "trash restore".
	Name string `json:"name"`
	// Aliases are other one-word names; they work on every surface.
	Aliases []string `json:"aliases,omitempty"`
	Summary string   `json:"summary"`
	// Help is the rest of the explanation, may be empty, may have several
	// paragraphs.
	Help string `json:"help,omitempty"`
	// Examples are command lines that begin with the verb.
	Examples []string `json:"examples,omitempty"`
	Args     []Arg    `json:"args,omitempty"`
	Flags    []Flag   `json:"flags,omitempty"`
	Effect   Effect   `json:"effect"`
	// AfterTurn marks a verb that cannot run inside a turn of its own session. A
	// call with [Call.Turn] set only checks whether it could run, and changes
	// nothing; the host queues the call then, and dispatches it when the turn has
	// ended.
	AfterTurn bool `json:"afterTurn,omitempty"`
	// ByHand marks a verb for people at a command line ([CallerCLI]): others are
	// denied, and what lists verbs to programs leaves it out.
	ByHand bool `json:"byHand,omitempty"`
	// Main marks the verbs that help shows first.
	Main bool `json:"main,omitempty"`
	// Internal marks a verb for plugins only ([Caller.Internal]): no surface
	// shows it.
	Internal bool `json:"internal,omitempty"`
	// Input names the argument that stands for a file of the client's, whose
	// content is [Call.Input]; without the word it is what comes in beside the
	// command line. "" is a verb that reads none. Objects have the field "input"
	// in its place: the content, as a string.
	Input string `json:"input,omitempty"`
	// Output names the flag that stands for a file of the client's which takes
	// what the verb writes to [Call.Output]; without it that goes out in place of
	// the answer. Objects have no such field. Where nobody takes it, it is the
	// answer: as text and, where it is no JSON, as a string of data.
	Output string `json:"output,omitempty"`
}

// FieldInput is the field of objects that has the content of a verb's input.
const FieldInput = "input"

// clientSide reports whether an argument or flag stands for a file that only the
// client can open.
func (v *Verb) clientSide(name string) bool {
	return name != "" && (name == v.Input || name == v.Output)
}

// ObjectArgs are the arguments that objects have a field for.
func (v *Verb) ObjectArgs() iter.Seq[*Arg] {
	return func(yield func(*Arg) bool) {
		for i := range v.Args {
			if !v.clientSide(v.Args[i].Name) && !yield(&v.Args[i]) {
				return
			}
		}
	}
}

// ObjectFlags are the flags that objects have a field for.
func (v *Verb) ObjectFlags() iter.Seq[*Flag] {
	return func(yield func(*Flag) bool) {
		for i := range v.Flags {
			if f := &v.Flags[i]; !f.Internal && !v.clientSide(f.Name) && !yield(f) {
				return
			}
		}
	}
}

// The flags of a verb that gives a list in parts; see [Page].
const (
	FlagLimit = "limit" // at most so many items
	FlagAfter = "after" // go on behind a page: its Next
)

// Paged reports whether the verb gives a list in parts.
func (v *Verb) Paged() bool { return v.Flag(FlagLimit) != nil && v.Flag(FlagAfter) != nil }

// Type is the type of an argument's or flag's value.
type Type string

// The types. In objects: a JSON string, integer, boolean, array of strings,
// object of strings, and a string such as "36h" or "7d".
const (
	TypeString   Type = "string"
	TypeInt      Type = "int"
	TypeBool     Type = "bool"
	TypeStrings  Type = "strings"  // a repeatable flag
	TypeMap      Type = "map"      // k=v pairs, repeatable, comma separated
	TypeDuration Type = "duration" // Go's units, and d and w
)

// Arg is a positional argument.
type Arg struct {
	Name     string `json:"name"` // kebab-case
	Type     Type   `json:"type"` // string or int
	Help     string `json:"help,omitempty"`
	Required bool   `json:"required,omitempty"`
	// Repeated marks the last argument as taking all remaining words.
	Repeated bool `json:"repeated,omitempty"`
	// Complete names what completes it: "" for nothing, "snapshot", …; the
	// plugin's Complete answers.
	Complete string `json:"complete,omitempty"`
}

// Flag is a named option.
type Flag struct {
	Name    string `json:"name"`            // kebab-case, without dashes
	Short   string `json:"short,omitempty"` // one letter
	Type    Type   `json:"type"`
	Help    string `json:"help,omitempty"`
	Default string `json:"default,omitempty"` // as typed; "" is the type's zero
	// Enum lists the only allowed values.
	Enum []string `json:"enum,omitempty"`
	// Negatable marks a boolean that also has a --no-<name> form. Only that
	// form is declared here when the name begins with "no-": --no-backup
	// is the object field backup:false.
	Negatable bool `json:"negatable,omitempty"`
	// Confirm marks the flag that confirms destruction: object surfaces take
	// nothing but a real boolean for it.
	Confirm bool `json:"confirm,omitempty"`
	// Internal marks a flag for plugins only; see [Caller.Internal].
	Internal bool `json:"internal,omitempty"`
	// Complete is as in [Arg].
	Complete string `json:"complete,omitempty"`
}

// Route is an extra HTTP route: a path template such as
// "/sessions/{id}/snapshots" and the argv it stands for, in which "{name}"
// takes a path parameter or a body field.
type Route struct {
	Method string   `json:"method"`
	Path   string   `json:"path"`
	Argv   []string `json:"argv"`
	Status int      `json:"status,omitempty"` // of success; 0 means 200
}

// Shortcut is an extra slash command: "/snapshot" standing for argv, to which
// the words typed after it are added.
type Shortcut struct {
	Name    string   `json:"name"`
	Argv    []string `json:"argv"`
	Summary string   `json:"summary"`
}

// ToolName is the name of the command's agent tool.
func (s *Spec) ToolName() string { return strings.ReplaceAll(s.Command, "-", "_") + "_manage" }

// Find resolves the verb at the start of argv, by name or alias, ignoring
// neither case nor abbreviations. It returns the verb and how many words its
// name took; nil and 0 when there is none.
func (s *Spec) Find(argv []string) (*Verb, int) {
	if len(argv) == 0 {
		return nil, 0
	}
	if len(argv) > 1 {
		two := argv[0] + " " + argv[1]
		for i := range s.Verbs {
			if s.Verbs[i].Name == two {
				return &s.Verbs[i], 2
			}
		}
	}
	for i := range s.Verbs {
		if v := &s.Verbs[i]; v.Name == argv[0] || slices.Contains(v.Aliases, argv[0]) {
			return v, 1
		}
	}
	return nil, 0
}

// Flag returns the flag of that name (without dashes), or nil.
func (v *Verb) Flag(name string) *Flag {
	for i := range v.Flags {
		if v.Flags[i].Name == name {
			return &v.Flags[i]
		}
	}
	return nil
}

// Camel turns a kebab-case name into the camelCase one that objects use:
// "include-auto" into "includeAuto".
func Camel(kebab string) string {
	parts := strings.Split(kebab, "-")
	for i, p := range parts[1:] {
		if p != "" {
			parts[i+1] = strings.ToUpper(p[:1]) + p[1:]
		}
	}
	return strings.Join(parts, "")
}

// HostFlags are the flags that the host takes for itself on every command
// line; no verb may declare one of them.
func HostFlags() []Flag {
	return []Flag{
		{Name: "agent", Type: TypeString, Help: "agent whose snapshots are meant (default main)", Complete: "agent"},
		{Name: "project", Type: TypeString, Help: "project of the session and its snapshots", Complete: "project"},
		{Name: "session", Type: TypeString, Help: "session to work on (default: the active one)", Complete: "session"},
		{Name: "json", Type: TypeBool, Help: "print one JSON document"},
		{Name: "quiet", Short: "q", Type: TypeBool, Help: "print only what was asked for"},
		{Name: "verbose", Short: "v", Type: TypeBool, Help: "log to stderr"},
		{Name: "home", Type: TypeString, Help: "where everything is kept (default ~/.sess, or SESS_HOME)", Complete: "folder"},
		{Name: "url", Type: TypeString, Help: "work through the gateway at this address (or SESS_GATEWAY_URL)"},
		{Name: "token", Type: TypeString, Help: "its token (better in SESS_GATEWAY_TOKEN: others see your command lines)"},
		{Name: "token-file", Type: TypeString, Help: "a file with its token", Complete: "file"},
	}
}
