package snapshot_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sess/store/chunk"
	"sess/store/durable/durabletest"
	"sess/store/snapshot"
	"sess/store/transcript"
)

// counted opens a pool whose operations are counted; nothing is synced really.
func counted(t testing.TB, n *durabletest.Counter) *snapshot.Pool {
	t.Helper()
	n.Unsynced = true
	return openPool(t, filepath.Join(t.TempDir(), "pool"), snapshot.Options{FS: n.Open})
}

// sizes are the megabytes of the conversations whose saves are counted: a few
// chunks, more than a document names itself, and several index chunks.
var sizes = []int{1, 12, 40}

// TestSaveCostsTheSameAtEverySize saves turn after turn of 8 KB.
func TestSaveCostsTheSameAtEverySize(t *testing.T) {
	t.Parallel()
	const turns, turn = 40, 8 << 10
	for _, tt := range []struct {
		kind        string
		syncs, seal int // of a save that seals no chunk, and more of one that does
		ops         int // of every kind, of one that seals none
	}{
		{"rolling", 2, 2, 18},
		{"new", 2, 2, 20},
		{"overwrite", 4, 1, 28},
	} {
		t.Run(tt.kind, func(t *testing.T) {
			t.Parallel()
			var first durabletest.Counts // of the smallest size
			for _, mb := range sizes {
				var n durabletest.Counter
				p := counted(t, &n)
				c := newTalk("s1").speak("x", mb<<20/turn, turn)
				request := func(i int) snapshot.SaveRequest {
					r := snapshot.SaveRequest{Name: "a~", Rolling: tt.kind == "rolling", Overwrite: tt.kind == "overwrite"}
					if tt.kind == "new" {
						r.Name = snapshot.Name(fmt.Sprintf("n%d", i))
					}
					return r
				}
				for i := range 2 { // all folders are there after
					c.speak("x", 1, turn).mustSave(t, p, request(-i-1))
				}
				written := int64(0)
				quiet := 0
				for i := range turns {
					sealed := len(c.sealed)
					c.speak("x", 1, turn)
					n.Take()
					c.mustSave(t, p, request(i))
					got := n.Take()
					written += got.Written
					want := tt.syncs
					if len(c.sealed) > sealed {
						want += tt.seal
					}
					if len(c.sealed) > sealed+1 {
						want += 2 + 2 - tt.seal // an index chunk becomes visible when the others are durable
					}
					if got.Synced > want {
						t.Errorf("%d MB, save %d: %d syncs, want at most %d: %s", mb, i, got.Synced, want, got)
					}
					if len(c.sealed) > sealed {
						continue
					}
					quiet++
					if got.Ops() > tt.ops {
						t.Errorf("%d MB, save %d: %d operations, want at most %d: %s", mb, i, got.Ops(), tt.ops, got)
					}
					got.Written, got.ReadBack = 0, 0
					if first == (durabletest.Counts{}) {
						first = got
					}
					if got != first {
						t.Errorf("%d MB, save %d: %s\nwant as at %d MB: %s", mb, i, got, sizes[0], first)
					}
				}
				if quiet == 0 || quiet == turns {
					t.Fatalf("%d MB: %d of %d saves sealed nothing, want some of both", mb, quiet, turns)
				}
				if mean := written / turns; mean > 160<<10 {
					t.Errorf("%d MB: a save writes %d bytes on average, want at most 160 KB", mb, mean)
				}
			}
		})
	}
}

// TestPoolStaysSmall saves a hundred turns and weighs the folder against the
// conversation as it would be pressed in one go.
func TestPoolStaysSmall(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kind string
		more int64 // bytes beyond 1.05 times the conversation
	}{
		{"rolling", 1 << 20}, // one document
		{"new", 16 << 20},
		{"overwrite", 16 << 20}, // the trash has the old ones
	} {
		t.Run(tt.kind, func(t *testing.T) {
			t.Parallel()
			var n durabletest.Counter
			p := counted(t, &n)
			c := newTalk("s1").speak("x", 12<<7, 8<<10)
			for i := range 100 {
				r := snapshot.SaveRequest{Name: "a~", Rolling: tt.kind == "rolling", Overwrite: tt.kind == "overwrite"}
				if tt.kind == "new" {
					r.Name = snapshot.Name(fmt.Sprintf("n%d", i))
				}
				c.speak("x", 1, 8<<10).mustSave(t, p, r)
			}
			var all, pressed int64
			err := filepath.WalkDir(p.Dir(), func(_ string, e os.DirEntry, err error) error {
				if err != nil || e.IsDir() {
					return err
				}
				info, err := e.Info()
				if err == nil {
					all += info.Size()
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range c.sealed {
				pressed += int64(len(chunk.Encode(s)))
			}
			if len(c.sealed) < 100 {
				t.Fatalf("%d chunks were sealed, want many", len(c.sealed))
			}
			if most := pressed + pressed/20 + tt.more; all > most {
				t.Errorf("the folder has %d bytes, want at most %d: the conversation has %d", all, most, pressed)
			}
		})
	}
}

// TestNamesCostTheSameAtEverySize counts what copy, rename and delete ask of the
// disk.
func TestNamesCostTheSameAtEverySize(t *testing.T) {
	t.Parallel()
	for _, mb := range sizes {
		var n durabletest.Counter
		p := counted(t, &n)
		c := newTalk("s1").speak("x", mb<<7, 8<<10)
		c.mustSave(t, p, snapshot.SaveRequest{Name: "a"})
		put(t, p, "old", "x")
		if _, _, err := p.Delete(t.Context(), []snapshot.Name{"old"}, snapshot.OpInfo{}); err != nil { // the folders are there after
			t.Fatal(err)
		}
		for _, step := range []struct {
			what  string
			do    func() error
			syncs int
		}{
			{"copy", func() error {
				_, err := p.Copy(t.Context(), "a", "b", snapshot.CopyOptions{})
				return err
			}, 2}, // the file and its folder
			{"rename", func() error {
				_, _, err := p.Rename(t.Context(), "b", "c", snapshot.RenameOptions{})
				return err
			}, 3}, // the record and its folder; the folder of the names
			{"delete", func() error {
				_, _, err := p.Delete(t.Context(), []snapshot.Name{"c"}, snapshot.OpInfo{})
				return err
			}, 4}, // the record and its folder; trash and names
		} {
			n.Take()
			if err := step.do(); err != nil {
				t.Fatalf("%s: %v", step.what, err)
			}
			got := n.Take()
			if got.Synced != step.syncs {
				t.Errorf("%d MB: %s syncs %d times, want %d: %s", mb, step.what, got.Synced, step.syncs, got)
			}
			if most := int64(200 << 10); got.Written > most {
				t.Errorf("%d MB: %s writes %d bytes", mb, step.what, got.Written)
			}
		}
	}
}

// TestFollowLooksAtASample loses a chunk that a snapshot refers to: the save
// that follows it notices where the chunk is in its sample, and brings it again.
func TestFollowLooksAtASample(t *testing.T) {
	t.Parallel()
	var n durabletest.Counter
	p := counted(t, &n)
	c := newTalk("s1").speak("x", 25, 8<<10)
	c.mustSave(t, p, snapshot.SaveRequest{Name: "a~"})
	ids := c.doc.InlineIDs()
	if len(ids) > 4 {
		t.Fatalf("%d chunks, want so few that all are looked at", len(ids))
	}
	if err := os.Remove(filepath.Join(p.Dir(), ".chunks", string(ids[0])+".zst")); err != nil {
		t.Fatal(err)
	}
	c.speak("x", 1, 100).mustSave(t, p, snapshot.SaveRequest{Name: "a~", Rolling: true})
	content(t, p, "a~")
}

// TestListReadsHeads counts what a list asks of the disk: for each snapshot one
// file opened and its first 4 KB read, whatever the snapshot's size.
func TestListReadsHeads(t *testing.T) {
	t.Parallel()
	const snapshots = 20
	var n durabletest.Counter
	p := counted(t, &n)
	c := newTalk("s1").speak("x", 100, 8<<10)
	for i := range snapshots {
		c.mustSave(t, p, snapshot.SaveRequest{Name: snapshot.Name(fmt.Sprintf("n%d", i))})
	}
	n.Take()
	if list, err := p.List(t.Context()); err != nil || len(list) != snapshots {
		t.Fatalf("List: %d, %v", len(list), err)
	}
	got := n.Take()
	if want := (durabletest.Counts{Opened: snapshots, Listed: 1, ReadBack: snapshots << 12}); got != want {
		t.Errorf("a list of %d: %s\nwant %s", snapshots, got, want)
	}
}

// TestListAgainAsksForTimes counts what a second list asks of the disk: how each
// file looks, and the head of those that look another way.
func TestListAgainAsksForTimes(t *testing.T) {
	t.Parallel()
	const snapshots = 20
	n := durabletest.Counter{Unsynced: true}
	now := newClock() // of years to come: no file is young
	p := openPool(t, filepath.Join(t.TempDir(), "pool"), snapshot.Options{FS: n.Open, Now: now.Now})
	c := newTalk("s1").speak("x", 10, 1<<10)
	for i := range snapshots {
		c.mustSave(t, p, snapshot.SaveRequest{Name: snapshot.Name(fmt.Sprintf("n%02d", i))})
	}
	file := func(i int) string { return filepath.Join(p.Dir(), fmt.Sprintf("n%02d.sess.json", i)) }
	list := func(want string, opened, stats int) []snapshot.Entry {
		t.Helper()
		n.Take()
		entries, err := p.List(t.Context())
		if err != nil || len(entries) != snapshots {
			t.Fatalf("List %s: %d, %v", want, len(entries), err)
		}
		if got := n.Take(); got.Opened != opened || got.Stats != stats || got.Listed != 1 {
			t.Errorf("a list of %d %s: %s\nwant %d opened and %d stats", snapshots, want, got, opened, stats)
		}
		return entries
	}
	noted := func(entries []snapshot.Entry, name snapshot.Name) string {
		i := slices.IndexFunc(entries, func(e snapshot.Entry) bool { return e.Name == name })
		return entries[i].Meta.Note
	}
	first := list("for the first time", snapshots, 0)
	again := list("as it was", 0, snapshots)
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("a second list differs (-first +second):\n%s", diff)
	}
	again[0].Meta.Tags = map[string]string{"mine": "now"} // what is given out is the caller's
	again[0].Meta.Note = "mine"

	if _, err := p.SetMeta(t.Context(), "n03", func(m *transcript.Meta) error { m.Note = "first"; return nil }, false); err != nil {
		t.Fatal(err)
	}
	if got := noted(list("with one changed", 1, snapshots), "n03"); got != "first" {
		t.Errorf("the note of n03 is %q, want what was set", got)
	}
	list("after that", 0, snapshots)

	// One that is so young that it could change again and look the same.
	young := now.Now()
	if err := os.Chtimes(file(3), young, young); err != nil {
		t.Fatal(err)
	}
	list("with a young one", 1, snapshots)
	list("with the same young one", 1, snapshots-1)
	now.Add(time.Minute)
	list("with one that was young", 1, snapshots-1)

	// Somebody else's program changes one in place: it keeps its length and inode.
	data, err := os.ReadFile(file(7))
	if err != nil {
		t.Fatal(err)
	}
	data = bytes.Replace(data, []byte(`"A talk"`), []byte(`"B talk"`), 1)
	if err := os.WriteFile(file(7), data, 0o600); err != nil {
		t.Fatal(err)
	}
	entries := list("with one changed in place", 1, snapshots)
	i := slices.IndexFunc(entries, func(e snapshot.Entry) bool { return e.Name == "n07" })
	if got := entries[i].Meta.Title; got != "B talk" {
		t.Errorf("the title of n07 is %q, want B talk", got)
	}
}
