package tests

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// An arrow row says what a package may import from this module, and why it is
// so. Paths are below the module's; "*" stands for everything.
type arrowRow struct {
	pkg string
	may []string
	why string
}

// arrows has one row for every package with code that is not a test.
var arrows = []arrowRow{
	{"cmd/sess", []string{"*"}, "wiring: the one place that knows all parts"},
	{"cmd/sess/lineedit", nil, "lines at a terminal, whatever they are for"},
	{"dispatch", []string{"plugin"}, "verbs are declared against the contract, without knowing a surface"},
	{"host", []string{
		"dispatch", "host/agents", "host/chat", "host/models", "host/schema", "host/server", "host/supervise", "plugin", "plugin/upstream", "store/chunk",
		"store/durable", "store/session", "store/transcript", "surfaces",
	}, "puts its parts together; snapshots are the plugin's business"},
	{"host/agents", []string{"host/agents/sqlitefile", "plugin", "store/durable", "store/transcript"}, "reads what other programs wrote; of ours it knows what a conversation is made of, and the codes of errors"},
	{"host/agents/sqlitefile", []string{"store/transcript"}, "reads databases of other programs; of ours it knows what a record is"},
	{"host/chat", []string{"host/models", "plugin", "store/session", "store/transcript", "surfaces"}, "a turn writes to a session and lowers slash commands and tool calls"},
	{"host/client", []string{"plugin", "store/transcript"}, "a gateway's other side needs nothing of the gateway; messages have one type"},
	{"host/models", []string{"plugin", "plugin/upstream", "store/transcript"}, "a model turns records into events; it keeps nothing"},
	{"host/models/modelstest", nil, "a provider for tests; it knows the wire formats from the other side"},
	{"host/schema", []string{"plugin"}, "checks values of anything; of the contract it knows how to guess a word"},
	{"host/server", []string{"host/web", "plugin", "surfaces"}, "mounts what the surfaces derive, and the files for pages; what answers is handed to it"},
	{"host/supervise", []string{"plugin", "plugin/wire"}, "starts and watches processes, whatever they do"},
	{"host/web", nil, "files for pages, which know the gateway by its network only"},
	{"plugin", []string{"store/transcript"}, "the contract shares the record types and nothing else"},
	{"plugin/actions", []string{"dispatch", "plugin", "plugin/change", "store/transcript"}, "works on single messages; snapshots are made by asking for them"},
	{"plugin/change", []string{"plugin", "store/chunk", "store/transcript"}, "the way back of a change, for every plugin that makes one; chunks cross the boundary as frames"},
	{"plugin/responses", []string{"dispatch", "plugin", "plugin/change", "plugin/upstream", "store/transcript"}, "talks to models, and changes a conversation as every plugin does"},
	{"plugin/responses/responsestest", nil, "speaks a provider's API in the tests, and knows nothing of who asks"},
	{"plugin/sess", []string{"dispatch", "plugin", "plugin/wire", "store/snapshot", "store/transcript"}, "owns the named pool and reaches live sessions through plugin.Runtime alone"},
	{"plugin/upstream", []string{"plugin"}, "talks to a model's provider, for the host's kinds of models and for plugins that bring one"},
	{"plugin/wire", []string{"plugin", "plugin/wire/pluginv1", "store/transcript"}, "carries the contract; adds no meaning"},
	{"plugin/wire/pluginv1", nil, "generated from the protocol"},
	{"store/chunk", []string{"store/durable", "store/transcript"}, "sealed chunks know nothing of names or sessions"},
	{"store/durable", nil, "the lowest layer: the disk and nothing else"},
	{"store/durable/durabletest", []string{"store/durable"}, "injects faults below every store's tests"},
	{"store/session", []string{"store/chunk", "store/durable", "store/transcript"}, "live sessions; the named pool is the other side of the process boundary"},
	{"store/snapshot", []string{"store/chunk", "store/durable", "store/transcript"}, "the named pool; live sessions are the other side of the process boundary"},
	{"store/transcript", nil, "pure functions over bytes"},
	{"tests/plugins/note", []string{"dispatch", "plugin", "plugin/wire"}, "an example of a plugin: what its author needs, and nothing of the host"},
	{"surfaces", []string{"plugin"}, "pure lowering and rendering over the contract"},
}

// A reach row says that no chain of imports leads from one package to another,
// whatever the rows of arrows allow step by step.
type reachRow struct{ from, to, why string }

var unreachable = []reachRow{
	{"host", "plugin/sess", "the host starts plugins, it does not contain them"},
	{"host", "plugin/responses", "the host starts plugins, it does not contain them"},
	{"host", "store/snapshot", "named snapshots belong to the plugin"},
	{"host/agents", "host", "a part of the host gets what it needs handed to it"},
	{"host/chat", "host", "a part of the host gets what it needs handed to it"},
	{"host/models", "host", "a part of the host gets what it needs handed to it"},
	{"host/server", "host", "a part of the host gets what it needs handed to it"},
	{"host/supervise", "host", "a part of the host gets what it needs handed to it"},
	{"plugin/actions", "host", "a plugin runs in a process of its own"},
	{"plugin/change", "store/session", "live sessions belong to the host: plugin.Runtime is the way to them"},
	{"plugin/responses", "host", "a plugin runs in a process of its own"},
	{"plugin/sess", "host", "a plugin runs in a process of its own"},
	{"plugin/sess", "store/session", "live sessions belong to the host: plugin.Runtime is the way to them"},
	{"surfaces", "dispatch", "a surface works over any Dispatcher, also a remote one"},
	{"surfaces", "host", "a surface has no idea what answers it"},
}

// A module row names the packages that may import a module of others, and why
// only they. "*" stands for all. A module without a row is refused.
type moduleRow struct {
	module string
	only   []string
	why    string
}

var modules = []moduleRow{
	{"github.com/coder/websocket", []string{"host/client", "host/server"}, "one side of a connection each"},
	{"github.com/creachadair/jrpc2", []string{"host/server"}, "says what a JSON-RPC request is"},
	{"github.com/dustin/go-humanize", []string{"plugin"}, "how long ago something was"},
	{"github.com/rivo/uniseg", []string{"cmd/sess/lineedit", "host/chat"}, "what a person takes for one character, and how wide it is"},
	{"golang.org/x/sys/unix", []string{"cmd/sess", "host/agents/sqlitefile", "store/durable"}, "locks a database as SQLite does; keeps a terminal from echoing; opens a name below its folder in one call of the system, and locks what is open"},
	{"github.com/gofrs/flock", []string{"host/supervise", "store/durable"}, "files are locked through store/durable's FS, so that tests can inject faults; a socket folder's lock only says that its process lives"},
	{"github.com/google/uuid", []string{"*"}, "ids that sort by time"},
	{"github.com/hashicorp/go-hclog", []string{"host/supervise", "plugin/wire"}, "the program logs with log/slog; this is go-plugin's logger, bridged where plugins are started, and kept short where they serve"},
	{"github.com/hashicorp/go-plugin", []string{"host/supervise", "plugin/wire"}, "the process boundary: one package speaks across it, one starts the other side"},
	{"github.com/klauspost/compress", []string{"host/agents", "store/chunk"}, "how a chunk is compressed is that package's secret; and an agent packs its own files"},
	{"github.com/labstack/echo", []string{"host/server"}, "the router; its types stay where it is"},
	{"github.com/modelcontextprotocol/go-sdk", []string{"host/server"}, "the Model Context Protocol, which changes every few months; its types stay where it is"},
	{"github.com/robfig/cron", []string{"plugin/sess"}, "only the pruner keeps a schedule"},
	{"github.com/ncruces/go-sqlite3", []string{"host/agents/sqlitefile"}, "databases of other programs are read in one way, which writes nothing, and added to in one"},
	{"github.com/spf13/pflag", []string{"dispatch"}, "everybody else sees the Spec that is derived from the flags"},
	{"github.com/tailscale/hujson", []string{"host"}, "configuration is the only file with comments"},
	{"golang.org/x/net", []string{"host/server"}, "bounds the connections; all else of the network is net/http"},
	{"golang.org/x/sys/windows", []string{"host/agents/sqlitefile"}, "locks a database as SQLite does"},
	{"golang.org/x/term", []string{"cmd/sess"}, "only the command knows its terminal"},
	{"golang.org/x/text", []string{"plugin/sess"}, "names as people type them"},
	{"google.golang.org/grpc", []string{"plugin/wire", "plugin/wire/pluginv1"}, "the wire format is plugin/wire's secret"},
	{"google.golang.org/protobuf", []string{"plugin/wire", "plugin/wire/pluginv1"}, "the wire format is plugin/wire's secret"},
}

// TestImports holds the tables over the packages as they are on each system.
// Only code that is not a test is bound by them.
//
// S4-16, S4-94, S4-98, S4-99: they say what the plugin uses of this module.
func TestImports(t *testing.T) {
	t.Parallel()
	if err := walkSource(func(string) error { return nil }); err != nil { // see buildBinary
		t.Fatal(err)
	}
	graph := imports{}
	for _, goos := range []string{"linux", "darwin", "windows"} {
		if err := graph.add(goos); err != nil {
			t.Fatal(err)
		}
	}
	for _, problem := range graph.check(arrows, unreachable, modules) {
		t.Error(problem)
	}
}

// imports maps each package with code to what it imports. Packages of this
// module are known by their path below it, others by their full path.
type imports map[string]map[string]bool

const module = "sess/"

// add asks the go command for the packages as goos sees them.
func (g imports) add(goos string) error {
	list := exec.Command("go", "list", "-json=ImportPath,Imports,GoFiles", "./...")
	list.Dir = root
	list.Env = append(os.Environ(), "GOOS="+goos)
	out, err := list.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = errors.Join(err, errors.New(string(exit.Stderr)))
		}
		return fmt.Errorf("go list for %s: %w", goos, err)
	}
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p struct {
			ImportPath       string
			Imports, GoFiles []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if len(p.GoFiles) == 0 {
			continue // tests alone
		}
		name := strings.TrimPrefix(p.ImportPath, module)
		if g[name] == nil {
			g[name] = map[string]bool{}
		}
		for _, path := range p.Imports {
			first, _, _ := strings.Cut(path, "/")
			if rest, ours := strings.CutPrefix(path, module); ours {
				g[name][rest] = true
			} else if strings.Contains(first, ".") {
				g[name][path] = true
			}
		}
	}
}

// check lists everything that the tables do not allow, and every row of theirs
// that has become idle.
func (g imports) check(arrows []arrowRow, unreachable []reachRow, modules []moduleRow) []string {
	var problems []string
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }

	rows := map[string]arrowRow{}
	for _, row := range arrows {
		rows[row.pkg] = row
		if g[row.pkg] == nil {
			problem("arrows has a row for %s, which is no package any more: remove it", row.pkg)
		}
	}
	used := map[string]bool{} // modules
	for _, pkg := range slices.Sorted(maps.Keys(g)) {
		row, ok := rows[pkg]
		if !ok {
			problem("package %s has no row in arrows: add what it may import and why", pkg)
			continue
		}
		for _, path := range slices.Sorted(maps.Keys(g[pkg])) {
			if first, _, _ := strings.Cut(path, "/"); !strings.Contains(first, ".") {
				if !allows(row.may, path) {
					problem("%s imports %s: it may import only %q (%s)", pkg, path, row.may, row.why)
				}
				continue
			}
			i := slices.IndexFunc(modules, func(m moduleRow) bool {
				return path == m.module || strings.HasPrefix(path, m.module+"/")
			})
			if i < 0 {
				problem("%s imports %s, which has no row in modules: add who may import it and why", pkg, path)
				continue
			}
			used[modules[i].module] = true
			if !allows(modules[i].only, pkg) {
				problem("%s imports %s: only %q may (%s)", pkg, path, modules[i].only, modules[i].why)
			}
		}
		for _, may := range row.may {
			if may != "*" && g[may] == nil {
				problem("arrows lets %s import %s, which is no package: remove it", pkg, may)
			}
		}
	}
	for _, row := range modules {
		if !used[row.module] {
			problem("modules has a row for %s, which nothing imports any more: remove it", row.module)
		}
	}
	for _, row := range unreachable {
		if g[row.from] == nil || g[row.to] == nil {
			problem("unreachable has a row from %s to %s, and one of them is no package any more: remove it", row.from, row.to)
		} else if chain := g.chain(row.from, row.to); chain != nil {
			problem("%s must not reach %s (%s): %s", row.from, row.to, row.why, strings.Join(chain, " → "))
		}
	}
	return problems
}

func allows(list []string, path string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, path)
}

// chain is a shortest chain of imports between two packages, nil if none.
func (g imports) chain(from, to string) []string {
	before := map[string]string{from: ""}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		for _, next := range slices.Sorted(maps.Keys(g[queue[0]])) {
			if _, seen := before[next]; seen {
				continue
			}
			before[next] = queue[0]
			if next == to {
				var chain []string
				for p := to; p != ""; p = before[p] {
					chain = append(chain, p)
				}
				slices.Reverse(chain)
				return chain
			}
			queue = append(queue, next)
		}
	}
	return nil
}

func TestImportCheck(t *testing.T) {
	t.Parallel()
	set := func(paths ...string) map[string]bool {
		m := map[string]bool{}
		for _, p := range paths {
			m[p] = true
		}
		return m
	}
	rows := []arrowRow{{"top", []string{"*"}, "wiring"}, {"mid", []string{"low"}, "middle"}, {"low", nil, "lowest"}}
	mods := []moduleRow{{"example.org/m", []string{"low"}, "secret"}}
	reach := []reachRow{{"mid", "top", "upside down"}}
	good := func() imports {
		return imports{"top": set("mid", "low"), "mid": set("low"), "low": set("example.org/m/v2")}
	}
	tests := []struct {
		name   string
		change func(g imports)
		want   []string
	}{
		{"all as it should be", func(imports) {}, nil},
		{"a package without a row", func(g imports) { g["new"] = set("low") }, []string{
			"package new has no row in arrows: add what it may import and why",
		}},
		{"a row without a package", func(g imports) { delete(g, "top") }, []string{
			"arrows has a row for top, which is no package any more: remove it",
			"unreachable has a row from mid to top, and one of them is no package any more: remove it",
		}},
		{"an arrow upwards", func(g imports) { g["low"]["mid"] = true }, []string{
			`low imports mid: it may import only [] (lowest)`,
		}},
		{"a chain", func(g imports) { g["low"]["top"] = true }, []string{
			`low imports top: it may import only [] (lowest)`,
			"mid must not reach top (upside down): mid → low → top",
		}},
		{"a module in the wrong place", func(g imports) { g["mid"]["example.org/m"] = true }, []string{
			`mid imports example.org/m: only ["low"] may (secret)`,
		}},
		{"a module without a row", func(g imports) { g["mid"]["example.org/more"] = true }, []string{
			"mid imports example.org/more, which has no row in modules: add who may import it and why",
		}},
		{"a row without a module", func(g imports) { g["low"] = set() }, []string{
			"modules has a row for example.org/m, which nothing imports any more: remove it",
		}},
		{"an arrow to no package", func(g imports) { delete(g, "low"); delete(g["top"], "low"); delete(g["mid"], "low") }, []string{
			"arrows has a row for low, which is no package any more: remove it",
			"arrows lets mid import low, which is no package: remove it",
			"modules has a row for example.org/m, which nothing imports any more: remove it",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := good()
			tt.change(g)
			if diff := cmp.Diff(tt.want, g.check(rows, reach, mods)); diff != "" {
				t.Errorf("check (-want +got):\n%s", diff)
			}
		})
	}
}
