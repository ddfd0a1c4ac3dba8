package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"

	"sess/dispatch"
	"sess/host"
	"sess/plugin"
	"sess/surfaces"
)

// topCommand holds the verbs that stand first on the command line and need no
// host, or open their own.
const topCommand = "program"

// localCommands declares what the program answers itself.
func (a *app) localCommands() ([]*dispatch.Dispatcher, error) {
	top := dispatch.Command{
		Name:    topCommand,
		Summary: "The program itself",
		Verbs: []dispatch.Verb{{
			Name: "chat", Summary: "Talk with a model in a live session",
			Help: "At a terminal it asks for one line after the other; the arrow keys move in it and bring back what was written before, " +
				"Ctrl-R searches that, Tab completes commands, Alt-Enter begins another line, and pasted text stays one message. A line that " +
				"begins with a blank is not remembered. Text that comes through a pipe is taken line by line.\n\n" +
				"A line that begins with a slash is a command: /help lists them. Ctrl-C ends an answer, Ctrl-D the chat.",
			Examples: []string{"chat", "chat --message 'hello'"},
			Flags: func(fs *dispatch.Flags) {
				fs.String("message", "", "send this one line, print the answer and leave").Short("m")
				fs.String("model", "", "model to talk with from now on in this session, provider/model").Complete("model")
			},
			Effect: plugin.EffectWrite, Run: a.chat,
		}, {
			Name: "demo", Summary: "Show in a few seconds what this is for, in a temporary home",
			Effect: plugin.EffectRead, Run: a.demo,
		}, a.upVerb(), a.mcpVerb(), {
			Name: "doctor", Summary: "Look for everything that keeps this from working, and say what to do",
			Help: "It looks at the home, the disk, the configuration, the locks, the gateway and the lists of sessions and snapshots, and starts " +
				"each plugin. Beyond making the home private again, as every command does, it changes nothing. The exit status tells whether something is to be done.",
			Effect: plugin.EffectRead, Run: a.doctor,
		}, {
			Name: "version", Summary: "Print the version",
			Effect: plugin.EffectRead, Run: a.version,
		}, {
			Name: "completion", Summary: "Print the completion script for a shell",
			Help:     "Load it with: source <(sess completion bash), likewise zsh; sess completion fish | source.",
			Examples: []string{"completion bash"},
			Args:     []plugin.Arg{{Name: "shell", Type: plugin.TypeString, Required: true, Help: "bash, zsh or fish", Complete: "shell"}},
			Effect:   plugin.EffectRead, Run: a.completion,
		}},
	}
	config := dispatch.Command{
		Name:    "config",
		Summary: "The configuration",
		Verbs: []dispatch.Verb{{
			Name: "path", Summary: "Print where the configuration lies",
			Effect: plugin.EffectRead, Run: a.configPath,
		}, {
			Name: "show", Summary: "Print the configuration in force, defaults included",
			Effect: plugin.EffectRead, Run: a.configShow,
		}, {
			Name: "validate", Summary: "Check the configuration and name every mistake",
			Effect: plugin.EffectRead, Run: a.configValidate,
		}},
	}
	var all []*dispatch.Dispatcher
	for _, c := range []dispatch.Command{top, config, a.gatewayCommand()} {
		c.Logger = cmp.Or(a.logger(), slog.New(slog.DiscardHandler))
		d, err := dispatch.New(c)
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

func answer(text string, data any) (plugin.Result, error) {
	b, err := json.Marshal(data)
	return plugin.Result{Text: text, Data: b}, err
}

func (a *app) version(context.Context, *dispatch.Invocation) (plugin.Result, error) {
	v := host.Version()
	return answer(prog+" "+v, map[string]string{"version": v})
}

func (a *app) completion(_ context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	script, err := surfaces.CompletionScript(in.Arg("shell"), prog)
	if err != nil {
		return plugin.Result{}, err
	}
	return answer(script, script)
}

func (a *app) configPath(context.Context, *dispatch.Invocation) (plugin.Result, error) {
	home, err := a.homeDir()
	if err != nil {
		return plugin.Result{}, err
	}
	path := host.ConfigPath(home)
	return answer(path, map[string]string{"path": path})
}

func (a *app) configShow(context.Context, *dispatch.Invocation) (plugin.Result, error) {
	home, err := a.homeDir()
	if err != nil {
		return plugin.Result{}, err
	}
	shown, err := host.EffectiveConfig(home, builtins())
	if err != nil {
		return plugin.Result{}, err
	}
	return plugin.Result{Text: string(shown), Data: shown}, nil
}

func (a *app) configValidate(ctx context.Context, _ *dispatch.Invocation) (plugin.Result, error) {
	home, err := a.homeDir()
	if err != nil {
		return plugin.Result{}, err
	}
	path := host.ConfigPath(home)
	if _, err := host.EffectiveConfig(home, builtins()); err != nil {
		return plugin.Result{}, err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return answer(path+" does not exist: the defaults hold", map[string]any{"path": path, "valid": true})
	}
	h, err := a.open(ctx)
	if err == nil {
		err = h.CheckPlugins(ctx)
	}
	if err != nil {
		return plugin.Result{}, err
	}
	return answer(path+" is valid", map[string]any{"path": path, "valid": true})
}
