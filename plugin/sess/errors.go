package sess

import (
	"errors"
	"io/fs"
	"strings"

	"sess/plugin"
	"sess/store/snapshot"
)

// explain turns what a store or the host answered into an error for people: one
// code, the object and the cause, and a next step that works. What is a
// [*plugin.Error] already stays as it is.
func explain(err error) *plugin.Error { return explainTaken(err, nil) }

// explainTaken is explain for a call that wants a name. whenTaken makes the
// command that works where a snapshot has the name already, perhaps in another
// case, which is how it is passed; nil where there is none.
func explainTaken(err error, whenTaken func(stored string) string) *plugin.Error {
	if e, ok := errors.AsType[*plugin.Error](err); ok {
		if error(e) == err {
			return e
		}
		return plugin.AsError(err)
	}
	if e, ok := errors.AsType[*snapshot.NameError](err); ok {
		out := named(plugin.InvalidName, err, "%q is no name for a snapshot: %s", clip(e.Text, 160), e.Reason)
		if e.Suggestion != "" {
			return out.WithHint("try %s", e.Suggestion).WithDetail("suggestion", e.Suggestion)
		}
		return meant(out, e.Near)
	}
	if e, ok := errors.AsType[*snapshot.NotFoundError](err); ok {
		out := named(plugin.NotFound, err, "there is no snapshot %q", clip(e.Text, 160))
		return meant(out, e.Near)
	}
	if e, ok := errors.AsType[*snapshot.AmbiguousError](err); ok {
		out := named(plugin.Usage, err, "%s have the id %s", count(len(e.Names), "snapshot"), e.ID)
		return out.WithHint("name one of them: %s", namesText(e.Names, " or ")).WithDetail("candidates", namesText(e.Names, ", "))
	}
	if e, ok := errors.AsType[*snapshot.OccupiedError](err); ok {
		return named(plugin.Exists, err, "%s cannot be saved: %s is no file of a snapshot", e.Name, e.File).
			WithHint("choose another name, or move that out of the way").WithDetail("file", e.File)
	}
	if e, ok := errors.AsType[*snapshot.ExistsError](err); ok {
		out := named(plugin.Exists, err, "there is a snapshot %s already", e.Name).WithDetail("name", string(e.Name))
		if whenTaken == nil {
			return out.WithHint("choose another name, or move that one out of the way with: %s", command("rename", string(e.Name), suffixed(string(e.Name), "-old")))
		}
		return out.WithHint("choose another name, or run: %s", whenTaken(string(e.Name)))
	}
	if e, ok := errors.AsType[*snapshot.DamagedError](err); ok {
		if errors.Is(e.Err, fs.ErrPermission) {
			return named(plugin.Denied, err, "snapshot %s cannot be read: %s (%s)", e.Name, e.Reason, e.File).
				WithHint("make %s readable for this user, then try again", e.File)
		}
		return named(plugin.Corrupt, err, "snapshot %s is damaged: %s (%s)", e.Name, cause(e.Reason), e.File).
			WithHint("see what is wrong with: %s", command("verify", string(e.Name))).
			WithDetail("name", string(e.Name)).WithDetail("file", e.File)
	}
	if e, ok := errors.AsType[*snapshot.NewerError](err); ok {
		return named(plugin.NewerFormat, err, "snapshot %s was written by a newer version (format %s)", e.Name, e.Format).
			WithHint("update sess to use it; it was left as it is").WithDetail("name", string(e.Name)).WithDetail("format", e.Format)
	}
	if e, ok := errors.AsType[*snapshot.LimitError](err); ok {
		return named(plugin.Usage, err, "%s: %d %s are too many", e.Field, e.Got, e.Unit).
			WithHint("keep to at most %d %s", e.Limit, e.Unit)
	}
	if errors.Is(err, snapshot.ErrStale) {
		return named(plugin.Conflict, err, "somebody else has undone or redone it meanwhile").
			WithHint("see how things stand with: %s", command("list", "--include-auto"))
	}
	if errors.Is(err, snapshot.ErrGone) {
		return named(plugin.NotFound, err, "what it would bring back is no longer in the trash").
			WithHint("see what is there with: %s", command("trash", "list"))
	}
	return system(err)
}

// meant adds to an error the names that may have been meant, or where to see all.
func meant(e *plugin.Error, near []snapshot.Name) *plugin.Error {
	return meantAmong(e, near, command("list", "--include-auto"))
}

// meantAmong is meant for names that another command lists.
func meantAmong(e *plugin.Error, near []snapshot.Name, list string) *plugin.Error {
	if len(near) == 0 {
		return e.WithHint("see the names with: %s", list)
	}
	return e.WithHint("did you mean %s?", namesText(near, " or ")).WithDetail("candidates", namesText(near, ", "))
}

func namesText(names []snapshot.Name, between string) string {
	words := make([]string, len(names))
	for i, n := range names {
		words[i] = string(n)
	}
	return strings.Join(words, between)
}

// system explains errors of the system that the store passed on.
func system(err error) *plugin.Error {
	out := plugin.AsError(err)
	switch {
	case errors.Is(err, snapshot.ErrLocked):
		out = named(plugin.Busy, err, "%v", err)
		return out.WithHint("wait until that has ended, or stop that process, then try again")
	case out.Code == plugin.NoSpace:
		return out.WithHint("%s", emptyTheTrash())
	}
	return out
}

// emptyTheTrash is what to do about a full disk where there is some trash.
func emptyTheTrash() string {
	return "free some space on the disk, for example with: " + command("trash", "empty", "--confirm")
}

// cause is what is wrong with a snapshot, where the words around it say already
// that it is damaged.
func cause(problem string) string { return strings.TrimPrefix(problem, "damaged: ") }

// suffixed is a name with something at its end, and not longer than a name may
// be.
func suffixed(name, suffix string) string {
	return name[:min(len(name), snapshot.MaxName-len(suffix))] + suffix
}

// named makes an error with a message and a cause that does not show in it.
func named(code plugin.Code, cause error, format string, args ...any) *plugin.Error {
	e := plugin.Errorf(code, format, args...)
	e.Err = cause
	return e
}

// has reports whether an error, perhaps of the other process, has a code.
func has(err error, code plugin.Code) bool { return errors.Is(err, &plugin.Error{Code: code}) }
