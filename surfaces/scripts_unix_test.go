//go:build unix

package surfaces_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/surfaces"
)

// The script runs in a real bash: what it asks for, and what it proposes.
func TestBashScript(t *testing.T) {
	t.Parallel()
	script, err := surfaces.CompletionScript("bash", "sess")
	if err != nil {
		t.Fatal(err)
	}
	const stage = `
sess() { printf '[%s]' "$@" >asked; printf -- "$ANSWER"; }
COMP_LINE=$1 COMP_POINT=$2
shift 2
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_sess_complete
printf '[%s]' "${COMPREPLY[@]}"
`
	tests := []struct {
		name, line, point string
		words             []string
		answer            string
		asked, proposed   string
	}{
		{"a beginning", "sess sa", "7", []string{"sess", "sa"}, `save\tsave it\n`, "[__complete][--][sa]", "[save]"},
		{"an empty word", "sess save ", "10", []string{"sess", "save", ""}, `v1\nwe ird\thelp\n`, "[__complete][--][save][]", `[v1][we\ ird]`},
		{"only what is before the cursor", "sess saxx", "7", []string{"sess", "saxx"}, `save\n`, "[__complete][--][sa]", "[save]"},
		{"a flag that wants a value", "sess save --n", "13", []string{"sess", "save", "--n"}, `--note=\ttext\n`, "[__complete][--][save][--n]", "[--note=]"},
		{"a value behind =", "sess list --sort=n", "18", []string{"sess", "list", "--sort", "=", "n"}, `--sort=name\n`, "[__complete][--][list][--sort=n]", "[name]"},
		{"nothing behind =", "sess list --sort=", "17", []string{"sess", "list", "--sort", "="}, `--sort=name\n`, "[__complete][--][list][--sort=]", "[name]"},
		{"words after a value", "sess save --note=x v", "20", []string{"sess", "save", "--note", "=", "x", "v"}, `v1\n`, "[__complete][--][save][--note=x][v]", "[v1]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			args := append([]string{"-c", script + stage, "bash", tt.line, tt.point}, tt.words...)
			cmd := exec.CommandContext(t.Context(), "bash", args...)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "ANSWER="+tt.answer)
			proposed, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("bash: %v\n%s", err, proposed)
			}
			asked, err := os.ReadFile(filepath.Join(dir, "asked"))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{tt.asked, tt.proposed}, []string{string(asked), string(proposed)}); diff != "" {
				t.Errorf("completing %q (-want +got):\n%s", tt.line, diff)
			}
		})
	}
}
