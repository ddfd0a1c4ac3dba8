package snapshot

import (
	"io/fs"
	"os"
	"time"
)

// settled is how old a file has to be when it is read for its time to tell
// whether it was changed later: within the clock's tick two versions of a file
// can have one time, and even one inode.
const settled = 2 * time.Second

// head is what a list read of a file, and how the file looked then. A file that
// looks so still is not read again; nothing else goes by how it looks.
type head struct {
	info  fs.FileInfo
	entry Entry
}

// heads returns what the last list read; nobody writes into it.
func (p *Pool) heads() map[Name]head {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.listed
}

func (p *Pool) setHeads(listed map[Name]head) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listed = listed
}

// describe is entry for a name whose head may be known. It reports what is to be
// known of it the next time: nothing, where the file may yet change unseen.
func (p *Pool) describe(name Name, known map[Name]head) (Entry, head, error) {
	file := fileOf(name)
	if was, ok := known[name]; ok {
		if info, err := p.fs.Stat(file); err == nil && sameFile(info, was.info) {
			e := was.entry
			e.Meta = e.Meta.Clone() // the caller's
			e.Future = e.Meta.UpdatedAt.After(p.opts.Now())
			return e, was, nil
		}
	}
	now := p.opts.Now()
	e, info, err := p.entryInfo(name, file)
	if err != nil || e.State != StateOK || now.Sub(info.ModTime()) < settled {
		return e, head{}, err
	}
	kept := e
	kept.Meta = e.Meta.Clone()
	return e, head{info, kept}, nil
}

// sameFile reports whether a file looks as it did.
func sameFile(a, b fs.FileInfo) bool {
	return a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && a.Mode() == b.Mode() && os.SameFile(a, b)
}
