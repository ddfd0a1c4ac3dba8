package sess

import (
	"context"
	"errors"
	"fmt"

	"sess/dispatch"
	"sess/plugin"
	"sess/store/snapshot"
	"sess/store/transcript"
)

func pinVerb() verb {
	return verb{
		Verb: dispatch.Verb{
			Name:     "pin",
			Summary:  "Keep a snapshot from ever being evicted",
			Examples: []string{"pin v1"},
			Args:     []plugin.Arg{nameArg("snapshot, by name or id")},
			Effect:   plugin.EffectWrite,
		},
		run: func(ctx context.Context, r *request) (plugin.Result, error) { return r.setPin(ctx, true) },
	}
}

func unpinVerb() verb {
	return verb{
		Verb: dispatch.Verb{
			Name:     "unpin",
			Summary:  "Let a pinned snapshot be evicted again",
			Examples: []string{"unpin v1"},
			Args:     []plugin.Arg{nameArg("snapshot, by name or id")},
			Effect:   plugin.EffectWrite,
		},
		run: func(ctx context.Context, r *request) (plugin.Result, error) { return r.setPin(ctx, false) },
	}
}

// errSame ends an edit that would change nothing.
var errSame = errors.New("nothing to change")

func (r *request) setPin(ctx context.Context, on bool) (plugin.Result, error) {
	done := "unpinned"
	if on {
		done = "pinned"
	}
	entry, changed, err := r.edit(ctx, func(m *transcript.Meta) error {
		if m.Pinned == on {
			return errSame
		}
		m.Pinned = on
		return nil
	})
	if err != nil {
		return plugin.Result{}, err
	}
	text := done + " " + string(entry.Name)
	if !changed {
		text = fmt.Sprintf("%s is %s already: nothing to do", entry.Name, done)
	}
	data, err := metaJSON(entry.Name, entry.Meta, pair{"changed", changed})
	return plugin.Result{Text: text, Data: data}, err
}

// edit changes the metadata of the snapshot that the call names; change answers
// errSame where it is as wanted already.
func (r *request) edit(ctx context.Context, change func(*transcript.Meta) error) (snapshot.Entry, bool, error) {
	pool, name, err := r.find(ctx, r.Arg("name"))
	if err != nil {
		return snapshot.Entry{}, false, err
	}
	var same transcript.Meta
	entry, err := pool.SetMeta(ctx, name, func(m *transcript.Meta) error {
		err := change(m)
		same = *m
		return err
	}, true)
	if errors.Is(err, errSame) {
		return snapshot.Entry{Name: name, Meta: same}, false, nil
	}
	return entry, true, err
}
