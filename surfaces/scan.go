package surfaces

import (
	"slices"
	"strings"

	"sess/plugin"
)

// FindVerb resolves the verb that the plain words of a command line begin
// with, or returns nil as long as they name none.
type FindVerb func(words []string) *plugin.Verb

// HostFlags are the flags that the host takes for itself; see
// [plugin.HostFlags]. A zero field was not given.
type HostFlags struct {
	Agent, Project, Session, Home string
	URL, Token, TokenFile         string
	JSON, Quiet, Verbose          bool
	Help, Version                 bool
}

// hostFlags lists the flags that a [HostFlags] holds.
func hostFlags() []plugin.Flag {
	return append(plugin.HostFlags(),
		plugin.Flag{Name: "help", Short: "h", Type: plugin.TypeBool, Help: "tell how it is used"},
		plugin.Flag{Name: "version", Type: plugin.TypeBool, Help: "print the version"},
	)
}

// text and on point to the field of a flag of hostFlags.
func (h *HostFlags) text(name string) *string {
	return map[string]*string{
		"agent": &h.Agent, "project": &h.Project, "session": &h.Session, "home": &h.Home,
		"url": &h.URL, "token": &h.Token, "token-file": &h.TokenFile,
	}[name]
}

func (h *HostFlags) on(name string) *bool {
	return map[string]*bool{
		"json": &h.JSON, "quiet": &h.Quiet, "verbose": &h.Verbose, "help": &h.Help, "version": &h.Version,
	}[name]
}

func (h *HostFlags) set(name, value string, given map[string]bool) error {
	defer func() { given[name] = true }()
	if on := h.on(name); on != nil {
		if value != "true" && value != "false" {
			return plugin.Errorf(plugin.Usage, "--%s: %q is neither true nor false", name, value).
				WithHint("write --%s, or leave it out", name)
		}
		if given[name] && *on != (value == "true") {
			return plugin.Errorf(plugin.Usage, "--%s is both on and off", name).WithHint("give it once")
		}
		*on = value == "true"
		return nil
	}
	switch {
	case given[name]:
		return plugin.Errorf(plugin.Usage, "--%s is given twice", name).WithHint("give it once")
	case value == "":
		return plugin.Errorf(plugin.Usage, "--%s is empty", name).WithHint("name one, or leave --%s out for the default", name)
	}
	*h.text(name) = value
	return nil
}

// scanned is what a pass over the words of a command line found.
type scanned struct {
	host    HostFlags
	argv    []string // the rest, in order
	words   []string // those of argv that are neither flags nor their values
	verb    *plugin.Verb
	pending *plugin.Flag // the last word was this flag, and it wants a value
	ended   bool         // "--" was seen
}

// scan separates the host's flags from the rest. It knows from the verb which
// words are values of the verb's own flags, so it never takes one of those. The
// first mistake is returned, beside all that was found.
func scan(args []string, find FindVerb) (s scanned, err error) {
	flags := hostFlags()
	given := map[string]bool{}
	set := func(name, value string) {
		if e := s.host.set(name, value, given); e != nil && err == nil {
			err = e
		}
	}
	for i := 0; i < len(args); i++ {
		word := args[i]
		if s.ended || len(word) < 2 || word[0] != '-' {
			s.argv = append(s.argv, word)
			s.words = append(s.words, word)
			if !s.ended {
				s.verb = find(s.words)
			}
			continue
		}
		if word == "--" {
			s.argv = append(s.argv, word)
			s.ended = true
			continue
		}
		own, ownWantsNext := flagIn(s.verb, word)
		host, hostWantsNext := flagOf(flags, word)
		switch {
		case own == nil && host != nil && hostWantsNext:
			if i+1 == len(args) {
				s.pending = host
				break
			}
			i++
			set(host.Name, args[i])
		case own == nil && host != nil:
			name, value, inline := strings.Cut(word, "=")
			if !inline {
				value = "true"
			}
			// Of a group of letters, which are all flags without a value, "="
			// belongs to the last one.
			if !strings.HasPrefix(name, "--") {
				for i := 1; i < len(name)-1; i++ {
					f, _ := flagOf(flags, "-"+name[i:i+1])
					set(f.Name, "true")
				}
			}
			set(host.Name, value)
		default:
			s.argv = append(s.argv, word)
			if !ownWantsNext {
				break
			}
			if i+1 == len(args) {
				s.pending = own
				break
			}
			i++
			s.argv = append(s.argv, args[i])
		}
	}
	return s, err
}

// FileNames returns what the words after a verb's name say of the files that it
// reads and writes; see [plugin.Verb]. "" is where they say nothing.
func FileNames(v *plugin.Verb, argv []string) (input, output string) {
	arg, ended := 0, false
	for i := 0; i < len(argv); i++ {
		word := argv[i]
		switch {
		case ended || len(word) < 2 || word[0] != '-':
			if arg < len(v.Args) && v.Args[arg].Name == v.Input {
				input = word
			}
			arg++
		case word == "--":
			ended = true
		default:
			f, next := flagOf(v.Flags, word)
			_, value, _ := strings.Cut(word, "=")
			if next && i+1 < len(argv) {
				i++
				value = argv[i]
			}
			if f != nil && f.Name == v.Output {
				output = value
			}
		}
	}
	return input, output
}

func flagIn(v *plugin.Verb, word string) (*plugin.Flag, bool) {
	if v == nil {
		return nil, false
	}
	return flagOf(v.Flags, word)
}

// flagOf finds the flag that a word beginning with a dash names, and whether
// the next word is its value. Of a group of letters it returns the last flag;
// a group with an unknown letter names none.
func flagOf(flags []plugin.Flag, word string) (f *plugin.Flag, wantsNext bool) {
	if name, ok := strings.CutPrefix(word, "--"); ok {
		name, _, inline := strings.Cut(name, "=")
		for i := range flags {
			f := &flags[i]
			if f.Name == name || f.Negatable && "no-"+f.Name == name {
				return f, !inline && f.Type != plugin.TypeBool
			}
		}
		return nil, false
	}
	for i := 1; i < len(word); i++ {
		at := slices.IndexFunc(flags, func(f plugin.Flag) bool { return f.Short == word[i:i+1] })
		if at < 0 {
			return nil, false
		}
		f = &flags[at]
		if f.Type != plugin.TypeBool || i+1 < len(word) && word[i+1] == '=' {
			return f, f.Type != plugin.TypeBool && i+1 == len(word)
		}
	}
	return f, false
}
