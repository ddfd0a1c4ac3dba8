package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"sess/store/durable"
	"sess/store/transcript"
)

// The kinds of events. Others are kept as they are.
const (
	EventTurnStart        = "turn_start" // the first line; see TurnHeader
	EventTextDelta        = "text_delta" // messageId, text
	EventThoughtDelta     = "thought_delta"
	EventToolCallStarted  = "tool_call_started"
	EventToolCallFinished = "tool_call_finished"
	EventApprovalRequest  = "approval_request"
	EventPlanUpdated      = "plan_updated"
	EventUsage            = "usage"
	EventError            = "error"
	EventRunCancelled     = "run_cancelled"
	EventRunFinished      = "run_finished"
	EventTurnEnd          = "turn_end" // the last line of a turn that ended
)

// TurnHeader is the first line of a turn's log.
type TurnHeader struct {
	Turn  string    // the turn's id
	Input string    // what the user sent
	Time  time.Time // zero: now
	Model string    // provider/model
}

// Event is one line of a turn's log.
type Event struct {
	Seq  int // counted from 1
	Time time.Time
	Type string
	Raw  json.RawMessage // the whole line, as it is in the file
}

// TurnLog is the log of the turn that runs. It is safe for concurrent use. End
// or the session's Unlock closes it.
type TurnLog struct {
	// Number is the turn's, counted from 1.
	Number int
	// Warnings say what was wrong with the log of the turn before, for people.
	Warnings []string

	store *Store
	name  string

	mu   sync.Mutex   // guards what follows
	file durable.File // nil when closed
	seq  int
	size int64 // of the whole lines
	torn bool  // a line was cut short and is still there
}

// timeFormat is RFC 3339 in UTC with milliseconds.
const timeFormat = "2006-01-02T15:04:05.000Z07:00"

// turnNumber is the number that a log's name has.
func turnNumber(name string) (int, bool) {
	base, ok := strings.CutSuffix(name, ".jsonl")
	digits, dash := strings.CutPrefix(base, "turn-")
	if !dash {
		digits, dash = strings.CutPrefix(base, "turn_")
	}
	if !ok || !dash || strings.ContainsFunc(digits, func(r rune) bool { return r < '0' || r > '9' }) {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	return n, err == nil && n > 0
}

func turnName(n int) string { return fmt.Sprintf("turn-%03d.jsonl", n) }

// turnFiles are the names of a session's turn logs by number. Of two with one
// number the one that is written here counts.
func (s *Store) turnFiles(ref Ref) (map[int]string, error) {
	if err := ref.check(); err != nil {
		return nil, err
	}
	entries, err := s.fs.ReadDir(ref.folder())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("event logs of session %s: %w", ref, err)
	}
	files := make(map[int]string)
	for _, e := range entries {
		n, ok := turnNumber(e.Name())
		if ok && e.Type().IsRegular() && (files[n] == "" || e.Name() == turnName(n)) {
			files[n] = e.Name()
		}
	}
	return files, nil
}

// Turns lists the numbers of a session's turn logs, ascending. They need not be
// without gaps. A session without logs, or without a file, has none.
func (s *Store) Turns(ctx context.Context, ref Ref) ([]int, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	files, err := s.turnFiles(ref)
	if err != nil {
		return nil, err
	}
	list := make([]int, 0, len(files))
	for n := range files {
		list = append(list, n)
	}
	slices.Sort(list)
	return list, nil
}

// ReadTurn reads the log of turn n. What is not an event is left out, and a
// warning for people names file and line: a last line without an end, which is
// still being written or never will be, is no error. Without such a log the
// error is fs.ErrNotExist.
func (s *Store) ReadTurn(ctx context.Context, ref Ref, n int) (events []Event, warnings []string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	files, err := s.turnFiles(ref)
	if err != nil {
		return nil, nil, err
	}
	if files[n] == "" {
		return nil, nil, fmt.Errorf("event log of turn %d of session %s: %w", n, ref, fs.ErrNotExist)
	}
	name := ref.folder() + "/" + files[n]
	data, err := durable.ReadFile(s.fs, name, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("event log of turn %d of session %s: %w", n, ref, err)
	}
	events, warnings = decodeEvents(data)
	for i := range warnings {
		warnings[i] = s.path(name) + ": " + warnings[i]
	}
	return events, warnings, nil
}

// decodeEvents reads the lines of a log.
func decodeEvents(data []byte) (events []Event, warnings []string) {
	for line := 1; len(data) > 0; line++ {
		end := bytes.IndexByte(data, '\n')
		raw, whole := data, end >= 0
		if whole {
			raw, data = data[:end], data[end+1:]
		} else {
			data = nil
		}
		raw = bytes.TrimSuffix(raw, []byte{'\r'})
		if len(bytes.TrimSpace(raw)) == 0 {
			continue
		}
		var e struct {
			Seq  int       `json:"seq"`
			Time time.Time `json:"time"`
			Type string    `json:"type"`
		}
		switch err := json.Unmarshal(raw, &e); {
		case err == nil && e.Type != "":
			events = append(events, Event{Seq: e.Seq, Time: e.Time, Type: e.Type, Raw: raw})
		case whole:
			warnings = append(warnings, fmt.Sprintf("line %d is not an event; it is left out", line))
		default:
			warnings = append(warnings, fmt.Sprintf("line %d is cut off; it is left out", line))
		}
	}
	return events, warnings
}

// BeginTurn starts the log of the session's next turn, numbered after the
// highest there is. If the last line of that one is cut off, it is moved to a
// file beside it first, and a warning says so. The log is not durable before
// End, but what is appended survives the end of the process at once.
func (k *Locked) BeginTurn(ctx context.Context, h TurnHeader) (*TurnLog, error) {
	if err := errors.Join(k.held(), ctx.Err()); err != nil {
		return nil, err
	}
	s := k.store
	files, err := s.turnFiles(k.ref)
	if err != nil {
		return nil, err
	}
	last := 0
	for n := range files {
		last = max(last, n)
	}
	t := &TurnLog{Number: last + 1, store: s, name: k.ref.folder() + "/" + turnName(last+1)}
	if last > 0 {
		warning, err := s.mendLog(k.ref.folder() + "/" + files[last])
		if err != nil {
			return nil, fmt.Errorf("event log of turn %d of session %s: %w", last, k.ref, err)
		}
		if warning != "" {
			t.Warnings = append(t.Warnings, warning)
		}
	}
	if err := durable.MkdirAll(s.fs, k.ref.folder()); err != nil {
		return nil, fmt.Errorf("event log of session %s: %w", k.ref, err)
	}
	// Appending is what puts a line at the end after one was taken back.
	if t.file, err = s.fs.Append(t.name); err != nil {
		return nil, fmt.Errorf("event log of session %s: %w", k.ref, err)
	}
	if h.Time.IsZero() {
		h.Time = s.now()
	}
	err = t.append(EventTurnStart, h.Time, struct {
		Turn  string `json:"turn"`
		N     int    `json:"n"`
		Input string `json:"input"`
		Model string `json:"model,omitempty"`
	}{h.Turn, t.Number, h.Input, h.Model})
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	if k.log != nil {
		err = k.log.close()
	}
	k.log = t
	return t, err
}

// mendLog sets the torn end of a log aside, or ends its last line where only
// the newline is missing.
func (s *Store) mendLog(name string) (warning string, err error) {
	data, err := durable.ReadFile(s.fs, name, 0)
	if err != nil {
		return "", err
	}
	whole := bytes.LastIndexByte(data, '\n') + 1
	if whole == len(data) {
		return "", nil
	}
	torn := data[whole:]
	complete := json.Valid(torn)
	if !complete {
		aside, err := s.freeName(name + ".torn-" + strconv.FormatInt(s.nowMillis(), 10))
		if err != nil {
			return "", err
		}
		if err := durable.Write(s.fs, aside, torn); err != nil {
			return "", err
		}
		warning = fmt.Sprintf("%s: line %d was cut off; it was moved to %s",
			s.path(name), bytes.Count(data, []byte{'\n'})+1, path.Base(aside))
		s.log.Warn("torn line of an event log set aside", "file", name, "bytes", len(torn))
	}
	f, err := s.fs.Append(name)
	if err != nil {
		return warning, err
	}
	if complete {
		_, err = f.Write([]byte{'\n'})
	} else {
		err = f.Truncate(int64(whole))
	}
	if err == nil {
		err = f.Sync()
	}
	return warning, errors.Join(err, f.Close())
}

// Append adds an event: one line with seq, time, type and the keys of fields,
// which is nil or becomes a JSON object without those three. The line is in the
// file when Append returns, not synced. After an error nothing of it is there,
// and the log goes on.
func (t *TurnLog) Append(kind string, fields any) error {
	return t.append(kind, t.store.now(), fields)
}

// Text adds a text_delta: the next part of a message. When the turn is
// interrupted, the message is completed from these.
func (t *TurnLog) Text(messageID, delta string) error {
	return t.Append(EventTextDelta, struct {
		MessageID string `json:"messageId"`
		Text      string `json:"text"`
	}{messageID, delta})
}

func (t *TurnLog) append(kind string, now time.Time, fields any) error {
	body, err := eventBody(fields)
	if err != nil {
		return fmt.Errorf("%s: event %s: %w", t.name, kind, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file == nil {
		return fmt.Errorf("%s: the turn has ended", t.name)
	}
	if t.torn {
		if err := t.file.Truncate(t.size); err != nil {
			return fmt.Errorf("event log: %w", err)
		}
		t.torn = false
	}
	line := fmt.Appendf(nil, `{"seq":%d,"time":%q,"type":%s`, t.seq+1, now.UTC().Format(timeFormat), encode(kind))
	line = append(append(line, body...), '}', '\n')
	if err := durable.WriteAll(t.file, t.store.path(t.name), line); err != nil {
		// A half line would run into the next one.
		t.torn = t.file.Truncate(t.size) != nil
		return fmt.Errorf("event log: %w", err)
	}
	t.seq++
	t.size += int64(len(line))
	return nil
}

// eventBody is what follows an event's own keys.
func eventBody(fields any) ([]byte, error) {
	if fields == nil {
		return nil, nil
	}
	raw, err := transcript.EncodeJSON(fields)
	if err != nil {
		return nil, err
	}
	list, err := members(raw)
	if err != nil {
		return nil, err
	}
	var body []byte
	for _, m := range list {
		switch m.key {
		case "seq", "time", "type":
			return nil, fmt.Errorf("the key %q is the event's own", m.key)
		}
		body = append(append(append(append(body, ','), m.rawKey...), ':'), m.value...)
	}
	return body, nil
}

// End adds the last line, makes the log durable and closes it. It is also the
// way to end a turn that was cancelled, so an ended ctx does not keep it from
// being written.
func (t *TurnLog) End(_ context.Context, fields any) error {
	if err := t.Append(EventTurnEnd, fields); err != nil {
		return errors.Join(err, t.close())
	}
	t.mu.Lock()
	err := t.file.Sync()
	t.mu.Unlock()
	if err = errors.Join(err, t.close()); err != nil {
		return fmt.Errorf("event log: %w", err)
	}
	return t.store.fs.SyncDir(path.Dir(t.name))
}

func (t *TurnLog) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file == nil {
		return nil
	}
	err := t.file.Close()
	t.file = nil
	return err
}
