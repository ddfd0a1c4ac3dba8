package tests

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sess/store/session"
	"sess/store/transcript"
)

// A load that cannot be leaves the session's file and its event log byte for
// byte as they were, makes no other session and no backup, and says what is
// wrong with which file.
func TestLoadsThatCannotBe(t *testing.T) {
	t.Parallel()
	u, uid := newMortal(t)
	u.do("chat", "--message", "one")
	u.do("save", "good")
	u.doWith(strings.Repeat("a conversation that fills a chunk ", 5000)+"\n", "chat")
	u.do("save", "chunked")
	u.do("chat", "--message", "three")
	file := func(name string) string { return filepath.Join(u.pool(), name+".sess.json") }
	good, err := os.ReadFile(file("good"))
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"wrong":  []byte(strings.Replace(string(good), "You said", "You sang", 1)),
		"cut":    good[:len(good)/2],
		"closed": good,
	} {
		if err := os.WriteFile(file(name), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Lchown(file(name), uid, -1); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(file("closed"), 0); err != nil {
		t.Fatal(err)
	}
	chunks, err := filepath.Glob(filepath.Join(u.pool(), ".chunks", "*.zst"))
	if err != nil || len(chunks) == 0 {
		t.Fatalf("no chunks in the pool: %v", err)
	}
	for _, chunk := range chunks {
		if err := os.Remove(chunk); err != nil {
			t.Fatal(err)
		}
	}
	sessions := filepath.Join(u.home, "sessions")
	before, err := readTree(sessions)
	if err != nil {
		t.Fatal(err)
	}
	names := u.names("--include-auto")
	reasons := map[string]bool{}
	for name, want := range map[string]struct {
		exit int
		code string
	}{"wrong": {7, "corrupt"}, "cut": {7, "corrupt"}, "closed": {6, "denied"}, "chunked": {7, "corrupt"}} {
		var failure struct{ Code, Error, Hint string }
		u.fails(want.exit, &failure, "load", name)
		if failure.Code != want.code || !strings.Contains(failure.Error, name) || failure.Hint == "" {
			t.Errorf("load %s says %+v, want the code %s and the name", name, failure, want.code)
		}
		reasons[strings.ReplaceAll(failure.Error, name, "")] = true
	}
	if len(reasons) != 4 {
		t.Errorf("four things are wrong, and the errors are %v", reasons)
	}
	after, err := readTree(sessions)
	if err != nil {
		t.Fatal(err)
	}
	if changes, err := diffTrees(before, after, []string{"*.holder", ".lock"}); err != nil || changes != "" {
		t.Errorf("loads that were refused changed the sessions (%v):\n%s", err, changes)
	}
	if got := u.names("--include-auto"); !slices.Equal(got, names) {
		t.Errorf("loads that were refused changed the list from %q to %q", names, got)
	}
}

// The plugin is killed in a load of 30 MB, early or late: the session is what it
// was or what was loaded, whole; then there is the backup of the load, and undo
// takes it back.
func TestKilledInALongLoad(t *testing.T) {
	t.Parallel()
	k := newKiller(t, uint64(time.Now().UnixNano()))
	k.do("chat", "--message", "short")
	k.do("save", "short")
	ref := k.active().Ref
	store, err := session.Open(filepath.Join(k.home, "sessions"), session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	locked, err := store.Lock(t.Context(), ref, "test", true)
	if err != nil {
		t.Fatal(err)
	}
	live, err := locked.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const many = 30 << 20 / (64 << 10)
	for i := range many {
		rec := message(i, noise(k.rng, 64<<10))
		if err := live.Append(transcript.ListMessages, rec); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := locked.Write(t.Context(), live, live.Revision); err != nil {
		t.Fatal(err)
	}
	if err := locked.Unlock(); err != nil {
		t.Fatal(err)
	}
	k.do("save", "long")
	digest := func() string { return k.active().Doc.Digest() }
	long := digest()
	started := time.Now()
	k.do("load", "short")
	usual := time.Since(started)
	short := digest()

	const rounds = 4
	hits, landed := 0, 0
	for n := range rounds {
		k.do("load", "short", "--no-backup")
		k.do("trash", "empty", "--confirm")
		names := k.names("--include-auto")
		// Where it falls depends on how busy the machine is; any moment will do.
		hit, exit := k.kill(pluginAlone, usual*time.Duration(n)/rounds, "load", "long")
		k.wait("the end of all processes", func() bool { return len(k.processes()) == 0 })
		if hit {
			hits++
		}
		is := digest()
		now := k.names("--include-auto") // this settles what the load left
		switch {
		case is == short && exit != 0:
			if !slices.Equal(now, names) {
				t.Errorf("round %d: the load came to nothing, and the list changed from %q to %q", n, names, now)
			}
		case is == long:
			landed++
			if len(now) != len(names)+1 {
				t.Errorf("round %d: the load came to its end, and the list changed from %q to %q; want a backup more", n, names, now)
			}
			k.do("undo")
			if digest() != short {
				t.Errorf("round %d: undo did not bring back what was live", n)
			}
		default:
			t.Errorf("round %d: the load ended with status %d, and the session is neither what it was nor what was loaded", n, exit)
		}
		k.do("verify")
	}
	t.Logf("%d of %d loads were hit, %d came to their end", hits, rounds, landed)
	if hits == 0 {
		t.Error("no plugin was killed while it loaded")
	}
}
