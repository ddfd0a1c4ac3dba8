package chat

import (
	"context"
	"slices"
	"strings"

	"sess/plugin"
	"sess/surfaces"
)

// Completion is what may stand at the end of a line that is being written.
type Completion struct {
	From       int // where the word begins that the candidates replace, in bytes
	Candidates []plugin.Candidate
}

// Complete proposes what may follow a text that a person has written, where that
// is a command. What only a plugin knows is asked for until ctx ends. It is safe
// for concurrent use.
func (c *Chat) Complete(ctx context.Context, before string) (out Completion) {
	if !surfaces.IsSlash(before) || strings.HasPrefix(before, "//") {
		return out
	}
	words, word, from, ok := surfaces.LastWord(before)
	if !ok {
		return out
	}
	out.From = from
	commands := c.opts.Commands()
	if len(words) == 0 {
		for _, name := range commandNames(commands) {
			if name.Value = "/" + name.Value; strings.HasPrefix(name.Value, word) {
				out.Candidates = append(out.Candidates, name)
			}
		}
		return out
	}
	found := completeWords(commands, words[0][1:], append(words[1:], word))
	var asked []plugin.Candidate
	if found.Ask != nil && c.opts.Complete != nil {
		request := plugin.CompleteRequest{Kind: found.Ask.Request.Kind, Call: c.call(plugin.CallerSlash, found.Ask.Request.Call.Argv)}
		var err error
		if asked, err = c.opts.Complete(ctx, found.Ask.Command, request); err != nil {
			asked = nil // the line can be written all the same
		}
	}
	for _, candidate := range found.All(asked) {
		if strings.HasPrefix(candidate.Value, word) {
			out.Candidates = append(out.Candidates, candidate)
		}
	}
	return out
}

// commandNames lists what may follow a slash, in the order of help.
func commandNames(commands []Command) []plugin.Candidate {
	var all []plugin.Candidate
	for _, o := range commands {
		all = append(all, plugin.Candidate{Value: o.Spec.Command, Help: o.Spec.Summary})
		for _, s := range o.Spec.Shortcuts {
			all = append(all, plugin.Candidate{Value: s.Name, Help: s.Summary})
		}
	}
	for _, b := range builtins() {
		all = append(all, plugin.Candidate{Value: b.name, Help: b.summary})
	}
	return all
}

// completeWords completes the last of the words behind a command.
func completeWords(commands []Command, name string, words []string) surfaces.Completion {
	for i := range commands {
		spec := &commands[i].Spec
		if spec.Command == name {
			return surfaces.CompleteSlash(spec, words)
		}
		for _, s := range spec.Shortcuts {
			if s.Name == name {
				return surfaces.CompleteSlash(spec, slices.Concat(s.Argv, words))
			}
		}
	}
	switch {
	case len(words) == 1 && name == "help":
		return surfaces.Completion{Candidates: commandNames(commands)}
	case len(words) == 1 && name == "model":
		return surfaces.Completion{Ask: &surfaces.Ask{Request: plugin.CompleteRequest{Kind: "model", Call: plugin.Call{Argv: words}}}}
	}
	return surfaces.Completion{}
}
