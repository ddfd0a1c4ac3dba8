// Package models holds what a chat talks to: a [Model] answers one request at
// a time, streaming what it says.
//
// A model is named "<provider>/<model>". A provider is an entry of the
// configuration with a kind; [Kinds] is the one list of kinds, and [Open] the
// only way from a name to a Model. Without any configuration there are
// "offline/echo", which needs no network and no key, answers the same to the
// same conversation, and calls the tools that it is told to call; and the models
// of OpenAI, Anthropic and a local Ollama, with the keys that they usually have in
// the environment.
//
// The package keeps no conversation: everything a model knows is in its
// [Request]. What a provider said goes back to it byte for byte where telling it
// anew would not give the same bytes ([transcript.Native]); another provider is
// told the neutral fields, so that a conversation can go on with another model at
// any time. All that a model remembers between requests is what its server was
// found not to take.
//
// The wire formats are those of the public API references of OpenAI (chat
// completions) and Anthropic (Messages, version 2023-06-01), and what servers are
// known to do otherwise is named where it is taken care of.
package models
