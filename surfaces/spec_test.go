package surfaces_test

import (
	"encoding/json"
	"strings"
	"testing"

	"sess/plugin"
	"sess/surfaces"
)

// FuzzSpec takes any Spec, as a plugin of somebody else may send it and as a cache
// may hold it, and asks all surfaces for what they make of it. Each has an answer
// or an error, and no surface shows what is for plugins only.
func FuzzSpec(f *testing.F) {
	own, err := json.Marshal(fixture(f).Spec())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(own, "save v1 --note=x")
	for _, s := range []string{
		`{}`, `{"command":"x","verbs":[{}]}`, `{"command":"","verbs":[{"name":"","aliases":[""],"args":[{}],"flags":[{}]}]}`,
		`{"command":"x","verbs":[{"name":"a b c","effect":"no","args":[{"name":"n","type":"none","repeated":true},{"name":"n","required":true}]}]}`,
		`{"command":"x","verbs":[{"name":"a"},{"name":"a","aliases":["a"]},{"name":" a"},{"name":"b "}]}`,
		`{"command":"x","verbs":[{"name":"a","flags":[{"name":"no-","type":"bool"},{"name":"-","short":"ab","type":"bool","negatable":true},{"name":"e","enum":[""],"default":"x"}]}]}`,
		`{"command":"x","verbs":[{"name":"secret","internal":true},{"name":"a","flags":[{"name":"secret","internal":true}]}],"shortcuts":[{"name":"","argv":[]},{"name":"/s","argv":["a","{x}"]}]}`,
	} {
		f.Add([]byte(s), "a --e=1 -- b")
		f.Add([]byte(s), `{"action":"a","n":[1],"e":"x","":true}`)
	}
	f.Fuzz(func(t *testing.T, data []byte, use string) {
		var spec plugin.Spec
		if json.Unmarshal(data, &spec) != nil || len(use) > 1000 {
			return
		}
		words := split(use)
		c := surfaces.Commands{Prog: "sess", Specs: []plugin.Spec{spec}}
		c.Find(words)
		c.Resolve(words)
		done := c.Complete(words)
		surfaces.CompletionLines(done.All(nil))
		if _, _, err := surfaces.SplitHostFlags(words, c.Find); err != nil {
			text(t, err)
		}
		if _, err := surfaces.Help(&spec, "sess", words); err != nil {
			text(t, err)
		}
		surfaces.HelpCommand(&spec, "sess")
		for i := range spec.Verbs {
			surfaces.HelpVerb(&spec.Verbs[i], "sess")
		}
		if schema, err := json.Marshal(surfaces.ToolSchema(&spec)); err != nil || !json.Valid(schema) {
			t.Errorf("the schema of the tool is %s, %v", schema, err)
		}
		slash := surfaces.Slash{Specs: []plugin.Spec{spec}}
		if _, err := slash.Lower("/" + strings.TrimLeft(use, "/")); err != nil {
			text(t, err)
		}
		fields, err := surfaces.ParseObject([]byte(use))
		if err != nil {
			text(t, err)
			return
		}
		low, err := surfaces.Lower(&spec, "", fields)
		if err != nil {
			text(t, err)
			return
		}
		if low.Verb.Internal {
			t.Errorf("%s lowers to the internal verb %q", use, low.Verb.Name)
		}
	})
}
