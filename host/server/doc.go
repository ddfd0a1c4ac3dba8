// Package server is the gateway's side of the network: it mounts what package
// surfaces derives from the Specs on HTTP, WebSocket and JSON-RPC, and lets in
// only who may. It knows no verb and no plugin by name, and keeps nothing.
//
// JSON-RPC 2.0 comes over a WebSocket, in the body of a POST, or on a socket with
// one message in each line. Answers overtake each other; a call ends with its
// connection. What is bounded (connections, calls of one, the size of a message)
// is refused in words, and a reader that is slow holds up only itself.
//
// Everything of the libraries that it uses stays inside: handlers are written
// against context.Context and the types of package plugin.
package server
