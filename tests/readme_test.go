package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReadme pastes every sh block of the README into one shell, from top to
// bottom, in a home that is new. All commands have to succeed. The go commands
// run in the module's folder, where the README expects its reader; of go test
// only the compilation, since it would start this test again.
func TestReadme(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("the README is written for a Unix shell")
	}
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	script, err := readmeScript(string(text))
	if err != nil {
		t.Fatal(err)
	}
	module, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	file := filepath.Join(t.TempDir(), "readme.sh")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	shell := exec.CommandContext(t.Context(), "bash", file)
	shell.Dir = home
	shell.Env = append(goEnv(t),
		"HOME="+home,
		"MODULE="+module,
		"GOBIN="+filepath.Join(home, "bin"),
		"PATH="+strings.Join([]string{binDir(t), filepath.Join(home, "bin"), os.Getenv("PATH")}, string(filepath.ListSeparator)),
	)
	if out, err := shell.CombinedOutput(); err != nil {
		t.Errorf("the README's commands, up to the one that failed: %v\n%s", err, out)
	}
}

// TestReadmePlugin holds the example of the README to the plugin that is tested.
func TestReadmePlugin(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for name, fence := range map[string]string{"main.go": "```go\n", "plugin.json": "```json\n"} {
		file, err := os.ReadFile(filepath.Join("plugins/note", name))
		if err != nil {
			t.Fatal(err)
		}
		want := string(file)
		if at := strings.Index(want, "package main"); at > 0 {
			want = want[at:] // its comment is the text around it
		}
		_, rest, _ := strings.Cut(string(readme), fence)
		got, _, _ := strings.Cut(rest, "```")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("README.md and tests/plugins/note/%s (-file +README):\n%s", name, diff)
		}
	}
}

// goEnv keeps Go's caches where they are when HOME changes.
func goEnv(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("go", "env", "-json", "GOCACHE", "GOMODCACHE", "GOPATH", "GOPROXY", "GOFLAGS", "GOTOOLCHAIN").Output()
	if err != nil {
		t.Fatalf("go env: %v", err)
	}
	vars := map[string]string{}
	if err := json.Unmarshal(out, &vars); err != nil {
		t.Fatal(err)
	}
	env := []string{"TMPDIR=" + os.TempDir()}
	for name, value := range vars {
		env = append(env, name+"="+value)
	}
	return env
}

// readmeScript is a bash script of all sh blocks. A block that is a command by
// its looks but is fenced otherwise would escape, so those fences are refused.
func readmeScript(markdown string) (string, error) {
	const prelude = `set -eo pipefail
exec </dev/null
cp() {
	(cd "$MODULE" && command cp "$@")
}
go() {
	if [[ $1 == test ]]; then
		(cd "$MODULE" && command go test -run '^$' "${@:2}")
	else
		(cd "$MODULE" && command go "$@")
	fi
}
`
	var script strings.Builder
	script.WriteString(prelude)
	fence, block, ran := "", "", 0
	for i, line := range strings.Split(markdown, "\n") {
		mark := strings.TrimSpace(line)
		switch {
		case fence != "" && mark == fence:
			fence = ""
		case fence == "" && strings.HasPrefix(mark, "```"):
			fence, block = "```", strings.TrimPrefix(mark, "```")
			switch block {
			case "sh":
				ran++
				fmt.Fprintf(&script, "printf '\\n== README.md:%d\\n'\n", i+1)
			case "", "bash", "shell", "console", "zsh":
				return "", fmt.Errorf("README.md:%d: fence %q: commands are fenced as sh and are run, everything else as text or by its language", i+1, mark)
			}
		case fence != "" && block == "sh":
			script.WriteString(line + "\n")
		}
	}
	switch {
	case fence != "":
		return "", fmt.Errorf("README.md: the last fence is open")
	case ran == 0:
		return "", fmt.Errorf("README.md has no sh block")
	}
	return script.String(), nil
}

func TestReadmeScript(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("the README is written for a Unix shell")
	}
	lines := func(l ...string) string { return strings.Join(l, "\n") }
	tests := []struct {
		name, markdown string
		out            string // what the commands print
		err            string
		fails          bool
	}{
		{"in order, in one shell", lines("# x", "```sh", "a=1", "```", "between", "```text", "exit 3", "```", "```sh", "echo $a", "```"), "\n== README.md:2\n\n== README.md:9\n1\n", "", false},
		{"a command that fails", lines("```sh", "false", "echo on", "```"), "\n== README.md:1\n", "", true},
		{"a failure in a pipe", lines("```sh", "false | cat", "echo on", "```"), "\n== README.md:1\n", "", true},
		{"nothing to read", lines("```sh", "cat", "```"), "\n== README.md:1\n", "", false},
		{"a fence that would escape", lines("```bash", "false", "```"), "", "README.md:1: fence \"```bash\": commands are fenced as sh and are run, everything else as text or by its language", false},
		{"no language", lines("x", "```", "false", "```"), "", "README.md:2: fence \"```\": commands are fenced as sh and are run, everything else as text or by its language", false},
		{"an open fence", lines("```sh", "true"), "", "README.md: the last fence is open", false},
		{"nothing to run", "words", "", "README.md has no sh block", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			script, err := readmeScript(tt.markdown)
			if err != nil || tt.err != "" {
				if got := fmt.Sprint(err); got != tt.err {
					t.Errorf("readmeScript: got error %v, want %v", got, tt.err)
				}
				return
			}
			out, err := exec.CommandContext(t.Context(), "bash", "-c", script).CombinedOutput()
			if (err != nil) != tt.fails {
				t.Errorf("bash: got error %v, want failure %t", err, tt.fails)
			}
			if diff := cmp.Diff(tt.out, string(out)); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
		})
	}
}
