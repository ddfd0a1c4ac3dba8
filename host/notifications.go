package host

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"sess/dispatch"
	"sess/host/chat"
	"sess/plugin"
	"sess/store/session"
)

// Bounds of a notification, in characters.
const (
	notificationText = 1000
	notificationKind = 64
)

// notificationVerbs are about what there is to tell the people who work with a
// session: beside its conversation, and also while a turn runs.
func (h *Host) notificationVerbs() []dispatch.Verb {
	return []dispatch.Verb{{
		Name: "notifications list", Summary: "List what there is to tell of a session",
		Help:   "What nobody has acknowledged comes first. No load brings older notifications back.",
		Effect: plugin.EffectRead, Run: h.notificationsList,
	}, {
		Name: "notifications add", Summary: "Leave a sentence for the people who work with a session",
		Help:     "One with the id of an earlier one replaces it, as when something that ran is done.",
		Examples: []string{`notifications add "The plan is exported to plan.md"`, `notifications add "Compacting" --id=compaction-7 --status=running`},
		Args:     []plugin.Arg{{Name: "text", Type: plugin.TypeString, Help: "the sentence", Required: true}},
		Flags: func(fs *dispatch.Flags) {
			fs.String("id", "", "its id; without one it is given one")
			fs.String("kind", "", "what it is about, in one word")
			fs.String("status", session.NotificationDone, "how far it is").Enum(session.NotificationRunning, session.NotificationDone, session.NotificationFailed)
		},
		Effect: plugin.EffectWrite, Run: h.notificationsAdd,
	}, {
		Name: "notifications acknowledge", Summary: "Note that notifications have been seen",
		Args: []plugin.Arg{{Name: "ids", Type: plugin.TypeString, Help: "ids of notifications", Repeated: true}},
		Flags: func(fs *dispatch.Flags) {
			fs.Bool("all", false, "all that nobody has acknowledged")
		},
		Effect: plugin.EffectWrite, Run: h.notificationsAcknowledge,
	}}
}

// notificationRoutes are the same verbs below a session.
func notificationRoutes() []plugin.Route {
	const base = "/sessions/{id}/notifications"
	return []plugin.Route{
		{Method: "GET", Path: base, Argv: []string{"notifications", "list", "--session={id}"}},
		{Method: "POST", Path: base, Argv: []string{"notifications", "add", "--session={id}"}, Status: 201},
		{Method: "POST", Path: base + "/acknowledge", Argv: []string{"notifications", "acknowledge", "--session={id}"}},
	}
}

func (h *Host) notificationsList(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	ref, err := h.present(ctx, session.Ref{Project: in.Call.Project, ID: in.Call.Session})
	if err != nil {
		return plugin.Result{}, err
	}
	all, err := h.sessions.Notifications(ref)
	if err != nil {
		return plugin.Result{}, notificationError(err)
	}
	if len(all.Operations)+len(all.Acknowledged) == 0 {
		return answer(fmt.Sprintf("session %s has no notifications", ref.ID), all)
	}
	var rows [][]string
	for _, n := range append(all.Operations, all.Acknowledged...) {
		status := n.Status
		if n.AcknowledgedAt > 0 {
			status += ", seen"
		}
		rows = append(rows, []string{n.ID, status, plugin.Ago(time.UnixMilli(n.UpdatedAt), h.now()), strings.Join(strings.Fields(n.Text), " ")})
	}
	return answer(plugin.Table([]string{"ID", "STATUS", "UPDATED", "TEXT"}, rows), all)
}

func (h *Host) notificationsAdd(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	n := session.Notification{ID: in.String("id"), Kind: in.String("kind"), Text: in.Arg("text"), Status: in.String("status")}
	for _, f := range []struct {
		name, text string
		most       int
	}{{"text", n.Text, notificationText}, {"kind", n.Kind, notificationKind}} {
		if size := utf8.RuneCountInString(f.text); size > f.most {
			return plugin.Result{}, plugin.Errorf(plugin.Usage, "the %s has %d characters, more than %d", f.name, size, f.most).
				WithHint("shorten it").WithDetail("field", f.name)
		}
	}
	if strings.TrimSpace(n.Text) == "" {
		return plugin.Result{}, plugin.Errorf(plugin.Usage, "the text is empty").WithHint("write a sentence").WithDetail("field", "text")
	}
	if n.ID != "" && !plugin.GoodRequestID(n.ID) {
		return plugin.Result{}, plugin.Errorf(plugin.InvalidName, "%q is no id of letters, digits and ._:- with at most 128 characters", n.ID).
			WithHint("leave it out to have one made")
	}
	ref, err := h.present(ctx, session.Ref{Project: in.Call.Project, ID: in.Call.Session})
	if err != nil {
		return plugin.Result{}, err
	}
	if n, err = h.sessions.Notify(ctx, ref, n); err != nil {
		return plugin.Result{}, notificationError(err)
	}
	return answer(fmt.Sprintf("session %s has the notification %s", ref.ID, n.ID), n)
}

func (h *Host) notificationsAcknowledge(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	ids := in.Args("ids")
	if all := in.Bool("all"); all == (len(ids) > 0) {
		return plugin.Result{}, plugin.Errorf(plugin.Usage, "which ones are meant is not clear").WithHint("give ids, or --all")
	} else if all {
		ids = nil
	}
	ref, err := h.present(ctx, session.Ref{Project: in.Call.Project, ID: in.Call.Session})
	if err != nil {
		return plugin.Result{}, err
	}
	left, err := h.sessions.Acknowledge(ctx, ref, ids)
	if err != nil {
		return plugin.Result{}, notificationError(err)
	}
	return answer(fmt.Sprintf("session %s has %d notifications that nobody has acknowledged", ref.ID, len(left.Operations)), left)
}

// notificationError turns what the store says of notifications into an error for
// people.
func notificationError(err error) error {
	if _, unknown := errors.AsType[*session.UnknownNotificationError](err); unknown {
		return plugin.Errorf(plugin.NotFound, "%w", err).WithHint("sess sessions notifications list shows them")
	}
	switch {
	case errors.Is(err, session.ErrFull):
		return plugin.Errorf(plugin.NoSpace, "%w", err).WithHint("acknowledge some, then try again")
	case errors.Is(err, session.ErrDamaged):
		return plugin.Errorf(plugin.Corrupt, "%w", err).WithHint("move the file away: it has nothing of the conversation")
	}
	return chat.StoreError(err)
}
