package sess

import (
	"fmt"
	"strings"
	"testing"

	"sess/plugin"
	"sess/store/durable"
)

// A lock that somebody holds, as a process that was stopped, is no bug of ours.
func TestExplainLocked(t *testing.T) {
	t.Parallel()
	held := &durable.LockedError{Path: "snapshot folder /p", Holder: durable.Holder{PID: 7, Operation: "load"}}
	got := explain(fmt.Errorf("save v1: %w", held))
	if got.Code != plugin.Busy || !strings.Contains(got.Message, "/p is locked by process 7 (load)") || got.Hint == "" {
		t.Errorf("explain = %s, %q, hint %q; want busy, the holder named, and what to do", got.Code, got.Message, got.Hint)
	}
}
