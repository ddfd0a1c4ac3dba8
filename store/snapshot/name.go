package snapshot

import (
	"fmt"
	"strings"
	"time"
)

// MaxName is the length of the longest name, in bytes; names are ASCII.
const MaxName = 128

// Name is the name of a snapshot. [ParseName] is the way from text to a Name;
// every operation that makes a name checks it again.
type Name string

// Auto reports whether the name marks its snapshot as managed by the program:
// hidden in lists by default and evicted first. Such names contain a "~".
func (n Name) Auto() bool { return strings.Contains(string(n), "~") }

// ReservedPrefix reports whether the name is one that only the program gives:
// those that begin with pre-, letters and hyphens, and "~", as the backups made
// before a load, a new session, a deletion or a compaction do.
func ReservedPrefix(n Name) bool {
	word, _, ok := strings.Cut(strings.ToLower(string(n)), "~")
	what, pre := strings.CutPrefix(word, "pre-")
	return ok && pre && what != "" && strings.Trim(what, "abcdefghijklmnopqrstuvwxyz-") == ""
}

// ParseName returns text as a name, or a *NameError. A name begins with a
// letter, digit or underscore, goes on with those and ". ~ -", has at most
// [MaxName] characters, all ASCII, no "..", does not end in "." and is no device
// name of Windows. A text is never altered to fit.
func ParseName(text string) (Name, error) {
	if reason := nameProblem(text); reason != "" {
		return "", &NameError{Text: text, Reason: reason, Suggestion: suggest(text)}
	}
	return Name(text), nil
}

func nameProblem(s string) string {
	switch {
	case s == "":
		return "a name is needed"
	case strings.ContainsAny(s, " \t\r\n"):
		return "a name has no spaces"
	case strings.ContainsAny(s, `/\`):
		return "a name has no slashes"
	case strings.ContainsFunc(s, func(r rune) bool { return r > 126 || r < 32 }):
		return "a name has only ASCII letters, digits and . _ ~ -"
	}
	for _, r := range s {
		if !nameByte(byte(r)) {
			return fmt.Sprintf("a name has no %q", r)
		}
	}
	switch {
	case len(s) > MaxName:
		return fmt.Sprintf("a name has at most %d characters, this one has %d", MaxName, len(s))
	case strings.IndexByte(".~-", s[0]) >= 0:
		return "a name begins with a letter, a digit or _"
	case strings.Contains(s, ".."):
		return `a name has no ".."`
	case strings.HasSuffix(s, "."):
		return "a name does not end in a dot"
	case deviceName(s):
		return "this name belongs to a device on Windows"
	}
	return ""
}

func nameByte(b byte) bool {
	return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9' || strings.IndexByte("._~-", b) >= 0
}

// deviceName reports whether Windows opens a device under this name, with or
// without an extension.
func deviceName(s string) bool {
	base, _, _ := strings.Cut(strings.ToLower(s), ".")
	switch base {
	case "con", "prn", "aux", "nul", "conin$", "conout$":
		return true
	}
	return len(base) == 4 && (base[:3] == "com" || base[:3] == "lpt") && '0' <= base[3] && base[3] <= '9'
}

// suggest returns a valid name close to text.
func suggest(text string) string {
	var b strings.Builder
	dash := false // a run of signs that no name has becomes one dash
	for _, r := range text {
		if r < 128 && nameByte(byte(r)) {
			if dash && b.Len() > 0 {
				b.WriteByte('-')
			}
			dash = false
			b.WriteRune(r)
			continue
		}
		dash = true
	}
	s := b.String()
	for strings.Contains(s, "..") {
		s = strings.ReplaceAll(s, "..", ".")
	}
	s = strings.TrimLeft(s, ".~-")
	if len(s) > MaxName {
		s = s[:MaxName]
	}
	s = strings.TrimRight(s, ".-")
	if deviceName(s) {
		s = "my-" + s
	}
	if nameProblem(s) != "" {
		return "my-snapshot"
	}
	return s
}

// nameTime is the form of the time in names: it sorts by time and has no sign
// that a file system minds.
const nameTime = "20060102T150405.000Z"

// AutoName returns prefix followed by the time in UTC with milliseconds, and by
// -2, -3 and so on where that name is taken.
func AutoName(prefix string, now time.Time, taken func(Name) bool) Name {
	base := prefix + strings.Replace(now.UTC().Format(nameTime), ".", "", 1)
	name := Name(base)
	for i := 2; taken(name); i++ {
		name = Name(fmt.Sprintf("%s-%d", base, i))
	}
	return name
}
