package models_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sess/host/models"
	"sess/plugin"
)

// telepath is a plugin that notes where it was sent.
type telepath struct{ to plugin.Endpoint }

func (r *telepath) Turn(_ context.Context, to plugin.Endpoint, _ plugin.TurnRequest, emit func(plugin.Delta)) (plugin.TurnResult, error) {
	r.to = to
	emit(plugin.Delta{Kind: plugin.DeltaText, Text: "hi"})
	return plugin.TurnResult{Text: "hi"}, nil
}

func (r *telepath) Compact(_ context.Context, to plugin.Endpoint, _ plugin.CompactRequest) (plugin.CompactResult, error) {
	r.to = to
	return plugin.CompactResult{Usage: plugin.TokenUsage{InputTokens: 1}}, nil
}

// A plugin is told all that is configured, and the key as it is at that moment.
func TestAModelOfAPlugin(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	r := &telepath{}
	c := models.Config{
		Plugins: map[string]plugin.Provider{"telepathy": r},
		Getenv:  func(name string) string { return map[string]string{"K": "from-env"}[name] },
		Providers: map[string]models.Provider{
			"env": {
				Kind: "telepathy", Model: "m", BaseURL: "http://u", APIKeyEnv: "K", TimeoutSeconds: new(0), IdleTimeoutSeconds: new(7),
				MaxRetries: new(0), MaxTokens: 5, ContextWindow: 6, Parameters: map[string]json.RawMessage{"b": json.RawMessage(`1.0`), "a": json.RawMessage(`"<"`)},
			},
			"file": {Kind: "telepathy", Model: "m", APIKeyFile: file},
			"none": {Kind: "telepathy", Model: "m"},
			"lost": {Kind: "telepathy", Model: "m", APIKeyEnv: "MISSING"},
		},
	}
	ask := func(name string) (plugin.Endpoint, error) {
		t.Helper()
		m, err := models.Open(name, c)
		if err != nil {
			t.Fatal(err)
		}
		r.to = plugin.Endpoint{}
		answer, err := m.Turn(t.Context(), models.Request{}, func(models.Delta) {})
		if err == nil && answer.Text != "hi" {
			t.Errorf("%s answers %+v", name, answer)
		}
		asked := r.to
		if _, failed := m.(models.Compactor).Compact(t.Context(), plugin.CompactRequest{}); (failed == nil) != (err == nil) || !cmp.Equal(asked, r.to) {
			t.Errorf("%s: Compact was sent to %+v (%v), Turn to %+v (%v)", name, r.to, failed, asked, err)
		}
		return asked, err
	}
	for name, want := range map[string]plugin.Endpoint{
		"env": {
			Provider: "env", Model: "m", BaseURL: "http://u", APIKey: "from-env", KeyOrigin: "the variable K", Timeout: -time.Second,
			IdleTimeout: 7 * time.Second, MaxRetries: -1, MaxTokens: 5, ContextWindow: 6, Parameters: json.RawMessage(`{"a":"<","b":1.0}`),
		},
		"none/other": {Provider: "none", Model: "other"},
	} {
		if got, err := ask(name); err != nil || !cmp.Equal(want, got) {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, cmp.Diff(want, got))
		}
	}
	for _, key := range []string{"old-key", "new-key"} {
		if err := os.WriteFile(file, []byte(key+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := ask("file"); err != nil || string(got.APIKey) != key || got.KeyOrigin != file {
			t.Errorf("with a key file: %+v, %v, want the key %q", got, err, key)
		}
	}
	_, err := ask("lost")
	if e := plugin.AsError(err); e == nil || e.Code != plugin.Denied || e.Message != "model lost/m: there is no key: the variable MISSING is not set" {
		t.Errorf("without its key: %v", err)
	}
}
