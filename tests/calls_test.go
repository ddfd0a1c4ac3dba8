package tests

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A callRow names functions and variables of a package that have one place
// only, and what everybody else uses instead.
type callRow struct {
	pkg   string
	names []string
	only  []string // packages below the module's root that may
	use   string
}

// calls binds code that is not a test.
var calls = []callRow{
	{
		"os",
		[]string{
			"Chmod", "Chtimes", "CopyFS", "Create", "CreateTemp", "Link", "Mkdir", "MkdirAll", "MkdirTemp", "OpenFile",
			"OpenRoot", "Remove", "RemoveAll", "Rename", "Symlink", "Truncate", "WriteFile",
		},
		[]string{"store/durable"},
		"store/durable, which syncs what it writes and takes a lock for it",
	},
	{"os", []string{"Exit"}, []string{"cmd/sess", "plugin/wire"}, "an error, which the caller turns into an exit code"},
	{"os", []string{"Args", "Stdin", "Stdout", "Stderr"}, []string{"cmd/sess", "plugin/wire"}, "a parameter"},
	{"os", []string{"Chdir", "Clearenv", "Setenv", "Unsetenv"}, nil, "a parameter: the process has one folder and one environment for everybody"},
	{"fmt", []string{"Print", "Printf", "Println", "Scan", "Scanf", "Scanln"}, nil, "fmt.Fprint with a writer that was passed in"},
	{"log", []string{"*"}, nil, "log/slog, with a logger that was passed in"},
	{"log/slog", []string{"SetDefault", "Debug", "Info", "Warn", "Error", "Log", "LogAttrs", "Default"}, []string{"cmd/sess"}, "a logger that was passed in"},
	{"time", []string{"Sleep"}, nil, "a timer in a select with ctx.Done"},
	{"time", []string{"Tick"}, nil, "time.NewTicker, which can be stopped"},
	{"context", []string{"TODO"}, nil, "the caller's context"},
	{"runtime", []string{"Goexit"}, nil, "a return"},
	{"unsafe", []string{"*"}, nil, "types"},
}

// An exception lets one package, or one test file, use one name all the same.
// For variables and panics the name is the variable's, or "panic".
type exception struct{ where, name, why string }

var exceptions = []exception{
	{"cmd/sess", "os.CreateTemp", "what is exported goes to a file of the user's, which nothing of the program depends on"},
	{"cmd/sess", "os.MkdirTemp", "the demo's home is thrown away"},
	{"cmd/sess", "os.OpenFile", "what a gateway in the background prints goes to a file that its process is started with; a pipe is no file of the program's"},
	{"cmd/sess", "os.Remove", "what is exported goes to a file of the user's, which nothing of the program depends on"},
	{"cmd/sess", "os.RemoveAll", "the demo's home is thrown away"},
	{"cmd/sess", "os.Rename", "what is exported goes to a file of the user's, which nothing of the program depends on"},
	{"dispatch", "panic", "a handler that asks for a flag or an argument its verb does not declare is a bug in the program"},
	{"plugin", "objectFields", "a fixed list, never written to"},
	{"host", "os.Chmod", "a socket is made by the system: nothing that has to survive a power cut"},
	{"host/server", "panic", "net/http has no other way to break an answer off, so that nobody takes it for the whole"},
	{"host/agents", "os.OpenRoot", "the folder of another program, which is only read: store/durable would tighten the modes of what it opens"},
	{"host/chat", "panic", "what is encoded are the program's own types, which have JSON"},
	{"host/models", "panic", "what is encoded are the program's own types, which have JSON"},
	{"host/models/modelstest", "panic", "a server for tests that is asked for what has no JSON, or is to break the connection"},
	{"host/supervise", "os.Mkdir", "socket folders last as long as a process: nothing in them has to survive a power cut"},
	{"host/supervise", "os.MkdirAll", "socket folders last as long as a process"},
	{"host/supervise", "os.Remove", "socket folders last as long as a process"},
	{"host/supervise", "os.RemoveAll", "socket folders last as long as a process"},
	{"host/supervise", "os.Stdin", "the guard of a plugin is a whole process: its streams are the plugin's"},
	{"host/supervise", "os.Stdout", "the guard of a plugin is a whole process: its streams are the plugin's"},
	{"host/supervise", "os.Stderr", "the guard of a plugin is a whole process: its streams are the plugin's"},
	{"host/supervise", "unsafe.Pointer", "waitid, which leaves the process to be reaped, has no wrapper in the standard library"},
	{"host/supervise/process_test.go", "time.Sleep", "a program that is slow to start"},
	{"host/supervise/process_unix_test.go", "time.Sleep", "the end of a process that is no child gives no event"},
	{"plugin/sess", "panic", "the verbs are declared in the program: a wrong declaration is a bug that every test meets"},
	{"plugin/wire", "os.Unsetenv", "what the host told the plugin alone is not for the processes that the plugin starts"},
	{"store/chunk", "encoders", "a pool of idle encoders: costly to make, without state between two uses"},
	{"store/chunk", "buffers", "a pool of idle buffers: a page touched for the first time costs more than what is written into it"},
	{"store/chunk", "decoders", "a pool of idle decoders: costly to make, without state between two uses"},
	{"store/chunk", "panic", "the options of encoder and decoder are constant"},
	{"store/durable/durabletest", "os.Mkdir", "what a power cut leaves is made up for one test"},
	{"store/durable/durabletest", "os.WriteFile", "what a power cut leaves is made up for one test"},
	{"store/session", "ErrLocked", "an error of store/durable under another name"},
	{"store/session", "ErrMissing", "an error of store/chunk under another name"},
	{"store/session", "defaultLayout", "a fixed list, never written to"},
	{"store/session", "panic", "what is encoded are the program's own types, which have JSON"},
	{"store/snapshot", "ErrLocked", "an error of store/durable under another name"},
	{"store/transcript", "hexDigit", "a fixed table, never written to"},
	{"store/transcript", "panic", "what is encoded are the program's own types, which have JSON"},
	{"tests/plugins/note", "os.MkdirAll", "an example in few lines; its notes are its own"},
	{"tests/plugins/note", "os.WriteFile", "an example in few lines; its notes are its own"},
	{"surfaces", "panic", "what is encoded are the program's own types, which have JSON"},
}

// TestCalls reads all source files, those of other systems too.
//
// S4-14, S4-15, S4-100: files are written in one place, and no package has
// variables that change.
func TestCalls(t *testing.T) {
	t.Parallel()
	tree := sourceTree{exceptions: exceptions, used: map[exception]bool{}}
	err := walkSource(func(name string) error {
		if path.Ext(name) != ".go" {
			return nil
		}
		src, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		return tree.add(name, src)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range append(tree.check(), tree.idle()...) {
		t.Error(problem)
	}
}

// TestScriptsSkipBySystemOnly keeps scripts from being switched off quietly.
func TestScriptsSkipBySystemOnly(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts (%v)", err)
	}
	line := regexp.MustCompile(`(?m)^\s*(\[.*\])?\s*(skip|stop)\b.*$`)
	system := regexp.MustCompile(`^\[(windows|unix|!unix|linux|darwin|!linux|!darwin|root)\] skip `)
	for _, script := range scripts {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range line.FindAllString(string(text), -1) {
			if !system.MatchString(found) {
				t.Errorf("%s: %q: a script may be skipped on a system that lacks the thing tested, with a reason, and in no other case", script, found)
			}
		}
	}
}

// sourceTree collects what its files do that they should not.
type sourceTree struct {
	exceptions []exception
	used       map[exception]bool

	fset     token.FileSet
	code     map[string][]*ast.File // by folder, without tests and generated files
	problems []string
}

func (s *sourceTree) problem(at token.Pos, format string, args ...any) {
	pos := s.fset.Position(at)
	s.problems = append(s.problems, fmt.Sprintf("%s:%d: %s", pos.Filename, pos.Line, fmt.Sprintf(format, args...)))
}

// excepted reports whether there is an exception, and notes that it is needed.
func (s *sourceTree) excepted(where, name string) bool {
	i := slices.IndexFunc(s.exceptions, func(e exception) bool { return e.where == where && e.name == name })
	if i >= 0 {
		s.used[s.exceptions[i]] = true
	}
	return i >= 0
}

// add reads the file with the slash-separated path name.
func (s *sourceTree) add(name string, src []byte) error {
	file, err := parser.ParseFile(&s.fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	switch dir := path.Dir(name); {
	case strings.HasSuffix(name, "_test.go"):
		s.testFile(name, file)
	case !ast.IsGenerated(file):
		if s.code == nil {
			s.code = map[string][]*ast.File{}
		}
		s.code[dir] = append(s.code[dir], file)
	}
	return nil
}

// check lists all problems of the files that were added.
func (s *sourceTree) check() []string {
	for _, dir := range slices.Sorted(maps.Keys(s.code)) {
		meaning := s.resolve(s.code[dir]...)
		for _, file := range s.code[dir] {
			s.declarations(dir, file, meaning)
			s.uses(dir, file, meaning)
		}
	}
	return s.problems
}

// idle lists the exceptions that check did not need.
func (s *sourceTree) idle() []string {
	var problems []string
	for _, e := range s.exceptions {
		if !s.used[e] {
			problems = append(problems, fmt.Sprintf("the exception for %s in %s is not needed any more: remove it", e.name, e.where))
		}
	}
	return problems
}

// names says what the names in some files of one package mean.
type names map[*ast.Ident]types.Object

// resolve looks no further than these files. What they import stays unknown
// but for its path, and files for different systems may declare a thing twice:
// neither matters here, so the type checker's complaints are ignored.
func (s *sourceTree) resolve(files ...*ast.File) names {
	info := types.Info{Uses: names{}}
	config := types.Config{Error: func(error) {}}
	_, _ = config.Check(files[0].Name.Name, &s.fset, files, &info)
	return info.Uses
}

// selected is the import path and name of an expression such as os.Rename, or
// empty.
func (n names) selected(node ast.Node) (pkg, name string) {
	if sel, ok := node.(*ast.SelectorExpr); ok {
		if x, ok := sel.X.(*ast.Ident); ok {
			if p, ok := n[x].(*types.PkgName); ok {
				return p.Imported().Path(), sel.Sel.Name
			}
		}
	}
	return "", ""
}

func (s *sourceTree) declarations(dir string, file *ast.File, meaning names) {
	for _, spec := range file.Imports {
		if spec.Name != nil && spec.Name.Name == "." {
			s.problem(spec.Pos(), "import of all names from %s: name the package", spec.Path.Value)
		}
	}
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.Name == "init" {
				s.problem(d.Pos(), "func init: let main, or a constructor, do it")
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok && d.Tok == token.VAR && !embedded(d, v) {
					s.packageVars(dir, v, meaning)
				}
			}
		}
	}
}

// packageVars lets variables pass that are variables only because the language
// has no constants of their type, and those with an exception.
func (s *sourceTree) packageVars(dir string, spec *ast.ValueSpec, meaning names) {
	for i, name := range spec.Names {
		if name.Name == "_" {
			continue
		}
		if len(spec.Values) == len(spec.Names) {
			if call, ok := spec.Values[i].(*ast.CallExpr); ok {
				switch pkg, fun := meaning.selected(call.Fun); pkg + "." + fun {
				case "errors.New", "fmt.Errorf", "hash/crc32.MakeTable", "sync.OnceValue":
					continue
				case "regexp.MustCompile":
					s.problem(name.Pos(), "package variable %s: every start of the program would compile it; match by hand, or compile it at its first use with sync.OnceValue", name.Name)
					continue
				}
			}
		}
		if !s.excepted(dir, name.Name) {
			s.problem(name.Pos(), "package variable %s: state belongs to a value that main makes; a fixed table needs an exception that says so", name.Name)
		}
	}
}

// uses finds calls out of place, and changes of package variables.
func (s *sourceTree) uses(dir string, file *ast.File, meaning names) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			if b, ok := meaning[n].(*types.Builtin); ok {
				switch name := b.Name(); {
				case name == "panic" && !s.excepted(dir, name):
					s.problem(n.Pos(), "panic: return an error; a panic is for an invariant of the program, with an exception that says which")
				case name == "print" || name == "println":
					s.problem(n.Pos(), "%s: use fmt.Fprint with a writer that was passed in", name)
				}
			}
		case *ast.SelectorExpr:
			pkg, name := meaning.selected(n)
			for _, row := range calls {
				if pkg != row.pkg || !slices.Contains(row.names, name) && row.names[0] != "*" || slices.Contains(row.only, dir) {
					continue
				}
				if full := path.Base(pkg) + "." + name; !s.excepted(dir, full) {
					s.problem(n.Pos(), "%s: use %s", full, row.use)
				}
			}
		case *ast.AssignStmt:
			for _, target := range n.Lhs {
				s.changed(target, meaning)
			}
		case *ast.IncDecStmt:
			s.changed(n.X, meaning)
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				s.changed(n.X, meaning)
			}
		}
		return true
	})
}

// changed reports a target that is, or is a part of, a package variable. No
// exception allows that.
func (s *sourceTree) changed(target ast.Expr, meaning names) {
	for {
		switch x := target.(type) {
		case *ast.IndexExpr:
			target = x.X
		case *ast.SelectorExpr:
			target = x.X
		case *ast.StarExpr:
			target = x.X
		case *ast.ParenExpr:
			target = x.X
		case *ast.Ident:
			if v, ok := meaning[x].(*types.Var); ok && v.Parent() == v.Pkg().Scope() {
				s.problem(x.Pos(), "%s is changed here: a package variable stays as it is declared", x.Name)
			}
			return
		default:
			return
		}
	}
}

func embedded(decl *ast.GenDecl, spec *ast.ValueSpec) bool {
	for _, doc := range []*ast.CommentGroup{decl.Doc, spec.Doc} {
		if doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:embed ") }) {
			return true
		}
	}
	return false
}

// testFile holds the rules for tests: they do not wait for time to pass, and
// are skipped only where the system or the user lacks what they need.
func (s *sourceTree) testFile(name string, file *ast.File) {
	meaning := s.resolve(file)
	bubble := slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing/synctest"` })
	var stack []ast.Node
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil {
			stack = stack[:len(stack)-1]
			return true
		}
		stack = append(stack, n)
		if pkg, fun := meaning.selected(n); pkg == "time" && fun == "Sleep" && !bubble && !s.excepted(name, "time.Sleep") {
			s.problem(n.Pos(), "time.Sleep: wait for the event itself, or run in a bubble of testing/synctest")
		}
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if ok && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) && !slices.ContainsFunc(stack, meaning.askSystem) {
			s.problem(n.Pos(), "%s: a test may be skipped only in an if that asks runtime.GOOS, os.Geteuid or os.Symlink", sel.Sel.Name)
		}
		return true
	})
}

// askSystem reports whether a branch depends on the system, on what its files
// can do, or on who runs the test.
func (n names) askSystem(branch ast.Node) bool {
	var asked []ast.Node
	switch b := branch.(type) {
	case *ast.IfStmt:
		asked = append(asked, b.Cond)
		if b.Init != nil {
			asked = append(asked, b.Init)
		}
	case *ast.SwitchStmt:
		if b.Tag != nil {
			asked = append(asked, b.Tag)
		}
	}
	found := false
	for _, node := range asked {
		ast.Inspect(node, func(node ast.Node) bool {
			switch pkg, name := n.selected(node); pkg + "." + name {
			case "runtime.GOOS", "os.Geteuid", "os.Getuid", "os.Symlink":
				found = true
			}
			return !found
		})
	}
	return found
}

func TestCallCheck(t *testing.T) {
	t.Parallel()
	const durable = "use store/durable, which syncs what it writes and takes a lock for it"
	const state = "state belongs to a value that main makes; a fixed table needs an exception that says so"
	tests := []struct {
		name, file, src string
		want            []string
	}{
		{"a write", "host/a.go", `import "os"; func f() { os.Rename("a", "b") }`, []string{"host/a.go:1: os.Rename: " + durable}},
		{"a write as a value", "host/a.go", `import "os"; func f() any { return os.Rename }`, []string{"host/a.go:1: os.Rename: " + durable}},
		{"a write under another name", "host/a.go", `import x "os"; func f() { x.WriteFile("a", nil, 0) }`, []string{"host/a.go:1: os.WriteFile: " + durable}},
		{"a write where it belongs", "store/durable/a.go", `import "os"; func f() { os.Rename("a", "b") }`, nil},
		{"a write in a test", "host/a_test.go", `import "os"; func f() { os.Rename("a", "b") }`, nil},
		{"a write by an exception", "free/a.go", `import "os"; func f() { os.MkdirTemp("", "") }`, nil},
		{"a name of a local variable", "host/a.go", `import "os"; func f() { _ = os.Getpid; var log struct{ Print func() }; log.Print() }`, nil},
		{"reading", "host/a.go", `import "os"; func f() { os.ReadFile("a") }`, nil},
		{"exit", "host/a.go", `import "os"; func f() { os.Exit(1) }`, []string{"host/a.go:1: os.Exit: use an error, which the caller turns into an exit code"}},
		{"exit in main", "cmd/sess/a.go", `import "os"; func f() { os.Exit(1) }`, nil},
		{"the old logger", "host/a.go", `import "log"; func f() { log.Fatal() }`, []string{"host/a.go:1: log.Fatal: use log/slog, with a logger that was passed in"}},
		{"the new logger", "host/a.go", `import "log/slog"; func f(log *slog.Logger) { log.Info("") }`, nil},
		{"the global logger", "host/a.go", `import "log/slog"; func f() { slog.Info("") }`, []string{"host/a.go:1: slog.Info: use a logger that was passed in"}},
		{"printing", "host/a.go", `import "fmt"; func f() { fmt.Println() }`, []string{"host/a.go:1: fmt.Println: use fmt.Fprint with a writer that was passed in"}},
		{"printing built in", "host/a.go", `func f() { println() }`, []string{"host/a.go:1: println: use fmt.Fprint with a writer that was passed in"}},
		{"sleeping", "host/a.go", `import "time"; func f() { time.Sleep(1) }`, []string{"host/a.go:1: time.Sleep: use a timer in a select with ctx.Done"}},
		{"sleeping in a test", "host/a_test.go", `import "time"; func f() { time.Sleep(1) }`, []string{"host/a_test.go:1: time.Sleep: wait for the event itself, or run in a bubble of testing/synctest"}},
		{"sleeping in a test by an exception", "free/a_test.go", `import "time"; func f() { time.Sleep(1) }`, nil},
		{"sleeping in a bubble", "host/a_test.go", `import ("time"; "testing/synctest"); func f() { synctest.Wait(); time.Sleep(1) }`, nil},
		{"panic", "host/a.go", `func f() { panic(1) }`, []string{"host/a.go:1: panic: return an error; a panic is for an invariant of the program, with an exception that says which"}},
		{"panic by an exception", "free/a.go", `func f() { panic(1) }`, nil},
		{"init", "host/a.go", `func init() {}`, []string{"host/a.go:1: func init: let main, or a constructor, do it"}},
		{"a method named init", "host/a.go", `func (x) init() {}`, nil},
		{"generated", "host/a.go", "// Code generated by x. DO NOT EDIT.\nfunc init() {}", nil},
		{"state", "host/a.go", `var n int`, []string{"host/a.go:1: package variable n: " + state}},
		{"a table", "host/a.go", `var n = []int{1}`, []string{"host/a.go:1: package variable n: " + state}},
		{"a table by an exception", "free/a.go", `var table = []int{1}`, nil},
		{"no state", "host/a.go", "import (\"errors\"; \"regexp\"; \"sync\"; _ \"embed\")\nvar a, b = errors.New(\"\"), sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(\"\") })\nvar _ T = (*S)(nil)\n//go:embed x\nvar x []byte", nil},
		{"work at every start", "host/a.go", "import \"regexp\"; var r = regexp.MustCompile(\"\")", []string{
			"host/a.go:1: package variable r: every start of the program would compile it; match by hand, or compile it at its first use with sync.OnceValue",
		}},
		{"an error that changes", "host/a.go", "import \"errors\"; var err = errors.New(\"\")\nfunc f() { err = nil }", []string{"host/a.go:2: err is changed here: a package variable stays as it is declared"}},
		{"a table that changes", "free/a.go", "var table = []int{1}\nfunc f() { table[0]++ }\nfunc g() any { return &table }", []string{
			"free/a.go:2: table is changed here: a package variable stays as it is declared",
			"free/a.go:3: table is changed here: a package variable stays as it is declared",
		}},
		{"a local variable of that name", "free/a.go", `var table = []int{1}; func f() { var table []int; table[0] = 1 }; func g(table []int) { table[0] = 1 }; func h() { table := 1; table = 2 }`, nil},
		{"a skip", "host/a_test.go", `func f() { t.Skip("flaky") }`, []string{"host/a_test.go:1: Skip: a test may be skipped only in an if that asks runtime.GOOS, os.Geteuid or os.Symlink"}},
		{"a skip for a system", "host/a_test.go", `import "runtime"; func f() { if runtime.GOOS == "windows" { t.Skip("no modes") } }`, nil},
		{"a skip for root", "host/a_test.go", `import "os"; func f() { if os.Geteuid() == 0 { t.Skip("root reads all") } }`, nil},
		{"a skip where links are not possible", "host/a_test.go", `import "os"; func f() { if err := os.Symlink("a", "b"); err != nil { t.Skip(err) } }`, nil},
		{"a skip for another reason", "host/a_test.go", `func f() { if testing.Short() { t.Skip("slow") } }`, []string{"host/a_test.go:1: Skip: a test may be skipped only in an if that asks runtime.GOOS, os.Geteuid or os.Symlink"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tree := sourceTree{exceptions: []exception{{"free", "panic", ""}, {"free", "table", ""}, {"free", "os.MkdirTemp", ""}, {"free/a_test.go", "time.Sleep", ""}}, used: map[exception]bool{}}
			header, src := "package p; ", tt.src
			if strings.HasPrefix(src, "//") {
				mark, rest, _ := strings.Cut(src, "\n")
				header, src = mark+"\n\npackage p; ", rest
			}
			if err := tree.add(tt.file, []byte(header+src)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, tree.check()); diff != "" {
				t.Errorf("check (-want +got):\n%s", diff)
			}
		})
	}
}

func TestIdleException(t *testing.T) {
	t.Parallel()
	tree := sourceTree{exceptions: []exception{{"free", "panic", ""}, {"free", "table", ""}}, used: map[exception]bool{}}
	if err := tree.add("free/a.go", []byte("package p; var table = []int{1}")); err != nil {
		t.Fatal(err)
	}
	if problems := tree.check(); problems != nil {
		t.Errorf("check: got %q, want nothing", problems)
	}
	want := []string{"the exception for panic in free is not needed any more: remove it"}
	if diff := cmp.Diff(want, tree.idle()); diff != "" {
		t.Errorf("idle (-want +got):\n%s", diff)
	}
}
