package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"

	"sess/dispatch"
	"sess/plugin"
	"sess/surfaces"
)

// step is one command of the demo, and why it is given.
type step struct {
	why  string
	args []string
}

// story is what the demo does: everything in it is run for real.
func story() []step {
	return []step{
		{"You talk with an agent. (This model needs no network; any other would do.)", []string{"chat", "--message", "Plan the launch of our newsletter for March."}},
		{"The plan is good. Give this moment a name.", []string{"save", "good-plan", "--note=before we get bold"}},
		{"Now something risky...", []string{"chat", "--message", "Forget the plan. Let us launch tomorrow, without tests."}},
		{"...and it gets worse.", []string{"chat", "--message", "Also, delete the old subscriber list."}},
		{"Keep this attempt under a name as well, and branch off from the good plan.", []string{"save", "bold-plan"}},
		{"", []string{"copy", "good-plan", "careful-plan", "--note=try it again from here"}},
		{"Go back. What is live now is backed up first, so nothing is lost.", []string{"load", "good-plan"}},
		{"The conversation is the old one again; the agent knows nothing of the risky turns.", []string{"chat", "--message", "Where were we?"}},
		{"All the moments you can go to:", []string{"list", "--include-auto"}},
		{"Was going back a mistake? Take it back as well.", []string{"undo"}},
		{"", []string{"sessions", "show"}},
	}
}

// demo tells the story of the product in a temporary home.
func (a *app) demo(ctx context.Context, _ *dispatch.Invocation) (plugin.Result, error) {
	home, err := os.MkdirTemp("", "sess-demo-")
	if err != nil {
		return plugin.Result{}, err
	}
	defer os.RemoveAll(home)
	var all bytes.Buffer
	say := func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		all.WriteString(text)
		if !a.flags.JSON {
			fmt.Fprint(a.out, text)
		}
	}
	say("sess gives a conversation with an agent what git gave a folder: named points\nto save, to go back to, to branch from. This is it, at work in a temporary home.\n")
	for _, s := range story() {
		if err := ctx.Err(); err != nil {
			return plugin.Result{}, err
		}
		if s.why != "" {
			say("\n# %s\n", s.why)
		}
		say("$ sess %s\n", quote(s.args))
		var out bytes.Buffer
		sub := &app{args: s.args, stdin: strings.NewReader(""), stdout: &out, stderr: &out, environ: a.demoEnviron(home)}
		exit := sub.run(ctx)
		say("%s", surfaces.Printable(out.String()))
		if exit != plugin.ExitOK {
			return plugin.Result{}, plugin.Errorf(plugin.Internal, "the demo's step %q ended with status %d", strings.Join(s.args, " "), exit).
				WithHint("run it by hand in a home of its own: sess --home=<folder> %s", quote(s.args))
		}
	}
	say("\nThat was all real, and is gone with its temporary home. Your own begins with:\n\n" +
		"  go install ./cmd/sess   the command, if you ran this from the source\n" +
		"  sess chat               talk; inside, /sess save <name> and /sess load <name>\n" +
		"  sess help               all commands\n" +
		"  sess help save          one of them\n")
	if a.flags.JSON {
		return answer("", all.String())
	}
	return plugin.Result{}, nil
}

// demoEnviron is the environment without what would lead out of the demo's home.
func (a *app) demoEnviron(home string) []string {
	var env []string
	for _, kv := range a.environ {
		if !strings.HasPrefix(kv, "SESS_") {
			env = append(env, kv)
		}
	}
	return append(env, "SESS_HOME="+home)
}

// quote joins words as one would type them.
func quote(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = w
		if strings.ContainsAny(w, " '\"") {
			if flag, value, ok := strings.Cut(w, "="); ok && strings.HasPrefix(flag, "--") {
				out[i] = flag + `="` + value + `"`
			} else {
				out[i] = `"` + w + `"`
			}
		}
	}
	return strings.Join(out, " ")
}
