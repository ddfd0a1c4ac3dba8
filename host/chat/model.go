package chat

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"sess/host/models"
	"sess/plugin"
	"sess/store/session"
)

// modelKey is the key of a session's header that names its model.
const modelKey = "model"

// UseModel makes the next turn, and those after it, talk with another model.
// The session names it from that turn on. An unknown name is a usage error, and
// then nothing changes.
func (c *Chat) UseModel(name string) error {
	m, err := c.openModel(name)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.chosen = m
	return nil
}

// openModel makes the model with a name, "" being the configured default.
func (c *Chat) openModel(name string) (models.Model, error) {
	if c.opts.OpenModel == nil {
		return nil, plugin.Errorf(plugin.Usage, "this chat cannot change its model").WithHint("leave the model out")
	}
	return c.opts.OpenModel(name)
}

// sessionModel is the name of the model that a session talks with, "" where it
// names none.
func sessionModel(live *session.Live) (name string) {
	_ = json.Unmarshal(live.Get(modelKey), &name)
	return name
}

// modelFor is the model that answers next in a session: the chosen one, else the
// one that the session names, else the default. It is asked for each time, as its
// settings may have changed. instead is set where the one that the session names is
// not there: the error says why.
func (c *Chat) modelFor(live *session.Live) (m models.Model, instead, err error) {
	c.mu.Lock()
	chosen := c.chosen
	c.mu.Unlock()
	switch {
	case chosen != nil && c.opts.OpenModel == nil:
		return chosen, nil, nil
	case chosen != nil:
		m, err = c.openModel(chosen.Name())
		return m, nil, err
	}
	name := sessionModel(live)
	if m, err = c.openModel(name); err != nil && name != "" {
		instead = err
		m, err = c.openModel("")
	}
	return m, instead, err
}

// modelName is modelFor for people.
func (c *Chat) modelName(live *session.Live) string {
	m, _, err := c.modelFor(live)
	if err != nil {
		return cmp.Or(sessionModel(live), "none")
	}
	return m.Name()
}

// takeModel settles which model a turn talks with, and tells where that is not
// the one that people expect. The name is that of the line, "" where it has none.
func (t *turn) takeModel(name string) error {
	if name != "" {
		if err := t.UseModel(name); err != nil {
			return err
		}
	}
	m, instead, err := t.modelFor(t.live)
	if err != nil {
		return err
	}
	if instead != nil {
		t.notice(plugin.AsError(instead).Message + "; " + m.Name() + " answers instead")
	}
	t.model = m
	return nil
}

// tookModel is called once the session names the model of a turn, so that it is
// not a choice any more.
func (t *turn) tookModel() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.opts.OpenModel != nil && t.chosen != nil && t.chosen.Name() == t.model.Name() {
		t.chosen = nil
	}
}

// modelInfo is the data of /model.
type modelInfo struct {
	Model   string            `json:"model"`
	Models  []modelChoice     `json:"models"`
	Session plugin.SessionRef `json:"session"`
}

type modelChoice struct {
	Name string `json:"name"`
	Help string `json:"help,omitempty"`
}

// modelCommand shows the model and those that could be chosen, or switches.
func (c *Chat) modelCommand(ctx context.Context, words []string) (plugin.Result, error) {
	if len(words) > 1 {
		return plugin.Result{}, plugin.Errorf(plugin.Usage, "/model takes one name, not %d words", len(words)).WithHint("type /model %s", words[0])
	}
	ref := c.Ref()
	live, err := c.store.Outline(ctx, ref)
	if err != nil {
		return plugin.Result{}, StoreError(err)
	}
	info := modelInfo{Session: plugin.SessionRef{Project: ref.Project, ID: ref.ID}, Models: []modelChoice{}}
	if len(words) == 1 {
		return c.switchModel(ctx, words[0], info)
	}
	info.Model = c.modelName(live)
	var rows [][]string
	for _, choice := range c.modelChoices(info.Model) {
		info.Models = append(info.Models, choice)
		mark := " "
		if choice.Name == info.Model {
			mark = "*"
		}
		rows = append(rows, []string{mark, choice.Name, choice.Help})
	}
	text := "model " + info.Model + "; these can be had with /model <provider/model>:\n" + plugin.Table(nil, rows)
	return plugin.Result{Text: text, Data: json.RawMessage(record(info))}, nil
}

// modelChoices are the models that are known by name, the one in use among them.
func (c *Chat) modelChoices(used string) []modelChoice {
	var all []modelChoice
	if c.opts.Models != nil {
		for _, m := range c.opts.Models() {
			all = append(all, modelChoice{m.Value, m.Help})
		}
	}
	if !slices.ContainsFunc(all, func(m modelChoice) bool { return m.Name == used }) {
		all = append(all, modelChoice{Name: used})
	}
	return all
}

// switchModel stores the name of another model in the session.
func (c *Chat) switchModel(ctx context.Context, name string, info modelInfo) (plugin.Result, error) {
	m, err := c.openModel(name)
	if err != nil {
		return plugin.Result{}, err
	}
	if err := c.nameModel(ctx, m.Name()); err != nil {
		return plugin.Result{}, err
	}
	c.mu.Lock()
	c.chosen = nil
	c.mu.Unlock()
	info.Model = m.Name()
	return plugin.Result{Text: "this session now talks with " + m.Name(), Data: json.RawMessage(record(info))}, nil
}

// nameModel stores which model the session talks with, durably.
func (c *Chat) nameModel(ctx context.Context, name string) (err error) {
	t := &turn{Chat: c, ref: c.Ref()}
	if t.locked, err = t.lock(ctx); err != nil {
		return err
	}
	defer func() {
		if unlockErr := t.locked.Unlock(); err == nil {
			err = StoreError(unlockErr)
		}
	}()
	if t.live, err = t.locked.Read(ctx); err != nil {
		return StoreError(err)
	}
	t.see(t.live)
	if err := t.writable(); err != nil {
		return err
	}
	if sessionModel(t.live) == name {
		return nil
	}
	if t.live.Interrupted { // else the next turn would not know of it
		if err := t.recover(ctx); err != nil {
			return StoreError(err)
		}
	}
	if err := t.live.Set(modelKey, name); err != nil {
		return StoreError(err)
	}
	return t.commit(ctx)
}

// writable refuses to change a session in whose place a snapshot is shown.
func (t *turn) writable() error {
	selected, err := t.store.Selected(t.ref)
	if err != nil || selected == "" {
		return StoreError(err)
	}
	return plugin.Errorf(plugin.ReadOnly, "session %s shows a snapshot, which cannot be changed", t.ref.ID).
		WithHint("/live goes back to the conversation").WithDetail("snapshot", selected)
}
