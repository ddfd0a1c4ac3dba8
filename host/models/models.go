package models

import (
	"context"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"sess/plugin"
	"sess/store/transcript"
)

// Model answers requests. Safe for concurrent use.
type Model interface {
	// Name is the model's whole name, "<provider>/<model>".
	Name() string
	// Turn asks for the next answer of a conversation. It calls emit, from the
	// goroutine that called Turn, with every piece as it comes; emit must not
	// block for long. When ctx ends Turn returns soon with the context's error;
	// what was emitted until then is all there is. Other errors are
	// [*plugin.Error] values that name the model.
	Turn(ctx context.Context, req Request, emit func(Delta)) (Answer, error)
}

// Request is everything that a model is told.
type Request struct {
	// System is the instruction that stands before the conversation; it may be
	// empty.
	System string
	// History is the conversation, oldest item first. It ends with a user's
	// message or with the results of tools. It is read from the disk and may be
	// larger than memory: range over it before the first delta, and keep what is
	// needed. An error ends it.
	History iter.Seq2[transcript.HistoryItem, error]
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
)

// Delta is one piece of an answer.
type Delta struct {
	Kind DeltaKind
	Text string              // of a text or a thought: what to append
	Call transcript.ToolCall // of a tool: the whole call
}

// Answer is a complete answer.
type Answer struct {
	// Text is all text deltas joined.
	Text string
	// ToolCalls ask for another request once they have results. None means that
	// the turn is over.
	ToolCalls []transcript.ToolCall
	Usage     Usage
	// Native is the answer in the provider's own words, for the history; nil where
	// Text and ToolCalls are all there is.
	Native *transcript.Native
	// State goes into the next request; nil leaves what was there.
	State json.RawMessage
}

// Usage counts tokens; zero means that the provider did not say.
type Usage struct {
	InputTokens  int `json:"inputTokens"`
	OutputTokens int `json:"outputTokens"`
}

// Add returns the sum of both.
func (u Usage) Add(v Usage) Usage {
	return Usage{u.InputTokens + v.InputTokens, u.OutputTokens + v.OutputTokens}
}

// Default is the model that is used when none is named.
const Default = "offline/echo"

// Config is the part of the configuration that is about models. The zero value
// knows the offline model only.
type Config struct {
	// Default is the model for conversations that name none; empty means
	// [Default].
	Default string `json:"default,omitempty"`
	// Providers are the configured providers by id.
	Providers map[string]Provider `json:"providers,omitempty"`
	// Pace is the pause after each word of the offline model; 0 means none.
	Pace time.Duration `json:"-"`
}

// Provider is one configured provider.
type Provider struct {
	// Kind is the name of a [Kind].
	Kind string `json:"kind"`
	// Model is used where only the provider's id is given.
	Model string `json:"model,omitempty"`
}

// Kind is a way of talking to a provider.
type Kind struct {
	Name string
	// Open makes a model of the provider with the given id. It does no I/O.
	Open func(id, model string, p Provider, c Config) (Model, error)
}

// Kinds lists what this version can talk to.
func Kinds() []Kind {
	return []Kind{{Name: "offline", Open: openOffline}}
}

// Open makes the model with a name "<provider>/<model>", or "<provider>" for
// the provider's configured model; an empty name means the configured default.
// It does no I/O. Errors have the code usage.
func Open(name string, c Config) (Model, error) {
	if name == "" {
		name = c.Default
	}
	if name == "" {
		name = Default
	}
	id, model, _ := strings.Cut(name, "/")
	providers := map[string]Provider{"offline": {Kind: "offline", Model: "echo"}}
	maps.Copy(providers, c.Providers)
	p, ok := providers[id]
	if !ok {
		return nil, plugin.Errorf(plugin.Usage, "model %q: there is no provider %q", name, id).
			WithHint("the providers are %s", strings.Join(slices.Sorted(maps.Keys(providers)), ", "))
	}
	if model == "" {
		model = p.Model
	}
	if model == "" {
		return nil, plugin.Errorf(plugin.Usage, "model %q names no model of the provider %s", name, id).
			WithHint("write %s/<model>", id)
	}
	var known []string
	for _, k := range Kinds() {
		if k.Name == p.Kind {
			return k.Open(id, model, p, c)
		}
		known = append(known, k.Name)
	}
	return nil, plugin.Errorf(plugin.Usage, "models.providers.%s.kind: unknown kind %q", id, p.Kind).
		WithHint("the kinds are %s", strings.Join(known, ", "))
}
