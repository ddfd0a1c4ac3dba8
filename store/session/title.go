package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// maxTitle is the length of the longest title that [Store.Rename] gives, in
// characters.
const maxTitle = 200

// TitleError says what keeps a text from being a session's title.
type TitleError struct{ Reason string }

func (e *TitleError) Error() string { return "a title " + e.Reason }

// Rename gives a session another title, durably. It is people's then: none that is
// made automatically replaces it. A text that is no title is a *TitleError; the
// other errors are those of Read, a *durable.LockedError while a turn runs, and a
// *ReadOnlyError while a snapshot is shown. The session counts as no younger.
func (s *Store) Rename(ctx context.Context, ref Ref, title string) (err error) {
	title = strings.TrimSpace(title)
	switch {
	case title == "":
		return &TitleError{Reason: "must not be empty"}
	case !utf8.ValidString(title) || strings.ContainsFunc(title, unicode.IsControl):
		return &TitleError{Reason: "is one line of text"}
	case utf8.RuneCountInString(title) > maxTitle:
		return &TitleError{Reason: fmt.Sprintf("has at most %d characters", maxTitle)}
	}
	if err := errors.Join(ref.check(), ctx.Err()); err != nil {
		return err
	}
	made := time.Now()
	defer s.queue.enter(ref)()
	k, err := s.lockUntil(ctx, ref, "rename", made.Add(clientWait))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Unlock()) }()
	if err := s.refuseSelected(ref); err != nil {
		return err
	}
	l, err := k.current(ctx)
	if err != nil || l.Doc.Meta.Title == title && l.Titled() {
		return err
	}
	if err := errors.Join(l.Set(keyTitle, title), l.Set(keyTitled, titledBy)); err != nil {
		return err
	}
	l.updatedAt = l.UpdatedAt
	_, err = k.Write(ctx, l, l.Revision)
	return err
}

// Titled reports whether people gave the session its title.
func (l *Live) Titled() bool { return text(l.Get(keyTitled)) == titledBy }

// refuseSelected is a *ReadOnlyError while a snapshot is shown instead of the
// session.
func (s *Store) refuseSelected(ref Ref) error {
	selected, err := s.Selected(ref)
	if err == nil && selected != "" {
		err = &ReadOnlyError{Ref: ref, Snapshot: selected}
	}
	return err
}
