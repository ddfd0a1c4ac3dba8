package chat

import (
	"errors"
	"fmt"

	"sess/plugin"
	"sess/store/session"
	"sess/store/transcript"
)

// StoreError turns an error of the session store into the one type that crosses
// to plugins and surfaces. It is the only place that does, for chats and for the
// rest of the host; nil stays nil.
func StoreError(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*plugin.Error](err); ok {
		return err
	}
	code := func(c plugin.Code, hint string, args ...any) error {
		e := *plugin.AsError(err)
		e.Code, e.Hint = c, fmt.Sprintf(hint, args...)
		return &e
	}
	if e, ok := errors.AsType[*session.IDError](err); ok {
		out := plugin.Errorf(plugin.InvalidName, "%q: %s", e.Text, e.Reason)
		out.Err = err
		switch {
		case e.Session: // one that is there is looked for
			return out.WithHint("sess sessions list shows all sessions")
		case e.Suggestion != "":
			return out.WithHint("try %s", e.Suggestion)
		}
		return out.WithHint("an id has letters, digits, hyphens and underscores, at most 64")
	}
	if e, ok := errors.AsType[*session.ObjectError](err); ok {
		out := plugin.Errorf(plugin.Usage, "%w", err).WithHint("send it as sessions.loadAll gives it")
		if e.Field != "" {
			out = out.WithDetail("field", e.Field)
		}
		return out
	}
	if _, ok := errors.AsType[*session.TitleError](err); ok {
		return code(plugin.Usage, "give it as in: sess sessions rename <id> \"The launch\"")
	}
	if e, ok := errors.AsType[*session.DeletedError](err); ok && e.Trashed {
		return code(plugin.NotFound, "sess --project=%s sessions restore %s brings it back", e.Ref.Project, e.Ref.ID)
	}
	if _, ok := errors.AsType[*session.ChangingError](err); ok {
		return code(plugin.Busy, "repeat the command when that has ended")
	}
	switch {
	case errors.Is(err, session.ErrUndecided):
		// The codes of refusals would tell a plugin that nothing happened.
		return code(plugin.Unavailable, "look at the session first, then repeat the command if it did not happen")
	case errors.Is(err, session.ErrNotFound):
		return code(plugin.NotFound, "sess sessions list shows all sessions")
	case errors.Is(err, session.ErrConflict):
		return code(plugin.Conflict, "look at it again with sess sessions show, then repeat the command")
	case errors.Is(err, session.ErrLocked):
		return code(plugin.Busy, "wait until its turn has ended, or stop that process, then repeat the command")
	case errors.Is(err, session.ErrReadOnly):
		return code(plugin.ReadOnly, "sess deselect goes back to the conversation")
	case errors.Is(err, session.ErrNewer):
		return code(plugin.NewerFormat, "use the newer version of this program that wrote it")
	case errors.Is(err, session.ErrExists):
		return code(plugin.Exists, "choose another id, or delete the one that is there")
	case errors.Is(err, session.ErrVoid):
		return code(plugin.Conflict, "repeat the command")
	case errors.Is(err, session.ErrDamaged):
		return code(plugin.Corrupt, "load a snapshot to bring the conversation back: sess list --include-auto")
	case errors.Is(err, session.ErrMissing), errors.Is(err, transcript.ErrDamaged): // a chunk
		return code(plugin.Corrupt, "load a snapshot to bring the conversation back: sess verify shows which are whole")
	}
	return plugin.AsError(err)
}
