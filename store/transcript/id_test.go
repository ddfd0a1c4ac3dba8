package transcript_test

import (
	"strings"
	"testing"

	"sess/store/transcript"
)

func TestIDProblem(t *testing.T) {
	t.Parallel()
	for _, id := range []string{
		"s1", "20311231_0123abcd", "spec.rl", "Spec-RL", "외주", "a b", "-x", "a~", "%2e%2e", "manifest-1", strings.Repeat("a", transcript.MaxID),
	} {
		if problem := transcript.IDProblem(id); problem != "" {
			t.Errorf("IDProblem(%q) = %q, want none", id, problem)
		}
	}
	for id, want := range map[string]string{
		"":                      "cannot be empty",
		strings.Repeat("계", 67): "has at most 200 bytes",
		".":                     "does not begin with a dot",
		"..":                    "does not begin with a dot",
		".hidden":               "does not begin with a dot",
		"..%2f..%2fcanary":      "does not begin with a dot",
		"~":                     "does not begin with ~",
		"a/b":                   "has no slashes",
		"/somewhere/canary":     "has no slashes",
		"../../canary":          "does not begin with a dot",
		`C:\canary`:             "has no slashes",
		"a\x00b":                "has no control characters and is valid UTF-8",
		"a\xffb":                "has no control characters and is valid UTF-8",
		" ":                     "neither begins nor ends with a blank",
		"a ":                    "neither begins nor ends with a blank",
		"a.":                    "does not end in a dot",
		"manifest":              "is not the word manifest",
		"a.tmp":                 "does not end in .tmp",
		"a.json.invalid-17":     "does not contain .invalid-",
	} {
		if got := transcript.IDProblem(id); got != want {
			t.Errorf("IDProblem(%q) = %q, want %q", id, got, want)
		}
	}
}
