// Package tests checks the program as its users meet it, and the source tree
// as its authors keep it.
//
// The scripts in testdata/script run the built binary, each in a home of its
// own; see [TestScript] for the commands that they have. The README's commands
// run as they stand there. The source tests hold the table of imports and the
// list of calls that have one place only.
//
// The binary is built once per run. With SESS_BIN_DIR set, the one in that
// folder is tested instead, for example a release.
package tests

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
)

var update = flag.Bool("update", false, "write the output that differs into the scripts")

// root is the module's folder, seen from this package's.
const root = ".."

var (
	tempDir string // of this run; TestMain removes it
	build   = sync.OnceValues(buildBinary)
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sess-tests")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	tempDir = dir
	// What a process ignores its children ignore, too: under nohup no gateway would
	// end by a hang-up.
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	return m.Run()
}

// binDir is the folder that holds the sess binary under test.
func binDir(t testing.TB) string {
	t.Helper()
	dir, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// manifests are those of the bundled plugins.
func manifests(t testing.TB) [][]byte {
	t.Helper()
	var all [][]byte
	for _, file := range []string{"plugin.json", "plugin/actions/plugin.json", "plugin/responses/plugin.json"} {
		manifest, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, manifest)
	}
	return all
}

func buildBinary() (string, error) {
	name := "sess"
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	if dir := os.Getenv("SESS_BIN_DIR"); dir != "" {
		dir, err := filepath.Abs(dir)
		if err != nil {
			return "", err
		}
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("SESS_BIN_DIR has no binary: %w", err)
		}
		return dir, nil
	}
	// go test repeats an old answer while nothing that the test itself read has
	// changed; it does not see what the compiler reads. So look at it here.
	if err := walkSource(func(string) error { return nil }); err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(tempDir, name), "./cmd/sess")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", errors.Join(fmt.Errorf("go build ./cmd/sess: %w", err), errors.New(string(out)))
	}
	return tempDir, nil
}

// walkSource calls visit with every file of the module, as a slash-separated
// path below its root, except those in folders that the go command ignores.
func walkSource(visit func(path string) error) error {
	return fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !d.IsDir():
			return visit(path)
		case path != "." && strings.ContainsAny(d.Name()[:1], "._"):
			return fs.SkipDir
		}
		return nil
	})
}
