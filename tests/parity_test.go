package tests

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"sess/host"
	"sess/plugin"
	"sess/plugin/sess"
	"sess/surfaces"
)

// verbCase is one call of a verb, as each kind of surface writes it.
type verbCase struct {
	// typed is the command line behind the command's name.
	typed string
	// object has the same values as fields, without the action.
	object string
	// code is that of the error; "" is a success.
	code plugin.Code
	// own is set where the surface's own words are part of the error, such as
	// "--nope" and "nope": then only the code is the same everywhere.
	own bool
}

// commandCases are the cases of one command, in the order in which they run:
// what one changes, the next ones find.
type commandCases struct {
	command string
	cases   []verbCase
}

// parityCases has for every verb of every command at least one case that works
// and one that is refused. A new verb is a line or two here; the test fails
// while they are missing.
func parityCases() []commandCases {
	return []commandCases{
		{"sess", []verbCase{
			{`list`, `{}`, "", false},
			{`undo`, `{}`, plugin.NotFound, false},
			{`redo`, `{}`, plugin.NotFound, false},
			{`selected`, `{}`, "", false},
			{`selected now`, `{"name":"now"}`, plugin.Usage, true},

			{`save v1 --note="before we \"try\" it" --tags=area=db,kind=x`, `{"name":"v1","note":"before we \"try\" it","tags":{"area":"db","kind":"x"}}`, "", false},
			{`save v1`, `{"name":"v1"}`, plugin.Exists, false},
			{`save v1 --overwrite --reason=again`, `{"name":"v1","overwrite":true,"reason":"again"}`, "", false},
			{`save V1`, `{"name":"V1"}`, plugin.Exists, false},
			{`save "two words"`, `{"name":"two words"}`, plugin.InvalidName, false},
			{`save ../v1`, `{"name":"../v1"}`, plugin.InvalidName, false},
			{`save pre-load~1`, `{"name":"pre-load~1"}`, plugin.InvalidName, false},
			{`save v2 --note=x --nope`, `{"name":"v2","note":"x","nope":true}`, plugin.Usage, true},
			{`save v2 --trigger=autosave`, `{"name":"v2","trigger":"autosave"}`, plugin.Usage, true},
			{`save 42`, `{"name":42}`, "", false},

			// No value becomes a flag, whatever it looks like.
			{`save -- --no-backup`, `{"name":"--no-backup"}`, plugin.InvalidName, false},
			{`save sly --note=--overwrite --tags='a=--json,"b=x, y=""z"" --no-backup"'`, `{"name":"sly","note":"--overwrite","tags":{"a":"--json","b":"x, y=\"z\" --no-backup"}}`, "", false},
			{`view sly`, `{"name":"sly"}`, "", false},
			{`list --prefix=--include-auto`, `{"prefix":"--include-auto"}`, "", false},
			{`delete -- --prefix=s`, `{"name":"--prefix=s"}`, plugin.InvalidName, false},

			{`view v1 --limit=1`, `{"name":"v1","limit":1}`, "", false},
			{`view v9`, `{"name":"v9"}`, plugin.NotFound, false},
			{`view v1 --limit=0`, `{"name":"v1","limit":0}`, plugin.Usage, false},

			{`copy v1 v2 --note="a branch"`, `{"from":"v1","to":"v2","note":"a branch"}`, "", false},
			{`branch v1 v3`, `{"from":"v1","to":"v3"}`, "", false},
			{`clone v1 v3`, `{"from":"v1","to":"v3"}`, plugin.Exists, false},
			{`cp v1 v3 --overwrite`, `{"from":"v1","to":"v3","overwrite":true}`, "", false},
			{`copy nosuch v4`, `{"from":"nosuch","to":"v4"}`, plugin.NotFound, false},

			{`list`, `{}`, "", false},
			{`ls --limit=2`, `{"limit":2}`, "", false},
			{`show --tag=area=db --prefix=v --include-auto`, `{"tag":["area=db"],"prefix":"v","includeAuto":true}`, "", false},
			{`list --all-projects`, `{"allProjects":true}`, "", false},
			{`list --tag=area`, `{"tag":"area"}`, plugin.Usage, false},
			{`list --limit=0`, `{"limit":0}`, plugin.Usage, false},
			{`list --limit=-1`, `{"limit":-1}`, plugin.Usage, false},
			{`list --limit=100000`, `{"limit":"100000"}`, "", false},
			{`list --after=nosuch`, `{"after":"nosuch"}`, plugin.Usage, false},
			{`list --limit=many`, `{"limit":"many"}`, plugin.Usage, true},

			{`rename v2 v4`, `{"from":"v2","to":"v4"}`, "", false},
			{`mv v4 v2`, `{"from":"v4","to":"v2"}`, "", false},
			{`move v2 v1`, `{"from":"v2","to":"v1"}`, plugin.Exists, false},
			{`rename nosuch v5`, `{"from":"nosuch","to":"v5"}`, plugin.NotFound, false},

			{`pin v2`, `{"name":"v2"}`, "", false},
			{`pin v9`, `{"name":"v9"}`, plugin.NotFound, false},
			{`unpin v2`, `{"name":"v2"}`, "", false},
			{`unpin v9`, `{"name":"v9"}`, plugin.NotFound, false},
			{`tag v2 --tags=area=ui --remove=kind --note=""`, `{"name":"v2","tags":{"area":"ui"},"remove":["kind"],"note":""}`, "", false},
			{`tag v2`, `{"name":"v2"}`, plugin.Usage, false},
			{`tag v9 --note=x`, `{"name":"v9","note":"x"}`, plugin.NotFound, false},

			{`select v1`, `{"name":"v1"}`, "", false},
			{`selected`, `{}`, "", false},
			{`deselect`, `{}`, "", false},
			{`deselect v1`, `{"name":"v1"}`, plugin.Usage, true},
			{`select v9`, `{"name":"v9"}`, plugin.NotFound, false},

			{`load v1`, `{"name":"v1"}`, "", false},
			{`restore v1 --no-backup`, `{"name":"v1","backup":false}`, "", false},
			{`get 42`, `{"name":42}`, "", false},
			{`load reveiw`, `{"name":"reveiw"}`, plugin.NotFound, false},
			{`load v`, `{"name":"v"}`, plugin.NotFound, false},
			{`load v1 v2`, `{"name":["v1","v2"]}`, plugin.Usage, true},

			{`delete v3`, `{"name":"v3"}`, "", false},
			{`undo`, `{}`, "", false},
			{`redo`, `{}`, "", false},
			{`rm v3`, `{"name":"v3"}`, plugin.NotFound, false},
			{`remove 42`, `{"name":"42"}`, "", false},
			{`del --prefix=sl`, `{"prefix":"sl"}`, plugin.Usage, false},
			{`delete --prefix=sl --confirm`, `{"prefix":"sl","confirm":true}`, "", false},

			{`trash list`, `{}`, "", false},
			{`trash list --limit=1`, `{"limit":1}`, "", false},
			{`trash list --limit=0`, `{"limit":0}`, plugin.Usage, false},
			{`trash restore v3 --as=v3-again`, `{"name":"v3","as":"v3-again"}`, "", false},
			{`trash restore v9`, `{"name":"v9"}`, plugin.NotFound, false},
			{`trash empty`, `{}`, plugin.Usage, false},
			{`trash empty --confirm --older-than=1d`, `{"confirm":true,"olderThan":"1d"}`, "", false},
			{`trash empty --confirm`, `{"confirm":true}`, "", false},

			{`prune --dry-run`, `{"dryRun":true}`, "", false},
			{`prune --keep=0 --older-than=1h`, `{"keep":0,"olderThan":"1h"}`, "", false},
			{`prune --keep=-1`, `{"keep":-1}`, plugin.Usage, false},
			{`verify`, `{}`, "", false},
			{`verify v9`, `{"names":["v9"]}`, plugin.NotFound, false},

			{`lod v1`, `{"name":"v1"}`, plugin.Usage, true},
			{`new v1`, `{"name":"v1"}`, plugin.Exists, false},
			{`fresh "a b"`, `{"name":"a b"}`, plugin.InvalidName, false},
			{`reset --from=v9`, `{"from":"v9"}`, plugin.NotFound, false},
			{`new fresh --from=v1`, `{"name":"fresh","from":"v1"}`, "", false},
		}},
		{"sessions", []verbCase{
			{`show ` + parityTalk, `{"id":"` + parityTalk + `"}`, "", false},
			{`show nosuch`, `{"id":"nosuch"}`, plugin.NotFound, false},
			{`use ` + parityTalk, `{"id":"` + parityTalk + `"}`, "", false},
			{`use nosuch`, `{"id":"nosuch"}`, plugin.NotFound, false},
			{`ls`, `{}`, "", false},
			{`list all`, `{"id":"all"}`, plugin.Usage, true},
		}},
		{"plugins", []verbCase{
			{`list`, `{}`, "", false},
			{`ls all`, `{"id":"all"}`, plugin.Usage, true},
			{`inspect sess`, `{"id":"sess"}`, "", false},
			{`info ses`, `{"id":"ses"}`, plugin.NotFound, false},
		}},
	}
}

// parityTalk is the session that the cases are about.
const parityTalk = "talk"

// parityOutcome is what became of a case on one surface, in a form that is the same
// on all of them.
type parityOutcome struct {
	Code plugin.Code
	// Text is that of the answer, or the message and hint of the error; nil where
	// the surface gives none.
	Text *string
	// Data is the answer for programs, as compact JSON.
	Data string
}

// parityCall is a case and what it lowers to.
type parityCall struct {
	verbCase
	spec   *plugin.Spec
	verb   *plugin.Verb // nil where there is none
	action string       // as typed
	words  []string     // of typed
}

// read reports whether the case can be asked again.
func (c *parityCall) read() bool { return c.verb != nil && c.verb.Effect == plugin.EffectRead }

// fields are those of the object, and the session unless it is "".
func (c *parityCall) fields(t *testing.T, session string) map[string]any {
	t.Helper()
	fields := map[string]any{}
	dec := json.NewDecoder(strings.NewReader(c.object))
	dec.UseNumber()
	if err := dec.Decode(&fields); err != nil {
		t.Fatalf("the object of %s %s: %v", c.spec.Command, c.typed, err)
	}
	if session != "" {
		fields["session"] = session
	}
	return fields
}

// The same verbs do the same on every surface: same data, code and text. Each
// surface has a home of its own, all made alike, and runs all cases there.
func TestParity(t *testing.T) {
	t.Parallel()
	calls := parityCalls(t)
	template := newUser(t)
	template.askNobody()
	template.do("--session="+parityTalk, "chat", "--message", "Let us plan the launch of our newsletter")

	type surface struct {
		name string
		// offers says which commands are there.
		offers func(command string) bool
		run    func(t *testing.T, u *user, calls []parityCall) []parityOutcome
	}
	everything := func(string) bool { return true }
	all := []surface{
		{"command line", everything, runTyped},
		{"slash", everything, runSlash},
		{"model", func(command string) bool { return command == "sess" }, runModel},
		{"HTTP", everything, runHTTP},
		{"tool over HTTP", func(command string) bool { return command == "sess" }, runHTTPTool},
	}
	results := make([][]parityOutcome, len(all))
	t.Run("run", func(t *testing.T) {
		for i, s := range all {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				u := newUser(t)
				if err := os.CopyFS(u.home, os.DirFS(template.home)); err != nil {
					t.Fatal(err)
				}
				offered := slices.DeleteFunc(slices.Clone(calls), func(c parityCall) bool { return !s.offers(c.spec.Command) })
				results[i] = s.run(t, u, offered)
				if len(results[i]) != len(offered) {
					t.Fatalf("%d answers to %d cases", len(results[i]), len(offered))
				}
				for j := range results[i] {
					results[i][j].normalise(u)
				}
			})
		}
	})
	if t.Failed() {
		return
	}
	for n, c := range calls {
		want := results[0][n]
		if want.Code != c.code {
			t.Errorf("%s %s: code %q, want %q\n%s", c.spec.Command, c.typed, want.Code, c.code, *want.Text)
		}
		for i, s := range all[1:] {
			if !s.offers(c.spec.Command) {
				continue
			}
			got := results[i+1][0]
			results[i+1] = results[i+1][1:]
			want := want
			if got.Text == nil || c.own {
				got.Text, want.Text = nil, nil
			}
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("%s %s, or %s (-%s +%s):\n%s", c.spec.Command, c.typed, c.object, all[0].name, s.name, diff)
			}
		}
	}
}

// parityCalls resolves the cases, and fails where a verb lacks one.
func parityCalls(t *testing.T) []parityCall {
	t.Helper()
	specs := map[string]*plugin.Spec{}
	description, err := sess.New(sess.Options{}).Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	specs[description.Spec.Command] = &description.Spec
	h, err := host.Open(t.Context(), host.Options{Home: filepath.Join(t.TempDir(), "home"), Exe: filepath.Join(binDir(t), "sess")})
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range h.OwnSpecs() {
		specs[spec.Command] = &spec
	}
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}

	var calls []parityCall
	seen := map[string]bool{} // "sess save", with " good" or " bad"
	for _, group := range parityCases() {
		spec := specs[group.command]
		if spec == nil {
			t.Fatalf("there are cases for %s, and no such command", group.command)
		}
		for _, vc := range group.cases {
			words, err := surfaces.Split(vc.typed)
			if err != nil {
				t.Fatalf("%s: %v", vc.typed, err)
			}
			c := parityCall{verbCase: vc, spec: spec, words: words, action: words[0]}
			if v, n := spec.Find(words); v != nil {
				c.verb, c.action = v, strings.Join(words[:n], " ")
				kind := " bad"
				if vc.code == "" {
					kind = " good"
				}
				seen[spec.Command+" "+v.Name+kind] = true
				seen[spec.Command+" "+c.action] = true
			}
			calls = append(calls, c)
		}
	}
	for _, command := range slices.Sorted(maps.Keys(specs)) {
		for _, v := range specs[command].Verbs {
			name := command + " " + v.Name
			if v.Internal {
				continue
			}
			if !seen[name+" good"] || !seen[name+" bad"] {
				t.Errorf("%s: parityCases has no case that works, or none that is refused", name)
			}
			for _, alias := range v.Aliases {
				if !seen[command+" "+alias] {
					t.Errorf("%s: parityCases does not call it by its alias %s", name, alias)
				}
			}
		}
	}
	return calls
}

// shownFailure is the document of an error.
type shownFailure struct {
	Error, Hint, Text string
	Code              plugin.Code
}

func (f shownFailure) outcome() parityOutcome {
	text := (&plugin.Error{Message: f.Error, Hint: f.Hint}).Text()
	return parityOutcome{Code: f.Code, Text: &text}
}

// typedOutcome reads what --json printed for a call, and the text where that had
// to be asked for beside.
func typedOutcome(t *testing.T, c *parityCall, document, text string) parityOutcome {
	t.Helper()
	var f shownFailure
	if json.Unmarshal([]byte(document), &f) == nil && f.Code != "" {
		return f.outcome()
	}
	if c.read() {
		text = strings.TrimSuffix(text, "\n")
		return parityOutcome{Text: &text, Data: document}
	}
	var answer struct {
		Text string
		Data json.RawMessage
	}
	if err := json.Unmarshal([]byte(document), &answer); err != nil {
		t.Fatalf("the answer to %s: %v\n%s", c.typed, err, document)
	}
	return parityOutcome{Text: &answer.Text, Data: string(answer.Data)}
}

func runTyped(t *testing.T, u *user, calls []parityCall) []parityOutcome {
	u.t = t
	var all []parityOutcome
	for _, c := range calls {
		argv := append([]string{"--session=" + parityTalk}, c.words...)
		if c.spec.Command != "sess" {
			argv = append([]string{c.spec.Command}, c.words...)
		}
		document, _, exit := u.run(append([]string{"--json"}, argv...)...)
		if want := c.code.Info().Exit; c.code != "" && exit != want || c.code == "" && exit != 0 {
			t.Errorf("sess %s ended with status %d, want that of %q:\n%s", c.typed, exit, c.code, document)
		}
		text := ""
		if c.read() && exit == 0 {
			text = u.do(argv...)
		}
		all = append(all, typedOutcome(t, &c, document, text))
	}
	return all
}

// runSlash says all cases in one chat. What follows an answer marks its end.
func runSlash(t *testing.T, u *user, calls []parityCall) []parityOutcome {
	u.t = t
	const mark = "/help exit"
	var lines []string
	for _, c := range calls {
		lines = append(lines, fmt.Sprintf("/%s --json %s", c.spec.Command, c.typed), mark)
		if c.read() {
			lines = append(lines, fmt.Sprintf("/%s %s", c.spec.Command, c.typed))
		}
		lines = append(lines, mark)
	}
	marked := strings.TrimSpace(u.do("chat", "--message", mark)) + "\n"
	var out, errs bytes.Buffer
	cmd := u.command("--session="+parityTalk, "chat")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(strings.Join(lines, "\n")), &out, &errs
	u.exit(cmd.Run())
	parts := strings.Split(out.String(), marked)
	if len(parts) != 2*len(calls)+1 {
		t.Fatalf("%d parts of what a chat wrote about %d cases:\n%s%s", len(parts), len(calls), &out, &errs)
	}
	var all []parityOutcome
	for i, c := range calls {
		all = append(all, typedOutcome(t, &c, parts[2*i], parts[2*i+1]))
	}
	return all
}

// runModel lets the model make all calls, from a conversation of its own.
func runModel(t *testing.T, u *user, calls []parityCall) []parityOutcome {
	u.t = t
	var lines []string
	for _, c := range calls {
		fields := c.fields(t, parityTalk)
		fields["action"] = c.action
		args, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("call %s %s", c.spec.ToolName(), args))
	}
	cmd := u.command("--session=caller", "chat")
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("a chat: %v\n%s", err, out)
	}
	var session struct {
		Activities []struct{ Status, RawOutput string }
	}
	u.answer(&session, "sessions", "show", "caller")
	var all []parityOutcome
	for _, a := range session.Activities {
		text, data, code := modelAnswer(a.RawOutput)
		all = append(all, parityOutcome{Code: code, Text: &text, Data: string(data)})
	}
	return all
}

// runHTTP asks the routes: GET with a query for what only reads, and otherwise
// POST with a body.
func runHTTP(t *testing.T, u *user, calls []parityCall) []parityOutcome {
	s := serve(t, u)
	var all []parityOutcome
	for _, c := range calls {
		session := ""
		if c.spec.Command == "sess" {
			session = parityTalk
		}
		path := "/" + c.spec.Command + "/" + strings.ReplaceAll(c.action, " ", "/")
		status, body := s.route(path, c.read(), c.fields(t, session))
		want := http.StatusOK
		switch info := c.code.Info(); {
		case c.verb == nil:
			want = http.StatusNotFound
		case c.code != "" && c.spec.Command == "sess":
			want = http.StatusBadRequest
		case c.code != "":
			want = info.HTTP
		}
		if status != want {
			t.Errorf("%s: status %d, want %d: %s", path, status, want, body)
		}
		o := typedOutcome(t, &c, string(body), "")
		if c.read() && o.Code == "" {
			o.Text = nil
		}
		all = append(all, o)
	}
	return all
}

// runHTTPTool makes the calls of a model that another program runs.
func runHTTPTool(t *testing.T, u *user, calls []parityCall) []parityOutcome {
	s := serve(t, u)
	var all []parityOutcome
	for _, c := range calls {
		fields := c.fields(t, "")
		fields["action"] = c.action
		status, body, _ := s.ask("POST", "/tools/invoke", map[string]any{"tool": c.spec.ToolName(), "args": fields, "session": parityTalk})
		var answer struct {
			OK     bool
			Result struct {
				Text string
				Data json.RawMessage
			}
			Error struct {
				Code          plugin.Code
				Message, Hint string
			}
		}
		if err := json.Unmarshal(body, &answer); err != nil || answer.OK != (status == http.StatusOK) {
			t.Fatalf("%s %s: status %d, and the answer %s", c.action, c.object, status, body)
		}
		if answer.OK {
			all = append(all, parityOutcome{Text: &answer.Result.Text, Data: string(answer.Result.Data)})
			continue
		}
		all = append(all, shownFailure{Error: answer.Error.Message, Hint: answer.Error.Hint, Code: answer.Error.Code}.outcome())
	}
	return all
}

// normalise takes out what cannot be the same twice: ids, times, revisions and
// what is named by them.
func (o *parityOutcome) normalise(u *user) {
	if o.Text != nil {
		text := normalText(u, *o.Text)
		o.Text = &text
	}
	if o.Data == "" {
		return
	}
	var data any
	dec := json.NewDecoder(strings.NewReader(o.Data))
	dec.UseNumber()
	if err := dec.Decode(&data); err != nil {
		o.Data = "not JSON: " + o.Data
		return
	}
	b, err := json.MarshalIndent(normalValue(u, data), "", " ")
	o.Data = cmp.Or(string(b), fmt.Sprint(err))
}

func normalValue(u *user, v any) any {
	switch v := v.(type) {
	case string:
		return normalText(u, v)
	case []any:
		for i := range v {
			v[i] = normalValue(u, v[i])
		}
	case map[string]any:
		for key := range v {
			switch key {
			case "revision", "createdAt", "updatedAt":
				v[key] = "<" + key + ">"
			case "pid": // a surface that works alone may have started no process yet
				delete(v, key)
			default:
				v[key] = normalValue(u, v[key])
			}
		}
	}
	return v
}

func normalText(u *user, s string) string {
	s = strings.ReplaceAll(s, u.home, "<home>")
	for _, n := range []struct{ pattern, with string }{
		{`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`, "<uuid>"},
		{`\b\d{8}_[0-9a-f]{8}\b`, "<session>"},
		{`\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z| UTC)?`, "<time>"},
		{`\bpre-(load|new)~[0-9TZ.-]+\w*`, "pre-$1~<time>"},
		{`\b(now|\d+[smh] ago)`, "<ago>"},
		{`--after=[-\w]{20,}`, "--after=<cursor>"},
		{`\b(ready, process \d+|ready|stopped)\b`, "<state>"},
		{` {2,}`, " "},    // columns are as wide as what was in them
		{`-{4,}`, "----"}, // and so is the rule below their header
	} {
		s = regexp.MustCompile(n.pattern).ReplaceAllString(s, n.with)
	}
	return s
}
