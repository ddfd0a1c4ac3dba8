package actions

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"sess/dispatch"
	"sess/plugin"
	"sess/plugin/change"
	"sess/store/transcript"
)

func (p *Plugin) listVerb() dispatch.Verb {
	return dispatch.Verb{
		Name:    "list",
		Aliases: []string{"ls"},
		Summary: "List the messages of the session with their indices",
		Help: "The first message has the index 0. Without --before and --after these are the last ones. A message is shown by its " +
			"beginning; sess sessions show --json has all of it.",
		Examples: []string{"list", "list --count=100", "list --count=20 --before=80", "list --after=79"},
		Flags: func(fs *dispatch.Flags) {
			fs.Int("count", 20, "how many").Min(1).Max(1000)
			fs.Int("before", 0, "those right before the one with this index").Min(0)
			fs.Int("after", 0, "those right after the one with this index").Min(0)
		},
		Effect: plugin.EffectRead,
		Main:   true,
		Run:    p.list,
	}
}

const (
	excerptRunes = 200 // of a message, for programs
	cellRunes    = 56  // of a message, in the table
)

// row is a message in the list.
type row struct {
	Index     int               `json:"index"`
	ID        string            `json:"id"`
	Role      transcript.Role   `json:"role"`
	Status    transcript.Status `json:"status"`
	CreatedAt int64             `json:"createdAt"` // epoch milliseconds
	// Excerpt is the beginning of what it says, on one line.
	Excerpt string `json:"excerpt"`
}

func (p *Plugin) list(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	s, err := change.Read(ctx, p.Runtime(), in.Call)
	if err != nil {
		return plugin.Result{}, err
	}
	total := records(s, transcript.ListMessages)
	from, to := window(in, total)
	rows := make([]row, 0, to-from)
	cells := make([][]string, 0, to-from)
	for rec, err := range s.Document.List(transcript.ListMessages).All(s.Loader(ctx), from, to) {
		if err != nil {
			return plugin.Result{}, err
		}
		var m transcript.Message
		_ = json.Unmarshal(rec, &m) // what another program wrote otherwise is shown as far as it goes
		r := row{
			Index: from + len(rows), ID: m.ID, Role: m.Role, Status: m.Status, CreatedAt: m.CreatedAt,
			Excerpt: excerpt(m.Content, excerptRunes),
		}
		rows = append(rows, r)
		text := excerpt(r.Excerpt, cellRunes)
		if m.Status != transcript.StatusComplete && m.Status != "" {
			text = fmt.Sprintf("(%s) %s", m.Status, text)
		}
		when := "-"
		if m.CreatedAt != 0 {
			when = plugin.Ago(time.UnixMilli(m.CreatedAt), time.Now())
		}
		cells = append(cells, []string{strconv.Itoa(r.Index), string(r.Role), when, text})
	}
	data, err := json.Marshal(rows)
	result := plugin.Result{Text: listText(s.Ref.ID, from, to, total, cells), Data: data, Page: &plugin.Page{Total: int64(total)}}
	if s.Selected != "" {
		result.Notices = []string{fmt.Sprintf("session %s shows a snapshot; these are the messages of the session itself", s.Ref.ID)}
	}
	return result, err
}

// window is the part of the list that is asked for.
func window(in *dispatch.Invocation, total int) (from, to int) {
	before, after, count := in.Int("before"), in.Int("after"), int(in.Int("count"))
	to = total
	if in.Changed("before") {
		to = int(min(before, int64(total)))
	}
	if !in.Changed("after") {
		return max(0, to-count), to
	}
	from = int(min(after, int64(to)-1)) + 1
	return from, min(to, from+count)
}

func listText(session string, from, to, total int, cells [][]string) string {
	switch {
	case total == 0:
		return fmt.Sprintf("session %s has no messages", session)
	case len(cells) == 0:
		return fmt.Sprintf("none of the %d messages is there", total)
	}
	var b strings.Builder
	b.WriteString(plugin.Table([]string{"INDEX", "ROLE", "TIME", "MESSAGE"}, cells))
	var more []string
	if from > 0 {
		more = append(more, fmt.Sprintf("%d before these: --before=%d", from, from))
	}
	if to < total {
		more = append(more, fmt.Sprintf("%d after these: --after=%d", total-to, to-1))
	}
	if len(more) > 0 {
		fmt.Fprintf(&b, "\n(%s)", strings.Join(more, "; "))
	}
	return b.String()
}

// records counts those of a list of the session.
func records(s *change.Session, name string) int {
	if l := s.Document.Lists[name]; l != nil {
		return l.Records
	}
	return 0
}

// excerpt is the beginning of a text on one line, of at most so many characters.
func excerpt(text string, most int) string {
	if len(text) > 8*most {
		text = text[:8*most] // more is not shown, whatever the blanks
	}
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "")), " ")
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}
