package main

import (
	"fmt"
	"os"

	"sess/host"
	"sess/host/supervise"
	"sess/plugin"
	"sess/plugin/sess"
	"sess/plugin/wire"
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
	fmt.Fprintf(a.stderr, "%s: \"%s plugin\" is how a host runs its plugins; it is of no use by hand\nhint: sess plugins list shows the plugins\n", prog, prog)
	return plugin.Usage.Info().Exit
}
