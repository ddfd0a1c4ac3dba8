package session_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sess/store/session"
	"sess/store/transcript"
)

// Newest leaves out the oldest messages and activities of a session that has more
// than it shows, and says so; of another it shows what View does.
func TestNewest(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	l := create(t, s, ref, "hi")
	if view, newest := must(s.View(t.Context(), ref))(t), must(s.Newest(t.Context(), ref))(t); !bytes.Equal(view, newest) {
		t.Errorf("Newest of a small session is\n%s\nwant\n%s", newest, view)
	}
	k := must(s.Lock(t.Context(), ref, "test", false))(t)
	defer k.Unlock()
	const many = 800
	for i := range many {
		text := strings.Repeat("word ", 2000)
		ok(t, l.Append(transcript.ListMessages, message(fmt.Sprintf("n%d", i), "user", text)))
		ok(t, l.Append(transcript.ListActivities, transcript.Record(fmt.Sprintf(`{"id":"a%d","name":"x","status":"completed","output":%q}`, i, text))))
	}
	must(k.Write(t.Context(), l, l.Revision))(t)
	var shown struct {
		Messages, Activities []struct{ ID string }
		Omitted              struct{ Messages, Activities int }
	}
	newest := must(s.Newest(t.Context(), ref))(t)
	ok(t, json.Unmarshal(newest, &shown))
	if n := len(newest); n > 2*session.LargestView+64<<10 || n < session.LargestView {
		t.Errorf("Newest has %d bytes", n)
	}
	if a, b := shown.Omitted.Messages+len(shown.Messages), shown.Omitted.Activities+len(shown.Activities); a != many+1 || b != many {
		t.Errorf("%d messages and %d activities are shown or counted, want %d and %d", a, b, many+1, many)
	}
	if a, b := shown.Messages[len(shown.Messages)-1].ID, shown.Activities[len(shown.Activities)-1].ID; a != fmt.Sprintf("n%d", many-1) || b != fmt.Sprintf("a%d", many-1) {
		t.Errorf("the newest that are shown are %s and %s", a, b)
	}
	if shown.Omitted.Messages == 0 || shown.Messages[0].ID != fmt.Sprintf("n%d", shown.Omitted.Messages-1) {
		t.Errorf("%+v are left out, and the first that is shown is %s", shown.Omitted, shown.Messages[0].ID)
	}
}
