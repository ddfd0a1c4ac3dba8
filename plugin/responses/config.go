package responses

import (
	_ "embed"
	"encoding/json"

	"sess/plugin"
)

// ManifestJSON is the plugin's manifest. Its configSchema and [Config] say the
// same.
//
//go:embed plugin.json
var ManifestJSON []byte

// Config is the plugin's configuration, plugins.entries.responses.config. The host
// has checked it and filled in the defaults.
type Config struct {
	// Store lets the provider keep the answers, so that a request need not have
	// the whole conversation.
	Store bool `json:"store"`
	// CompactAt is the share of the model's window that a turn may fill before the
	// conversation is compacted; 0 means that it is only where somebody asks.
	CompactAt float64 `json:"compactAt"`
	// KeepTurns is how many of the last turns stay as they are.
	KeepTurns int `json:"keepTurns"`
}

// defaultWindow is how many tokens a model takes of whom nobody said it: the
// smallest window of OpenAI's reasoning models.
const defaultWindow = 200_000

func parseConfig(data json.RawMessage) (Config, error) {
	var c Config
	if err := json.Unmarshal(data, &c); err != nil {
		return c, plugin.Errorf(plugin.Usage, "plugins.entries.%s.config: %w", ID, err)
	}
	return c, nil
}
