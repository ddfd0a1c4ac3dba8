// Package models holds what a chat talks to: a [Model] answers one request at
// a time, streaming what it says.
//
// A model is named "<provider>/<model>". A provider is an entry of the
// configuration with a kind; [Kinds] is the one list of kinds, and [Open] the
// only way from a name to a Model. Without any configuration there is
// "offline/echo", which needs no network and no key, answers the same to the
// same conversation, and calls the tools that it is told to call.
//
// The package keeps no conversation and no state between requests: everything
// a model knows is in its [Request].
package models
