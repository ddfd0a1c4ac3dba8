// Package change lets a plugin change a conversation so that there is a way
// back: a snapshot of the state before is made through the sess plugin first,
// and goes again where the change comes to nothing.
//
// A plugin reads a session with [Open], makes the state that it wants of the
// document, and commits that. It needs the permissions session.read,
// session.write, rpc:sess.invoke and rpc:plugins.inspect.
//
// The package keeps no state. A [Session] is for one goroutine and one call.
package change

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"sess/plugin"
	"sess/store/chunk"
	"sess/store/transcript"
)

// settleTime bounds what is still done for a call whose context has ended.
const settleTime = 10 * time.Second

// Session is a live session that a plugin wants to change.
type Session struct {
	*plugin.Session
	runtime plugin.Runtime
	agent   string
	sealed  map[transcript.ID][]byte // frames of new chunks
}

// Read reads the session of a call. It answers not_found where none is named or active.
func Read(ctx context.Context, runtime plugin.Runtime, call plugin.Call) (*Session, error) {
	if call.Session == "" && call.Foreign == "" { // asking for it would make one
		return nil, plugin.Errorf(plugin.NotFound, "no session is active").WithHint("sess chat begins one; sess sessions list shows those that there are")
	}
	live, err := runtime.Session(ctx, plugin.SessionRef{Project: call.Project, ID: call.Session})
	if err != nil {
		return nil, err
	}
	return &Session{Session: live, runtime: runtime, agent: call.Agent, sealed: map[transcript.ID][]byte{}}, nil
}

// Open is Read for a change. It answers denied where the conversation is another
// agent's, readonly while a snapshot is shown in
// place of the session, and busy while a turn runs, but that of the call itself.
func Open(ctx context.Context, runtime plugin.Runtime, call plugin.Call) (*Session, error) {
	if call.Foreign != "" {
		return nil, plugin.Errorf(plugin.Denied, "conversations of %s are never changed", call.Foreign).
			WithHint("messages can be taken out in %s itself", call.Foreign)
	}
	s, err := Read(ctx, runtime, call)
	switch {
	case err != nil:
		return nil, err
	case s.Selected != "":
		return nil, plugin.Errorf(plugin.ReadOnly, "session %s shows a snapshot, which cannot be changed", s.Ref.ID).
			WithHint("sess deselect goes back to the conversation").WithDetail("session", s.Ref.ID).WithDetail("snapshot", s.Selected)
	case s.Running && call.Turn == "":
		return nil, plugin.Errorf(plugin.Busy, "session %s runs a turn", s.Ref.ID).
			WithHint("wait for the turn to end, or stop it, then try again").WithDetail("session", s.Ref.ID)
	}
	return s, nil
}

// Loader reads chunks of the session, also those that were sealed meanwhile. One
// that is gone, since the session changed, is conflict.
func (s *Session) Loader(ctx context.Context) transcript.Loader {
	return func(id transcript.ID) ([]byte, error) {
		frame, ok := s.sealed[id]
		if !ok {
			for c, err := range s.runtime.ReadChunks(ctx, []transcript.ID{id}) {
				if errors.Is(err, &plugin.Error{Code: plugin.NotFound}) {
					return nil, s.conflict(err)
				}
				if err != nil {
					return nil, err
				}
				frame = c.Frame
			}
		}
		_, plain, err := chunk.Decode(id, frame)
		return plain, err
	}
}

// Seal keeps a new chunk for the commit; it is a [transcript.Sealer].
func (s *Session) Seal(c transcript.Sealed) error {
	s.sealed[c.ID] = chunk.Encode(c)
	return nil
}

// Change is a new state of a session, and what its snapshot says of the state
// before.
type Change struct {
	Document *transcript.Document
	// Trigger is [transcript.TriggerDeleteMessages] or [transcript.TriggerCompact].
	Trigger transcript.Trigger
	Action  string // "delete_messages"
	Reason  string // for people: "Before deleting message [14]"
	// Indices or Range say which messages it is about.
	Indices []int
	Range   *transcript.Range
	// Note is for people whose chat shows the session.
	Note string
}

// Done is what became of a [Change].
type Done struct {
	Revision int64
	// Changed is false where the new state was the old one: nothing was written.
	Changed bool
	// Snapshot is the name of the snapshot of the state before; empty where
	// automatic snapshots are switched off.
	Snapshot string
	// Notices are for the people of the call.
	Notices []string
}

// Commit makes a change, durably and all or nothing. After an error the session
// is as it was and no snapshot is left, unless the error says otherwise. It is
// conflict where the session has changed since Open, and busy where a turn has
// begun. Without the sess plugin nothing is changed, but where its configuration
// has switched automatic snapshots off.
func (s *Session) Commit(ctx context.Context, c Change) (Done, error) {
	stage, err := s.runtime.Stage(ctx, plugin.StageRequest{Session: s.Ref, Document: *c.Document})
	if err != nil {
		return Done{}, err
	}
	g, err := s.prepare(ctx, stage, c)
	if err != nil || g == nil {
		return Done{Revision: stage.Revision}, s.withdraw(ctx, stage.ID, g, err)
	}
	revision, known, err := s.land(ctx, stage, g.op, c.Note)
	switch {
	case err != nil && known:
		return Done{}, s.withdraw(ctx, stage.ID, g, err)
	case err != nil:
		return Done{}, err
	}
	done := Done{Revision: revision, Changed: true, Snapshot: g.snapshot}
	if g.recorded {
		ctx, cancel := settling(ctx)
		defer cancel()
		if _, err := s.invoke(ctx, "op", "close", g.op); err != nil {
			done.Notices = append(done.Notices, fmt.Sprintf("the record for undo is not finished yet (%v); the next start finishes it", err))
		}
	}
	return done, nil
}

// guard is the way back of a change.
type guard struct {
	op       string // its id
	recorded bool   // by the sess plugin
	snapshot string // name of the snapshot; empty where none is wanted
}

// prepare makes the way back. It is nil where there is nothing to change. After
// an error what was made of it is returned as well.
func (s *Session) prepare(ctx context.Context, stage *plugin.Stage, c Change) (*guard, error) {
	switch {
	case stage.Revision != s.Revision:
		return nil, s.conflict(nil)
	case !stage.Differs:
		return nil, nil
	}
	unsafe := func(err error) error {
		return fmt.Errorf("no snapshot of the state before could be made, so nothing was changed: %w", err)
	}
	var opened struct {
		Op string `json:"op"`
	}
	answer, err := s.invoke(ctx, "op", "open", string(c.Trigger))
	if errors.Is(err, &plugin.Error{Code: plugin.Unavailable}) && s.snapshotsOff(ctx) {
		return &guard{op: uuid.Must(uuid.NewV7()).String()}, nil
	}
	if err == nil {
		err = json.Unmarshal(answer, &opened)
	}
	if err != nil {
		return nil, unsafe(err)
	}
	g := &guard{op: opened.Op, recorded: true}
	argv := []string{
		"save", "--auto-name", "--op=" + g.op, "--trigger=" + string(c.Trigger),
		"--action=" + c.Action, "--reason=" + c.Reason,
	}
	if c.Range != nil {
		argv = append(argv, "--range="+Slice(*c.Range))
	} else if len(c.Indices) > 0 {
		argv = append(argv, "--indices="+join(c.Indices, ","))
	}
	var saved struct {
		Name string `json:"name"`
	}
	answer, err = s.invoke(ctx, argv...)
	if err == nil && answer != nil {
		err = json.Unmarshal(answer, &saved)
	}
	if err != nil {
		return g, unsafe(err)
	}
	g.snapshot = saved.Name
	return g, nil
}

// land sends what the stage misses and commits it. After an error it is known
// that nothing was changed, or not: then the snapshot has to stay until the sess
// plugin can find out.
func (s *Session) land(ctx context.Context, stage *plugin.Stage, op, note string) (revision int64, known bool, err error) {
	for missing := stage.Missing; len(missing) > 0; {
		if missing, err = s.runtime.WriteChunks(ctx, stage.ID, s.frames(missing)); err != nil {
			return 0, true, err
		}
	}
	revision, err = s.runtime.Commit(ctx, plugin.CommitRequest{Stage: stage.ID, Revision: s.Revision, Op: op, Note: note})
	if err == nil {
		return revision, true, nil
	}
	e := plugin.AsError(err)
	switch {
	case e.Code == plugin.Conflict:
		return 0, true, s.conflict(err)
	case e.Code == plugin.Busy && e.Hint == "":
		return 0, true, e.WithHint("session %s was left as it is; wait for its turn to end, then try again", s.Ref.ID)
	case e.Code != plugin.Unavailable && e.Code != plugin.Internal:
		return 0, true, err // refused in so many words
	}
	// The answer may have been lost behind a commit that landed.
	ctx, cancel := settling(ctx)
	defer cancel()
	switch state, asked := s.runtime.OpState(ctx, s.Ref, op); {
	case asked == nil && state == plugin.OpVoid:
		return 0, true, err
	case asked == nil && state == plugin.OpLanded:
		if live, asked := s.runtime.Session(ctx, s.Ref); asked == nil {
			return live.Revision, true, nil
		}
	}
	return 0, false, plugin.Errorf(e.Code, "session %s: whether it was changed is not known: %w", s.Ref.ID, err).
		WithHint("look at the session; the snapshot made before is kept, see: sess list --include-auto")
}

// withdraw takes back what was prepared for a change that came to nothing, and
// returns why it did; nil where there was nothing to change.
func (s *Session) withdraw(ctx context.Context, stage string, g *guard, cause error) error {
	ctx, cancel := settling(ctx)
	defer cancel()
	if err := s.runtime.Unstage(ctx, stage); err != nil && cause == nil {
		return err
	}
	if g != nil && g.recorded {
		if _, err := s.invoke(ctx, "op", "withdraw", g.op); err != nil {
			return fmt.Errorf("%w (the snapshot made before stays until the next start: %v)", cause, err)
		}
	}
	return cause
}

func (s *Session) frames(ids []transcript.ID) plugin.Chunks {
	return func(yield func(plugin.Chunk, error) bool) {
		for _, id := range ids {
			frame, ok := s.sealed[id]
			var err error
			if !ok {
				err = s.conflict(nil) // it was the session's own
			}
			if !yield(plugin.Chunk{ID: id, Frame: frame}, err) || err != nil {
				return
			}
		}
	}
}

// invoke calls a verb of the sess plugin and returns the data of its answer; nil
// where that has none.
func (s *Session) invoke(ctx context.Context, argv ...string) (json.RawMessage, error) {
	params := map[string]any{"argv": argv, "project": s.Ref.Project, "session": s.Ref.ID}
	if s.agent != "" {
		params["agent"] = s.agent
	}
	in, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	out, err := s.runtime.Call(ctx, "sess.invoke", in)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		return nil, err
	}
	if string(answer.Data) == "null" {
		return nil, nil
	}
	return answer.Data, nil
}

// snapshotsOff reports whether the sess plugin is switched off, and automatic
// snapshots are in its configuration: then nobody wants one.
func (s *Session) snapshotsOff(ctx context.Context) bool {
	out, err := s.runtime.Call(ctx, "plugins.inspect", json.RawMessage(`{"id":"sess"}`))
	var sess struct {
		State  string `json:"state"`
		Config struct {
			AutoSnapshots *bool `json:"autoSnapshots"`
		} `json:"config"`
	}
	return err == nil && json.Unmarshal(out, &sess) == nil && sess.State == "disabled" &&
		sess.Config.AutoSnapshots != nil && !*sess.Config.AutoSnapshots
}

func (s *Session) conflict(cause error) error {
	e := plugin.Errorf(plugin.Conflict, "session %s changed meanwhile and was left as it is", s.Ref.ID).
		WithHint("look at it, then run the command again").WithDetail("session", s.Ref.ID)
	e.Err = cause
	return e
}

func settling(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), settleTime)
}

// Indices normalises indices of a list of n records: those below 0 count from
// the end, each is there once, and they ascend. The error names the first that
// is outside of the list.
func Indices(indices []int, n int) ([]int, error) {
	var out []int
	for _, i := range indices {
		at := i
		if at < 0 {
			at += n
		}
		if at < 0 || at >= n {
			return nil, fmt.Errorf("there is no message %d: %s", i, numbered(n))
		}
		out = append(out, at)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func numbered(n int) string {
	switch n {
	case 0:
		return "the session has none"
	case 1:
		return "the session has one, message 0"
	}
	return fmt.Sprintf("the session has %d, 0 to %d", n, n-1)
}

// ParseSlice reads a range of records as Python writes slices, "3:9", ":3", "357:"
// or "-5:", and cuts it to a list of n records. It is start to end (exclusive);
// a range without records is empty, not an error.
func ParseSlice(text string, n int) (start, end int, err error) {
	from, to, ok := strings.Cut(text, ":")
	bad := fmt.Errorf("%q is not a range of messages", text)
	if !ok {
		return 0, 0, bad
	}
	bound := func(text string, otherwise int) (int, error) {
		if text == "" {
			return otherwise, nil
		}
		i, err := strconv.Atoi(text)
		if err != nil {
			return 0, bad
		}
		if i < 0 {
			i += n
		}
		return min(max(i, 0), n), nil
	}
	if start, err = bound(from, 0); err == nil {
		end, err = bound(to, n)
	}
	return start, max(start, end), err
}

// Describe says of normalised indices into a list of n records what they are in
// words, "message [14]", "messages [18, 22, 25]" or "messages [357:]", and
// which range they make; nil where they make none or only one is meant.
func Describe(indices []int, n int) (string, *transcript.Range) {
	if len(indices) == 1 {
		return fmt.Sprintf("message [%d]", indices[0]), nil
	}
	if first, last := indices[0], indices[len(indices)-1]; last-first == len(indices)-1 {
		span := &transcript.Range{Start: first}
		if last < n-1 {
			span.End = new(last + 1)
		}
		return "messages [" + Slice(*span) + "]", span
	}
	return "messages [" + join(indices, ", ") + "]", nil
}

// Slice is a range as Python writes it: "357:", ":277" or "3:9".
func Slice(r transcript.Range) string {
	switch {
	case r.End == nil:
		return fmt.Sprintf("%d:", r.Start)
	case r.Start == 0:
		return fmt.Sprintf(":%d", *r.End)
	}
	return fmt.Sprintf("%d:%d", r.Start, *r.End)
}

func join(indices []int, between string) string {
	words := make([]string, len(indices))
	for i, n := range indices {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, between)
}
