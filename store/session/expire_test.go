package session_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sess/store/session"
)

// aged makes sessions s0, s1 … last written so many days ago.
func aged(t *testing.T, dir string, days ...int) {
	t.Helper()
	for i, d := range days {
		put(t, dir, session.Ref{Project: "default", ID: fmt.Sprintf("s%d", i)},
			fmt.Sprintf(`{"id":"s%d","title":"T%d","updatedAt":%d}`, i, i, noon().AddDate(0, 0, -d).UnixMilli()))
	}
}

// S1-06, S1-09: what expires, and what never does.
func TestExpire(t *testing.T) {
	t.Parallel()
	day := 24 * time.Hour
	r := func(i int) session.Ref { return session.Ref{Project: "default", ID: fmt.Sprintf("s%d", i)} }
	for _, c := range []struct {
		name    string
		days    []int
		policy  session.Policy
		prepare func(t *testing.T, s *session.Store)
		want    []string
	}{
		{name: "off", days: []int{900, 800, 0}},
		{name: "as many as may stay", days: []int{3, 2, 1}, policy: session.Policy{Max: 3}},
		{name: "the longest unused go first", days: []int{1, 9, 3, 7}, policy: session.Policy{Max: 2}, want: []string{"s1 " + session.WhyTooMany, "s3 " + session.WhyTooMany}},
		{name: "too old", days: []int{31, 29, 400}, policy: session.Policy{MaxAge: 30 * day}, want: []string{"s2 " + session.WhyOld, "s0 " + session.WhyOld}},
		{name: "old ones count for the limit", days: []int{31, 29, 400, 1}, policy: session.Policy{Max: 2, MaxAge: 30 * day}, want: []string{"s2 " + session.WhyOld, "s0 " + session.WhyOld}},
		{name: "the active one stays", days: []int{9, 1}, policy: session.Policy{Max: 1}, want: []string{"s1 " + session.WhyTooMany}, prepare: func(t *testing.T, s *session.Store) {
			ok(t, s.SaveManifest(t.Context(), session.Manifest{LastProjectID: "default", LastSessionID: "s0"}))
		}},
		{name: "opened lately is used lately", days: []int{9, 1}, policy: session.Policy{Max: 1}, want: []string{"s1 " + session.WhyTooMany}, prepare: func(t *testing.T, s *session.Store) {
			ok(t, s.Activate(t.Context(), r(0)))
			ok(t, s.SaveManifest(t.Context(), session.Manifest{}))
		}},
		{name: "a pinned one stays", days: []int{9, 5, 1}, policy: session.Policy{Max: 1}, want: []string{"s1 " + session.WhyTooMany, "s2 " + session.WhyTooMany}, prepare: func(t *testing.T, s *session.Store) {
			ok(t, s.Pin(t.Context(), r(0), true))
		}},
		{name: "an unpinned one goes", days: []int{9, 1}, policy: session.Policy{Max: 1}, want: []string{"s0 " + session.WhyTooMany}, prepare: func(t *testing.T, s *session.Store) {
			ok(t, s.Pin(t.Context(), r(0), true))
			ok(t, s.Pin(t.Context(), r(0), false))
		}},
		{name: "one in use stays", days: []int{9, 1}, policy: session.Policy{Max: 1}, want: []string{"s1 " + session.WhyTooMany}, prepare: func(t *testing.T, s *session.Store) {
			k := must(s.Lock(t.Context(), r(0), "turn", false))(t)
			t.Cleanup(func() { ok(t, k.Unlock()) })
		}},
		{name: "one that shows a snapshot stays", days: []int{9, 1}, policy: session.Policy{Max: 1}, want: []string{"s1 " + session.WhyTooMany}, prepare: func(t *testing.T, s *session.Store) {
			ok(t, s.Select(t.Context(), r(0), "snap"))
		}},
		{name: "saved first just now, though it says that it is old", days: []int{9, 8}, policy: session.Policy{Max: 2}, want: []string{"s0 " + session.WhyTooMany}, prepare: func(t *testing.T, s *session.Store) {
			must(s.SaveSession(t.Context(), newObject("taken-over").raw(t), nil))(t)
		}},
		{name: "a damaged one neither goes nor counts", days: []int{1, 2}, policy: session.Policy{Max: 2}, prepare: func(t *testing.T, s *session.Store) {
			put(t, s.Dir(), session.Ref{Project: "default", ID: "bad"}, "{")
		}},
		{name: "what has to stay", days: []int{9, 5, 1}, want: []string{"s1 " + session.WhyTooMany}, policy: session.Policy{Max: 2, Keep: func(context.Context) (map[session.Ref]bool, error) {
			return map[session.Ref]bool{{Project: "default", ID: "s0"}: true}, nil
		}}},
		{name: "a clock that was wrong", days: []int{-4000, 1}, policy: session.Policy{Max: 1, MaxAge: 30 * day}, want: []string{"s1 " + session.WhyTooMany}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := open(t, dir)
			aged(t, dir, c.days...)
			if c.prepare != nil {
				c.prepare(t, s)
			}
			var got []string
			for _, m := range must(s.Expire(t.Context(), c.policy))(t) {
				got = append(got, m.Ref.ID+" "+m.Why)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("Expire (-want +got):\n%s", diff)
			}
			told := must(s.Expired(t.Context()))(t)
			if len(told) != len(c.want) {
				t.Errorf("people are told of %+v", told)
			}
			for _, e := range told { // it can all be undone
				ok(t, s.Restore(t.Context(), e.Ref))
			}
			if again := must(s.Expired(t.Context()))(t); len(again) > 0 {
				t.Errorf("people are told again of %+v", again)
			}
			if again := must(s.Expire(t.Context(), c.policy))(t); len(c.want) > 0 && len(again) == len(c.days) {
				t.Errorf("and it took all: %+v", again)
			}
		})
	}
}

// Nothing expires while it is not known what has to stay.
func TestExpireWithoutKnowingWhatHasToStay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	aged(t, dir, 9, 5, 1)
	off := errors.New("the plugin is off")
	moved, err := s.Expire(t.Context(), session.Policy{Max: 1, Keep: func(context.Context) (map[session.Ref]bool, error) { return nil, off }})
	if !errors.Is(err, off) || len(moved) > 0 || len(must(s.List(t.Context()))(t)) != 3 {
		t.Errorf("Expire = %v, %v", moved, err)
	}
}

// S1-06, S1-07: the trash is emptied of what has been there for long enough.
func TestExpireEmptiesTheTrash(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	now := noon()
	s := must(session.Open(dir, session.Options{Now: func() time.Time { return now }}))(t)
	defer func() { ok(t, s.Close()) }()
	create(t, s, ref, "one")
	create(t, s, session.Ref{Project: "default", ID: "s2"}, "two")
	ok(t, s.Delete(t.Context(), ref))
	now = now.AddDate(0, 0, 5)
	ok(t, s.Delete(t.Context(), session.Ref{Project: "default", ID: "s2"}))
	now = now.AddDate(0, 0, 3)
	must(s.Expire(t.Context(), session.Policy{}))(t)
	if got := must(s.Trashed(t.Context()))(t); len(got) != 2 {
		t.Errorf("without an age the trash has %+v", got)
	}
	must(s.Expire(t.Context(), session.Policy{TrashAge: 7 * 24 * time.Hour}))(t)
	if got := must(s.Trashed(t.Context()))(t); len(got) != 1 || got[0].Ref.ID != "s2" {
		t.Errorf("the trash has %+v", got)
	}
}

// A title that people gave stays, and the session becomes no younger by it.
func TestRename(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	put(t, dir, ref, `{"id":"s1","title":"T","updatedAt":7,"messages":[]}`)
	ok(t, s.Rename(t.Context(), ref, " My plan "))
	l := must(s.Read(t.Context(), ref))(t)
	if l.Doc.Meta.Title != "My plan" || !l.Titled() || l.UpdatedAt != 7 || l.Revision != 1 {
		t.Errorf("after Rename: title %q, of people %v, updated at %d, revision %d", l.Doc.Meta.Title, l.Titled(), l.UpdatedAt, l.Revision)
	}
	ok(t, s.Rename(t.Context(), ref, "My plan"))
	if got := must(s.Read(t.Context(), ref))(t).Revision; got != 1 {
		t.Errorf("the same title made revision %d", got)
	}
	for _, bad := range []string{"", "  ", "two\nlines", "\xff", fmt.Sprintf("%0201d", 1)} {
		if err := s.Rename(t.Context(), ref, bad); !isTitleError(err) {
			t.Errorf("Rename to %q = %v", bad, err)
		}
	}
	if err := s.Rename(t.Context(), session.Ref{Project: "default", ID: "never"}, "x"); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("Rename of nothing = %v", err)
	}
	if err := s.Pin(t.Context(), session.Ref{Project: "default", ID: "never"}, true); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("Pin of nothing = %v", err)
	}
	// A client that saves another title has it from people, too.
	o := shown(t, s, ref)
	o["title"] = "Another"
	must(s.SaveSession(t.Context(), o.raw(t), nil))(t)
	if l := must(s.Read(t.Context(), ref))(t); l.Doc.Meta.Title != "Another" || !l.Titled() {
		t.Errorf("after a save: title %q, of people %v", l.Doc.Meta.Title, l.Titled())
	}
}

func isTitleError(err error) bool {
	_, is := errors.AsType[*session.TitleError](err)
	return is
}

// A session that is due, and that somebody takes up each time before it goes, is
// noted once and told of once it has gone.
func TestExpiryIsNotedOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	aged(t, dir, 9, 1)
	first := session.Ref{Project: "default", ID: "s0"}
	note := func() string { return string(must(os.ReadFile(filepath.Join(dir, ".expired.json")))(t)) }
	var before string
	for range 3 {
		var held *session.Locked
		moved := must(s.Expire(t.Context(), session.Policy{Max: 1, Keep: func(context.Context) (map[session.Ref]bool, error) {
			held = must(s.Lock(t.Context(), first, "turn", false))(t)
			return nil, nil
		}}))(t)
		ok(t, held.Unlock())
		if len(moved) != 0 {
			t.Fatalf("moved %v from under its user", moved)
		}
		if before != "" && note() != before {
			t.Errorf("noted %s, then %s", before, note())
		}
		before = note()
	}
	must(s.Expire(t.Context(), session.Policy{Max: 1}))(t)
	if told := must(s.Expired(t.Context()))(t); len(told) != 1 || told[0].Ref != first {
		t.Errorf("told of %+v, want %s", told, first)
	}
}
