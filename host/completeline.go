package host

import (
	"cmp"
	"context"
	"encoding/json"

	"sess/plugin"
	"sess/surfaces"
)

// CompleteMethod is the gateway's method for [Host.CompleteLine]: its params are a
// [Line], its result a list of candidates.
const CompleteMethod = "command.complete"

// Complete completes the last word of a command line over the given commands, up
// to the cursor, as far as that can be told without asking anybody.
func (p *Program) Complete(commands *surfaces.Commands, words []string) surfaces.Completion {
	for _, spec := range p.Local {
		if spec.Command == p.Top && len(words) > 1 {
			if v, _ := spec.Find(words[:1]); v != nil {
				// Their words are completed like those of any command.
				commands = &surfaces.Commands{Prog: p.Top, Specs: []plugin.Spec{spec}}
			}
		}
	}
	return commands.Complete(words)
}

// CompleteLine lists what the last word of a line may become, the words up to the
// cursor being its Args. It never fails: a mistake in the line is told when the
// line is run, and what cannot be found out in the time that ctx leaves is not
// proposed.
func (h *Host) CompleteLine(ctx context.Context, p *Program, line Line) []plugin.Candidate {
	out := p.Complete(h.ProgramCommands(ctx, p), line.Args)
	if out.Ask == nil {
		return out.All(nil)
	}
	req := out.Ask.Request
	req.Call.Project = cmp.Or(req.Call.Project, line.Project)
	req.Call.Session = cmp.Or(req.Call.Session, line.Session)
	req.Call.Caller, req.Call.Cwd = plugin.CallerCLI, line.Cwd
	asked, err := h.Complete(ctx, out.Ask.Command, req)
	if err != nil {
		asked = nil
	}
	return out.All(asked)
}

// callComplete answers CompleteMethod.
func (g *Gateway) callComplete(ctx context.Context, _ plugin.Caller, params json.RawMessage, _ plugin.ProgressFunc) (json.RawMessage, error) {
	var line Line
	if err := surfaces.Params(params, &line); err != nil {
		return nil, err
	}
	all := g.host.CompleteLine(ctx, g.opts.Program, line)
	if all == nil {
		all = []plugin.Candidate{}
	}
	return json.Marshal(all)
}
