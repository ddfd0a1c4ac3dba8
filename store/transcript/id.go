package transcript

import (
	"fmt"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxID is the length of the longest id of a session or project, in bytes. It
// leaves room for suffixes below what file systems allow.
const MaxID = 200

// IDProblem says why text cannot be the id of a session or project, as what an
// id does not do: "has no slashes". It returns "" for one that can. Ids name
// folders and files, so one that comes from elsewhere may be any text that is a
// segment of a path on every system, that a shell leaves alone, and that no
// file of the stores is mistaken for.
func IDProblem(text string) string {
	switch {
	case text == "":
		return "cannot be empty"
	case len(text) > MaxID:
		return fmt.Sprintf("has at most %d bytes", MaxID)
	case text[0] == '.':
		return "does not begin with a dot"
	case text[0] == '~':
		return "does not begin with ~"
	case strings.ContainsAny(text, `/\`):
		return "has no slashes"
	case !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl):
		return "has no control characters and is valid UTF-8"
	case strings.TrimSpace(text) != text:
		return "neither begins nor ends with a blank"
	case strings.HasSuffix(text, "."):
		return "does not end in a dot"
	case text == "manifest":
		return "is not the word manifest"
	case strings.HasSuffix(text, ".tmp"):
		return "does not end in .tmp"
	case strings.Contains(text, ".invalid-"):
		return "does not contain .invalid-"
	case !filepath.IsLocal(text):
		return "is a name that this system can give to a file"
	}
	return ""
}
