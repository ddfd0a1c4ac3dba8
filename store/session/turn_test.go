package session_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/store/durable/durabletest"
	"sess/store/session"
	"sess/store/transcript"
)

func logPath(dir, name string) string { return filepath.Join(dir, "default", "s1", name) }

// S1-03, S1-04, S1-13, S1-14: a turn is a file of one event a line, each with seq, time
// and type; the first says what the turn is, the last that it ended. Kinds that
// nobody knows are kept.
func TestTurnLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	k := must(s.Lock(t.Context(), ref, "turn", false))(t)
	defer func() { ok(t, k.Unlock()) }()
	log := must(k.BeginTurn(t.Context(), session.TurnHeader{Turn: "t1", Input: "hi <you>", Model: "offline/echo"}))(t)
	ok(t, log.Text("m2", "Hel"))
	ok(t, log.Append("my_own_kind", map[string]any{"a": 1}))
	ok(t, log.Append(session.EventRunFinished, nil))
	for _, fields := range []any{map[string]any{"seq": 4}, "text", func() {}} {
		if err := log.Append("x", fields); err == nil {
			t.Errorf("fields %v were accepted", fields)
		}
	}
	ok(t, log.End(t.Context(), map[string]any{"status": "complete"}))
	if err := log.Text("m2", "late"); err == nil {
		t.Error("an ended log took another event")
	}
	const at = `"time":"2031-12-31T12:00:00.000Z"`
	want := `{"seq":1,` + at + `,"type":"turn_start","turn":"t1","n":1,"input":"hi <you>","model":"offline/echo"}
{"seq":2,` + at + `,"type":"text_delta","messageId":"m2","text":"Hel"}
{"seq":3,` + at + `,"type":"my_own_kind","a":1}
{"seq":4,` + at + `,"type":"run_finished"}
{"seq":5,` + at + `,"type":"turn_end","status":"complete"}
`
	if diff := cmp.Diff(want, string(must(os.ReadFile(logPath(dir, "turn-001.jsonl")))(t))); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	events, warnings, err := s.ReadTurn(t.Context(), ref, 1)
	if err != nil || len(events) != 5 || len(warnings) != 0 || events[2].Type != "my_own_kind" || events[2].Seq != 3 || !events[2].Time.Equal(noon()) {
		t.Errorf("ReadTurn = %v, %v, %v", events, warnings, err)
	}
}

// S1-12: the numbers have three digits and then more, and go on after the highest
// there is; the other spelling of the names is read too.
func TestTurnNumbers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	ok(t, os.MkdirAll(logPath(dir, ""), 0o700))
	for _, name := range []string{"turn_001.jsonl", "turn-007.jsonl", "turn-999.jsonl", "turn-x.jsonl", "turn-1000.txt", "turn-998.jsonl.torn-1"} {
		ok(t, os.WriteFile(logPath(dir, name), []byte(`{"type":"a"}`+"\n"), 0o600))
	}
	ok(t, os.Mkdir(logPath(dir, "turn-2000.jsonl"), 0o700))
	k := must(s.Lock(t.Context(), ref, "turn", false))(t)
	defer func() { ok(t, k.Unlock()) }()
	if log := must(k.BeginTurn(t.Context(), session.TurnHeader{}))(t); log.Number != 1000 || len(log.Warnings) > 0 {
		t.Errorf("BeginTurn = turn %d, %v", log.Number, log.Warnings)
	}
	if got := must(s.Turns(t.Context(), ref))(t); !cmp.Equal(got, []int{1, 7, 999, 1000}) {
		t.Errorf("Turns = %v", got)
	}
	if events, _, err := s.ReadTurn(t.Context(), ref, 1); err != nil || len(events) != 1 {
		t.Errorf("ReadTurn of turn_001.jsonl = %v, %v", events, err)
	}
	if _, _, err := s.ReadTurn(t.Context(), ref, 2); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ReadTurn of no turn = %v", err)
	}
	if got := must(s.Turns(t.Context(), session.Ref{Project: "p", ID: "none"}))(t); len(got) != 0 {
		t.Errorf("Turns of no session = %v", got)
	}
}

// S1-14: a line that was cut off is set aside, and never glued to the next one.
func TestTornLineIsSetAside(t *testing.T) {
	t.Parallel()
	good := `{"seq":1,"type":"turn_start"}` + "\n" + `{"seq":2,"type":"text_delta"}` + "\n" + `{"seq":3,"type":"usage"}` + "\n"
	for _, c := range []struct{ name, end, log, aside, warning string }{
		{"half a line", `{"seq":4,"role":"assi`, good, `{"seq":4,"role":"assi`, "line 4 was cut off"},
		{"only the newline is missing", `{"seq":4,"type":"x"}`, good + `{"seq":4,"type":"x"}` + "\n", "", ""},
		{"whole", "", good, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := open(t, dir)
			ok(t, os.MkdirAll(logPath(dir, ""), 0o700))
			ok(t, os.WriteFile(logPath(dir, "turn-001.jsonl"), []byte(good+c.end), 0o600))
			_, warnings, err := s.ReadTurn(t.Context(), ref, 1)
			if err != nil || (c.aside != "") != (len(warnings) == 1) {
				t.Errorf("ReadTurn before = %v, %v", warnings, err)
			}
			k := must(s.Lock(t.Context(), ref, "turn", false))(t)
			defer func() { ok(t, k.Unlock()) }()
			log := must(k.BeginTurn(t.Context(), session.TurnHeader{}))(t)
			got := strings.Join(log.Warnings, "\n")
			if (got == "") != (c.warning == "") || !strings.Contains(got, c.warning) || c.warning != "" && !strings.Contains(got, "turn-001.jsonl") {
				t.Errorf("warning = %q, want %q", got, c.warning)
			}
			if got := string(must(os.ReadFile(logPath(dir, "turn-001.jsonl")))(t)); got != c.log {
				t.Errorf("log = %q, want %q", got, c.log)
			}
			var aside strings.Builder
			for _, name := range must(filepath.Glob(logPath(dir, "*.torn-*")))(t) {
				aside.WriteString(string(must(os.ReadFile(name))(t)))
			}
			if aside.String() != c.aside {
				t.Errorf("set aside %q, want %q", aside.String(), c.aside)
			}
		})
	}
}

// S1-11: a turn that has ended is in its log after a power cut, whole.
func TestEndedTurnIsDurable(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	dir := filepath.Join(top, "sessions")
	power := must(durabletest.NewPower(top))(t)
	s := must(session.Open(dir, session.Options{Now: noon, FS: power.Open}))(t)
	defer func() { ok(t, s.Close()) }()
	k := must(s.Lock(t.Context(), ref, "turn", false))(t)
	defer func() { ok(t, k.Unlock()) }()
	log := must(k.BeginTurn(t.Context(), session.TurnHeader{Turn: "t1", Input: "hi"}))(t)
	ok(t, log.Text("m2", "Hello"))
	ok(t, log.End(t.Context(), nil))
	want := string(must(os.ReadFile(logPath(dir, "turn-001.jsonl")))(t))
	seed := rand.Uint64()
	for i := range 20 { // what was not synced may be there all the same
		left := filepath.Join(t.TempDir(), "left")
		ok(t, power.Cut(left, rand.New(rand.NewPCG(seed, uint64(i)))))
		got, err := os.ReadFile(logPath(filepath.Join(left, "sessions"), "turn-001.jsonl"))
		if err != nil || string(got) != want {
			t.Fatalf("after a power cut (seed %d, %d): %q, %v; want %q", seed, i, got, err, want)
		}
	}
}

// A full disk cuts a line short: nothing of it may run into the next one.
func TestFailedAppendLeavesNoHalfLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	faulty := &durabletest.Faulty{}
	s := must(session.Open(dir, session.Options{Now: noon, FS: faulty.Open}))(t)
	defer func() { ok(t, s.Close()) }()
	k := must(s.Lock(t.Context(), ref, "turn", false))(t)
	log := must(k.BeginTurn(t.Context(), session.TurnHeader{}))(t)
	for failing := range 2 { // the write alone, then taking it back as well
		faulty.FailAt(0, nil, failing == 1)
		if err := log.Text("m", "lost"); !errors.Is(err, durabletest.ErrInjected) {
			t.Errorf("Text on a full disk = %v", err)
		}
		faulty.Reset()
		ok(t, log.Text("m", "kept"))
	}
	ok(t, log.End(t.Context(), nil))
	ok(t, k.Unlock())
	events, warnings, err := s.ReadTurn(t.Context(), ref, 1)
	if err != nil || len(warnings) > 0 {
		t.Errorf("ReadTurn = %v, %v", warnings, err)
	}
	for i, e := range events {
		if e.Seq != i+1 || strings.Contains(string(e.Raw), "lost") {
			t.Errorf("event %d = %s", i, e.Raw)
		}
	}
	if len(events) != 4 {
		t.Errorf("%d events, want 4", len(events))
	}
}

// interrupted makes a session as a killed process leaves it in a turn.
func interrupted(t testing.TB, s *session.Store) {
	t.Helper()
	create(t, s, ref, "hi")
	k := must(s.Lock(t.Context(), ref, "turn", false))(t)
	l := must(k.Read(t.Context()))(t)
	l.Status, l.ActiveRun = session.StatusRunning, json.RawMessage(`{"turn":"t1"}`)
	ok(t, l.Append(transcript.ListMessages, []byte(`{"id":"m2","role":"agent","content":"Hel","status":"streaming","x":1.0}`)))
	ok(t, l.Append(transcript.ListActivities, []byte(`{"id":"a1","status":"in_progress"}`)))
	ok(t, l.Append(transcript.ListHistory, []byte(`{"role":"assistant","content":"","toolCalls":[{"id":"c1","name":"x","arguments":{}}]}`)))
	must(k.Write(t.Context(), l, 1))(t)
	log := must(k.BeginTurn(t.Context(), session.TurnHeader{Turn: "t1", Input: "hi"}))(t)
	for _, part := range []string{"Hel", "lo, ", "world"} {
		ok(t, log.Text("m2", part))
	}
	ok(t, log.Text("m1", "another message's"))
	ok(t, k.Unlock())
}

// S3-65: a message that was being written has failed, and has the text that the log
// of its turn has of it.
func TestInterruptedSession(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	interrupted(t, s)
	before := fileOf(t, dir, ref)

	check := func(what, got string) {
		t.Helper()
		for _, want := range []string{`{"id":"m2","role":"agent","content":"Hello, world","status":"error"`, `{"id":"a1","status":"failed"}`} {
			if !strings.Contains(got, want) {
				t.Errorf("%s lacks %s:\n%s", what, want, got)
			}
		}
	}
	view := string(must(s.View(t.Context(), ref))(t))
	check("View", view)
	if !strings.Contains(view, `"status":"error"`) || !strings.Contains(view, session.InterruptedText) || strings.Contains(view, "activeRun") {
		t.Errorf("View = %s", view)
	}
	if fileOf(t, dir, ref) != before {
		t.Error("View rewrote the file")
	}

	k := must(s.Lock(t.Context(), ref, "turn", false))(t)
	defer func() { ok(t, k.Unlock()) }()
	l := must(k.Read(t.Context()))(t)
	if !l.Interrupted || len(l.Notices) == 0 || l.Status != session.StatusError || l.Error != session.InterruptedText || l.ActiveRun != nil {
		t.Errorf("Read: %v, %q, %q, %q, %s", l.Interrupted, l.Notices, l.Status, l.Error, l.ActiveRun)
	}
	if fileOf(t, dir, ref) != before {
		t.Error("Read rewrote the file")
	}
	must(k.Write(t.Context(), l, 2))(t)
	check("the file", fileOf(t, dir, ref))
	if got := records(t, l, transcript.ListHistory); len(got) != 3 || !strings.Contains(got[2], transcript.Interrupted) {
		t.Errorf("history = %q", got)
	}
	if l = must(k.Read(t.Context()))(t); len(l.Notices) > 0 {
		t.Errorf("mended again: %q", l.Notices)
	}
}

func TestRecordedErrorIsKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	for recorded, want := range map[string]string{"quota exceeded": "quota exceeded", "": session.InterruptedText} {
		for _, status := range []string{session.StatusRunning, session.StatusPermission} {
			put(t, dir, ref, fmt.Sprintf(`{"id":"s1","status":%q,"error":%q}`, status, recorded))
			var v struct{ Status, Error string }
			ok(t, json.Unmarshal(must(s.View(t.Context(), ref))(t), &v))
			if v.Status != session.StatusError || v.Error != want {
				t.Errorf("recorded %q: status %q, error %q", recorded, v.Status, v.Error)
			}
		}
	}
}

// A turn that does run is shown as it is.
func TestRunningSessionIsNotInterrupted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	interrupted(t, s)
	k := must(s.Lock(t.Context(), ref, "turn", false))(t)
	defer func() { ok(t, k.Unlock()) }()
	view := string(must(s.View(t.Context(), ref))(t))
	if !strings.Contains(view, `"status":"running"`) || !strings.Contains(view, `"status":"streaming"`) || !strings.Contains(view, `"activeRun":{"turn":"t1"}`) {
		t.Errorf("View = %s", view)
	}
	if list := must(s.List(t.Context()))(t); list[0].Status != session.StatusRunning {
		t.Errorf("List = %+v", list)
	}
}

func TestViewLeavesOutWhatClientsCannotShow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	put(t, dir, ref, `{"id":"s1","secret":"x","createdAt":3,"updatedAt":4,"messages":[{"role":"user","content":"no id"},{"id":"a","role":"assistant","content":"role"},{"id":"b","role":"user","content":{}},{"id":"c","role":"user"},7,{"id":"d","role":"user","content":"","status":"complete"},{"uploads":[{"id":"u"}],"id":"e","role":"agent","content":"","artifactIds":null,"eventIds":["x"]}],
"artifacts":[{"id":"1","path":"p","kind":"workspace-file","content":"bytes"},{"id":"2","path":"p","kind":"other"},{"id":"3","kind":"managed-file"},4]}`)
	want := `{"id":"s1","projectId":"default","title":"s1","cwd":"","status":"idle","messages":[{"id":"d","role":"user","content":"","status":"complete","eventIds":[],"artifactIds":[],"uploads":[],"createdAt":0,"updatedAt":0},{"uploads":[{"id":"u"}],"id":"e","role":"agent","content":"","artifactIds":[],"eventIds":["x"],"status":"complete","createdAt":0,"updatedAt":0}],"activities":[],"artifacts":[{"id":"1","path":"p","kind":"workspace-file"}],"createdAt":3,"updatedAt":4,"revision":0}`
	if diff := cmp.Diff(want, string(must(s.View(t.Context(), ref))(t))); diff != "" {
		t.Errorf("View (-want +got):\n%s", diff)
	}
}
