// Package dispatch turns declared verbs into a [plugin.Dispatcher].
//
// A [Verb] is one declaration: its name, arguments, flags, effect and handler.
// The [plugin.Spec], the parser and every usage error are derived from it, so
// nothing is written twice. The parser works on argv alone and knows no
// surface: whatever a person typed, a model sent or a program posted has been
// lowered to argv before.
//
// The package checks what a declaration says (types, limits, how many words)
// and leaves the meaning of values, such as which names are allowed, to the
// verbs. It keeps no state between calls and does no I/O but logging.
package dispatch
