package schema_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"sess/host/schema"
)

func decode(t *testing.T, text string) any {
	t.Helper()
	value, err := schema.Decode([]byte(text))
	if err != nil {
		t.Fatalf("Decode(%s): %v", text, err)
	}
	return value
}

func parse(t *testing.T, text string) *schema.Schema {
	t.Helper()
	s, err := schema.Parse([]byte(text))
	if err != nil {
		t.Fatalf("Parse(%s): %v", text, err)
	}
	return s
}

// checks are schemas with values, and all faults of each value in order. They
// are held against another validator as well, which only knows right and wrong.
var checks = []struct {
	schema, value string
	want          []string
}{
	{`true`, `{"a": 1}`, nil},
	{`false`, `1`, []string{`is not allowed here`}},
	{`{"type": "integer"}`, `"ten"`, []string{`want integer, got "ten"`}},
	{`{"type": "integer"}`, `1.0`, nil},
	{`{"type": "integer"}`, `1.5`, []string{`want integer, got 1.5`}},
	{`{"type": "integer"}`, `1e999999999`, []string{`want integer, got 1e999999999`}},
	{`{"type": "number"}`, `5`, nil},
	{`{"type": ["string", "null"]}`, `5`, []string{`want string or null, got 5`}},
	{`{"type": ["string", "null"]}`, `null`, nil},
	{`{"type": "object"}`, `[]`, []string{`want object, got []`}},
	{`{"type": "string"}`, `"<b>&"`, nil},
	{`{"type": "array"}`, `"<b>&"`, []string{`want array, got "<b>&"`}},
	{`{"enum": ["a", 1, null]}`, `1.0`, nil},
	{`{"enum": ["a", 1, null]}`, `"1"`, []string{`want one of "a", 1, null, got "1"`}},
	{`{"enum": [{"a": [1]}]}`, `{"a": [1e0]}`, nil},
	{`{"const": 4}`, `5`, []string{`want 4, got 5`}},
	{`{"const": null}`, `null`, nil},
	{`{"const": null}`, `0`, []string{`want null, got 0`}},
	{`{"minimum": 0, "maximum": 5}`, `-1`, []string{`-1 is too small; want at least 0`}},
	{`{"minimum": 0, "maximum": 5}`, `5.0`, nil},
	{`{"minimum": 0, "maximum": 5}`, `5.01`, []string{`5.01 is too large; want at most 5`}},
	{`{"exclusiveMinimum": 0, "exclusiveMaximum": 5}`, `0`, []string{`0 is too small; want more than 0`}},
	{`{"exclusiveMinimum": 0, "exclusiveMaximum": 5}`, `5`, []string{`5 is too large; want less than 5`}},
	{`{"maximum": 9007199254740993}`, `9007199254740994`, []string{`9007199254740994 is too large; want at most 9007199254740993`}},
	{`{"minimum": 0}`, `"a"`, nil},
	{`{"multipleOf": 0.01}`, `19.99`, nil},
	{`{"multipleOf": 5}`, `7`, []string{`want a multiple of 5, got 7`}},
	{`{"minLength": 1}`, `""`, []string{`must not be empty`}},
	{`{"minLength": 3}`, `"ab"`, []string{`has 2 of at least 3 characters`}},
	{`{"maxLength": 3}`, `"äöü"`, nil},
	{`{"maxLength": 3}`, `"äöüß"`, []string{`has 4 characters; want at most 3`}},
	{`{"pattern": "^[a-z]+$"}`, `"A"`, []string{`"A" is not allowed; want it to match ^[a-z]+$`}},
	{`{"pattern": "^[a-z]+/", "title": "provider/model"}`, `"echo"`, []string{`"echo" is not allowed; want provider/model`}},
	{`{"items": {"type": "string"}}`, `["a", 5, "b", null]`, []string{`1: want string, got 5`, `3: want string, got null`}},
	{`{"prefixItems": [{"type": "string"}, true], "items": {"type": "integer"}}`, `["a", {}, "b"]`, []string{`2: want integer, got "b"`}},
	{`{"prefixItems": [true], "items": false}`, `[1, 2, 3]`, []string{`has 3 items; want at most 1`}},
	{`{"minItems": 2, "maxItems": 3}`, `[1]`, []string{`has 1 of at least 2 items`}},
	{`{"minItems": 2, "maxItems": 3}`, `[1, 2, 3, 4]`, []string{`has 4 items; want at most 3`}},
	{`{"uniqueItems": true}`, `[1, {"a": 1}, 1.0, {"a": 1}, "1"]`, []string{`2: is the same as item 0`, `3: is the same as item 1`}},
	{`{"contains": {"type": "string"}}`, `[1, 2]`, []string{`has 0 of at least 1 fitting item`}},
	{`{"contains": {"type": "string"}, "minContains": 2, "maxContains": 3}`, `["a", "b", "c", "d"]`, []string{`has 4 fitting items; want at most 3`}},
	{`{"contains": {"type": "string"}, "minContains": 0}`, `[]`, nil},
	{`{"properties": {"a": {"type": "object", "properties": {"b": {"type": "boolean"}}}}}`, `{"a": {"b": "yes"}, "c": 1}`, []string{`a.b: want boolean, got "yes"`}},
	{`{"properties": {"a": false}}`, `{"a": 1}`, []string{`a: is not allowed here`}},
	{`{"properties": {"enabled": true}, "additionalProperties": false}`, `{"enable": 1, "z": 2}`, []string{`enable: unknown key; did you mean enabled?`, `z: unknown key`}},
	{`{"additionalProperties": {"type": "string"}}`, `{"a": 1, "b": "x"}`, []string{`a: want string, got 1`}},
	{`{"patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": false}`, `{"x-a": 1, "y": 2}`, []string{`x-a: want string, got 1`, `y: unknown key`}},
	{`{"propertyNames": {"pattern": "^[a-z]+$"}}`, `{"a b": 1, "c": 2}`, []string{`the key "a b" is not allowed; want it to match ^[a-z]+$`}},
	{`{"propertyNames": {"maxLength": 2}}`, `{"abc": 1}`, []string{`the key "abc" is not allowed; has 3 characters; want at most 2`}},
	{`{"required": ["a", "b"]}`, `{}`, []string{`a: missing`, `b: missing`}},
	{`{"minProperties": 1, "maxProperties": 2}`, `{}`, []string{`has 0 of at least 1 key`}},
	{`{"minProperties": 1, "maxProperties": 2}`, `{"a": 1, "b": 2, "c": 3}`, []string{`has 3 keys; want at most 2`}},
	{`{"dependentRequired": {"cert": ["key"]}}`, `{"cert": "c"}`, []string{`key: missing; cert needs it`}},
	{`{"dependentSchemas": {"a": {"required": ["b"]}}}`, `{"a": 1}`, []string{`b: missing`}},
	{`{"dependentSchemas": {"a": {"required": ["b"]}}}`, `{"c": 1}`, nil},
	{`{"allOf": [{"required": ["a"]}, {"properties": {"b": {"type": "string"}}}]}`, `{"b": 1}`, []string{`a: missing`, `b: want string, got 1`}},
	{`{"anyOf": [{"type": "string"}, {"type": "integer"}]}`, `true`, []string{`want integer or string, got true`}},
	{`{"anyOf": [{"type": "string", "minLength": 2}, {"type": "integer"}]}`, `"a"`, []string{`has 1 of at least 2 characters`}},
	{`{"anyOf": [{"const": "a"}, {"const": "b"}]}`, `"c"`, []string{`want "a" or "b", got "c"`}},
	{`{"anyOf": [{"minimum": 5}, {"maximum": 1}]}`, `3`, []string{`3 has none of the forms that are possible here`}},
	{`{"oneOf": [{"minimum": 1}, {"maximum": 5}]}`, `3`, []string{`fits 2 of the forms that are possible here; want one that fits a single form`}},
	{`{"oneOf": [{"minimum": 4}, {"maximum": 2}]}`, `5`, nil},
	{
		`{"oneOf": [{"properties": {"kind": {"const": "a"}, "x": true}, "required": ["kind", "x"], "additionalProperties": false},
			{"properties": {"kind": {"const": "b"}, "y": true}, "required": ["kind", "y"], "additionalProperties": false}]}`,
		`{"kind": "b", "zebra": 1, "y": 1}`,
		[]string{`zebra: unknown key`},
	},
	{`{"not": {"type": "string"}}`, `"a"`, []string{`"a" is not allowed here`}},
	{`{"not": {"type": "string"}}`, `1`, nil},
	{`{"if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": {"required": ["c"]}}`, `{"a": 1}`, []string{`b: missing`}},
	{`{"if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": {"required": ["c"]}}`, `{}`, []string{`c: missing`}},
	{`{"if": false, "then": false}`, `1`, nil},
	{`{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b~1%25"}, "b/%": {"type": "string"}}}`, `1`, []string{`want string, got 1`}},
	{`{"$ref": "#/allOf/0", "allOf": [{"type": "string"}]}`, `1`, []string{`want string, got 1`}},
	{`{"properties": {"next": {"$ref": "#"}, "n": {"type": "integer"}}, "additionalProperties": false}`, `{"next": {"next": {"n": "x"}}, "n": 1}`, []string{`next.next.n: want integer, got "x"`}},
	{`{"format": "email", "deprecated": true, "x-mine": {"type": 5}}`, `"no address"`, nil},
	{`{"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {"type": "string"}}, "$ref": "#/definitions/a"}`, `"x"`, nil},
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, tt := range checks {
		t.Run(tt.schema, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, f := range parse(t, tt.schema).Check(decode(t, tt.value)) {
				got = append(got, f.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Check(%s) (-want +got):\n%s", tt.value, diff)
			}
			valid, err := other(tt.schema, tt.value)
			if err != nil {
				t.Fatalf("the other validator refuses the schema: %v", err)
			}
			if valid != (len(got) == 0) {
				t.Errorf("Check(%s) = %q, and the other validator says valid = %v", tt.value, got, valid)
			}
		})
	}
}

// other asks a validator that others wrote. Too slow at its start for the
// product, it is right about the draft.
func other(text, value string) (valid bool, err error) {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return false, err
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{})
	if err := c.AddResource("schema.json", doc); err != nil {
		return false, err
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		return false, err
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(value))
	if err != nil {
		return false, err
	}
	return s.Validate(v) == nil, nil
}

func TestParseRefusals(t *testing.T) {
	t.Parallel()
	tests := []struct{ schema, want string }{
		{`{`, `unexpected EOF`},
		{``, `unexpected EOF`},
		{`{} {}`, `more than one JSON value`},
		{`4`, `#: want a schema, got 4`},
		{`{"properties": {"a/b": 4}}`, `#/properties/a~1b: want a schema, got 4`},
		{`{"properties": []}`, `#/properties: want an object, got []`},
		{`{"type": "strng"}`, `#/type: "strng" is no type of JSON`},
		{`{"type": []}`, `#/type: [] is no type of JSON`},
		{`{"type": ["string", 4]}`, `#/type/1: want a string, got 4`},
		{`{"enum": []}`, `#/enum: want at least one value`},
		{`{"enum": "a"}`, `#/enum: want a list, got "a"`},
		{`{"minimum": "0"}`, `#/minimum: want a number, got "0"`},
		{`{"minimum": 1e999999999}`, `#/minimum: want a number, got 1e999999999`},
		{`{"exclusiveMaximum": true}`, `#/exclusiveMaximum: want a number, got true`},
		{`{"multipleOf": 0}`, `#/multipleOf: want a number above 0, got 0`},
		{`{"minLength": -1}`, `#/minLength: want a whole number from 0, got -1`},
		{`{"maxItems": 1.5}`, `#/maxItems: want a whole number from 0, got 1.5`},
		{`{"maxItems": 99999999999999999999}`, `#/maxItems: want a whole number from 0, got 99999999999999999999`},
		{`{"pattern": "("}`, "#/pattern: error parsing regexp: missing closing ): `(`"},
		{`{"pattern": 4}`, `#/pattern: want a regular expression, got 4`},
		{`{"patternProperties": {"(": {}}}`, "#/patternProperties/(: error parsing regexp: missing closing ): `(`"},
		{`{"items": [{}]}`, `#/items: a list of schemas is prefixItems in draft 2020-12`},
		{`{"dependencies": {}}`, `#/dependencies: in draft 2020-12 it is dependentRequired or dependentSchemas`},
		{`{"unevaluatedProperties": false}`, `#/unevaluatedProperties: not supported; use additionalProperties`},
		{`{"$dynamicRef": "#a"}`, `#/$dynamicRef: not supported; use $ref`},
		{`{"properties": {"a": {"$id": "https://a.example/b"}}}`, `#/properties/a/$id: a document within a document is not supported; refer to a schema in $defs instead`},
		{`{"allOf": []}`, `#/allOf: want at least one schema`},
		{`{"required": ["a", 1]}`, `#/required/1: want a string, got 1`},
		{`{"uniqueItems": "yes"}`, `#/uniqueItems: want true or false, got "yes"`},
		{`{"$ref": 4}`, `#/$ref: want a reference, got 4`},
		{`{"$ref": "file:///etc/passwd"}`, `#/$ref: "file:///etc/passwd" is not supported; refer to a place in this document, such as #/$defs/name`},
		{`{"properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {}}`, `#/properties/a/$ref: there is no #/$defs/b`},
		{`{"$ref": "#"}`, `#: leads back to itself by $ref; it would be checked without end`},
		{`{"$defs": {"a": {"anyOf": [{"not": {"$ref": "#/$defs/a"}}]}}}`, `#/$defs/a: leads back to itself by $ref; it would be checked without end`},
		{`{"dependentSchemas": {"a": {"$ref": "#"}}}`, `#: leads back to itself by $ref; it would be checked without end`},
	}
	for _, tt := range tests {
		t.Run(tt.schema, func(t *testing.T) {
			t.Parallel()
			if _, err := schema.Parse([]byte(tt.schema)); err == nil || err.Error() != tt.want {
				t.Errorf("Parse = %v, want %s", err, tt.want)
			}
			if _, err := schema.Vet([]byte(tt.schema)); err == nil || err.Error() != tt.want {
				t.Errorf("Vet = %v, want %s", err, tt.want)
			}
		})
	}
}

func TestVetDefaults(t *testing.T) {
	t.Parallel()
	tests := []struct{ schema, want string }{
		{`{"properties": {"n": {"type": "integer", "default": 5}, "m": {"default": null}}}`, ``},
		{`{"properties": {"n": {"type": "integer", "default": "x"}}}`, `#/properties/n/default: want integer, got "x"`},
		{`{"properties": {"n": {"$ref": "#/$defs/s", "default": 5}}, "$defs": {"s": {"type": "string"}}}`, `#/properties/n/default: want string, got 5`},
	}
	for _, tt := range tests {
		t.Run(tt.schema, func(t *testing.T) {
			t.Parallel()
			got := ""
			if _, err := schema.Vet([]byte(tt.schema)); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("Vet = %q, want %q", got, tt.want)
			}
		})
	}
}

// What Go code makes is checked as what JSON holds.
func TestCheckGoValues(t *testing.T) {
	t.Parallel()
	s := parse(t, `{"items": {"type": "integer", "maximum": 5}}`)
	if got := s.Check([]any{1, int64(2), 3.0, json.Number("4")}); len(got) > 0 {
		t.Errorf("Check of integers of all kinds = %q", got)
	}
	if got, want := fmt.Sprint(s.Check([]any{6, 1.5})), `[0: 6 is too large; want at most 5 1: want integer, got 1.5]`; got != want {
		t.Errorf("Check = %s, want %s", got, want)
	}
}

func TestUnder(t *testing.T) {
	t.Parallel()
	s := parse(t, `{"properties": {"a": {"type": "string"}}, "required": ["b"], "minProperties": 2}`)
	var got []string
	for _, f := range schema.Under("x.y", s.Check(decode(t, `{"a": 1}`))) {
		got = append(got, f.String())
	}
	if diff := cmp.Diff([]string{`x.y: has 1 of at least 2 keys`, `x.y.a: want string, got 1`, `x.y.b: missing`}, got); diff != "" {
		t.Errorf("Under (-want +got):\n%s", diff)
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, schema, given, want string }{
		{"a field", `{"properties": {"a": {"default": 1}, "b": {}}}`, `{}`, `{"a":1}`},
		{"what is given stays", `{"properties": {"a": {"default": 1}}}`, `{"a":null}`, `{"a":null}`},
		{"an object within", `{"properties": {"o": {"properties": {"a": {"default": true}}}}}`, `{}`, `{"o":{"a":true}}`},
		{"an object within that is given", `{"properties": {"o": {"properties": {"a": {"default": true}}}}}`, `{"o":{"b":1}}`, `{"o":{"a":true,"b":1}}`},
		{"an object without defaults is not made", `{"properties": {"o": {"properties": {"a": {}}}}}`, `{}`, `{}`},
		{"behind a reference", `{"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"default": 4}}}`, `{}`, `{"a":4}`},
		{"an object behind a reference", `{"properties": {"o": {"$ref": "#/$defs/o"}}, "$defs": {"o": {"properties": {"a": {"default": 4}}}}}`, `{"o":{}}`, `{"o":{"a":4}}`},
		{"a tree of any depth", `{"properties": {"n": {"default": 1}, "sub": {"$ref": "#", "properties": {}}}}`, `{"sub":{"sub":{}}}`, `{"n":1,"sub":{"n":1,"sub":{"n":1}}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			object := decode(t, tt.given).(map[string]any)
			parse(t, tt.schema).Defaults(object)
			got, err := json.Marshal(object)
			if err != nil || string(got) != tt.want {
				t.Errorf("Defaults(%s) = %s, %v, want %s", tt.given, got, err, tt.want)
			}
		})
	}
}

// Each object gets defaults of its own: a change of one is not seen by another.
func TestDefaultsAreCopies(t *testing.T) {
	t.Parallel()
	s := parse(t, `{"properties": {"a": {"default": {"list": [{"x": 1}]}}}}`)
	first, second := map[string]any{}, map[string]any{}
	s.Defaults(first)
	first["a"].(map[string]any)["list"].([]any)[0].(map[string]any)["x"] = 2
	s.Defaults(second)
	if got := fmt.Sprint(second); got != "map[a:map[list:[map[x:1]]]]" {
		t.Errorf("Defaults after a change of what it gave before: %s", got)
	}
}

// FuzzCheck holds any schema against any value. It ends, and is of one mind with
// the other validator wherever both take the schema.
func FuzzCheck(f *testing.F) {
	for _, tt := range checks {
		f.Add([]byte(tt.schema), []byte(tt.value))
	}
	f.Fuzz(func(t *testing.T, text, data []byte) {
		if bytes.ContainsAny(data, "eE") || bytes.Contains(text, []byte("e9")) {
			return // exponents that the other validator spends minutes on
		}
		s, err := schema.Parse(text)
		if err != nil {
			return
		}
		value, err := schema.Decode(data)
		if err != nil {
			return
		}
		faults := s.Check(value)
		for _, fault := range faults {
			if fault.Message == "" {
				t.Errorf("Check(%s) against %s: a fault without words at %q", data, text, fault.Path)
			}
		}
		valid, err := other(string(text), string(data))
		if err == nil && valid != (len(faults) == 0) {
			t.Errorf("Check(%s) against %s = %q, and the other validator says valid = %v", data, text, faults, valid)
		}
		if object, ok := value.(map[string]any); ok {
			s.Defaults(object)
		}
	})
}
