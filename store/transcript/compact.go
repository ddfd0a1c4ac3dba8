package transcript

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
)

// Compaction is the header's word that the beginning of history was made shorter:
// the first item of history stands for the first messages, which people still see
// in full.
type Compaction struct {
	Plugin string `json:"plugin"` // that did it
	// Provider is the one in whose words the item is, by its id in the
	// configuration: no other can read them.
	Provider string `json:"provider"`
	Range    Range  `json:"range"` // of messages; it starts at 0
	At       int64  `json:"at"`    // epoch milliseconds
}

// Messages is how many messages the item stands for.
func (c Compaction) Messages() int {
	if c.Range.End == nil {
		return 0
	}
	return *c.Range.End
}

// CompactionOf is what a header says of it; the zero value where nothing was
// compacted.
func CompactionOf(header json.RawMessage) Compaction {
	var h struct {
		Compaction Compaction `json:"compaction"`
	}
	if json.Unmarshal(header, &h) != nil {
		return Compaction{}
	}
	return h.Compaction
}

// HistoryOf counts the items at the beginning of history that tell what so many
// messages at the beginning do. Where items have no id of their message they are
// counted by what users said, from the end.
func HistoryOf(d *Document, load Loader, messages int) (int, error) {
	said, history := d.List(ListMessages), d.List(ListHistory)
	if messages >= said.Records {
		return history.Records, nil
	}
	near := map[string]bool{}
	for m, err := range decoded[shown](said, load, max(0, messages-neighbours), max(0, messages)) {
		if err != nil {
			return 0, err
		}
		near[m.ID] = true
	}
	delete(near, "")
	last, err := history.lastIndex(load, func(r Record) bool {
		var b belonging
		return json.Unmarshal(r, &b) == nil && near[b.MessageID]
	})
	if err != nil || last >= 0 || messages <= 0 {
		return last + 1, err
	}
	return countedHistory(said, history, load, messages)
}

// countedHistory is HistoryOf where items have no ids: so many questions stand
// behind the messages, and as many behind their share of history.
func countedHistory(said, history *List, load Loader, messages int) (int, error) {
	behind, within, first := 0, false, true
	for m, err := range decoded[shown](said, load, messages, said.Records) {
		if err != nil {
			return 0, err
		}
		if m.Role == RoleUser {
			behind++
		} else if first {
			within = true // the turn goes on behind the messages
		}
		first = false
	}
	var questions []int
	pos := 0
	for item, err := range decoded[HistoryItem](history, load, 0, history.Records) {
		if err != nil {
			return 0, err
		}
		if item.Role == RoleUser {
			questions = append(questions, pos)
		}
		pos++
	}
	switch n := len(questions) - behind; {
	case within && n > 0:
		return questions[n-1] + 1, nil
	case n < 0:
		return 0, nil
	case behind == 0:
		return history.Records, nil
	default:
		return questions[n], nil
	}
}

// Compact puts an item in the place of the history of the first messages, as
// [HistoryOf] counts it, and says so in the header. What the provider keeps of the
// conversation (providerState) is dropped: it goes on from what was there before.
//
// The document is changed; after an error it is as it was. New chunks go to emit,
// and load has to find them.
func Compact(d *Document, load Loader, emit Sealer, item Record, c Compaction) error {
	share, err := HistoryOf(d, load, c.Messages())
	if err != nil {
		return fmt.Errorf("compact: %w", err)
	}
	if share == 0 {
		return errors.New("compact: no history belongs to the messages")
	}
	said, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("compact: %w", err)
	}
	changed := d.Clone()
	changed.Header, _ = without(bytes.TrimSpace(d.Header), func(key string, v json.RawMessage) (json.RawMessage, bool) {
		if key == providerStateKey || key == compactionKey {
			return nil, true
		}
		return v, false
	})
	changed.Header = withMember(changed.Header, compactionKey, said)
	if err := changed.List(ListHistory).Splice(0, share, []Record{item}, load, emit); err != nil {
		return fmt.Errorf("compact: %w", err)
	}
	*d = *changed
	return nil
}

// withMember returns an object with one more member; nil is an empty object.
func withMember(object json.RawMessage, key string, value json.RawMessage) json.RawMessage {
	head := bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(object), []byte("}")))
	if len(head) == 0 {
		head = []byte("{")
	}
	dst := append(make([]byte, 0, len(head)+len(key)+len(value)+5), head...)
	if len(head) > 1 {
		dst = append(dst, ',')
	}
	return append(append(append(AppendText(dst, key), ':'), value...), '}')
}

// History iterates over history, from an item (inclusive) to another (exclusive),
// as a provider with that id is told it: where its beginning is in the words of
// another one, it is told the messages themselves instead. An item of another
// shape comes as one without a role, so that people can be told that it is not
// passed on.
func History(d *Document, load Loader, provider string, from, to int) iter.Seq2[HistoryItem, error] {
	return func(yield func(HistoryItem, error) bool) {
		c := CompactionOf(d.Header)
		if from == 0 && to > 0 && c.Messages() > 0 && c.Provider != provider {
			from = 1
			for item, err := range Told(d, load, c.Messages()) {
				if !yield(item, err) || err != nil {
					return
				}
			}
		}
		for r, err := range d.List(ListHistory).All(load, from, to) {
			var item HistoryItem
			if err != nil {
				yield(item, err)
				return
			}
			if json.Unmarshal(r, &item) != nil {
				item = HistoryItem{}
			}
			if !yield(item, nil) {
				return
			}
		}
	}
}

// Told iterates over so many of the first messages as history tells them where
// there is nothing but the messages: what was said, without calls of tools, and of
// several messages with one id the first, as people see it.
func Told(d *Document, load Loader, messages int) iter.Seq2[HistoryItem, error] {
	return func(yield func(HistoryItem, error) bool) {
		seen := map[string]bool{}
		for m, err := range decoded[Message](d.List(ListMessages), load, 0, messages) {
			twice := m.ID != "" && seen[m.ID]
			seen[m.ID] = true
			item := HistoryItem{Role: m.Role, Content: m.Content, MessageID: m.ID}
			switch {
			case err != nil:
				yield(item, err)
				return
			case twice || m.Content == "" || m.Role != RoleUser && m.Role != RoleAgent:
				continue
			case m.Role == RoleAgent:
				item.Role = RoleAssistant
			}
			if !yield(item, nil) {
				return
			}
		}
	}
}
