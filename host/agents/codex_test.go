package agents_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"sess/store/transcript"
)

const forked = "01a22816-4c9b-7002-9484-812244357d18"

// What is read of a rollout is each line of it, byte for byte, and what people
// said; of a fork also what was said before it.
func TestCodexRead(t *testing.T) {
	t.Parallel()
	basic := []string{
		"user: first question", "agent: reply 1 to: first question", "user: second question [tool] please",
		`tool: exec_command {"cmd":"echo hi"}`, "tool: hi", "agent: reply 2 to: second question [tool] please (after tool)",
		"user: third question", "agent: reply 3 to: third question",
	}
	for _, c := range []struct {
		name, id string
		want     []string
	}{
		{"basic", "01a22803-6063-7101-bbcb-b33e4ea80b4f", basic},
		{"basic-0.98", "01a22830-d770-7ed2-aed3-a419580a3540", basic},
		{"fork", forked, append(append([]string{}, basic...), "user: fork question", "agent: reply 4 to: fork question")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, _ := fixture(t, "codex", "codex/"+c.name)
			head := heads(t, s, "/home/user/demo")[c.id]
			if head.Title != "first question" && c.name != "fork" || head.Model != "stub-model" {
				t.Errorf("the conversation is listed as %+v", head)
			}
			snap := read(t, s, c.id)
			got := snap.said(t)
			for i, line := range got { // what the tool says beside its output differs
				if strings.HasPrefix(line, "tool: Chunk ID") {
					got[i] = "tool: " + line[strings.LastIndex(line, "\n")+1:]
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("the messages are not what was said (-want +got):\n%s", diff)
			}
			data, err := os.ReadFile(head.File)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(snap.records(t, transcript.ListLines), "\n") + "\n"; got != string(data) {
				t.Error("the records are not the lines of the file")
			}
			if len(snap.report) > 0 {
				t.Errorf("of a whole file something is told: %q", snap.report)
			}
		})
	}
}

// A restored rollout is one file of its own, whatever the lineage, that has the
// new id wherever the agent looks for it and no record twice.
func TestCodexRestore(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"basic", "basic-0.98", "parallel-tools", "fork", "compaction", "titled"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, home := fixture(t, "codex", "codex/"+name)
			for id, head := range heads(t, s, "") {
				snap := read(t, s, id)
				before := files(t, home)
				made := restore(t, s, snap, "/home/user/other")
				after := files(t, home)
				if len(after) != len(before)+1 || !strings.HasSuffix(filepath.Base(made.File), "-"+made.ID+".jsonl") {
					t.Errorf("%d files became %d, with %s", len(before), len(after), made.File)
				}
				for file, content := range before {
					if after[file] != content {
						t.Errorf("%s was changed", file)
					}
				}
				if again := heads(t, s, "/home/user/other")[made.ID]; again.ID == "" || again.Problem != "" || again.Model != head.Model {
					t.Errorf("the restored conversation is listed as %+v", again)
				}
				copied := read(t, s, made.ID)
				if diff := cmp.Diff(snap.said(t), copied.said(t)); diff != "" {
					t.Errorf("the restored conversation differs (-snapshot +restored):\n%s", diff)
				}
				checkRollout(t, copied, made.ID)
			}
		})
	}
}

// checkRollout holds what the agent asks of a rollout that it resumes.
func checkRollout(t *testing.T, s *snapshot, id string) {
	t.Helper()
	for i, line := range s.records(t, transcript.ListLines) {
		var r struct {
			Type    string
			Ordinal *int
			Payload map[string]any
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Errorf("line %d: %v", i+1, err)
		}
		if (r.Type == "session_meta") != (i == 0) {
			t.Errorf("line %d is %s", i+1, r.Type)
		}
		if r.Ordinal != nil && *r.Ordinal != i {
			t.Errorf("line %d has the ordinal %d", i+1, *r.Ordinal)
		}
		if i > 0 {
			continue
		}
		if got := r.Payload["id"]; got != id {
			t.Errorf("the session_meta has the id %v, want %s", got, id)
		}
		if got, there := r.Payload["session_id"]; there && got != id {
			t.Errorf("the session_meta has the session_id %v, want %s", got, id)
		}
		for key := range r.Payload {
			if key == "history_base" || strings.HasPrefix(key, "forked_from") {
				t.Errorf("the session_meta has %s", key)
			}
		}
	}
}

// A fork whose base is gone is refused by name: without it the conversation would
// begin in the middle, and nobody would see that.
func TestCodexForkWithoutItsBase(t *testing.T) {
	t.Parallel()
	s, _ := fixture(t, "codex", "codex/fork")
	base := heads(t, s, "")["01a22803-6063-7101-bbcb-b33e4ea80b4f"]
	if err := os.Remove(base.File); err != nil {
		t.Fatal(err)
	}
	_, err := s.Read(t.Context(), forked, newWriter())
	if err == nil || !strings.Contains(err.Error(), base.ID) {
		t.Errorf("Read of a fork without its base: %v, want an error that names it", err)
	}
}

// A rollout that was packed is read as if it were not.
func TestCodexPacked(t *testing.T) {
	t.Parallel()
	s, _ := fixture(t, "codex", "codex/basic")
	head := only(t, s)
	want := read(t, s, head.ID).said(t)
	data, err := os.ReadFile(head.File)
	if err != nil {
		t.Fatal(err)
	}
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(head.File+".zst", z.EncodeAll(data, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(head.File); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, read(t, s, only(t, s).ID).said(t)); diff != "" {
		t.Errorf("the packed conversation differs (-plain +packed):\n%s", diff)
	}
}

// A conversation has the title that a person gave it last.
func TestCodexTitle(t *testing.T) {
	t.Parallel()
	s, _ := fixture(t, "codex", "codex/titled")
	if head := only(t, s); head.Title != "my-codex-title" {
		t.Errorf("the title is %q, want my-codex-title", head.Title)
	}
}
