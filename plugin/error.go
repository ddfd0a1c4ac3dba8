package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"
)

// Code is the stable, machine-readable kind of an error.
type Code string

// The codes. An unknown code means failure and is treated as internal.
const (
	Usage       Code = "usage"        // unknown verb, flag or field; wrong type; missing argument
	InvalidName Code = "invalid_name" // a name or id that is not allowed
	NotFound    Code = "not_found"    // no such snapshot, session, plugin
	Exists      Code = "exists"       // the name is taken
	Conflict    Code = "conflict"     // the session changed meanwhile
	Busy        Code = "busy"         // a turn is running, or a lock is held
	ReadOnly    Code = "readonly"     // a snapshot is selected
	Denied      Code = "denied"       // no or wrong token, permission of a file or plugin
	Corrupt     Code = "corrupt"      // a file fails its checksum or does not parse
	NewerFormat Code = "newer_format" // written by a newer version
	NoSpace     Code = "no_space"     // disk or quota full
	Unavailable Code = "unavailable"  // plugin or gateway down, or restarting
	Internal    Code = "internal"     // a bug; carries an incident id that the log has too
)

// CodeInfo is how each surface shows a code.
type CodeInfo struct {
	Code    Code
	HTTP    int // status of every route but the documented /sess/* ones
	JSONRPC int // JSON-RPC 2.0 error code
	Exit    int // exit status of the command line
}

// Exit statuses that stand for no code.
const (
	ExitOK        = 0
	ExitDeadline  = 124 // a deadline passed
	ExitInterrupt = 130 // Ctrl-C
)

// Codes is the one table of all codes; every surface reads it.
func Codes() []CodeInfo {
	return []CodeInfo{
		{Usage, 400, -32602, 2},
		{InvalidName, 400, -32051, 2},
		{NotFound, 404, -32052, 3},
		{Exists, 409, -32053, 4},
		{Conflict, 409, -32054, 4},
		{Busy, 409, -32055, 5},
		{ReadOnly, 409, -32056, 5},
		{Denied, 403, -32057, 6},
		{Corrupt, 422, -32058, 7},
		{NewerFormat, 422, -32059, 7},
		{NoSpace, 507, -32060, 8},
		{Unavailable, 503, -32061, 9},
		{Internal, 500, -32603, 1},
	}
}

// Info returns the row of a code; an unknown code gets the row of internal
// under its own name.
func (c Code) Info() CodeInfo {
	var last CodeInfo
	for _, info := range Codes() {
		if info.Code == c {
			return info
		}
		last = info
	}
	last.Code = c
	return last
}

// Error is what every surface receives. Code is stable; Message is for people.
type Error struct {
	Code    Code
	Message string            // names the object and the cause; no secrets
	Hint    string            // one next step that really works, may be empty
	Details map[string]string // ids, limits, candidates
	Err     error             // cause; logged, never sent
}

// maxQuoted is how many bytes of one word a message or hint quotes.
const maxQuoted = 1000

// quotable shortens very long words among the operands of a message, as somebody
// mistyped or a model made them up. Lists and sentences have blanks: they stay.
func quotable(args []any) []any {
	out := slices.Clone(args)
	for i, arg := range out {
		if s, ok := arg.(string); ok && len(s) > maxQuoted && !strings.ContainsAny(s, " \n") {
			n := maxQuoted
			for n > maxQuoted-utf8.UTFMax && !utf8.RuneStart(s[n]) {
				n--
			}
			out[i] = s[:n] + "…"
		}
	}
	return out
}

// Errorf makes an error with a formatted message; a %w operand becomes its
// cause. Of a longer word the message quotes the first 1,000 bytes.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, quotable(args)...)
	return &Error{Code: code, Message: err.Error(), Err: errors.Unwrap(err)}
}

// WithHint returns a copy of e with a formatted hint, which quotes like the
// message of Errorf.
func (e *Error) WithHint(format string, args ...any) *Error {
	c := *e
	c.Hint = fmt.Sprintf(format, quotable(args)...)
	return &c
}

// WithDetail returns a copy of e with one more detail.
func (e *Error) WithDetail(key, value string) *Error {
	c := *e
	c.Details = maps.Clone(e.Details)
	if c.Details == nil {
		c.Details = map[string]string{}
	}
	c.Details[key] = value
	return &c
}

// Error returns the message, without the hint.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is an *Error of the same code, so that
// errors.Is(err, &Error{Code: NotFound}) works across the process boundary.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.Message == ""
}

// Text is the whole text for people: the message, and the hint after it.
func (e *Error) Text() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + "; " + e.Hint
}

// AsError turns any error into an *Error. An *Error anywhere in the chain
// keeps its code, hint and details, and gains the text that was wrapped around
// it. A context's end is recognised, and so is what the system refuses about a
// file: no_space, denied, or unavailable, with a hint that names the place.
// Anything else becomes internal, with the original as cause.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := err.(*Error); ok {
		return e
	}
	if e, ok := errors.AsType[*Error](err); ok {
		c := *e
		c.Message = err.Error()
		c.Err = err
		return &c
	}
	out := &Error{Code: Internal, Message: err.Error(), Err: err}
	place := filePlace(err)
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		out.Code = Unavailable
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		out.Code, out.Hint = NoSpace, "free some space on the disk, then try again"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		out.Code, out.Hint = Denied, fmt.Sprintf("make %s readable and writable for this user, then try again", cmp.Or(place, "the folder"))
	case place != "" && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)):
		out.Code, out.Hint = Unavailable, fmt.Sprintf("see that %s is there and a folder, then try again", place)
	case place != "":
		out.Code, out.Hint = Unavailable, fmt.Sprintf("see what is wrong with %s, or move it away, then try again", place)
	}
	return out
}

// filePlace is the file or folder that a system error is about, for people; ""
// if it is about none. What could not be made is not there: its folder is.
func filePlace(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		if strings.HasPrefix(e.Op, "mkdir") || strings.HasSuffix(e.Path, ".tmp") {
			return filepath.Dir(e.Path)
		}
		if _, missing := os.Lstat(e.Path); errors.Is(err, fs.ErrPermission) && errors.Is(missing, fs.ErrNotExist) {
			return filepath.Dir(e.Path)
		}
		return e.Path
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.New
	}
	return ""
}
