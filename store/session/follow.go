package session

import (
	"encoding/json"
	"math"

	"sess/store/transcript"
)

// spoken is what the model is told of a message that people see.
type spoken struct {
	at      int // in the list of messages
	id      string
	role    transcript.Role
	content string
}

// spoken lists the messages that people see.
func (l *Live) spoken() ([]spoken, error) {
	list := l.Doc.List(transcript.ListMessages)
	all := make([]spoken, 0, list.Records)
	show := showing(shownMessage)
	at := -1
	for r, err := range list.All(l.load, 0, list.Records) {
		if err != nil {
			return nil, err
		}
		at++
		var m transcript.Message
		if shown, _ := show(r); shown == nil || json.Unmarshal(shown, &m) != nil {
			continue
		}
		all = append(all, spoken{at, m.ID, m.Role, m.Content})
	}
	return all, nil
}

// same reports whether the model is told the same of both.
func (s spoken) same(o spoken) bool {
	return s.id == o.id && s.role == o.role && s.content == o.content
}

// historyFollows makes what the model knows fit the messages, which were before
// at first, in the document old. What was added is added. From the first turn on in which a message was
// changed, moved or removed, history is made anew of the messages, and the
// provider's own state is dropped: it is of another conversation. Without a
// history there is none to follow: the next turn makes it of the messages.
func (l *Live) historyFollows(old *transcript.Document, before []spoken) error {
	history := l.Doc.List(transcript.ListHistory)
	if history.Records == 0 {
		return nil
	}
	now, err := l.spoken()
	if err != nil {
		return err
	}
	turn := 0 // the first message that differs
	for turn < min(len(before), len(now)) && before[turn].same(now[turn]) {
		turn++
	}
	if turn < len(before) {
		for turn > 0 && before[turn].role != transcript.RoleUser {
			turn--
		}
		cut, turn, err := l.historyOf(old, before, turn)
		if err != nil {
			return err
		}
		if err := l.Splice(transcript.ListHistory, cut, history.Records, told(now[turn:])...); err != nil {
			return err
		}
		if err := l.compactionFollows(before, now); err != nil {
			return err
		}
		return l.Set(keyProviderState, nil)
	}
	if err := l.compactionFollows(before, now); err != nil {
		return err
	}
	return l.Append(transcript.ListHistory, told(now[turn:])...)
}

// compactionFollows keeps what is said of a compaction to the same messages, where
// records that people do not see came to be among them.
func (l *Live) compactionFollows(before, now []spoken) error {
	n := transcript.CompactionOf(l.Doc.Header).Messages()
	last := -1 // of the messages that people see
	for last+1 < len(before) && before[last+1].at < n {
		last++
	}
	if last < 0 || now[last].at == before[last].at {
		return nil
	}
	object := l.Get(keyCompaction)
	span, err := setMember(headerValue(object, "range"), "end", encode(n+now[last].at-before[last].at))
	if err != nil {
		return err
	}
	if object, err = setMember(object, "range", span); err != nil {
		return err
	}
	return l.Set(keyCompaction, object)
}

// historyOf is where in history the share of the messages from one on begins, as
// they and history were in old. Where that is in what was compacted, both are the
// very beginning.
func (l *Live) historyOf(old *transcript.Document, messages []spoken, turn int) (item, from int, err error) {
	switch at := messages[turn].at; {
	case at < transcript.CompactionOf(old.Header).Messages():
		return 0, 0, l.Set(keyCompaction, nil)
	case turn > 0:
		item, err := transcript.HistoryOf(old, l.load, at)
		return item, turn, err
	}
	// What a conversation begins with was not said by anybody in it.
	for h, err := range transcript.History(old, l.load, "", 0, math.MaxInt) {
		if err != nil {
			return 0, 0, err
		}
		if h.Role != transcript.RoleSystem {
			break
		}
		item++
	}
	return item, 0, nil
}

// told are the items of history that say what messages say.
func told(messages []spoken) []transcript.Record {
	var items []transcript.Record
	for _, m := range messages {
		if m.content == "" {
			continue
		}
		role := m.role
		if role == transcript.RoleAgent {
			role = transcript.RoleAssistant
		}
		items = append(items, transcript.Record(encode(transcript.HistoryItem{Role: role, Content: m.content, MessageID: m.id})))
	}
	return items
}
