package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"sess/dispatch"
	"sess/host"
	"sess/plugin"
)

// doctor looks at everything that can keep the program from working, and says
// what to do. It goes on after a failure: the next check may tell more.
func (a *app) doctor(ctx context.Context, _ *dispatch.Invocation) (plugin.Result, error) {
	home, err := a.homeDir()
	if err != nil {
		return plugin.Result{}, err
	}
	found := host.CheckHome(ctx, home, builtins())
	if info, err := os.Stat(home); err == nil && info.IsDir() {
		found = append(found, a.checkGateway(ctx, home))
		found = append(found, a.checkPlugins(ctx)...)
		found = append(found, a.checkDocuments(ctx)...)
		found = append(found, a.checkAgents(ctx)...)
	}
	found = toldOnce(found)
	var text strings.Builder
	var first *host.Finding
	failed := 0
	for i := range found {
		f := &found[i]
		if f.State == host.FindingFailed {
			failed++
			if first == nil {
				first = f
			}
		}
		fmt.Fprintf(&text, "%-10s %-7s %s\n", f.Check, f.State, strings.ReplaceAll(f.Text, "\n", "\n                   "))
		if f.Fix != "" {
			fmt.Fprintf(&text, "                   what to do: %s\n", f.Fix)
		}
	}
	out := strings.TrimSuffix(text.String(), "\n")
	if first == nil {
		return answer(out, found)
	}
	data, err := json.Marshal(found)
	if err != nil {
		return plugin.Result{}, err
	}
	return plugin.Result{}, plugin.Errorf(first.Code, "%d of %d checks failed:\n%s", failed, len(found), out).WithDetail("findings", string(data))
}

// toldOnce has what keeps several checks from being made told by the first of them.
func toldOnce(found []host.Finding) []host.Finding {
	by := map[string]string{} // the check that tells of a failure
	for i := range found {
		f := &found[i]
		first, told := by[f.Text]
		switch {
		case f.State != host.FindingFailed:
		case told && first != f.Check:
			*f = host.Finding{Check: f.Check, State: host.FindingNote, Text: "not looked at, because of what " + first + " says"}
		default:
			by[f.Text] = f.Check
		}
	}
	return found
}

func (a *app) checkGateway(ctx context.Context, home string) host.Finding {
	s, err := a.askStatus(ctx, home)
	switch {
	case err != nil:
		return host.Failure("gateway", err)
	case s.State == host.GatewayUnreachable:
		err := unreachable(&s)
		a.told = plugin.AsError(err).Text() // nothing more is asked of it
		return host.Failure("gateway", err)
	case s.State == host.GatewayStopped:
		return host.Finding{Check: "gateway", State: host.FindingOK, Text: "none runs: commands work alone"}
	}
	return host.Finding{Check: "gateway", State: host.FindingOK, Text: fmt.Sprintf("%s, process %d, %s", s.State, s.PID, s.Address)}
}

// answerOf has a line answered as if it had been typed, by the gateway where there is one.
func (a *app) answerOf(ctx context.Context, args ...string) (plugin.Result, error) {
	line := host.Line{Args: args, Home: a.flags.Home}
	if a.flags.Home != "" {
		line.Args = append([]string{"--home=" + a.flags.Home}, args...)
	}
	reply, err := a.answer(ctx, line, false)
	if err != nil {
		return plugin.Result{}, err
	}
	return reply.Result, reply.Err
}

// checkPlugins has each plugin started.
func (a *app) checkPlugins(ctx context.Context) []host.Finding {
	res, err := a.answerOf(ctx, "plugins", "doctor")
	list := res.Data
	if err != nil {
		if list = json.RawMessage(plugin.AsError(err).Details["plugins"]); len(list) == 0 {
			return []host.Finding{host.Failure("plugins", err)}
		}
	}
	var checked []struct{ ID, Version, State, Step, Error, Hint, Code string }
	if err := json.Unmarshal(list, &checked); err != nil {
		return []host.Finding{host.Failure("plugins", err)}
	}
	var found []host.Finding
	for _, c := range checked {
		f := host.Finding{Check: "plugin", State: host.FindingOK, Text: strings.TrimSpace(c.ID+" "+c.Version) + ": " + c.State}
		if c.Error != "" {
			f = host.Finding{
				Check: "plugin", State: host.FindingFailed, Code: plugin.Code(c.Code), Fix: c.Hint,
				Text: fmt.Sprintf("%s: %s: %s", strings.TrimSpace(c.ID+" "+c.Version), c.Step, strings.TrimPrefix(c.Error, "plugin "+c.ID+": ")),
			}
		}
		found = append(found, f)
	}
	return found
}

// checkAgents tells which other agents have conversations here. One that is not
// there is nothing to tell of.
func (a *app) checkAgents(ctx context.Context) []host.Finding {
	res, err := a.answerOf(ctx, "agents", "list")
	if err != nil {
		return []host.Finding{host.Failure("agents", err)}
	}
	var rows []struct {
		ID, Name, State, Home, Problem string
		Conversations, Unreadable      int
	}
	if err := json.Unmarshal(res.Data, &rows); err != nil {
		return []host.Finding{host.Failure("agents", err)}
	}
	var found []host.Finding
	for _, r := range rows {
		f := host.Finding{Check: "agent", State: host.FindingOK, Text: fmt.Sprintf("%s: %d conversations in %s", r.Name, r.Conversations, r.Home)}
		switch {
		case r.State == "absent":
			continue
		case r.State != "found":
			f.State, f.Text = host.FindingNote, fmt.Sprintf("%s is %s: %s", r.Name, r.State, r.Problem)
		case r.Unreadable > 0:
			f.State = host.FindingNote
			f.Text += fmt.Sprintf(", and %d that cannot be read, such as %s", r.Unreadable, r.Problem)
		}
		found = append(found, f)
	}
	return found
}

// checkDocuments counts the sessions and snapshots that lists show as damaged;
// nothing is read beyond that.
func (a *app) checkDocuments(ctx context.Context) []host.Finding {
	count := func(check, fix string, ill func(row map[string]json.RawMessage) bool, args ...string) host.Finding {
		res, err := a.answerOf(ctx, args...)
		if err != nil {
			return host.Failure(check, err)
		}
		var rows []map[string]json.RawMessage
		if err := json.Unmarshal(res.Data, &rows); err != nil {
			return host.Failure(check, err)
		}
		damaged := 0
		for _, row := range rows {
			if ill(row) {
				damaged++
			}
		}
		f := host.Finding{Check: check, State: host.FindingOK, Text: fmt.Sprintf("%d, none of them damaged", len(rows))}
		if damaged > 0 {
			f.State, f.Code, f.Fix = host.FindingFailed, plugin.Corrupt, fix
			f.Text = fmt.Sprintf("%d of %d are damaged", damaged, len(rows))
		}
		return f
	}
	return []host.Finding{
		count("sessions", prog+" sessions list shows which; a snapshot brings an earlier state back", func(row map[string]json.RawMessage) bool {
			return row["problem"] != nil
		}, "sessions", "list"),
		count("snapshots", prog+" verify says what is wrong with each", func(row map[string]json.RawMessage) bool {
			return string(row["state"]) == `"damaged"`
		}, "list", "--include-auto", "--all-projects"),
	}
}
