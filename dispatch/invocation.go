package dispatch

import (
	"fmt"
	"strconv"
	"time"

	"sess/plugin"
)

// Invocation is one call of a verb, parsed and checked. Values are read by the
// names they were declared under; asking for a name or type that the verb did
// not declare panics, as that is a mistake of the program. It is used by one
// goroutine at a time and is of no use after Run has returned.
type Invocation struct {
	// Call is what was dispatched.
	Call plugin.Call

	verb     *verb
	values   map[string]*value
	words    map[string][]string // by argument; absent where none was given
	progress plugin.ProgressFunc
}

// Progress tells how far a long operation is.
func (in *Invocation) Progress(p plugin.Progress) { in.progress.Report(p) }

// Changed reports whether a flag was given, even if with its default.
func (in *Invocation) Changed(flag string) bool {
	v, ok := in.values[flag]
	if !ok {
		panic(fmt.Sprintf("dispatch: %s has no flag %q", in.verb.Name, flag))
	}
	return v.given
}

// String is the value of a string flag.
func (in *Invocation) String(flag string) string { return in.flag(flag, plugin.TypeString).text }

// Int is the value of an int flag.
func (in *Invocation) Int(flag string) int64 { return in.flag(flag, plugin.TypeInt).num }

// Bool is the value of a bool flag. That of a flag declared as "no-backup" is
// true where --no-backup was given.
func (in *Invocation) Bool(flag string) bool { return in.flag(flag, plugin.TypeBool).on }

// Duration is the value of a duration flag; it is never negative.
func (in *Invocation) Duration(flag string) time.Duration {
	return in.flag(flag, plugin.TypeDuration).span
}

// Strings lists the values of a repeatable flag in the order given; nil means
// none.
func (in *Invocation) Strings(flag string) []string { return in.flag(flag, plugin.TypeStrings).list }

// Map holds the pairs of a map flag; nil means that it was not given. The
// caller owns it.
func (in *Invocation) Map(flag string) map[string]string { return in.flag(flag, plugin.TypeMap).pairs }

// Has reports whether an argument was given, even if as "".
func (in *Invocation) Has(arg string) bool { return len(in.Args(arg)) > 0 }

// Arg is the first word of an argument, or "" where it was not given.
func (in *Invocation) Arg(arg string) string {
	if words := in.Args(arg); len(words) > 0 {
		return words[0]
	}
	return ""
}

// ArgInt is the value of an int argument, or 0 where it was not given.
func (in *Invocation) ArgInt(arg string) int64 {
	if ints := in.ArgInts(arg); len(ints) > 0 {
		return ints[0]
	}
	return 0
}

// Args lists all words of an argument; nil means that it was not given.
func (in *Invocation) Args(arg string) []string {
	in.arg(arg)
	return in.words[arg]
}

// ArgInts lists the values of a repeated int argument.
func (in *Invocation) ArgInts(arg string) []int64 {
	if a := in.arg(arg); a.Type != plugin.TypeInt {
		panic(fmt.Sprintf("dispatch: argument %q of %s is a %s", arg, in.verb.Name, a.Type))
	}
	ints := make([]int64, 0, len(in.words[arg]))
	for _, w := range in.words[arg] {
		n, err := strconv.ParseInt(w, 10, 64)
		if err != nil {
			panic("dispatch: a number that parsing had checked: " + err.Error())
		}
		ints = append(ints, n)
	}
	return ints
}

func (in *Invocation) flag(name string, typ plugin.Type) *value {
	v, ok := in.values[name]
	if !ok || v.flag.spec.Type != typ {
		panic(fmt.Sprintf("dispatch: %s has no %s flag %q", in.verb.Name, typ, name))
	}
	return v
}

func (in *Invocation) arg(name string) plugin.Arg {
	for _, a := range in.verb.spec.Args {
		if a.Name == name {
			return a
		}
	}
	panic(fmt.Sprintf("dispatch: %s has no argument %q", in.verb.Name, name))
}
