package chat

import (
	"encoding/json"

	"sess/host/models"
	"sess/plugin"
	"sess/store/transcript"
)

// EventKind is the kind of an [Event].
type EventKind string

// The events, and the fields that are set for each.
const (
	EventTurnStarted  EventKind = "turn_started"  // Turn
	EventText         EventKind = "text"          // Turn, Text: what to append to the message
	EventThought      EventKind = "thought"       // Turn, Text: likewise
	EventToolStarted  EventKind = "tool_started"  // Turn, Tool
	EventToolFinished EventKind = "tool_finished" // Turn, Tool
	EventQuestion     EventKind = "question"      // Turn, Tool, Text: a person is to allow the call; see Chat.Allow
	EventTurnEnded    EventKind = "turn_ended"    // Turn, Revision, Message, Activities, Usage
	EventAnswer       EventKind = "answer"        // Result, Effect, JSON: of a command
	EventNotice       EventKind = "notice"        // Text: a sentence for people
	EventError        EventKind = "error"         // Err, JSON
)

// Event is one thing that people who look at a chat are shown.
type Event struct {
	Kind     EventKind
	Turn     string
	Text     string
	Tool     Tool
	Revision int64 // of the session, after the turn
	// Message is what the model said, as it is stored, Activities what it did
	// meanwhile, and Usage what that took.
	Message    transcript.Message
	Activities []transcript.Activity
	Usage      models.Usage
	Result     plugin.Result
	Effect     plugin.Effect
	JSON       bool // the command asked for JSON instead of text
	Err        *plugin.Error
}

// Tool is one call of a tool.
type Tool struct {
	ID        string
	Name      string
	Arguments json.RawMessage
	// Of a finished call: whether it failed, and what the model is told.
	Failed bool
	Text   string
}

// Sink shows events. It is called from one goroutine at a time, and must not
// block for long: the model waits.
type Sink interface {
	Event(e Event)
}

// SinkFunc makes a function a [Sink].
type SinkFunc func(e Event)

// Event calls f.
func (f SinkFunc) Event(e Event) { f(e) }
