package tests

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sess/host"
	"sess/host/client"
	"sess/plugin"
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
// while they are missing. pkg is the folder of the plugin "note", bundle a file
// with a snapshot that was exported, and content what is in it.
func parityCases(pkg, bundle, content string) []commandCases {
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

			{`export v1`, `{"name":"v1"}`, "", false},
			{`export v1 --format=markdown --mask-secrets`, `{"name":"v1","format":"markdown","maskSecrets":true}`, "", false},
			{`export v1 --format=html`, `{"name":"v1","format":"html"}`, "", false},
			{`export v1 --all`, `{"name":"v1","all":true}`, plugin.Usage, false},
			{`export v9`, `{"name":"v9"}`, plugin.NotFound, false},
			{`export v1 --format=pdf`, `{"name":"v1","format":"pdf"}`, plugin.Usage, false},
			{`import '` + bundle + `' --name=brought`, `{"name":"brought","input":` + strconv.Quote(content) + `}`, "", false},
			{`import '` + bundle + `' --name=brought`, `{"name":"brought","input":` + strconv.Quote(content) + `}`, "", false},
			{`import '` + bundle + `' --name=v1`, `{"name":"v1","input":` + strconv.Quote(content) + `}`, plugin.Exists, true},
			{`import '` + bundle + `' --name="a b"`, `{"name":"a b","input":` + strconv.Quote(content) + `}`, plugin.InvalidName, false},
			{`search LAUNCH --of-session=talk`, `{"text":"LAUNCH","ofSession":"talk"}`, "", false},
			{`search 'n[eo]wsletter' --regex --of-session=talk --limit=1`, `{"text":"n[eo]wsletter","regex":true,"ofSession":"talk","limit":1}`, "", false},
			{`search "nobody said that" --of-session=talk --all-projects`, `{"text":"nobody said that","ofSession":"talk","allProjects":true}`, "", false},
			{`search ""`, `{"text":""}`, plugin.Usage, false},

			{`lod v1`, `{"name":"v1"}`, plugin.Usage, true},
			{`new v1`, `{"name":"v1"}`, plugin.Exists, false},
			{`fresh "a b"`, `{"name":"a b"}`, plugin.InvalidName, false},
			{`reset --from=v9`, `{"from":"v9"}`, plugin.NotFound, false},
			{`new fresh --from=v1`, `{"name":"fresh","from":"v1"}`, "", false},
		}},
		{"agents", []verbCase{
			{`list`, `{}`, "", false},
			{`ls`, `{}`, "", false},
			{`list all`, `{"id":"all"}`, plugin.Usage, true},
		}},
		{"sessions", []verbCase{
			{`show ` + parityTalk, `{"id":"` + parityTalk + `"}`, "", false},
			{`show nosuch`, `{"id":"nosuch"}`, plugin.NotFound, false},
			{`use ` + parityTalk, `{"id":"` + parityTalk + `"}`, "", false},
			{`use nosuch`, `{"id":"nosuch"}`, plugin.NotFound, false},
			{`ls`, `{}`, "", false},
			{`list all`, `{"id":"all"}`, plugin.Usage, true},
			{`list --limit=1`, `{"limit":1}`, "", false},
			{`list --limit=0`, `{"limit":0}`, plugin.Usage, false},
			{`notifications add "It is done" --id=n1 --kind=export`, `{"text":"It is done","id":"n1","kind":"export"}`, "", false},
			{`notifications add "" --id=n2`, `{"text":"","id":"n2"}`, plugin.Usage, false},
			{`notifications add x --id="two words"`, `{"text":"x","id":"two words"}`, plugin.InvalidName, false},
			{`notifications list`, `{}`, "", false},
			{`notifications list all`, `{"id":"all"}`, plugin.Usage, true},
			{`notifications acknowledge n1`, `{"ids":["n1"]}`, "", false},
			{`notifications acknowledge nosuch`, `{"ids":["nosuch"]}`, plugin.NotFound, false},
			{`notifications acknowledge`, `{}`, plugin.Usage, false},
			{`notifications acknowledge --all`, `{"all":true}`, "", false},
		}},
		{"messages", []verbCase{
			{`list`, `{}`, "", false},
			{`ls --count=1 --before=1`, `{"count":1,"before":1}`, "", false},
			{`list --after=0`, `{"after":"0"}`, "", false},
			{`list --count=0`, `{"count":0}`, plugin.Usage, false},
			{`delete 1 -1 1`, `{"index":[1,-1,1]}`, "", false},
			{`rm 0 7`, `{"index":[0,7]}`, plugin.NotFound, false},
			{`delete -- -2`, `{"index":"[-2]"}`, plugin.NotFound, false},
			{`remove --range=1:`, `{"range":"1:"}`, "", false},
			{`del`, `{"index":[]}`, plugin.Usage, false},
			{`delete 0 --range=:1`, `{"index":0,"range":":1"}`, plugin.Usage, false},
			{`delete --range=1`, `{"range":"1"}`, plugin.Usage, false},
			{`delete first`, `{"index":"first"}`, plugin.Usage, true},
		}},
		{"context", []verbCase{
			{`show`, `{}`, "", false},
			{`show now`, `{"name":"now"}`, plugin.Usage, true},
			{`compact`, `{}`, "", false},
			{`compact --range=:-9`, `{"range":":-9"}`, "", false},
			{`compact --range=:1`, `{"range":":1"}`, plugin.Usage, false},
			{`compact --range=1:`, `{"range":"1:"}`, plugin.Usage, false},
			{`compact --range=1`, `{"range":1}`, plugin.Usage, false},
		}},
		{"note", []verbCase{ // a plugin that the host knows nothing of
			{`add first -- --json`, `{"name":"first","text":"--json"}`, "", false},
			{`add a/b text`, `{"name":"a/b","text":"text"}`, plugin.InvalidName, false},
			{`list`, `{}`, "", false},
			{`list all`, `{"name":"all"}`, plugin.Usage, true},
			{`save noted "a, b"`, `{"name":"noted","text":"a, b"}`, "", false},
			{`save noted again`, `{"name":"noted","text":"again"}`, plugin.Exists, false},
		}},
		{"plugins", []verbCase{
			{`list`, `{}`, "", false},
			{`ls all`, `{"id":"all"}`, plugin.Usage, true},
			{`inspect sess`, `{"id":"sess"}`, "", false},
			{`info ses`, `{"id":"ses"}`, plugin.NotFound, false},
			{`doctor sess`, `{"id":"sess"}`, "", false},
			{`doctor nosuch`, `{"id":"nosuch"}`, plugin.NotFound, false},
			{`disable note`, `{"id":"note"}`, "", false},
			{`disable nosuch`, `{"id":"nosuch"}`, plugin.NotFound, false},
			{`enable note`, `{"id":"note"}`, "", false},
			{`enable nosuch`, `{"id":"nosuch"}`, plugin.NotFound, false},
			{`uninstall note`, `{"id":"note"}`, plugin.Usage, false},
			{`remove nosuch --yes`, `{"id":"nosuch","yes":true}`, plugin.NotFound, false},
			{`uninstall note --yes`, `{"id":"note","yes":true}`, "", false},
			{`install '` + pkg + `/nosuch' --yes`, `{"package":` + strconv.Quote(pkg+"/nosuch") + `,"yes":true}`, plugin.NotFound, false},
			{`install '` + pkg + `' --yes`, `{"package":` + strconv.Quote(pkg) + `,"yes":true}`, "", false},
			{`update '` + pkg + `/nosuch' --yes`, `{"package":` + strconv.Quote(pkg+"/nosuch") + `,"yes":true}`, plugin.NotFound, false},
			{`update '` + pkg + `' --yes`, `{"package":` + strconv.Quote(pkg) + `,"yes":true}`, "", false},
		}},
		{"sessions", []verbCase{ // what changes the session comes last: tools know no such command
			{`rename ` + parityTalk + ` "The launch"`, `{"id":"` + parityTalk + `","title":"The launch"}`, "", false},
			{`rename ` + parityTalk + ` " "`, `{"id":"` + parityTalk + `","title":" "}`, plugin.Usage, false},
			{`rename nosuch x`, `{"id":"nosuch","title":"x"}`, plugin.NotFound, false},
			{`pin ` + parityTalk, `{"id":"` + parityTalk + `"}`, "", false},
			{`pin nosuch`, `{"id":"nosuch"}`, plugin.NotFound, false},
			{`unpin ` + parityTalk, `{"id":"` + parityTalk + `"}`, "", false},
			{`unpin nosuch`, `{"id":"nosuch"}`, plugin.NotFound, false},
			{`delete ` + parityTalk, `{"id":"` + parityTalk + `"}`, "", false},
			{`delete ` + parityTalk, `{"id":"` + parityTalk + `"}`, plugin.NotFound, false},
			{`list --trash`, `{"trash":true}`, "", false},
			{`restore ` + parityTalk, `{"id":"` + parityTalk + `"}`, "", false},
			{`restore ` + parityTalk, `{"id":"` + parityTalk + `"}`, plugin.NotFound, false},
			{`restore ../x`, `{"id":"../x"}`, plugin.InvalidName, false},
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
	plugin bool         // whose command it is; otherwise it is the host's own
	verb   *plugin.Verb // nil where there is none
	action string       // as typed
	words  []string     // of typed
}

// read reports whether the case can be asked again.
func (c *parityCall) read() bool { return c.verb != nil && c.verb.Effect == plugin.EffectRead }

// atHome reports whether the case is for the command line only: who comes over
// the network or by a model brings no programs that run here.
func (c *parityCall) atHome() bool { return c.verb != nil && c.verb.ByHand }

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

// S4-10, S4-56, S4-59, S4-61, S4-62, S4-65, S4-95, S4-96: the same verbs do the
// same on every surface: same data, code and text. Each surface has a home of its
// own, all made alike, and runs all cases there.
func TestParity(t *testing.T) {
	t.Parallel()
	template := newUser(t)
	pkg := notePackage(t, nil)
	template.askNobody()
	template.do("--session="+parityTalk, "chat", "--message", "Let us plan the launch of our newsletter")
	bundle := filepath.Join(t.TempDir(), "carried.sess.json")
	elsewhere := newUser(t)
	elsewhere.do("--session=other", "chat", "--message", "What was said elsewhere")
	elsewhere.do("save", "carried", "--tags=from=elsewhere")
	elsewhere.do("export", "carried", "--output="+bundle)
	calls := parityCalls(t, pkg, bundle)

	type surface struct {
		name  string
		typed bool // it takes words as people type them
		tool  bool // it offers the commands of plugins only
		home  bool // plugins are changed there
		run   func(p *parityRun)
	}
	all := []surface{
		{"command line", true, false, true, (*parityRun).commandLine},
		{"command line through a gateway", true, false, true, (*parityRun).commandLineThere},
		{"slash", true, false, false, (*parityRun).slash},
		{"model", false, true, false, (*parityRun).model},
		{"tool over HTTP", false, true, false, (*parityRun).tool},
		{"MCP over stdio", false, true, false, (*parityRun).mcp},
		{"MCP over HTTP", false, true, false, (*parityRun).mcpThere},
		{"HTTP", false, false, false, (*parityRun).http},
		{"RPC with fields over HTTP", false, false, false, (*parityRun).rpcFields},
		{"RPC with words over the socket", true, false, false, (*parityRun).rpcWords},
		{"dispatch over WebSocket", true, false, false, (*parityRun).dispatch},
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
				u.do("plugins", "install", "--yes", pkg)
				p := &parityRun{T: t, user: u, calls: slices.DeleteFunc(slices.Clone(calls), func(c parityCall) bool {
					return s.tool && !c.plugin
				})}
				s.run(p)
				if len(p.outcomes) != len(p.calls) {
					t.Fatalf("%d answers to %d cases", len(p.outcomes), len(p.calls))
				}
				for j := range p.outcomes {
					p.outcomes[j].normalise(u)
				}
				results[i] = p.outcomes
			})
		}
	})
	if t.Failed() {
		return
	}
	for _, c := range calls {
		first := map[bool]*parityOutcome{} // of the surfaces that are typed, and that are not
		for i, s := range all {
			if s.tool && !c.plugin {
				continue
			}
			got := results[i][0]
			results[i] = results[i][1:]
			if first[true] == nil && got.Code != c.code {
				t.Errorf("%s %s: code %q, want %q\n%s", c.spec.Command, c.typed, got.Code, c.code, *got.Text)
			}
			if c.atHome() && !s.home {
				text := c.spec.Command + " " + c.verb.Name + " is for people only, at the command line of its own machine; a person has to run it there"
				if got.Code != plugin.Denied || *got.Text != text {
					t.Errorf("%s %s on %s: %s %s, want it denied: %s", c.spec.Command, c.typed, s.name, got.Code, *got.Text, text)
				}
				continue
			}
			kind := s.typed || !c.own // other words for the same are fine where both are the surface's own
			if first[kind] == nil {
				first[kind] = &got
			}
			want := *cmp.Or(first[kind], first[true])
			if want.Code != first[true].Code {
				t.Errorf("%s %s: code %q on the %s, and %q on others", c.spec.Command, c.typed, want.Code, s.name, first[true].Code)
			}
			if got.Text == nil || c.verb == nil {
				got.Text = nil
				want.Text = nil
			}
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("%s %s, or %s (-first +%s):\n%s", c.spec.Command, c.typed, c.object, s.name, diff)
			}
		}
	}
}

// parityCalls resolves the cases, and fails where a verb lacks one.
func parityCalls(t *testing.T, pkg, bundle string) []parityCall {
	t.Helper()
	content, err := os.ReadFile(bundle)
	if err != nil {
		t.Fatal(err)
	}
	u := newUser(t)
	u.do("plugins", "install", "--yes", pkg)
	h, err := host.Open(t.Context(), host.Options{Home: u.home, Exe: u.bin, Builtins: manifests(t), RuntimeDir: u.tmp, Environ: u.env})
	if err != nil {
		t.Fatal(err)
	}
	specs, plugins := map[string]*plugin.Spec{}, map[string]bool{}
	for _, spec := range h.Specs(t.Context()) {
		specs[spec.Command] = spec
		plugins[spec.Command] = true
	}
	for _, spec := range h.OwnSpecs() {
		specs[spec.Command] = &spec
		plugins[spec.Command] = false
	}
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}

	var calls []parityCall
	seen := map[string]bool{} // "sess save", with " good" or " bad"
	for _, group := range parityCases(pkg, bundle, string(content)) {
		spec := specs[group.command]
		if spec == nil {
			t.Fatalf("there are cases for %s, and no such command", group.command)
		}
		for _, vc := range group.cases {
			words, err := surfaces.Split(vc.typed)
			if err != nil {
				t.Fatalf("%s: %v", vc.typed, err)
			}
			c := parityCall{verbCase: vc, spec: spec, plugin: plugins[spec.Command], words: words, action: words[0]}
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

// parityRun runs all cases on one surface.
type parityRun struct {
	*testing.T
	*user
	calls    []parityCall
	outcomes []parityOutcome
}

func (p *parityRun) add(o parityOutcome) { p.outcomes = append(p.outcomes, o) }

// addError adds what became of a case that has no answer.
func (p *parityRun) addError(err error) {
	e := plugin.AsError(err)
	p.add(shownFailure{Error: e.Message, Hint: e.Hint, Code: e.Code}.outcome())
}

// session is the session that a case is about; "" where its command is not about
// one.
func (c *parityCall) session() string {
	if c.plugin {
		return parityTalk
	}
	return ""
}

func (p *parityRun) commandLine() {
	p.user.t = p.T
	for _, c := range p.calls {
		argv := append([]string{c.spec.Command}, c.words...)
		if session := c.session(); session != "" {
			argv = append([]string{"--session=" + session}, argv...)
		}
		document, _, exit := p.run(append([]string{"--json"}, argv...)...)
		want := 0
		if c.code != "" {
			want = c.code.Info().Exit
		}
		if exit != want {
			p.Errorf("sess %s ended with status %d, want %d:\n%s", c.typed, exit, want, document)
		}
		text := ""
		if c.read() && exit == 0 {
			text = p.do(argv...)
		}
		p.add(typedOutcome(p.T, &c, document, text))
	}
}

func (p *parityRun) commandLineThere() {
	p.gateway()
	p.commandLine()
}

// slash says all cases in one chat. What follows an answer marks its end.
func (p *parityRun) slash() {
	p.user.t = p.T
	const mark = "/help exit"
	var lines []string
	for _, c := range p.calls {
		lines = append(lines, fmt.Sprintf("/%s --json %s", c.spec.Command, c.typed), mark)
		if c.read() {
			lines = append(lines, fmt.Sprintf("/%s %s", c.spec.Command, c.typed))
		}
		lines = append(lines, mark)
	}
	marked := strings.TrimSpace(p.do("chat", "--message", mark)) + "\n"
	var out, errs bytes.Buffer
	cmd := p.command("--session="+parityTalk, "chat")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(strings.Join(lines, "\n")), &out, &errs
	p.exit(cmd.Run())
	parts := strings.Split(out.String(), marked)
	if len(parts) != 2*len(p.calls)+1 {
		p.Fatalf("%d parts of what a chat wrote about %d cases:\n%s%s", len(parts), len(p.calls), &out, &errs)
	}
	for i, c := range p.calls {
		p.add(typedOutcome(p.T, &c, parts[2*i], parts[2*i+1]))
	}
}

// model lets the model make all calls, from a conversation of its own.
func (p *parityRun) model() {
	p.user.t = p.T
	var lines []string
	for _, c := range p.calls {
		fields := c.fields(p.T, c.session())
		fields["action"] = c.action
		args, err := json.Marshal(fields)
		if err != nil {
			p.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("call %s %s", c.spec.ToolName(), args))
	}
	cmd := p.command("--session=caller", "chat")
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n"))
	if out, err := cmd.CombinedOutput(); err != nil {
		p.Fatalf("a chat: %v\n%s", err, out)
	}

	var session struct {
		Activities []struct{ Status, RawOutput string }
	}
	p.answer(&session, "sessions", "show", "caller")
	for _, a := range session.Activities {
		text, data, code := modelAnswer(a.RawOutput)
		p.add(parityOutcome{Code: code, Text: &text, Data: string(data)})
	}
}

// asker starts a gateway and asks it over HTTP.
func (p *parityRun) asker() (asker, *gateway) {
	p.user.t = p.T
	g := p.gateway()
	return g.asker(), g
}

// tool makes the calls of a model that another program runs.
func (p *parityRun) tool() {
	a, _ := p.asker()
	for _, c := range p.calls {
		fields := c.fields(p.T, "")
		fields["action"] = c.action
		status, body, err := a.ask(p.Context(), http.MethodPost, "/tools/invoke", map[string]any{"tool": c.spec.ToolName(), "args": fields, "session": c.session()})
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
		if err := errors.Join(err, json.Unmarshal(body, &answer)); err != nil || answer.OK != (status == http.StatusOK) {
			p.Fatalf("%s %s: %v, status %d, and the answer %s", c.action, c.object, err, status, body)
		}
		if answer.OK {
			p.add(parityOutcome{Text: &answer.Result.Text, Data: string(answer.Result.Data)})
			continue
		}
		p.add(shownFailure{Error: answer.Error.Message, Hint: answer.Error.Hint, Code: answer.Error.Code}.outcome())
	}
}

// mcp makes the calls of another agent's model, which starts the program.
func (p *parityRun) mcp() {
	p.user.t = p.T
	p.callTools(p.mcpStdio())
}

// mcpThere is mcp over the network.
func (p *parityRun) mcpThere() {
	p.user.t = p.T
	p.callTools(p.gateway().mcp())
}

func (p *parityRun) callTools(session *mcp.ClientSession) {
	for _, c := range p.calls {
		fields := c.fields(p.T, c.session())
		fields["action"] = c.action
		answer, err := session.CallTool(p.Context(), &mcp.CallToolParams{Name: c.spec.ToolName(), Arguments: fields})
		if err != nil {
			p.Fatalf("%s %s: %v", c.action, c.object, err)
		}
		text, data, code := modelAnswer(toolText(p.T, answer))
		if s := structured(p.T, answer); s.code() != code || data != nil && !sameJSON(s.Data, data) {
			p.Errorf("%s %s: the text has %s %s, and the structured content %s %s", c.action, c.object, code, data, s.code(), s.Data)
		}
		p.add(parityOutcome{Code: code, Text: &text, Data: string(data)})
	}
}

// http asks the routes.
func (p *parityRun) http() {
	a, _ := p.asker()
	for _, c := range p.calls {
		path := "/" + c.spec.Command + "/" + strings.ReplaceAll(c.action, " ", "/")
		status, body, err := a.route(p.Context(), path, c.read(), c.fields(p.T, c.session()))
		want := http.StatusOK
		switch {
		case c.verb == nil:
			want = http.StatusNotFound
		case c.atHome():
			want = plugin.Denied.Info().HTTP
		case c.code != "" && c.plugin: // as the routes of plugins are documented
			want = http.StatusBadRequest
		case c.code != "":
			want = c.code.Info().HTTP
		}
		if err != nil || status != want {
			p.Errorf("%s: %v, status %d, want %d: %s", path, err, status, want, body)
		}
		if c.read() && c.verb.Output != "" && !json.Valid(body) { // a file of its own kind
			if body, err = json.Marshal(strings.TrimSuffix(string(body), "\n")); err != nil {
				p.Fatal(err)
			}
		}
		o := typedOutcome(p.T, &c, string(body), "")
		if c.read() && o.Code == "" {
			o.Text = nil
		}
		p.add(o)
	}
}

// rpcFields calls <command>.invoke with the action and its fields.
func (p *parityRun) rpcFields() {
	a, _ := p.asker()
	for _, c := range p.calls {
		fields := c.fields(p.T, c.session())
		fields["action"] = c.action
		answer, err := a.rpc(p.Context(), c.spec.Command+".invoke", fields)
		if err != nil {
			p.Fatal(err)
		}
		if e := answer.Error; e != nil {
			code := plugin.Code(e.Data.Code)
			if want := code.Info().JSONRPC; e.Code != want {
				p.Errorf("%s: error %d, want %d of %s", c.typed, e.Code, want, code)
			}
			p.add(shownFailure{Error: e.Message, Hint: e.Data.Hint, Code: code}.outcome())
			continue
		}
		o := typedOutcome(p.T, &c, string(answer.Result), "")
		if c.read() {
			o.Text = nil
		}
		p.add(o)
	}
}

// rpcWords calls <command>.invoke with the words of the command line.
func (p *parityRun) rpcWords() {
	p.user.t = p.T
	conn := p.dial(client.Options{Socket: p.gateway().Socket})
	for _, c := range p.calls {
		params := map[string]any{"argv": c.words}
		if input, ok := c.fields(p.T, "")["input"]; ok {
			params["input"] = input
		}
		if session := c.session(); session != "" {
			params["session"] = session
		}
		data, err := conn.Call(p.Context(), c.spec.Command+".invoke", params, nil)
		if err != nil {
			p.addError(err)
			continue
		}
		var answer struct {
			Text string
			Data json.RawMessage
		}
		if err := json.Unmarshal(data, &answer); err != nil {
			p.Fatalf("%s: %v\n%s", c.typed, err, data)
		}
		p.add(parityOutcome{Text: &answer.Text, Data: string(answer.Data)})
	}
}

// dispatch is what a program in Go calls.
func (p *parityRun) dispatch() {
	a, _ := p.asker()
	conn := p.dial(client.Options{URL: a.url, Token: a.token})
	for _, c := range p.calls {
		call := plugin.Call{Argv: append([]string{c.spec.Command}, c.words...), Session: c.session()}
		if input, ok := c.fields(p.T, "")["input"].(string); ok {
			call.Input = strings.NewReader(input)
		}
		res, err := conn.Dispatch(p.Context(), call, nil)
		if err != nil {
			p.addError(err)
			continue
		}
		p.add(parityOutcome{Text: &res.Text, Data: string(res.Data)})
	}
}

func (p *parityRun) dial(o client.Options) *client.Client {
	conn, err := client.Dial(p.Context(), o)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = conn.Close() }) // who hangs up first does not matter
	return conn
}

// normalise takes out what cannot be the same twice: ids, times, revisions and
// what is named by them.
func (o *parityOutcome) normalise(u *user) {
	if o.Text != nil {
		text := normalText(u, *o.Text)
		o.Text = &text
	}
	if data := strings.TrimSpace(o.Data); data == "" || data == "null" {
		o.Data = ""
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
			case "revision", "acknowledgedAt", "createdAt", "updatedAt", "deletedAt", "expiresAt":
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
	s = strings.ReplaceAll(strings.ReplaceAll(s, u.home, "<home>"), u.dir, "<dir>")
	for _, n := range []struct{ pattern, with string }{
		// In a chat, people are told what to type there.
		{`(^|[ (])/sess (\w)`, "${1}sess $2"},
		{`(^|[ (])/([a-z]+) (\w)`, "${1}sess $2 $3"},
		{`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`, "<uuid>"},
		{`\b[0-9a-f]{64}\b`, "<sum>"},
		{`\b\d{8}_[0-9a-f]{8}\b`, "<session>"},
		{`\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z| UTC)?`, "<time>"},
		{`\bpre-(load|new|delete|compact)~[0-9TZ.-]+\w*`, "pre-$1~<time>"},
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
