package agents_test

import (
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ncruces/go-sqlite3"

	"sess/host/agents"
	"sess/store/transcript"
)

const (
	clawDemo    = "66e73903-b6fe-4e6c-80c8-d18cbf603bbb" // rewound once, with a leaf entry and compressed ones
	clawBefore  = "dc36984f-149b-4ea3-8b8c-d1967c4657b7" // what it was before
	clawForked  = "d6004d0b-035a-434a-848f-d5dafa491e14"
	clawGone    = "16937041-aed1-48ad-b36f-eadaadac1622" // deleted, with resets and a compaction
	clawFile    = "b31016fa-28db-4445-bc15-eb0937ed27c2"
	clawWasNew  = "2d36cf19-fb41-42fb-abfd-84e50732f1e5" // left by /new
	clawDataDir = ".openclaw/agents/main/agent"
)

// clawFixture is [fixture], with the database unpacked.
func clawFixture(t *testing.T) (agents.Store, string) {
	t.Helper()
	s, home := fixture(t, "openclaw", "openclaw-sqlite")
	name := filepath.Join(home, clawDataDir, "openclaw-agent.sqlite")
	in, err := os.Open(name + ".gz")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	z, err := gzip.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err == nil {
		err = os.WriteFile(name, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s, home
}

// heading is what a list shows of a conversation.
func heading(c agents.Conversation) string {
	out := strings.TrimSpace(c.Archived + " " + c.Title)
	if c.Key != "" {
		out += " (" + c.Key + ")"
	}
	return out
}

func headings(all map[string]agents.Conversation) []string {
	var out []string
	for _, c := range all {
		out = append(out, heading(c))
		if c.Problem != "" {
			out = append(out, c.ID+": "+c.Problem)
		}
	}
	slices.Sort(out)
	return out
}

// Both generations of the store list their conversations, and archives as what
// they are.
func TestOpenClawHeads(t *testing.T) {
	t.Parallel()
	files, _ := fixture(t, "openclaw", "openclaw-files")
	database, _ := clawFixture(t)
	for _, c := range []struct {
		name   string
		s      agents.Store
		folder string
		want   []string
	}{
		{"files", files, "/home/user/proj", []string{
			"first question: alpha (agent:main:demo)", "first question: alpha (agent:main:off1)",
			"reset /new", "reset first question: alpha",
		}},
		{"database", database, "/home/user/proj", []string{
			"First question: alpha (agent:main:dashboard:b67ce1aa-6606-471f-b2a3-cd72a301a58f)", "First question: alpha (agent:main:demo)",
			"Hi (agent:main:main)", "deleted /status", "deleted only question: delta", "rewound First question: alpha (agent:main:demo)",
		}},
		{"nothing said before it was deleted", files, "/home/user", []string{"cc686738-22c8-4d78-baeb-63c694fdd293: empty", "deleted"}},
		{"another folder", database, "/home/user", []string{"/labping one two (agent:main:sl)"}},
		{"a folder without one", database, "/home", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, headings(heads(t, c.s, c.folder))); diff != "" {
				t.Errorf("conversations (-want +got):\n%s", diff)
			}
		})
	}
}

// The records are the entries as OpenClaw has them, whatever holds them, and what
// people read is the branch that it goes on from.
func TestOpenClawRead(t *testing.T) {
	t.Parallel()
	files, _ := fixture(t, "openclaw", "openclaw-files")
	database, _ := clawFixture(t)
	const compacted = "system: [Compacted: instead of what is above, the model sees this summary]\n"
	for _, c := range []struct {
		name, id, file string
		s              agents.Store
		want           []string
		report         int
	}{
		{"a file", clawFile, "testdata/openclaw-files/.openclaw/agents/main/sessions/" + clawFile + ".jsonl", files, []string{
			"user: first question: alpha", "agent: reply 1 to: first question: alpha", "user: second question: bravo [tool]",
			`tool: exec {"command":"echo stub-tool-ok"}`, "tool: stub-tool-ok", "agent: reply 2 to: second question: bravo [tool]",
			"user: third question: charlie", "agent: reply 3 to: third question: charlie",
		}, 0},
		{"by its key", "agent:main:off1", "", files, []string{
			"user: first question: alpha", "agent: reply 1 to: first question: alpha",
			"user: after live truncate: golf", "agent: reply 2 to: after live truncate: golf",
		}, 0},
		{"an archive of /new", clawWasNew, "", files, []string{
			"user: /new", "agent: ✅ New session started.", "user: after new: hotel", "agent: reply 2 to: after new: hotel",
		}, 1},
		{"rewound", clawDemo, "testdata/openclaw-sqlite/exported/agent_main_demo." + clawDemo + ".jsonl", database, []string{
			"user: first question: alpha", "agent: reply 1 to: first question: alpha", "user: rewound question: golf",
			"agent: reply 2 to: rewound question: golf", "user: long question: hotel", "agent: reply 3 to: long question: hotel",
		}, 0},
		{"before it was rewound", clawBefore, "testdata/openclaw-sqlite/exported/agent_main_demo." + clawBefore + ".jsonl", database, []string{
			"user: first question: alpha", "agent: reply 1 to: first question: alpha", "user: second question: bravo [tool]",
			`tool: exec {"command":"echo stub-tool-ok"}`, "tool: stub-tool-ok", "agent: reply 2 to: second question: bravo [tool]",
			"user: third question: charlie", "agent: reply 3 to: third question: charlie",
		}, 1},
		{"deleted, compressed", clawGone, "", database, []string{
			"user: only question: delta", "system: [run-failed-before-reply]\nThis turn ended before a reply: Gateway is draining; new tasks are not accepted",
			"user: only question: delta", "system: [new: the model sees nothing of what is above]", "user: /new", "agent: ✅ New session started.",
			"user: after new: echo", "system: [reset: the model sees nothing of what is above]", "user: after reset: foxtrot", compacted + "## Latest user request context",
			"agent: reply 1 to: after reset: foxtrot",
		}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			snap := read(t, c.s, c.id)
			said := snap.said(t)
			for i := range min(len(said), len(c.want)) { // some are long
				if strings.HasPrefix(said[i], c.want[i]) && len(said[i]) > len(c.want[i]) && (strings.HasPrefix(said[i], compacted) || strings.Contains(said[i], "long question")) {
					said[i] = c.want[i]
				}
			}
			if diff := cmp.Diff(c.want, said); diff != "" {
				t.Errorf("messages (-want +got):\n%s", diff)
			}
			if c.file != "" {
				if diff := cmp.Diff(fileLines(t, c.file), snap.records(t, transcript.ListLines)); diff != "" {
					t.Errorf("records (-file +snapshot):\n%s", diff)
				}
			}
			if len(snap.report) != c.report {
				t.Errorf("report %q, want %d", snap.report, c.report)
			}
		})
	}
}

// A restored conversation in a store of files is one more file. The index and all
// else stay as they were: OpenClaw 2026.7.1 goes on with a session that it is
// given the id of, whether that is in the index or not.
func TestOpenClawRestoreFile(t *testing.T) {
	t.Parallel()
	s, home := fixture(t, "openclaw", "openclaw-files")
	before := tree(t, home)
	snap := read(t, s, clawFile)
	made := restore(t, s, snap, "/home/user/other")
	after := tree(t, home)
	name, err := filepath.Rel(home, made.File)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(after[name], `{"type":"session","version":3,"id":"`+made.ID+`","timestamp":"`) || !strings.Contains(after[name], `"cwd":"/home/user/other"}`+"\n") {
		t.Errorf("header: %.200s", after[name])
	}
	delete(after, name)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("other files (-before +after):\n%s", diff)
	}
	if want := []string{"openclaw", "agent", "--session-id", made.ID, "--message", "go on"}; !slices.Equal(made.Resume, want) {
		t.Errorf("resume: %q, want %q", made.Resume, want)
	}
	if diff := cmp.Diff(snap.said(t), read(t, s, made.ID).said(t)); diff != "" {
		t.Errorf("messages (-snapshot +restored):\n%s", diff)
	}
}

// dump is every row of the database, a text each.
func dump(t *testing.T, home string) []string {
	t.Helper()
	conn, err := sqlite3.Open("file:" + filepath.ToSlash(filepath.Join(home, clawDataDir, "openclaw-agent.sqlite")) + "?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	query := func(sql string) (rows []string) {
		stmt, _, err := conn.Prepare(sql)
		if err != nil {
			t.Fatal(sql, err)
		}
		defer stmt.Close()
		for stmt.Step() {
			var row []string
			for i := range stmt.ColumnCount() {
				row = append(row, stmt.ColumnText(i))
			}
			rows = append(rows, strings.Join(row, "|"))
		}
		if err := stmt.Err(); err != nil {
			t.Fatal(sql, err)
		}
		return rows
	}
	var all []string
	for _, table := range query("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name NOT LIKE '%_fts%' ORDER BY name") {
		for _, row := range query("SELECT * FROM " + sqlite3.QuoteIdentifier(table)) {
			all = append(all, table+"|"+row)
		}
	}
	if problems := query("PRAGMA integrity_check"); !slices.Equal(problems, []string{"ok"}) {
		t.Errorf("integrity_check: %q", problems)
	}
	if problems := query("PRAGMA foreign_key_check"); len(problems) != 0 {
		t.Errorf("foreign_key_check: %q", problems)
	}
	slices.Sort(all)
	return all
}

// A restored conversation in a database is rows of a new session, which OpenClaw
// need not mend: no other row changes.
func TestOpenClawRestoreRows(t *testing.T) {
	t.Parallel()
	for _, id := range []string{clawDemo, clawBefore, clawForked, clawGone} {
		s, home := clawFixture(t)
		before := dump(t, home)
		snap := read(t, s, id)
		made, err := s.Restore(t.Context(), snap.doc, snap.load, agents.Target{Folder: "/home/user/other", Title: "as it was", Now: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		after := dump(t, home)
		tables := map[string]int{}
		for _, row := range after {
			if _, there := slices.BinarySearch(before, row); !there {
				table, _, _ := strings.Cut(row, "|")
				tables[table]++
				if !strings.Contains(row, made.ID) && table != "session_canonical_validation_pending" {
					t.Errorf("a new row of something else: %s", row)
				}
			}
		}
		for _, row := range before {
			if _, there := slices.BinarySearch(after, row); !there {
				t.Errorf("a row has changed or gone: %s", row)
			}
		}
		again := read(t, s, made.ID)
		events := again.doc.Lists[transcript.ListLines].Records
		want := map[string]int{
			"session_nodes": 1, "session_windows": 1, "transcript_events": events, "transcript_event_identities": events,
			"transcript_rewrite_watermarks": 1, "session_transcript_index_state": 1, "session_transcript_active_events": events - 1,
			"session_canonical_validation_pending": 1,
		}
		if diff := cmp.Diff(want, tables); diff != "" {
			t.Errorf("new rows of %s (-want +got):\n%s", id, diff)
		}
		if diff := cmp.Diff(snap.said(t), again.said(t)); diff != "" {
			t.Errorf("messages of %s (-snapshot +restored):\n%s", id, diff)
		}
		if len(again.report) != 0 {
			t.Errorf("report %q, want none", again.report)
		}
		c := heads(t, s, "/home/user/other")[made.ID]
		key := made.Resume[len(made.Resume)-1]
		if heading(c) != "as it was ("+key+")" || !slices.Equal(made.Resume, []string{"openclaw", "tui", "--session", key}) {
			t.Errorf("head %q, resume %q", heading(c), made.Resume)
		}
	}
}

// The projection that is written for a session is the one that OpenClaw made of
// the same entries.
func TestOpenClawProjection(t *testing.T) {
	t.Parallel()
	s, home := clawFixture(t)
	snap := read(t, s, clawBefore)
	made := restore(t, s, snap, "/home/user/proj")
	of := func(id string) []string {
		var rows []string
		for _, row := range dump(t, home) {
			for _, table := range []string{"session_transcript_active_events|", "transcript_event_identities|"} {
				if rest, ok := strings.CutPrefix(row, table+id+"|"); ok {
					if strings.HasPrefix(table, "transcript") {
						rest = strings.ReplaceAll(rest[:strings.LastIndexByte(rest, '|')], id, "ID") // the time when it was written may be another
					}
					rows = append(rows, table+rest)
				}
			}
		}
		slices.Sort(rows)
		return rows
	}
	if diff := cmp.Diff(of(clawBefore), of(made.ID)); diff != "" {
		t.Errorf("rows (-OpenClaw's +ours):\n%s", diff)
	}
}

// What is not known to be safe is refused, and nothing is written.
func TestOpenClawRefuses(t *testing.T) {
	t.Parallel()
	rows, rowsHome := clawFixture(t)
	conn, err := sqlite3.Open("file:" + filepath.ToSlash(filepath.Join(rowsHome, clawDataDir, "openclaw-agent.sqlite")) + "?mode=rw")
	if err == nil {
		err = errors.Join(conn.Exec("UPDATE schema_meta SET schema_version = 24; PRAGMA user_version = 24"), conn.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	newer := read(t, rows, clawDemo)
	files, filesHome := fixture(t, "openclaw", "openclaw-files")
	for _, c := range []struct {
		name string
		s    agents.Store
		home string
		want string
	}{
		{"a schema that is not known", rows, rowsHome, "schema 24"},
		{"an older OpenClaw", files, filesHome, "update OpenClaw"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := tree(t, c.home)
			_, err := c.s.Restore(t.Context(), newer.doc, newer.load, agents.Target{Folder: "/home/user/proj", Now: time.Now()})
			if e, ok := errors.AsType[*agents.RefusedError](err); !ok || !strings.Contains(e.Reason, c.want) {
				t.Errorf("Restore: %v, want it refused: %s", err, c.want)
			}
			if diff := cmp.Diff(before, tree(t, c.home)); diff != "" {
				t.Errorf("files (-before +after):\n%s", diff)
			}
		})
	}
}

// The same session in the old store and in the new one is one conversation: the
// newer copy, which names the other. An archive never stands for one that is
// there.
func TestOpenClawMoved(t *testing.T) {
	t.Parallel()
	s, home := clawFixture(t)
	dir := filepath.Join(home, ".openclaw/agents/main/sessions")
	old, err := os.ReadFile("testdata/openclaw-sqlite/exported/agent_main_main.a3210c08-6af0-4c27-9bee-dc54240946b3.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	const id = "a3210c08-6af0-4c27-9bee-dc54240946b3"
	past := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, name := range []string{id + ".jsonl", id + ".jsonl.deleted.2027-01-01T00-00-00.000Z"} {
		if err := os.WriteFile(filepath.Join(dir, name), old, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(filepath.Join(dir, id+".jsonl"), past, past); err != nil {
		t.Fatal(err)
	}
	c := heads(t, s, "")[id]
	if heading(c) != "Hi (agent:main:main)" || len(c.Also) != 2 || filepath.Ext(c.File) != ".sqlite" {
		t.Errorf("conversation %+v, want that of the database with two copies", c)
	}
	if snap := read(t, s, id); len(snap.report) != 2 || len(snap.said(t)) != 2 {
		t.Errorf("report %q, messages %q", snap.report, snap.said(t))
	}
}

// A database that cannot be read hides nothing but itself.
func TestOpenClawDamaged(t *testing.T) {
	t.Parallel()
	s, home := fixture(t, "openclaw", "openclaw-files")
	dir := filepath.Join(home, clawDataDir)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "openclaw-agent.sqlite"), []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	all := heads(t, s, "")
	var problems []string
	for _, c := range all {
		if c.Problem != "" {
			problems = append(problems, c.Problem)
		}
	}
	if len(all) != 6 || len(problems) != 2 {
		t.Errorf("%d conversations, problems %q; want 6, of which one is empty and one the database", len(all), problems)
	}
	for _, zst := range []string{"half", ""} {
		name := filepath.Join(home, ".openclaw/agents/main/sessions/x.jsonl.deleted.2026-01-01T00-00-00.000Z.0.zst")
		if err := os.WriteFile(name, []byte(zst), 0o600); err != nil {
			t.Fatal(err)
		}
		if c := heads(t, s, "")["x"]; c.Problem == "" || c.Archived != "deleted" {
			t.Errorf("an archive of %q: %+v, want a problem", zst, c)
		}
	}
}

// Where a conversation goes on is what OpenClaw itself decides by, and a restored
// one goes on there as well.
func TestOpenClawRules(t *testing.T) {
	t.Parallel()
	const head = `{"type":"session","version":3,"id":"x","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/w"}`
	for _, c := range []struct {
		name  string
		lines []string
		want  []string
	}{
		{"a leaf entry chooses", []string{piSay("a", "", "user", "one"), piSay("b", "a", "user", "two"), `{"type":"leaf","id":"l","parentId":"b","targetId":"a"}`}, []string{"user: one"}},
		{"what follows a leaf entry follows what it chose", []string{
			piSay("a", "", "user", "one"), piSay("b", "a", "user", "two"), `{"type":"leaf","id":"l","parentId":"b","targetId":"a"}`, piSay("c", "l", "user", "three"),
		}, []string{"user: one", "user: three"}},
		{"a leaf entry that chooses nothing there is", []string{piSay("a", "", "user", "one"), `{"type":"leaf","id":"l","parentId":"a","targetId":"gone"}`}, []string{"user: one"}},
		{"an entry that stands aside", []string{piSay("a", "", "user", "one"), strings.Replace(piSay("b", "a", "user", "aside"), `{`, `{"appendMode":"side",`, 1)}, []string{"user: one"}},
		{"a type that is not known", []string{piSay("a", "", "user", "one"), `{"type":"mood","id":"b","parentId":"a"}`, piSay("c", "a", "user", "three")}, []string{"user: one", "user: three"}},
		{"a parent that is not there", []string{piSay("a", "", "user", "one"), piSay("c", "gone", "user", "three")}, []string{"user: one", "user: three"}},
		{"no word of a parent", []string{piSay("a", "", "user", "one"), `{"type":"message","id":"b","message":{"role":"user","content":"two"}}`}, []string{"user: one", "user: two"}},
		{"nothing goes on before a reset", []string{
			piSay("a", "", "user", "one"), `{"type":"reset","id":"r","parentId":"a","reason":"new"}`, piSay("b", "a", "user", "two"), `{"type":"leaf","id":"l","parentId":"b","targetId":"a"}`,
		}, []string{"user: one", "system: [new: the model sees nothing of what is above]", "user: two"}},
		{"a reset that keeps something", []string{
			piSay("a", "", "user", "one"), piSay("b", "a", "user", "two"), `{"type":"reset","id":"r","parentId":"b","reason":"reset","firstKeptEntryId":"b"}`, piSay("c", "r", "user", "three"),
		}, []string{"user: one", "system: [reset: the model sees nothing of what is above]", "user: two", "user: three"}},
		{"what nobody typed", []string{`{"type":"message","id":"a","parentId":null,"message":{"role":"user","content":"[OpenClaw session event]","provenance":{"kind":"internal_system"}}}`}, []string{"system: [OpenClaw session event]"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			dir := filepath.Join(home, ".openclaw/agents/main/sessions")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "x.jsonl"), []byte(head+"\n"+strings.Join(c.lines, "\n")+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			s := open(t, "openclaw", home)
			snap := read(t, s, "x")
			if diff := cmp.Diff(c.want, snap.said(t)); diff != "" {
				t.Errorf("messages (-want +got):\n%s", diff)
			}
			made := restore(t, s, snap, "/w")
			if diff := cmp.Diff(c.want, read(t, s, made.ID).said(t)); diff != "" {
				t.Errorf("messages of the restored one (-want +got):\n%s", diff)
			}
		})
	}
}

// A session that somebody writes to is one that is open, until its lock is older
// than any that OpenClaw takes.
func TestOpenClawLocked(t *testing.T) {
	t.Parallel()
	s, home := fixture(t, "openclaw", "openclaw-files")
	lock := filepath.Join(home, ".openclaw/agents/main/sessions", clawFile+".jsonl.lock")
	if err := os.WriteFile(lock, []byte(`{"pid":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if !heads(t, s, "")[clawFile].Live {
		t.Error("a session with a fresh lock is not shown as open")
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(lock, old, old); err != nil {
		t.Fatal(err)
	}
	if heads(t, s, "")[clawFile].Live {
		t.Error("a session with a stale lock is shown as open")
	}
}
