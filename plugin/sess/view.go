package sess

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"sess/dispatch"
	"sess/plugin"
	"sess/store/snapshot"
	"sess/store/transcript"
)

func viewVerb() verb {
	return verb{
		Verb: dispatch.Verb{
			Name:     "view",
			Summary:  "Show what is in a snapshot, without loading it",
			Examples: []string{"view v1", "view v1 --limit=100", "view v1 --limit=20 --before=80"},
			Args:     []plugin.Arg{nameArg("snapshot, by name or id")},
			Flags: func(fs *dispatch.Flags) {
				fs.Int("limit", 20, "how many messages, the last ones").Min(1).Max(1000)
				fs.Int("before", 0, "only messages before the one with this number").Min(1)
			},
			Effect: plugin.EffectRead,
		},
		run: view,
	}
}

// viewBytes bounds the messages of one view: what does not fit is counted.
const viewBytes = 1 << 20

// viewText bounds the text of one message in what people read, in characters.
const viewText = 2000

func view(ctx context.Context, r *request) (plugin.Result, error) {
	pool, name, err := r.find(ctx, r.Arg("name"))
	if err != nil {
		return plugin.Result{}, err
	}
	snap, err := pool.Read(ctx, name)
	if err != nil {
		return plugin.Result{}, err
	}
	end := shownList(snap.Doc).Records
	if r.Changed("before") {
		end = int(min(int64(end), r.Int("before")))
	}
	records, first, err := lastRecords(pool, snap, end, int(r.Int("limit")))
	if err != nil {
		return plugin.Result{}, err
	}
	doc := snap.Doc
	total := shownList(doc).Records
	messages := make([]json.RawMessage, len(records))
	for i, rec := range records {
		messages[i] = transcript.EncodeRecordJSON(nil, rec)
	}
	meta, err := metaJSON(name, doc.Meta)
	if err != nil {
		return plugin.Result{}, err
	}
	header := doc.Header
	if header == nil {
		header = json.RawMessage("{}")
	}
	return answer(r.viewText(name, doc, records, first),
		pair{"meta", meta}, pair{"header", header}, pair{"messages", messages}, pair{"first", first},
		pair{"total", total}, pair{"compacted", compacted(doc)})
}

// shownList is the list that people read: the messages, or the lines of a
// foreign agent.
func shownList(doc *transcript.Document) *transcript.List {
	for _, name := range []string{transcript.ListMessages, transcript.ListLines} {
		if l := doc.Lists[name]; l != nil && l.Records > 0 {
			return l
		}
	}
	return &transcript.List{}
}

// lastRecords reads the last n records before end, fewer where they are too large
// together, and says which is the first of them.
func lastRecords(pool *snapshot.Pool, snap *snapshot.Snapshot, end, n int) ([]transcript.Record, int, error) {
	l := shownList(snap.Doc)
	var records []transcript.Record
	size := 0
	for rec, err := range l.AllUpTo(pool.Plain, max(0, end-n), end, viewBytes) {
		if err != nil {
			return nil, 0, &snapshot.DamagedError{Name: snap.Name, File: snap.File, Reason: err.Error(), Err: err}
		}
		if rec == nil { // it is too large even alone
			records, size = nil, 0
			continue
		}
		records = append(records, rec)
		for size += len(rec); size > viewBytes; records = records[1:] {
			size -= len(records[0])
		}
	}
	return records, end - len(records), nil
}

// compacted reports whether the model's history was shortened, so that it holds
// less than people see.
func compacted(doc *transcript.Document) bool {
	var header struct {
		Compaction    json.RawMessage `json:"compaction"`
		ProviderState struct {
			Compaction json.RawMessage `json:"compaction"`
		} `json:"providerState"`
	}
	if json.Unmarshal(doc.Header, &header) != nil {
		return false
	}
	set := func(v json.RawMessage) bool { return len(v) > 0 && string(v) != "null" && string(v) != "false" }
	return set(header.Compaction) || set(header.ProviderState.Compaction)
}

func (r *request) viewText(name snapshot.Name, doc *transcript.Document, records []transcript.Record, first int) string {
	m := doc.Meta
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, %s, saved %s (%s)\n", name, count(m.Messages, "message"), longSize(m.Bytes),
		m.UpdatedAt.UTC().Format("2006-01-02 15:04:05 UTC"), plugin.Ago(m.UpdatedAt, r.now()))
	line := func(what, text string) {
		if text != "" {
			fmt.Fprintf(&b, "%-8s %s\n", what, oneLine(text, 400))
		}
	}
	line("id", m.ID)
	line("session", m.SessionID)
	line("title", m.Title)
	line("model", m.Model)
	line("note", m.Note)
	line("tags", tagText(m.Tags))
	line("reason", m.Reason)
	line("parent", m.Parent)
	if m.Pinned {
		line("pinned", "yes")
	}
	if compacted(doc) {
		line("history", "compacted: the model sees a summary in place of the older messages")
	}
	return b.String() + "\n" + messagesText(doc, records, first, "")
}

// messagesText are records for people, each with its number. command, if any,
// takes the flag that shows those before.
func messagesText(doc *transcript.Document, records []transcript.Record, first int, command string) string {
	var b strings.Builder
	switch total := shownList(doc).Records; {
	case total == 0:
		b.WriteString("(no messages)\n")
	case len(records) == 0:
		fmt.Fprintf(&b, "(message %d is too large to be shown; load the snapshot to read it)\n", first-1)
		if first > 1 {
			fmt.Fprintf(&b, "(%d before it; %s--before=%d shows them)\n", first-1, command, first-1)
		}
	case first > 0:
		fmt.Fprintf(&b, "(%d before these; %s--before=%d shows them)\n", first, command, first)
	}
	for i, rec := range records {
		fmt.Fprintf(&b, "[%d] %s\n", first+i, recordText(rec))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// recordText is a record for people: who said what, or the line as it is.
func recordText(rec transcript.Record) string {
	var m transcript.Message
	if json.Unmarshal(rec, &m) != nil || m.Role == "" {
		return clip(strings.ToValidUTF8(string(rec), "\uFFFD"), viewText)
	}
	text := clip(m.Content, viewText)
	if m.Status != "" && m.Status != transcript.StatusComplete {
		text += fmt.Sprintf(" (%s)", m.Status)
	}
	return fmt.Sprintf("%s: %s", m.Role, strings.ReplaceAll(text, "\n", "\n    "))
}
