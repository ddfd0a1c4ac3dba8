package chat

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"sess/plugin"
	"sess/surfaces"
)

// askTime bounds what a chat asks a plugin for its own sake.
const askTime = 3 * time.Second

// shownSnapshot is the name of the snapshot that is shown in place of the session,
// "" where that is the session itself. Where nobody knows its name it is its id.
func (c *Chat) shownSnapshot(ctx context.Context) string {
	ref := c.Ref()
	id, err := c.store.Selected(ref)
	if err != nil || id == "" {
		return "" // who writes is told
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var snapshot struct {
		Name string `json:"name"`
	}
	_ = json.Unmarshal(c.read(ctx, "/sessions/"+url.PathEscape(ref.ID)+"/snapshots/selected"), &snapshot)
	return cmp.Or(snapshot.Name, id)
}

// read is what a command of a plugin answers at a route below the session, nil
// where none does.
func (c *Chat) read(ctx context.Context, path string) json.RawMessage {
	for _, o := range c.opts.Commands() {
		table, _ := surfaces.NewHTTPTable(nil, []surfaces.HTTPCommand{{Spec: &o.Spec}})
		route, params, failure := table.Match(http.MethodGet, path)
		if failure != nil {
			continue
		}
		lowered, err := route.Lower(surfaces.HTTPInput{Params: params})
		if err != nil {
			continue
		}
		if result, err := o.Dispatcher.Dispatch(ctx, c.call(plugin.CallerHost, lowered.Argv), nil); err == nil {
			return result.Data
		}
	}
	return nil
}
