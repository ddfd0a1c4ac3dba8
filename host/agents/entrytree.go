package agents

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/google/uuid"

	"sess/store/transcript"
)

// The entries of pi and of OpenClaw have one form: each is one JSON object on a
// line and names its parent, so a conversation is a tree, of which one branch is
// the one that goes on. The facts are those of pi 0.73 (version 1 to 3 of the
// form) and of OpenClaw 2026.7 (3) and 2026.9 (4).

// The types of entries that matter here.
const (
	entrySession       = "session" // the header
	entryMessage       = "message"
	entryCustomMessage = "custom_message"
	entryCompaction    = "compaction"
	entryBranchSummary = "branch_summary"
	entryReset         = "reset" // OpenClaw: the model sees nothing of what is before
	entryLeaf          = "leaf"  // OpenClaw: another entry is the last one now
	entryLabel         = "label"
	entrySessionInfo   = "session_info"
	entryModelChange   = "model_change"
)

// entryHead is what of an entry decides where it stands. What has another type
// than expected is zero.
type entryHead struct {
	Type    string `json:"type"`
	Version *int   `json:"version"`
	ID      string `json:"id"`
	// ParentID is nil where the entry has none of that name, and null in a root.
	ParentID  json.RawMessage `json:"parentId"`
	TargetID  string          `json:"targetId"`
	Mode      string          `json:"appendMode"`
	FirstKept string          `json:"firstKeptEntryId"`
	FirstIdx  *int            `json:"firstKeptEntryIndex"` // in version 1
	Name      string          `json:"name"`
	Label     string          `json:"label"`
	Timestamp string          `json:"timestamp"`
	CWD       string          `json:"cwd"`
	Provider  string          `json:"provider"`
	ModelID   string          `json:"modelId"`
	Message   struct {
		Role     string `json:"role"`
		Provider string `json:"provider"`
		Model    string `json:"model"`
	} `json:"message"`
}

// parent is the id of the parent; "" for a root.
func (h *entryHead) parent() string {
	var id string
	decode(h.ParentID, &id)
	return id
}

// model is what the entry says of the model: provider/model, or nothing.
func (h *entryHead) model() string {
	switch {
	case h.Type == entryModelChange:
		return entryModel(h.Provider, h.ModelID)
	case h.Type == entryMessage && h.Message.Role == "assistant" && h.Message.Provider != "openclaw":
		// What OpenClaw says itself has a name of a model, too.
		return entryModel(h.Message.Provider, h.Message.Model)
	}
	return ""
}

// entryHeader is the first entry of a conversation.
type entryHeader struct {
	Version   int // 1: entries have no ids and follow one another
	ID        string
	Folder    string
	CreatedAt time.Time
}

// header reads a header; false where the entry is none.
func (h *entryHead) header() (entryHeader, bool) {
	if h.Type != entrySession || h.ID == "" {
		return entryHeader{}, false
	}
	header := entryHeader{Version: 1, ID: h.ID, Folder: h.CWD, CreatedAt: when(h.Timestamp)}
	if h.Version != nil {
		header.Version = *h.Version
	}
	return header, true
}

// maxSalvage is in how many places of a broken line a whole entry is looked for,
// from its end.
const maxSalvage = 64

// entryObjects are the objects of a line, as [Objects] has them. Where it has
// none, since an entry was only written in half and the next one came behind it
// on the same line, that next one is what there is, and mended is true.
func entryObjects(line []byte) (objects []json.RawMessage, mended, ok bool) {
	if objects, ok = Objects(line); ok {
		return objects, false, true
	}
	line = bytes.TrimSpace(line)
	end := len(line)
	var found json.RawMessage
	for range maxSalvage {
		at := bytes.LastIndex(line[:end], []byte(`{"type":"`))
		if at < 1 {
			break
		}
		// A block of a message begins alike, but what is left from there on is not
		// one value.
		var h entryHead
		if rest := line[at:]; json.Valid(rest) {
			if decode(rest, &h); h.ID != "" {
				found = rest
			}
		}
		end = at
	}
	if found == nil {
		return nil, false, false
	}
	return []json.RawMessage{found}, true, true
}

type entryNode struct {
	id, parent string
	line       int    // from 0 on
	object     int    // which one of the line
	lost       bool   // a line that cannot be read, after which more entries come
	starts     bool   // the model's view begins anew with it: a compaction or a reset
	firstKept  string // of such an entry: from here on the model still sees what is before; may be empty
}

// entryRules are those by which an agent finds its way in the tree.
type entryRules int

const (
	// piRules: the last line of the file is where the conversation goes on.
	piRules entryRules = iota
	// clawRules: only entries of known types are, that do not stand aside, and leaf
	// entries choose another one. An entry whose parent is not there, or before the
	// last reset, follows the one that was the last.
	clawRules
)

// entryTree is the shape of a conversation. It holds the ids of its entries, not
// what they say, but for compactions. The zero value is empty and has pi's rules.
// Not safe for concurrent use.
type entryTree struct {
	rules   entryRules
	header  entryHeader // zero where there is none yet
	name    string      // as the last session_info says
	model   string      // as the last entry says
	labels  map[string]string
	starts  map[string]entryItem // what compactions and resets say, by their ids
	nodes   []entryNode
	byID    map[string]int // index in nodes, from 1 on
	leaf    int            // the last entry of the active branch, as in byID; 0 is none
	reset   int            // the last reset, as in byID
	lines   int
	answers int // messages of the model
}

// add takes the next line and says whether it could be read, and whether only
// with mending.
func (t *entryTree) add(line []byte) (mended, ok bool) {
	objects, mended, ok := entryObjects(line)
	if TooLong(line) > 0 {
		objects, ok = nil, false
	}
	for i, object := range objects {
		if !t.addObject(object, t.lines, i) {
			ok = false
		}
	}
	if !ok && len(objects) == 0 {
		t.nodes = append(t.nodes, entryNode{line: t.lines, lost: true})
	}
	t.lines++
	return mended, ok
}

// addObject takes an entry; false where it is none.
func (t *entryTree) addObject(object json.RawMessage, line, at int) bool {
	var h entryHead
	decode(object, &h)
	switch h.Type {
	case "":
		return false
	case entrySession:
		if t.header.ID == "" && len(t.nodes) == 0 {
			t.header, _ = h.header()
		}
		return h.ID != ""
	}
	if t.byID == nil {
		t.byID, t.labels, t.starts = map[string]int{}, map[string]string{}, map[string]entryItem{}
	}
	if t.rules == clawRules && h.Type == entryLeaf {
		return t.move(&h)
	}
	n := entryNode{id: h.ID, parent: h.parent(), line: line, object: at, firstKept: h.FirstKept}
	aside := t.rules == clawRules && (h.Mode == "side" || !clawMoves(h.Type))
	if t.rules == clawRules && !aside && t.leaf != 0 {
		switch parent := t.byID[n.parent]; {
		case parent != 0 && parent >= t.reset: // it is there
		case n.parent == "" && h.ParentID != nil && t.reset == 0: // another root
		default:
			n.parent = t.nodes[t.leaf-1].id
		}
	}
	if t.header.Version == 1 {
		// The header is entry 0, as an old compaction counts.
		n.id, n.parent = linearID(len(t.nodes)+1), ""
		if len(t.nodes) > 0 {
			n.parent = linearID(len(t.nodes))
		}
		if h.FirstIdx != nil {
			n.firstKept = linearID(*h.FirstIdx)
		}
	}
	if n.id == "" {
		return false
	}
	switch h.Type {
	case entryMessage:
		if h.Message.Role == "assistant" {
			t.answers++
		}
	case entrySessionInfo:
		t.name = h.Name
	case entryLabel:
		if h.Label == "" {
			delete(t.labels, h.TargetID)
		} else {
			t.labels[h.TargetID] = h.Label
		}
	case entryCompaction, entryReset:
		n.starts = true
		t.starts[n.id], _ = parseEntryItem(object)
	}
	if model := h.model(); model != "" {
		t.model = model
	}
	t.nodes = append(t.nodes, n)
	t.byID[n.id] = len(t.nodes)
	if !aside {
		t.leaf = len(t.nodes)
	}
	if h.Type == entryReset {
		t.reset = len(t.nodes)
	}
	return true
}

// move lets a leaf entry choose where the conversation goes on. What names the
// leaf as its parent follows what that chose.
func (t *entryTree) move(h *entryHead) bool {
	target := t.byID[h.TargetID]
	switch {
	case h.ID == "":
		return false
	case h.TargetID != "" && target == 0, target < t.reset:
		target = t.leaf // it is not to be had
	}
	t.leaf = target
	if target != 0 {
		t.byID[h.ID] = target
	}
	return true
}

// clawMoves reports whether an entry of a type is one that a conversation can go
// on from.
func clawMoves(kind string) bool {
	switch kind {
	case entryMessage, entryCustomMessage, entryCompaction, entryReset, entryBranchSummary, entryModelChange, entryLabel, entrySessionInfo, "thinking_level_change", "custom":
		return true
	}
	return false
}

func linearID(i int) string { return fmt.Sprintf("entry-%d", i) }

// up is the parent of a node, as in byID; 0 for a root. Where the parent is
// lost, since the line it stood on cannot be read, joined is true and it is the
// entry before that line. Where there is no such line, what was before is cut
// off, as it is for the agent itself.
func (t *entryTree) up(at int) (parent int, joined bool) {
	n := &t.nodes[at-1]
	if n.parent == "" {
		return 0, false
	}
	if parent := t.byID[n.parent]; parent != 0 {
		return parent, false
	}
	lost := false
	for before := at - 1; before > 0; before-- {
		switch b := &t.nodes[before-1]; {
		case b.lost:
			lost = true
		case lost:
			return before, true
		}
	}
	return 0, false
}

// entryBranch is the active branch of a tree.
type entryBranch struct {
	tree   *entryTree
	on     []bool // of the tree's nodes
	joined int    // entries on it whose parent is lost
	// cut is the parent that its first entry names and that is not there. Mostly
	// empty.
	cut string
	// The node that the model's view begins at, after what start says, which is
	// said in node begun. Both are -1 where nothing begins it anew.
	kept, begun int
	start       entryItem
}

// branch walks from the active entry to the root.
func (t *entryTree) branch() *entryBranch {
	b := &entryBranch{tree: t, on: make([]bool, len(t.nodes)), kept: -1, begun: -1}
	var firstKept string
	for at := t.leaf; at != 0 && !b.on[at-1]; {
		n := &t.nodes[at-1]
		b.on[at-1] = true
		switch {
		case b.begun < 0 && n.starts: // the last one counts
			b.begun, b.kept, b.start, firstKept = at-1, at-1, t.starts[n.id], n.firstKept
		case firstKept != "" && n.id == firstKept:
			b.kept = at - 1
		}
		parent, joined := t.up(at)
		if joined {
			b.joined++
		}
		if parent == 0 {
			b.cut = n.parent
		}
		at = parent
	}
	return b
}

// entryWalker goes through the lines that a tree was made of a second time and
// tells what its active branch says. All of that is there, also what the model
// no longer sees: what it sees stands after the last compaction or reset, which
// is put where the model's view begins.
type entryWalker struct {
	branch *entryBranch
	node   int // the next one
	line   int
}

// add takes the next line, and calls f with what the entries on it say that are
// on the branch.
func (w *entryWalker) add(line []byte, f func(entryItem) error) error {
	t := w.branch.tree
	var objects []json.RawMessage
	for ; w.node < len(t.nodes) && t.nodes[w.node].line == w.line; w.node++ {
		n := t.nodes[w.node]
		if n.lost {
			continue
		}
		if objects == nil {
			objects, _, _ = entryObjects(line)
		}
		if n.object >= len(objects) {
			return ErrRewritten
		}
		if w.node == w.branch.kept {
			if err := f(w.branch.start); err != nil {
				return err
			}
		}
		if !w.branch.on[w.node] || w.node == w.branch.begun {
			continue
		}
		item, ok := parseEntryItem(objects[n.object])
		if t.header.Version == 1 {
			item.id = n.id
		}
		if item.id != n.id {
			return ErrRewritten
		}
		if !ok {
			continue
		}
		if label := t.labels[n.id]; label != "" {
			item.notes = append(item.notes, "label: "+label)
		}
		if err := f(item); err != nil {
			return err
		}
	}
	w.line++
	return nil
}

// entryLines are the lines of a conversation, as [Lines] gives them.
type entryLines = iter.Seq2[Line, error]

// ErrRewritten is a conversation that its agent wrote anew while it was read.
var ErrRewritten = errors.New("the agent wrote the conversation anew while it was read")

// readEntries reads a conversation into w. It goes through the lines twice, and
// lines gives the same ones both times.
func readEntries(ctx context.Context, rules entryRules, lines func(half func(int)) entryLines, w *Writer) (*entryTree, error) {
	t := &entryTree{rules: rules}
	half := func(number int) {
		w.Note("line %d, the last one, is not complete yet: it was left out", number)
	}
	for line, err := range lines(half) {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = w.Record(transcript.ListLines, line.Bytes)
		}
		if err != nil {
			return nil, err
		}
		mended, ok := t.add(line.Bytes)
		switch {
		case mended:
			w.Note("on line %d an entry was written in half, and behind it the next one: that one is read, which the agent itself does not", line.Number)
		case !ok && line.TooLong == 0:
			w.Skip(line.Number)
		}
	}
	b := t.branch()
	if b.cut != "" {
		w.Note("what was before entry %s is lost: the agent itself does not see it either", b.cut)
	}
	if b.joined > 0 {
		w.Note("entries whose predecessor cannot be read follow the one before it: %d", b.joined)
	}
	walk := entryWalker{branch: b}
	for line, err := range lines(nil) {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil && line.TooLong > 0 {
			err = w.TooLong(line)
		}
		if err == nil {
			err = walk.add(line.Bytes, func(item entryItem) error { return item.write(w) })
		}
		if err != nil {
			return nil, err
		}
	}
	if walk.node < len(t.nodes) {
		return nil, ErrRewritten
	}
	return t, nil
}

// entryCopy writes the entries of a document anew: all that can be read, in
// their order, so that all branches and the active one stay. Each is as it was,
// but for a parent that is lost: then it names the one before.
type entryCopy struct {
	tree   *entryTree
	notes  []string
	parent map[int]json.RawMessage // of nodes that name another one than before
	only   *entryBranch            // nil: all branches
}

func copyEntries(ctx context.Context, rules entryRules, doc *transcript.Document, load transcript.Loader) (*entryCopy, error) {
	c := &entryCopy{tree: &entryTree{rules: rules}, parent: map[int]json.RawMessage{}}
	var bad, mended int
	for line, err := range documentLines(doc, load) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		salvaged, ok := c.tree.add(line)
		if salvaged {
			mended++
		}
		if !ok {
			bad++
		}
	}
	if c.tree.header.Version != 1 {
		for at, n := range c.tree.nodes {
			if parent, joined := c.tree.up(at + 1); joined && !n.lost {
				c.parent[at] = text(c.tree.nodes[parent-1].id)
			}
		}
	}
	if bad > 0 {
		c.notes = append(c.notes, fmt.Sprintf("lines that cannot be read were left out: %d", bad))
	}
	if mended > 0 {
		c.notes = append(c.notes, fmt.Sprintf("lines with half an entry before a whole one, of which the whole one was kept: %d", mended))
	}
	if n := len(c.parent); n > 0 {
		c.notes = append(c.notes, fmt.Sprintf("entries whose predecessor is lost were joined to the one before: %d", n))
	}
	return c, nil
}

// straighten leaves out what is not on the active branch, so that it does not
// take an agent's rules to find that.
func (c *entryCopy) straighten() {
	c.only, c.parent = c.tree.branch(), map[int]json.RawMessage{}
	last, left := json.RawMessage("null"), 0
	for at, n := range c.tree.nodes {
		switch {
		case n.lost:
		case c.only.on[at]:
			c.parent[at], last = last, text(n.id)
		default:
			left++
		}
	}
	if left > 0 {
		c.notes = append(c.notes, fmt.Sprintf("entries on other branches stay in the snapshot only: %d", left))
	}
}

// each calls f with every entry and its node.
func (c *entryCopy) each(ctx context.Context, doc *transcript.Document, load transcript.Loader, f func(json.RawMessage, *entryNode) error) error {
	line, node := 0, 0
	for record, err := range documentLines(doc, load) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		var objects []json.RawMessage
		for ; node < len(c.tree.nodes) && c.tree.nodes[node].line == line; node++ {
			n := &c.tree.nodes[node]
			if n.lost || c.only != nil && !c.only.on[node] {
				continue
			}
			if objects == nil {
				objects, _, _ = entryObjects(record)
			}
			object := objects[n.object]
			if parent, ok := c.parent[node]; ok {
				if object, err = edit(object, func(key string, value json.RawMessage) json.RawMessage {
					switch {
					case key == "parentId":
						return parent
					case key == "appendMode" && c.only != nil:
						return nil
					}
					return value
				}); err != nil {
					return err
				}
			}
			if err := f(object, n); err != nil {
				return err
			}
		}
		line++
	}
	return nil
}

// documentLines are the lines of a document.
func documentLines(doc *transcript.Document, load transcript.Loader) iter.Seq2[transcript.Record, error] {
	l := doc.Lists[transcript.ListLines]
	if l == nil {
		l = &transcript.List{}
	}
	return l.All(load, 0, l.Records)
}

// writeLine writes a line of JSON Lines.
func writeLine(w io.Writer, line []byte) error {
	_, err := w.Write(append(line[:len(line):len(line)], '\n'))
	return err
}

// freeID is an id for one more entry.
func (t *entryTree) freeID() string {
	for {
		if id := uuid.NewString()[:8]; t.byID[id] == 0 {
			return id
		}
	}
}
