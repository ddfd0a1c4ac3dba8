package transcript

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Normalise returns the document as it may go live: no message is streaming
// (it is an error now), no activity is open (it has failed), and in history
// every tool call has one result. A call without one gets the result
// [Interrupted] right after the item with the call; a result that comes too
// late is put there; a result of no call is left out. A model's provider
// refuses a history that is otherwise.
//
// It looks at each list's tail and at the sealed chunks for which fresh is true
// (nil: none); those that were live before were normalised then. Where nothing
// is to be done, d itself is returned; else a changed copy, and notices that
// tell people what was mended. Doing it again changes nothing. New chunks go to
// emit.
func Normalise(d *Document, load Loader, emit Sealer, fresh func(ID) bool) (doc *Document, notices []string, err error) {
	n := normaliser{doc: d, load: load, emit: emit, fresh: fresh}
	for _, step := range []struct {
		list string
		find func(*List, []span) (edits, error)
	}{
		{ListMessages, n.messages},
		{ListActivities, n.activities},
		{ListHistory, n.history},
	} {
		// What is left out at the end may bring sealed records back into the tail.
		for again := true; again; {
			if again, err = n.mend(step.list, step.find); err != nil {
				return nil, nil, fmt.Errorf("list %q: %w", step.list, err)
			}
		}
	}
	return n.doc, n.notices, nil
}

type normaliser struct {
	doc     *Document // the one given until something is mended
	copied  bool
	load    Loader
	emit    Sealer
	fresh   func(ID) bool
	notices []string
}

func (n *normaliser) notice(count int, one, many string) {
	switch {
	case count == 1:
		n.notices = append(n.notices, "1 "+one)
	case count > 1:
		n.notices = append(n.notices, fmt.Sprintf("%d %s", count, many))
	}
}

// edits are changes of a list by the position of a record.
type edits map[int]edit

// edit changes what stands at one position.
type edit struct {
	insert []Record // before the record
	drop   bool     // the record
}

func (e edits) insert(pos int, r Record) {
	at := e[pos]
	at.insert = append(at.insert, r)
	e[pos] = at
}

func (e edits) drop(pos int) {
	at := e[pos]
	at.drop = true
	e[pos] = at
}

// editGap is how far apart edits may be that are made in one splice.
const editGap = 256

// mend makes the edits that find wants, and reports whether there were any.
func (n *normaliser) mend(name string, find func(*List, []span) (edits, error)) (bool, error) {
	l := n.doc.Lists[name]
	if l == nil || l.Records == 0 {
		return false, nil
	}
	spans, err := l.spans(n.load, n.fresh)
	if err != nil {
		return false, err
	}
	found, err := find(l, spans)
	if err != nil || len(found) == 0 {
		return false, err
	}
	if !n.copied {
		n.doc, n.copied = n.doc.Clone(), true
	}
	return true, n.doc.Lists[name].apply(found, n.load, n.emit)
}

// apply makes edits, those that are near each other in one splice.
func (l *List) apply(found edits, load Loader, emit Sealer) error {
	// From the last one on, so that the positions before it stay what they are.
	places := slices.Sorted(maps.Keys(found))
	for end := len(places); end > 0; {
		begin := end - 1
		for begin > 0 && places[begin]-places[begin-1] < editGap {
			begin--
		}
		from, to := places[begin], min(places[end-1]+1, l.Records)
		var with []Record
		pos := from
		for r, err := range l.All(load, from, to) {
			if err != nil {
				return err
			}
			with = append(with, found[pos].insert...)
			if !found[pos].drop {
				with = append(with, r)
			}
			pos++
		}
		if pos == l.Records {
			with = append(with, found[pos].insert...)
		}
		if err := l.Splice(from, to, with, load, emit); err != nil {
			return err
		}
		end = begin
	}
	return nil
}

// span is a run of records to look at: from (inclusive) to (exclusive).
type span struct{ from, to int }

// spans returns where the records are that may need mending, in order.
func (l *List) spans(load Loader, fresh func(ID) bool) ([]span, error) {
	if fresh == nil {
		fresh = func(ID) bool { return false }
	}
	var spans []span
	add := func(from, to int) {
		if last := len(spans) - 1; last >= 0 && spans[last].to >= from {
			spans[last].to = to
			return
		}
		spans = append(spans, span{from, to})
	}
	at := place{index: l.Index, refs: l.Chunks, start: l.Records - l.inlineRecords()}
	// An index chunk that is not fresh names no fresh chunks.
	if first := slices.IndexFunc(l.Index, fresh); first >= 0 {
		for len(at.index) > first {
			if err := at.widen(load); err != nil {
				return nil, err
			}
		}
	}
	pos := at.start
	for i, ref := range at.refs {
		// A giant at the very end is as new as a tail.
		newest := i == len(at.refs)-1 && len(l.Tail) == 0
		if newest || slices.ContainsFunc(ref.chunkIDs(), fresh) {
			add(pos, pos+ref.Records)
		}
		pos += ref.Records
	}
	if len(l.Tail) > 0 {
		add(pos, l.Records)
	}
	return spans, nil
}

func (n *normaliser) messages(l *List, spans []span) (edits, error) {
	found, err := n.states(l, spans, StatusError, StatusStreaming)
	n.notice(len(found), "message was still being written; it is marked as an error now",
		"messages were still being written; they are marked as errors now")
	return found, err
}

func (n *normaliser) activities(l *List, spans []span) (edits, error) {
	found, err := n.states(l, spans, StatusFailed, StatusPending, StatusInProgress)
	n.notice(len(found), "activity was still open; it is marked as failed now",
		"activities were still open; they are marked as failed now")
	return found, err
}

// states finds the records in one of the old states and gives them the new one.
func (n *normaliser) states(l *List, spans []span, now Status, old ...Status) (edits, error) {
	found := edits{}
	for _, s := range spans {
		pos := s.from
		for r, err := range l.All(n.load, s.from, s.to) {
			if err != nil {
				return nil, err
			}
			if mended, ok := withStatus(r, now, old); ok {
				found.insert(pos, mended)
				found.drop(pos)
			}
			pos++
		}
	}
	return found, nil
}

// withStatus returns the record with another status where it has one of the old
// ones; all other bytes stay.
func withStatus(r Record, now Status, old []Status) (Record, bool) {
	if !slices.ContainsFunc(old, func(s Status) bool { return bytes.Contains(r, []byte(s)) }) {
		return nil, false
	}
	p := parser{data: r}
	var from, to int
	err := p.object(func(key string) error {
		start := p.pos
		if key == "status" && p.pos < len(r) && r[p.pos] == '"' {
			s, err := p.text()
			if slices.Contains(old, Status(s)) {
				from, to = start, p.pos
			}
			return err
		}
		return p.skip(0)
	})
	if err != nil || to == 0 {
		return nil, false
	}
	return slices.Concat(r[:from], []byte(`"`+now+`"`), r[to:]), true
}

// toolItem is what matters here of a history item.
type toolItem struct {
	Role       Role   `json:"role"`
	MessageID  string `json:"messageId"`
	ToolCallID string `json:"toolCallId"`
	ToolCalls  []struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"toolCalls"`
}

// readTool reads a history item; it is the zero value for one that has nothing
// to do with tools.
func readTool(r Record) toolItem {
	var item toolItem
	if !bytes.Contains(r, []byte("tool")) || json.Unmarshal(r, &item) != nil {
		return toolItem{}
	}
	return item
}

// openCall is a tool call whose result has not come yet.
type openCall struct {
	id, name string
	message  string // the id of the message it belongs to
	after    int    // the position after its item
	late     bool
}

func (n *normaliser) history(l *List, spans []span) (edits, error) {
	found := edits{}
	var unanswered, unknown, late int
	done := 0 // all before is looked at
	for _, s := range spans {
		from, err := l.groupStart(max(s.from, done), n.load)
		if err != nil {
			return nil, err
		}
		var open []openCall
		pos := max(from, done)
		for r, err := range l.All(n.load, pos, l.Records) {
			if err != nil {
				return nil, err
			}
			item := readTool(r)
			if pos >= s.to && item.Role != RoleTool {
				break
			}
			switch {
			case item.Role == RoleTool:
				at := lastCall(open, item.ToolCallID)
				switch {
				case at < 0:
					found.drop(pos)
					unknown++
				case open[at].late:
					found.drop(pos)
					found.insert(open[at].after, r)
					late++
				}
				if at >= 0 {
					open = slices.Delete(open, at, at+1)
				}
			default:
				for i := range open {
					open[i].late = true
				}
				for _, call := range item.ToolCalls {
					open = append(open, openCall{id: call.ID, name: call.Name, message: item.MessageID, after: pos + 1})
				}
			}
			pos++
		}
		for _, call := range open {
			found.insert(call.after, interrupted(call))
		}
		unanswered += len(open)
		done = pos
	}
	n.notice(unanswered, "tool call had no result; it is marked as interrupted",
		"tool calls had no result; they are marked as interrupted")
	n.notice(late, "result stood too far from its tool call; it was moved there",
		"results stood too far from their tool calls; they were moved there")
	n.notice(unknown, "result belonged to no tool call; it was left out",
		"results belonged to no tool call; they were left out")
	return found, nil
}

// groupStart steps back from a tool's result to the item with its call.
func (l *List) groupStart(pos int, load Loader) (int, error) {
	for ; pos > 0; pos-- {
		var item toolItem
		for r, err := range l.All(load, pos, pos+1) {
			if err != nil {
				return 0, err
			}
			item = readTool(r)
		}
		if item.Role != RoleTool {
			break
		}
	}
	return pos, nil
}

func lastCall(open []openCall, id string) int {
	for i := len(open) - 1; i >= 0; i-- {
		if open[i].id == id {
			return i
		}
	}
	return -1
}

func interrupted(call openCall) Record {
	// Strings always encode.
	r, _ := HistoryItem{Role: RoleTool, Content: Interrupted, ToolCallID: call.id, Name: call.name, MessageID: call.message}.AppendJSON(nil)
	return r
}

// DropContinuation returns the document without the ids by which a model's
// provider continues a conversation of its own: the key "continuation" in the
// header's providerState and in the objects directly in it. A copy must not
// share them with what it was copied from. Where there are none, d itself is
// returned.
func DropContinuation(d *Document) *Document {
	header, changed := without(d.Header, func(key string, v json.RawMessage) (json.RawMessage, bool) {
		if key != providerStateKey {
			return v, false
		}
		return without(v, func(key string, v json.RawMessage) (json.RawMessage, bool) {
			if key == continuationKey {
				return nil, true
			}
			return without(v, func(key string, v json.RawMessage) (json.RawMessage, bool) {
				if key == continuationKey {
					return nil, true
				}
				return v, false
			})
		})
	})
	if !changed {
		return d
	}
	c := d.Clone()
	c.Header = header
	return c
}

const continuationKey = "continuation"

// without returns an object with its members as change leaves them: nil drops
// one. The rest keeps its bytes. A value that is no object is not changed.
func without(v json.RawMessage, change func(string, json.RawMessage) (json.RawMessage, bool)) (json.RawMessage, bool) {
	if !isObject(v) {
		return v, false
	}
	dst, changed := []byte{'{'}, false
	p := parser{data: v}
	err := p.object(func(key string) error {
		value, err := p.value()
		if err != nil {
			return err
		}
		value, did := change(key, value)
		changed = changed || did
		if value != nil {
			if len(dst) > 1 {
				dst = append(dst, ',')
			}
			dst = append(append(AppendText(dst, key), ':'), value...)
		}
		return nil
	})
	if err != nil || !changed {
		return v, false
	}
	return append(dst, '}'), true
}
