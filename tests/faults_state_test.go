package tests

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sess/store/durable/durabletest"
	"sess/store/session"
	"sess/store/snapshot"
	"sess/store/transcript"
)

// state is everything in a home that people can lose. Ids that are made anew in
// every run stand as numbers in it, in the order in which a text has them.
type state struct {
	Talk  conversationState // the session that the cases work on
	Rest  []string          // the other sessions, the snapshots, and what is active
	Trash []string
}

// conversationState is all of a document: what is in no list, and every record
// of each list.
type conversationState struct {
	About string   // of a live session, what no digest has: its status and times
	Log   []string // of the turn that newHome runs
	Doc   documentState
}

type documentState struct {
	Header string
	Lists  map[string][]string
}

func (s state) equal(o state) bool { return reflect.DeepEqual(s, o) }

// partOfTurn accepts a turn of which the question is there, and of the answer
// what came.
func partOfTurn(before, now, after state) bool {
	part := func(list string, was, is, will []string) bool {
		if len(is) < len(was) || len(is) > len(will) || !slices.Equal(is[:len(was)], was) {
			return false
		}
		for i := len(was); i < len(is); i++ {
			if is[i] != will[i] && (i == len(was) || i < len(is)-1 || !beginning(is[i], will[i])) {
				return false
			}
		}
		return list != transcript.ListMessages || len(is) > len(was)
	}
	for name := range after.Talk.Doc.Lists {
		if !part(name, before.Talk.Doc.Lists[name], now.Talk.Doc.Lists[name], after.Talk.Doc.Lists[name]) {
			return false
		}
	}
	return len(now.Talk.Doc.Lists) == len(after.Talk.Doc.Lists) &&
		(now.Talk.Doc.Header == before.Talk.Doc.Header || now.Talk.Doc.Header == after.Talk.Doc.Header) &&
		slices.Equal(now.Talk.Log, before.Talk.Log) &&
		slices.Equal(now.Rest, before.Rest) && slices.Equal(now.Trash, before.Trash)
}

// beginning reports whether a record is a message of the same kind as another,
// and its text the beginning of the other's.
func beginning(is, will string) bool {
	var some, all struct{ Role, Content string }
	return json.Unmarshal([]byte(is), &some) == nil && json.Unmarshal([]byte(will), &all) == nil &&
		some.Role == all.Role && some.Role != string(transcript.RoleUser) && strings.HasPrefix(all.Content, some.Content)
}

// partlyEmptied accepts a trash of which some is gone for good already.
func partlyEmptied(before, now, _ state) bool {
	gone := slices.ContainsFunc(now.Trash, func(line string) bool { return !slices.Contains(before.Trash, line) })
	return !gone && reflect.DeepEqual(now.Talk, before.Talk) && slices.Equal(now.Rest, before.Rest)
}

// homeState reads the state of a home. It settles nothing.
func homeState(t *testing.T, home string, now time.Time) state {
	t.Helper()
	ctx, clock := t.Context(), func() time.Time { return now }
	store, err := session.Open(filepath.Join(home, "sessions"), session.Options{FS: durabletest.Unsynced, Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	pool, err := snapshot.Open(filepath.Join(home, filepath.FromSlash(poolAt)), snapshot.Options{FS: durabletest.Unsynced, Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()

	var s state
	manifest, err := store.Manifest(ctx)
	if err != nil {
		t.Errorf("manifest: %v", err)
	}
	infos, err := store.List(ctx)
	if err != nil {
		t.Errorf("sessions: %v", err)
	}
	for _, info := range infos {
		l, _, err := store.Settled(ctx, info.Ref)
		if err != nil {
			t.Errorf("session %s: %v", info.Ref, err)
			continue
		}
		selected, err := store.Selected(info.Ref)
		if err != nil {
			t.Errorf("session %s: %v", info.Ref, err)
		}
		said := conversationState{
			About: fmt.Sprintf("%s, run %q, error %q, created %d, told %s", l.Status, l.ActiveRun, l.Error, l.CreatedAt, l.Notifications),
			Log:   eventLog(t, store, info.Ref),
			Doc:   content(t, &l.Doc, store.Plain),
		}
		line := fmt.Sprintf("session %q, active: %t, shows a snapshot: %t", info.Title, manifest.LastSessionID == info.Ref.ID, selected != "")
		if info.Ref.ID == talkID {
			s.Talk = said
		} else {
			line += ": " + short(fmt.Sprint(said))
		}
		s.Rest = append(s.Rest, line)
	}
	entries, err := pool.List(ctx)
	if err != nil {
		t.Errorf("snapshots: %v", err)
	}
	for _, e := range entries {
		doc, err := pool.Read(ctx, e.Name)
		if err != nil {
			t.Errorf("snapshot %s: %v", e.Name, err)
			continue
		}
		if is := doc.Doc.Digest(); is != e.Meta.Digest {
			t.Errorf("snapshot %s has the digest %s, and says %s", e.Name, is, e.Meta.Digest)
		}
		s.Rest = append(s.Rest, fmt.Sprintf("snapshot %s %s: %s", e.Name, about(e.Meta), short(fmt.Sprint(content(t, doc.Doc, pool.Plain)))))
	}
	trash, err := pool.ListTrash(ctx)
	if err != nil {
		t.Errorf("trash: %v", err)
	}
	for _, e := range trash {
		s.Trash = append(s.Trash, fmt.Sprintf("%s, %s: %s", e.Name, e.Reason, about(e.Meta)))
	}
	deleted, err := store.Trashed(ctx)
	if err != nil {
		t.Errorf("trash of sessions: %v", err)
	}
	for _, e := range deleted {
		folder := filepath.Join(home, "sessions", filepath.FromSlash(e.Entry))
		logs, err := filepath.Glob(filepath.Join(folder, "logs", "turn-*.jsonl"))
		if _, missing := os.Stat(filepath.Join(folder, "session.json")); err != nil || missing != nil {
			t.Errorf("session %s in the trash: %v, %v", e.Ref, err, missing)
		}
		s.Trash = append(s.Trash, fmt.Sprintf("session %s, %q, %s: %d messages, %d bytes, %d logs", e.Ref.ID, e.Title, e.Why, e.Messages, e.Bytes, len(logs)))
	}
	slices.Sort(s.Rest)
	slices.Sort(s.Trash)
	return s
}

// about is what a snapshot says of itself, but for ids.
func about(m transcript.Meta) string {
	m.ID, m.Digest = "", ""
	if m.SessionID != talkID {
		m.SessionID = "another"
	}
	if m.Parent != "" {
		m.Parent = "some"
	}
	return string(m.AppendJSON(nil))
}

// content is what a document holds.
func content(t *testing.T, doc *transcript.Document, load transcript.Loader) documentState {
	t.Helper()
	header, err := transcript.Canonical(doc.Header)
	if err != nil {
		t.Errorf("header: %v", err)
	}
	ids := newNumbering()
	c := documentState{Header: ids.of("header", string(header)), Lists: map[string][]string{}}
	// Messages first: others refer to them.
	names := slices.SortedFunc(maps.Keys(doc.Lists), func(a, b string) int {
		return -strings.Compare(a, b)
	})
	for _, name := range names {
		list := doc.Lists[name]
		if list.Records == 0 { // as good as none
			continue
		}
		for rec, err := range list.All(load, 0, list.Records) {
			if err != nil {
				t.Errorf("%s: %v", name, err)
				break
			}
			c.Lists[name] = append(c.Lists[name], short(ids.of(fmt.Sprintf("%s %d", name, len(c.Lists[name])), string(rec))))
		}
	}
	return c
}

// eventLog is what the event log says of the turn that had ended before any
// fault. That of a turn in which the disk fails may lack something: the session
// has what was said.
func eventLog(t *testing.T, store *session.Store, ref session.Ref) []string {
	t.Helper()
	turns, err := store.Turns(t.Context(), ref)
	if err != nil {
		t.Errorf("event log of session %s: %v", ref, err)
	}
	var lines []string
	for _, n := range turns[:min(1, len(turns))] {
		events, warnings, err := store.ReadTurn(t.Context(), ref, n)
		if err != nil || len(warnings) > 0 {
			t.Errorf("turn %d of session %s: %q, %v", n, ref, warnings, err)
		}
		ids := newNumbering()
		var all strings.Builder
		for _, e := range events {
			all.WriteString(ids.of(fmt.Sprint("event ", e.Seq), string(e.Raw)) + "\n")
		}
		lines = append(lines, fmt.Sprintf("turn %d, %d events: %s", n, len(events), short(all.String())))
	}
	return lines
}

// short is a text itself, or what stands for a long one.
func short(text string) string {
	const most = 500
	if len(text) <= most {
		return text
	}
	h := fnv.New64a()
	fmt.Fprint(h, text)
	return fmt.Sprintf("%.60s… of %d bytes, %x", text, len(text), h.Sum64())
}

// numbering replaces ids by where they stand first, so that what comes later
// changes no name.
type numbering struct{ seen map[string]string }

func newNumbering() numbering { return numbering{map[string]string{}} }

// madeID is an id as the program makes them.
var madeID = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

func (n numbering) of(place, text string) string {
	// Ids stand at the ends of a record; its middle is what was said.
	const ends = 400
	if len(text) > 2*ends {
		return n.of(place, text[:ends]) + text[ends:len(text)-ends] + n.of(place+" end", text[len(text)-ends:])
	}
	count := 0
	return madeID.ReplaceAllStringFunc(text, func(id string) string {
		if n.seen[id] == "" {
			count++
			n.seen[id] = fmt.Sprintf("id %d of %s", count, place)
		}
		return n.seen[id]
	})
}
