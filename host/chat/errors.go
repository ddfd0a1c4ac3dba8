package chat

import (
	"errors"
	"fmt"

	"sess/plugin"
	"sess/store/session"
)

// asError gives an error of the session store its code and a way on.
func asError(ref session.Ref, err error) error {
	if err == nil {
		return nil
	}
	code, hint := plugin.Code(""), ""
	switch {
	case errors.Is(err, session.ErrNotFound):
		code, hint = plugin.NotFound, "it was removed meanwhile; open another session"
	case errors.Is(err, session.ErrConflict):
		code, hint = plugin.Conflict, "send the message again"
	case errors.Is(err, session.ErrDamaged):
		code, hint = plugin.Corrupt, "restore it from a snapshot"
	case errors.Is(err, session.ErrNewer):
		code, hint = plugin.NewerFormat, "update this program"
	default:
		return plugin.AsError(fmt.Errorf("session %s: %w", ref.ID, err))
	}
	return plugin.Errorf(code, "%w", err).WithHint("%s", hint)
}
