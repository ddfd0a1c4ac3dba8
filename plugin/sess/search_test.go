package sess_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"sess/plugin"
	"sess/store/transcript"
)

// place is a hit in the answer of search.
type place struct {
	Kind, Name, Project, Title, List, Role, Excerpt string
	Index                                           int
	Match                                           []int
	Also                                            int
}

func (p place) String() string {
	return fmt.Sprintf("%s %s/%s %s %d %s +%d", p.Kind, p.Project, p.Name, p.List, p.Index, p.Role, p.Also)
}

// found is what search answers.
func (w *world) found(argv ...string) []place {
	w.Helper()
	var all []place
	w.decode(w.do(append([]string{"search"}, argv...)...), &all)
	for _, p := range all {
		if len(p.Match) != 2 || p.Match[0] < 0 || p.Match[1] <= p.Match[0] || p.Match[1] > utf8.RuneCountInString(p.Excerpt) {
			w.Errorf("search %q: the match is at %v of %q", argv, p.Match, p.Excerpt)
		}
	}
	return all
}

// finds makes sure of all places, in order.
func (w *world) finds(want []string, argv ...string) {
	w.Helper()
	got := []string{}
	for _, p := range w.found(argv...) {
		got = append(got, p.String())
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		w.Errorf("search %q finds\n%s\nwant\n%s", argv, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Records of more than a chunk may be the same for as long as a piece of them.
func TestSearchInGiantRecords(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	ref := w.session("default", "s1", 0)
	giant := func(end string) transcript.Record {
		return transcript.Record(`{"role":"agent","content":"` + strings.Repeat("long ", 300_000) + end + `"}`)
	}
	w.change(ref, func(l *live) {
		records := []transcript.Record{giant("first needle"), giant("second needle"), transcript.Record(`{"role":"user","content":"ok"}`)}
		if err := l.doc.List(transcript.ListMessages).Append(records, sealed(t, w.host)); err != nil {
			t.Fatal(err)
		}
	})
	w.finds([]string{"session default/s1 messages 0 agent +0"}, "first needle")
	w.finds([]string{"session default/s1 messages 1 agent +0"}, "second needle")
}

// Every place where people can read something is searched, in any case and in
// any spelling of Unicode; what is stored stays as it was.
func TestSearch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	const composed, decomposed = "Caf\u00e9 Noir", "cafe\u0301 noir"
	w.change(w.ref, func(l *live) {
		add(t, w.host, l, transcript.ListMessages, transcript.Message{ID: "x", Role: "user", Content: "a " + decomposed + " please,\nand \"quotes\" <b>", Status: "complete"})
		add(t, w.host, l, transcript.ListActivities, transcript.Activity{ID: "y", Name: "brew", Status: "completed", RawInput: mustJSON(t, map[string]string{"kind": composed})})
		if err := l.doc.List(transcript.ListMessages).Append([]transcript.Record{transcript.Record(`{"id":"z","role":"agent","content":"the caf\u00c9 is escaped, \u212Aelvin","status":"complete"}`)}, nil); err != nil {
			t.Fatal(err)
		}
	})
	w.add(time.Hour)
	w.do("save", "v1", "--note="+decomposed+" note", "--tags=place="+composed)
	want := []string{
		"snapshot default/v1 meta 0 tags +0", "snapshot default/v1 meta 0 note +0",
		"snapshot default/v1 messages 11 agent +1", "snapshot default/v1 messages 10 user +1", "snapshot default/v1 activities 0 tool +1",
	}
	for _, text := range []string{"café", "CAFÉ", "cafe\u0301", "CAFE\u0301"} {
		got := w.found(text)
		if len(got) != len(want) {
			t.Errorf("search %q finds %v, want %v", text, got, want)
		}
	}
	w.finds([]string{"snapshot default/v1 messages 10 user +1"}, `PLEASE,\s+and "quotes" <B>`, "--regex")
	w.finds([]string{"snapshot default/v1 messages 10 user +1"}, `"QUOTES" <b>`)
	w.finds([]string{"snapshot default/v1 messages 10 user +1"}, "please,\nand")
	w.finds([]string{"snapshot default/v1 messages 11 agent +1"}, "kelvin")
	w.finds([]string{"snapshot default/v1 messages 3 agent +1"}, "message 3")
	w.finds([]string{"snapshot default/v1 activities 0 tool +1"}, "b[r]ew", "--regex")
	w.finds([]string{}, "no such thing")
	w.finds([]string{}, "status") // a key is nothing that was said
	if got := w.found("kelvin")[0]; got.Excerpt != "the cafÉ is escaped, Kelvin" || fmt.Sprint(got.Match) != "[21 27]" {
		t.Errorf("the excerpt is %q with the match at %v", got.Excerpt, got.Match)
	}
	w.fails(plugin.Usage, "search: there is no text to look for; as in: sess search budget", "search", " ")
	w.refused(plugin.Usage, "search", "(", "--regex")
	if text := w.do("search", "nowhere").Text; text != "nothing found in 1 snapshot and 1 session" {
		t.Errorf("a search without hits says %q", text)
	}
}

// The case of a letter does not matter, also where an alphabet has two small letters
// for one capital.
func TestSearchInAnyCase(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.change(w.ref, func(l *live) {
		add(t, w.host, l, transcript.ListMessages, transcript.Message{ID: "x", Role: "user", Content: "η οδος του ſystem", Status: "complete"})
	})
	for _, text := range []string{"οδος", "ΟΔΟΣ", "οδοσ", "SYSTEM", "system", "\u017fystem"} {
		w.finds([]string{"session default/s1 messages 10 user +0"}, text)
	}
	// Whatever becomes ASCII is found by it.
	for r := rune(utf8.RuneSelf); r <= unicode.MaxRune; r++ {
		if to := unicode.ToLower(unicode.ToUpper(r)); to < utf8.RuneSelf {
			ref := w.session("default", fmt.Sprintf("u%x", r), 0)
			w.change(ref, func(l *live) {
				add(t, w.host, l, transcript.ListMessages, transcript.Message{ID: "x", Role: "user", Content: "<" + string(r) + "zz>", Status: "complete"})
			})
			w.finds([]string{"session default/" + ref.ID + " messages 0 user +0"}, string(to)+"zz", "--of-session="+ref.ID)
		}
	}
}

// What the program says of a snapshot in other places is not in it.
func TestSearchFindsNothingThatIsNotThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.do("save", "v1")
	w.finds(nil, "tags")
	if text := w.do("export", "v1", "--format=markdown").Text; strings.Contains(text, "tags") {
		t.Errorf("what a snapshot without tags is exported as:\n%s", text)
	}
}

// What many snapshots have in common is shown once, at the newest of them.
func TestSearchShowsTheNewest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.change(w.ref, func(l *live) {
		add(t, w.host, l, transcript.ListMessages, transcript.Message{ID: "x", Role: "user", Content: "zebra one", Status: "complete"})
	})
	for i := range 5 {
		w.add(time.Minute)
		w.do("save", fmt.Sprint("v", i))
		w.say(w.ref, "and so on", 1)
	}
	w.add(time.Minute)
	other := w.session("default", "s2", 3)
	w.change(other, func(l *live) {
		add(t, w.host, l, transcript.ListMessages, transcript.Message{ID: "y", Role: "agent", Content: "Zebra two", Status: "complete"})
	})
	w.ref = other
	w.do("save", "late")
	w.finds([]string{"snapshot default/late messages 3 agent +1", "snapshot default/v4 messages 10 user +5"}, "zebra")
	w.finds([]string{"snapshot default/v4 messages 10 user +5"}, "zebra", "--of-session=s1")

	// A page after the other, each place once.
	first := w.do("search", "zebra", "--limit=1")
	if first.Page == nil || first.Page.Total != 2 || first.Page.Next == "" {
		t.Fatalf("the first page is %+v", first.Page)
	}
	w.finds([]string{"snapshot default/v4 messages 10 user +5"}, "zebra", "--limit=1", "--after="+first.Page.Next)

	// What is in the trash is not there.
	w.do("delete", "late")
	w.do("delete", "v4")
	w.change(other, func(l *live) { l.doc.Lists = nil })
	w.finds([]string{"snapshot default/v3 messages 10 user +4"}, "zebra")
	w.do("undo")
	w.finds([]string{"snapshot default/v4 messages 10 user +5"}, "zebra")
}

// Projects are kept apart, unless all are asked for; one snapshot that cannot be
// read keeps nobody from the others.
func TestSearchOfProjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.do("save", "v1")
	w.add(time.Minute)
	w.ref = w.session("web", "s9", 4)
	w.do("save", "v2")
	w.finds([]string{"snapshot web/v2 messages 3 agent +1"}, "message 3")
	w.finds([]string{"snapshot web/v2 messages 3 agent +3"}, "message 3", "--all-projects") // the same record, wherever it is
	if err := os.WriteFile(filepath.Join(w.pool(), "broken.sess.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	res := w.do("search", "message 3", "--all-projects")
	if len(res.Notices) != 1 || !strings.Contains(res.Notices[0], "snapshot broken could not be looked through") {
		t.Errorf("a damaged snapshot is told of as %q", res.Notices)
	}
	if !strings.Contains(res.Text, "web/v2  [3] agent  now  (and in 3 more)\n    message 3") {
		t.Errorf("search says\n%s", res.Text)
	}
}

// Long conversations have index chunks and records in pieces.
func TestSearchOfLongConversations(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.change(w.ref, func(l *live) {
		var records []transcript.Record
		for i := range 600 {
			text := fmt.Sprint("number ", i, " ", strings.Repeat(fmt.Sprint("filler", i*7919), 3000))
			if i == 77 {
				text = strings.Repeat("very long ", 200_000) + "needle"
			}
			records = append(records, transcript.Record(mustJSON(t, transcript.Message{ID: fmt.Sprint("n", i), Role: "user", Content: text, Status: "complete"})))
		}
		batch := w.chunks.NewBatch()
		defer batch.Discard()
		list := l.doc.List(transcript.ListMessages)
		if err := errors.Join(list.Append(records, batch.Seal), batch.Commit(t.Context())); err != nil || len(list.Index) == 0 {
			t.Fatalf("a list with %d index chunks: %v", len(list.Index), err)
		}
	})
	w.add(time.Minute)
	w.do("save", "long")
	w.finds([]string{"snapshot default/long messages 87 user +1"}, "NEEDLE")
	w.finds([]string{"snapshot default/long messages 433 user +1"}, "number 423 ")
	var steps int
	res, err := w.plugin.Dispatch(t.Context(), plugin.Call{Argv: []string{"search", "filler"}, Caller: plugin.CallerCLI}, func(plugin.Progress) { steps++ })
	if err != nil {
		t.Fatal(err)
	}
	var all []json.RawMessage
	if err := json.Unmarshal(res.Data, &all); err != nil || len(all) != 599 || steps < 2 {
		t.Errorf("search finds %d places in %d steps, %v, want 599", len(all), steps, err)
	}
}
