package session

import (
	"context"
	"encoding/json"
	"time"
)

// The kinds of events. Others are kept as they are.
const (
	EventTurnStart        = "turn_start" // the header, always the first line
	EventTextDelta        = "text_delta" // messageId, text
	EventThoughtDelta     = "thought_delta"
	EventToolCallStarted  = "tool_call_started"
	EventToolCallFinished = "tool_call_finished"
	EventApprovalRequest  = "approval_request"
	EventPlanUpdated      = "plan_updated"
	EventUsage            = "usage"
	EventError            = "error"
	EventRunCancelled     = "run_cancelled"
	EventRunFinished      = "run_finished"
	EventTurnEnd          = "turn_end" // the last line of a turn that ended
)

// TurnHeader is the first line of a turn's log.
type TurnHeader struct {
	Turn  string // the turn's id
	Input string // what the user sent
	Time  time.Time
	Model string // provider/model
}

// Event is one line of a turn's log.
type Event struct {
	Seq  int
	Time time.Time
	Type string
	Raw  json.RawMessage // the whole line
}

// TurnLog is the log of the turn that runs.
type TurnLog struct {
	// Number is the turn's, counted from 1.
	Number int
	// Warnings say what was found wrong with the log before, for people.
	Warnings []string
}

// BeginTurn starts the log of the session's next turn.
func (k *Locked) BeginTurn(ctx context.Context, h TurnHeader) (*TurnLog, error) { return nil, errTodo }

// Append adds an event.
func (t *TurnLog) Append(kind string, fields any) error { return errTodo }

// Text adds a text_delta of a message.
func (t *TurnLog) Text(messageID, delta string) error { return errTodo }

// End adds the last line and makes the log durable.
func (t *TurnLog) End(ctx context.Context, fields any) error { return errTodo }

// Turns lists the numbers of a session's turn logs, ascending.
func (s *Store) Turns(ctx context.Context, ref Ref) ([]int, error) { return nil, errTodo }

// ReadTurn reads the log of turn n.
func (s *Store) ReadTurn(ctx context.Context, ref Ref, n int) ([]Event, []string, error) {
	return nil, nil, errTodo
}
