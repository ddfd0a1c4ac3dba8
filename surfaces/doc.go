// Package surfaces derives every way of calling a command from its
// [plugin.Spec]: chat line, agent tool, command line, HTTP routes, JSON-RPC,
// shell completion, help, and the document that describes the routes.
//
// A surface does two things. It lowers what came in to an argv, and it renders
// the result or error that came back. Both are pure functions: no transport,
// no I/O, no state, safe for concurrent use. None of them knows a verb by name,
// and none checks what the dispatcher checks anyway; what they refuse is what
// an argv could not carry. Their errors are [*plugin.Error] values of the code
// usage, or not_found where there is no such route or tool.
package surfaces
