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

func call(ids ...string) string {
	item := transcript.HistoryItem{Role: transcript.RoleAssistant}
	for _, id := range ids {
		item.ToolCalls = append(item.ToolCalls, transcript.ToolCall{ID: id, Name: "read", Arguments: json.RawMessage(`{"p": 1}`)})
	}
	data, err := json.Marshal(item)
	if err != nil {
		panic(err)
	}
	return string(data)
}

func result(id string) string {
	return fmt.Sprintf(`{"role":"tool","content":"42","toolCallId":%q}`, id)
}

func stopped(id string) string {
	return fmt.Sprintf(`{"role":"tool","content":"interrupted","toolCallId":%q,"name":"read"}`, id)
}

const (
	user  = `{"role":"user","content":"go on"}`
	reply = `{"role":"assistant","content":"done"}`
)

func document(t testing.TB, seal transcript.Sealer, lists map[string][]string) *transcript.Document {
	t.Helper()
	d := &transcript.Document{}
	for name, records := range lists {
		var all []transcript.Record
		for _, r := range records {
			all = append(all, transcript.Record(r))
		}
		if err := d.List(name).Append(all, seal); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func contents(t *testing.T, m *memory, l *transcript.List) []string {
	t.Helper()
	var list []string
	for _, r := range all(t, m, l, 0, l.Records) {
		list = append(list, string(r))
	}
	return list
}

// normalise normalises and checks that the original is as it was and that doing
// it again finds nothing.
func normalise(t *testing.T, m *memory, d *transcript.Document, fresh func(transcript.ID) bool) (*transcript.Document, []string) {
	t.Helper()
	before := d.Encode()
	got, notices, err := transcript.Normalise(d, m.load, m.seal, fresh)
	if err != nil {
		t.Fatalf("Normalise: %v", err)
	}
	if !bytes.Equal(d.Encode(), before) {
		t.Error("Normalise changed the document that it was given")
	}
	if (got == d) != (len(notices) == 0) {
		t.Errorf("same document: %v, but notices %q", got == d, notices)
	}
	again, more, err := transcript.Normalise(got, m.load, m.seal, fresh)
	if again != got || len(more) != 0 || err != nil {
		t.Errorf("normalised again: changed %v, notices %q, error %v", again != got, more, err)
	}
	return got, notices
}

const (
	messageCall    = `{"role":"assistant","content":"","toolCalls":[{"id":"t1","name":"read"}],"messageId":"m2"}`
	messageStopped = `{"role":"tool","content":"interrupted","toolCallId":"t1","name":"read","messageId":"m2"}`
)

func TestNormaliseHistory(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		in, want []string // want nil: unchanged
		notice   string
	}{
		{"a healthy pair", []string{user, call("t1"), result("t1"), reply}, nil, ""},
		{"results in another order", []string{call("a", "b"), result("b"), result("a"), user}, nil, ""},
		{"an id used again later", []string{call("c"), result("c"), reply, call("c"), result("c")}, nil, ""},
		{"no tools", []string{user, reply}, nil, ""},
		{"items of a provider", []string{`{"type":"function_call","call_id":"x"}`, `{"type":"tool","x":1}`, "not JSON", `["tool"]`}, nil, ""},
		{"nothing", nil, nil, ""},
		{"ends with a call", []string{user, call("t1")}, []string{user, call("t1"), stopped("t1")}, "1 tool call had no result"},
		{"call, then a user", []string{call("t1"), user}, []string{call("t1"), stopped("t1"), user}, "1 tool call had no result"},
		{"unknown id", []string{user, result("zz"), reply}, []string{user, reply}, "1 result belonged to no tool call"},
		{"only an unknown id", []string{result("zz")}, []string{}, "1 result belonged to no tool call"},
		{"a second result", []string{call("t1"), result("t1"), result("t1")}, []string{call("t1"), result("t1")}, "1 result belonged to no tool call"},
		{"two calls, one answered", []string{call("a", "b"), result("a"), user}, []string{call("a", "b"), stopped("b"), result("a"), user}, "1 tool call had no result"},
		{"the result belongs to the call's message", []string{messageCall}, []string{messageCall, messageStopped}, "1 tool call had no result"},
		{"two calls, none answered", []string{call("a", "b")}, []string{call("a", "b"), stopped("a"), stopped("b")}, "2 tool calls had no result"},
		{"a late result", []string{call("a"), user, result("a"), reply}, []string{call("a"), result("a"), user, reply}, "1 result stood too far"},
		{"a call without result before the same id", []string{call("c"), user, call("c"), result("c")}, []string{call("c"), stopped("c"), user, call("c"), result("c")}, "1 tool call had no result"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := newMemory()
			d := document(t, m.seal, map[string][]string{transcript.ListHistory: tc.in})
			got, notices := normalise(t, m, d, nil)
			if tc.want == nil {
				if got != d {
					t.Errorf("changed to %q", contents(t, m, got.List(transcript.ListHistory)))
				}
				return
			}
			if diff := cmp.Diff(tc.want, append([]string{}, contents(t, m, got.List(transcript.ListHistory))...)); diff != "" {
				t.Errorf("history (-want +got):\n%s", diff)
			}
			if len(notices) != 1 || !strings.HasPrefix(notices[0], tc.notice) {
				t.Errorf("notices %q, want one that begins with %q", notices, tc.notice)
			}
		})
	}
}

func TestNormaliseStates(t *testing.T) {
	t.Parallel()
	m := newMemory()
	d := document(t, m.seal, map[string][]string{
		transcript.ListMessages: {
			`{"id":"1","status":"complete","content":"is streaming"}`,
			`{"id":"2", "status" : "streaming", "x":{"status":"streaming"}, "y":1.0}`,
			`{"id":"3","x":{"status":"streaming"}}`,
			`"streaming"`,
			`{"id":"4","status":["streaming"]}`,
		},
		transcript.ListActivities: {
			`{"id":"1","status":"pending"}`,
			`{"id":"2","status":"completed"}`,
			`{"id":"3","status":"in_progress","rawInput":{"a": "pending"}}`,
			`{"id":"4","status":"failed","title":"pending"}`,
		},
	})
	got, notices := normalise(t, m, d, nil)
	want := map[string][]string{
		transcript.ListMessages: {
			`{"id":"1","status":"complete","content":"is streaming"}`,
			`{"id":"2", "status" : "error", "x":{"status":"streaming"}, "y":1.0}`,
			`{"id":"3","x":{"status":"streaming"}}`,
			`"streaming"`,
			`{"id":"4","status":["streaming"]}`,
		},
		transcript.ListActivities: {
			`{"id":"1","status":"failed"}`,
			`{"id":"2","status":"completed"}`,
			`{"id":"3","status":"failed","rawInput":{"a": "pending"}}`,
			`{"id":"4","status":"failed","title":"pending"}`,
		},
	}
	for name, records := range want {
		if diff := cmp.Diff(records, contents(t, m, got.List(name))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if len(notices) != 2 || !strings.HasPrefix(notices[0], "1 message was") || !strings.HasPrefix(notices[1], "2 activities were") {
		t.Errorf("notices %q", notices)
	}
}

// big is an item that fills a chunk.
func big(role string, i int) string {
	return fmt.Sprintf(`{"role":%q,"content":"%d %s"}`, role, i, strings.Repeat("word ", 8000))
}

// TestNormaliseSealed mends records in chunks, in the index and out of it, and
// gives what building the mended list anew gives.
func TestNormaliseSealed(t *testing.T) {
	t.Parallel()
	m := newMemory()
	var in, want []string
	for i := range 600 {
		item := big("user", i)
		in, want = append(in, item), append(want, item)
		switch {
		case i%97 == 3:
			in, want = append(in, call("x")), append(want, call("x"), stopped("x"))
		case i%97 == 50:
			in = append(in, result("unknown"))
		case i%97 == 60:
			in, want = append(in, call("y"), result("y")), append(want, call("y"), result("y"))
		}
	}
	d := document(t, m.seal, map[string][]string{transcript.ListHistory: in})
	if l := d.List(transcript.ListHistory); len(l.Index) == 0 {
		t.Fatal("no index chunk")
	}
	everything := func(transcript.ID) bool { return true }
	got, _ := normalise(t, m, d, everything)
	anew := document(t, newMemory().seal, map[string][]string{transcript.ListHistory: want})
	if got.Digest() != anew.Digest() {
		t.Error("the mended history is not what building it anew gives")
	}
	if !slices.Equal(contents(t, m, got.List(transcript.ListHistory)), want) {
		t.Error("the mended history has other records")
	}
	clear(m.loads)
	if same, _ := normalise(t, m, d, nil); same != d || len(m.loads) != 0 {
		t.Errorf("with nothing fresh: changed %v, %d chunks loaded", same != d, len(m.loads))
	}
}

func TestNormaliseAcrossChunks(t *testing.T) {
	t.Parallel()
	giant := strings.Replace(call("g"), `"content":""`, `"content":"`+strings.Repeat("x", 2<<20)+`"`, 1)
	bigResult := strings.Replace(big("tool", 1), `"role"`, `"toolCallId":"a","role"`, 1)
	for _, tc := range []struct {
		name     string
		in, want []string // want nil: unchanged
	}{
		{"the call is in a chunk, one result in the tail", []string{call("a", "b"), bigResult, result("b"), user}, nil},
		{"the call is a giant, its result the tail", []string{user, giant, result("g")}, nil},
		{"ends with a giant call", []string{user, giant}, []string{user, giant, stopped("g")}},
		{"a result in the tail belongs to nothing", []string{big("user", 1), result("a"), user}, []string{big("user", 1), user}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := newMemory()
			d := document(t, m.seal, map[string][]string{transcript.ListHistory: tc.in})
			if len(d.List(transcript.ListHistory).Chunks) == 0 {
				t.Fatal("nothing is sealed")
			}
			got, _ := normalise(t, m, d, nil)
			want := tc.want
			if want == nil {
				want = tc.in
			}
			if !slices.Equal(contents(t, m, got.List(transcript.ListHistory)), want) || (tc.want == nil) != (got == d) {
				t.Errorf("changed %v; the history is not as wanted", got != d)
			}
		})
	}
}

func TestNormaliseReportsWhatItCannotLoad(t *testing.T) {
	t.Parallel()
	m := newMemory()
	d := document(t, m.seal, map[string][]string{transcript.ListMessages: {big("user", 1), user}})
	gone := errors.New("gone")
	load := func(transcript.ID) ([]byte, error) { return nil, gone }
	got, _, err := transcript.Normalise(d, load, nil, func(transcript.ID) bool { return true })
	if got != nil || !errors.Is(err, gone) || !strings.Contains(err.Error(), transcript.ListMessages) {
		t.Errorf("Normalise = %v, %v; want the loader's error with the list's name", got, err)
	}
}

func TestDropContinuation(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ in, want string }{
		{`{"title": "x", "providerState": {"continuation": "r1", "kept": 1.0}, "continuation": 2}`, `{"title":"x","providerState":{"kept":1.0},"continuation":2}`},
		{`{"providerState":{"openai":{"continuation":{"id":"r"},"x":[ 1 ]},"y":2}}`, `{"providerState":{"openai":{"x":[ 1 ]},"y":2}}`},
		{`{"providerState":{"openai":{"deep":{"continuation":1}}}}`, ""},
		{`{"providerState": null}`, ""},
		{`{"continuation":1}`, ""},
		{`{}`, ""},
		{``, ""},
	} {
		d := &transcript.Document{Header: json.RawMessage(tc.in)}
		got := transcript.DropContinuation(d)
		if string(d.Header) != tc.in {
			t.Errorf("%s: the original was changed to %s", tc.in, d.Header)
		}
		if tc.want == "" {
			if got != d {
				t.Errorf("%s: changed to %s", tc.in, got.Header)
			}
			continue
		}
		if string(got.Header) != tc.want {
			t.Errorf("%s: got %s, want %s", tc.in, got.Header, tc.want)
		}
	}
}

// FuzzNormalise builds a history from a script, one item a byte, and checks what
// a provider asks for: every call has one result behind it, and no result is
// without a call.
func FuzzNormalise(f *testing.F) {
	f.Add("cBr", byte(10)) // leaving out the last result brings the call back into the tail
	for _, s := range []string{"", "uc", "cu", "r", "dr", "dRr", "cr", "cuur", "crdrRu", "ccrr", "Bcur", "BcBrBdBBRrBc"} {
		f.Add(s, byte(255))
		f.Add(s, byte(0b1010))
	}
	f.Fuzz(func(t *testing.T, script string, freshBits byte) {
		if len(script) > 60 {
			return
		}
		var in []string
		for i, c := range script {
			switch c {
			case 'c':
				in = append(in, call("a"))
			case 'd':
				in = append(in, call("a", "b"))
			case 'r':
				in = append(in, result("a"))
			case 'R':
				in = append(in, result("b"))
			case 'B':
				in = append(in, big("user", i))
			default:
				in = append(in, user)
			}
		}
		m := newMemory()
		d := document(t, m.seal, map[string][]string{transcript.ListHistory: in})
		fresh := func(id transcript.ID) bool {
			return freshBits == 255 || freshBits>>(id[0]&7)&1 == 1
		}
		got, _ := normalise(t, m, d, fresh)
		anew := document(t, nil, map[string][]string{transcript.ListHistory: contents(t, m, got.List(transcript.ListHistory))})
		if got.Digest() != anew.Digest() {
			t.Error("the mended history is not cut as one built anew")
		}
		if freshBits != 255 {
			return // what is not fresh may be as it likes
		}
		open := map[string]int{}
		for i, r := range contents(t, m, got.List(transcript.ListHistory)) {
			var item transcript.HistoryItem
			if err := json.Unmarshal([]byte(r), &item); err != nil {
				t.Fatal(err)
			}
			if item.Role == transcript.RoleTool {
				if open[item.ToolCallID]--; open[item.ToolCallID] < 0 {
					t.Fatalf("%q: item %d is a result of no call", script, i)
				}
				continue
			}
			for id, n := range open {
				if n > 0 {
					t.Fatalf("%q: before item %d the call %s has no result", script, i, id)
				}
			}
			for _, c := range item.ToolCalls {
				open[c.ID]++
			}
		}
		for id, n := range open {
			if n > 0 {
				t.Fatalf("%q: at the end the call %s has no result", script, id)
			}
		}
	})
}
