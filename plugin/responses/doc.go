// Package responses is the plugin that talks to models over the OpenAI Responses
// API, and that makes long conversations shorter by that API's own compaction.
//
// It is a [plugin.Provider] of the kind "responses". What the API says of an
// answer, such as the model's encrypted reasoning, stays in the history byte for
// byte and goes back with the next request, so that the model goes
// on from where it was. By default nothing is kept at the provider ("store" is
// false) and each request has the whole conversation. With "store" the provider
// keeps each answer, and a request names the last one and sends only what is new;
// where the provider no longer knows it, or the conversation was changed since,
// the whole conversation is sent.
//
// The command "context" is about what the model sees of the conversation: compact
// replaces its beginning by what the provider makes of it, and show tells how much
// of the model's window is in use. People see all messages as before, and a
// snapshot keeps the conversation as it was. After a turn that filled more of the
// window than compactAt, the plugin compacts by itself and says so.
//
// The plugin keeps no conversation, no key and no other state but what it has
// learnt about models that want no encrypted reasoning.
package responses
