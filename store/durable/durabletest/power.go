package durabletest

import (
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"sess/store/durable"
)

// Power watches a folder on the real disk, and tells what of it a power cut
// would leave. Made by [NewPower]. Safe for concurrent use.
//
// What a file holds is sure as of its last sync. What was written to it later
// may be there in part, as zeros, or not at all. Which names a folder has is sure
// as of its last sync; each later change may have happened or not, in the order
// of the changes to one name. A rename is one change, also from one folder to
// another: it is sure when either of them is synced, as file systems with a
// journal have it.
type Power struct {
	dir string

	mu   sync.Mutex // guards root and seq, and makes each change and its note one step
	root *node
	seq  int
}

// node is a file or a folder.
type node struct {
	now, sure []byte // of a file: its content, and that of its last sync

	names   map[string]*node // of a folder, as of its last sync; nil for a file
	changes []*change        // since then, oldest first
}

// change is what became of one name in a folder.
type change struct {
	name string
	to   *node   // nil: the name went
	pair *change // of a rename, the change of the other name
	sure bool    // it is durable
	seq  int     // its place among all changes; the new name of a rename is before the old
}

func newFolder() *node { return &node{names: map[string]*node{}} }

// NewPower begins to watch dir. What lies there is taken to be durable.
func NewPower(dir string) (*Power, error) {
	p := &Power{dir: dir, root: newFolder()}
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		n := newFolder()
		if !e.IsDir() {
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			n = &node{now: data, sure: data}
		}
		p.lookup(filepath.Dir(name)).names[e.Name()] = n
		return nil
	})
	return p, err
}

// Open is a durable.OpenFunc for the folders below the one that is watched.
func (p *Power) Open(dir string) (durable.FS, error) {
	inner, err := durable.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.root
	rel, err := filepath.Rel(p.dir, inner.Dir())
	if err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(filepath.ToSlash(rel), "/") {
		next := at.get(name)
		if name == "." {
			next = at
		}
		if next == nil { // just made, durably
			next = newFolder()
			at.names[name] = next
		}
		at = next
	}
	return &powerFS{FS: inner, p: p}, nil
}

// lookup finds a whole path; nil where it is not known. p.mu is held.
func (p *Power) lookup(name string) *node {
	rel, err := filepath.Rel(p.dir, name)
	if err != nil {
		return nil
	}
	at := p.root
	for part := range strings.SplitSeq(filepath.ToSlash(rel), "/") {
		if part == "." {
			continue
		}
		if at = at.get(part); at == nil {
			return nil
		}
	}
	return at
}

// get is what a name stands for now.
func (n *node) get(name string) *node {
	for _, c := range slices.Backward(n.changes) {
		if c.name == name {
			return c.to
		}
	}
	return n.names[name]
}

// change notes a change of a folder. p.mu is held.
func (p *Power) change(folder *node, c change) *change {
	p.seq++
	c.seq = p.seq
	folder.changes = append(folder.changes, &c)
	return &c
}

// syncNames makes the names of a folder sure.
func (n *node) syncNames() {
	for _, c := range n.changes {
		c.sure = true
		if c.pair != nil {
			c.pair.sure = true
		}
		if c.to == nil {
			delete(n.names, c.name)
		} else {
			n.names[c.name] = c.to
		}
	}
	n.changes = nil
}

// Cut writes into the folder dir, which must not exist, what is left when the
// power goes now. What happens to all that was not synced is up to rnd.
func (p *Power) Cut(dir string, rnd *rand.Rand) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Every cut has a habit, so that the extremes come up as well as mixtures.
	c := cut{rnd: rnd, names: habit(rnd), content: habit(rnd), happened: map[*change]bool{}}
	c.decide(p.root)
	return c.write(p.root, dir)
}

// cut is one power cut: how likely a change of a name, and what was written to a
// file, survives.
type cut struct {
	rnd            *rand.Rand
	names, content float64
	happened       map[*change]bool
}

func habit(rnd *rand.Rand) float64 { return []float64{0, 0.5, 1}[rnd.IntN(3)] }

// decide says of every change whether it happened, in their order.
func (c *cut) decide(root *node) {
	type place struct {
		folder *node
		name   string
	}
	var all []*change
	where := map[*change]*node{}
	seen := map[*node]bool{}
	var walk func(n *node)
	walk = func(n *node) {
		if n == nil || seen[n] {
			return
		}
		seen[n] = true
		for _, ch := range n.changes {
			all, where[ch] = append(all, ch), n
			walk(ch.to)
		}
		for _, child := range n.names {
			walk(child)
		}
	}
	walk(root)
	slices.SortFunc(all, func(a, b *change) int { return a.seq - b.seq })
	lost := map[place]bool{} // of this name nothing more happened
	for _, ch := range all {
		at := place{where[ch], ch.name}
		switch {
		case ch.sure:
			c.happened[ch] = true
		case ch.pair != nil && ch.pair.seq < ch.seq:
			c.happened[ch] = c.happened[ch.pair]
		default:
			c.happened[ch] = !lost[at] && c.rnd.Float64() < c.names
		}
		lost[at] = !c.happened[ch]
	}
}

func (c *cut) write(n *node, name string) error {
	if n.names == nil {
		return os.WriteFile(name, c.left(n), durable.FileMode)
	}
	if err := os.Mkdir(name, durable.DirMode); err != nil {
		return err
	}
	names := maps.Clone(n.names)
	for _, ch := range n.changes {
		switch {
		case !c.happened[ch]:
		case ch.to == nil:
			delete(names, ch.name)
		default:
			names[ch.name] = ch.to
		}
	}
	for _, base := range slices.Sorted(maps.Keys(names)) {
		if err := c.write(names[base], filepath.Join(name, base)); err != nil {
			return err
		}
	}
	return nil
}

// left is what a file holds after the cut.
func (c *cut) left(n *node) []byte {
	if slices.Equal(n.now, n.sure) || c.rnd.Float64() >= c.content {
		if len(n.now) > len(n.sure) && c.rnd.IntN(2) == 0 { // the length came, the bytes did not
			return append(slices.Clone(n.sure), make([]byte, len(n.now)-len(n.sure))...)
		}
		return n.sure
	}
	if c.content == 1 {
		return n.now
	}
	same := 0
	for same < min(len(n.now), len(n.sure)) && n.now[same] == n.sure[same] {
		same++
	}
	return n.now[:same+c.rnd.IntN(len(n.now)-same+1)]
}

// powerFS notes what is done through it. An operation of the disk that fails
// changes nothing.
type powerFS struct {
	durable.FS
	p *Power
}

func (w *powerFS) full(name string) string { return filepath.Join(w.Dir(), filepath.FromSlash(name)) }

// folder is the folder of a name. p.mu is held.
func (w *powerFS) folder(name string) (*node, string) {
	full := w.full(name)
	return w.p.lookup(filepath.Dir(full)), filepath.Base(full)
}

func (w *powerFS) Create(name string) (durable.File, error) { return w.open(name, w.FS.Create) }

func (w *powerFS) Append(name string) (durable.File, error) { return w.open(name, w.FS.Append) }

func (w *powerFS) open(name string, open func(string) (durable.File, error)) (durable.File, error) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	folder, base := w.folder(name)
	n := folder.get(base)
	if n == nil {
		n = &node{}
		w.p.change(folder, change{name: base, to: n})
	}
	return &powerFile{File: f, p: w.p, n: n}, nil
}

func (w *powerFS) Rename(oldName, newName string) error {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	if err := w.FS.Rename(oldName, newName); err != nil {
		return err
	}
	from, oldBase := w.folder(oldName)
	to, newBase := w.folder(newName)
	n := from.get(oldBase)
	made := w.p.change(to, change{name: newBase, to: n})
	made.pair = w.p.change(from, change{name: oldBase, pair: made})
	return nil
}

// Link gives a file a second name: that is there or not for itself.
func (w *powerFS) Link(oldName, newName string) error {
	l, ok := w.FS.(durable.Linker)
	if !ok {
		return errors.ErrUnsupported
	}
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	if err := l.Link(oldName, newName); err != nil {
		return err
	}
	from, oldBase := w.folder(oldName)
	to, newBase := w.folder(newName)
	w.p.change(to, change{name: newBase, to: from.get(oldBase)})
	return nil
}

func (w *powerFS) Remove(name string) error {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	if err := w.FS.Remove(name); err != nil {
		return err
	}
	folder, base := w.folder(name)
	w.p.change(folder, change{name: base})
	return nil
}

func (w *powerFS) Mkdir(name string) error {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	if err := w.FS.Mkdir(name); err != nil {
		return err
	}
	folder, base := w.folder(name)
	w.p.change(folder, change{name: base, to: newFolder()})
	return nil
}

func (w *powerFS) SyncDir(name string) error {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	n := w.p.lookup(w.full(name))
	if n == nil {
		return &fs.PathError{Op: "sync", Path: w.full(name), Err: fs.ErrNotExist}
	}
	n.syncNames()
	return nil
}

// powerFile syncs nothing really: the cut decides what is durable.
type powerFile struct {
	durable.File
	p *Power
	n *node
}

func (f *powerFile) Write(data []byte) (int, error) {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	n, err := f.File.Write(data)
	f.n.now = append(slices.Clip(f.n.now), data[:n]...)
	return n, err
}

func (f *powerFile) Truncate(size int64) error {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	err := f.File.Truncate(size)
	if err == nil {
		now := make([]byte, size)
		copy(now, f.n.now)
		f.n.now = now
	}
	return err
}

func (f *powerFile) Sync() error {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	f.n.sure = f.n.now
	return nil
}
