package sess_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"

	"sess/plugin"
	"sess/plugin/sess"
	"sess/store/durable/durabletest"
	"sess/store/snapshot"
)

// newCounted is newWorld with the disk of the pools counted, and without a prune
// in the background that would count too.
func newCounted(t *testing.T, n *durabletest.Counter) *world {
	t.Helper()
	w := newWorld(t, `{"maxSnapshots":100}`)
	w.do("save", "warm") // whose prune in the background Drain waits for
	if err := w.plugin.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	n.Unsynced = true
	w.plugin = sess.New(sess.Options{Build: "test", Now: w.Now, Pool: snapshot.Options{FS: n.Open}})
	err := w.plugin.Configure(t.Context(), plugin.Configuration{
		Config: json.RawMessage(w.config), AgentsDir: filepath.Join(w.dir, "agents"), UserHome: w.dir,
	}, w.host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.plugin.Drain(context.Background()); err != nil {
			t.Errorf("Drain: %v", err)
		}
	})
	w.do("save", "warm", "--overwrite") // all folders are there, and the background is done with
	return w
}

// TestLoadCostsFourWritesInThePool counts: the record, that it has a backup, the
// backup, and the record closed. The fifth is the host's, of the session.
func TestLoadCostsFourWritesInThePool(t *testing.T) {
	t.Parallel()
	for _, messages := range []int{1, 2000} {
		var n durabletest.Counter
		w := newCounted(t, &n)
		w.say(w.ref, "more", messages)
		w.do("save", "v1")
		w.say(w.ref, "later", 1)
		n.Take()
		w.do("load", "v1")
		got := n.Take()
		if got.Renamed > 4 || got.Synced > 10 {
			t.Errorf("a load with %d messages: %s; want at most 4 files written, and 2 syncs more for chunks", messages, got)
		}
	}
}

// TestSaveReadsNoHeads counts the files that a save opens: as many in a pool of
// many as in one of few.
func TestSaveReadsNoHeads(t *testing.T) {
	t.Parallel()
	var few int
	for _, snapshots := range []int{2, 40} {
		var n durabletest.Counter
		w := newCounted(t, &n)
		for i := range snapshots {
			w.do("save", fmt.Sprintf("n%d", i))
		}
		n.Take()
		w.do("save", "last")
		opened := n.Take().Opened
		if few == 0 {
			few = opened
		}
		// One more may be the background's look at the last prune.
		if opened == 0 || opened > few+1 || opened < few-1 {
			t.Errorf("a save in a pool of %d opens %d files, want %d", snapshots, opened, few)
		}
	}
}
