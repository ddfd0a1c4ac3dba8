package tests

import (
	"fmt"
	"strings"
	"testing"
)

// What fails in the background is told to whoever is there next: at the end of the
// command that did it, and in a gateway in the next chat; once.
func TestTroubleInTheBackgroundIsTold(t *testing.T) {
	t.Parallel()
	// Nobody can say which sessions named snapshots were made of: none may go.
	const trouble = "sessions that have expired stay for now"
	u := newUser(t)
	u.do("--session=first", "chat", "--message", "hello")
	u.do("--session=second", "chat", "--message", "hello")
	u.config(`{"sessions":{"max":1},"plugins":{"entries":{"sess":{"enabled":false}}}}`)
	if _, stderr, exit := u.run("--session=third", "chat", "--message", "hello"); exit != 0 || strings.Count(stderr, trouble) != 1 {
		t.Errorf("status %d, stderr:\n%s", exit, stderr)
	}
	var list []listedSession
	if u.answer(&list, "sessions", "list"); len(list) != 3 {
		t.Errorf("the sessions are %+v, want all", list)
	}
	if log := u.log(); !strings.Contains(log, trouble) {
		t.Errorf("the log:\n%s", log)
	}

	before := strings.Count(u.log(), trouble)
	g := u.gateway()
	waitFor(t, "trouble in the gateway", func() bool { return strings.Count(u.log(), trouble) > before })
	for i, told := range []bool{true, false} {
		stream, err := g.asker().stream(t, "POST", "/sessions/second/messages", map[string]string{"content": "hello again"})
		if err != nil {
			t.Fatal(err)
		}
		events := fmt.Sprintf("%s", stream.until(t, ""))
		if stream.StatusCode != 200 || strings.Contains(events, trouble) != told {
			t.Errorf("chat %d after it: %d, told %v, want %v:\n%s", i, stream.StatusCode, !told, told, events)
		}
	}
	if _, stderr, exit := u.run("sessions", "list"); exit != 0 || stderr != "" {
		t.Errorf("status %d, stderr:\n%s", exit, stderr)
	}
}
