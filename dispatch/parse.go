package dispatch

import (
	"errors"
	"regexp"
	"strings"
	"sync"

	"github.com/spf13/pflag"

	"sess/plugin"
)

var negative = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^-[0-9]+$`) })

// parse reads the words after the verb: flags and arguments in any order up to
// "--", after which everything is an argument.
func (in *Invocation) parse(argv []string) error {
	set, values := in.verb.flagSet(in.Call.Caller.Internal())
	in.values = values
	var words []string
	for len(argv) > 0 {
		word := argv[0]
		if word == "--" {
			words = append(words, argv[1:]...)
			break
		}
		if len(word) < 2 || word[0] != '-' || negative().MatchString(word) && in.verb.typeAt(len(words)) == plugin.TypeInt {
			words = append(words, word)
			argv = argv[1:]
			continue
		}
		// A flag takes the next word only if it needs a value and has none.
		n, err := 1, parseFlag(set, argv[:1])
		if _, ok := errors.AsType[*pflag.ValueRequiredError](err); ok && len(argv) > 1 {
			n, err = 2, parseFlag(set, argv[:2])
		}
		if err != nil {
			return in.flagError(word, err)
		}
		argv = argv[n:]
	}
	return in.assign(words)
}

// parseFlag lets pflag read one flag. pflag passes over what looks like a flag
// of a test binary; here that is an unknown flag like any other.
func parseFlag(set *pflag.FlagSet, argv []string) error {
	if strings.HasPrefix(argv[0], "-test.") {
		return new(pflag.NotExistError)
	}
	return set.Parse(argv)
}

// typeAt is the type of the argument that the i-th word belongs to, or "".
func (v *verb) typeAt(i int) plugin.Type {
	args := v.spec.Args
	if n := len(args); n > 0 && i >= n && args[n-1].Repeated {
		i = n - 1
	}
	if i < len(args) {
		return args[i].Type
	}
	return ""
}

// flagError says in our words what pflag found wrong with the flag in word.
func (in *Invocation) flagError(word string, err error) error {
	if e, ok := errors.AsType[*plugin.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		f := e.GetFlag()
		return plugin.Errorf(plugin.Usage, "--%s needs a value", f.Name).
			WithHint("write --%s=%s", f.Name, in.verb.spec.Flag(f.Name).Placeholder())
	}
	name, _, _ := strings.Cut(word, "=")
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok && e.GetSpecifiedShortnames() != "" {
		name = strings.ToValidUTF8("-"+firstShort(word, e), "�")
	}
	known := in.verb.flagNames(in.Call.Caller.Internal())
	takes := "no flags"
	if len(known) > 0 {
		takes = "--" + strings.Join(known, ", --")
	}
	unknown := plugin.Errorf(plugin.Usage, "unknown flag %s: %s takes %s", name, in.verb.Name, takes)
	if errors.Is(err, pflag.ErrHelp) {
		return unknown.WithHint("usage: %s", in.verb.spec.Usage())
	}
	if bare := strings.TrimLeft(name, "-"); len(bare) > 1 {
		if near := plugin.Nearest(bare, known); near != nil {
			return unknown.WithHint("did you mean --%s?", strings.Join(near, " or --")).
				WithDetail("candidates", "--"+strings.Join(near, ", --"))
		}
	}
	if len(in.verb.spec.Args) > 0 {
		return unknown.WithHint("leave it out; an argument that begins with a dash comes after --")
	}
	return unknown.WithHint("usage: %s", in.verb.spec.Usage())
}

// firstShort is the letter of a group of short flags that pflag stopped at, as
// a whole character (pflag itself counts bytes).
func firstShort(word string, e *pflag.NotExistError) string {
	rest := word[len(word)-len(e.GetSpecifiedShortnames()):]
	for _, r := range rest {
		return string(r)
	}
	return rest
}

// assign gives the words to the verb's arguments, in order.
func (in *Invocation) assign(words []string) error {
	v := &in.verb.spec
	in.words = make(map[string][]string, len(v.Args))
	for _, a := range v.Args {
		n := min(1, len(words))
		if a.Repeated {
			n = len(words)
		}
		if n == 0 {
			if a.Required {
				return plugin.Errorf(plugin.Usage, "%s: <%s> is missing", v.Name, a.Name).
					WithHint("usage: %s", v.Usage()).WithDetail("missing", a.Name)
			}
			break
		}
		if a.Type == plugin.TypeInt {
			for _, w := range words[:n] {
				if _, err := parseInt("<"+a.Name+">", w); err != nil {
					return err
				}
			}
		}
		in.words[a.Name] = words[:n:n]
		words = words[n:]
	}
	if len(words) == 0 {
		return nil
	}
	var takes []string
	for _, a := range v.Args {
		takes = append(takes, "<"+a.Name+">")
	}
	if takes == nil {
		return plugin.Errorf(plugin.Usage, "unexpected %q: %s takes no arguments", words[0], v.Name).
			WithHint("usage: %s", v.Usage())
	}
	return plugin.Errorf(plugin.Usage, "unexpected %q: %s takes %s only", words[0], v.Name, strings.Join(takes, " and ")).
		WithHint("leave it out, or put quotes around a value that has spaces")
}
