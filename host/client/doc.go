// Package client talks to a running gateway: over its socket, or over the network
// with its token. A [Client] is a plugin.Dispatcher, so that whoever has one
// cannot tell the gateway from a host in its own process.
//
// A client keeps nothing and never connects again by itself: when the gateway has
// gone, what was asked answers unavailable, and its outcome is not known.
package client
