package sess

import (
	"bufio"
	"encoding/json"
	"fmt"
	"html"
	"iter"
	"strings"
	"time"
	"unicode"

	"sess/store/transcript"
)

// page writes conversations for people. Whatever was said is text there, and
// never part of the page.
type page interface {
	begin(title string)
	// snapshot begins one, with facts about it.
	snapshot(name string, facts [][2]string)
	// turn begins what somebody said.
	turn(index int, who, when string)
	// text is what was said; folded is shown on demand, below a title.
	text(s string)
	folded(title, s string)
	end()
}

// exportText writes snapshots for people.
func (r *request) exportText(name, format string, all []exported, mask *masker, step func(int) error) error {
	suffix, mediaType := ".md", "text/markdown; charset=utf-8"
	if format == formatHTML {
		suffix, mediaType = ".html", "text/html; charset=utf-8"
	}
	if err := r.Call.Output.Begin(name+suffix, mediaType); err != nil {
		return err
	}
	w := bufio.NewWriterSize(r.Call.Output, 64<<10)
	var p page = &markdownPage{w}
	if format == formatHTML {
		p = &htmlPage{w}
	}
	p.begin(name)
	for _, e := range all {
		p.snapshot(string(e.Name), facts(e, mask))
		if err := writeConversation(p, e, mask, step); err != nil {
			return err
		}
	}
	p.end()
	return w.Flush()
}

// facts are what a reader wants to know of a snapshot.
func facts(e exported, mask *masker) [][2]string {
	m := &e.Doc.Meta
	all := [][2]string{
		{"title", m.Title},
		{"session", m.SessionID},
		{"model", m.Model},
		{"saved", m.UpdatedAt.UTC().Format("2006-01-02 15:04:05 UTC")},
		{"messages", fmt.Sprint(m.Messages)},
		{"reason", m.Reason},
		{"note", m.Note},
		{"tags", tagText(m.Tags)},
	}
	if compacted(e.Doc) {
		all = append(all, [2]string{"history", "compacted: the model sees a summary in place of the older messages"})
	}
	if mask.on {
		all = append(all, [2]string{"secrets", "what looked like a secret was replaced by " + masked})
	}
	known := all[:0]
	for _, fact := range all {
		if fact[1] != "" {
			known = append(known, fact)
		}
	}
	return known
}

// writeConversation writes the messages of a snapshot, each with the tool calls
// that belong to it. Both lists are in the order of time, so one pass is enough;
// a call whose message is not there comes last.
func writeConversation(p page, e exported, mask *masker, step func(int) error) error {
	activities := e.Doc.Lists[transcript.ListActivities]
	if activities == nil {
		activities = &transcript.List{}
	}
	next, stop := iter.Pull2(e.records(activities))
	defer stop()
	rec, err, more := next()
	var activity transcript.Activity
	read := func() {
		activity = transcript.Activity{}
		if more && err == nil {
			_ = json.Unmarshal(mask.record(rec), &activity) // what is no activity is shown as a call without a name
		}
	}
	read()
	pass := func() error { // one activity
		p.folded(activityTitle(&activity), activityText(&activity))
		size := len(rec)
		rec, err, more = next()
		read()
		return step(size)
	}
	i := 0
	for rec, bad := range e.records(shownList(e.Doc)) {
		if bad != nil {
			return bad
		}
		shown := mask.record(rec)
		var m transcript.Message
		if json.Unmarshal(shown, &m) != nil || m.Role == "" {
			p.turn(i, "", "")
			p.text(string(shown))
		} else {
			p.turn(i, string(m.Role), whenText(m.CreatedAt))
			for more && err == nil && activity.MessageID == m.ID && m.ID != "" {
				if e := pass(); e != nil {
					return e
				}
			}
			text := m.Content
			if m.Status != "" && m.Status != transcript.StatusComplete {
				text += fmt.Sprintf(" (%s)", m.Status)
			}
			p.text(text)
		}
		i++
		if e := step(len(rec)); e != nil {
			return e
		}
	}
	if more && err == nil {
		p.turn(i, "other tool calls", "")
	}
	for more && err == nil {
		if e := pass(); e != nil {
			return e
		}
	}
	return err
}

func whenText(ms int64) string {
	if ms == 0 {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04:05 UTC")
}

func activityTitle(a *transcript.Activity) string {
	name := a.Name
	if name == "" {
		name = a.Title
	}
	return oneLine(fmt.Sprintf("tool %s: %s", clip(name, 200), clip(string(a.Status), 40)), 300)
}

// activityText is what went into a tool and what came out of it.
func activityText(a *transcript.Activity) string {
	var parts []string
	for _, part := range []struct {
		what string
		v    json.RawMessage
	}{{"input", a.RawInput}, {"output", a.RawOutput}, {"content", a.Content}} {
		if len(part.v) == 0 {
			continue
		}
		text := string(part.v)
		var s string
		if json.Unmarshal(part.v, &s) == nil {
			text = s
		}
		parts = append(parts, part.what+":\n"+text)
	}
	return strings.Join(parts, "\n\n")
}

// visible shows characters that act on a reader or hide text from him: controls,
// and those that change the direction of writing.
func visible(s string) string {
	hidden := func(r rune) bool {
		return r != '\n' && r != '\t' && unicode.IsControl(r) || '\u2028' <= r && r <= '\u202e' || '\u2066' <= r && r <= '\u2069'
	}
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\r\n", "\n")
	if !strings.ContainsFunc(s, hidden) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if hidden(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// markdownPage shows what was said in fenced blocks: nothing in them is markup.
type markdownPage struct{ w *bufio.Writer }

func (p *markdownPage) begin(string) {}
func (p *markdownPage) end()         {}

func (p *markdownPage) snapshot(name string, facts [][2]string) {
	fmt.Fprintf(p.w, "# %s\n\n", markdownWord(name))
	for _, f := range facts {
		fmt.Fprintf(p.w, "- %s: %s\n", f[0], markdownWord(oneLine(f[1], 4000)))
	}
}

func (p *markdownPage) turn(index int, who, when string) {
	fmt.Fprintf(p.w, "\n## %d", index)
	for _, word := range []string{who, when} {
		if word != "" {
			fmt.Fprintf(p.w, " · %s", markdownWord(oneLine(word, 80)))
		}
	}
	p.w.WriteString("\n")
}

func (p *markdownPage) text(s string) { p.fence(visible(s)) }

func (p *markdownPage) folded(title, s string) {
	fmt.Fprintf(p.w, "\n<details><summary>%s</summary>\n", html.EscapeString(visible(title)))
	p.fence(visible(s))
	p.w.WriteString("\n</details>\n")
}

// fence writes a block whose fence is longer than any in it.
func (p *markdownPage) fence(s string) {
	longest, run := 2, 0
	for _, r := range s {
		if run++; r != '`' {
			run = 0
		}
		longest = max(longest, run)
	}
	fence := strings.Repeat("`", longest+1)
	fmt.Fprintf(p.w, "\n%stext\n%s\n%s\n", fence, strings.TrimSuffix(s, "\n"), fence)
}

// markdownWord escapes everything that could be markup inside a line.
func markdownWord(s string) string {
	var b strings.Builder
	for _, r := range visible(s) {
		if strings.ContainsRune("\\`*_{}[]<>()#!|~&$", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// htmlPage is one file that needs nothing else, and has no script.
type htmlPage struct{ w *bufio.Writer }

const htmlHead = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>%s</title>
<style>
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem }
dl { display: grid; grid-template-columns: max-content auto; gap: 0 1rem }
dd { margin: 0; overflow-wrap: anywhere }
section { border-top: 1px solid #8886; margin-top: 1rem }
h2 { font-size: 1rem; color: #777 }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font: inherit }
details { background: #8881; padding: .3rem .6rem; margin: .5rem 0 }
details pre { font: 13px/1.4 ui-monospace, monospace }
</style>
</head>
<body>
`

func escaped(s string) string { return html.EscapeString(visible(s)) }

func (p *htmlPage) begin(title string) { fmt.Fprintf(p.w, htmlHead, escaped(title)) }
func (p *htmlPage) end()               { p.w.WriteString("</body>\n</html>\n") }

func (p *htmlPage) snapshot(name string, facts [][2]string) {
	fmt.Fprintf(p.w, "<h1>%s</h1>\n<dl>\n", escaped(name))
	for _, f := range facts {
		fmt.Fprintf(p.w, "<dt>%s</dt><dd>%s</dd>\n", f[0], escaped(f[1]))
	}
	p.w.WriteString("</dl>\n")
}

func (p *htmlPage) turn(index int, who, when string) {
	fmt.Fprintf(p.w, "<section><h2>%d", index)
	for _, word := range []string{who, when} {
		if word != "" {
			fmt.Fprintf(p.w, " · %s", escaped(oneLine(word, 80)))
		}
	}
	p.w.WriteString("</h2></section>\n")
}

func (p *htmlPage) text(s string) { fmt.Fprintf(p.w, "<pre dir=\"auto\">%s</pre>\n", escaped(s)) }

func (p *htmlPage) folded(title, s string) {
	fmt.Fprintf(p.w, "<details><summary>%s</summary><pre dir=\"auto\">%s</pre></details>\n", escaped(title), escaped(s))
}
