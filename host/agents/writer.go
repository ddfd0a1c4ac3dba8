package agents

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"sess/store/transcript"
)

// Message is what somebody said, for people.
type Message struct {
	// ID is the agent's own, or empty. The same conversation always has the same.
	ID   string
	Role transcript.Role // RoleUser, RoleAgent, RoleTool or RoleSystem
	Text string
	Time time.Time // zero: not known
}

// MessageText bounds the text of one message, in bytes. What is beyond is in the
// record only.
const MessageText = 256 << 10

// batchBytes is how much is gathered before it is cut into chunks.
const batchBytes = 512 << 10

// Writer makes the document of a conversation. Not safe for concurrent use.
type Writer struct {
	doc      transcript.Document
	seal     transcript.Sealer
	batches  map[string]*batch
	bytes    int64
	messages int

	skipped []int // numbers of lines that cannot be read
	dropped int   // of those beyond the first few
	repeats int
	notes   []string
	header  map[string]json.RawMessage
	tap     func(Message)
}

type batch struct {
	records []transcript.Record
	size    int
}

// NewWriter returns a writer that gives sealed chunks to seal; with nil they are
// only named.
func NewWriter(seal transcript.Sealer) *Writer {
	return &Writer{seal: seal, batches: map[string]*batch{}, header: map[string]json.RawMessage{}}
}

// Tap calls f with every message that is written. It is called before Read.
func (w *Writer) Tap(f func(Message)) { w.tap = f }

// Record adds a record to a list, such as [transcript.ListLines]. The bytes are
// copied.
func (w *Writer) Record(list string, line []byte) error {
	w.bytes += int64(len(line)) + 1
	return w.add(list, bytes.Clone(line))
}

func (w *Writer) add(list string, r transcript.Record) error {
	b := w.batches[list]
	if b == nil {
		b = &batch{}
		w.batches[list] = b
	}
	if r == nil {
		r = transcript.Record{}
	}
	b.records = append(b.records, r)
	if b.size += len(r) + 1; b.size < batchBytes {
		return nil
	}
	return w.flush(list, b)
}

func (w *Writer) flush(list string, b *batch) error {
	err := w.doc.List(list).Append(b.records, w.seal)
	b.records, b.size = nil, 0
	return err
}

// File adds a file that belongs to the conversation as the list "file:<name>".
// Its records are what stands between newlines, so that a file that ends in a
// newline has an empty last one.
func (w *Writer) File(name string, data []byte) error {
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		if err := w.Record(FileList(name), line); err != nil {
			return err
		}
	}
	return nil
}

// filePrefix begins the names of the lists that hold files.
const filePrefix = "file:"

// FileList is the name of the list that holds a file.
func FileList(name string) string { return filePrefix + name }

// Message adds what people read. One without text is left out.
func (w *Writer) Message(m Message) error {
	text := strings.TrimSpace(strings.ToValidUTF8(m.Text, "\uFFFD"))
	if text == "" {
		return nil
	}
	m.Text = clip(text, MessageText)
	if w.tap != nil {
		w.tap(m)
	}
	w.messages++
	v := transcript.Message{
		ID: m.ID, Role: m.Role, Content: m.Text, Status: transcript.StatusComplete,
	}
	if v.ID == "" {
		v.ID = "m" + strconv.Itoa(w.messages)
	}
	if !m.Time.IsZero() {
		v.CreatedAt = m.Time.UnixMilli()
		v.UpdatedAt = v.CreatedAt
	}
	r, err := transcript.EncodeJSON(v)
	if err != nil {
		return fmt.Errorf("message %s: %w", v.ID, err)
	}
	return w.add(transcript.ListMessages, r)
}

// clip cuts text that is longer than limit bytes and says how long it was.
func clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	cut := limit
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return fmt.Sprintf("%s… (%d bytes in all)", text[:cut], len(text))
}

// Skip notes a line that nobody can read. It is kept as a record all the same.
func (w *Writer) Skip(number int) {
	const most = 20
	if len(w.skipped) < most {
		w.skipped = append(w.skipped, number)
	} else {
		w.dropped++
	}
}

// Repeated counts a record that is in the conversation once more.
func (w *Writer) Repeated() { w.repeats++ }

// TooLong tells people of a line that is longer than [MaxLine].
func (w *Writer) TooLong(line Line) error {
	text := fmt.Sprintf("line %d has %d bytes, more than the limit of %d: it was left out", line.Number, line.TooLong, int64(MaxLine))
	w.Note("%s", text)
	return w.Message(Message{ID: fmt.Sprintf("line-%d", line.Number), Role: transcript.RoleSystem, Text: text})
}

// Note notes something that people should know of what was read.
func (w *Writer) Note(format string, args ...any) {
	if note := fmt.Sprintf(format, args...); !slices.Contains(w.notes, note) {
		w.notes = append(w.notes, note)
	}
}

// Header sets a member of the document's header: what a restore needs beside the
// records. v must be what JSON can hold.
func (w *Writer) Header(key string, v any) error {
	data, err := transcript.EncodeJSON(v)
	if err != nil {
		return fmt.Errorf("header %s: %w", key, err)
	}
	w.header[key] = data
	return nil
}

// The members of the header that every agent's document has.
const (
	headerAgent  = "agent"
	headerFolder = "cwd"
	headerTitle  = "title"
	headerModel  = "model"
)

// AgentOf is the agent whose conversation a document is; "" for one that is of no
// other agent.
func AgentOf(doc *transcript.Document) string {
	var h struct {
		Agent string `json:"agent"`
	}
	_ = json.Unmarshal(doc.Header, &h)
	return h.Agent
}

// FolderOf is the folder that a conversation was held in; "" where that is not
// known.
func FolderOf(doc *transcript.Document) string {
	var h struct {
		Folder string `json:"cwd"`
	}
	_ = json.Unmarshal(doc.Header, &h)
	return h.Folder
}

// Finish ends the writing and returns the document of what was read. agent is
// the id of the agent that c is a conversation of; of c only what was read with
// the records goes into the document, so that the same records give the same.
func (w *Writer) Finish(agent string, c Conversation) (*transcript.Document, error) {
	for list, b := range w.batches {
		if err := w.flush(list, b); err != nil {
			return nil, err
		}
	}
	for key, text := range map[string]string{headerAgent: agent, headerFolder: c.Folder, headerTitle: c.Title, headerModel: c.Model} {
		if text == "" {
			continue
		}
		if err := w.Header(key, text); err != nil {
			return nil, err
		}
	}
	header, err := json.Marshal(w.header)
	if err != nil {
		return nil, err
	}
	w.doc.Header = header
	w.doc.Meta.Title, w.doc.Meta.Model = c.Title, c.Model
	w.doc.Meta.Messages, w.doc.Meta.Bytes = w.messages, w.bytes
	return &w.doc, nil
}

// Messages counts the messages so far.
func (w *Writer) Messages() int { return w.messages }

// Report says what people should know of what was read, a sentence each.
func (w *Writer) Report() []string {
	notes := slices.Clone(w.notes)
	if n := len(w.skipped) + w.dropped; n > 0 {
		var numbers []string
		for _, s := range w.skipped {
			numbers = append(numbers, strconv.Itoa(s))
		}
		text := "1 line was skipped, since it cannot be read: " + numbers[0]
		if n > 1 {
			text = fmt.Sprintf("%d lines were skipped, since they cannot be read: %s", n, strings.Join(numbers, ", "))
		}
		if w.dropped > 0 {
			text += ", …"
		}
		notes = append(notes, text+" (the snapshot keeps every line as it is)")
	}
	if w.repeats > 0 {
		notes = append(notes, fmt.Sprintf("records that are there twice are shown once: %d", w.repeats))
	}
	return notes
}
