package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sess/host/models/modelstest"
)

// modelKey is the key of the providers that tests talk to.
const modelKey = "k-t0p-secret-of-tests"

// modelUser is a user with two providers, oa and an, that both are one server.
type modelUser struct {
	*user
	*modelstest.Server
}

func newModelUser(t *testing.T, answers ...modelstest.Answer) *modelUser {
	t.Helper()
	s := modelstest.New()
	t.Cleanup(s.Close)
	s.Answers(answers...)
	u := newUser(t)
	u.env = append(u.env, "DESK_KEY="+modelKey)
	config := fmt.Sprintf(`{"models": {"default": "oa/m1", "providers": {
		"oa": {"kind": "openai", "baseURL": "%[1]s/v1", "apiKeyEnv": "DESK_KEY", "maxRetries": 2},
		"an": {"kind": "anthropic", "baseURL": "%[1]s", "apiKeyEnv": "DESK_KEY", "model": "m2"},
	}}}`, s.URL)
	if err := os.MkdirAll(u.home, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(u.home, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return &modelUser{u, s}
}

// told are the messages that a request has, by its number.
func (u *modelUser) told(n int) string {
	u.t.Helper()
	all := u.Requests()
	if n >= len(all) {
		u.t.Fatalf("there are only %d requests", len(all))
	}
	var body struct{ Messages json.RawMessage }
	if err := json.Unmarshal(all[n].Body, &body); err != nil {
		u.t.Fatalf("request %d: %v\n%s", n, err, all[n].Body)
	}
	return string(body.Messages)
}

// holdsNoKey looks for the key in every file of the home and in what was shown.
func (u *modelUser) holdsNoKey(shown ...string) {
	u.t.Helper()
	files := 0
	err := filepath.WalkDir(u.home, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		files++
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(modelKey)) {
			u.t.Errorf("%s holds the key", path)
		}
		return err
	})
	if err != nil || files < 5 {
		u.t.Errorf("looked at %d files of the home: %v", files, err)
	}
	for _, text := range shown {
		if strings.Contains(text, modelKey) {
			u.t.Errorf("the key is shown: %s", text)
		}
	}
}

// S0-03, S0-42: a snapshot has what the provider said in its own words, and after
// a load the next request goes on from there, byte for byte: with what was said
// until then, and nothing of what came later.
func TestModelsGoBackWithTheConversation(t *testing.T) {
	t.Parallel()
	list := []modelstest.Call{{ID: "c1", Name: "sess_manage", Arguments: `{ "action": "list" }`}}
	u := newModelUser(
		t,
		modelstest.Answer{Thought: "a look", Text: "I look.", Calls: list},
		modelstest.Answer{Text: "No <snapshots> yet.", Usage: &modelstest.Usage{Input: 30, Output: 5, Cached: 10}},
		modelstest.Answer{Thought: "later", Text: "This is later.", Calls: list},
		modelstest.Answer{Text: "And this."},
		modelstest.Answer{Text: "Here again."},
		modelstest.Answer{Text: "In the copy."},
		modelstest.Answer{Text: "Over there."},
		modelstest.Answer{Text: "And back."},
	)
	if out := u.do("chat", "--message", "what is there?"); !strings.Contains(out, "I look.") || !strings.Contains(out, "No <snapshots> yet.") {
		t.Errorf("the chat shows %q", out)
	}
	call := `{"role":"assistant","content":"I look.","reasoning_content":"a look","tool_calls":[{"id":"c1","type":"function","function":{"name":"sess_manage","arguments":"{ \"action\": \"list\" }"}}]}`
	if got := u.told(1); !strings.HasPrefix(got, `[{"role":"user","content":"what is there?"},`+call+`,{"role":"tool","tool_call_id":"c1","content":"`) {
		t.Errorf("with the result of the tool it was told %s", got)
	}
	u.do("save", "v1")
	u.do("chat", "--message", "go on")
	if got := u.told(3); !strings.Contains(got, "This is later.") {
		t.Errorf("later it was told %s", got)
	}
	u.do("load", "v1")
	u.do("chat", "--message", "once more")
	then := strings.TrimSuffix(u.told(1), "]") + `,{"role":"assistant","content":"No <snapshots> yet."},{"role":"user","content":"once more"}]`
	if diff := cmp.Diff(then, u.told(4)); diff != "" {
		t.Errorf("after the load it is told (-want +got):\n%s", diff)
	}
	u.do("new", "--from", "v1")
	u.do("chat", "--message", "once more")
	if diff := cmp.Diff(then, u.told(5)); diff != "" {
		t.Errorf("in a session that began with the snapshot it is told (-want +got):\n%s", diff)
	}
	// Another provider is told the same in its own way; then the first one hears its
	// own words again.
	u.do("chat", "--model", "an", "--message", "and you?")
	if got := u.told(6); !strings.Contains(got, `{"role":"assistant","content":[{"type":"text","text":"I look."},{"type":"tool_use","id":"c1","name":"sess_manage","input":{"action":"list"}}]}`) {
		t.Errorf("the other provider is told %s", got)
	}
	u.do("chat", "--model", "oa/m1", "--message", "and now?")
	want := strings.TrimSuffix(then, "]") + `,{"role":"assistant","content":"In the copy."},{"role":"user","content":"and you?"},{"role":"assistant","content":"Over there."},{"role":"user","content":"and now?"}]`
	if diff := cmp.Diff(want, u.told(7)); diff != "" {
		t.Errorf("back at the first provider it is told (-want +got):\n%s", diff)
	}
	u.holdsNoKey()
}

// S1-02: what is said in one session is told no model in another.
func TestModelsKeepSessionsApart(t *testing.T) {
	t.Parallel()
	u := newModelUser(t, modelstest.Answer{Text: "one"}, modelstest.Answer{Text: "two"}, modelstest.Answer{Text: "three"})
	u.do("--session", "a", "chat", "--message", "in a")
	u.do("--session", "b", "chat", "--message", "in b")
	u.do("--session", "a", "chat", "--message", "in a again")
	if got := u.told(1); got != `[{"role":"user","content":"in b"}]` {
		t.Errorf("in b it is told %s", got)
	}
	if got := u.told(2); got != `[{"role":"user","content":"in a"},{"role":"assistant","content":"one"},{"role":"user","content":"in a again"}]` {
		t.Errorf("in a it is told %s", got)
	}
}

// What a provider refuses is told with the status of its kind and with what to do;
// the session says so as well, and the key is nowhere.
func TestModelsRefuse(t *testing.T) {
	t.Parallel()
	u := newModelUser(
		t,
		modelstest.Answer{Status: 401, Body: `{"error":{"message":"no such key: ` + modelKey + `"}}`},
		modelstest.Answer{Status: 400, Body: `{"error":{"message":"bad header Bearer ` + modelKey + `"}}`},
		modelstest.Answer{Status: 404, Body: `{"error":{"message":"no model m1"}}`},
		modelstest.Answer{Status: 400, Body: `{"error":{"message":"This model's maximum context length is 9 tokens.","code":"context_length_exceeded"}}`},
		modelstest.TooManyRequests(2*time.Hour),
		modelstest.TooManyRequests(10*time.Millisecond), modelstest.Answer{Text: "at last"},
	)
	u.Models("m1-mini")
	var shown []string
	for _, tt := range []struct {
		exit int
		want string
	}{
		{6, "error: model oa/m1: the provider refuses the key of the variable DESK_KEY\nhint: put a valid key there"},
		{2, "error: model oa/m1: the provider refuses the request: bad header Bearer (hidden) (HTTP 400)\nhint: see the settings in models.providers.oa, or use another model"},
		{3, "error: model oa/m1: no model m1 (HTTP 404)\nhint: did you mean oa/m1-mini?"},
		{2, "error: model oa/m1: this conversation is longer than the model can read: This model's maximum context length is 9 tokens (HTTP 400)\nhint: /sess new begins another one, and this one stays; or go on with a model that reads more"},
		{9, "error: model oa/m1: Too many requests (HTTP 429)\nhint: send the message again in 2h0m0s"},
		{0, "oa/m1: Too many requests (HTTP 429); asking again in 10ms (1 of 2)"},
	} {
		stdout, stderr, exit := u.run("-v", "chat", "--message", "hello")
		shown = append(shown, stdout, stderr)
		if exit != tt.exit || !strings.Contains(stderr, tt.want) {
			t.Errorf("status %d, want %d:\n%s\nwant in it: %s", exit, tt.exit, stderr, tt.want)
		}
	}
	if n := len(u.Requests()); n != 7 {
		t.Errorf("%d requests, want 7", n)
	}
	if got := u.messages(); got[len(got)-1] != "at last" {
		t.Errorf("messages %q", got)
	}
	u.holdsNoKey(shown...)
	u.env = slices.DeleteFunc(slices.Clone(u.env), func(s string) bool { return strings.HasPrefix(s, "DESK_KEY=") })
	_, stderr, exit := u.run("chat", "--message", "hello")
	if exit != 6 || !strings.Contains(stderr, "model oa/m1: there is no key: the variable DESK_KEY is not set\nhint: export DESK_KEY=<key>, then start the program again") {
		t.Errorf("without the key: status %d\n%s", exit, stderr)
	}
}

// A key may lie in a file; its path starts in the home.
func TestModelsKeyFile(t *testing.T) {
	t.Parallel()
	u := newModelUser(t, modelstest.Answer{Text: "hello"})
	config := fmt.Sprintf(`{"models": {"default": "an/m2", "providers": {"an": {"kind": "anthropic", "baseURL": %q, "apiKeyFile": "an.key"}}}}`, u.URL)
	if err := os.WriteFile(filepath.Join(u.home, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(u.home, "an.key")
	_, stderr, exit := u.run("chat", "--message", "hi")
	if exit != 6 || !strings.Contains(stderr, "model an/m2: there is no key: the file "+file+" is not there\nhint: write the key into it, readable for you alone (mode 0600)") {
		t.Errorf("without the file: status %d\n%s", exit, stderr)
	}
	if err := os.WriteFile(file, []byte("k-of-a-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	u.do("chat", "--message", "hi")
	if got := u.Requests()[0].Header.Get("X-Api-Key"); got != "k-of-a-file" {
		t.Errorf("the key is %q", got)
	}
}

// An answer that breaks off is kept as far as it came, and the conversation goes
// on from there.
func TestModelsBreakOff(t *testing.T) {
	t.Parallel()
	for _, model := range []string{"oa/m1", "an/m2"} {
		t.Run(model, func(t *testing.T) {
			t.Parallel()
			u := newModelUser(t, modelstest.Answer{Text: "so far so", Cut: true}, modelstest.Answer{Text: "good"})
			stdout, stderr, exit := u.run("chat", "--model", model, "--message", "hello")
			if exit != 9 || strings.TrimSpace(stdout) != "so far so" || !strings.Contains(stderr, "model "+model+": the connection broke before the end of the answer\nhint: what came is kept; send another message to go on") {
				t.Errorf("status %d\n%s\n%s", exit, stdout, stderr)
			}
			var session struct {
				Status, Error string
				Messages      []struct{ Content, Status string }
			}
			u.answer(&session, "sessions", "show")
			if last := session.Messages[1]; session.Status != "error" || last.Status != "error" || last.Content != "so far so" || !strings.Contains(session.Error, "the connection broke") {
				t.Errorf("the session is %+v", session)
			}
			u.do("chat", "--model", model, "--message", "go on")
			if got := u.told(1); !strings.Contains(got, "so far so") {
				t.Errorf("then it is told %s", got)
			}
		})
	}
}

// Ctrl-C ends the request at the provider, and what came is kept.
func TestModelsInterrupted(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	defer close(hold)
	u := newModelUser(t, modelstest.Answer{Text: "one two", Hold: hold})
	cmd := u.command("chat", "--message", "hello")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	word := make([]byte, 4)
	if _, err := out.Read(word); err != nil || string(word) != "one " {
		t.Fatalf("the first word is %q, %v", word, err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if exit := u.exit(cmd.Wait()); exit != 130 {
		t.Errorf("status %d, want 130", exit)
	}
	if got := u.messages(); len(got) != 2 || got[1] != "one " {
		t.Errorf("messages %q, want the first word of the answer", got)
	}
}

// S1-14: usage, thoughts and calls are in the turn's log.
func TestModelsLeaveALog(t *testing.T) {
	t.Parallel()
	u := newModelUser(
		t,
		modelstest.Answer{Thought: "hm", Calls: []modelstest.Call{{ID: "c1", Name: "sess_manage", Arguments: `{"act`}}, Usage: &modelstest.Usage{Input: 20, Output: 3}},
		modelstest.Answer{Text: "done", Usage: &modelstest.Usage{Input: 30, Output: 5, Cached: 10}},
	)
	u.do("--session", "s1", "chat", "--message", "hello")
	log, err := os.ReadFile(filepath.Join(u.home, "sessions", "default", "s1", "turn-001.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"type":"thought_delta"`, `"text":"hm"`, `"type":"tool_call_started"`, `"status":"failed"`, `"inputTokens":50,"outputTokens":8,"cachedTokens":10`, `"type":"run_finished"`,
	} {
		if !strings.Contains(string(log), want) {
			t.Errorf("%s is not in the log:\n%s", want, log)
		}
	}
	// Arguments that are no JSON are the tool's business: the model is told so.
	if got := u.told(1); !strings.Contains(got, `{"role":"tool","tool_call_id":"c1","content":"error (usage): `) {
		t.Errorf("it is told %s", got)
	}
}

// A history with calls that nobody answered, and with items of a form that is not
// known, is sent in a form that providers take; the file keeps what it has.
func TestModelsRepairHistories(t *testing.T) {
	t.Parallel()
	u := newModelUser(t, modelstest.Answer{Text: "ok"}, modelstest.Answer{Text: "ok"})
	file := filepath.Join(u.home, "sessions", "default", "s1.json")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	const history = "\n" + `{"role":"user","content":"look"},` + "\n" + `{"oracle":"<future>"},` + "\n" + `{"role":"assistant","content":"","toolCalls":[{"id":"t1","name":"sess_manage","arguments":{}}]}`
	object := `{"version":1,"id":"s1","projectId":"default","title":"t","cwd":"/","status":"idle","messages":[],"activities":[],"artifacts":[],"createdAt":1,"updatedAt":1,` +
		`"sess":{"format":"sess/1","revision":1,"lists":{"history":{"sealed":0,"bytes":0,"tail":[` + history + `]}}}}`
	if err := os.WriteFile(file, []byte(object), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, exit := u.run("--session", "s1", "chat", "--message", "go on")
	if exit != 0 || !strings.Contains(stderr, "1 item of the history is of a form that this version does not know") || !strings.Contains(stderr, "1 tool call had no result; it is marked as interrupted") {
		t.Errorf("status %d\n%s", exit, stderr)
	}
	want := `[{"role":"user","content":"look"},{"role":"assistant","tool_calls":[{"id":"t1","type":"function","function":{"name":"sess_manage","arguments":"{}"}}]},{"role":"tool","tool_call_id":"t1","content":"interrupted"},{"role":"user","content":"go on"}]`
	if diff := cmp.Diff(want, u.told(0)); diff != "" {
		t.Errorf("it is told (-want +got):\n%s", diff)
	}
	if data, err := os.ReadFile(file); err != nil || !bytes.Contains(data, []byte(history)) {
		t.Errorf("the file has lost what was not understood: %v\n%s", err, data)
	}
}
