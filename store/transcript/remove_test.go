package transcript_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/store/transcript"
)

// said is a message, and of a history item the share of one.
func said(id, role, content string) string {
	return fmt.Sprintf(`{"id":%q,"role":%q,"content":%q,"status":"complete"}`, id, role, content)
}

func item(message, role, content string) string {
	return fmt.Sprintf(`{"role":%q,"content":%q,"messageId":%q}`, role, content, message)
}

func plain(role, content string) string {
	return fmt.Sprintf(`{"role":%q,"content":%q}`, role, content)
}

func callOf(message string, ids ...string) string {
	return strings.TrimSuffix(call(ids...), "}") + fmt.Sprintf(`,"messageId":%q}`, message)
}

func resultOf(message, id string) string {
	return strings.TrimSuffix(result(id), "}") + fmt.Sprintf(`,"messageId":%q}`, message)
}

func stoppedOf(message, id string) string {
	return strings.TrimSuffix(stopped(id), "}") + fmt.Sprintf(`,"messageId":%q}`, message)
}

func activity(message, id string) string {
	return fmt.Sprintf(`{"id":%q,"messageId":%q,"status":"completed"}`, id, message)
}

// twoTurns is u1 a1 u2 a2, of which a2 has called a tool.
func twoTurns() []string {
	return []string{said("u1", "user", "one"), said("a1", "agent", "1"), said("u2", "user", "two"), said("a2", "agent", "2")}
}

func TestRemoveMessages(t *testing.T) {
	t.Parallel()
	named := []string{
		item("u1", "user", "one"), item("a1", "assistant", "1"),
		item("u2", "user", "two"), callOf("a2", "t"), resultOf("a2", "t"), item("a2", "assistant", "2"),
	}
	unnamed := []string{
		plain("system", "be brief"), plain("user", "one"), plain("assistant", "1"),
		plain("user", "two"), call("t"), result("t"), plain("assistant", "2"),
	}
	// Two messages of one turn share a call and its result.
	split := []string{said("u1", "user", "one"), said("c", "agent", "I look"), said("r", "agent", "42"), said("a", "agent", "it is 42")}
	splitHistory := []string{item("u1", "user", "one"), callOf("c", "t"), resultOf("r", "t"), item("a", "assistant", "it is 42")}
	for _, tc := range []struct {
		name              string
		messages, history []string
		header            string
		indices           []int
		wantHistory       []string
		want              transcript.Removed
		wantHeader        string
	}{
		{
			name: "a user's", messages: twoTurns(), history: named, indices: []int{2},
			wantHistory: slices.Delete(slices.Clone(named), 2, 3), want: transcript.Removed{Messages: 1, Items: 1},
		},
		{
			name: "an agent's, with its tools", messages: twoTurns(), history: named, indices: []int{3},
			wantHistory: named[:3], want: transcript.Removed{Messages: 1, Items: 3, Activities: 2},
		},
		{
			name: "the first and the last", messages: twoTurns(), history: named, indices: []int{0, 3},
			wantHistory: named[1:3], want: transcript.Removed{Messages: 2, Items: 4, Activities: 2},
		},
		{
			name: "all", messages: twoTurns(), history: named, indices: []int{0, 1, 2, 3},
			want: transcript.Removed{Messages: 4, Items: 6, Activities: 3},
		},
		{
			name: "without ids, a user's", messages: twoTurns(), history: unnamed, indices: []int{0},
			wantHistory: slices.Delete(slices.Clone(unnamed), 1, 2), want: transcript.Removed{Messages: 1, Items: 1},
		},
		{
			name: "without ids, an agent's", messages: twoTurns(), history: unnamed, indices: []int{3},
			wantHistory: unnamed[:4], want: transcript.Removed{Messages: 1, Items: 3, Activities: 2},
		},
		{
			name: "without ids, history shortened at its front", messages: twoTurns(), history: unnamed[3:], indices: []int{0, 1, 2},
			wantHistory: unnamed[4:], want: transcript.Removed{Messages: 3, Items: 1, Activities: 1},
		},
		{
			name: "without ids, one of two answers, told by what it says", messages: []string{said("u", "user", "x"), said("a", "agent", "1"), said("b", "agent", "2")},
			history: []string{plain("user", "x"), plain("assistant", "1"), plain("assistant", "2")}, indices: []int{2},
			wantHistory: []string{plain("user", "x"), plain("assistant", "1")}, want: transcript.Removed{Messages: 1, Items: 1},
		},
		{
			name: "some with ids, some without", messages: twoTurns(), history: slices.Concat(unnamed[1:3], named[2:]), indices: []int{0, 3},
			wantHistory: []string{unnamed[2], named[2]}, want: transcript.Removed{Messages: 2, Items: 4, Activities: 2},
		},
		{
			name: "an answer before any question", messages: []string{said("a", "agent", "hello"), said("u", "user", "x")},
			history: []string{plain("assistant", "hello"), plain("user", "x")}, indices: []int{0},
			wantHistory: []string{plain("user", "x")}, want: transcript.Removed{Messages: 1, Items: 1},
		},
		{
			name: "a call without its result", messages: split, history: splitHistory, indices: []int{1},
			wantHistory: []string{splitHistory[0], splitHistory[3]}, want: transcript.Removed{Messages: 1, Items: 2, Results: 1},
		},
		{
			name: "a result without its call", messages: split, history: splitHistory, indices: []int{2},
			wantHistory: []string{splitHistory[0], splitHistory[1], stoppedOf("c", "t"), splitHistory[3]},
			want:        transcript.Removed{Messages: 1, Items: 1, Interrupted: 1},
		},
		{
			name: "both halves", messages: split, history: splitHistory, indices: []int{1, 2},
			wantHistory: []string{splitHistory[0], splitHistory[3]}, want: transcript.Removed{Messages: 2, Items: 2},
		},
		{
			name: "what the provider knows", messages: twoTurns(), history: named, indices: []int{3},
			header: `{"title":"t","providerState":{"id":"resp_1"},"x": 1.0}`, wantHeader: `{"title":"t","x":1.0}`,
			wantHistory: named[:3], want: transcript.Removed{Messages: 1, Items: 3, Activities: 2},
		},
		{
			name: "compacted ones", messages: twoTurns(), history: []string{plain("system", "summary of one and 1"), named[2], named[5]}, indices: []int{0, 3},
			header:      `{"compaction":{"plugin":"p","range":{"start":0,"end":2},"at":1}}`,
			wantHeader:  `{"compaction":{"plugin":"p","range":{"start":0,"end":1},"at":1}}`,
			wantHistory: []string{plain("system", "summary of one and 1"), named[2]},
			want:        transcript.Removed{Messages: 2, Items: 1, Activities: 2, Compacted: 1},
		},
		{
			name: "compacted ones alone", messages: twoTurns(), history: []string{plain("user", "one"), named[2], named[5]}, indices: []int{1},
			header:      `{"compaction":{"range":{"start":0,"end":2}}}`,
			wantHeader:  `{"compaction":{"range":{"start":0,"end":1}}}`,
			wantHistory: []string{plain("user", "one"), named[2], named[5]},
			want:        transcript.Removed{Messages: 1, Activities: 1, Compacted: 1},
		},
		{name: "none", messages: twoTurns(), history: named, header: `{"providerState":{}}`, wantHeader: `{"providerState":{}}`, wantHistory: named},
		{
			name: "items of other shapes", messages: []string{`{"id":"m","role":"user","content":[1]}`, "no JSON"},
			history: []string{`{"type":"x","messageId":"m"}`, "no JSON", `[1]`}, indices: []int{0, 1},
			wantHistory: []string{"no JSON", `[1]`}, want: transcript.Removed{Messages: 2, Items: 1},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := newMemory()
			activities := []string{activity("a1", "x"), activity("a2", "y"), activity("a2", "z")}
			d := document(t, m.seal, map[string][]string{
				transcript.ListMessages: tc.messages, transcript.ListActivities: activities, transcript.ListHistory: tc.history,
			})
			if tc.header != "" {
				d.Header = json.RawMessage(tc.header)
			}
			got, err := transcript.RemoveMessages(d, m.load, m.seal, tc.indices)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Removed (-want +got):\n%s", diff)
			}
			want := slices.Clone(tc.messages)
			for _, i := range slices.Backward(tc.indices) {
				want = slices.Delete(want, i, i+1)
			}
			if got := contents(t, m, d.List(transcript.ListMessages)); !slices.Equal(got, want) {
				t.Errorf("messages %q, want %q", got, want)
			}
			if diff := cmp.Diff(append([]string{}, tc.wantHistory...), append([]string{}, contents(t, m, d.List(transcript.ListHistory))...)); diff != "" {
				t.Errorf("history (-want +got):\n%s", diff)
			}
			if n := d.List(transcript.ListActivities).Records; n != len(activities)-tc.want.Activities {
				t.Errorf("%d activities are left, %d were removed", n, tc.want.Activities)
			}
			if string(d.Header) != tc.wantHeader {
				t.Errorf("header %s, want %s", d.Header, tc.wantHeader)
			}
			// What is left is valid: there is nothing to mend.
			if again, notices, err := transcript.Normalise(d, m.load, m.seal, func(transcript.ID) bool { return true }); again != d || err != nil {
				t.Errorf("it has to be mended: %q, %v", notices, err)
			}
		})
	}
}

func TestRemoveMessagesRefuses(t *testing.T) {
	t.Parallel()
	gone := errors.New("gone")
	for _, tc := range []struct {
		name    string
		indices []int
		load    transcript.Loader
		want    string
	}{
		{"an index behind the end", []int{601}, nil, "remove message 601: there are 601"},
		{"a negative one", []int{-1}, nil, "remove message -1"},
		{"twice the same", []int{3, 3}, nil, "not in order"},
		{"descending ones", []int{3, 2}, nil, "not in order"},
		{"what it cannot load", []int{0}, func(transcript.ID) ([]byte, error) { return nil, gone }, "gone"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := newMemory()
			var messages []string
			for i := range 600 {
				messages = append(messages, big("user", i))
			}
			d := document(t, m.seal, map[string][]string{transcript.ListMessages: append(messages, user)})
			before := d.Encode()
			load := tc.load
			if load == nil {
				load = m.load
			}
			got, err := transcript.RemoveMessages(d, load, m.seal, tc.indices)
			if err == nil || !strings.Contains(err.Error(), tc.want) || got != (transcript.Removed{}) {
				t.Errorf("RemoveMessages = %+v, %v; want an error with %q", got, err, tc.want)
			}
			if !bytes.Equal(d.Encode(), before) {
				t.Error("the document was changed")
			}
		})
	}
}

// TestRemoveMessagesOfALongConversation removes messages in chunks and out of
// them, gives what building the rest anew gives, and looks only at the end where
// only that is concerned.
func TestRemoveMessagesOfALongConversation(t *testing.T) {
	t.Parallel()
	m := newMemory()
	long := strings.Repeat("word ", 4000)
	lists := func(gone []int) map[string][]string {
		all := map[string][]string{}
		for turn := range 100 {
			u, a := fmt.Sprint("u", turn), fmt.Sprint("a", turn)
			for i, add := range []func(){
				func() {
					all[transcript.ListMessages] = append(all[transcript.ListMessages], said(u, "user", long))
					all[transcript.ListHistory] = append(all[transcript.ListHistory], item(u, "user", long))
				},
				func() {
					all[transcript.ListMessages] = append(all[transcript.ListMessages], said(a, "agent", long))
					all[transcript.ListActivities] = append(all[transcript.ListActivities], activity(a, "x"), activity(a, long))
					all[transcript.ListHistory] = append(all[transcript.ListHistory], callOf(a, "t"), resultOf(a, "t"), item(a, "assistant", long))
				},
			} {
				if !slices.Contains(gone, 2*turn+i) {
					add()
				}
			}
		}
		return all
	}
	d := document(t, m.seal, lists(nil))
	for _, indices := range [][]int{{199}, {198, 199}, {0}, {1, 60, 61, 101, 190}, {3, 4, 5, 6, 7, 8, 9}} {
		got := d.Clone()
		clear(m.loads)
		if _, err := transcript.RemoveMessages(got, m.load, m.seal, indices); err != nil {
			t.Fatal(err)
		}
		loaded := m.loaded(transcript.KindRecords)
		if anew := document(t, newMemory().seal, lists(indices)); got.Digest() != anew.Digest() {
			t.Errorf("%v: not what building the rest anew gives", indices)
		}
		if indices[0] >= 198 && loaded > 24 {
			t.Errorf("%v: %d chunks were loaded", indices, loaded)
		}
	}
}
