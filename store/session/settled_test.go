package session_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/store/session"
	"sess/store/transcript"
)

// What is saved of a session in a turn is what is complete by then; of one
// whose turn died it is all that had come.
func TestSettled(t *testing.T) {
	t.Parallel()
	const (
		asked     = `{"id":"u1","role":"user","content":"hi","status":"complete"}`
		writing   = `{"id":"a1","role":"agent","content":"","status":"streaming"}`
		call      = `{"role":"assistant","toolCalls":[{"id":"t1","name":"x","arguments":{}},{"id":"t2","name":"x","arguments":{}}]}`
		result    = `{"role":"tool","toolCallId":"t1","content":"one"}`
		result2   = `{"role":"tool","toolCallId":"t2","content":"two"}`
		question  = `{"role":"user","content":"hi"}`
		done      = `{"id":"x1","name":"x","status":"completed"}`
		inProcess = `{"id":"x2","name":"x","status":"in_progress"}`
	)
	tests := []struct {
		name                          string
		messages, activities, history []string
		want                          map[string][]string
	}{
		{
			"the answer has begun",
			[]string{asked, writing},
			nil,
			[]string{question},
			map[string][]string{"messages": {asked}, "history": {question}},
		},
		{
			"a call of two has its result",
			[]string{asked, writing},
			[]string{done, inProcess},
			[]string{question, call, result},
			map[string][]string{"messages": {asked}, "activities": {done}, "history": {question}},
		},
		{
			"both have",
			[]string{asked, writing},
			[]string{done},
			[]string{question, call, result, result2},
			map[string][]string{"messages": {asked}, "activities": {done}, "history": {question, call, result, result2}},
		},
		{
			"nothing is open",
			[]string{asked},
			nil,
			[]string{question},
			map[string][]string{"messages": {asked}, "history": {question}},
		},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := open(t, t.TempDir())
			ref := session.Ref{Project: "p", ID: fmt.Sprintf("s%d", i)}
			l := s.New(ref, "title", "")
			for list, records := range map[string][]string{"messages": tt.messages, "activities": tt.activities, "history": tt.history} {
				for _, r := range records {
					if err := l.Append(list, transcript.Record(r)); err != nil {
						t.Fatal(err)
					}
				}
			}
			l.Status = session.StatusRunning
			if err := s.Create(t.Context(), l); err != nil {
				t.Fatal(err)
			}
			k, err := s.Lock(t.Context(), ref, "turn", false)
			if err != nil {
				t.Fatal(err)
			}
			got, running, err := s.Settled(t.Context(), ref)
			if err != nil || !running {
				t.Fatalf("Settled in a turn: running %v, %v", running, err)
			}
			if diff := cmp.Diff(tt.want, lists(got)); diff != "" {
				t.Errorf("in a turn (-want +got):\n%s", diff)
			}
			if err := k.Unlock(); err != nil {
				t.Fatal(err)
			}
			got, running, err = s.Settled(t.Context(), ref)
			if err != nil || running || got.Status != session.StatusError {
				t.Fatalf("Settled of a dead turn: running %v, status %q, %v", running, got.Status, err)
			}
			if n := len(lists(got)["messages"]); n != len(tt.messages) {
				t.Errorf("of a dead turn %d messages, want all %d", n, len(tt.messages))
			}
			for _, m := range lists(got)["messages"] {
				if strings.Contains(m, `"streaming"`) {
					t.Errorf("of a dead turn: %s", m)
				}
			}
		})
	}
}

func lists(l *session.Live) map[string][]string {
	out := map[string][]string{}
	for name, list := range l.Doc.Lists {
		for _, r := range list.Tail {
			out[name] = append(out[name], string(r))
		}
	}
	return out
}
