package host

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"sess/host/chat"
	"sess/host/models"
	"sess/plugin"
	"sess/store/transcript"
	"sess/surfaces"
)

// compactParams are those of models.compact: which messages, from the first on,
// are to be compacted in which state of a session.
type compactParams struct {
	Project  string `json:"project"`
	Session  string `json:"session"`
	Revision int64  `json:"revision"`
	Messages int    `json:"messages"`
}

// callCompact answers models.compact: it asks the session's model for a shorter
// form of the beginning of its history, as an item that can stand in its place.
// The session stays as it is: putting the item there is the business of the plugin
// that asks, so that there is a way back.
func (h *Host) callCompact(ctx context.Context, caller plugin.Caller, params json.RawMessage, _ plugin.ProgressFunc) (json.RawMessage, error) {
	if !caller.Internal() {
		return nil, plugin.Errorf(plugin.Denied, "only plugins may call models.compact").
			WithHint("sess context compact compacts a conversation")
	}
	var p compactParams
	if err := surfaces.Params(params, &p); err != nil {
		return nil, err
	}
	ref, err := h.Resolve(ctx, p.Project, p.Session)
	if err != nil {
		return nil, err
	}
	live, _, err := h.sessions.Settled(ctx, ref)
	if err != nil {
		return nil, chat.StoreError(err)
	}
	if live.Revision != p.Revision {
		return nil, plugin.Errorf(plugin.Conflict, "session %s changed meanwhile", ref.ID).WithHint("look at it, then run the command again")
	}
	var name string
	_ = json.Unmarshal(live.Get("model"), &name) // of one without a model it is the default
	model, err := models.Open(name, h.models(false))
	if err != nil {
		return nil, err
	}
	able, ok := model.(models.Compactor)
	if !ok {
		return nil, plugin.Errorf(plugin.Usage, "model %s cannot compact a conversation", model.Name()).
			WithHint(`models of a provider of the kind "responses" can: go on with one of them, and compact then`)
	}
	share, err := transcript.HistoryOf(&live.Doc, live.Load, p.Messages)
	if err != nil {
		return nil, chat.StoreError(err)
	}
	provider, _, _ := strings.Cut(model.Name(), "/")
	made, err := able.Compact(ctx, plugin.CompactRequest{History: transcript.History(&live.Doc, live.Load, provider, 0, share)})
	if err != nil {
		return nil, err
	}
	item, err := transcript.HistoryItem{
		Role:    transcript.RoleSystem,
		Content: fmt.Sprintf("The first %d messages of this conversation were compacted by %s.", p.Messages, model.Name()),
		Native:  &made.Native,
	}.AppendJSON(nil)
	if err != nil {
		return nil, plugin.Errorf(plugin.Internal, "model %s: %w", model.Name(), err)
	}
	head, err := json.Marshal(map[string]any{"provider": provider, "usage": made.Usage})
	if err != nil {
		return nil, err
	}
	// The item's bytes are the provider's: Go's encoder would write them anew.
	out := append(head[:len(head)-1], `,"item":`...)
	return append(append(out, item...), '}'), nil
}
