package tests

import (
	"cmp"
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
	for _, m := range regexp.MustCompile(`(?m)^- (S\d-\d\d\d?) [A-Z`+"`"+`].*\.`+"`"+`?$`).FindAllStringSubmatch(string(list), -1) {
		lines = append(lines, m[1])
	}
	if items := strings.Count(string(list), "\n- "); len(lines) == 0 || len(lines) != items {
		t.Errorf("%d of %d items are a number and a sentence", len(lines), items)
	}
	inOrder := func(a, b string) int { // within a letter's lines by number: S4-99 comes before S4-100
		return cmp.Or(strings.Compare(a[:3], b[:3]), len(a)-len(b), strings.Compare(a, b))
	}
	if !slices.IsSortedFunc(lines, inOrder) || len(slices.Compact(slices.Clone(lines))) != len(lines) {
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

// scriptLines names the lines that a script proves, which cannot name them itself.
func scriptLines() map[string]string {
	return map[string]string{
		"aliases.txtar":                   "S4-51, S4-52, S4-53, S4-54, S4-55, S4-56",
		"chat_commands.txtar":             "S4-57",
		"config_autosave.txtar":           "S4-05, S4-67, S4-68, S4-90",
		"config_of_snapshots.txtar":       "S4-08, S4-23, S4-69, S4-70, S4-74",
		"config_refused.txtar":            "S4-69, S4-73, S4-75",
		"config_storage_dir.txtar":        "S4-66, S4-85, S4-88",
		"config_validate.txtar":           "S4-66, S4-67, S4-68, S4-69, S4-70, S4-71, S4-72, S4-73, S4-74, S4-75",
		"copy_is_independent.txtar":       "S4-03, S4-44, S4-46",
		"copy_rename_delete.txtar":        "S4-03, S4-44, S4-45, S4-47, S4-48, S4-49, S4-50",
		"damaged_snapshots.txtar":         "S4-29, S4-30",
		"files_are_the_truth.txtar":       "S4-86, S4-92, S4-101",
		"list.txtar":                      "S4-30, S4-31, S4-32, S4-33, S4-34, S4-35, S4-36, S4-37",
		"list_empty.txtar":                "S4-35",
		"load.txtar":                      "S4-04, S4-26, S4-27, S4-28, S4-29, S4-90",
		"model_calls.txtar":               "S4-58, S4-65",
		"new.txtar":                       "S4-04, S4-38, S4-39, S4-40, S4-41, S4-42, S4-43, S4-90",
		"newer_version.txtar":             "S4-30",
		"not_found_changes_nothing.txtar": "S4-29",
		"overwrite.txtar":                 "S4-21, S4-22",
		"private.txtar":                   "S4-11, S4-12",
		"prune_cap.txtar":                 "S4-08, S4-09, S4-69, S4-89",
		"pruner_in_chat.txtar":            "S4-08, S4-99",
		"pruner_status.txtar":             "S4-08, S4-73, S4-99",
		"save.txtar":                      "S4-01, S4-06, S4-07, S4-13, S4-20, S4-22, S4-24, S4-25, S4-34, S4-89",
		"save_load_undo.txtar":            "S4-01, S4-26, S4-29",
		"tool_not_exposed.txtar":          "S4-63, S4-65, S4-71",
	}
}

// TestLinesOfScripts looks for the scripts that prove lines.
func TestLinesOfScripts(t *testing.T) {
	t.Parallel()
	for name, lines := range scriptLines() {
		if _, err := os.Stat(filepath.Join("testdata", "script", name)); err != nil {
			t.Errorf("lines %s: %v", lines, err)
		}
	}
}
