package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// S4-02: the seven verbs come first in help, and no other verb has the name of one
// of them, or an alias of it.
func TestSevenVerbs(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	first, rest, found := strings.Cut(u.do("help"), "\nmore:")
	if !found {
		t.Fatalf("help has no verbs beside the first ones:\n%s", first)
	}
	rest, _, _ = strings.Cut(rest, "\nbeside:")
	var verbs, words []string
	for line := range strings.Lines(first) {
		if !strings.HasPrefix(line, "  ") {
			continue
		}
		verb := strings.Fields(line)[0]
		verbs = append(verbs, verb)
		words = append(words, verb)
		if _, aliases, found := strings.Cut(line, "(also "); found {
			aliases, _, _ = strings.Cut(aliases, ")")
			words = append(words, strings.Split(aliases, ", ")...)
		}
	}
	slices.Sort(verbs)
	if want := []string{"copy", "delete", "list", "load", "new", "rename", "save"}; !slices.Equal(verbs, want) {
		t.Errorf("help begins with %q, want %q", verbs, want)
	}
	if len(words) != 7+14 {
		t.Errorf("the seven verbs and their aliases are %q, want 21 words", words)
	}
	if slices.Sort(words); len(slices.Compact(slices.Clone(words))) != len(words) {
		t.Errorf("two verbs share a word: %q", words)
	}
	for verb := range strings.SplitSeq(rest, ",") {
		if verb = strings.Join(strings.Fields(verb), " "); slices.Contains(words, verb) {
			t.Errorf("%q is among the seven and their aliases, and a verb of its own", verb)
		}
	}
}

// S4-17, S4-18, S4-19: the plugin sess is there, switched on, and after a restart
// of the gateway it is inspected as ready; switched off by the configuration, it
// is that after a restart, and on again.
func TestSessAfterARestart(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	inspect := func() (p struct {
		ID, State string
		PID       int
		Surfaces  map[string]json.RawMessage
		Verbs     []string
	},
	) {
		t.Helper()
		u.answer(&p, "plugins", "inspect", "sess")
		return p
	}
	restart := func(want string) {
		t.Helper()
		g := u.gateway()
		p := inspect()
		if p.ID != "sess" || p.State != want || (p.PID != 0) != (want == "ready") {
			t.Errorf("after a start: %+v, want it %s", p, want)
		}
		if want == "ready" && (len(p.Verbs) < 7 || p.Surfaces["tool"] == nil) {
			t.Errorf("after a start: %+v, want its verbs and surfaces", p)
		}
		u.do("gateway", "stop")
		if exit := g.end(); exit != 0 {
			t.Errorf("the gateway ended with status %d", exit)
		}
	}
	restart("ready")
	u.config(`{"plugins":{"entries":{"sess":{"enabled":false,"config":{"autoSave":true,"maxSnapshots":100,"allowOverwrite":false}}}}}`)
	restart("disabled")
	u.config(`{"plugins":{"entries":{"sess":{"enabled":true,"config":{"autoSave":true,"maxSnapshots":100,"allowOverwrite":false}}}}}`)
	restart("ready")
	u.do("chat", "--message", "hello")
	if got := u.names("--include-auto"); !slices.Equal(got, []string{"autosave~"}) {
		t.Errorf("with the configuration in force the snapshots are %q", got)
	}
}

// S4-60, S4-83: every route of every command wants the token; without it, or with
// another one, nothing happens.
func TestRoutesWantTheToken(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.do("--session=one", "chat", "--message", "hello")
	u.do("--session=one", "save", "v1")
	w := u.serve()
	doc, err := openapi3.NewLoader().LoadFromData([]byte(w.want(200, nil, "GET", "/openapi.json", "").body))
	if err != nil {
		t.Fatal(err)
	}
	w.want(200, nil, "GET", "/sess/list", "") // the plugin runs
	check := u.unchanged()
	open := []string{"/", "/healthz", "/readyz", "/client.js", "/client.d.ts"}
	wanted := 0
	for path, item := range doc.Paths.Map() {
		if slices.Contains(open, path) {
			continue
		}
		for method := range item.Operations() {
			target := strings.NewReplacer("{id}", "one", "{snapshot}", "v1").Replace(path)
			for _, authorization := range []string{"", "Bearer", "Bearer ", "Bearer " + webToken + "2", "Bearer " + webToken[:4], "Basic " + webToken} {
				req, err := http.NewRequestWithContext(t.Context(), method, w.url+target, strings.NewReader(`{"name":"v1","from":"v1","to":"v2"}`))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Content-Type", "application/json")
				if authorization != "" {
					req.Header.Set("Authorization", authorization)
				}
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				var body struct{ Error any } // the text, or on routes of other forms an object
				err = json.NewDecoder(resp.Body).Decode(&body)
				resp.Body.Close()
				if resp.StatusCode != 401 || err != nil || body.Error == nil || resp.Header.Get("WWW-Authenticate") == "" {
					t.Errorf("%s %s with %q: %d %+v (%v), want 401 in JSON", method, target, authorization, resp.StatusCode, body, err)
				}
			}
			wanted++
		}
	}
	if wanted < 60 {
		t.Errorf("%d routes were tried, want those of all commands", wanted)
	}
	check()
}

// S4-08, S4-09: processes that prune and save at the same moment get in nobody's
// way: all succeed, what is left is within the limit, and names of people's own
// and what was removed can still be had.
func TestPruneSideBySide(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.configure(`{"maxSnapshots":0}`)
	u.do("chat", "--message", "hello")
	u.do("save", "mine")
	const many = 12
	lines := make([]string, many)
	for i := range lines {
		lines[i] = fmt.Sprintf("/sess save a%02d~", i)
	}
	u.chat(lines...)
	u.configure(`{"maxSnapshots":4}`)
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			if _, stderr, exit := u.run("prune"); exit != 0 {
				t.Errorf("a prune beside others ended with status %d: %s", exit, stderr)
			}
		})
	}
	wait.Wait()
	if got, want := u.names("--include-auto"), []string{"a11~", "a10~", "a09~", "mine"}; !slices.Equal(got, want) {
		t.Errorf("left: %q, want %q", got, want)
	}
	var trash []struct{ Name, Why string }
	u.answer(&trash, "trash", "list")
	if len(trash) != many-3 {
		t.Errorf("in the trash: %+v, want %d", trash, many-3)
	}
	u.do("verify")
}

// S4-16, S4-97, S4-98, S4-101: the repository has what somebody needs who takes it
// over: manifest, licence, changelog, a README, a file for each verb with its
// tests beside, and one command for all checks.
func TestRepository(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"plugin.json": `"id": "sess"`, "LICENSE": "MIT License", "CHANGELOG.md": "# Changelog", "README.md": "# sess", "CONTRIBUTING.md": ".ci/run",
		"docs/lines.md": "S4-101", ".ci/run": "go vet",
		"dispatch/parse.go": "package dispatch", "store/snapshot/pool.go": "package snapshot", "plugin/sess/verbs_test.go": "func Test",
	} {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v, want it with %q", name, err, want)
		}
	}
	for _, verb := range []string{"save", "load", "list", "new", "copy", "rename", "delete"} {
		if _, err := os.Stat(filepath.Join(root, "plugin", "sess", verb+".go")); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "Makefile")); !os.IsNotExist(err) {
		t.Errorf("a Makefile beside .ci/run: %v", err)
	}
}
