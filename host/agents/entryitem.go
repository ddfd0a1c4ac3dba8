package agents

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"sess/store/transcript"
)

// entryItem is what an entry says, for people.
type entryItem struct {
	id    string
	role  transcript.Role
	text  string
	time  time.Time
	calls []transcript.ToolCall // what an assistant asks its tools for
	model string                // of an answer: provider/model
	// notes are about what is not text: an image, a block of an unknown type, the
	// label that a person gave the entry, why an answer ended early.
	notes []string
}

// entryContent is what of an entry is shown. A field of another type is zero.
type entryContent struct {
	Type       string          `json:"type"`
	ID         string          `json:"id"`
	Timestamp  string          `json:"timestamp"`
	Summary    string          `json:"summary"`
	Reason     string          `json:"reason"`
	CustomType string          `json:"customType"`
	Content    json.RawMessage `json:"content"`
	Message    *entryMessageOf `json:"message"`
}

type entryMessageOf struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	Timestamp  int64           `json:"timestamp"` // epoch milliseconds
	Provider   string          `json:"provider"`
	Model      string          `json:"model"`
	StopReason string          `json:"stopReason"`
	ErrorText  string          `json:"errorMessage"`
	IsError    bool            `json:"isError"`
	Command    string          `json:"command"`
	Output     string          `json:"output"`
	ExitCode   *int            `json:"exitCode"`
	CustomType string          `json:"customType"`
	Provenance struct {
		Kind string `json:"kind"`
	} `json:"provenance"`
}

// parseEntryItem reads what an entry says; false where it says nothing to
// people, as a change of the model does.
func parseEntryItem(object []byte) (entryItem, bool) {
	var e entryContent
	_ = json.Unmarshal(object, &e)
	item := entryItem{id: e.ID, role: transcript.RoleSystem}
	item.time, _ = time.Parse(time.RFC3339, e.Timestamp)
	switch e.Type {
	case entryMessage:
		return item, e.Message != nil && e.Message.into(&item)
	case entryCustomMessage:
		item.addContent(e.Content)
		item.text = underTitle(e.CustomType, item.text)
	case entryBranchSummary:
		item.text = underTitle("Summary of another branch", e.Summary)
	case entryCompaction:
		item.text = underTitle("Compacted: instead of what is above, the model sees this summary", e.Summary)
	case entryReset:
		item.text = fmt.Sprintf("[%s: the model sees nothing of what is above]", cmp.Or(e.Reason, entryReset))
	default:
		return item, false
	}
	return item, true
}

func underTitle(title, text string) string {
	return strings.TrimSuffix("["+title+"]\n"+text, "\n")
}

// into fills the item; false where the message is none.
func (m *entryMessageOf) into(item *entryItem) bool {
	if m.Timestamp > 0 {
		item.time = time.UnixMilli(m.Timestamp).UTC()
	}
	switch m.Role {
	case "user":
		if m.Provenance.Kind != "internal_system" { // else nobody typed it
			item.role = transcript.RoleUser
		}
		item.addContent(m.Content)
	case "assistant":
		item.role = transcript.RoleAgent
		item.addContent(m.Content)
		item.model = entryModel(m.Provider, m.Model)
		switch m.StopReason {
		case "error", "aborted", "length":
			item.notes = append(item.notes, strings.TrimSuffix("ended early: "+m.StopReason+": "+m.ErrorText, ": "))
		}
	case "toolResult":
		item.role = transcript.RoleTool
		item.addContent(m.Content)
		if m.IsError {
			item.notes = append(item.notes, "an error")
		}
	case "bashExecution": // a person ran it
		item.role, item.text = transcript.RoleTool, "$ "+m.Command+"\n"+m.Output
		if m.ExitCode != nil && *m.ExitCode != 0 {
			item.notes = append(item.notes, fmt.Sprintf("exit status %d", *m.ExitCode))
		}
	case "custom", "hookMessage":
		item.addContent(m.Content)
		item.text = underTitle(m.CustomType, item.text)
	case "":
		return false
	default:
		item.addContent(m.Content)
		item.notes = append(item.notes, fmt.Sprintf("the role %q is not known", m.Role))
	}
	return true
}

// entryModel is provider/model, or what there is of it.
func entryModel(provider, model string) string {
	if provider == "" || model == "" {
		return model
	}
	return provider + "/" + model
}

// addContent takes a text, or blocks of several types.
func (it *entryItem) addContent(content json.RawMessage) {
	if len(content) == 0 || json.Unmarshal(content, &it.text) == nil {
		return
	}
	var raws []json.RawMessage
	if json.Unmarshal(content, &raws) != nil {
		it.notes = append(it.notes, "content that is neither text nor blocks")
		return
	}
	var texts []string
	for _, raw := range raws {
		var b struct {
			Type      string          `json:"type"`
			Text      string          `json:"text"`
			ID        string          `json:"id"`
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
			Data      string          `json:"data"`
			MimeType  string          `json:"mimeType"`
		}
		_ = json.Unmarshal(raw, &b)
		switch b.Type {
		case "text":
			texts = append(texts, b.Text)
		case "thinking": // is no part of the answer
		case "toolCall":
			it.calls = append(it.calls, transcript.ToolCall{ID: b.ID, Name: b.Name, Arguments: b.Arguments})
		case "image":
			it.notes = append(it.notes, fmt.Sprintf("an image, %s, of %d bytes", cmp.Or(b.MimeType, "of no type"), base64.StdEncoding.DecodedLen(len(b.Data))))
		default:
			it.notes = append(it.notes, fmt.Sprintf("a block of the unknown type %q", b.Type))
		}
	}
	it.text = strings.Join(texts, "\n")
}

// messages are what is written of the item: the text, and a message for each
// call of a tool.
func (it *entryItem) messages() []Message {
	text := it.text
	if len(it.notes) > 0 {
		text = strings.TrimSpace(text + "\n[" + strings.Join(it.notes, "; ") + "]")
	}
	messages := []Message{{ID: it.id, Role: it.role, Text: text, Time: it.time}}
	for i, call := range it.calls {
		messages = append(messages, Message{ID: fmt.Sprintf("%s-%d", it.id, i+1), Role: transcript.RoleTool, Text: call.Name + " " + string(call.Arguments), Time: it.time})
	}
	return messages
}

// write adds the item to a conversation.
func (it *entryItem) write(w *Writer) error {
	for _, m := range it.messages() {
		if err := w.Message(m); err != nil {
			return err
		}
	}
	return nil
}
