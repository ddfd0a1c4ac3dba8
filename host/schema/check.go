package schema

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"sess/plugin"
)

// Fault is one thing that is wrong with a value.
type Fault struct {
	// Path leads to the field, such as "servers.2.port"; "" is the whole value.
	Path string `json:"path"`
	// Message says what is wrong and what would be right: "want integer, got
	// \"ten\"".
	Message string `json:"message"`
}

func (f Fault) String() string {
	if f.Path == "" {
		return f.Message
	}
	return f.Path + ": " + f.Message
}

// under is the fault as seen from where its value lies.
func (f Fault) under(path string) Fault {
	return Fault{join(path, f.Path), f.Message}
}

// Under sets the faults of a value below the path at which that value lies.
func Under(path string, faults []Fault) []Fault {
	out := make([]Fault, len(faults))
	for i, f := range faults {
		out[i] = f.under(path)
	}
	return out
}

// Check tells everything that is wrong with a value, ordered by path; none when
// the schema allows it. The value is one that [Decode] returns, or made of the
// types that encoding/json decodes to and Go's integers.
func (s *Schema) Check(value any) []Fault {
	faults := s.root.faults(value, "")
	slices.SortFunc(faults, func(a, b Fault) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Message, b.Message))
	})
	return slices.Compact(faults)
}

// faults checks one value, and all within it.
func (n *node) faults(value any, path string) []Fault {
	c := &check{path: path, value: value}
	switch {
	case n.never:
		c.fault("is not allowed here")
	case n.types != nil && !n.allowsType(value):
		// What else the schema says about it would be about another type.
		c.fault("want %s, got %s", strings.Join(n.types, " or "), show(value))
	default:
		c.values(n)
		switch value := value.(type) {
		case string:
			c.text(n, value)
		case []any:
			c.list(n, value)
		case map[string]any:
			c.object(n, value)
		default:
			c.number(n)
		}
		c.combined(n)
	}
	return c.found
}

// check gathers the faults of one value.
type check struct {
	path  string
	value any
	found []Fault
}

func (c *check) fault(format string, args ...any) {
	c.found = append(c.found, Fault{c.path, fmt.Sprintf(format, args...)})
}

// member checks a value within this one.
func (c *check) member(n *node, value any, step string) {
	c.found = append(c.found, n.faults(value, join(c.path, step))...)
}

// allowsType compares types as JSON Schema does: 1.0 is an integer.
func (n *node) allowsType(value any) bool {
	kind := kindOf(value)
	return slices.Contains(n.types, kind) || kind == "integer" && slices.Contains(n.types, "number")
}

func kindOf(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	}
	if r := rational(value); r != nil && r.IsInt() {
		return "integer"
	}
	return "number"
}

// rational is the exact value of a number. It is nil for anything else, and for
// a number whose exponent is too large to calculate with.
func rational(value any) *big.Rat {
	switch v := value.(type) {
	case json.Number:
		if r, ok := new(big.Rat).SetString(v.String()); ok {
			return r
		}
	case float64:
		return new(big.Rat).SetFloat64(v)
	case int:
		return new(big.Rat).SetInt64(int64(v))
	case int64:
		return new(big.Rat).SetInt64(v)
	}
	return nil
}

func (c *check) values(n *node) {
	if n.enum != nil && !slices.ContainsFunc(n.enum, func(v any) bool { return equal(v, c.value) }) {
		words := make([]string, len(n.enum))
		for i, v := range n.enum {
			words[i] = show(v)
		}
		c.fault("want one of %s, got %s", strings.Join(words, ", "), show(c.value))
	}
	if n.constant != nil && !equal(*n.constant, c.value) {
		c.fault("want %s, got %s", show(*n.constant), show(c.value))
	}
}

func (c *check) number(n *node) {
	bounds := []struct {
		*bound
		allows func(cmp int) bool
		words  string
	}{
		{n.minimum, func(cmp int) bool { return cmp >= 0 }, "is too small; want at least"},
		{n.maximum, func(cmp int) bool { return cmp <= 0 }, "is too large; want at most"},
		{n.above, func(cmp int) bool { return cmp > 0 }, "is too small; want more than"},
		{n.below, func(cmp int) bool { return cmp < 0 }, "is too large; want less than"},
	}
	if kind := kindOf(c.value); kind != "number" && kind != "integer" {
		return
	}
	r := rational(c.value)
	for _, b := range bounds {
		switch {
		case b.bound == nil:
		case r == nil:
			c.fault("%s is beyond the numbers that can be compared; want a smaller exponent", show(c.value))
			return
		case !b.allows(r.Cmp(b.value)):
			c.fault("%s %s %s", show(c.value), b.words, b.bound)
		}
	}
	if n.multipleOf != nil && (r == nil || !new(big.Rat).Quo(r, n.multipleOf.value).IsInt()) {
		c.fault("want a multiple of %s, got %s", n.multipleOf, show(c.value))
	}
}

func (c *check) text(n *node, value string) {
	if n.minLength != nil || n.maxLength != nil {
		length := utf8.RuneCountInString(value)
		switch {
		case n.minLength != nil && *n.minLength > 0 && length == 0:
			c.fault("must not be empty")
		case n.minLength != nil && length < *n.minLength:
			c.fault("has %d of at least %s", length, plural(*n.minLength, "character"))
		case n.maxLength != nil && length > *n.maxLength:
			c.fault("has %s; want at most %d", plural(length, "character"), *n.maxLength)
		}
	}
	if n.pattern != nil && !n.pattern.matches(value) {
		want := n.title
		if want == "" {
			want = "it to match " + n.pattern.text
		}
		c.fault("%s is not allowed; want %s", show(value), want)
	}
}

func (c *check) list(n *node, values []any) {
	for i, v := range values {
		if i < len(n.prefix) {
			c.member(n.prefix[i], v, strconv.Itoa(i))
		} else if n.items != nil {
			if n.items.never {
				c.fault("has %s; want at most %d", plural(len(values), "item"), i)
				break
			}
			c.member(n.items, v, strconv.Itoa(i))
		}
	}
	c.count(len(values), "item", n.minItems, n.maxItems)
	if n.unique {
		first := map[string]int{}
		for i, v := range values {
			key := canonical(v)
			if j, twice := first[key]; twice {
				c.found = append(c.found, Fault{join(c.path, strconv.Itoa(i)), "is the same as item " + strconv.Itoa(j)})
			} else {
				first[key] = i
			}
		}
	}
	if n.contains != nil {
		fit := 0
		for _, v := range values {
			if len(n.contains.faults(v, "")) == 0 {
				fit++
			}
		}
		least := 1
		if n.minContains != nil {
			least = *n.minContains
		}
		c.count(fit, "fitting item", &least, n.maxContains)
	}
}

func (c *check) count(have int, what string, least, most *int) {
	if least != nil && have < *least {
		c.fault("has %d of at least %s", have, plural(*least, what))
	}
	if most != nil && have > *most {
		c.fault("has %s; want at most %d", plural(have, what), *most)
	}
}

func (c *check) object(n *node, object map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(object)) {
		known := false
		if sub, ok := n.properties[key]; ok {
			known = true
			c.member(sub, object[key], key)
		}
		for _, p := range n.patterns {
			if p.pattern.matches(key) {
				known = true
				c.member(p.node, object[key], key)
			}
		}
		switch {
		case known || n.additional == nil:
		case n.additional.never:
			meant := ""
			if near := plugin.Nearest(key, slices.Sorted(maps.Keys(n.properties))); len(near) > 0 {
				meant = "; did you mean " + near[0] + "?"
			}
			c.found = append(c.found, Fault{join(c.path, key), "unknown key" + meant})
		default:
			c.member(n.additional, object[key], key)
		}
		if n.names != nil {
			for _, f := range n.names.faults(key, "") {
				// The pattern's own words begin with the key as well.
				why := strings.TrimPrefix(f.Message, show(key)+" is not allowed; ")
				c.fault("the key %s is not allowed; %s", show(key), why)
			}
		}
	}
	missing := func(keys []string, why string) {
		for _, key := range keys {
			if _, ok := object[key]; !ok {
				c.found = append(c.found, Fault{join(c.path, key), "missing" + why})
			}
		}
	}
	missing(n.required, "")
	for _, key := range slices.Sorted(maps.Keys(n.dependentRequired)) {
		if _, ok := object[key]; ok {
			missing(n.dependentRequired[key], "; "+key+" needs it")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(n.dependents)) {
		if _, ok := object[key]; ok {
			c.same(n.dependents[key])
		}
	}
	c.count(len(object), "key", n.minProperties, n.maxProperties)
}

// same holds another schema against the same value.
func (c *check) same(n *node) { c.found = append(c.found, n.faults(c.value, c.path)...) }

func (c *check) combined(n *node) {
	if n.ref != nil {
		c.same(n.ref)
	}
	for _, sub := range n.allOf {
		c.same(sub)
	}
	if n.anyOf != nil {
		c.choice(n.anyOf, false)
	}
	if n.oneOf != nil {
		c.choice(n.oneOf, true)
	}
	if n.not != nil && len(n.not.faults(c.value, c.path)) == 0 {
		c.fault("%s is not allowed here", show(c.value))
	}
	if n.cond != nil {
		branch := n.otherwise
		if len(n.cond.faults(c.value, c.path)) == 0 {
			branch = n.then
		}
		if branch != nil {
			c.same(branch)
		}
	}
}

// choice holds several schemas against the value, of which one has to fit. Where
// none does, it tells the faults of the one that was meant: of those that take
// such a value at all, the one with the fewest faults.
func (c *check) choice(forms []*node, one bool) {
	var meant [][]Fault
	var wants []string
	fit := 0
	for _, form := range forms {
		faults := form.faults(c.value, c.path)
		own := form.own()
		switch {
		case len(faults) == 0:
			fit++
		case own.types != nil && !own.allowsType(c.value):
			wants = append(wants, own.types...)
		case own.constant != nil && !equal(*own.constant, c.value):
			wants = append(wants, show(*own.constant))
		default:
			meant = append(meant, faults)
		}
	}
	slices.SortStableFunc(meant, func(a, b []Fault) int { return len(a) - len(b) })
	switch {
	case fit == 1 || fit > 1 && !one:
	case fit > 1:
		c.fault("fits %d of the forms that are possible here; want one that fits a single form", fit)
	case len(meant) == 0:
		slices.Sort(wants)
		c.fault("want %s, got %s", strings.Join(slices.Compact(wants), " or "), show(c.value))
	case len(meant) == 1 || len(meant[0]) < len(meant[1]):
		c.found = append(c.found, meant[0]...)
	default:
		c.fault("%s has none of the forms that are possible here", show(c.value))
	}
}

// own is the schema behind references.
func (n *node) own() *node {
	for n.ref != nil && n.types == nil {
		n = n.ref
	}
	return n
}

// Defaults adds to an object the defaults of its fields that are absent, also in
// the objects within it.
func (s *Schema) Defaults(object map[string]any) { s.root.defaults(object, true) }

// defaults follows references only for an object that was given: in one that it
// makes, they could lead on without end.
func (n *node) defaults(object map[string]any, given bool) {
	if n.ref != nil && given {
		n.ref.defaults(object, true)
	}
	for key, sub := range n.properties {
		value, has := object[key]
		preset := sub.preset
		if preset == nil {
			preset = sub.own().preset
		}
		inner, isObject := value.(map[string]any)
		switch {
		case has && isObject:
			sub.defaults(inner, true)
		case has:
		case preset != nil:
			object[key] = clone(*preset)
		case sub.properties != nil:
			made := map[string]any{}
			if sub.defaults(made, false); len(made) > 0 {
				object[key] = made
			}
		}
	}
}

func clone(value any) any {
	switch v := value.(type) {
	case map[string]any:
		object := make(map[string]any, len(v))
		for key, inner := range v {
			object[key] = clone(inner)
		}
		return object
	case []any:
		list := make([]any, len(v))
		for i, inner := range v {
			list[i] = clone(inner)
		}
		return list
	}
	return value
}

// equal compares as JSON Schema does: 1 and 1.0 are the same.
func equal(a, b any) bool { return canonical(a) == canonical(b) }

// canonical is a text that two values share when they are equal.
func canonical(value any) string {
	switch v := value.(type) {
	case map[string]any:
		var b strings.Builder
		for _, key := range slices.Sorted(maps.Keys(v)) {
			b.WriteString(strconv.Quote(key) + ":" + canonical(v[key]) + ",")
		}
		return "{" + b.String() + "}"
	case []any:
		var b strings.Builder
		for _, inner := range v {
			b.WriteString(canonical(inner) + ",")
		}
		return "[" + b.String() + "]"
	case string:
		return strconv.Quote(v)
	}
	if r := rational(value); r != nil {
		return r.RatString()
	}
	return fmt.Sprint(value)
}

func join(path, step string) string {
	if path == "" || step == "" {
		return path + step
	}
	return path + "." + step
}

// show is a value as a message quotes it, shortened.
func show(v any) string {
	const most = 60
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	s := strings.TrimSuffix(b.String(), "\n")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most-3], "") + "..."
	}
	return s
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
