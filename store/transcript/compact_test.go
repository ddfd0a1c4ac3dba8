package transcript_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/store/transcript"
)

// compactedItem is what stands in the place of history.
const compactedItem = `{"role":"system","content":"shorter","native":{"kind":"k","items":[{"a": "<b>"}]}}`

func upTo(n int) transcript.Compaction {
	return transcript.Compaction{Plugin: "p", Provider: "cloud", Range: transcript.Range{End: new(n)}, At: 7}
}

func TestHistoryOf(t *testing.T) {
	t.Parallel()
	named := []string{
		item("u1", "user", "one"), callOf("a1", "t"), resultOf("a1", "t"), item("a1", "assistant", "1"),
		item("u2", "user", "two"), item("a2", "assistant", "2"),
	}
	unnamed := []string{
		plain("system", "be brief"), plain("user", "one"), call("t"), result("t"), plain("assistant", "1"),
		plain("user", "two"), plain("assistant", "2"),
	}
	for _, tc := range []struct {
		name     string
		messages []string
		history  []string
		want     []int // for each number of messages
	}{
		{"with ids", twoTurns(), named, []int{0, 1, 4, 5, 6, 6}},
		{"without ids, counted from the end", twoTurns(), unnamed, []int{0, 2, 5, 6, 7, 7}},
		{"without ids, shortened at the front", twoTurns(), unnamed[5:], []int{0, 0, 0, 1, 2, 2}},
		{"some without", twoTurns(), slices.Concat(unnamed[:5], named[4:]), []int{0, 2, 5, 6, 7, 7}},
		{"a message without a share", append(twoTurns(), said("a3", "agent", "")), named, []int{0, 1, 4, 5, 6, 6, 6}},
		{"no history", twoTurns(), nil, []int{0, 0, 0, 0, 0}},
		{"nothing", nil, nil, []int{0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := newMemory()
			d := document(t, m.seal, map[string][]string{transcript.ListMessages: tc.messages, transcript.ListHistory: tc.history})
			var got []int
			for n := range tc.want {
				share, err := transcript.HistoryOf(d, m.load, n)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, share)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("HistoryOf for 0, 1, 2… messages (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCompact(t *testing.T) {
	t.Parallel()
	m := newMemory()
	history := []string{
		item("u1", "user", "one"), item("a1", "assistant", "1"), item("u2", "user", "two"), item("a2", "assistant", "2"),
	}
	for _, header := range []string{"", `{}`, ` { "title" : "t" , "providerState":{"a":1}, "compaction":{"plugin":"old"} } `, `{"title" : "t"}`} {
		d := document(t, m.seal, map[string][]string{transcript.ListMessages: twoTurns(), transcript.ListHistory: history})
		d.Header = json.RawMessage(header)
		if err := transcript.Compact(d, m.load, m.seal, transcript.Record(compactedItem), upTo(2)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(append([]string{compactedItem}, history[2:]...), contents(t, m, d.List(transcript.ListHistory))); diff != "" {
			t.Errorf("history (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(twoTurns(), contents(t, m, d.List(transcript.ListMessages))); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
		if got := transcript.CompactionOf(d.Header); got.Messages() != 2 || got.Provider != "cloud" || got.Plugin != "p" || got.At != 7 {
			t.Errorf("CompactionOf = %+v", got)
		}
		var kept map[string]json.RawMessage
		if err := json.Unmarshal(d.Header, &kept); err != nil || kept["providerState"] != nil || (kept["title"] != nil) != strings.Contains(header, "title") {
			t.Errorf("the header %s became %s (%v)", header, d.Header, err)
		}
		if err := d.Validate(); err != nil {
			t.Error(err)
		}
	}
}

func TestCompactRefuses(t *testing.T) {
	t.Parallel()
	m := newMemory()
	gone := errors.New("gone")
	var messages, history []string
	for i := range 300 {
		id := fmt.Sprint("u", i)
		messages = append(messages, said(id, "user", strings.Repeat("word ", 100)))
		history = append(history, item(id, "user", strings.Repeat("word ", 100)))
	}
	d := document(t, m.seal, map[string][]string{transcript.ListMessages: messages, transcript.ListHistory: history})
	before := d.Encode()
	for _, tc := range []struct {
		name string
		load transcript.Loader
		item string
		n    int
		want string
	}{
		{"no messages", m.load, compactedItem, 0, "no history belongs to the messages"},
		{"what it cannot load", func(transcript.ID) ([]byte, error) { return nil, gone }, compactedItem, 20, "gone"},
		{"an item of two lines", m.load, "{\n}", 20, "newline"},
	} {
		err := transcript.Compact(d, tc.load, m.seal, transcript.Record(tc.item), upTo(tc.n))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: Compact = %v, want an error with %q", tc.name, err, tc.want)
		}
		if diff := cmp.Diff(string(before), string(d.Encode())); diff != "" {
			t.Errorf("%s: the document was changed", tc.name)
		}
	}
}

// Whoever cannot read what stands for the beginning is told the messages.
func TestHistoryForEachProvider(t *testing.T) {
	t.Parallel()
	m := newMemory()
	messages := append(twoTurns(), said("n", "narrator", "x"), said("e", "agent", ""))
	d := document(t, m.seal, map[string][]string{
		transcript.ListMessages: messages,
		transcript.ListHistory:  {compactedItem, item("u2", "user", "two"), `{"other":"shape"}`, item("a2", "assistant", "2")},
	})
	read := func(provider string, from, to int) []string {
		t.Helper()
		var got []string
		for h, err := range transcript.History(d, m.load, provider, from, to) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%s %s %s", h.Role, h.Content, h.MessageID))
		}
		return got
	}
	rest := []string{"user two u2", "  ", "assistant 2 a2"}
	equal := func(what string, want, got []string) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	equal("without a compaction", append([]string{"system shorter "}, rest...), read("other", 0, math.MaxInt))
	d.Header = json.RawMessage(`{"compaction":{"plugin":"p","provider":"cloud","range":{"start":0,"end":2},"at":7}}`)
	equal("its own provider", append([]string{"system shorter "}, rest...), read("cloud", 0, math.MaxInt))
	equal("another one", append([]string{"user one u1", "assistant 1 a1"}, rest...), read("other", 0, math.MaxInt))
	equal("another one, the rest", rest, read("other", 1, math.MaxInt))
	equal("another one, the beginning", []string{"user one u1", "assistant 1 a1"}, read("other", 0, 1))
	equal("nothing", nil, read("other", 0, 0))
	var told []string
	for h, err := range transcript.Told(d, m.load, len(messages)) {
		if err != nil {
			t.Fatal(err)
		}
		told = append(told, h.Content)
	}
	equal("all messages that say something", []string{"one", "1", "two", "2"}, told)
}
