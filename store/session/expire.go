package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"sess/store/durable"
)

// Policy says which sessions expire. The zero value has none expire.
type Policy struct {
	Max      int           // how many sessions stay; 0: all
	MaxAge   time.Duration // how long one stays that is not used; 0: for ever
	TrashAge time.Duration // how long one stays in the trash; 0: for ever
	// Keep says which of the sessions that may go have to stay, as those from which a
	// named snapshot was made. It is asked once, and only if there are any; where it
	// fails, none expires. Nil keeps none.
	Keep func(ctx context.Context) (map[Ref]bool, error)
}

// Moved is a session that has expired.
type Moved struct {
	Ref   Ref
	Title string
	Why   string
}

// usage is what matters of a session when it is decided which ones expire.
type usage struct {
	ref      Ref
	title    string
	lastUsed int64 // epoch milliseconds
	spared   bool  // it is active, in use or pinned, shows a snapshot, or has to stay
}

// plan chooses the sessions that expire at a time, those not used for longest
// first: as many as are above the maximum, and all that are too old. A session
// that is spared counts.
func (p Policy) plan(all []usage, now time.Time) []Moved {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b usage) int {
		return cmp.Or(cmp.Compare(a.lastUsed, b.lastUsed), cmp.Compare(a.ref.String(), b.ref.String()))
	})
	above := 0
	if p.Max > 0 {
		above = len(all) - p.Max
	}
	var due []Moved
	for _, u := range all {
		switch why := ""; {
		case u.spared:
		case p.MaxAge > 0 && u.lastUsed < now.Add(-p.MaxAge).UnixMilli():
			why = WhyOld
			fallthrough
		case above > len(due):
			due = append(due, Moved{Ref: u.ref, Title: u.title, Why: cmp.Or(why, WhyTooMany)})
		}
	}
	return due
}

// Expire moves the sessions that a policy has expire to the trash, durably, and
// removes those for good that were there for long enough. Never is one moved that
// is the active one, that somebody works on, that is pinned or shows a snapshot,
// or that cannot be read. [Store.Expired] tells people of what was moved, and
// [Store.Restore] brings it back. It reads the sessions only if there may be one
// that expires. Those moved before an error are returned with it.
func (s *Store) Expire(ctx context.Context, p Policy) ([]Moved, error) {
	moved, err := s.expire(ctx, p)
	if p.TrashAge > 0 {
		_, emptied := s.EmptyTrash(ctx, s.now().Add(-p.TrashAge))
		err = errors.Join(err, emptied)
	}
	return moved, err
}

func (s *Store) expire(ctx context.Context, p Policy) ([]Moved, error) {
	refs, err := s.refs(ctx)
	if err != nil || p.MaxAge <= 0 && (p.Max <= 0 || len(refs) <= p.Max) {
		return nil, err
	}
	all, err := s.usages(ctx, refs)
	if err != nil {
		return nil, err
	}
	due := p.plan(all, s.now())
	if len(due) == 0 {
		return nil, nil
	}
	if p.Keep != nil {
		keep, err := p.Keep(ctx)
		if err != nil {
			return nil, fmt.Errorf("which sessions have to stay: %w", err)
		}
		for i := range all {
			all[i].spared = all[i].spared || keep[all[i].ref]
		}
		due = p.plan(all, s.now())
	}
	used := make(map[Ref]int64, len(all))
	for _, u := range all {
		used[u.ref] = u.lastUsed
	}
	if err := s.tellLater(ctx, due); err != nil {
		return nil, err
	}
	var moved []Moved
	for _, m := range due {
		if err := ctx.Err(); err != nil {
			return moved, err
		}
		went, err := s.expireOne(ctx, m, used[m.Ref])
		if err != nil {
			return moved, err
		}
		if went {
			moved = append(moved, m)
		}
	}
	return moved, nil
}

// usages finds out how the sessions are used. Those that cannot be read are left
// out: they neither expire nor count.
func (s *Store) usages(ctx context.Context, refs []Ref) ([]usage, error) {
	manifest, err := s.Manifest(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]usage, 0, len(refs))
	for _, ref := range refs {
		u, err := s.usage(ctx, ref, manifest)
		if err == nil {
			var held bool
			_, held, err = s.InUse(ref)
			u.spared = u.spared || held
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, ErrNotFound), errors.Is(err, ErrDamaged), errors.Is(err, ErrNewer):
		case err != nil:
			s.log.Error("a session that cannot be read does not expire", "session_id", ref.ID, "project", ref.Project, "err", err)
		default:
			all = append(all, u)
		}
	}
	return all, nil
}

// usage finds out how a session is used, but for whether somebody works on it now.
func (s *Store) usage(ctx context.Context, ref Ref, active Manifest) (usage, error) {
	l, err := s.Outline(ctx, ref)
	if err != nil {
		return usage{}, err
	}
	meta, err := s.Meta(ref)
	if err != nil {
		return usage{}, err
	}
	selected, err := s.Selected(ref)
	return usage{
		ref: ref, title: l.Doc.Meta.Title, lastUsed: max(l.UpdatedAt, meta.LastActiveAt, meta.CreatedAt),
		spared: meta.Pinned || selected != "" || active.LastProjectID == ref.Project && active.LastSessionID == ref.ID,
	}, err
}

// expireOne moves a session to the trash if it has not been used since it was
// looked at.
func (s *Store) expireOne(ctx context.Context, m Moved, lastUsed int64) (went bool, err error) {
	k, err := s.Lock(ctx, m.Ref, "expire", false)
	if errors.Is(err, durable.ErrLocked) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, k.Unlock()) }()
	// Nobody makes it the active one, pins it or selects a snapshot meanwhile.
	err = s.small(ctx, func() error {
		manifest, err := s.Manifest(ctx)
		if err != nil {
			return err
		}
		u, err := s.usage(ctx, m.Ref, manifest)
		if err != nil || u.spared || u.lastUsed != lastUsed {
			return err
		}
		l, err := k.outline(ctx)
		if err != nil {
			return err
		}
		went = true
		return k.toTrash(l, m.Why)
	})
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrDamaged) || errors.Is(err, ErrNewer) {
		return false, nil
	}
	return went && err == nil, err
}

// expiredFile names the sessions whose expiry people have not been told of. It
// begins with a dot, so no project is of that name.
const expiredFile = ".expired.json"

type expiredJSON struct {
	Expired []expiredSession `json:"expired"`
}

type expiredSession struct {
	ProjectID string `json:"projectId"`
	ID        string `json:"id"`
	Since     int64  `json:"since"` // epoch milliseconds: it went to the trash after that
}

// maxExpired bounds what people are told of at once; they hear of the newest.
const maxExpired = 1000

// tellLater notes which sessions are about to expire, each once.
func (s *Store) tellLater(ctx context.Context, due []Moved) error {
	return s.small(ctx, func() error {
		var list expiredJSON
		if err := s.readSmall(expiredFile, &list); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errUnreadable) {
			return err
		}
		known := len(list.Expired)
		for _, m := range due {
			if !slices.ContainsFunc(list.Expired, func(e expiredSession) bool { return e.ProjectID == m.Ref.Project && e.ID == m.Ref.ID }) {
				list.Expired = append(list.Expired, expiredSession{m.Ref.Project, m.Ref.ID, s.nowMillis()})
			}
		}
		if len(list.Expired) == known {
			return nil
		}
		list.Expired = list.Expired[max(0, len(list.Expired)-maxExpired):]
		return durable.Write(s.fs, expiredFile, append(encode(list), '\n'))
	})
}

// Expired returns the sessions that have expired since it was asked last, by
// anyone, and are still in the trash: each is told once.
func (s *Store) Expired(ctx context.Context) ([]Trashed, error) {
	if there, err := durable.Exists(s.fs, expiredFile); err != nil || !there {
		return nil, err
	}
	var told []Trashed
	err := s.small(ctx, func() error {
		var list expiredJSON
		err := s.readSmall(expiredFile, &list)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil && !errors.Is(err, errUnreadable) {
			return err
		}
		trashed, err := s.Trashed(ctx)
		if err != nil {
			return err
		}
		for _, t := range trashed {
			if slices.ContainsFunc(list.Expired, func(e expiredSession) bool {
				return e.ProjectID == t.Ref.Project && e.ID == t.Ref.ID && e.Since <= t.DeletedAt && (t.Why == WhyOld || t.Why == WhyTooMany)
			}) {
				told = append(told, t)
			}
		}
		return durable.Remove(s.fs, expiredFile)
	})
	return told, err
}
