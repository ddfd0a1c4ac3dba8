// Package chat runs turns on a live session: what a person types goes to the
// model, what the model says comes back as events and is stored.
//
// A [Chat] owns no conversation. Between two lines it remembers only which
// session it shows and at which revision, so that a conversation which was
// replaced meanwhile is noticed, told, and gone on with; an old copy can never
// come back. During a turn it holds the session's lock.
//
// A line that begins with a slash is a command: it is answered here or by the
// plugin whose command it is, never reaches the model, and leaves no trace in
// the conversation. "//" sends a text that begins with a slash.
//
// What a crash can lose: a turn is durable before its first request to the
// model (with the user's message), before each round of tool calls, and at its
// end. In between, what the model says goes to the turn's event log as it
// comes, from which the session store completes the message of a turn that
// died.
package chat
