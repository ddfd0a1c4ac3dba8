package sess

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"sess/store/transcript"
)

// masked stands in place of a secret.
const masked = "[masked]"

// masker replaces what looks like a secret. One that is not on changes nothing.
type masker struct {
	on    bool
	count int // of what was replaced
}

// secretPatterns are what secrets look like; where there is a group, that is the
// secret. The help of export lists them.
var secretPatterns = sync.OnceValue(func() []*regexp.Regexp {
	var all []*regexp.Regexp
	for _, p := range []string{
		`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|$)`,
		`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`,
		`\bsk-[A-Za-z0-9_-]{16,}`,
		`\bgh[pousr]_[A-Za-z0-9]{20,}`,
		`\bgithub_pat_[A-Za-z0-9_]{20,}`,
		`\bglpat-[A-Za-z0-9_-]{16,}`,
		`\bxox[a-z]-[A-Za-z0-9-]{10,}`,
		`\b(?:AKIA|ASIA)[A-Z0-9]{16}\b`,
		`\bAIza[A-Za-z0-9_-]{30,}`,
		`\bhf_[A-Za-z0-9]{20,}`,
		`\bnpm_[A-Za-z0-9]{20,}`,
		`(?i)\bbearer\s+([A-Za-z0-9._~+/-]{8,}=*)`,
		`\b[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@"']*:([^\s/@"']+)@`,
		// Also where it stands in JSON that is a string in JSON.
		`(?i)(?:` + secretNames + `)\\*["']?\s*[:=]\s*\\*["']?([^\s"',;&]{3,}[^\s"',;&\\])`,
	} {
		all = append(all, regexp.MustCompile(p))
	}
	return all
})

// secretNames are names whose values are secrets, also as the end of a longer one.
const secretNames = `passw(?:or)?d|passphrase|secret|(?:api|access|private|secret|auth)[_-]?key|(?:access|refresh|auth|api|session|bearer|id)[_-]?token|authorization|credentials?`

// secretName matches the key of an object whose value, a string, is a secret.
var secretName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)(?:^|[_.-]|[a-z](?-i:[A-Z])?)(?:` + secretNames + `|token)$`)
})

// text masks a text.
func (m *masker) text(s string) string {
	if !m.on {
		return s
	}
	for _, p := range secretPatterns() {
		at := p.FindAllStringSubmatchIndex(s, -1)
		for _, found := range slices.Backward(at) {
			from, to := found[0], found[1]
			if len(found) > 2 {
				from, to = found[2], found[3]
			}
			if strings.Contains(s[from:to], masked) || strings.HasPrefix(masked, s[from:to]) {
				continue // by a pattern before
			}
			s = s[:from] + masked + s[to:]
			m.count++
		}
	}
	return s
}

// record masks a record: in JSON its strings, or else its bytes.
func (m *masker) record(r transcript.Record) transcript.Record {
	if !m.on {
		return r
	}
	if !json.Valid(r) {
		return transcript.Record(m.text(string(r)))
	}
	return m.json(r)
}

// json masks the strings of a JSON value; all else stays byte for byte.
func (m *masker) json(v []byte) []byte {
	if !m.on {
		return v
	}
	var out []byte // nil until something changes
	copied := 0
	named := false // the string before was a key whose value is a secret
	for i := 0; i < len(v); i++ {
		if v[i] != '"' {
			if named && !bytes.ContainsRune([]byte(" \t\r\n:"), rune(v[i])) {
				named = false
			}
			continue
		}
		end := i + 1
		for ; v[end] != '"'; end++ { // it is valid JSON
			if v[end] == '\\' {
				end++
			}
		}
		token := v[i : end+1]
		var s string
		if json.Unmarshal(token, &s) != nil {
			s = "" // a lone half of a pair of escapes is no secret
		}
		isKey := bytes.HasPrefix(bytes.TrimLeft(v[end+1:], " \t\r\n"), []byte(":"))
		now := m.text(s)
		if named && !isKey && now == s && len(s) >= 4 {
			now = masked
			m.count++
		}
		if named = isKey && secretName().MatchString(s); now != s {
			out = append(append(out, v[copied:i]...), jsonText(now)...)
			copied = end + 1
		}
		i = end
	}
	if out == nil {
		return v
	}
	return append(out, v[copied:]...)
}

// document masks what a document says beside its records. It is another one then.
func (m *masker) document(d *transcript.Document) {
	if !m.on {
		return
	}
	if len(d.Header) > 0 {
		d.Header = m.json(d.Header)
	}
	for _, extra := range []map[string]json.RawMessage{d.Extra, d.Meta.Extra} {
		for key, v := range extra {
			extra[key] = m.json(v)
		}
	}
	meta := &d.Meta
	meta.Title, meta.Note, meta.Reason = m.text(meta.Title), m.text(meta.Note), m.text(meta.Reason)
	tags := maps.Clone(meta.Tags)
	for key, v := range tags {
		tags[key] = m.text(v)
	}
	meta.Tags, meta.Digest = tags, ""
}
