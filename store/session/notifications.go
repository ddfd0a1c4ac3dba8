package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/google/uuid"
)

// The states of a notification.
const (
	NotificationRunning = "running"
	NotificationDone    = "done"
	NotificationFailed  = "failed"
)

// Notification is a sentence about something that was done to a session, or is
// being done, for the people who work with it. Times are epoch milliseconds.
type Notification struct {
	ID        string `json:"id"`
	Kind      string `json:"kind,omitempty"` // what it is about, in one word
	Text      string `json:"text"`
	Status    string `json:"status"`
	CreatedAt int64  `json:"createdAt"`
	UpdatedAt int64  `json:"updatedAt"`
	// AcknowledgedAt is set once somebody has seen it.
	AcknowledgedAt int64 `json:"acknowledgedAt,omitempty"`
}

// Notifications are those of one session, each list with the oldest first. They
// belong to the live session, beside its conversation: they are in no snapshot,
// no load brings older ones back, and a turn does not keep them from changing.
type Notifications struct {
	Operations   []Notification `json:"operations"`   // that nobody has acknowledged; never nil
	Acknowledged []Notification `json:"acknowledged"` // the newest of the others; never nil
}

const (
	notificationsFile = "notifications.json"
	// maxNotifications is how many of each list there may be.
	maxNotifications = 100
)

// ErrFull is a list that takes no more before something is taken from it.
var ErrFull = errors.New("no room for more")

// Notifications returns what there is to tell of a session. A session without a
// file is a *NotFoundError, and a file of notifications that cannot be made sense
// of a *DamagedError; it stays as it is.
func (s *Store) Notifications(ref Ref) (Notifications, error) {
	none := Notifications{Operations: []Notification{}, Acknowledged: []Notification{}}
	there, err := s.Exists(ref)
	if err != nil {
		return none, err
	}
	if !there {
		return none, &NotFoundError{Ref: ref}
	}
	all := none
	err = s.readSmall(ref.folder()+"/"+notificationsFile, &all)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return none, nil
	case errors.Is(err, errUnreadable):
		return none, &DamagedError{Ref: ref, File: s.path(ref.folder() + "/" + notificationsFile), Reason: errUnreadable.Error()}
	case err != nil:
		return none, fmt.Errorf("notifications of session %s: %w", ref, err)
	}
	return Notifications{Operations: append(none.Operations, all.Operations...), Acknowledged: append(none.Acknowledged, all.Acknowledged...)}, nil
}

// Notify adds a notification to a session's, durably, and returns it as it is
// stored. One of the same ID is replaced, keeps its place and the time that it was
// made at, and is to be acknowledged anew if it was. Without an ID it is given one.
// Where nobody has acknowledged any of very many the error is ErrFull.
func (s *Store) Notify(ctx context.Context, ref Ref, n Notification) (Notification, error) {
	n.UpdatedAt, n.AcknowledgedAt = s.nowMillis(), 0
	n.CreatedAt = n.UpdatedAt
	if n.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return n, err
		}
		n.ID = id.String()
	}
	_, err := s.changeNotifications(ctx, ref, func(all *Notifications) error {
		same := func(o Notification) bool { return o.ID == n.ID }
		if i := slices.IndexFunc(all.Operations, same); i >= 0 {
			n.CreatedAt = all.Operations[i].CreatedAt
			all.Operations[i] = n
			return nil
		}
		if len(all.Operations) == maxNotifications {
			return fmt.Errorf("session %s has %d notifications that nobody has acknowledged: %w", ref, maxNotifications, ErrFull)
		}
		if i := slices.IndexFunc(all.Acknowledged, same); i >= 0 {
			n.CreatedAt = all.Acknowledged[i].CreatedAt
			all.Acknowledged = slices.Delete(all.Acknowledged, i, i+1)
		}
		all.Operations = append(all.Operations, n)
		return nil
	})
	return n, err
}

// Acknowledge notes, durably, that somebody has seen these notifications, or all
// where ids is nil, and returns what there is now. It does no harm to repeat it.
// An id that no notification has is an *UnknownNotificationError, and nothing is
// changed.
func (s *Store) Acknowledge(ctx context.Context, ref Ref, ids []string) (Notifications, error) {
	return s.changeNotifications(ctx, ref, func(all *Notifications) error {
		for _, id := range ids {
			same := func(n Notification) bool { return n.ID == id }
			if !slices.ContainsFunc(all.Operations, same) && !slices.ContainsFunc(all.Acknowledged, same) {
				return &UnknownNotificationError{Ref: ref, ID: id}
			}
		}
		seen := s.nowMillis()
		all.Operations = slices.DeleteFunc(all.Operations, func(n Notification) bool {
			if ids != nil && !slices.Contains(ids, n.ID) {
				return false
			}
			n.AcknowledgedAt = seen
			all.Acknowledged = append(all.Acknowledged, n)
			return true
		})
		all.Acknowledged = all.Acknowledged[max(0, len(all.Acknowledged)-maxNotifications):]
		return nil
	})
}

func (s *Store) changeNotifications(ctx context.Context, ref Ref, change func(*Notifications) error) (all Notifications, err error) {
	err = s.small(ctx, func() error {
		if all, err = s.Notifications(ref); err != nil {
			return err
		}
		if err := change(&all); err != nil {
			return err
		}
		old, err := s.rawSmall(ref.folder() + "/" + notificationsFile)
		if err != nil {
			return err
		}
		return s.writeSmall(ref, notificationsFile, all.keeping(old))
	})
	return all, err
}

// keeping is n as it is stored in place of old, in which each notification may have
// members that this version does not know.
func (n Notifications) keeping(old json.RawMessage) json.RawMessage {
	var stored struct{ Operations, Acknowledged []json.RawMessage }
	_ = json.Unmarshal(old, &stored) // nothing was stored, or it has just been read
	was := map[string]json.RawMessage{}
	for _, raw := range append(stored.Operations, stored.Acknowledged...) {
		var it Notification
		if json.Unmarshal(raw, &it) == nil {
			was[it.ID] = raw
		}
	}
	list := func(all []Notification) json.RawMessage {
		out := []json.RawMessage{}
		for _, it := range all {
			out = append(out, keeping(was[it.ID], it))
		}
		return encode(out)
	}
	return keeping(old, struct {
		Operations   json.RawMessage `json:"operations"`
		Acknowledged json.RawMessage `json:"acknowledged"`
	}{list(n.Operations), list(n.Acknowledged)})
}

// UnknownNotificationError says that a session has no notification of that id.
type UnknownNotificationError struct {
	Ref Ref
	ID  string
}

func (e *UnknownNotificationError) Error() string {
	return fmt.Sprintf("session %s has no notification %q", e.Ref, e.ID)
}
