package plugin

import (
	"context"
	"encoding/json"
	"iter"
	"log/slog"
	"time"

	"sess/store/transcript"
)

// AbilityProvider is the ability, in [Description], of a plugin that is a
// [Provider].
const AbilityProvider = "provider"

// Provider talks to models. A plugin may be one beside what it does with verbs;
// its id is then the kind of the providers in the configuration that it serves.
// It keeps no conversation: all that a model is told is in the request. Errors
// are [*Error] values that name the model. Safe for concurrent use.
type Provider interface {
	// Turn asks for the next answer of a conversation. It calls emit, from the
	// goroutine that called Turn, with every piece as it comes; emit must not
	// block for long. When ctx ends Turn returns soon with the context's error;
	// what was emitted until then is all there is.
	Turn(ctx context.Context, to Endpoint, req TurnRequest, emit func(Delta)) (TurnResult, error)
	// Compact makes of the beginning of a conversation something shorter, which
	// tells the model the same. It changes nothing. A provider that cannot answers
	// with the code unavailable.
	Compact(ctx context.Context, to Endpoint, req CompactRequest) (CompactResult, error)
}

// Endpoint says which model is meant, and how it is reached.
type Endpoint struct {
	// Provider is the provider's id in the configuration, Model the model's name
	// there, without the provider.
	Provider, Model string
	// BaseURL is where the provider answers; empty means where it usually does.
	BaseURL string
	// APIKey is what it is told to know who asks; empty means that none is
	// configured. It is for this one request: it is neither kept nor logged.
	APIKey Secret
	// KeyOrigin says where the key was read, for errors: "the variable X".
	KeyOrigin string
	// Timeout bounds a whole answer, IdleTimeout the silence before and within it,
	// and MaxRetries says how often a request is sent again. 0 means what the
	// provider finds right, a negative value no bound, and never.
	Timeout, IdleTimeout time.Duration
	MaxRetries           int
	// MaxTokens bounds an answer, ContextWindow is how many tokens the model takes;
	// 0 means that nobody said.
	MaxTokens, ContextWindow int
	// Parameters are more members of each request, as the provider documents them:
	// an object, or nil.
	Parameters json.RawMessage
}

// Name is the model's whole name, "<provider>/<model>".
func (e Endpoint) Name() string { return e.Provider + "/" + e.Model }

// Secret is a text that formatting and logging do not show. Convert it to a
// string where it is needed.
type Secret string

const hidden = "(hidden)"

// String is not the secret, and neither are the other forms of it.
func (s Secret) String() string { return hidden }

// GoString is for %#v.
func (s Secret) GoString() string { return hidden }

// LogValue is for log/slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText is for encoding/json.
func (s Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// TurnRequest is everything that a model is told.
type TurnRequest struct {
	// System is the instruction that stands before the conversation; it may be
	// empty.
	System string
	// History is the conversation, oldest item first. It ends with a user's
	// message or with the results of tools. An item without a role is one that
	// nobody here knows how to tell. It is read from the disk and may be
	// larger than memory: range over it once, before the first delta, and keep
	// what is needed. An error ends it.
	History iter.Seq2[transcript.HistoryItem, error]
	// Items counts the items that are stored, and Since iterates over those from
	// one (counted from 0) to the end, for a model whose State tells of what comes
	// before. Since is nil for a model in another process, which is sent all.
	Items int
	Since func(item int) iter.Seq2[transcript.HistoryItem, error]
	// Tools may be called by the answer.
	Tools []Tool
	// State is what the provider's last answer in this conversation left behind;
	// nil if there is none.
	State json.RawMessage
}

// Tool is something the model may call.
type Tool struct {
	Name        string
	Description string
	Schema      json.RawMessage // JSON Schema of the arguments, an object
}

// DeltaKind is the kind of a [Delta].
type DeltaKind string

// The kinds of deltas.
const (
	DeltaText    DeltaKind = "text"
	DeltaThought DeltaKind = "thought"
	DeltaTool    DeltaKind = "tool"
	// DeltaNotice is a sentence for people about the answer, such as that the
	// request is sent again; it is no part of what the model says.
	DeltaNotice DeltaKind = "notice"
)

// Delta is one piece of an answer.
type Delta struct {
	Kind DeltaKind
	Text string              // of a text or a thought: what to append; of a notice: all of it
	Call transcript.ToolCall // of a tool: the whole call
}

// TurnResult is a complete answer.
type TurnResult struct {
	// Text is all text deltas joined.
	Text string
	// ToolCalls ask for another request once they have results. None means that
	// the turn is over.
	ToolCalls []transcript.ToolCall
	Usage     TokenUsage
	// Native is the answer in the provider's own words, for the history; nil where
	// Text and ToolCalls are all there is.
	Native *transcript.Native
	// State goes into the next request; nil leaves what was there. What only one
	// conversation may have, such as the id of an answer that the provider keeps
	// and goes on from, stands in it under the key "continuation": a copy of the
	// conversation is not given that.
	State json.RawMessage
}

// TokenUsage counts tokens; zero means that the provider did not say.
type TokenUsage struct {
	InputTokens  int `json:"inputTokens"`
	OutputTokens int `json:"outputTokens"`
	// CachedTokens are those of the input that the provider still had from a
	// request before.
	CachedTokens int `json:"cachedTokens,omitempty"`
}

// Add returns the sum of both.
func (u TokenUsage) Add(v TokenUsage) TokenUsage {
	return TokenUsage{u.InputTokens + v.InputTokens, u.OutputTokens + v.OutputTokens, u.CachedTokens + v.CachedTokens}
}

// CompactRequest is what is to be made shorter.
type CompactRequest struct {
	// System is as in [TurnRequest].
	System string
	// History is the beginning of the conversation, as in [TurnRequest].
	History iter.Seq2[transcript.HistoryItem, error]
}

// CompactResult takes the place of the history that it was made from.
type CompactResult struct {
	// Native is for the provider itself.
	Native transcript.Native
	// Usage is what it took: the input is what was compacted, the output what it
	// has become.
	Usage TokenUsage
}
