//go:build unix

package tests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sess/host/client"
	"sess/plugin"
	"sess/store/durable"
	"sess/store/session"
	"sess/store/snapshot"
	"sess/store/transcript"
)

// callers call a gateway over HTTP and over JSON-RPC, from any goroutine.
type callers struct {
	*web
	rpc *client.Client
}

func newCallers(t *testing.T, u *user) *callers {
	t.Helper()
	c := &callers{web: u.serve()}
	var err error
	if c.rpc, err = client.Dial(t.Context(), client.Options{URL: c.url, Token: webToken}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.rpc.Close() }) // the server ends with the test as well, and may be faster
	return c
}

// post calls a route with a JSON object.
func (c *callers) post(route string, fields map[string]any) error {
	body, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.url+route, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+webToken)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, answer)
	}
	return err
}

// dispatch calls a verb of sess over JSON-RPC.
func (c *callers) dispatch(id string, argv ...string) error {
	_, err := c.rpc.Dispatch(c.t.Context(), plugin.Call{Argv: append([]string{"sess"}, argv...), Session: id}, nil)
	return err
}

// session makes a session of one message.
func (u *user) session(id, text string) {
	u.t.Helper()
	store, err := session.Open(filepath.Join(u.home, "sessions"), session.Options{})
	if err != nil {
		u.t.Fatal(err)
	}
	defer store.Close()
	live := store.New(session.Ref{Project: "default", ID: id}, id, u.dir)
	err = live.Append(transcript.ListMessages, message(0, text))
	if err := errors.Join(err, store.Create(u.t.Context(), live)); err != nil {
		u.t.Fatal(err)
	}
}

// contents are the messages of every snapshot by its name, and of every version
// of one in the trash.
func (u *user) contents() map[string][]string {
	u.t.Helper()
	pool, err := snapshot.Open(u.pool(), snapshot.Options{})
	if err != nil {
		u.t.Fatal(err)
	}
	defer pool.Close()
	all, err1 := pool.List(u.t.Context())
	trash, err2 := pool.ListTrash(u.t.Context())
	if err := errors.Join(err1, err2); err != nil {
		u.t.Fatal(err)
	}
	for _, e := range trash {
		all = append(all, e.Entry)
	}
	found := map[string][]string{}
	for _, e := range all {
		data, err := os.ReadFile(e.File)
		if err != nil {
			u.t.Fatal(err)
		}
		doc, err := transcript.Decode(data)
		if err != nil {
			u.t.Errorf("%s: %v", e.File, err)
			continue
		}
		var said []string
		list := doc.List(transcript.ListMessages)
		for r, err := range list.All(pool.Plain, 0, list.Records) {
			var m transcript.Message
			if err == nil {
				err = json.Unmarshal(r, &m)
			}
			if err != nil {
				u.t.Errorf("%s: %v", e.File, err)
				break
			}
			said = append(said, m.Content)
		}
		found[string(e.Name)] = append(found[string(e.Name)], strings.Join(said, "|"))
	}
	return found
}

// Forty savers begin at the same moment, by command line, in a chat, over HTTP
// and over JSON-RPC, each from a session of its own: twenty take a name of their
// own, twenty overwrite one name. Each name holds what its saver had, whole; of
// the one name every version is there, the last one live and the others in the
// trash.
func TestFortySavesAtOnce(t *testing.T) {
	t.Parallel()
	const many = 20
	u := newUser(t)
	for i := range many {
		u.session(fmt.Sprintf("s%02d", i), fmt.Sprintf("mark-%02d", i))
	}
	gateway := newCallers(t, u)
	run := func(args ...string) error {
		out, err := u.command(args...).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	}
	surfaces := []struct {
		name string
		save func(id, name string, overwrite bool) error
	}{
		{"command line", func(id, name string, overwrite bool) error {
			return run("--session="+id, "save", name, fmt.Sprintf("--overwrite=%t", overwrite))
		}},
		{"HTTP", func(id, name string, overwrite bool) error {
			return gateway.post("/sess/save", map[string]any{"session": id, "name": name, "overwrite": overwrite})
		}},
		{"chat", func(id, name string, overwrite bool) error {
			return run("--session="+id, "chat", "--message", fmt.Sprintf("/sess save %s --overwrite=%t", name, overwrite))
		}},
		{"JSON-RPC", func(id, name string, overwrite bool) error {
			return gateway.dispatch(id, "save", name, fmt.Sprintf("--overwrite=%t", overwrite))
		}},
	}
	begin := make(chan struct{})
	var all sync.WaitGroup
	for i := range many {
		id := fmt.Sprintf("s%02d", i)
		for j, name := range []string{fmt.Sprintf("n%02d", i), "same"} {
			by := surfaces[(i+j)%len(surfaces)]
			all.Go(func() {
				<-begin
				if err := by.save(id, name, name == "same"); err != nil {
					t.Errorf("save %s by %s: %v", name, by.name, err)
				}
			})
		}
	}
	close(begin)
	all.Wait()

	found := u.contents()
	var marks []string
	for i := range many {
		mark, name := fmt.Sprintf("mark-%02d", i), fmt.Sprintf("n%02d", i)
		marks = append(marks, mark)
		if got := found[name]; !slices.Equal(got, []string{mark}) {
			t.Errorf("%s holds %q, want %q", name, got, mark)
		}
	}
	same := slices.Sorted(slices.Values(found["same"]))
	if !slices.Equal(same, marks) {
		t.Errorf("the versions of one name hold %q, want each mark once", same)
	}
	if got := u.names("--include-auto"); len(got) != many+1 || len(found) != many+1 {
		t.Errorf("%d snapshots are listed and %d are there, want %d: %v", len(got), len(found), many+1, got)
	}
	u.do("verify")
}

// Somebody holds the lock of the snapshots for two seconds. A list does not
// notice; what changes something waits, on every surface, and is done then: a
// lock that is busy is never taken for a snapshot that is not there.
func TestLockHeldForAWhile(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.do("chat", "--message", "one")
	for _, name := range []string{"v1", "v2", "v3", "v4"} {
		u.do("save", name)
	}
	u.do("chat", "--message", "two")
	gateway := newCallers(t, u)
	fsys, err := durable.OpenExisting(u.pool())
	if err != nil {
		t.Fatal(err)
	}
	defer fsys.Close()
	release, err := durable.LockAs(t.Context(), fsys, ".lock", "a long change", false)
	if err != nil {
		t.Fatal(err)
	}
	id := u.active().Ref.ID
	changes := map[string]func() error{
		"load v1":   func() error { return u.command("load", "v1").Run() },
		"rename v2": func() error { return gateway.dispatch(id, "rename", "v2", "w2") },
		"delete v3": func() error {
			return gateway.post("/sess/delete", map[string]any{"session": id, "name": "v3"})
		},
		"copy v4":     func() error { return u.command("chat", "--message", "/sess copy v4 w4").Run() },
		"save v5":     func() error { return gateway.post("/sess/save", map[string]any{"session": id, "name": "v5"}) },
		"tag v4":      func() error { return u.command("tag", "v4", "a=b").Run() },
		"overwrite 4": func() error { return gateway.dispatch(id, "save", "v4", "--overwrite") },
	}
	held := time.After(2 * time.Second)
	ended := make(chan string, len(changes))
	var all sync.WaitGroup
	for what, change := range changes {
		all.Go(func() {
			if err := change(); err != nil {
				t.Errorf("%s, which had to wait: %v", what, err)
			}
			ended <- what
		})
	}
	if got := u.names(); !slices.Equal(got, []string{"v4", "v3", "v2", "v1"}) {
		t.Errorf("while the lock is held the list has %q", got)
	}
	u.do("view", "v1")
	select {
	case what := <-ended:
		t.Errorf("%s ended while the lock was held", what)
	case <-held:
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	got := u.names()
	slices.Sort(got)
	if want := []string{"v1", "v4", "v5", "w2", "w4"}; !slices.Equal(got, want) {
		t.Errorf("then the list has %q, want %q", got, want)
	}
	u.do("verify")
}
