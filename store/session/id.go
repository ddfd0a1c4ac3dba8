package session

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"sess/store/transcript"
)

// Ref names a live session. The zero value names none.
type Ref struct {
	Project string
	ID      string
}

// String is the reference as messages show it: project and id.
func (r Ref) String() string { return r.Project + "/" + r.ID }

// maxNewID is the length of the longest id that is made here, in bytes.
const maxNewID = 64

// What an id is of, in messages.
const (
	projectID = "a project id"
	sessionID = "a session id"
)

// IDError is a text that cannot be a session's or project's id.
type IDError struct {
	Text       string
	Reason     string
	Suggestion string // itself a valid id; may be empty
	Session    bool   // it was to name a session
}

func (e *IDError) Error() string { return fmt.Sprintf("%q: %s", e.Text, e.Reason) }

// ParseID checks an id for a session or project that is to be made here: 1 to
// 64 ASCII letters, digits, hyphens and underscores. The error is an *IDError.
func ParseID(s string) error {
	reason := ""
	switch {
	case s == "":
		reason = "an id must not be empty"
	case s == manifestWord:
		reason = "this id is the name of a file of the store"
	case strings.ContainsFunc(s, notIDRune):
		reason = "an id has letters, digits, - and _ only"
	case len(s) > maxNewID:
		reason = fmt.Sprintf("an id has at most %d characters", maxNewID)
	default:
		return nil
	}
	return &IDError{Text: s, Reason: reason, Suggestion: suggestID(s)}
}

func notIDRune(r rune) bool {
	return r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
}

// suggestID is the nearest valid id, or "" where nothing of s can be kept.
func suggestID(s string) string {
	parts := strings.FieldsFunc(s, notIDRune)
	id := strings.Join(parts, "-")
	if len(id) > maxNewID {
		id = strings.TrimRight(id[:maxNewID], "-_")
	}
	if id == manifestWord {
		id += "-1"
	}
	return id
}

// ParseRef checks the names of a session that may come from elsewhere: each is
// one path segment that no file of the store can be mistaken for. The error is
// an *IDError.
func ParseRef(project, id string) (Ref, error) {
	r := Ref{Project: project, ID: id}
	return r, r.check()
}

func (r Ref) check() error {
	if err := checkSegment(r.Project, projectID); err != nil {
		return err
	}
	return checkSegment(r.ID, sessionID)
}

const (
	manifestWord = "manifest"
	invalidMark  = ".invalid-"
	fileSuffix   = ".json"
)

func checkSegment(s, what string) error {
	problem := transcript.IDProblem(s)
	if problem == "" {
		return nil
	}
	return &IDError{Text: s, Reason: what + " " + problem, Suggestion: suggestID(s), Session: what == sessionID}
}

// NewID makes the id of a new session: the local date and 8 random hex digits.
func NewID(now time.Time) string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return now.Local().Format("20060102") + "_" + hex.EncodeToString(b[:])
}
