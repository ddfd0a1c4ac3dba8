// Package server is the gateway's side of the network: it mounts what package
// surfaces derives from the Specs on HTTP, WebSocket and JSON-RPC, and lets in
// only who may. It knows no verb and no plugin by name, and keeps nothing.
//
// Everything of the libraries that it uses stays inside: handlers are written
// against context.Context and the types of package plugin.
package server
