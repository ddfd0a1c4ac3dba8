package tests

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"sess/plugin/responses/responsestest"
)

// cloudKey is the key that the server of a cloudUser is shown.
const cloudKey = "sk-k3y-that-nobody-keeps"

// newCloudUser is somebody who talks to a model over the Responses API; config is
// that of the plugin.
func newCloudUser(t *testing.T, config string) (*user, *responsestest.Server) {
	t.Helper()
	u, server := newUser(t), responsestest.New()
	t.Cleanup(server.Close)
	u.env = append(u.env, "CLOUD_KEY="+cloudKey)
	u.config(fmt.Sprintf(`{
		"models": {"default": "cloud/gpt-x", "providers": {"cloud": {"kind": "responses", "baseURL": %q, "apiKeyEnv": "CLOUD_KEY", "maxRetries": 0}}},
		"plugins": {"entries": {"responses": {"config": %s}}}
	}`, server.URL+"/v1", config))
	return u, server
}

func (u *user) say(texts ...string) {
	u.t.Helper()
	for _, text := range texts {
		u.do("chat", "--message", text)
	}
}

// asked are the items of the last request to a server.
func asked(s *responsestest.Server) []string {
	var got []string
	for _, item := range s.Last().Body.Input {
		got = append(got, string(item))
	}
	return got
}

// madeSnapshot is a snapshot as list --json tells of it.
type madeSnapshot struct {
	Name, Reason, Trigger, Plugin, Action string
	Automatic                             bool
	Range                                 *struct{ Start, End *int }
}

func (u *user) snapshots() []madeSnapshot {
	u.t.Helper()
	var list []madeSnapshot
	u.answer(&list, "list", "--include-auto")
	return list
}

// liveFiles are the bytes of the live sessions.
func (u *user) liveFiles() map[string]string {
	u.t.Helper()
	all := map[string]string{}
	err := fs.WalkDir(os.DirFS(u.home), "sessions", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != ".json" {
			return err
		}
		data, err := os.ReadFile(filepath.Join(u.home, path))
		all[path] = string(data)
		return err
	})
	if err != nil {
		u.t.Fatal(err)
	}
	return all
}

func equal(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// S0-03, S0-42: a snapshot has the provider's own words, and after a restore the
// next request goes on from them, byte for byte, and from nothing that came later.
func TestTheNextRequestGoesOnFromWhatWasRestored(t *testing.T) {
	t.Parallel()
	for _, store := range []bool{false, true} {
		t.Run(fmt.Sprintf("store=%t", store), func(t *testing.T) {
			t.Parallel()
			u, server := newCloudUser(t, fmt.Sprintf(`{"store":%t}`, store))
			u.say("one")
			u.do("save", "v1")
			u.say("two")
			second := server.Last()
			u.say("three")
			u.do("load", "v1")
			u.say("two")
			restored := server.Last()
			equal(t, "the request after the restore", string(second.Raw), string(restored.Raw))
			if previous := restored.Body.Previous; store != (previous == "resp_1") {
				t.Errorf("store is %t, and the request goes on from %q", store, previous)
			}
			if !store && !bytes.Contains(restored.Raw, []byte(`{"id":"rs_1", "type":"reasoning","encrypted_content":"gAAA<1>&\u003c\/+é==","summary":[]}`)) {
				t.Errorf("the first answer's reasoning is not in the request as it came: %s", restored.Raw)
			}
		})
	}
}

// S0-42: two sessions never share an answer that the provider goes on from.
func TestACopyGoesOnFromNoAnswer(t *testing.T) {
	t.Parallel()
	for _, way := range [][]string{{"new", "--from=v1"}, {"load", "--as-new", "v1"}} {
		t.Run(way[0], func(t *testing.T) {
			t.Parallel()
			u, server := newCloudUser(t, `{"store":true}`)
			u.say("one")
			u.do("save", "v1")
			u.do(way...)
			u.say("two")
			if body := server.Last().Body; body.Previous != "" || len(body.Input) != 4 {
				t.Errorf("after sess %s the request goes on from %q with %d items", strings.Join(way, " "), body.Previous, len(body.Input))
			}
			u.say("three")
			if body := server.Last().Body; body.Previous != "resp_2" {
				t.Errorf("the copy goes on from %q, not from its own answer", body.Previous)
			}
		})
	}
}

// S0-21, S0-23, S0-34, S0-35, S0-36, S0-37, S0-38, S0-39: a compaction that is committed leaves a snapshot of
// the state before, which says what was done by whom.
func TestCompactionIsCommittedWithAWayBack(t *testing.T) {
	t.Parallel()
	u, server := newCloudUser(t, `{}`)
	u.say("one", "two", "three")
	said := u.messages()
	before := u.active()
	var answer struct {
		Text string
		Data struct {
			Compacted bool
			Snapshot  string
			Revision  int64
		}
	}
	u.answer(&answer, "context", "compact", "--range=:3")
	if !answer.Data.Compacted || answer.Data.Revision <= before.Revision || !strings.Contains(answer.Text, "1004 tokens became 20") {
		t.Errorf("compact answers %+v", answer)
	}
	end, start := 3, 0
	equal(t, "snapshots", []madeSnapshot{{
		Name: answer.Data.Snapshot, Reason: "Before compacting conversation [:3]", Trigger: "compact", Plugin: "responses",
		Action: "compact_conversation", Automatic: true, Range: &struct{ Start, End *int }{&start, &end},
	}}, u.snapshots())
	equal(t, "what people see", said, u.messages())
	equal(t, "requests for a compaction", "/v1/responses/compact", server.Last().Path)
	equal(t, "what was compacted", 4, len(server.Last().Body.Input))

	u.say("four")
	want := []string{
		`{"role":"user","content":"one"}`, `{"role":"user","content":"two"}`,
		`{       "id": "cmp_4",       "type": "compaction",       "encrypted_content": "zzz<4>&\u003c"     }`,
	}
	got := asked(server)
	equal(t, "the beginning of the next request", want, got[:3])
	equal(t, "the whole of it", 9, len(got))

	var show struct {
		Compacted, Tokens, ContextWindow int
		Model                            string
	}
	u.answer(&show, "context", "show")
	if show.Compacted != 3 || show.Tokens != 100 || show.ContextWindow != 200_000 || show.Model != "cloud/gpt-x" {
		t.Errorf("context show says %+v", show)
	}
	var again struct{ Text string }
	u.answer(&again, "context", "compact", "--range=:3")
	equal(t, "compacting the same again", "nothing to compact: messages [:3] are compacted already", again.Text)

	// Another model cannot read it, and is told what was said.
	out := u.do("chat", "--model", "offline/echo", "--message", "five")
	if !strings.Contains(out, `This conversation has 5 messages from you; the first was "one".`) {
		t.Errorf("another model knows of this: %s", out)
	}
	u.do("load", answer.Data.Snapshot)
	equal(t, "what the snapshot brings back", said, u.messages())
	equal(t, "with its history", items(t, before, "history"), items(t, u.active(), "history"))
}

// A compaction is taken back like every other change.
func TestCompactionIsUndone(t *testing.T) {
	t.Parallel()
	u, _ := newCloudUser(t, `{"keepTurns":1}`)
	u.say("one", "two")
	before := items(t, u.active(), "history")
	u.do("context", "compact")
	if after := items(t, u.active(), "history"); len(after) != 3 {
		t.Errorf("after the compaction history is %q", after)
	}
	u.do("undo")
	equal(t, "history after undo", before, items(t, u.active(), "history"))
}

// S0-24, S0-26, S0-27, S0-28, S0-29, S0-30: a compaction that comes to nothing leaves no snapshot, and
// everything as it was.
func TestACompactionThatFailsChangesNothing(t *testing.T) {
	t.Parallel()
	u, server := newCloudUser(t, `{}`)
	u.say("one", "two", "three")
	before := u.liveFiles()
	unchanged := func(what string) {
		t.Helper()
		equal(t, what+": live sessions", before, u.liveFiles())
		if list := u.snapshots(); len(list) != 0 {
			t.Errorf("%s: it left %+v", what, list)
		}
	}
	type failure struct{ Error, Code, Hint string }
	var got failure

	server.Script(responsestest.Reply{Status: 500, Error: `{"error":{"message":"it broke","type":"server_error"}}`})
	u.fails(9, &got, "context", "compact", "--range=:2")
	if !strings.Contains(got.Error, "it broke") {
		t.Errorf("a failure of the provider: %+v", got)
	}
	unchanged("a failure of the provider")

	for _, bad := range []struct{ slice, want string }{{"1:3", "does not begin at the first message"}, {"x", "is not a range"}, {"3", "is not a range"}} {
		u.fails(2, &got, "context", "compact", "--range="+bad.slice)
		if !strings.Contains(got.Error, bad.want) {
			t.Errorf("--range=%s: %+v", bad.slice, got)
		}
	}
	for _, none := range []string{":0", ":-9"} {
		var answer struct{ Text string }
		u.answer(&answer, "context", "compact", "--range="+none)
		if !strings.HasPrefix(answer.Text, "nothing to compact") {
			t.Errorf("--range=%s: %q", none, answer.Text)
		}
	}
	unchanged("nothing to do")

	// Somebody goes on meanwhile.
	begun, wait := make(chan struct{}), make(chan struct{})
	server.Script(responsestest.Reply{Begun: begun, Wait: wait})
	compacting := u.begin(begun, "--json", "context", "compact", "--range=:2")
	u.say("four")
	before = u.liveFiles()
	close(wait)
	if exit := u.exit(<-compacting.ended); exit != 4 {
		t.Errorf("a compaction beside a turn ended with status %d: %s", exit, &compacting.out)
	}
	unchanged("a conflict")

	if !interruptible() {
		return
	}
	begun = make(chan struct{})
	server.Script(responsestest.Reply{Begun: begun, Wait: make(chan struct{})})
	compacting = u.begin(begun, "context", "compact", "--range=:2")
	if err := compacting.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if exit := u.exit(<-compacting.ended); exit != 130 {
		t.Errorf("an interrupted compaction ended with status %d", exit)
	}
	unchanged("an interruption")

	begun = make(chan struct{})
	server.Script(responsestest.Reply{Begun: begun, Wait: make(chan struct{})})
	compacting = u.begin(begun, "context", "compact", "--range=:2")
	if err := compacting.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-compacting.ended
	unchanged("a sudden death")
}

// running is a command that asks a server which makes it wait.
type running struct {
	*exec.Cmd
	out   bytes.Buffer
	ended chan error
}

// begin starts a command, and returns when the server has its request.
func (u *user) begin(begun <-chan struct{}, args ...string) *running {
	u.t.Helper()
	r := &running{Cmd: u.command(args...), ended: make(chan error, 1)}
	r.Stdout, r.Stderr = &r.out, &r.out
	if err := r.Start(); err != nil {
		u.t.Fatal(err)
	}
	go func() { r.ended <- r.Wait() }()
	select {
	case <-begun:
	case err := <-r.ended:
		u.t.Fatalf("sess %s ended before it asked anybody: %v\n%s", strings.Join(args, " "), err, &r.out)
	}
	return r
}

// interruptible reports whether the system lets a test interrupt a program.
func interruptible() bool { return os.PathSeparator == '/' }

// A session that shows a snapshot is not compacted, and neither is one whose model
// cannot; each says what to do.
func TestWhatCannotBeCompacted(t *testing.T) {
	t.Parallel()
	u, _ := newCloudUser(t, `{}`)
	u.say("one", "two", "three")
	u.do("save", "v1")
	u.do("select", "v1")
	var got struct{ Error, Code, Hint string }
	u.fails(5, &got, "context", "compact")
	if got.Code != "readonly" || !strings.Contains(got.Hint, "deselect") {
		t.Errorf("while a snapshot is selected: %+v", got)
	}
	u.do("deselect")
	u.do("chat", "--model", "offline/echo", "--message", "four")
	u.fails(2, &got, "context", "compact")
	if got.Error != "model offline/echo cannot compact a conversation" || !strings.Contains(got.Hint, `kind "responses"`) {
		t.Errorf("with a model that cannot: %+v", got)
	}
	u.gateway()
	var failure struct{ Error string }
	u.fails(6, &failure, "gateway", "call", "models.compact", `--params={"session":"x","revision":1,"messages":1}`)
}

// After a turn that filled its share of the window the conversation is compacted,
// and people are told.
func TestAFullConversationIsCompactedByItself(t *testing.T) {
	t.Parallel()
	u, server := newCloudUser(t, `{"keepTurns":1}`)
	u.say("one", "two")
	server.Script(responsestest.Reply{Tokens: 150_000}, responsestest.Reply{Tokens: 170_000})
	_, stderr, _ := u.run("chat", "--message", "three")
	if strings.Contains(stderr, "compacted") {
		t.Errorf("below its share it says %q", stderr)
	}
	_, stderr, exit := u.run("chat", "--message", "four")
	if exit != 0 || !strings.Contains(stderr, "the conversation fills 85% of the model's window: compacted messages [:6] for the model") {
		t.Errorf("above its share it ended with status %d and says %q", exit, stderr)
	}
	if list := u.snapshots(); len(list) != 1 || list[0].Reason != "Before compacting conversation [:6]" {
		t.Errorf("snapshots %+v", list)
	}
	server.Script(responsestest.Reply{Tokens: 170_000}, responsestest.Reply{Status: 500, Error: "it broke"})
	_, stderr, exit = u.run("chat", "--message", "five")
	if exit != 0 || !strings.Contains(stderr, "could not be compacted") || !strings.Contains(stderr, "it broke") {
		t.Errorf("where the provider fails it ended with status %d and says %q", exit, stderr)
	}
	equal(t, "messages", 10, len(u.messages()))
}

// The key goes to the provider and nowhere else: no file of the home has it.
func TestTheKeyIsKeptNowhere(t *testing.T) {
	t.Parallel()
	u, server := newCloudUser(t, `{}`)
	u.say("one", "two")
	server.Script(responsestest.Reply{Status: 401, Error: `{"error":{"message":"Incorrect API key provided: ` + cloudKey + `","code":"invalid_api_key"}}`})
	stdout, stderr, exit := u.run("chat", "-v", "--message", "three")
	if exit != 6 || !strings.Contains(stderr, "the provider refuses the key of the variable CLOUD_KEY") || strings.Contains(stdout+stderr, cloudKey) {
		t.Errorf("a wrong key ended with status %d: %s%s", exit, stdout, stderr)
	}
	u.do("context", "compact", "--range=:2")
	keys := map[string]bool{}
	for _, r := range server.Requests() {
		keys[r.Key] = true
	}
	equal(t, "keys that the server saw", []string{cloudKey}, slices.Collect(maps.Keys(keys)))
	err := fs.WalkDir(os.DirFS(u.home), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(u.home, path))
		if bytes.Contains(data, []byte(cloudKey)) {
			t.Errorf("the key is in %s", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	u.env = slices.DeleteFunc(u.env, func(s string) bool { return strings.HasPrefix(s, "CLOUD_KEY=") })
	_, stderr, exit = u.run("chat", "--message", "four")
	if exit != 6 || !strings.Contains(stderr, "the variable CLOUD_KEY is not set") {
		t.Errorf("without a key it ended with status %d: %s", exit, stderr)
	}
}

// The plugin reaches the network in the same way as the rest of the program.
func TestThePluginUsesTheProxy(t *testing.T) {
	t.Parallel()
	u, server := newCloudUser(t, `{}`)
	u.config(`{"models": {"default": "cloud/gpt-x", "providers": {"cloud": {"kind": "responses", "baseURL": "http://models.invalid/v1", "maxRetries": 0}}}}`)
	u.env = append(u.env, "HTTP_PROXY="+server.URL)
	u.say("one")
	equal(t, "requests", 1, len(server.Requests()))
}

// S0-12, S0-29: clients compact a session over HTTP; while it shows a snapshot that
// is refused, and changes nothing.
func TestASessionIsCompactedOverHTTP(t *testing.T) {
	t.Parallel()
	u, _ := newCloudUser(t, `{}`)
	u.say("one", "two", "three")
	u.do("save", "v1")
	w := u.serve()
	path := "/sessions/" + u.active().Ref.ID
	u.do("select", "v1")
	before := u.liveFiles()
	var refused struct{ Code string }
	if w.want(http.StatusConflict, &refused, http.MethodPost, path+"/compact", `{"range":":2"}`); refused.Code != "readonly" {
		t.Errorf("while a snapshot is selected: %+v", refused)
	}
	equal(t, "live sessions", before, u.liveFiles())
	u.do("deselect")
	var done struct{ Data struct{ Compacted bool } }
	if w.want(http.StatusOK, &done, http.MethodPost, path+"/compact", `{"range":":2"}`); !done.Data.Compacted {
		t.Errorf("compact answers %+v", done)
	}
	var show struct{ Compacted int }
	if w.want(http.StatusOK, &show, http.MethodGet, path+"/context", ""); show.Compacted != 2 {
		t.Errorf("context answers %+v", show)
	}
	w.want(http.StatusNotFound, nil, http.MethodPost, "/sessions/nosuch/compact", "{}")
}

// The model compacts its own conversation when its turn has ended.
func TestTheModelCompactsItsConversation(t *testing.T) {
	t.Parallel()
	u, server := newCloudUser(t, `{}`)
	u.say("one", "two")
	server.Script(responsestest.Reply{Calls: []responsestest.Call{{ID: "c1", Name: "context_manage", Arguments: `{"action":"compact","range":":2"}`}}})
	_, stderr, exit := u.run("chat", "--message", "make it shorter")
	if exit != 0 || !strings.Contains(stderr, "compacted messages [:2] for the model") {
		t.Errorf("the turn ended with status %d: %s", exit, stderr)
	}
	got := server.Requests()
	if told := string(got[3].Body.Input[len(got[3].Body.Input)-1]); !strings.Contains(told, "queued: compact runs when this turn ends") {
		t.Errorf("the model was told %s", told)
	}
	if list := u.snapshots(); len(list) != 1 || list[0].Reason != "Before compacting conversation [:2]" {
		t.Errorf("snapshots %+v", list)
	}
	u.say("and now?")
	if first := asked(server); len(first) != 12 || !strings.Contains(first[1], "compaction") {
		t.Errorf("the next request has %d items: %s", len(first), first)
	}
}

// What came of an answer stays when its stream breaks off, or when the plugin that
// talks to the model dies.
func TestHalfAnAnswerIsKept(t *testing.T) {
	t.Parallel()
	u, server := newCloudUser(t, `{}`)
	server.Script(responsestest.Reply{Text: "half of it", Event: "cut"})
	_, stderr, exit := u.run("chat", "--message", "one")
	if exit != 9 || !strings.Contains(stderr, "model cloud/gpt-x: the connection broke before the end of the answer") {
		t.Errorf("a stream that breaks off ended with status %d: %s", exit, stderr)
	}
	equal(t, "messages", []string{"one", "half of it"}, u.messages())

	g := u.gateway()
	id := u.active().Ref.ID
	begun := make(chan struct{})
	server.Script(responsestest.Reply{Text: "half of it", Begun: begun, Wait: make(chan struct{})})
	talking := u.begin(begun, "--json", "gateway", "call", "sessions.send", fmt.Sprintf(`--params={"session":%q,"content":"two"}`, id))
	process, err := os.FindProcess(u.plugin("responses").PID)
	if err == nil {
		err = process.Kill()
	}
	if err != nil {
		t.Fatal(err)
	}
	if exit = u.exit(<-talking.ended); exit != 9 || !strings.Contains(talking.out.String(), "plugin responses stopped (") {
		t.Errorf("the death of the plugin ended the call with status %d: %s", exit, &talking.out)
	}
	u.do("gateway", "stop")
	if exit := g.end(); exit != 0 {
		t.Errorf("the gateway ended with status %d", exit)
	}
	u.say("three")
	equal(t, "what the next request tells", []string{
		`{"role":"user","content":"one"}`, `{"role":"assistant","content":"half of it"}`,
		`{"role":"user","content":"two"}`, `{"role":"assistant","content":"half "}`, `{"role":"user","content":"three"}`,
	}, asked(server))
}
