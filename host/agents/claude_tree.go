package agents

import (
	"crypto/sha256"
	"encoding/json"
)

// claudeKey stands for the uuid of a record, whatever its length.
type claudeKey [16]byte

func keyOf(uuid string) claudeKey {
	if uuid == "" {
		return claudeKey{}
	}
	sum := sha256.Sum256([]byte(uuid))
	return claudeKey(sum[:16])
}

// claudeTree is how the records of a conversation hang together: it tells which
// of them belong to turns that a person took back. Each record costs about 100
// bytes.
type claudeTree struct {
	nodes map[claudeKey]*claudeNode
	last  claudeKey // the last record of the chain in order of the file
	leaf  claudeKey // that the agent itself names
}

type claudeNode struct {
	parent   claudeKey // also across a compaction
	before   claudeKey // in order of the file
	turn     bool      // begins a turn of a person
	children bool
	state    claudeState
}

type claudeState byte

const (
	claudeOpen claudeState = iota
	claudeWalked
	claudeKept
	claudeDropped
)

func (t *claudeTree) add(object json.RawMessage) {
	var r claudeRecord
	decode(object, &r)
	if r.Type == "last-prompt" {
		t.leaf = keyOf(r.Leaf)
		return
	}
	if !r.inChain() || r.IsSidechain {
		return
	}
	key := keyOf(r.UUID)
	if t.nodes == nil {
		t.nodes = map[claudeKey]*claudeNode{}
	}
	if t.nodes[key] != nil {
		return // the agent ignores repetitions, too
	}
	parent := r.Parent
	if parent == "" {
		parent = r.LogicalParent
	}
	_, turn := r.prompt()
	t.nodes[key] = &claudeNode{parent: keyOf(parent), before: t.last, turn: turn}
	t.last = key
}

// up is the record that one hangs on; nil for a first one. Where that one is
// lost, as a damaged line is, it is the one before in the file.
func (t *claudeTree) up(n *claudeNode) (to *claudeNode, lost bool) {
	if p := t.nodes[n.parent]; p != nil || n.parent == (claudeKey{}) {
		return p, false
	}
	return t.nodes[n.before], true
}

// settle finds the live branch: the agent's rules for the leaf, and from there
// up. A turn beside it is dropped with all that follows on it; the results of
// parallel tool calls hang beside it as well, and stay.
func (t *claudeTree) settle() {
	for _, n := range t.nodes {
		if p, _ := t.up(n); p != nil {
			p.children = true
		}
	}
	at := t.last
	if n := t.nodes[t.leaf]; n != nil && !n.children {
		at = t.leaf
	}
	for n := t.nodes[at]; n != nil && n.state == claudeOpen; n, _ = t.up(n) {
		n.state = claudeKept
	}
	var walked []*claudeNode
	for _, n := range t.nodes {
		walked = walked[:0]
		for n != nil && n.state == claudeOpen && !n.turn {
			n.state = claudeWalked
			walked = append(walked, n)
			n, _ = t.up(n)
		}
		state := claudeKept
		if n != nil && (n.state == claudeOpen || n.state == claudeDropped) {
			n.state, state = claudeDropped, claudeDropped
		}
		for _, w := range walked {
			w.state = state
		}
	}
}

// dropped reports whether a record belongs to a turn that was taken back.
func (t *claudeTree) dropped(uuid string) bool {
	n := t.nodes[keyOf(uuid)]
	return n != nil && n.state == claudeDropped
}
