package main

import (
	"log/slog"
	"os"
	"slices"

	"sess/host"
	"sess/host/supervise"
	"sess/plugin"
	"sess/plugin/actions"
	"sess/plugin/responses"
	"sess/plugin/sess"
	"sess/plugin/wire"
	"sess/surfaces"
)

// bundled is a plugin that the program brings.
type bundled struct {
	id       string // also its manifest's builtin
	manifest []byte
	// make makes it, in a process of its own.
	make func(build string, log *slog.Logger) plugin.Plugin
}

// bundles lists the bundled plugins.
func bundles() []bundled {
	return []bundled{
		{"sess", sess.ManifestJSON, func(build string, log *slog.Logger) plugin.Plugin {
			return sess.New(sess.Options{Build: build, Logger: log})
		}},
		{"session-actions", actions.ManifestJSON, func(build string, _ *slog.Logger) plugin.Plugin {
			return actions.New(build)
		}},
		{responses.ID, responses.ManifestJSON, func(build string, _ *slog.Logger) plugin.Plugin {
			return responses.New(responses.Options{Build: build})
		}},
	}
}

// builtins lists the manifests of the bundled plugins.
func builtins() [][]byte {
	var all [][]byte
	for _, b := range bundles() {
		all = append(all, b.manifest)
	}
	return all
}

// plugin is what the program does when a host runs it again: serve a bundled
// plugin, or guard somebody else's executable.
func (a *app) plugin(args []string) int {
	if len(args) == 2 && args[0] == "serve" {
		all := bundles()
		if i := slices.IndexFunc(all, func(b bundled) bool { return b.id == args[1] }); i >= 0 {
			build := "unknown"
			if exe, err := os.Executable(); err == nil {
				if id, err := host.BuildID(exe); err == nil {
					build = id
				}
			}
			log := wire.NewLogger(os.Stderr, nil)
			wire.Serve(all[i].make(build, log), wire.ServeOptions{Logger: log})
			return plugin.ExitOK
		}
	}
	if len(args) > 1 && args[0] == "guard" {
		return supervise.Guard(args[1:])
	}
	err := plugin.Errorf(plugin.Usage, "\"%s plugin\" is how a host runs its plugins; it is of no use by hand", prog).
		WithHint("%s plugins list shows the plugins", prog)
	return a.print(surfaces.RenderCLI(plugin.Result{}, err, surfaces.CLIOptions{Prog: prog, JSON: slices.Contains(args, "--json")}))
}
