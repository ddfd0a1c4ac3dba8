package tests

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sess/plugin"
)

// everywhere calls verbs of sess on the surfaces that take objects, of one gateway:
// those that a model, a program and a page have. The command line and the chat,
// which take words, have their scripts.
type everywhere struct {
	*user
	t *testing.T
	asker
}

func newEverywhere(t *testing.T, u *user) *everywhere {
	t.Helper()
	return &everywhere{u, t, u.gateway().asker()}
}

// objectSurfaces are the ways of an everywhere.
func objectSurfaces() []string { return []string{"tool", "HTTP", "RPC"} }

// objectAnswer is what a surface says to a call.
type objectAnswer struct {
	code plugin.Code // "" is a success
	text string      // of a success that changes something, or the message and hint of an error
	data json.RawMessage
}

// call calls a verb on a surface; one that only reads is a GET over HTTP.
func (e *everywhere) call(surface, verb string, read bool, fields map[string]any) objectAnswer {
	e.t.Helper()
	with := maps.Clone(fields)
	if with == nil {
		with = map[string]any{}
	}
	var answer struct {
		OK     *bool
		Text   string
		Data   json.RawMessage
		Result struct {
			Text string
			Data json.RawMessage
		}
	}
	switch surface {
	case "tool":
		with["action"] = verb
		_, body, err := e.ask(e.t.Context(), http.MethodPost, "/tools/invoke", map[string]any{"tool": "sess_manage", "args": with})
		var failure struct {
			Error struct {
				Code          plugin.Code
				Message, Hint string
			}
		}
		if err == nil {
			err = json.Unmarshal(body, &answer)
		}
		if err != nil || answer.OK == nil {
			e.t.Fatalf("%s %v: %v\n%s", verb, fields, err, body)
		}
		if *answer.OK {
			return objectAnswer{"", answer.Result.Text, answer.Result.Data}
		}
		if err := json.Unmarshal(body, &failure); err != nil {
			e.t.Fatal(err)
		}
		return objectAnswer{code: failure.Error.Code, text: failure.Error.Message + "; " + failure.Error.Hint}
	case "HTTP":
		status, body, err := e.route(e.t.Context(), "/sess/"+strings.ReplaceAll(verb, " ", "/"), read, with)
		if err != nil {
			e.t.Fatal(err)
		}
		var failure shownFailure
		if status >= http.StatusBadRequest {
			if err := json.Unmarshal(body, &failure); err != nil || status != http.StatusBadRequest && failure.Code != plugin.Denied {
				e.t.Errorf("%s %v: status %d, %s (%v); want 400", verb, fields, status, body, err)
			}
			return objectAnswer{code: failure.Code, text: failure.Error + "; " + failure.Hint}
		}
		if read {
			return objectAnswer{data: body}
		}
		if err := json.Unmarshal(body, &answer); err != nil {
			e.t.Fatalf("%s %v: %v\n%s", verb, fields, err, body)
		}
		return objectAnswer{"", answer.Text, answer.Data}
	default:
		with["action"] = verb
		out, err := e.rpc(e.t.Context(), "sess.invoke", with)
		if err != nil {
			e.t.Fatal(err)
		}
		if out.Error != nil {
			return objectAnswer{code: plugin.Code(out.Error.Data.Code), text: out.Error.Message + "; " + out.Error.Data.Hint}
		}
		if read {
			return objectAnswer{data: out.Result}
		}
		if err := json.Unmarshal(out.Result, &answer); err != nil {
			e.t.Fatalf("%s %v: %v\n%s", verb, fields, err, out.Result)
		}
		return objectAnswer{"", answer.Text, answer.Data}
	}
}

// A refusedCall is a call that is refused on every surface, and changes nothing.
type refusedCall struct {
	verb   string
	fields map[string]any
	code   plugin.Code
	text   string // is in what it says
}

// refuse makes calls on every surface, all of which have to be refused.
func (e *everywhere) refuse(cases ...refusedCall) {
	e.t.Helper()
	e.call("HTTP", "list", true, nil) // from here on the plugin runs
	check := e.unchanged()
	for _, c := range cases {
		read := slices.Contains([]string{"list", "view", "selected", "verify", "search", "export", "trash list"}, c.verb)
		for _, surface := range objectSurfaces() {
			got := e.call(surface, c.verb, read, c.fields)
			if got.code != c.code || !strings.Contains(got.text, c.text) {
				e.t.Errorf("%s %v on %s: %s %q, want %s with %q", c.verb, c.fields, surface, got.code, got.text, c.code, c.text)
			}
		}
	}
	check()
}

// listed are the names that list shows on a surface.
func (e *everywhere) listed(surface string, fields map[string]any) []string {
	e.t.Helper()
	got := e.call(surface, "list", true, fields)
	var list []struct{ Name string }
	if got.code != "" || json.Unmarshal(got.data, &list) != nil {
		e.t.Fatalf("list on %s: %+v %s", surface, got, got.data)
	}
	names := make([]string, len(list))
	for i, s := range list {
		names[i] = s.Name
	}
	return names
}

// Names that lead out of the store, or that no name may be, are refused for what
// they are wherever a model or a program may put one, and for a session, a project
// and an agent too.
func TestNamesEverywhere(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.do("--session=one", "chat", "--message", "hello")
	u.do("save", "v1")
	for _, dir := range []string{u.dir, u.home, filepath.Join(u.home, "agents")} {
		write(t, filepath.Join(dir, "canary.sess.json"), `{"format":"sess/1"}`, 0o600)
		write(t, filepath.Join(dir, "canary.json"), `{"format":"sess/1"}`, 0o600)
	}
	var cases []refusedCall
	for _, name := range []string{
		"../../canary", "x/../../../canary", "..%2f..%2fcanary", "%2e%2e/canary", "/somewhere/canary", `C:\canary`, `..\canary`, "a\x00b", ".", "..", "~",
		"plan計画", "日本", "😀", "👨\u200d👩\u200d👧", "a b", "A%20b", "a+b", "a&b", "50%", "*", "demo*", "con", "nul.txt", "a.", "-a", "--no-backup", " a", "a\n",
		strings.Repeat("a", 129), strings.Repeat("a", 300), strings.Repeat("計", 85), strings.Repeat("👨\u200d👩\u200d👧", 64),
	} {
		for verb, fields := range map[string]map[string]any{"save": {"name": name}, "load": {"name": name}, "delete": {"name": name}, "rename": {"from": "v1", "to": name}} {
			cases = append(cases, refusedCall{verb, fields, plugin.InvalidName, ""})
		}
		if !strings.ContainsAny(name, "/\\\x00~日*") && strings.Trim(name, ".") != "" {
			continue // the rest is the same for all
		}
		for verb, fields := range map[string]map[string]any{
			"tag": {"name": name, "note": "x"}, "pin": {"name": name},
			"select": {"name": name}, "view": {"name": name}, "export": {"name": name}, "new": {"name": name}, "trash restore": {"name": name},
			"copy": {"from": "v1", "to": name},
		} {
			cases = append(cases, refusedCall{verb, fields, plugin.InvalidName, ""})
		}
		cases = append(cases, refusedCall{"copy", map[string]any{"from": name, "to": "v2"}, plugin.InvalidName, ""})
		if !strings.ContainsAny(name, "/\\\x00") && strings.Trim(name, ".") != "" {
			continue // projects and sessions from elsewhere may have any name that is no path
		}
		for _, field := range []string{"session", "project", "agent"} {
			cases = append(cases, refusedCall{"save", map[string]any{"name": "v2", field: name}, plugin.InvalidName, ""})
			cases = append(cases, refusedCall{"list", map[string]any{field: name}, plugin.InvalidName, ""})
		}
	}
	newEverywhere(t, u).refuse(cases...)
}

// A model and a program mean a snapshot by its whole name; near ones are offered,
// nothing is a pattern, and what is not there leaves nothing behind.
func TestMeantEverywhere(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.do("chat", "--message", "hello")
	for _, name := range []string{"demo-1", "demo-2", "demo_1", "review-2031", "ab12cd34-new~"} {
		u.do("save", name)
	}
	u.do("save", "gone")
	u.do("delete", "gone")
	u.do("chat", "--message", "later words")
	e := newEverywhere(t, u)
	named := func(name string) map[string]any { return map[string]any{"name": name} }
	const three = "did you mean demo-1 or demo-2 or demo_1?"
	var cases []refusedCall
	for _, verb := range []string{"load", "delete", "view", "select", "pin"} {
		cases = append(
			cases,
			refusedCall{verb, named("demo"), plugin.NotFound, three},
			refusedCall{verb, named("demo-"), plugin.NotFound, three},
			refusedCall{verb, named("2"), plugin.NotFound, ""},
			refusedCall{verb, named("DEMO-1"), plugin.NotFound, "did you mean demo-1"},
			refusedCall{verb, named("reveiw-2031"), plugin.NotFound, "did you mean review-2031?"},
			refusedCall{verb, named("review-203"), plugin.NotFound, "did you mean review-2031?"},
			refusedCall{verb, named("nosuch"), plugin.NotFound, "sess list --include-auto"},
			refusedCall{verb, named("ab12cd34-n"), plugin.NotFound, "did you mean ab12cd34-new~?"},
			refusedCall{verb, named("demo%"), plugin.InvalidName, three},
		)
	}
	cases = append(
		cases,
		refusedCall{"new", map[string]any{"from": "demo"}, plugin.NotFound, three},
		refusedCall{"new", map[string]any{"name": "x", "from": "nosuch"}, plugin.NotFound, ""},
		refusedCall{"new", named("demo-1"), plugin.Exists, "demo-1"},
		refusedCall{"copy", map[string]any{"from": "demo", "to": "x"}, plugin.NotFound, three},
		refusedCall{"rename", map[string]any{"from": "demo-", "to": "x"}, plugin.NotFound, three},
		refusedCall{"rename", map[string]any{"from": "demo-2", "to": "Demo-1"}, plugin.Exists, "demo-1"},
		refusedCall{"save", named("DEMO-1"), plugin.Exists, "demo-1"},
		refusedCall{"save", map[string]any{"name": "DEMO-1", "overwrite": true}, plugin.Exists, "demo-1"},
		refusedCall{"trash restore", named("gon"), plugin.NotFound, "did you mean gone?"},
		refusedCall{"trash restore", named("review-2031"), plugin.NotFound, "sess trash list"},
		refusedCall{"load", map[string]any{"name": "demo-1", "session": "nosession"}, plugin.NotFound, "nosession"},
		refusedCall{"load", map[string]any{"name": "demo-1", "agent": "nobody"}, plugin.NotFound, ""},
		refusedCall{"delete", map[string]any{"prefix": "demo"}, plugin.Usage, "3 snapshots"},
		refusedCall{"delete", map[string]any{"prefix": "demo", "confirm": "true"}, plugin.Usage, "confirm"},
		refusedCall{"delete", map[string]any{"prefix": "", "confirm": true}, plugin.Usage, "every snapshot"},
		refusedCall{"delete", nil, plugin.Usage, ""},
	)
	e.refuse(cases...)
	for _, surface := range objectSurfaces() {
		if got := e.listed(surface, map[string]any{"prefix": "demo_"}); !slices.Equal(got, []string{"demo_1"}) {
			t.Errorf("the prefix demo_ on %s: %q", surface, got)
		}
		for _, prefix := range []string{"*", "d_m", "demo%"} {
			if got := e.call(surface, "delete", false, map[string]any{"prefix": prefix, "confirm": true}); got.code != "" || string(got.data) != "[]" {
				t.Errorf("delete of the prefix %s on %s: %+v %s, want nothing deleted", prefix, surface, got, got.data)
			}
		}
		// The exact name wins over those that it begins.
		for _, verb := range []string{"save", "load", "delete"} {
			if got := e.call(surface, verb, false, named("demo")); got.code != "" || !strings.Contains(got.text, "demo") {
				t.Errorf("%s demo on %s: %+v", verb, surface, got)
			}
		}
		if got := e.listed(surface, nil); len(got) != 4 {
			t.Errorf("after that %s lists %q", surface, got)
		}
	}
}

// A snapshot that is damaged, or of a newer version, is shown as that and refused
// for its own reason, whoever asks; the session stays as it is and the others work.
func TestDamagedEverywhere(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.do("chat", "--message", "one")
	u.do("save", "a")
	whole, err := os.ReadFile(filepath.Join(u.pool(), "a.sess.json"))
	if err != nil {
		t.Fatal(err)
	}
	u.do("chat", "--message", "two")
	for name, text := range map[string]string{
		"empty": "", "cut": string(whole[:200]), "wrong": strings.Replace(string(whole), "first", "worst", 1),
		"newer": strings.Replace(string(whole), `"format":"sess/1"`, `"format":"sess/99","future":{"k":1}`, 1),
	} {
		write(t, filepath.Join(u.pool(), name+".sess.json"), text, 0o600)
	}
	e := newEverywhere(t, u)
	var cases []refusedCall
	for name, why := range map[string]struct {
		code plugin.Code
		text string
	}{
		"empty": {plugin.Corrupt, "it is empty"}, "cut": {plugin.Corrupt, "cut"}, "wrong": {plugin.Corrupt, "wrong"}, "newer": {plugin.NewerFormat, "newer version (format sess/99)"},
	} {
		for verb, fields := range map[string]map[string]any{
			"load": {"name": name}, "select": {"name": name}, "view": {"name": name}, "export": {"name": name},
			"copy": {"from": name, "to": "x"}, "new": {"from": name},
		} {
			cases = append(cases, refusedCall{verb, fields, why.code, why.text})
		}
		cases = append(cases, refusedCall{"load", map[string]any{"name": name, "asNew": true}, why.code, why.text})
	}
	for verb, fields := range map[string]map[string]any{
		"tag": {"name": "newer", "note": "x"}, "pin": {"name": "newer"}, "rename": {"from": "newer", "to": "x"}, "save": {"name": "newer", "overwrite": true},
		"verify": {"names": []any{"newer"}},
	} {
		cases = append(cases, refusedCall{verb, fields, plugin.NewerFormat, "newer version"})
	}
	e.refuse(cases...)
	for _, surface := range objectSurfaces() {
		got := e.call(surface, "list", true, nil)
		var list []struct{ Name, State, Problem string }
		if err := json.Unmarshal(got.data, &list); err != nil {
			t.Fatal(err)
		}
		states := map[string]string{}
		for _, s := range list {
			states[s.Name] = s.State
		}
		want := map[string]string{"a": "ok", "empty": "damaged", "cut": "damaged", "newer": "newer"}
		delete(states, "wrong") // its head is whole; only its content is not
		if !maps.Equal(states, want) {
			t.Errorf("list on %s shows %v, want %v", surface, states, want)
		}
		u.do("chat", "--message", "more")
		if got := e.call(surface, "load", false, map[string]any{"name": "a"}); got.code != "" || len(u.messages()) != 2 {
			t.Errorf("load a on %s: %+v, and %d messages", surface, got, len(u.messages()))
		}
	}
}

// A limit that makes no sense is refused by its name and value, and none means
// "everything"; arguments come as models send them.
func TestLimitsEverywhere(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.configure(`{"maxSnapshots":0}`)
	u.do("chat", "--message", "hello")
	var lines []string
	for i := range 10 {
		lines = append(lines, fmt.Sprintf("/sess save a%d~", i))
	}
	u.chat(lines...)
	u.do("save", "gone")
	u.do("delete", "gone")
	e := newEverywhere(t, u)
	var cases []refusedCall
	for _, value := range []any{"-1d", "forever", "1Y", "30", "NaNd", "1e9999d", true, []any{"1d"}, map[string]any{"days": 1}} {
		cases = append(cases, refusedCall{"prune", map[string]any{"olderThan": value}, plugin.Usage, "older"})
	}
	for _, value := range []any{-3, "ten", 1.5, "", true, 1e30, []any{}} {
		cases = append(cases, refusedCall{"prune", map[string]any{"keep": value}, plugin.Usage, "keep"})
		if text := fmt.Sprint(value); text != "[]" {
			cases = append(cases, refusedCall{"list", map[string]any{"limit": value}, plugin.Usage, "limit"})
		}
	}
	cases = append(
		cases,
		refusedCall{"list", map[string]any{"limit": 0}, plugin.Usage, "limit"},
		refusedCall{"save", map[string]any{"name": "x", "nmae": "y"}, plugin.Usage, "nmae"},
		refusedCall{"save", map[string]any{"name": nil}, plugin.Usage, "name"},
		refusedCall{"save", map[string]any{"name": map[string]any{"name": "x"}}, plugin.Usage, "name"},
		refusedCall{"save", map[string]any{"name": "x", "tags": "a"}, plugin.Usage, "tags"},
		refusedCall{"save", map[string]any{"name": "x", "tags": `["a","b"]`}, plugin.Usage, "tags"},
		refusedCall{"save", map[string]any{"name": "x", "overwrite": "maybe"}, plugin.Usage, "overwrite"},
		refusedCall{"save", map[string]any{"name": "x", "trigger": "autosave"}, plugin.Usage, "trigger"},
		refusedCall{"trash empty", nil, plugin.Usage, "confirm"},
		refusedCall{"trash empty", map[string]any{"confirm": "true"}, plugin.Usage, "confirm"},
	)
	e.refuse(cases...)
	for _, surface := range objectSurfaces() {
		for _, fields := range []map[string]any{nil, {"keep": 0}, {"olderThan": "0"}, {"olderThan": ""}, {"keep": "0", "olderThan": "0", "allProjects": true}} {
			if got := e.call(surface, "prune", false, fields); got.code != "" || !strings.Contains(got.text, "nothing to prune, 10 kept") {
				t.Errorf("prune %v on %s: %+v", fields, surface, got)
			}
		}
		if got := e.listed(surface, map[string]any{"limit": "5", "includeAuto": true}); len(got) != 5 {
			t.Errorf("list with the limit \"5\" on %s: %q", surface, got)
		}
		if got := e.listed(surface, map[string]any{"limit": 100000, "includeAuto": true}); len(got) != 10 {
			t.Errorf("list with a huge limit on %s: %q", surface, got)
		}
	}
}

// Saving over a name is asked for on every surface, and what was there comes back.
func TestOverwriteEverywhere(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.do("chat", "--message", "one")
	e := newEverywhere(t, u)
	for i, surface := range objectSurfaces() {
		name := map[string]any{"name": "alpha"}
		if got := e.call(surface, "save", false, map[string]any{"name": "alpha", "overwrite": true}); got.code != "" {
			t.Fatalf("save on %s: %+v", surface, got)
		}
		u.do("chat", "--message", "more")
		check := u.unchanged()
		if got := e.call(surface, "save", false, name); got.code != plugin.Exists || !strings.Contains(got.text, "overwrite") {
			t.Errorf("save over a name on %s: %+v, want exists and how to do it", surface, got)
		}
		check()
		before, after := 2*(i+1), 2*(i+2)
		for _, step := range []struct {
			verb   string
			fields map[string]any
			want   int // messages in alpha
		}{
			{"save", map[string]any{"name": "alpha", "overwrite": true}, after},
			{"undo", nil, before},
			{"redo", nil, after},
			{"trash restore", map[string]any{"name": "alpha", "as": fmt.Sprintf("old-%d", i)}, after},
		} {
			if got := e.call(surface, step.verb, false, step.fields); got.code != "" {
				t.Errorf("%s on %s: %+v", step.verb, surface, got)
			}
			var list []struct{ Messages int }
			if got := e.call(surface, "list", true, map[string]any{"prefix": "alpha"}); json.Unmarshal(got.data, &list) != nil || len(list) != 1 || list[0].Messages != step.want {
				t.Errorf("after %s on %s alpha is %s, want %d messages", step.verb, surface, got.data, step.want)
			}
		}
		var old []struct{ Messages int }
		u.answer(&old, "list", fmt.Sprintf("--prefix=old-%d", i))
		if len(old) != 1 || old[0].Messages != before {
			t.Errorf("out of the trash on %s came %+v, want the version of %d messages", surface, old, before)
		}
	}
}

// A gateway that runs keeps no list of its own: files come and go under it, and
// every surface shows what there is.
func TestFilesEverywhere(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.do("chat", "--message", "hello")
	for _, name := range []string{"a", "b", "c"} {
		u.do("save", name)
	}
	other := newUser(t)
	other.do("chat", "--message", "words of another machine")
	other.do("save", "d")
	foreign, err := os.ReadFile(filepath.Join(other.pool(), "d.sess.json"))
	if err != nil {
		t.Fatal(err)
	}
	e := newEverywhere(t, u)
	want := func(names ...string) {
		t.Helper()
		for _, surface := range objectSurfaces() {
			if got := slices.Sorted(slices.Values(e.listed(surface, nil))); !slices.Equal(got, names) {
				t.Errorf("%s lists %q, want %q", surface, got, names)
			}
		}
	}
	want("a", "b", "c")
	remove(t, filepath.Join(u.pool(), "b.sess.json"))
	want("a", "c")
	e.refuse(refusedCall{"load", map[string]any{"name": "b"}, plugin.NotFound, `"b"`})
	write(t, filepath.Join(u.pool(), "d.sess.json"), string(foreign), 0o600)
	write(t, filepath.Join(u.pool(), "index.json"), `{"snapshots":[{"name":"ghost"}]}`, 0o600)
	write(t, filepath.Join(u.pool(), "ghost.sess.json.tmp"), string(foreign), 0o600)
	want("a", "c", "d")
	for _, surface := range objectSurfaces() {
		if got := e.call(surface, "load", false, map[string]any{"name": "d"}); got.code != "" || u.messages()[0] != "words of another machine" {
			t.Errorf("load d on %s: %+v", surface, got)
		}
		u.do("load", "a")
	}
}

// A load holds although nothing is said after it and the gateway ends at once: the
// next one goes on from there, and so does what the model is given.
func TestLoadSurvivesRestartEverywhere(t *testing.T) {
	t.Parallel()
	for _, surface := range objectSurfaces() {
		t.Run(surface, func(t *testing.T) {
			t.Parallel()
			u := newUser(t)
			u.do("--session=one", "chat", "--message", "first")
			u.do("--session=one", "chat", "--message", "second")
			u.do("save", "alpha")
			u.doWith("third\nfourth\nfifth\n", "--session=one", "chat")
			g := u.gateway()
			e := &everywhere{u, t, g.asker()}
			got := e.call(surface, "load", false, map[string]any{"name": "alpha"})
			var loaded struct {
				Name, Backup string
				Messages     int
			}
			if err := json.Unmarshal(got.data, &loaded); err != nil || loaded.Name != "alpha" || loaded.Messages != 4 || !strings.HasPrefix(loaded.Backup, "pre-load~") {
				t.Errorf("load: %+v %s (%v), want the name, 4 messages and the backup", got, got.data, err)
			}
			u.do("gateway", "stop")
			if exit := g.end(); exit != 0 {
				t.Errorf("the gateway ended with status %d", exit)
			}
			a := u.gateway().asker()
			if n := len(u.messages("--session=one")); n != 4 {
				t.Errorf("after the restart there are %d messages, want 4", n)
			}
			said := a.say(t, "one", "hi")
			if !strings.Contains(said.Message.Content, `3 messages from you; the first was "first"`) {
				t.Errorf("the model was given something else: %q", said.Message.Content)
			}
			if got := u.messages("--session=one"); len(got) != 6 || got[4] != "hi" {
				t.Errorf("after another turn: %q", got)
			}
			var backup struct{ Meta struct{ Messages int } }
			if u.answer(&backup, "view", loaded.Backup); backup.Meta.Messages != 10 {
				t.Errorf("the backup has %d messages, want 10", backup.Meta.Messages)
			}
		})
	}
}

// An event log whose end was cut short is told of in a conversation over HTTP as
// well, with file and line; the half line stays, and the next turn is whole.
func TestTornEventLogOverHTTP(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.do("--session=one", "chat", "--message", "first")
	logs := filepath.Join(u.home, "sessions", "default", "one")
	first := filepath.Join(logs, "turn-001.jsonl")
	whole, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	const half = `{"seq":99,"type":"text_del`
	write(t, first, string(whole)+half, 0o600)
	e := newEverywhere(t, u)
	said := e.asker.say(t, "one", "second")
	line := fmt.Sprintf("turn-001.jsonl: line %d", strings.Count(string(whole), "\n")+1)
	if !strings.Contains(said.Message.Content, `the first was "first"`) || !strings.Contains(strings.Join(said.Notices, "\n"), line) {
		t.Errorf("the turn says %+v, want a notice of %q", said, line)
	}
	now, err := os.ReadFile(first)
	if err != nil || !strings.HasPrefix(string(now), string(whole)) {
		t.Errorf("the first turn's log lost lines (%v):\n%s", err, now)
	}
	for line := range strings.Lines(u.eventLogs()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("a line of the logs is not whole: %q", line)
		}
	}
	var kept bool
	tree, err := os.ReadDir(logs)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range tree {
		data, err := os.ReadFile(filepath.Join(logs, f.Name()))
		kept = kept || err == nil && strings.Contains(string(data), half)
	}
	if !kept {
		t.Errorf("the half line is in none of the files %v", tree)
	}
	for _, surface := range objectSurfaces() {
		if got := e.call(surface, "save", false, map[string]any{"name": "after", "overwrite": true}); got.code != "" || !strings.Contains(got.text, "4 messages") {
			t.Errorf("save on %s: %+v", surface, got)
		}
	}
}

// The field project keeps projects apart on every surface, however alike their
// names are.
func TestProjectsEverywhere(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	e := newEverywhere(t, u)
	projects := []string{"spec-rl", "spec_rl", "spec.rl", "외주", "개인"}
	for i, p := range projects {
		u.do("--project="+p, "chat", "--message", "marker of "+p)
		surface := objectSurfaces()[i%3]
		for _, name := range []string{"main", "auto~"} {
			if got := e.call(surface, "save", false, map[string]any{"name": name, "project": p}); got.code != "" {
				t.Fatalf("save in %s on %s: %+v", p, surface, got)
			}
		}
		u.do("--project="+p, "chat", "--message", "later words")
	}
	for _, surface := range objectSurfaces() {
		for _, p := range projects {
			if got := e.listed(surface, map[string]any{"project": p, "includeAuto": true}); len(got) != 2 {
				t.Errorf("%s lists of %s %q", surface, p, got)
			}
			if got := e.call(surface, "load", false, map[string]any{"name": "main", "project": p, "backup": false}); got.code != "" || u.messages("--project=" + p)[0] != "marker of "+p {
				t.Errorf("load main of %s on %s: %+v, and %q", p, surface, got, u.messages("--project="+p))
			}
		}
		if got := e.call(surface, "delete", false, map[string]any{"prefix": "a", "confirm": true, "project": projects[0]}); got.code != "" || !strings.Contains(got.text, "1 snapshot") && !strings.Contains(got.text, "auto~") {
			t.Errorf("delete on %s: %+v", surface, got)
		}
		if got := e.listed(surface, map[string]any{"allProjects": true, "includeAuto": true}); len(got) != 2*len(projects)-1 {
			t.Errorf("after a deletion in one project %s lists %q", surface, got)
		}
		if got := e.call(surface, "undo", false, map[string]any{"project": projects[0]}); got.code != "" {
			t.Errorf("undo on %s: %+v", surface, got)
		}
	}
}

// A walk over JSON-RPC with words meets every snapshot that stays once, although
// one goes and one comes meanwhile.
func TestRPCPages(t *testing.T) {
	t.Parallel()
	const many = 23
	u := newUser(t)
	u.do("chat", "--message", "hello")
	var lines []string
	for i := range many {
		lines = append(lines, fmt.Sprintf("/sess save s%02d", i))
	}
	u.chat(lines...)
	e := newEverywhere(t, u)
	seen := map[string]int{}
	argv := []string{"list", "--limit=5"}
	for pages := 0; len(argv) > 0; pages++ {
		if pages > many {
			t.Fatal("the walk does not end")
		}
		out, err := e.rpc(t.Context(), "sess.invoke", map[string]any{"argv": argv})
		var answer struct {
			Data []struct{ Name string }
			Page struct {
				Total int
				Next  string
			}
		}
		if err != nil || out.Error != nil || json.Unmarshal(out.Result, &answer) != nil {
			t.Fatalf("%q: %+v, %v", argv, out, err)
		}
		if answer.Page.Total != many || len(answer.Data) > 5 || len(answer.Data) == 0 {
			t.Errorf("%q: %d of %d, want at most 5 of %d", argv, len(answer.Data), answer.Page.Total, many)
		}
		for _, s := range answer.Data {
			seen[s.Name]++
		}
		if pages == 0 {
			u.do("delete", answer.Data[0].Name)
			u.do("save", "new")
		}
		if argv = nil; answer.Page.Next != "" {
			argv = []string{"list", "--limit=5", "--after=" + answer.Page.Next}
		}
	}
	for i := range many {
		if name := fmt.Sprintf("s%02d", i); seen[name] != 1 {
			t.Errorf("%s was shown %d times, want once", name, seen[name])
		}
	}
}

// What a clean-up takes is told with its reason on every surface, the same as its dry
// run told; what people named, pinned or use stays, and all of it comes back.
func TestPruneEverywhere(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.configure(`{"maxSnapshots":0}`)
	u.chat("hello", "/sess save keep1", "/sess pin keep1", "/sess save keep2")
	var lines []string
	for i := range 10 {
		lines = append(lines, fmt.Sprintf("/sess save a%d~", i))
	}
	u.chat(append(lines, "more", "/sess load a0~ --no-backup")...)
	u.chat("more still") // what is live is no longer a0~, which was loaded last
	u.configure(`{"maxSnapshots":6}`)
	e := newEverywhere(t, u)
	before := e.listed("HTTP", map[string]any{"includeAuto": true})
	kept := []string{"a9~", "a8~", "a7~", "a0~", "keep2", "keep1"}
	for _, surface := range objectSurfaces() {
		var reports []string
		for _, dry := range []bool{true, false} {
			got := e.call(surface, "prune", false, map[string]any{"dryRun": dry})
			var report struct {
				Projects []struct {
					Dropped, Kept []struct{ Name, Why, Reason string }
				}
			}
			if err := json.Unmarshal(got.data, &report); got.code != "" || err != nil || len(report.Projects) != 1 {
				t.Fatalf("prune on %s: %+v %s (%v)", surface, got, got.data, err)
			}
			dropped := report.Projects[0].Dropped
			if len(dropped) != 6 || len(report.Projects[0].Kept) != 6 || !strings.Contains(got.text, "- a1~: auto-managed, oldest above maxSnapshots 6") {
				t.Errorf("prune on %s drops %+v and says %q", surface, dropped, got.text)
			}
			reports = append(reports, mustJSON(t, report))
			if left := e.listed(surface, map[string]any{"includeAuto": true}); dry && !slices.Equal(left, before) || !dry && !slices.Equal(sorted(left), sorted(kept)) {
				t.Errorf("after a prune on %s (dry is %v): %q", surface, dry, left)
			}
		}
		if reports[0] != reports[1] {
			t.Errorf("the dry run on %s said %s, and the run %s", surface, reports[0], reports[1])
		}
		if got := e.call(surface, "undo", false, nil); got.code != "" {
			t.Errorf("undo on %s: %+v", surface, got)
		}
		if back := e.listed(surface, map[string]any{"includeAuto": true}); !slices.Equal(sorted(back), sorted(before)) {
			t.Errorf("after undo on %s: %q, want %q", surface, back, before)
		}
	}
}

// sorted is a sorted copy.
func sorted(names []string) []string { return slices.Sorted(slices.Values(names)) }
