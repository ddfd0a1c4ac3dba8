package host_test

import (
	"context"
	"encoding/json"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"testing"
	"time"

	"sess/host"
	"sess/plugin"
	"sess/plugin/sess"
)

// countedPlugin is the sess plugin; the word "held" asks its process what it
// holds.
type countedPlugin struct{ plugin.Plugin }

func (p countedPlugin) Dispatch(ctx context.Context, call plugin.Call, progress plugin.ProgressFunc) (plugin.Result, error) {
	if len(call.Argv) == 1 && call.Argv[0] == "held" {
		data, err := json.Marshal(holds())
		return plugin.Result{Data: data}, err
	}
	return p.Plugin.Dispatch(ctx, call, progress)
}

// held is what a process has not given back.
type held struct {
	PID         int
	Goroutines  int
	Descriptors int // 0 where the system does not list them
	Heap        int64
}

func holds() held {
	debug.FreeOSMemory() // a collection, to its end
	runtime.GC()         // what finalizers and pools gave up
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	open, _ := os.ReadDir("/dev/fd")
	return held{os.Getpid(), runtime.NumGoroutine(), len(open), int64(m.HeapAlloc)}
}

// Calls leave nothing behind, in the host and in the plugin's process, whether
// they read, write or fail. TESTS_CALLS says how many; it runs alone, as it
// counts what the whole process holds.
func TestCallsLeaveNothingBehind(t *testing.T) {
	calls := 2_000
	if text := os.Getenv("TESTS_CALLS"); text != "" {
		var err error
		if calls, err = strconv.Atoi(text); err != nil {
			t.Fatalf("TESTS_CALLS: %v", err)
		}
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h, err := host.Open(t.Context(), host.Options{Home: t.TempDir(), Exe: exe, Environ: os.Environ(), Builtins: [][]byte{sess.ManifestJSON}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	}()
	mustDispatch(t, h, "sess", "new")
	work := func(calls int) {
		const workers = 4
		var all sync.WaitGroup
		for w := range workers {
			all.Go(func() {
				for i := range calls / workers {
					argv, fails := []string{"sess", "list"}, false
					switch {
					case i%50 == 0:
						argv = []string{"sess", "save", "slot" + strconv.Itoa(w), "--overwrite"}
					case i%5 == 0:
						argv, fails = []string{"sess", "view", "no-such-snapshot"}, true
					}
					_, err := h.Dispatch(t.Context(), plugin.Call{Argv: argv, Caller: plugin.CallerCLI}, nil)
					if (err != nil) != fails {
						t.Errorf("%v: %v", argv, err)
						return
					}
				}
			})
		}
		all.Wait()
	}
	there := func() held {
		t.Helper()
		res, err := h.Dispatch(t.Context(), plugin.Call{Argv: []string{"sess", "held"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var n held
		if err := json.Unmarshal(res.Data, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	work(400) // pools, caches and connections fill
	before := map[string]held{"host": holds(), "plugin": there()}
	work(calls)
	// A save's upkeep ends a little behind its answer.
	const more = 1 << 20
	var after map[string]held
	flat := func() bool {
		after = map[string]held{"host": holds(), "plugin": there()}
		for where, b := range before {
			a := after[where]
			if a.Goroutines > b.Goroutines || a.Descriptors > b.Descriptors || a.Heap > b.Heap+more {
				return false
			}
		}
		return true
	}
	for end := time.Now().Add(10 * time.Second); !flat(); {
		if time.Now().After(end) {
			t.Fatalf("%d calls left behind: before %+v, after %+v", calls, before, after)
		}
	}
	if a, b := after["plugin"].PID, before["plugin"].PID; a != b {
		t.Errorf("the plugin's process changed from %d to %d", b, a)
	}
	t.Logf("%d calls: before %+v, after %+v", calls, before, after)
}
