// Package plugin is the contract between a host and its plugins, in Go types.
//
// A plugin declares its verbs once, in a [Spec]. From that declaration alone
// the host derives every surface: slash command, agent tool, command line,
// HTTP route, gateway method. All of them lower to one thing, a [Call] whose
// Argv a [Dispatcher] answers with a [Result] or an [*Error].
//
// A plugin may be a [Provider], too: then it talks to models for the host.
//
// A [Plugin] is what an author implements; a [Runtime] is what the host gives
// the plugin in return. Neither knows whether the other runs in the same
// process: package plugin/wire carries both over gRPC, and the tests run the
// same cases against the Go values and against the real process.
//
// The package holds types and pure functions only: no I/O, no goroutines and
// no state. Every value is safe to copy unless its comment says otherwise.
package plugin
