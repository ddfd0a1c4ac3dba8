package dispatch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"sess/plugin"
)

// Flags collects the flags of one verb. Its methods declare a flag each, in
// the order of help, and return it for refinement.
type Flags struct{ list []*Flag }

// Flag is one declared flag. Its methods refine it and return it again.
type Flag struct {
	spec     plugin.Flag
	min, max *int64
}

func (f *Flags) add(name string, typ plugin.Type, def, help string) *Flag {
	fl := &Flag{spec: plugin.Flag{Name: name, Type: typ, Default: def, Help: help}}
	f.list = append(f.list, fl)
	return fl
}

// String declares a flag that takes any text.
func (f *Flags) String(name, def, help string) *Flag {
	return f.add(name, plugin.TypeString, def, help)
}

// Int declares a flag that takes a whole number of 64 bits.
func (f *Flags) Int(name string, def int64, help string) *Flag {
	text := ""
	if def != 0 {
		text = strconv.FormatInt(def, 10)
	}
	return f.add(name, plugin.TypeInt, text, help)
}

// Bool declares a flag that is given as --name, or --name=true or =false. A
// name that begins with "no-" switches off what is on by default: the object
// surfaces know it without the "no-" and the other way round.
func (f *Flags) Bool(name string, def bool, help string) *Flag {
	text := ""
	if def {
		text = "true"
	}
	return f.add(name, plugin.TypeBool, text, help)
}

// Strings declares a flag that may be given several times. A value is taken
// whole: commas do not split it.
func (f *Flags) Strings(name, help string) *Flag {
	return f.add(name, plugin.TypeStrings, "", help)
}

// Map declares a flag of k=v pairs, comma separated, that may be given several
// times. A pair that holds a comma, or begins with a double quote, is quoted as
// in CSV: --tags='"a=1,2",b=3'. An empty value gives no pairs.
func (f *Flags) Map(name, help string) *Flag {
	return f.add(name, plugin.TypeMap, "", help)
}

// Duration declares a flag that takes a duration; see [ParseDuration].
func (f *Flags) Duration(name string, def time.Duration, help string) *Flag {
	return f.add(name, plugin.TypeDuration, formatDuration(def), help)
}

// formatDuration writes a default as people would type it; zero is "".
func formatDuration(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d == 0:
		return ""
	case d%day == 0:
		return strconv.FormatInt(int64(d/day), 10) + "d"
	case d%time.Hour == 0:
		return strconv.FormatInt(int64(d/time.Hour), 10) + "h"
	}
	return d.String()
}

// Short gives the flag a one-letter form.
func (f *Flag) Short(letter string) *Flag { f.spec.Short = letter; return f }

// Enum lists the only values that a string flag takes.
func (f *Flag) Enum(values ...string) *Flag { f.spec.Enum = slices.Clone(values); return f }

// Min is the smallest number that an int flag takes.
func (f *Flag) Min(n int64) *Flag { f.min = &n; return f }

// Max is the largest number that an int flag takes.
func (f *Flag) Max(n int64) *Flag { f.max = &n; return f }

// Complete says what the plugin's Complete is asked for, for the shell.
func (f *Flag) Complete(kind string) *Flag { f.spec.Complete = kind; return f }

// Negatable gives a bool flag a --no-<name> form as well.
func (f *Flag) Negatable() *Flag { f.spec.Negatable = true; return f }

// Confirm marks the bool flag that confirms destruction.
func (f *Flag) Confirm() *Flag { f.spec.Confirm = true; return f }

// Internal keeps the flag for plugins and the host; to others it is unknown.
func (f *Flag) Internal() *Flag { f.spec.Internal = true; return f }

// value is what a flag got in one call; it is a [pflag.Value]. The fields of
// the types that the flag has not stay zero.
type value struct {
	flag  *Flag
	given bool
	text  string
	num   int64
	on    bool
	span  time.Duration
	list  []string
	pairs map[string]string
}

// newValue returns the flag's default. Defaults are checked by New.
func (f *Flag) newValue() (*value, error) {
	v := &value{flag: f}
	if f.spec.Default == "" {
		return v, nil
	}
	err := v.Set(f.spec.Default)
	v.given = false
	return v, err
}

func (v *value) String() string { return "" }
func (v *value) Type() string   { return string(v.flag.spec.Type) }

// Set takes one occurrence of the flag. A second one that says something else
// is refused: the first would be lost without a word.
func (v *value) Set(s string) error {
	name := "--" + v.flag.spec.Name
	first := !v.given
	v.given = true
	repeatable := v.flag.spec.Type == plugin.TypeStrings || v.flag.spec.Type == plugin.TypeMap
	if !first && !repeatable && v.flag.spec.Type != plugin.TypeBool {
		return plugin.Errorf(plugin.Usage, "%s is given twice", name).WithHint("give it once")
	}
	switch v.flag.spec.Type {
	case plugin.TypeBool:
		on, err := parseBool(name, s)
		if err != nil {
			return err
		}
		if !first && on != v.on {
			return plugin.Errorf(plugin.Usage, "%s is both on and off", name).WithHint("give it once")
		}
		v.on = on
	case plugin.TypeInt:
		n, err := parseInt(name, s)
		if err != nil {
			return err
		}
		if v.flag.min != nil && n < *v.flag.min {
			return plugin.Errorf(plugin.Usage, "%s: %d is too small", name, n).WithHint("want a number from %d", *v.flag.min)
		}
		if v.flag.max != nil && n > *v.flag.max {
			return plugin.Errorf(plugin.Usage, "%s: %d is too large", name, n).WithHint("want a number up to %d", *v.flag.max)
		}
		v.num = n
	case plugin.TypeDuration:
		d, err := ParseDuration(s)
		if err != nil {
			e := plugin.AsError(err)
			return plugin.Errorf(e.Code, "%s: %w", name, e).WithHint("%s", e.Hint)
		}
		v.span = d
	case plugin.TypeStrings:
		v.list = append(v.list, s)
	case plugin.TypeMap:
		return v.addPairs(name, s)
	default:
		if v.flag.spec.Enum != nil && !slices.Contains(v.flag.spec.Enum, s) {
			return plugin.Errorf(plugin.Usage, "%s: %q is not allowed", name, s).
				WithHint("want one of %s", strings.Join(v.flag.spec.Enum, ", "))
		}
		v.text = s
	}
	return nil
}

func (v *value) addPairs(name, s string) error {
	if v.pairs == nil {
		v.pairs = map[string]string{}
	}
	fields, err := splitList(s)
	if err != nil {
		return plugin.Errorf(plugin.Usage, "%s: %w", name, err).
			WithHint(`quote a pair that holds a comma as "key=a,b", a quote in it twice`)
	}
	for _, field := range fields {
		key, val, ok := strings.Cut(field, "=")
		switch {
		case !ok:
			return plugin.Errorf(plugin.Usage, "%s: %q has no =", name, field).WithHint("write %s=key=value", name)
		case key == "":
			return plugin.Errorf(plugin.Usage, "%s: %q has no key", name, field).WithHint("write %s=key=value", name)
		}
		if _, ok := v.pairs[key]; ok {
			return plugin.Errorf(plugin.Usage, "%s: the key %q is given twice", name, key).WithHint("give it once")
		}
		v.pairs[key] = val
	}
	return nil
}

// splitList splits at commas; a field that begins with a double quote goes to
// the closing one, and two double quotes in it are one. Unlike encoding/csv it
// leaves line ends as they are, since a value must survive byte for byte.
func splitList(s string) ([]string, error) {
	if s == "" {
		return nil, nil
	}
	var fields []string
	for {
		if !strings.HasPrefix(s, `"`) {
			field, rest, more := strings.Cut(s, ",")
			fields = append(fields, field)
			if !more {
				return fields, nil
			}
			s = rest
			continue
		}
		var b strings.Builder
		for s = s[1:]; ; {
			head, rest, ok := strings.Cut(s, `"`)
			if !ok {
				return nil, fmt.Errorf("the quote before %.20q is not closed", b.String()+s)
			}
			b.WriteString(head)
			s = rest
			if !strings.HasPrefix(s, `"`) {
				break
			}
			b.WriteByte('"')
			s = s[1:]
		}
		fields = append(fields, b.String())
		switch {
		case s == "":
			return fields, nil
		case s[0] != ',':
			return nil, fmt.Errorf("%.20q follows a closing quote", s)
		}
		s = s[1:]
	}
}

func parseBool(name, s string) (bool, error) {
	switch s {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, plugin.Errorf(plugin.Usage, "%s: %q is neither true nor false", name, s).
		WithHint("write %s, or %s=false", name, name)
}

func parseInt(name, s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, plugin.Errorf(plugin.Usage, "%s: %q is not a whole number", name, s).
			WithHint("write digits only, such as 20")
	}
	return n, nil
}

// ParseDuration reads a duration as people write retention times: Go's units
// (ns us ms s m h), d for 24 hours and w for 7 days, also combined as in
// "1d12h". "0" and "" are zero. Signs, other bare numbers and results beyond
// 292 years are refused with the code usage.
func ParseDuration(s string) (time.Duration, error) {
	bad := func(why string) (time.Duration, error) {
		return 0, plugin.Errorf(plugin.Usage, "%q %s", s, why).
			WithHint("write a number with a unit, such as 36h, 7d or 2w; 0 for none")
	}
	if s == "" || s == "0" {
		return 0, nil
	}
	if s[0] == '-' {
		return bad("is a negative duration")
	}
	var sum time.Duration
	for rest := s; rest != ""; {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789."))
		unit := strings.IndexAny(rest[digits:], "0123456789.")
		if unit < 0 {
			unit = len(rest) - digits
		}
		number, name := rest[:digits], rest[digits:digits+unit]
		rest = rest[digits+unit:]
		times := time.Duration(1)
		switch name {
		case "d":
			name, times = "h", 24
		case "w":
			name, times = "h", 7*24
		}
		part, err := time.ParseDuration(number + name)
		switch {
		case err != nil || digits == 0 || unit == 0:
			return bad("is not a duration")
		case part > (1<<63-1-sum)/times:
			return bad("is too long a duration")
		}
		sum += part * times
	}
	return sum, nil
}

// flagSet makes the parser of one call from the flags that the caller may use,
// and the values that parsing fills.
func (v *verb) flagSet(internal bool) (*pflag.FlagSet, map[string]*value) {
	set := pflag.NewFlagSet(v.Name, pflag.ContinueOnError)
	set.SetInterspersed(false)
	set.Usage = func() {}
	values := make(map[string]*value, len(v.flags))
	for _, f := range v.flags {
		val, err := f.newValue()
		if err != nil {
			panic("dispatch: a default that New had checked: " + err.Error())
		}
		values[f.spec.Name] = val
		if f.spec.Internal && !internal {
			continue
		}
		pf := set.VarPF(val, f.spec.Name, f.spec.Short, f.spec.Help)
		if f.spec.Type != plugin.TypeBool {
			continue
		}
		pf.NoOptDefVal = "true"
		if f.spec.Negatable {
			set.VarPF(negation{val}, "no-"+f.spec.Name, "", "").NoOptDefVal = "true"
		}
	}
	return set, values
}

// negation is the --no-<name> form of a bool flag.
type negation struct{ *value }

func (n negation) Set(s string) error {
	off, err := parseBool("--no-"+n.flag.spec.Name, s)
	if err != nil {
		return err
	}
	return n.value.Set(strconv.FormatBool(!off))
}
