package session

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"strings"

	"sess/store/transcript"
)

// interruptible reports whether a session in this state is in a turn, or was
// when its process ended.
func interruptible(status string) bool {
	return status == StatusRunning || status == StatusPermission
}

// mend turns a session that nobody works on into one that can go on. It changes
// memory only.
func (l *Live) mend(ctx context.Context) error {
	l.Interrupted = interruptible(l.Status)
	if l.Interrupted {
		l.Status = StatusError
		if l.Error == "" {
			l.Error = InterruptedText
		}
	}
	l.ActiveRun = nil
	if err := l.completeMessages(ctx); err != nil {
		return err
	}
	fresh := func(transcript.ID) bool { return false }
	if l.Interrupted {
		fresh = newest(&l.Doc)
	}
	doc, notices, err := transcript.Normalise(&l.Doc, l.load, l.seal, fresh)
	if err != nil {
		return err
	}
	if doc != &l.Doc {
		if err := l.adopt(doc); err != nil {
			return err
		}
	}
	l.Interrupted = l.Interrupted || len(notices) > 0
	l.Notices = notices
	l.describe()
	return nil
}

// adopt makes header and lists those of doc.
func (l *Live) adopt(doc *transcript.Document) error {
	for name, list := range doc.Lists {
		size, err := sealedBytes(list, l.Doc.Lists[name], l.sealed[name], l.load)
		if err != nil {
			return err
		}
		l.setSealed(name, size)
	}
	for name := range l.sealed {
		if doc.Lists[name] == nil {
			delete(l.sealed, name)
		}
	}
	l.Doc.Header, l.Doc.Lists = doc.Header, doc.Lists
	for _, name := range []string{transcript.ListMessages, transcript.ListActivities, transcript.ListHistory} {
		l.Doc.List(name)
	}
	return nil
}

// newest tells the chunks that were sealed last: those that what an interrupted
// turn has left may reach into.
func newest(doc *transcript.Document) func(transcript.ID) bool {
	const last = 2
	ids := make(map[transcript.ID]bool)
	for _, list := range doc.Lists {
		for _, ref := range list.Chunks[max(0, len(list.Chunks)-last):] {
			ids[ref.ID] = true
			for _, id := range ref.IDs {
				ids[id] = true
			}
		}
	}
	return func(id transcript.ID) bool { return ids[id] }
}

// completeMessages gives the messages that were being written the text that the
// last turn's log has of them.
func (l *Live) completeMessages(ctx context.Context) error {
	list := l.Doc.List(transcript.ListMessages)
	var texts map[string]string
	for i := len(list.Tail) - 1; i >= 0; i-- {
		var m struct {
			ID      string            `json:"id"`
			Content string            `json:"content"`
			Status  transcript.Status `json:"status"`
		}
		if !bytes.Contains(list.Tail[i], []byte(transcript.StatusStreaming)) || json.Unmarshal(list.Tail[i], &m) != nil || m.Status != transcript.StatusStreaming {
			continue
		}
		if texts == nil {
			var err error
			if texts, err = l.store.turnTexts(ctx, l.Ref); err != nil {
				return err
			}
		}
		full := texts[m.ID]
		if len(full) <= len(m.Content) || !strings.HasPrefix(full, m.Content) {
			continue // what is stored is as much, or not from this log
		}
		record, err := setMember(json.RawMessage(list.Tail[i]), "content", encode(full))
		if err != nil {
			return err
		}
		list.Tail[i] = transcript.Record(record)
	}
	return nil
}

// turnTexts are the texts that the last turn's log has, by the message's id.
func (s *Store) turnTexts(ctx context.Context, ref Ref) (map[string]string, error) {
	texts := make(map[string]string)
	turns, err := s.Turns(ctx, ref)
	if err != nil || len(turns) == 0 {
		return texts, err
	}
	events, _, err := s.ReadTurn(ctx, ref, turns[len(turns)-1])
	if err != nil {
		return nil, err
	}
	parts := make(map[string]*strings.Builder)
	for _, e := range events {
		var delta struct {
			MessageID string `json:"messageId"`
			Text      string `json:"text"`
		}
		if e.Type != EventTextDelta || json.Unmarshal(e.Raw, &delta) != nil {
			continue
		}
		if parts[delta.MessageID] == nil {
			parts[delta.MessageID] = &strings.Builder{}
		}
		parts[delta.MessageID].WriteString(delta.Text)
	}
	for id, b := range parts {
		texts[id] = b.String()
	}
	return texts, nil
}

// Recall makes the part of an answer that was mended after a turn that died part
// of what the model knows, as it is after an interruption. Read keeps it from
// history, so that what is saved of the session stays what was stored.
func (l *Live) Recall() error {
	list := l.Doc.List(transcript.ListMessages)
	var m transcript.Message
	for r, err := range list.All(l.load, list.Records-1, list.Records) {
		if err != nil {
			return err
		}
		if json.Unmarshal(r, &m) != nil || m.Role != transcript.RoleAgent || m.Status != transcript.StatusError {
			return nil
		}
	}
	answer, asked, err := l.lastAnswer()
	if err != nil || !asked {
		return err
	}
	rest := m.Content
	for _, item := range answer {
		if item.Role == transcript.RoleAssistant && item.Content != "" {
			rest = strings.TrimLeft(strings.TrimPrefix(rest, item.Content), "\n")
		}
	}
	return l.Append(transcript.ListHistory, told([]spoken{{id: m.ID, role: m.Role, content: rest}})...)
}

// lastAnswer is what the model knows of what followed the last question; asked is
// false where there was none. It looks from the end, as far as it has to.
func (l *Live) lastAnswer() (answer []transcript.HistoryItem, asked bool, err error) {
	const step = 64
	itself := transcript.CompactionOf(l.Doc.Header).Provider // who is told the items as they are
	for from := l.Doc.List(transcript.ListHistory).Records; from > 0 && !asked; {
		from = max(0, from-step)
		answer = nil
		for item, err := range transcript.History(&l.Doc, l.load, itself, from, math.MaxInt) {
			if err != nil {
				return nil, false, err
			}
			if answer = append(answer, item); item.Role == transcript.RoleUser {
				answer, asked = nil, true
			}
		}
	}
	return answer, asked, nil
}
