package models

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"sess/plugin"
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

// What a model is asked and what it answers is the same where a plugin talks to
// it: see package plugin.
type (
	Request   = plugin.TurnRequest
	Answer    = plugin.TurnResult
	Tool      = plugin.Tool
	Delta     = plugin.Delta
	DeltaKind = plugin.DeltaKind
	Usage     = plugin.TokenUsage
)

// The kinds of deltas.
const (
	DeltaText    = plugin.DeltaText
	DeltaThought = plugin.DeltaThought
	DeltaTool    = plugin.DeltaTool
	DeltaNotice  = plugin.DeltaNotice
)

// Default is the model that is used when none is named.
const Default = "offline/echo"

// Config is the part of the configuration that is about models, and what models
// need of the program. The zero value knows the built-in providers only.
type Config struct {
	// Default is the model for conversations that name none; empty means
	// [Default].
	Default string `json:"default,omitempty"`
	// Providers are the configured providers by id. One of a built-in id takes
	// that one's place.
	Providers map[string]Provider `json:"providers,omitempty"`

	// Pace is the pause after each word of the offline model; 0 means none.
	Pace time.Duration `json:"-"`
	// Getenv is where keys may be found; nil is an empty environment.
	Getenv func(string) string `json:"-"`
	// Path makes the path of a key file, as it is configured, an absolute one; nil
	// leaves it.
	Path func(string) string `json:"-"`
	// Plugins talk to the models of further kinds, by the kind's name: the plugin's
	// id. None may have the name of one of [Kinds].
	Plugins map[string]plugin.Provider `json:"-"`
	// Transport sends the requests of all models; nil means one for each model.
	Transport http.RoundTripper `json:"-"`
}

// Provider is one configured provider.
type Provider struct {
	// Kind is the name of a [Kind], or the id of a plugin that talks to models.
	Kind string `json:"kind"`
	// BaseURL is where the provider's API is; empty means that of the kind.
	BaseURL string `json:"baseURL,omitempty"`
	// APIKeyEnv and APIKeyFile say where the key is; the file counts first. Without
	// either a provider at the kind's own address has the kind's usual variable,
	// and one elsewhere gets no key.
	APIKeyEnv  string `json:"apiKeyEnv,omitempty"`
	APIKeyFile string `json:"apiKeyFile,omitempty"`
	// Model is used where only the provider's id is given.
	Model string `json:"model,omitempty"`
	// MaxTokens bounds an answer; 0 leaves it to the kind or the provider.
	MaxTokens int `json:"maxTokens,omitempty"`
	// ContextWindow is how many tokens the model can read and write at a time;
	// people are told when a conversation has nearly filled it. 0 means unknown.
	ContextWindow int `json:"contextWindow,omitempty"`
	// TimeoutSeconds bounds an answer, IdleTimeoutSeconds the silence before and
	// within it; 0 is no bound. MaxRetries is how often a request is sent again. nil
	// means the default of [upstream.Options].
	TimeoutSeconds     *int `json:"timeoutSeconds,omitempty"`
	IdleTimeoutSeconds *int `json:"idleTimeoutSeconds,omitempty"`
	MaxRetries         *int `json:"maxRetries,omitempty"`
	// Parameters are more members of each request, as the provider documents
	// them.
	Parameters map[string]json.RawMessage `json:"parameters,omitempty"`
}

// Kind is a way of talking to a provider.
type Kind struct {
	Name string
	// Open makes a model of the provider with the given id. It does no I/O.
	Open func(id, model string, p Provider, c Config) (Model, error)
}

// Kinds lists what this version can talk to.
func Kinds() []Kind {
	return []Kind{
		{Name: "offline", Open: openOffline},
		{Name: "openai", Open: openOpenAI},
		{Name: "anthropic", Open: openAnthropic},
	}
}

// All returns the providers by id: the configured ones, and those that need no
// configuration.
func (c Config) All() map[string]Provider {
	all := map[string]Provider{
		"offline":   {Kind: "offline", Model: "echo"},
		"openai":    {Kind: "openai"},
		"anthropic": {Kind: "anthropic"},
		"ollama":    {Kind: "openai", BaseURL: "http://localhost:11434/v1"},
	}
	maps.Copy(all, c.Providers)
	return all
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
	providers := c.All()
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
	if c.Plugins[p.Kind] != nil {
		return openPlugin(id, model, p, c), nil
	}
	known = append(known, slices.Sorted(maps.Keys(c.Plugins))...)
	return nil, plugin.Errorf(plugin.Usage, "models.providers.%s.kind: unknown kind %q", id, p.Kind).
		WithHint("the kinds are %s", strings.Join(known, ", "))
}
