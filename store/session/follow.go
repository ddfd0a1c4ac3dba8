package session

import (
	"encoding/json"
	"slices"

	"sess/store/transcript"
)

// spoken is what the model is told of a message that people see.
type spoken struct {
	id      string
	role    transcript.Role
	content string
}

// spoken lists the messages that people see.
func (l *Live) spoken() ([]spoken, error) {
	list := l.Doc.List(transcript.ListMessages)
	all := make([]spoken, 0, list.Records)
	show := showing(shownMessage)
	for r, err := range list.All(l.load, 0, list.Records) {
		if err != nil {
			return nil, err
		}
		var m transcript.Message
		if shown, _ := show(r); shown == nil || json.Unmarshal(shown, &m) != nil {
			continue
		}
		all = append(all, spoken{m.ID, m.Role, m.Content})
	}
	return all, nil
}

// historyFollows makes what the model knows fit the messages, which were before
// at first. What was added is added. From the first turn on in which a message was
// changed, moved or removed, history is made anew of the messages, and the
// provider's own state is dropped: it is of another conversation. Without a
// history there is none to follow: the next turn makes it of the messages.
func (l *Live) historyFollows(before []spoken) error {
	history := l.Doc.List(transcript.ListHistory)
	if history.Records == 0 {
		return nil
	}
	now, err := l.spoken()
	if err != nil {
		return err
	}
	turn := 0 // the first message that differs
	for turn < min(len(before), len(now)) && before[turn] == now[turn] {
		turn++
	}
	if turn < len(before) {
		for turn > 0 && before[turn].role != transcript.RoleUser {
			turn--
		}
		cut, turn, err := l.historyOf(before, turn)
		if err != nil {
			return err
		}
		if err := l.Splice(transcript.ListHistory, cut, history.Records, told(now[turn:])...); err != nil {
			return err
		}
		return l.Set(keyProviderState, nil)
	}
	return l.Append(transcript.ListHistory, told(now[turn:])...)
}

// historyOf is where in history the turn that begins with a message begins. Where
// that cannot be told, or is in what was compacted, both are the very beginning.
func (l *Live) historyOf(messages []spoken, turn int) (item, from int, err error) {
	var compaction struct {
		Range transcript.Range `json:"range"`
	}
	if raw := l.Get(keyCompaction); raw != nil {
		if json.Unmarshal(raw, &compaction) != nil || compaction.Range.End == nil || turn < *compaction.Range.End {
			return 0, 0, l.Set(keyCompaction, nil)
		}
	}
	users, ids := 0, make(map[string]bool) // questions and messages from the turn on
	for _, m := range messages[turn:] {
		ids[m.id] = true
		if m.role == transcript.RoleUser {
			users++
		}
	}
	list := l.Doc.List(transcript.ListHistory)
	var asked []int // where the questions are
	byID, system, i := -1, 0, 0
	for r, err := range list.All(l.load, 0, list.Records) {
		if err != nil {
			return 0, 0, err
		}
		var h transcript.HistoryItem
		if json.Unmarshal(r, &h) == nil {
			switch {
			case h.Role == transcript.RoleSystem && system == i:
				system++
			case h.Role == transcript.RoleUser:
				asked = append(asked, i)
			}
			if byID < 0 && ids[h.MessageID] {
				byID = i
			}
		}
		i++
	}
	switch {
	case turn == 0:
		return system, 0, nil
	case byID >= 0 && (users == 0 || slices.Contains(asked, byID)):
		return byID, turn, nil
	case users > 0 && users <= len(asked):
		return asked[len(asked)-users], turn, nil
	}
	return system, 0, nil
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
