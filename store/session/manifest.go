package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"sess/store/durable"
)

// Manifest says which session was open last. The zero ids mean that none was.
type Manifest struct {
	Version       int    `json:"version"` // 1
	LastProjectID string `json:"lastProjectId,omitempty"`
	LastSessionID string `json:"lastSessionId,omitempty"`
}

// Meta is what a store keeps about a session beside its conversation, in
// session_meta.json. Times are epoch milliseconds, 0 where it never happened.
type Meta struct {
	CreatedAt    int64 `json:"createdAt"`
	LastActiveAt int64 `json:"lastActiveAt"`          // it was opened last, or first saved by a client
	ActivatedAt  int64 `json:"activatedAt,omitempty"` // it was opened first
	Pinned       bool  `json:"pinned,omitempty"`      // it never expires
}

const (
	manifestFile = "manifest.json"
	manifestLock = locksDir + "/manifest"
	metaFile     = "session_meta.json"
	viewFile     = "view.json"
	// smallFile bounds what is read of these files.
	smallFile = 1 << 20
)

// Manifest returns the manifest. Without one, or where it cannot be made sense
// of, it is the empty one.
func (s *Store) Manifest(ctx context.Context) (Manifest, error) {
	empty := Manifest{Version: 1}
	if err := ctx.Err(); err != nil {
		return empty, err
	}
	var m Manifest
	err := s.readSmall(manifestFile, &m)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return empty, nil
	case errors.Is(err, errUnreadable):
		s.log.Warn("damaged manifest ignored", "file", s.path(manifestFile), "err", err)
		return empty, nil
	case err != nil:
		return empty, fmt.Errorf("read the manifest: %w", err)
	}
	m.Version = 1
	return m, nil
}

// SaveManifest replaces the manifest, durably. The session need not exist.
func (s *Store) SaveManifest(ctx context.Context, m Manifest) error {
	return s.small(ctx, func() error { return s.setManifest(ctx, m) })
}

// Activate makes a session the one that is open, durably: the manifest names it,
// and its session_meta.json says since when. A session without a file is a
// *NotFoundError. No lock of the session is needed: it may be in a turn.
func (s *Store) Activate(ctx context.Context, ref Ref) error {
	if err := ref.check(); err != nil {
		return err
	}
	return s.small(ctx, func() error {
		if err := s.mustExist(ref); err != nil {
			return err
		}
		if err := s.setManifest(ctx, Manifest{LastProjectID: ref.Project, LastSessionID: ref.ID}); err != nil {
			return err
		}
		return s.touchMeta(ref, true)
	})
}

// Pin keeps a session from expiring, or with false lets it expire again, durably.
// That is of the session alone: no load brings back what it was. A session without
// a file is a *NotFoundError. It may be in a turn.
func (s *Store) Pin(ctx context.Context, ref Ref, on bool) error {
	if err := ref.check(); err != nil {
		return err
	}
	return s.small(ctx, func() error {
		if err := s.mustExist(ref); err != nil {
			return err
		}
		m, err := s.Meta(ref)
		if err != nil || m.Pinned == on {
			return err
		}
		m.Pinned = on
		return s.writeMeta(ref, m)
	})
}

// mustExist is a *NotFoundError for a session that has no file. Under the lock of
// the small files none goes that is there.
func (s *Store) mustExist(ref Ref) error {
	there, err := s.Exists(ref)
	if err == nil && !there {
		err = &NotFoundError{Ref: ref}
	}
	return err
}

// setManifest replaces the manifest. Before it turns away from a session, it
// makes sure that the session is known to have been active: until then only the
// manifest may say so.
func (s *Store) setManifest(ctx context.Context, m Manifest) error {
	m.Version = 1
	old, err := s.Manifest(ctx)
	if err != nil {
		return err
	}
	if ref := (Ref{Project: old.LastProjectID, ID: old.LastSessionID}); old != m && ref.check() == nil {
		meta, err := s.Meta(ref)
		if err != nil {
			return err
		}
		if there, err := s.Exists(ref); err != nil {
			return err
		} else if there && meta.ActivatedAt == 0 {
			if err := s.touchMeta(ref, true); err != nil {
				return err
			}
		}
	}
	stored, err := s.rawSmall(manifestFile)
	if err != nil {
		return err
	}
	return durable.Write(s.fs, manifestFile, append(keeping(stored, m), '\n'))
}

// Meta returns what is kept about a session; zeros where nothing is.
func (s *Store) Meta(ref Ref) (Meta, error) {
	if err := ref.check(); err != nil {
		return Meta{}, err
	}
	var m Meta
	err := s.readSmall(ref.folder()+"/"+metaFile, &m)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errUnreadable) {
		return Meta{}, nil // they are bookkeeping: the next activation makes them anew
	}
	return m, err
}

// touchMeta notes that a session is used now; opened, that it is the active one.
func (s *Store) touchMeta(ref Ref, opened bool) error {
	m, err := s.Meta(ref)
	if err != nil {
		return err
	}
	m.LastActiveAt = s.nowMillis()
	if m.CreatedAt == 0 {
		m.CreatedAt = m.LastActiveAt
	}
	if opened && m.ActivatedAt == 0 {
		m.ActivatedAt = m.LastActiveAt
	}
	return s.writeMeta(ref, m)
}

func (s *Store) writeMeta(ref Ref, m Meta) error {
	old, err := s.rawSmall(ref.folder() + "/" + metaFile)
	if err != nil {
		return err
	}
	return s.writeSmall(ref, metaFile, keeping(old, m))
}

// activated reports whether a session was ever the open one.
func (s *Store) activated(ctx context.Context, ref Ref) (bool, error) {
	m, err := s.Meta(ref)
	if err != nil || m.ActivatedAt != 0 {
		return err == nil, err
	}
	manifest, err := s.Manifest(ctx)
	return manifest.LastProjectID == ref.Project && manifest.LastSessionID == ref.ID, err
}

// view is view.json: what is shown instead of the session.
type view struct {
	Snapshot string `json:"snapshot"`
}

// Selected returns the id of the snapshot that is shown instead of the session,
// read-only; empty means the session itself.
func (s *Store) Selected(ref Ref) (string, error) {
	if err := ref.check(); err != nil {
		return "", err
	}
	var v view
	err := s.readSmall(ref.folder()+"/"+viewFile, &v)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err == nil && v.Snapshot == "" { // no selection has no file
		err = fmt.Errorf("%s: %w", s.path(ref.folder()+"/"+viewFile), errUnreadable)
	}
	if err != nil {
		// Taking it for no selection could let a write through.
		return "", fmt.Errorf("selection of session %s: %w; select again or return to the session", ref, err)
	}
	return v.Snapshot, nil
}

// Select sets what Selected returns, durably; an empty id returns to the session
// itself.
func (s *Store) Select(ctx context.Context, ref Ref, snapshotID string) error {
	if err := ref.check(); err != nil {
		return err
	}
	return s.small(ctx, func() error {
		if snapshotID == "" {
			return durable.Remove(s.fs, ref.folder()+"/"+viewFile)
		}
		return s.writeSmall(ref, viewFile, encode(view{Snapshot: snapshotID}))
	})
}

// lockWait is much longer than a lock is held that others wait for.
const lockWait = 15 * time.Second

// small runs do under the lock of all small files: the manifest, and each
// session's meta and selection. Holders are done in milliseconds; one that is not,
// as when its process was stopped, is ErrLocked after a while.
func (s *Store) small(ctx context.Context, do func() error) (err error) {
	if err := durable.MkdirAll(s.fs, locksDir); err != nil {
		return err
	}
	unlock, err := durable.LockBriefly(ctx, s.fs, manifestLock, durable.Exclusive, lockWait)
	if err != nil {
		return fmt.Errorf("lock the manifest: %w", err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	return do()
}

// errUnreadable is a small file that does not parse.
var errUnreadable = errors.New("it does not parse")

func (s *Store) readSmall(name string, v any) error {
	data, err := durable.ReadFile(s.fs, name, smallFile)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s: %w (%w)", s.path(name), errUnreadable, err)
	}
	return nil
}

// rawSmall is the text of a small file; nil where there is none.
func (s *Store) rawSmall(name string) (json.RawMessage, error) {
	data, err := durable.ReadFile(s.fs, name, smallFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

func (s *Store) writeSmall(ref Ref, base string, text json.RawMessage) error {
	if err := durable.MkdirAll(s.fs, ref.folder()); err != nil {
		return err
	}
	return durable.Write(s.fs, ref.folder()+"/"+base, append(text, '\n'))
}
