package tests

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sess/surfaces"
)

// A model that lists more snapshots than fit into one answer, and then those
// that the answer leaves out, sees each of them once.
func TestModelWalksALongList(t *testing.T) {
	t.Parallel()
	const many = 30
	u := newUser(t)
	u.chat("hello")
	var all, lines []string
	for i := range many {
		all = append(all, fmt.Sprintf("s%03d", i))
		lines = append(lines, fmt.Sprintf("/sess save s%03d --note=%q", i, strings.Repeat("words ", 150)))
	}
	u.chat(lines...)
	slices.Reverse(all)

	var shown []string
	answers := 0
	for after := ""; len(shown) < many; answers++ {
		events := u.chat(`call sess_manage {"action":"list"` + after + `}`)
		i := slices.IndexFunc(events, func(e chatEvent) bool { return e.Kind == "tool_finished" })
		if i < 0 || events[i].Failed || len(events[i].Text) > surfaces.MaxToolText {
			t.Fatalf("the model's call has no answer, or one of more than %d bytes: %+v", surfaces.MaxToolText, events)
		}
		said, data, _ := strings.Cut(events[i].Text, "\n\n")
		var part []struct{ Name string }
		if err := json.Unmarshal([]byte(data), &part); err != nil {
			t.Fatalf("the data of the answer: %v\n%s", err, events[i].Text)
		}
		for _, s := range part {
			shown = append(shown, s.Name)
		}
		_, next, more := strings.Cut(said, `call again with the same fields and with "after": `)
		if !more {
			break
		}
		after = `,"after":` + strings.TrimSpace(next)
	}
	if !slices.Equal(shown, all) || answers == 0 {
		t.Errorf("the model was shown %d snapshots\n%q\nwant these %d on several pages\n%q", len(shown), shown, many, all)
	}
}
