package transcript

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Role says whose a message or an item of history is.
type Role string

// The roles. A message is of the user or the agent, an item of history of any
// but the agent.
const (
	RoleUser      Role = "user"
	RoleAgent     Role = "agent"
	RoleSystem    Role = "system"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// Status is how far a message or an activity has come.
type Status string

// The states of a message, and those of an activity.
const (
	StatusComplete  Status = "complete"
	StatusStreaming Status = "streaming"
	StatusError     Status = "error"

	StatusPending    Status = "pending"
	StatusInProgress Status = "in_progress"
	StatusCompleted  Status = "completed"
	StatusFailed     Status = "failed"
)

// Interrupted is the content of the result that a tool call gets which has none.
const Interrupted = "interrupted"

// Message is a record of [ListMessages]: what people see. Times are epoch
// milliseconds.
type Message struct {
	ID                  string            `json:"id"`
	Role                Role              `json:"role"` // user or agent
	Content             string            `json:"content"`
	Status              Status            `json:"status"` // complete, streaming or error
	StreamID            string            `json:"streamId,omitempty"`
	ResponseToMessageID string            `json:"responseToMessageId,omitempty"`
	EventIDs            []string          `json:"eventIds,omitempty"`
	ArtifactIDs         []string          `json:"artifactIds,omitempty"`
	Uploads             []json.RawMessage `json:"uploads,omitempty"` // references to attachments
	CreatedAt           int64             `json:"createdAt"`
	UpdatedAt           int64             `json:"updatedAt"`
}

// Activity is a record of [ListActivities]: a tool call that people see. Times
// are epoch milliseconds.
type Activity struct {
	ID        string          `json:"id"`
	MessageID string          `json:"messageId,omitempty"` // of the message it belongs to
	Title     string          `json:"title,omitempty"`     // for people
	Name      string          `json:"name,omitempty"`      // of the tool
	Status    Status          `json:"status"`              // pending, in_progress, completed or failed
	RawInput  json.RawMessage `json:"rawInput,omitempty"`
	RawOutput json.RawMessage `json:"rawOutput,omitempty"`
	Content   json.RawMessage `json:"content,omitempty"`
	CreatedAt int64           `json:"createdAt"`
	UpdatedAt int64           `json:"updatedAt"`
}

// HistoryItem is a record of [ListHistory]: what the model sees. An item of
// another shape, as a provider may keep one, is none of these and stays as it
// is.
type HistoryItem struct {
	Role       Role       `json:"role"` // system, user, assistant or tool
	Content    string     `json:"content"`
	ToolCalls  []ToolCall `json:"toolCalls,omitempty"`  // of an assistant
	ToolCallID string     `json:"toolCallId,omitempty"` // of a tool: the call that this is the result of
	Name       string     `json:"name,omitempty"`       // of a tool
	// MessageID is the message of [ListMessages] that the item belongs to: of an
	// answer and the results of its tools, the agent's message. Empty where nobody
	// noted it.
	MessageID string `json:"messageId,omitempty"`
	// Native is the item as its provider has it; nil where there is nothing
	// beyond the other fields, which every provider can be told.
	Native *Native `json:"native,omitempty"`
}

// Native is what a provider said, in its own words: exact bytes, which go back to
// it in the next request. Another provider is told the item's other fields.
type Native struct {
	Kind  string            `json:"kind"`  // of the provider: whose words these are
	Items []json.RawMessage `json:"items"` // byte for byte; see [HistoryItem.AppendJSON]
}

// AppendJSON appends the item as one JSON object that a [Record] can hold. It is
// the only way that keeps the bytes of the native items, which Go's encoder would
// write anew; read it with [json.Unmarshal]. All that is changed is that a line
// break between two tokens of theirs becomes a blank, since a record is one line.
// It is an error if one of them, or the arguments of a call, are not one JSON
// value in UTF-8.
func (h HistoryItem) AppendJSON(dst []byte) ([]byte, error) {
	native := h.Native
	h.Native = nil
	plain, err := EncodeJSON(h)
	if err != nil {
		return nil, fmt.Errorf("encode an item of history: %w", err)
	}
	if native == nil {
		return append(dst, plain...), nil
	}
	dst = append(dst, bytes.TrimSuffix(plain, []byte("}"))...)
	dst = append(AppendText(append(dst, `,"native":{"kind":`...), native.Kind), `,"items":[`...)
	for i, item := range native.Items {
		if !isValue(item) {
			return nil, fmt.Errorf("encode an item of history: native item %d of kind %q is not one JSON value", i, native.Kind)
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		start := len(dst)
		dst = append(dst, item...)
		for j, c := range dst[start:] { // in a string there is none
			if c == '\n' || c == '\r' {
				dst[start+j] = ' '
			}
		}
	}
	return append(dst, "]}}"...), nil
}

// ToolCall is a call that a model asks for.
type ToolCall struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}
