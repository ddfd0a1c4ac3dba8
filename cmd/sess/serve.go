package main

import (
	"os"
	"slices"

	"sess/host"
	"sess/host/supervise"
	"sess/plugin"
	"sess/plugin/sess"
	"sess/plugin/wire"
	"sess/surfaces"
)

// pluginID is the id of the bundled plugin.
const pluginID = "sess"

// plugin is what the program does when a host runs it again: serve a bundled
// plugin, or guard somebody else's executable.
func (a *app) plugin(args []string) int {
	switch {
	case len(args) == 2 && args[0] == "serve" && args[1] == pluginID:
		build := "unknown"
		if exe, err := os.Executable(); err == nil {
			if id, err := host.BuildID(exe); err == nil {
				build = id
			}
		}
		log := wire.NewLogger(os.Stderr, nil)
		wire.Serve(sess.New(sess.Options{Build: build, Logger: log}), wire.ServeOptions{Logger: log})
		return plugin.ExitOK
	case len(args) > 1 && args[0] == "guard":
		return supervise.Guard(args[1:])
	}
	err := plugin.Errorf(plugin.Usage, "\"%s plugin\" is how a host runs its plugins; it is of no use by hand", prog).
		WithHint("%s plugins list shows the plugins", prog)
	return a.print(surfaces.RenderCLI(plugin.Result{}, err, surfaces.CLIOptions{Prog: prog, JSON: slices.Contains(args, "--json")}))
}
