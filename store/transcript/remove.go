package transcript

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
)

// Removed says what [RemoveMessages] did.
type Removed struct {
	Messages   int
	Activities int // of those messages
	Items      int // of history, the results among them that Results counts
	// Results counts the results of tools that went with their calls, though their
	// own messages stay.
	Results int
	// Interrupted counts the tool calls that stay without their results: they have
	// the result [Interrupted] now.
	Interrupted int
	// Compacted counts the messages that had been compacted: what the model was
	// given in their place stays.
	Compacted int
}

// Notices tell people what was done beside taking the messages out.
func (r Removed) Notices() []string {
	var n normaliser
	n.notice(r.Results, "result went with its tool call", "results went with their tool calls")
	n.notice(r.Interrupted, "tool call lost its result; it is marked as interrupted",
		"tool calls lost their results; they are marked as interrupted")
	n.notice(r.Compacted, "message had been compacted: the model's summary may still tell of it",
		"messages had been compacted: the model's summary may still tell of them")
	return n.notices
}

// RemoveMessages takes the messages at some indices out of a conversation, with
// their activities and their share of history: the items with a message's id,
// and of those without any the ones that stand where the message does, counted
// by what users said from the end. The indices are ascending, each once, and
// within the list; others are an error. What then is left of a tool call
// without its result gets the result [Interrupted], a result without its call
// goes as well, so that every provider takes the history. Of messages that were
// compacted the history stays, as it is one piece. What the provider keeps of
// the conversation (providerState) is dropped: it knows the messages.
//
// The document is changed; after an error it is as it was. New chunks go to
// emit, and load has to find them.
func RemoveMessages(d *Document, load Loader, emit Sealer, indices []int) (Removed, error) {
	r := remover{doc: d.Clone(), load: load, emit: emit, indices: indices, seed: maphash.MakeSeed()}
	if err := r.check(); err != nil {
		return Removed{}, err
	}
	if len(indices) == 0 {
		return Removed{}, nil
	}
	for _, step := range []func() error{r.messages, r.activities, r.history, r.header} {
		if err := step(); err != nil {
			return Removed{}, fmt.Errorf("remove messages: %w", err)
		}
	}
	for _, change := range []struct {
		list  string
		edits edits
	}{{ListMessages, r.gone}, {ListActivities, r.goneActivities}, {ListHistory, r.mended}} {
		if err := r.list(change.list).apply(change.edits, load, emit); err != nil {
			return Removed{}, fmt.Errorf("remove messages: list %q: %w", change.list, err)
		}
	}
	*d = *r.doc
	return r.done, nil
}

type remover struct {
	doc     *Document
	load    Loader
	emit    Sealer
	indices []int
	seed    maphash.Seed

	compacted int             // so many of the first messages
	ids       map[string]bool // of the messages that go
	live      map[string]bool // of those among them that were not compacted
	before    map[string]bool // of the messages right before
	firstLive int             // the first index that was not compacted; -1: none

	gone, goneActivities, mended edits
	done                         Removed
}

// list is a list of the document; where it has none it gets none.
func (r *remover) list(name string) *List {
	if l := r.doc.Lists[name]; l != nil {
		return l
	}
	return &List{}
}

func (r *remover) check() error {
	n := r.list(ListMessages).Records
	for i, index := range r.indices {
		switch {
		case index < 0 || index >= n:
			return fmt.Errorf("remove message %d: there are %d", index, n)
		case i > 0 && index <= r.indices[i-1]:
			return fmt.Errorf("remove message %d: it is not in order", index)
		}
	}
	return nil
}

// shown is what matters here of a message.
type shown struct {
	ID      string `json:"id"`
	Role    Role   `json:"role"`
	Content string `json:"content"`
}

// neighbours is how many messages before those that go are looked at to find
// where in the other lists the share of what goes begins: not each has one.
const neighbours = 16

// messages finds out whom the messages that go are.
func (r *remover) messages() error {
	r.compacted = CompactionOf(r.doc.Header).Messages()
	r.ids, r.live, r.before = map[string]bool{}, map[string]bool{}, map[string]bool{}
	r.gone, r.firstLive = edits{}, -1
	l := r.list(ListMessages)
	first := r.indices[0]
	for m, err := range decoded[shown](l, r.load, max(0, first-neighbours), first) {
		if err != nil {
			return err
		}
		r.before[m.ID] = true
	}
	for i := 0; i < len(r.indices); { // a run of neighbours at a time
		from, to := r.indices[i], r.indices[i]+1
		for i++; i < len(r.indices) && r.indices[i] == to; i++ {
			to++
		}
		pos := from
		for m, err := range decoded[shown](l, r.load, from, to) {
			if err != nil {
				return err
			}
			r.gone.drop(pos)
			r.ids[m.ID] = true
			if pos >= r.compacted {
				r.live[m.ID] = true
				if r.firstLive < 0 {
					r.firstLive = pos
				}
			} else {
				r.done.Compacted++
			}
			pos++
		}
	}
	r.done.Messages = len(r.indices)
	for _, ids := range []map[string]bool{r.ids, r.live, r.before} {
		delete(ids, "")
	}
	return nil
}

// belonging is what an activity or an item of history says of its message.
type belonging struct {
	MessageID string `json:"messageId"`
}

// start is where in a list that follows the messages the share of those that go
// begins, at the earliest.
func (r *remover) start(l *List) (int, error) {
	if len(r.before) == 0 {
		return 0, nil
	}
	last, err := l.lastIndex(r.load, func(rec Record) bool {
		var b belonging
		return json.Unmarshal(rec, &b) == nil && r.before[b.MessageID]
	})
	return last + 1, err
}

func (r *remover) activities() error {
	r.goneActivities = edits{}
	l := r.list(ListActivities)
	pos, err := r.start(l)
	if err != nil {
		return err
	}
	for b, err := range decoded[belonging](l, r.load, pos, l.Records) {
		if err != nil {
			return err
		}
		if r.ids[b.MessageID] {
			r.goneActivities.drop(pos)
		}
		pos++
	}
	r.done.Activities = len(r.goneActivities)
	return nil
}

// piece is what is kept of an item of history while all of them are looked at.
type piece struct {
	toolItem
	said uint64 // what it says, as a hash; only of an answer without its message's id
}

func (r *remover) history() error {
	r.mended = edits{}
	if r.firstLive < 0 {
		return nil
	}
	l := r.list(ListHistory)
	start, err := r.start(l)
	if err != nil {
		return err
	}
	// The result of a call before may be among what goes.
	if start, err = l.groupStart(start, r.load); err != nil {
		return err
	}
	var pieces []piece
	unnamed := false
	type item struct {
		toolItem
		Content string `json:"content"`
	}
	for in, err := range decoded[item](l, r.load, start, l.Records) {
		if err != nil {
			return err
		}
		p := piece{toolItem: in.toolItem}
		if p.MessageID == "" {
			unnamed = true
			if p.Role == RoleAssistant {
				p.said = maphash.String(r.seed, in.Content)
			}
		}
		pieces = append(pieces, p)
	}
	goes := make([]bool, len(pieces))
	for i, p := range pieces {
		goes[i] = r.live[p.MessageID]
	}
	if unnamed {
		turns, err := r.turns()
		if err != nil {
			return err
		}
		turns.mark(pieces, goes)
	}
	type madeCall struct {
		openCall
		goes bool
	}
	calls := map[string]madeCall{} // the last one of each id
	for i, p := range pieces {
		if p.Role == RoleTool {
			call, known := calls[p.ToolCallID]
			switch {
			case known && call.goes && !goes[i]:
				goes[i] = true
				r.done.Results++
			case known && !call.goes && goes[i]:
				r.mended.insert(start+i, interrupted(call.openCall))
				r.done.Interrupted++
			}
		}
		for _, c := range p.ToolCalls {
			calls[c.ID] = madeCall{openCall{id: c.ID, name: c.Name, message: p.MessageID}, goes[i]}
		}
		if goes[i] {
			r.mended.drop(start + i)
			r.done.Items++
		}
	}
	return nil
}

// turnShare is what of one turn goes: of what the user said and of what the agent
// answered.
type turnShare struct {
	user          bool
	agents, going int
	said          []uint64 // what the messages say that go, as hashes
}

// turnShares lists the turns from the one on in which the first message stands
// that goes.
type turnShares []turnShare

// turns reads the messages from that turn on.
func (r *remover) turns() (turnShares, error) {
	l := r.list(ListMessages)
	from := r.firstLive
	for ; from > 0; from-- {
		user := false
		for m, err := range decoded[shown](l, r.load, from, from+1) {
			if err != nil {
				return nil, err
			}
			user = m.Role == RoleUser
		}
		if user {
			break
		}
	}
	var turns turnShares
	pos := from
	for m, err := range decoded[shown](l, r.load, from, l.Records) {
		if err != nil {
			return nil, err
		}
		if m.Role == RoleUser || turns == nil {
			turns = append(turns, turnShare{})
		}
		t := &turns[len(turns)-1]
		goes := r.gone[pos].drop && pos >= r.compacted
		switch {
		case m.Role == RoleUser:
			t.user = goes
		case goes:
			t.agents, t.going = t.agents+1, t.going+1
			t.said = append(t.said, maphash.String(r.seed, m.Content))
		default:
			t.agents++
		}
		pos++
	}
	return turns, nil
}

// mark finds the items without an id of their message that go. History may have
// been shortened at its front, so the turns are counted from the end.
func (turns turnShares) mark(pieces []piece, goes []bool) {
	turn := len(turns) - 1
	for i := len(pieces) - 1; i >= 0 && turn >= 0; i-- {
		p, t := pieces[i], turns[turn]
		if p.MessageID == "" {
			switch p.Role {
			case RoleUser:
				goes[i] = t.user
			case RoleAssistant:
				goes[i] = t.going > 0 && (t.going == t.agents || slices.Contains(t.said, p.said))
			case RoleTool:
				goes[i] = t.going > 0 && t.going == t.agents
			}
		}
		if p.Role == RoleUser {
			turn--
		}
	}
}

// header drops what the provider knows, and counts the compacted messages anew.
func (r *remover) header() error {
	header, _ := without(r.doc.Header, func(key string, v json.RawMessage) (json.RawMessage, bool) {
		switch key {
		case providerStateKey:
			return nil, true
		case compactionKey:
			return without(v, func(key string, v json.RawMessage) (json.RawMessage, bool) {
				if key != "range" || r.done.Compacted == 0 {
					return v, false
				}
				return without(v, func(key string, v json.RawMessage) (json.RawMessage, bool) {
					if key != "end" {
						return v, false
					}
					return strconv.AppendInt(nil, int64(r.compacted-r.done.Compacted), 10), true
				})
			})
		}
		return v, false
	})
	r.doc.Header = header
	return nil
}

const (
	providerStateKey = "providerState"
	// compactionKey is the header's word of a compaction: of which messages the
	// model sees a summary.
	compactionKey = "compaction"
)
