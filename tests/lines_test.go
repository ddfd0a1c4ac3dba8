package tests

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestLines holds the tests and docs/lines.md together: every line is named by a
// test, and a test names no other.
func TestLines(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile(filepath.Join(root, "docs", "lines.md"))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, m := range regexp.MustCompile(`(?m)^- (S\d-\d\d) [A-Z`+"`"+`].*\.`+"`"+`?$`).FindAllStringSubmatch(string(list), -1) {
		lines = append(lines, m[1])
	}
	if items := strings.Count(string(list), "\n- "); len(lines) == 0 || len(lines) != items {
		t.Errorf("%d of %d items are a number and a sentence", len(lines), items)
	}
	if !slices.IsSorted(lines) || len(slices.Compact(slices.Clone(lines))) != len(lines) {
		t.Error("the lines are not in the order of their numbers, each once")
	}
	named := map[string]bool{}
	number := regexp.MustCompile(`\bS\d-\d+\b`)
	err = walkSource(func(name string) error {
		if name == "docs/lines.md" {
			return nil
		}
		src, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		for _, id := range number.FindAllString(string(src), -1) {
			switch {
			case !strings.HasSuffix(name, "_test.go"):
				t.Errorf("%s names line %s, which is for tests to do", name, id)
			case !slices.Contains(lines, id):
				t.Errorf("%s names line %s, which docs/lines.md does not have", name, id)
			}
			named[id] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range lines {
		if !named[id] {
			t.Errorf("no test names line %s", id)
		}
	}
}
