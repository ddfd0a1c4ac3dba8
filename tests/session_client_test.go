package tests

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"sess/host/client"
	"sess/plugin"
)

// eachClient runs a test in a new home for each way in which a client of Go
// reaches a gateway.
func eachClient(t *testing.T, run func(t *testing.T, g *gateway, c *client.Client)) {
	t.Helper()
	for name, at := range map[string]func(g *gateway) client.Options{
		"socket": func(g *gateway) client.Options { return client.Options{Socket: g.Socket} },
		"URL":    func(g *gateway) client.Options { return client.Options{URL: g.Address, Token: g.token()} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newUser(t).gateway()
			run(t, g, g.rpc(at(g)))
		})
	}
}

// must returns a function that ends a test where a call has failed.
func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func namesOf(list []client.Snapshot) []string {
	names := make([]string, len(list))
	for i, s := range list {
		names[i] = s.Name
	}
	return names
}

// S1-24, S1-25, S1-26, S1-27, S1-28, S1-29, S0-46, S0-47, S0-61: a session is
// known by its id; snapshots of it are made, listed, restored and deleted by
// name, each in a call that a context ends, and there is a method for each route.
func TestSessionOfAClient(t *testing.T) {
	t.Parallel()
	eachClient(t, func(t *testing.T, g *gateway, c *client.Client) {
		ctx := t.Context()
		made := must(c.CreateSession(ctx, client.NewSession{ID: "talk", Project: "shop", Title: "Talk"}))(t)
		s := must(c.Session(ctx, "talk"))(t)
		if want := (plugin.SessionRef{Project: "shop", ID: "talk"}); s.Ref() != want || made.Ref() != want {
			t.Errorf("the session is %v, the new one %v; want %v", s.Ref(), made.Ref(), want)
		}
		answer := must(s.Send(ctx, client.Outgoing{Content: "Hello"}))(t)
		if answer.Status != "complete" || answer.Message == nil || answer.Message.Content == "" || answer.SessionID != "talk" {
			t.Errorf("Send answers %+v", answer)
		}
		first := must(s.CreateSnapshot(ctx, "v1", "before we get bold"))(t)
		if first.Name != "v1" || first.Reason != "before we get bold" || first.CreatedAt.IsZero() || first.Messages != 2 {
			t.Errorf("CreateSnapshot answers %+v", first)
		}
		second := must(s.CreateSnapshot(ctx, "", ""))(t)
		if list := must(s.ListSnapshots(ctx))(t); !slices.Equal(namesOf(list), []string{second.Name, "v1"}) || !list[1].CreatedAt.Equal(first.CreatedAt) || list[1].State != "ok" {
			t.Errorf("ListSnapshots: %+v", list)
		}
		if _, err := s.CreateSnapshot(ctx, "v1", ""); codeOf(err) != plugin.Exists {
			t.Errorf("a name that is taken: %v", err)
		}

		must(s.Notify(ctx, client.Notification{ID: "e1", Text: "Exporting", Status: "running"}))(t)
		stale := answer.Revision - 1
		if _, err := s.Send(ctx, client.Outgoing{Content: "More", Revision: &stale}); codeOf(err) != plugin.Conflict {
			t.Errorf("a message for an older state: %v", err)
		}
		must(s.Send(ctx, client.Outgoing{Content: "More"}))(t)
		must(s.Notify(ctx, client.Notification{ID: "e1", Text: "Exported"}))(t)
		must(s.Notify(ctx, client.Notification{Text: "Compacted", Kind: "compaction"}))(t)
		told := must(s.Acknowledge(ctx, "e1"))(t)
		if len(told.Operations) != 1 || told.Operations[0].Text != "Compacted" || len(told.Acknowledged) != 1 || told.Acknowledged[0].Text != "Exported" {
			t.Errorf("the notifications are %+v", told)
		}

		if err := s.RestoreSnapshot(ctx, "v1"); err != nil {
			t.Fatal(err)
		}
		page := must(s.Messages(ctx, 10, -1))(t)
		if page.Total != 2 || page.First != 0 || page.End != 2 || page.Messages[0].Content != "Hello" || page.ReadOnly {
			t.Errorf("after the restore there is %+v", page)
		}
		after := must(s.Notifications(ctx))(t)
		if !slices.Equal(after.Operations, told.Operations) || !slices.Equal(after.Acknowledged, told.Acknowledged) {
			t.Errorf("a restore brought other notifications back: %+v, there were %+v", after, told)
		}
		list := must(s.ListSnapshots(ctx))(t)
		if len(list) != 3 || list[0].Reason != "before restore" {
			t.Errorf("after the restore there are %+v", list)
		}
		backup := list[0].Name
		if err := s.RestoreSnapshot(ctx, backup); err != nil {
			t.Fatal(err)
		}
		if page := must(s.Messages(ctx, 1, 3))(t); page.Total != 4 || page.First != 2 || page.Messages[0].Content != "More" {
			t.Errorf("the backup brings back %+v", page)
		}

		if err := s.SelectSnapshot(ctx, "v1"); err != nil {
			t.Fatal(err)
		}
		if shown := must(s.SelectedSnapshot(ctx))(t); shown == nil || shown.Name != "v1" {
			t.Errorf("the snapshot that is shown is %+v", shown)
		}
		if page := must(s.Messages(ctx, 10, -1))(t); page.Total != 2 || !page.ReadOnly || page.Snapshot == nil || page.Snapshot.Name != "v1" {
			t.Errorf("while v1 is shown the messages are %+v", page)
		}
		if _, err := s.Send(ctx, client.Outgoing{Content: "More"}); codeOf(err) != plugin.ReadOnly {
			t.Errorf("a message while a snapshot is shown: %v", err)
		}
		if err := s.ClearSelectedSnapshot(ctx); err != nil {
			t.Fatal(err)
		}
		if shown := must(s.SelectedSnapshot(ctx))(t); shown != nil {
			t.Errorf("after it was cleared %+v is shown", shown)
		}

		other := must(c.CreateSession(ctx, client.NewSession{ID: "other", Project: "shop"}))(t)
		for name, err := range map[string]error{
			"restoring": other.RestoreSnapshot(ctx, "v1"), "selecting": other.SelectSnapshot(ctx, "v1"), "deleting": other.DeleteSnapshot(ctx, "v1"),
		} {
			if codeOf(err) != plugin.NotFound {
				t.Errorf("%s a snapshot of another session: %v", name, err)
			}
		}
		var all sync.WaitGroup
		for _, name := range []string{"a", "b", "c"} {
			all.Go(func() {
				if _, err := other.CreateSnapshot(ctx, name, ""); err != nil {
					t.Errorf("one of several calls at once: %v", err)
				}
			})
		}
		all.Wait()
		ended, end := context.WithCancel(ctx)
		end()
		if _, err := other.CreateSnapshot(ended, "d", ""); !errors.Is(err, context.Canceled) {
			t.Errorf("a call whose context has ended: %v", err)
		}
		if got := namesOf(must(other.ListSnapshots(ctx))(t)); !slices.Equal(slices.Sorted(slices.Values(got)), []string{"a", "b", "c"}) {
			t.Errorf("after these calls there are %v", got)
		}
		if err := s.DeleteSnapshot(ctx, "v1"); err != nil {
			t.Fatal(err)
		}
		if list := must(s.ListSnapshots(ctx))(t); slices.Contains(namesOf(list), "v1") {
			t.Errorf("v1 was deleted, and there are %v", namesOf(list))
		}

		// A session that is gone has its snapshots still.
		if err := c.DeleteSession(ctx, client.DeleteSessionRequest{ProjectID: "shop", SessionID: "talk"}); err != nil {
			t.Fatal(err)
		}
		gone := must(c.SessionOf(ctx, "shop", "talk"))(t)
		if list := must(gone.ListSnapshots(ctx))(t); !slices.Contains(namesOf(list), backup) {
			t.Errorf("after the session was deleted there are %v", namesOf(list))
		}
		if _, err := gone.Info(ctx); codeOf(err) != plugin.NotFound {
			t.Errorf("Info of a session that was deleted: %v", err)
		}
		if _, err := c.Session(ctx, "../x"); codeOf(err) != plugin.InvalidName {
			t.Errorf("Session of a path: %v", err)
		}
	})
}

// S1-29, S3-46: a client ends the turn that another call waits for, and gets what
// came of it.
func TestTurnOfAClient(t *testing.T) {
	t.Parallel()
	eachClient(t, func(t *testing.T, _ *gateway, c *client.Client) {
		ctx := t.Context()
		s := must(c.CreateSession(ctx, client.NewSession{ID: "slow"}))(t)
		turns := must(c.Subscribe(ctx, client.Filter{Kinds: []string{"turn"}}))(t)
		type outcome struct {
			answer client.ChatAnswer
			err    error
		}
		sent := make(chan outcome, 1)
		go func() {
			answer, err := s.Send(ctx, client.Outgoing{Content: "slow 100000 5ms"})
			sent <- outcome{answer, err}
		}()
		must(turns.Next(ctx))(t)
		if info := must(s.Info(ctx))(t); !info.Running || info.Status != client.StatusRunning {
			t.Errorf("while a turn runs the session is %+v", info)
		}
		if _, err := s.Send(ctx, client.Outgoing{Content: "Me too"}); codeOf(err) != plugin.Busy {
			t.Errorf("a message while a turn runs: %v", err)
		}
		if !must(s.Cancel(ctx))(t) {
			t.Error("Cancel says that nothing ran")
		}
		if o := <-sent; o.err != nil || o.answer.Status != "cancelled" {
			t.Errorf("Send answers %+v, %v", o.answer, o.err)
		}
		if must(s.Cancel(ctx))(t) {
			t.Error("Cancel says that something ran once more")
		}
		if err := s.Approve(ctx, "nosuch", true); codeOf(err) != plugin.NotFound {
			t.Errorf("Approve of a call that nobody asks about: %v", err)
		}
	})
}
