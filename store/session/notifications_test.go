package session_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/store/session"
)

// ids are those of notifications, in their order.
func ids(list []session.Notification) []string {
	out := make([]string, len(list))
	for i, n := range list {
		out[i] = n.ID
	}
	return out
}

// S0-47: a session has a container of what is under way and of what somebody has
// acknowledged, in a file of its own: neither its revision nor its bytes change.
func TestNotifications(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	if _, err := s.Notifications(ref); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("Notifications of a session that is not there: %v", err)
	}
	if _, err := s.Notify(t.Context(), ref, session.Notification{Text: "x"}); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("Notify a session that is not there: %v", err)
	}
	create(t, s, ref, "hello")
	file := fileOf(t, dir, ref)
	empty := session.Notifications{Operations: []session.Notification{}, Acknowledged: []session.Notification{}}
	if diff := cmp.Diff(empty, must(s.Notifications(ref))(t)); diff != "" {
		t.Errorf("Notifications (-want +got):\n%s", diff)
	}

	// A turn holds the session, and keeps nobody from telling.
	turn := must(s.Lock(t.Context(), ref, "turn", false))(t)
	running := must(s.Notify(t.Context(), ref, session.Notification{ID: "c1", Kind: "compaction", Text: "Compacting", Status: session.NotificationRunning}))(t)
	ok(t, turn.Unlock())
	now := noon().UnixMilli()
	if want := (session.Notification{ID: "c1", Kind: "compaction", Text: "Compacting", Status: "running", CreatedAt: now, UpdatedAt: now}); running != want {
		t.Errorf("Notify = %+v, want %+v", running, want)
	}
	given := must(s.Notify(t.Context(), ref, session.Notification{Text: "Exported", Status: session.NotificationDone}))(t)
	if given.ID == "" {
		t.Error("a notification was given no id")
	}
	must(s.Notify(t.Context(), ref, session.Notification{ID: "c1", Text: "Compacted", Status: session.NotificationDone}))(t)
	all := must(open(t, dir).Notifications(ref))(t) // as another process sees it
	if got := ids(all.Operations); !slices.Equal(got, []string{"c1", given.ID}) || all.Operations[0].Text != "Compacted" {
		t.Errorf("after one was replaced there is %+v", all.Operations)
	}

	if _, err := s.Acknowledge(t.Context(), ref, []string{"c1", "nosuch"}); err == nil {
		t.Error("an id that is not there was acknowledged")
	} else if e, unknown := errors.AsType[*session.UnknownNotificationError](err); !unknown || e.ID != "nosuch" {
		t.Errorf("Acknowledge of an id that is not there: %v", err)
	}
	for range 2 { // again does no harm
		all = must(s.Acknowledge(t.Context(), ref, []string{"c1"}))(t)
		if !slices.Equal(ids(all.Operations), []string{given.ID}) || !slices.Equal(ids(all.Acknowledged), []string{"c1"}) || all.Acknowledged[0].AcknowledgedAt != now {
			t.Errorf("after an acknowledgement there is %+v", all)
		}
	}
	must(s.Notify(t.Context(), ref, session.Notification{ID: "c1", Text: "Failed after all", Status: session.NotificationFailed}))(t)
	if all = must(s.Notifications(ref))(t); !slices.Equal(ids(all.Operations), []string{given.ID, "c1"}) || len(all.Acknowledged) != 0 {
		t.Errorf("news of one that was acknowledged: %+v", all)
	}
	if all = must(s.Acknowledge(t.Context(), ref, nil))(t); len(all.Operations) != 0 || len(all.Acknowledged) != 2 {
		t.Errorf("after all were acknowledged there is %+v", all)
	}
	if after := fileOf(t, dir, ref); after != file {
		t.Errorf("the session's file has changed:\n%s\n%s", file, after)
	}
}

// The container is bounded: what was acknowledged long ago goes, and what nobody
// has acknowledged never does.
func TestNotificationsAreBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	create(t, s, ref)
	const most = 100
	for round := range 2 {
		for i := range most {
			must(s.Notify(t.Context(), ref, session.Notification{ID: fmt.Sprintf("n%d-%d", round, i), Text: "x"}))(t)
		}
		if _, err := s.Notify(t.Context(), ref, session.Notification{Text: "x"}); !errors.Is(err, session.ErrFull) {
			t.Errorf("one more than %d: %v", most, err)
		}
		must(s.Notify(t.Context(), ref, session.Notification{ID: fmt.Sprintf("n%d-0", round), Text: "y"}))(t) // it has its place
		must(s.Acknowledge(t.Context(), ref, nil))(t)
	}
	all := must(s.Notifications(ref))(t)
	if len(all.Operations) != 0 || len(all.Acknowledged) != most || all.Acknowledged[0].ID != "n1-0" {
		t.Errorf("there are %d and %d, the first %s", len(all.Operations), len(all.Acknowledged), all.Acknowledged[0].ID)
	}

	path := filepath.Join(dir, ref.Project, ref.ID, "notifications.json")
	ok(t, os.WriteFile(path, []byte("{"), 0o600))
	if _, err := s.Notify(t.Context(), ref, session.Notification{Text: "x"}); !errors.Is(err, session.ErrDamaged) {
		t.Errorf("Notify where the file is damaged: %v", err)
	}
	if got := string(must(os.ReadFile(path))(t)); got != "{" {
		t.Errorf("the damaged file became %q", got)
	}
}
