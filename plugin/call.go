package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Caller says which surface or program made a call.
type Caller string

// The callers. A plugin that calls another one is "plugin:<id>"; see
// [PluginCaller].
const (
	CallerCLI   Caller = "cli"
	CallerSlash Caller = "slash"
	CallerTool  Caller = "tool"
	CallerHTTP  Caller = "http"
	CallerRPC   Caller = "rpc"
	CallerMCP   Caller = "mcp"
	CallerHost  Caller = "host" // the host itself: a queued call, an event
)

// PluginCaller is the caller of a call that the plugin named id makes.
func PluginCaller(id string) Caller { return Caller("plugin:" + id) }

// Internal reports whether the caller may use a verb's internal flags: only
// plugins and the host may, never a person, a model or a web page.
func (c Caller) Internal() bool {
	return c == CallerHost || strings.HasPrefix(string(c), "plugin:")
}

// Call is one request to a dispatcher. The zero value of every field but Argv
// means "not given".
type Call struct {
	// Argv is the verb and its words: no command name, no host flags.
	Argv []string
	// Agent and Project choose the pool; empty means "main" and "default".
	Agent, Project string
	// Foreign is the name of the program whose conversations the call is about,
	// where the agent is another program: they can be read and made anew, but are
	// never changed. The host fills it in; empty means that they are the host's own.
	Foreign string
	// Session is the live session the call is about; empty means that the
	// caller named none and the host found no active one.
	Session string
	// Turn is set while the call is made from inside a turn of Session (by the
	// model); it identifies that turn. To a verb that is marked AfterTurn such a
	// call is a check; see [Verb].
	Turn string
	// Caller is filled in by the surface or the host, never by the client.
	Caller Caller
	// Cwd is the client's working directory, for messages only: a plugin never
	// opens the user's files.
	Cwd string
	// Input is content that the client reads from a file or from stdin, as far as
	// the verb reads it; nil where there is none. A read ends when the call's
	// context does.
	Input io.Reader
	// Output takes what the verb makes for a file; nil where nobody takes it
	// beside the answer. See [Verb].
	Output Output
	// RequestID identifies the call in logs on both sides of the boundary, and
	// makes a retry after "unavailable" recognisable.
	RequestID string
}

// Result is a successful answer.
type Result struct {
	// Text is the sentence or table for people, without a final newline.
	Text string
	// Data is the same answer for programs: one JSON value, or nil where there
	// is nothing to tell.
	Data json.RawMessage
	// Notices are warnings for people that belong to no one answer: the command
	// line prints them on stderr, a chat beside the answer.
	Notices []string
	// Page says which part of a list Data is, where the verb gives lists in
	// parts; otherwise it is nil.
	Page *Page
}

// Page tells about one part of a list.
type Page struct {
	// Total is how many items match, on all pages together.
	Total int64 `json:"total"`
	// Next is what the verb's flag --after takes to go on behind this page; ""
	// on the last one. It stands for a place in the list's order, not for a
	// count, so a walk meets every item that stays exactly once, whatever is
	// added or deleted meanwhile. Only the verb that gave it can read it.
	Next string `json:"next,omitempty"`
}

// Progress is one step of a long operation. Done and Total are counts of Unit;
// a Total of 0 means "not known".
type Progress struct {
	Stage string // what is being done: "reading chunks"
	Done  int64
	Total int64
	Unit  string // "bytes", "snapshots", …
}

// String tells people of it in a few words.
func (p Progress) String() string {
	switch {
	case p.Total > 0:
		return fmt.Sprintf("%s %d%%", p.Stage, 100*p.Done/p.Total)
	case p.Done > 0:
		return fmt.Sprintf("%s %d %s", p.Stage, p.Done, p.Unit)
	}
	return p.Stage
}

// ProgressFunc receives progress. It may be nil; use [ProgressFunc.Report].
// It is called from one goroutine at a time and must not block for long.
type ProgressFunc func(Progress)

// Report calls f unless it is nil.
func (f ProgressFunc) Report(p Progress) {
	if f != nil {
		f(p)
	}
}

// Dispatcher answers calls. There are two kinds: a plugin's verbs in this
// process, and a client of a plugin or gateway in another; a caller cannot
// tell them apart. An error is always an [*Error]. Safe for concurrent use.
// When ctx ends, Dispatch returns soon after with the context's error as the
// cause; an operation that has passed its point of no return is completed.
type Dispatcher interface {
	Dispatch(ctx context.Context, call Call, progress ProgressFunc) (Result, error)
}

// DispatcherFunc makes a function a [Dispatcher].
type DispatcherFunc func(ctx context.Context, call Call, progress ProgressFunc) (Result, error)

// Dispatch calls f.
func (f DispatcherFunc) Dispatch(ctx context.Context, call Call, progress ProgressFunc) (Result, error) {
	return f(ctx, call, progress)
}

// RequestIDKey is the gRPC metadata key that carries the request id.
const RequestIDKey = "x-request-id"

// GoodRequestID reports whether whoever calls may choose this id for a request: it
// has letters, digits and ._:- only, which may stand in every header and log line,
// and at most 128 of them.
func GoodRequestID(id string) bool {
	return id != "" && len(id) <= 128 && !strings.ContainsFunc(id, func(r rune) bool {
		return !isASCIILetter(r) && !('0' <= r && r <= '9') && !strings.ContainsRune("._:-", r)
	})
}

func isASCIILetter(r rune) bool { return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' }

type requestIDKey struct{}

// WithRequestID returns a context that carries the id of the request being
// served, so that calls made under it are logged under the same id.
func WithRequestID(ctx context.Context, id string) context.Context {
	if id == "" {
		return ctx
	}
	return context.WithValue(ctx, requestIDKey{}, id)
}

// RequestID returns the id put in by [WithRequestID], or "".
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}
