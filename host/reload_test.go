package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/host"
	"sess/host/server"
	"sess/plugin"
)

// A reload replaces the plugin whose configuration has changed, under a call
// that it lets end, and touches no other.
func TestReload(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	h, err := host.Open(t.Context(), host.Options{
		Home: home, Exe: exe, Environ: os.Environ(), Background: true,
		Builtins: [][]byte{fmt.Appendf(nil, badManifest, "bad"), fmt.Appendf(nil, probeManifest, allPermissions+`, "rpc:test.wait"`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	configure := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(home, "config.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	type row struct {
		ID, State string
		PID       int
	}
	rows := func() map[string]row {
		t.Helper()
		res, err := h.Dispatch(t.Context(), plugin.Call{Argv: []string{"plugins", "list"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var list []row
		if err := json.Unmarshal(res.Data, &list); err != nil {
			t.Fatal(err)
		}
		byID := map[string]row{}
		for _, r := range list {
			byID[r.ID] = r
		}
		return byID
	}
	mustDispatch(t, h, "probe", "session")
	if _, err := h.Dispatch(t.Context(), plugin.Call{Argv: []string{"bad", "do", "well"}}, nil); err != nil {
		t.Fatal(err)
	}
	before := rows()

	arrived, release := make(chan struct{}), make(chan struct{}, 1)
	err = h.AddMethods(host.Method{Name: "test.wait", Call: func(ctx context.Context, _ plugin.Caller, _ json.RawMessage, _ plugin.ProgressFunc) (json.RawMessage, error) {
		arrived <- struct{}{}
		select {
		case <-release:
			return json.RawMessage(`"done"`), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	// call begins a call that runs until release.
	call := func() <-chan error {
		running := make(chan error, 1)
		go func() {
			text, err := dispatchText(t, h, "probe", "call", "test.wait")
			if err == nil && text != `"done"` {
				err = fmt.Errorf("it answers %s", text)
			}
			running <- err
		}()
		<-arrived
		return running
	}
	running := call()
	changes := h.Subscribe(server.EventFilter{Kinds: []string{"plugins.changed"}})
	defer changes.Close()

	configure(`{"plugins": {"entries": {"probe": {"config": {"exposeTool": false}}}}}`)
	reloaded := make(chan error, 1)
	go func() {
		report, err := h.Reload(t.Context())
		if diff := cmp.Diff(host.ReloadReport{Added: []string{}, Changed: []string{"probe"}, Removed: []string{}, Failed: map[string]string{}}, report); diff != "" {
			err = errors.Join(err, fmt.Errorf("the report (-want +got):\n%s", diff))
		}
		reloaded <- err
	}()
	if _, err := changes.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustDispatch(t, h, "probe", "session") // while the old process still works
	after := rows()
	if after["probe"].PID == before["probe"].PID || after["probe"].State != "ready" {
		t.Errorf("the changed plugin: %+v, before %+v", after["probe"], before["probe"])
	}
	if after["bad"] != before["bad"] {
		t.Errorf("the plugin that did not change: %+v, before %+v", after["bad"], before["bad"])
	}
	select {
	case err := <-reloaded:
		t.Errorf("the reload did not wait for the call: %v", err)
		reloaded <- nil
	default:
	}
	release <- struct{}{}
	if err := <-running; err != nil {
		t.Errorf("the call that ran: %v", err)
	}
	if err := <-reloaded; err != nil {
		t.Error(err)
	}

	configure(`{"plugins": {"entries": {"probe": {"config": {"exposeTool": "no"}}}}}`)
	if _, err := h.Reload(t.Context()); !errors.Is(err, &plugin.Error{Code: plugin.Usage}) {
		t.Errorf("Reload of a wrong configuration: %v, want usage", err)
	}
	if diff := cmp.Diff(after, rows()); diff != "" {
		t.Errorf("a refused reload changed (-want +got):\n%s", diff)
	}
	mustDispatch(t, h, "probe", "session")

	configure(`{"plugins": {"entries": {"probe": {"enabled": false}}}}`)
	running = call()
	asking, goAway := context.WithCancel(t.Context())
	go func() {
		report, err := h.Reload(asking)
		if err == nil && len(report.Changed) != 1 {
			err = fmt.Errorf("it changed %q", report.Changed)
		}
		reloaded <- err
	}()
	if _, err := changes.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	goAway() // which ends no call of others
	if err := <-reloaded; err != nil {
		t.Errorf("Reload of a plugin that is switched off: %v", err)
	}
	if got := rows()["probe"]; got.State != "disabled" || got.PID != 0 {
		t.Errorf("after it was switched off: %+v", got)
	}
	if _, err := dispatchText(t, h, "probe", "session"); !errors.Is(err, &plugin.Error{Code: plugin.Unavailable}) {
		t.Errorf("a call of a plugin that is switched off: %v, want unavailable", err)
	}
	release <- struct{}{}
	if err := <-running; err != nil {
		t.Errorf("the call that ran when whoever had asked for the reload went away: %v", err)
	}
}

// A refresh applies what has changed in the configuration, once, and leaves all as
// it was where that is wrong, until it is right again.
func TestRefresh(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	h, err := host.Open(t.Context(), host.Options{
		Home: home, Exe: exe, Environ: os.Environ(), Builtins: [][]byte{fmt.Appendf(nil, probeManifest, allPermissions)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	changes := h.Subscribe(server.EventFilter{Kinds: []string{"plugins"}})
	defer changes.Close()
	told := int64(0)
	for _, step := range []struct {
		config  string
		tool    bool
		changes int64 // that were told of by then
	}{
		{"", true, 0},
		{`{"plugins": {"entries": {"probe": {"config": {"exposeTool": false}}}}}`, false, 1},
		{`{"plugins": {"entries": {"probe": {"config": {"exposeTool": "yes, please"}}}}}`, false, 1},
		{`{}`, true, 2},
	} {
		if step.config != "" {
			if err := os.WriteFile(filepath.Join(home, "config.json"), []byte(step.config), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			h.Refresh(t.Context())
		}
		for _, c := range h.Commands(t.Context()) {
			if c.Spec.Command == "probe" && c.Tool != step.tool {
				t.Errorf("with %s the tool is offered: %v, want %v", step.config, c.Tool, step.tool)
			}
		}
		for told < step.changes {
			if _, err := changes.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
			told++
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if e, err := changes.Next(ended); err == nil {
		t.Errorf("told of once more: %+v", e)
	}
}
