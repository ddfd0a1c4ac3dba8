package models

import (
	"context"
	"fmt"

	"sess/plugin"
	"sess/plugin/upstream"
)

// Compactor is a model whose provider can make the beginning of a conversation
// shorter. Errors are as in [Model].
type Compactor interface {
	Compact(ctx context.Context, req plugin.CompactRequest) (plugin.CompactResult, error)
}

// pluginModel is a model that a plugin talks to. The plugin has no secrets of its
// own: it is given the key with each request.
type pluginModel struct {
	provider plugin.Provider
	endpoint plugin.Endpoint // but for the key
	key      upstream.Key
	getenv   func(string) string
}

var (
	_ Model     = (*pluginModel)(nil)
	_ Compactor = (*pluginModel)(nil)
)

func openPlugin(id, model string, p Provider, c Config) *pluginModel {
	m := &pluginModel{provider: c.Plugins[p.Kind], key: p.key(c), getenv: c.Getenv, endpoint: plugin.Endpoint{
		Provider: id, Model: model, BaseURL: p.BaseURL, Timeout: seconds(p.TimeoutSeconds), IdleTimeout: seconds(p.IdleTimeoutSeconds),
		MaxRetries: noneIfZero(p.MaxRetries), MaxTokens: p.MaxTokens, ContextWindow: p.ContextWindow,
	}}
	if len(p.Parameters) > 0 {
		m.endpoint.Parameters = encode(p.Parameters)
	}
	if m.getenv == nil {
		m.getenv = func(string) string { return "" }
	}
	return m
}

func (m *pluginModel) Name() string { return m.endpoint.Name() }

func (m *pluginModel) Turn(ctx context.Context, req Request, emit func(Delta)) (Answer, error) {
	to, err := m.to()
	if err != nil {
		return Answer{}, err
	}
	return m.provider.Turn(ctx, to, req, emit)
}

func (m *pluginModel) Compact(ctx context.Context, req plugin.CompactRequest) (plugin.CompactResult, error) {
	to, err := m.to()
	if err != nil {
		return plugin.CompactResult{}, err
	}
	return m.provider.Compact(ctx, to, req)
}

// to is the endpoint with the key as it is now.
func (m *pluginModel) to() (plugin.Endpoint, error) {
	key, err := m.key.Read(m.getenv)
	if err != nil {
		e := *plugin.AsError(err)
		e.Message = fmt.Sprintf("model %s: %s", m.Name(), e.Message)
		return plugin.Endpoint{}, &e
	}
	to := m.endpoint
	if key != "" {
		to.APIKey, to.KeyOrigin = plugin.Secret(key), m.key.String()
	}
	return to, nil
}
