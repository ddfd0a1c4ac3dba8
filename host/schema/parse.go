package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net/url"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Schema is a parsed JSON Schema. Safe for concurrent use.
type Schema struct {
	root  *node
	nodes map[string]*node // by their place
}

// node is one schema of a document. A nil pointer, slice or map is a keyword
// that is not there.
type node struct {
	at    string // its place in the document, as the fragment of a URI
	never bool   // the schema false
	title string

	types    []string
	enum     []any
	constant *any

	minimum, maximum, above, below, multipleOf *bound
	minLength, maxLength                       *int
	pattern                                    *pattern

	prefix                   []*node
	items, contains          *node
	minItems, maxItems       *int
	minContains, maxContains *int
	unique                   bool

	properties                   map[string]*node
	patterns                     []patternNode
	additional, names            *node
	minProperties, maxProperties *int
	required                     []string
	dependentRequired            map[string][]string
	dependents                   map[string]*node

	ref                        *node
	allOf, anyOf, oneOf        []*node
	not, cond, then, otherwise *node

	preset *any // the keyword default
}

// bound is a number in a schema, and how it stands there.
type bound struct {
	value *big.Rat
	given any
}

func (b *bound) String() string { return show(b.given) }

// pattern is a regular expression that is known to be right. It is compiled when
// a text is first held against it: an expression such as ^[a-z]{0,127}$ takes
// longer to compile than all the rest of a schema to parse.
type pattern struct {
	text     string
	compiled func() *regexp.Regexp
}

func (p *pattern) matches(text string) bool { return p.compiled().MatchString(text) }

type patternNode struct {
	pattern *pattern
	node    *node
}

// Decode reads exactly one JSON value, numbers as [json.Number].
func Decode(data []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var value any
	if err := dec.Decode(&value); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return value, nil
}

// Parse reads a schema. An error names the keyword that is wrong by its place in
// the document, such as #/properties/port/minimum.
func Parse(data []byte) (*Schema, error) {
	doc, err := Decode(data)
	if err != nil {
		return nil, err
	}
	p := &parser{doc: doc, nodes: map[string]*node{}}
	s := &Schema{root: p.node(doc, "#")}
	for len(p.refs) > 0 && p.err == nil {
		refs := p.refs
		p.refs = nil
		for _, r := range refs {
			r.from.ref = p.refer(r)
		}
	}
	if p.err == nil {
		p.err = circles(p.nodes)
	}
	if p.err != nil {
		return nil, p.err
	}
	s.nodes = p.nodes
	return s, nil
}

// Vet is Parse for a schema that somebody else wrote, when it is taken over: it
// also refuses a default that the schema itself does not allow.
func Vet(data []byte) (*Schema, error) {
	s, err := Parse(data)
	if err != nil {
		return nil, err
	}
	for _, at := range slices.Sorted(maps.Keys(s.nodes)) {
		n := s.nodes[at]
		if n.preset == nil {
			continue
		}
		if faults := n.faults(*n.preset, ""); len(faults) > 0 {
			return nil, errors.New(at + "/default: " + faults[0].String())
		}
	}
	return s, nil
}

// parser builds the nodes of a document. After the first error it goes on, and
// what it builds is not used.
type parser struct {
	doc   any
	nodes map[string]*node // by their place
	refs  []reference      // not yet followed
	err   error
}

type reference struct {
	from   *node
	target string
}

func (p *parser) fail(at, format string, args ...any) {
	if p.err == nil {
		p.err = errors.New(at + ": " + fmt.Sprintf(format, args...))
	}
}

// node parses the schema at a place, once.
func (p *parser) node(value any, at string) *node {
	if n := p.nodes[at]; n != nil {
		return n
	}
	n := &node{at: at}
	p.nodes[at] = n
	switch value := value.(type) {
	case bool:
		n.never = !value
	case map[string]any:
		// In order, so that the same document always has the same error.
		for _, key := range slices.Sorted(maps.Keys(value)) {
			p.keyword(n, key, value[key], below(at, key))
		}
	default:
		p.fail(at, "want a schema, got %s", show(value))
	}
	return n
}

func (p *parser) keyword(n *node, key string, value any, at string) {
	switch key {
	case "title":
		n.title, _ = value.(string)
	case "default":
		n.preset = &value
	case "type":
		n.types = p.types(value, at)
	case "enum":
		if n.enum = p.list(value, at); len(n.enum) == 0 {
			p.fail(at, "want at least one value")
		}
	case "const":
		n.constant = &value
	case "minimum":
		n.minimum = p.number(value, at)
	case "maximum":
		n.maximum = p.number(value, at)
	case "exclusiveMinimum":
		n.above = p.number(value, at)
	case "exclusiveMaximum":
		n.below = p.number(value, at)
	case "multipleOf":
		if n.multipleOf = p.number(value, at); n.multipleOf != nil && n.multipleOf.value.Sign() <= 0 {
			p.fail(at, "want a number above 0, got %s", n.multipleOf)
		}
	case "minLength":
		n.minLength = p.count(value, at)
	case "maxLength":
		n.maxLength = p.count(value, at)
	case "pattern":
		text, _ := value.(string)
		if n.pattern = p.pattern(text, at); text == "" {
			p.fail(at, "want a regular expression, got %s", show(value))
		}
	case "prefixItems":
		n.prefix = p.nodeList(value, at)
	case "items":
		if _, old := value.([]any); old {
			p.fail(at, "a list of schemas is prefixItems in draft 2020-12")
		}
		n.items = p.node(value, at)
	case "contains":
		n.contains = p.node(value, at)
	case "minItems":
		n.minItems = p.count(value, at)
	case "maxItems":
		n.maxItems = p.count(value, at)
	case "minContains":
		n.minContains = p.count(value, at)
	case "maxContains":
		n.maxContains = p.count(value, at)
	case "uniqueItems":
		unique, ok := value.(bool)
		if n.unique = unique; !ok {
			p.fail(at, "want true or false, got %s", show(value))
		}
	case "properties":
		n.properties = p.nodeMap(value, at)
	case "patternProperties":
		all := p.nodeMap(value, at)
		for _, text := range slices.Sorted(maps.Keys(all)) {
			n.patterns = append(n.patterns, patternNode{p.pattern(text, below(at, text)), all[text]})
		}
	case "additionalProperties":
		n.additional = p.node(value, at)
	case "propertyNames":
		n.names = p.node(value, at)
	case "minProperties":
		n.minProperties = p.count(value, at)
	case "maxProperties":
		n.maxProperties = p.count(value, at)
	case "required":
		n.required = p.strings(value, at)
	case "dependentRequired":
		n.dependentRequired = map[string][]string{}
		for name, list := range p.object(value, at) {
			n.dependentRequired[name] = p.strings(list, below(at, name))
		}
	case "dependentSchemas":
		n.dependents = p.nodeMap(value, at)
	case "$ref":
		target, ok := value.(string)
		if !ok {
			p.fail(at, "want a reference, got %s", show(value))
		}
		p.refs = append(p.refs, reference{n, target})
	case "allOf":
		n.allOf = p.nodeList(value, at)
	case "anyOf":
		n.anyOf = p.nodeList(value, at)
	case "oneOf":
		n.oneOf = p.nodeList(value, at)
	case "not":
		n.not = p.node(value, at)
	case "if":
		n.cond = p.node(value, at)
	case "then":
		n.then = p.node(value, at)
	case "else":
		n.otherwise = p.node(value, at)
	case "$defs", "definitions":
		p.nodeMap(value, at)
	case "$id":
		if n.at != "#" {
			p.fail(at, "a document within a document is not supported; refer to a schema in $defs instead")
		}
	case "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor":
		p.fail(at, "not supported; use $ref")
	case "unevaluatedProperties":
		p.fail(at, "not supported; use additionalProperties")
	case "unevaluatedItems", "additionalItems":
		p.fail(at, "not supported; use prefixItems with items")
	case "dependencies":
		p.fail(at, "in draft 2020-12 it is dependentRequired or dependentSchemas")
	}
	// What is left describes, or belongs to someone else.
}

func (p *parser) object(value any, at string) map[string]any {
	object, ok := value.(map[string]any)
	if !ok {
		p.fail(at, "want an object, got %s", show(value))
	}
	return object
}

func (p *parser) list(value any, at string) []any {
	list, ok := value.([]any)
	if !ok {
		p.fail(at, "want a list, got %s", show(value))
	}
	return list
}

func (p *parser) strings(value any, at string) []string {
	words := []string{}
	for i, v := range p.list(value, at) {
		word, ok := v.(string)
		if !ok {
			p.fail(below(at, strconv.Itoa(i)), "want a string, got %s", show(v))
		}
		words = append(words, word)
	}
	return words
}

func (p *parser) types(value any, at string) []string {
	types, ok := []string(nil), false
	if one, isString := value.(string); isString {
		types, ok = []string{one}, true
	} else if types = p.strings(value, at); len(types) > 0 {
		ok = true
	}
	for _, t := range types {
		ok = ok && slices.Contains([]string{"null", "boolean", "object", "array", "number", "string", "integer"}, t)
	}
	if !ok {
		p.fail(at, "%s is no type of JSON", show(value))
	}
	return types
}

func (p *parser) number(value any, at string) *bound {
	if r := rational(value); r != nil {
		return &bound{r, value}
	}
	p.fail(at, "want a number, got %s", show(value))
	return nil
}

// count reads a length or a number of things.
func (p *parser) count(value any, at string) *int {
	const most = 1 << 31
	r := rational(value)
	if r == nil || !r.IsInt() || r.Sign() < 0 || r.Cmp(big.NewRat(most, 1)) >= 0 {
		p.fail(at, "want a whole number from 0, got %s", show(value))
		return nil
	}
	return new(int(r.Num().Int64()))
}

func (p *parser) pattern(text, at string) *pattern {
	if _, err := syntax.Parse(text, syntax.Perl); err != nil {
		p.fail(at, "%v", err)
	}
	return &pattern{text, sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })}
}

func (p *parser) nodeList(value any, at string) []*node {
	list := p.list(value, at)
	nodes := make([]*node, len(list))
	for i, v := range list {
		nodes[i] = p.node(v, below(at, strconv.Itoa(i)))
	}
	if len(nodes) == 0 {
		p.fail(at, "want at least one schema")
	}
	return nodes
}

func (p *parser) nodeMap(value any, at string) map[string]*node {
	nodes := map[string]*node{}
	object := p.object(value, at)
	for _, key := range slices.Sorted(maps.Keys(object)) {
		nodes[key] = p.node(object[key], below(at, key))
	}
	return nodes
}

// refer finds the schema that a reference means.
func (p *parser) refer(r reference) *node {
	at := below(r.from.at, "$ref")
	if r.target != "#" && !strings.HasPrefix(r.target, "#/") {
		p.fail(at, "%q is not supported; refer to a place in this document, such as #/$defs/name", r.target)
		return nil
	}
	value, place := p.doc, "#"
	for step := range strings.SplitSeq(strings.TrimPrefix(r.target, "#"), "/") {
		if step == "" && place == "#" {
			continue // before the first slash
		}
		key, err := url.PathUnescape(step)
		if err != nil {
			key = step
		}
		key = strings.ReplaceAll(strings.ReplaceAll(key, "~1", "/"), "~0", "~")
		next, ok := enter(value, key)
		if !ok {
			p.fail(at, "there is no %s", r.target)
			return nil
		}
		value, place = next, below(place, key)
	}
	return p.node(value, place)
}

// enter is the member of an object or list.
func enter(value any, step string) (any, bool) {
	switch v := value.(type) {
	case map[string]any:
		inner, ok := v[step]
		return inner, ok
	case []any:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(v) {
			return v[i], true
		}
	}
	return nil, false
}

// below is the place of a member.
func below(at, key string) string {
	return at + "/" + strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
}

// circles finds a schema that asks for itself about the same value, which no
// check would come to the end of.
func circles(nodes map[string]*node) error {
	const open, done = 1, 2
	state := map[*node]int{}
	var visit func(n *node) error
	visit = func(n *node) error {
		if n == nil || state[n] == done {
			return nil
		}
		if state[n] == open {
			return errors.New(n.at + ": leads back to itself by $ref; it would be checked without end")
		}
		state[n] = open
		next := slices.Concat(n.allOf, n.anyOf, n.oneOf, []*node{n.ref, n.not, n.cond, n.then, n.otherwise})
		for _, name := range slices.Sorted(maps.Keys(n.dependents)) {
			next = append(next, n.dependents[name])
		}
		for _, m := range next {
			if err := visit(m); err != nil {
				return err
			}
		}
		state[n] = done
		return nil
	}
	for _, at := range slices.Sorted(maps.Keys(nodes)) {
		if err := visit(nodes[at]); err != nil {
			return err
		}
	}
	return nil
}
