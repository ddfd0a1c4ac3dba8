package plugin

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

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

// objectFields are the fields that objects use themselves beside a verb's own.
var objectFields = []string{"action", "argv", "agent", "project", "session"}

// Check tells every mistake of a Spec: names that are not in kebab-case, or that
// stand for two things, unknown types and effects, ways that lead nowhere. What
// it lets pass, every surface can offer. Hosts check what a plugin brings; package
// dispatch checks what is declared with it.
func (s *Spec) Check() error {
	c := specChecker{}
	if !isKebab(s.Command) {
		c.bad("command %q: want a name in kebab-case", s.Command)
	}
	if s.Summary == "" || len(s.Verbs) == 0 {
		c.bad("command %q: want a summary and verbs", s.Command)
	}
	for i := range s.Verbs {
		c.verb(&s.Verbs[i])
	}
	c.names(s.Verbs)
	c.ways(s)
	return errors.Join(c.errs...)
}

// specChecker collects the mistakes of a Spec.
type specChecker struct{ errs []error }

func (c *specChecker) bad(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf(format, args...))
}

func (c *specChecker) verb(v *Verb) {
	effects := []Effect{EffectRead, EffectWrite, EffectDestroy}
	switch {
	case v.Summary == "":
		c.bad("verb %q: want a summary", v.Name)
	case !slices.Contains(effects, v.Effect):
		c.bad("verb %q: unknown effect %q", v.Name, v.Effect)
	}
	fields := map[string]string{}
	if v.Input != "" {
		fields[FieldInput] = "the input of the verb"
		if !slices.ContainsFunc(v.Args, func(a Arg) bool { return a.Name == v.Input && a.Type == TypeString && !a.Required && !a.Repeated }) {
			c.bad("verb %q: want its input %q to be an argument that is one optional string", v.Name, v.Input)
		}
	}
	if f := v.Flag(v.Output); v.Output != "" && (f == nil || f.Type != TypeString) {
		c.bad("verb %q: want its output %q to be a flag that is a string", v.Name, v.Output)
	}
	c.args(v, fields)
	c.flags(v, fields)
}

func (c *specChecker) args(v *Verb, fields map[string]string) {
	optional := false
	for i, a := range v.Args {
		where := fmt.Sprintf("verb %q, argument %q", v.Name, a.Name)
		switch {
		case !isKebab(a.Name):
			c.bad("%s: want a name in kebab-case", where)
		case a.Type != TypeString && a.Type != TypeInt:
			c.bad("%s: want the type string or int", where)
		case a.Repeated && i < len(v.Args)-1:
			c.bad("%s: only the last argument repeats", where)
		case a.Required && optional:
			c.bad("%s: it is required but follows an optional one", where)
		}
		optional = optional || !a.Required
		if !v.clientSide(a.Name) {
			c.field(where, Camel(a.Name), fields)
		}
	}
}

func (c *specChecker) flags(v *Verb, fields map[string]string) {
	types := []Type{TypeString, TypeInt, TypeBool, TypeStrings, TypeMap, TypeDuration}
	shorts := map[string]bool{"h": true}
	names := map[string]bool{"help": true, "version": true}
	for _, f := range HostFlags() {
		names[f.Name] = true
		shorts[f.Short] = f.Short != ""
	}
	for i := range v.Flags {
		f := &v.Flags[i]
		where := fmt.Sprintf("verb %q, flag %q", v.Name, f.Name)
		switch {
		case !isKebab(f.Name):
			c.bad("%s: want a name in kebab-case", where)
		case !slices.Contains(types, f.Type):
			c.bad("%s: unknown type %q", where, f.Type)
		case names[f.Name]:
			c.bad("%s: the name is taken, by the host or by the verb itself", where)
		case f.Short != "" && (len(f.Short) != 1 || !isASCIILetter(rune(f.Short[0]))):
			c.bad("%s: want one letter as its short form", where)
		case shorts[f.Short]:
			c.bad("%s: the short form %q is taken, by the host or by the verb itself", where, f.Short)
		case f.Type != TypeBool && (f.Negatable || f.Confirm || strings.HasPrefix(f.Name, "no-")):
			c.bad("%s: only a bool can be negated or confirm", where)
		case f.Negatable && strings.HasPrefix(f.Name, "no-"):
			c.bad("%s: it is negative already", where)
		case f.Enum != nil && f.Type != TypeString:
			c.bad("%s: only a string has an enum", where)
		}
		names[f.Name] = true
		shorts[f.Short] = f.Short != ""
		if f.Negatable {
			names["no-"+f.Name] = true
		}
		if !f.Internal && !v.clientSide(f.Name) { // objects never carry these
			c.field(where, f.Field(), fields)
		}
	}
}

// field makes sure that an object can name every argument and flag.
func (c *specChecker) field(where, field string, taken map[string]string) {
	if slices.Contains(objectFields, field) {
		c.bad("%s: objects use the field %q themselves", where, field)
	}
	if other, ok := taken[field]; ok {
		c.bad("%s: in objects it has the same field %q as %s", where, field, other)
	}
	taken[field] = where
}

// names checks that a word can mean one verb only.
func (c *specChecker) names(verbs []Verb) {
	taken := map[string]bool{"help": true}
	alone := map[string]*Verb{} // verbs of one word, with their aliases
	groups := map[string]bool{} // first words of verbs of two
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
func (c *specChecker) ways(s *Spec) {
	methods := []string{"GET", "POST", "PUT", "PATCH", "DELETE"}
	for _, r := range s.Routes {
		v, _ := s.Find(r.Argv)
		switch {
		case !slices.Contains(methods, r.Method) || !strings.HasPrefix(r.Path, "/"):
			c.bad("route %s %s: want a method of HTTP and a path", r.Method, r.Path)
		case v == nil:
			c.bad("route %s %s: it leads to no verb", r.Method, r.Path)
		case r.Method == "GET" && v.Effect != EffectRead:
			c.bad("route %s %s: GET is for verbs that only read", r.Method, r.Path)
		}
	}
	taken := map[string]bool{s.Command: true}
	for _, short := range s.Shortcuts {
		v, _ := s.Find(short.Argv)
		switch {
		case !isKebab(short.Name) || taken[short.Name]:
			c.bad("shortcut %q: want a free name in kebab-case", short.Name)
		case v == nil:
			c.bad("shortcut %q: it leads to no verb", short.Name)
		}
		taken[short.Name] = true
	}
}
