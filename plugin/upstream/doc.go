// Package upstream talks to a model provider's API over HTTP: it sends a request
// with a key, sends it again where that helps, and hands on the events of the
// answer as they come.
//
// What it promises: a key is read for each request, from the environment or from
// a file that only its owner may read, and appears in no error and in no notice.
// It goes to the configured address alone: no redirect is followed. A request is
// sent again, after a pause that the provider may ask for, only as long as nobody
// has seen any of the answer. Every wait is bounded, and ends with the context.
// Errors are [*plugin.Error] values that say what to do.
//
// It knows no provider: what is sent and what the events mean is the business of
// the kinds of models that use it.
package upstream
