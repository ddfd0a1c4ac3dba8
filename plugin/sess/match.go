package sess

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"sess/plugin"
	"sess/store/transcript"
)

// matcher finds a text in others: in any case, and however Unicode spells its
// letters. It is safe for concurrent use.
type matcher struct {
	folded string         // what is looked for, as fold makes it
	ascii  bool           // folded is ASCII
	expr   *regexp.Regexp // instead of folded, on texts in NFC
}

func newMatcher(text string, isExpr bool) (*matcher, error) {
	if strings.TrimSpace(text) == "" {
		return nil, plugin.Errorf(plugin.Usage, "search: there is no text to look for").WithHint("as in: sess search budget")
	}
	if !isExpr {
		folded := fold(text)
		return &matcher{folded: folded, ascii: isASCII(folded)}, nil
	}
	expr, err := regexp.Compile("(?i)" + norm.NFC.String(text))
	if err != nil {
		return nil, plugin.Errorf(plugin.Usage, "search: %q is no regular expression: %w", clip(text, 80), err).
			WithHint("write it as Go and RE2 have them, or leave --regex out to look for the text itself")
	}
	return &matcher{expr: expr}, nil
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}

// fold is a text in NFC and without its cases. Its characters are as many as those in
// NFC.
func fold(s string) string { return strings.Map(foldRune, norm.NFC.String(s)) }

// foldRune is a letter in lower case, the same for all that are one in upper case: a
// sigma at the end of a word is a sigma.
func foldRune(r rune) rune { return unicode.ToLower(unicode.ToUpper(r)) }

// foldsToASCII are the letters beyond ASCII that become ASCII: the sign of the kelvin,
// the I with a dot and the i without one, and the long s.
func foldsToASCII() [4]string { return [...]string{"\u212a", "\u0130", "\u0131", "\u017f"} }

// mayHold reports whether records may match whose bytes these are. It sees JSON,
// not the strings in it, so where one may be written with escapes it says yes.
func (m *matcher) mayHold(plain []byte) bool {
	if m.expr != nil || strings.ContainsAny(m.folded, "\"\\/<>&;`\n\t\r\b\f") || bytes.Contains(plain, []byte(`\u`)) {
		return true
	}
	if !m.ascii {
		return strings.Contains(fold(string(plain)), m.folded)
	}
	lower := make([]byte, len(plain))
	for i, c := range plain {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		lower[i] = c
	}
	if bytes.Contains(lower, []byte(m.folded)) {
		return true
	}
	for _, letter := range foldsToASCII() {
		if bytes.Contains(plain, []byte(letter)) {
			return true
		}
	}
	return false
}

// excerptAround is how many characters are shown on each side of a match.
const excerptAround = 60

// find returns the first match in a text with what stands around it, on one line,
// and where in that the match is, in characters.
func (m *matcher) find(text string) (excerpt string, from, to int, ok bool) {
	if text == "" {
		return "", 0, 0, false
	}
	text = norm.NFC.String(strings.ToValidUTF8(text, "\uFFFD"))
	var start, end int // in characters
	if m.expr != nil {
		at := m.expr.FindStringIndex(text)
		if at == nil {
			return "", 0, 0, false
		}
		start, end = utf8.RuneCountInString(text[:at[0]]), utf8.RuneCountInString(text[:at[1]])
	} else {
		folded := strings.Map(foldRune, text)
		at := strings.Index(folded, m.folded)
		if at < 0 {
			return "", 0, 0, false
		}
		start = utf8.RuneCountInString(folded[:at])
		end = start + utf8.RuneCountInString(m.folded)
	}
	runes := []rune(text)
	left, right := max(0, start-excerptAround), min(len(runes), min(end, start+4*excerptAround)+excerptAround)
	before, match, after := line(runes[left:start]), line(runes[start:min(end, right)]), line(runes[min(end, right):right])
	if left == 0 {
		before = strings.TrimLeft(before, " ")
	} else {
		before = "…" + before
	}
	if right == len(runes) {
		after = strings.TrimRight(after, " ")
	} else {
		after += "…"
	}
	from = utf8.RuneCountInString(before)
	return before + match + after, from, from + utf8.RuneCountInString(match), true
}

// line puts text on one line, without losing a character's place.
func line(text []rune) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		return r
	}, string(text))
}

// searched are the lists of a document that people know the content of: the lines
// of another agent only where no messages were read from them.
func searched(doc *transcript.Document) []string {
	if l := doc.Lists[transcript.ListMessages]; l != nil && l.Records > 0 {
		return []string{transcript.ListMessages, transcript.ListActivities}
	}
	return []string{transcript.ListActivities, transcript.ListLines}
}

// textOf is what people see of a record, and whose it is.
func textOf(list string, rec transcript.Record) (text, role string) {
	switch list {
	case transcript.ListMessages:
		var m transcript.Message
		if json.Unmarshal(rec, &m) == nil {
			return m.Content, string(m.Role)
		}
	case transcript.ListActivities:
		var a transcript.Activity
		if json.Unmarshal(rec, &a) == nil {
			return strings.Join([]string{a.Title, a.Name, activityText(&a)}, "\n"), "tool"
		}
	}
	return string(rec), ""
}
