package surfaces

import (
	"slices"
	"strings"

	"sess/plugin"
)

// Completion is what can stand at the cursor of a command line.
type Completion struct {
	// Candidates are known from the Specs.
	Candidates []plugin.Candidate
	// Ask, unless nil, is what only a plugin or the host can answer.
	Ask *Ask
	// word is what the values must begin with, prefix what stands before it in
	// the same word of the shell: "--from=".
	word, prefix string
}

// Ask asks for the values of an argument or flag.
type Ask struct {
	// Command is the command whose plugin is asked; empty for a flag of the
	// host: then Request.Kind is the flag's name.
	Command string
	Request plugin.CompleteRequest
}

// CompletionLines renders candidates for the shell scripts: one a line, value,
// tab, help.
func CompletionLines(all []plugin.Candidate) string {
	var b strings.Builder
	for _, cand := range all {
		b.WriteString(cand.Value)
		if cand.Help != "" {
			b.WriteString("\t" + cand.Help)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// All lists what can stand at the cursor, each on one line and with what stands
// before it in the same word. asked are the answers to Ask, which need not be
// filtered.
func (c *Completion) All(asked []plugin.Candidate) []plugin.Candidate {
	oneLine := strings.NewReplacer("\t", " ", "\n", " ", "\r", " ")
	var all []plugin.Candidate
	for _, list := range [][]plugin.Candidate{c.Candidates, asked} {
		for _, cand := range list {
			if !strings.HasPrefix(cand.Value, c.word) || strings.ContainsAny(cand.Value, "\t\n\r") {
				continue
			}
			all = append(all, plugin.Candidate{Value: c.prefix + Printable(cand.Value), Help: Printable(oneLine.Replace(cand.Help))})
		}
	}
	return all
}

// CompleteSlash completes the last word of the argv of a command, as it is typed
// in a chat behind "/" and the command.
func CompleteSlash(spec *plugin.Spec, argv []string) Completion {
	c := Commands{Specs: []plugin.Spec{*spec}}
	out := c.Complete(append([]string{spec.Command}, argv...))
	verb, _ := spec.Find(argv)
	out.Candidates = slices.DeleteFunc(out.Candidates, func(cand plugin.Candidate) bool {
		f, _ := flagOf(hostFlags(), cand.Value)
		return f != nil && f.Name != "json" && f.Name != "help" && (verb == nil || verb.Flag(f.Name) == nil)
	})
	if out.Ask != nil && out.Ask.Command == "" { // the value of such a flag
		out.Ask = nil
	}
	return out
}

// LastWord splits a line as [Split] does, up to its last word, which is being
// written and may be empty: its text, and where it begins in the line, in bytes.
// ok is false where it cannot be told, as in an open quote.
func LastWord(line string) (before []string, word string, from int, ok bool) {
	p := splitter{line: line}
	for {
		p.skipBlanks()
		from = p.at
		if p.at == len(p.line) {
			return before, "", from, true
		}
		word, err := p.word()
		if err != nil {
			return nil, "", 0, false
		}
		if p.at == len(p.line) {
			return before, word, from, true
		}
		before = append(before, word)
	}
}

// Complete completes the last of the words that stand after the program's
// name, up to the cursor; it may be empty. It does no I/O, so it never tells
// more than the Specs do.
func (c *Commands) Complete(words []string) Completion {
	if len(words) == 0 {
		words = []string{""}
	}
	last := words[len(words)-1]
	// A mistake in the words before is told when the line is run.
	s, _ := scan(words[:len(words)-1], c.Find)
	out := Completion{word: last}
	spec, verb, rest := c.Resolve(s.words)
	switch {
	case s.pending != nil:
		c.value(&out, &s, s.pending, spec)
	case !s.ended && strings.HasPrefix(last, "-"):
		c.flags(&out, &s, spec)
	case verb != nil && !verb.Internal:
		c.argument(&out, &s, spec, verb, rest)
		if len(verb.Args) == 0 && len(strings.Fields(verb.Name)) == 1 && len(rest) == 1 {
			out.secondWords(spec, rest[0])
		}
	case !s.ended:
		c.verbs(&out, spec, rest)
	}
	return out
}

// verbs proposes what can stand where no verb is complete yet.
func (c *Commands) verbs(out *Completion, spec *plugin.Spec, rest []string) {
	if spec == nil {
		if len(rest) == 0 {
			c.topLevel(out, false)
		}
		return
	}
	help := len(rest) == 1 && rest[0] == "help"
	if len(rest) > 0 && !help {
		if len(rest) == 1 {
			out.secondWords(spec, rest[0])
		}
		return
	}
	seen := map[string]bool{}
	for _, v := range spec.Verbs {
		first, _, two := strings.Cut(v.Name, " ")
		if v.Internal || seen[first] {
			continue
		}
		seen[first] = true
		summary := v.Summary
		if two {
			summary = ""
		}
		out.add(first, summary)
	}
	if spec.Command == c.Prog {
		c.topLevel(out, help)
	}
}

// topLevel proposes what can stand first beside the program's own verbs, or, for
// help, what it can be asked about.
func (c *Commands) topLevel(out *Completion, help bool) {
	for _, s := range c.Specs {
		if s.Command != c.Prog {
			out.add(s.Command, s.Summary)
		}
	}
	for _, h := range c.Host {
		if !help || h.Value != "help" {
			out.add(h.Value, h.Help)
		}
	}
}

// secondWords proposes the second words of the verbs that begin with first.
func (c *Completion) secondWords(spec *plugin.Spec, first string) {
	for _, v := range spec.Verbs {
		if second, ok := strings.CutPrefix(v.Name, first+" "); ok && !v.Internal {
			c.add(second, v.Summary)
		}
	}
}

func (c *Completion) add(value, help string) {
	if strings.HasPrefix(value, c.word) {
		c.Candidates = append(c.Candidates, plugin.Candidate{Value: value, Help: help})
	}
}

// argument proposes values for the argument at the cursor.
func (c *Commands) argument(out *Completion, s *scanned, spec *plugin.Spec, v *plugin.Verb, rest []string) {
	_, n := spec.Find(rest)
	at := len(rest) - n
	if last := len(v.Args) - 1; last >= 0 && at > last && v.Args[last].Repeated {
		at = last
	}
	if at < len(v.Args) && v.Args[at].Complete != "" {
		c.ask(out, s, spec, v.Args[at].Complete)
	}
}

// flags proposes flags, or values where the word holds a flag and "=".
func (c *Commands) flags(out *Completion, s *scanned, spec *plugin.Spec) {
	known := hostFlags()
	if s.verb != nil {
		known = append(append([]plugin.Flag(nil), s.verb.Flags...), known...)
	}
	if name, value, inline := strings.Cut(out.word, "="); inline {
		if f, _ := flagOf(known, out.word); f != nil && strings.HasPrefix(name, "--") {
			out.word, out.prefix = value, name+"="
			s.argv = append(s.argv, name)
			c.value(out, s, f, spec)
		}
		return
	}
	for i := range known {
		f := &known[i]
		if f.Internal {
			continue
		}
		equals := "="
		if f.Type == plugin.TypeBool {
			equals = ""
		}
		out.add("--"+f.Name+equals, f.Help)
		if f.Negatable {
			out.add("--no-"+f.Name, f.Help)
		}
	}
}

// value proposes values of a flag.
func (c *Commands) value(out *Completion, s *scanned, f *plugin.Flag, spec *plugin.Spec) {
	for _, v := range f.Enum {
		out.add(v, "")
	}
	switch {
	case f.Internal:
	case s.verb == nil || s.verb.Flag(f.Name) == nil:
		if s.host.text(f.Name) != nil {
			c.ask(out, s, nil, f.Name)
		}
	case f.Type == plugin.TypeBool:
		out.add("true", "")
		out.add("false", "")
	case f.Complete != "":
		c.ask(out, s, spec, f.Complete)
	}
}

// ask sets what a plugin, or for a nil spec the host, is to be asked.
func (c *Commands) ask(out *Completion, s *scanned, spec *plugin.Spec, kind string) {
	_, _, argv := c.Resolve(s.argv)
	out.Ask = &Ask{Request: plugin.CompleteRequest{Kind: kind, Call: plugin.Call{
		Argv:    append(append([]string(nil), argv...), out.word),
		Agent:   s.host.Agent,
		Project: s.host.Project,
		Session: s.host.Session,
		Caller:  plugin.CallerCLI,
	}}}
	if spec != nil {
		out.Ask.Command = spec.Command
	}
}
