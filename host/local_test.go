package host

import (
	"context"
	"errors"
	"testing"

	"sess/host/supervise"
	"sess/plugin"
)

// counting is a plugin that counts how often it was configured and drained.
type counting struct {
	plugin.Plugin
	refuse              error
	configured, drained int
}

func (c *counting) Configure(context.Context, plugin.Configuration, plugin.Runtime) error {
	c.configured++
	return c.refuse
}

func (c *counting) Describe(context.Context) (plugin.Description, error) {
	return plugin.Description{Build: "test"}, nil
}

func (c *counting) Status(context.Context) ([]plugin.ServiceStatus, error) {
	return []plugin.ServiceStatus{{Name: "s"}}, nil
}

func (c *counting) Drain(context.Context) error {
	c.drained++
	return nil
}

// A plugin in this process begins and ends as one in its own does.
func TestLocalLife(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for _, refuse := range []error{nil, plugin.Errorf(plugin.Usage, "wrong configuration")} {
		p, open := &counting{refuse: refuse}, 0
		l := newLocal("p", p, plugin.Configuration{}, func() (plugin.Runtime, func()) {
			open++
			return nil, func() { open-- }
		})
		phase := func(want supervise.Phase) {
			t.Helper()
			if got := l.State(); got.Phase != want {
				t.Errorf("phase %s, want %s", got.Phase, want)
			}
		}
		phase(supervise.Stopped)
		if list, err := l.Status(ctx); list != nil || err != nil || p.configured > 0 {
			t.Errorf("Status before the start = %v, %v", list, err)
		}
		for range 2 {
			if _, err := l.Describe(ctx); !errors.Is(err, refuse) {
				t.Errorf("Describe = %v, want %v", err, refuse)
			}
		}
		alive := 1
		if refuse == nil {
			phase(supervise.Ready)
			if list, _ := l.Status(ctx); len(list) != 1 {
				t.Errorf("Status = %v", list)
			}
		} else {
			phase(supervise.Failed)
			alive = 0
		}
		if p.configured != 1 || open != alive {
			t.Errorf("configured %d times, %d runtimes, want 1 and %d", p.configured, open, alive)
		}
		for range 2 {
			if err := l.Close(ctx); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
		if p.drained != alive || open != 0 {
			t.Errorf("drained %d times, %d runtimes are left", p.drained, open)
		}
		phase(supervise.Stopped)
		if _, err := l.Describe(ctx); !errors.Is(err, &plugin.Error{Code: plugin.Unavailable}) {
			t.Errorf("Describe after Close = %v, want unavailable", err)
		}
	}
}
