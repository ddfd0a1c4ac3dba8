package chunk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"sess/store/transcript"
)

// known is the packs that were found so far.
func (s *Store) known() []*pack {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.packs
}

// adopt adds a pack that was just published. It takes the place of a damaged one
// of its name.
func (s *Store) adopt(p *pack) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found++
	others := slices.DeleteFunc(slices.Clone(s.packs), func(o *pack) bool { return o.file == p.file })
	s.packs = append(others, p)
}

// lookForPacks sees which packs are there.
func (s *Store) lookForPacks() ([]*pack, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for try := 1; ; try++ {
		now, moved, err := s.listPacks()
		if err != nil {
			return nil, err
		}
		if moved && try < 3 {
			continue // its chunks are in another one, which came after the folder was read
		}
		s.packs = now
		return now, nil
	}
}

// listPacks reads which packs are there, and those of them that are new. It
// reports whether one was swept meanwhile. s.mu is held.
func (s *Store) listPacks() (now []*pack, moved bool, err error) {
	entries, err := s.fs.ReadDir(packs)
	if err != nil {
		return nil, false, ignoreMissing(err)
	}
	for _, e := range entries {
		if !isPack(e) {
			continue
		}
		file := packs + "/" + e.Name()
		if i := slices.IndexFunc(s.packs, func(p *pack) bool { return p.file == file }); i >= 0 {
			now = append(now, s.packs[i])
			continue
		}
		p, err := readPack(s.fs, file)
		if errors.Is(err, fs.ErrNotExist) {
			moved = true
			continue
		}
		if err != nil {
			return nil, false, err
		}
		now = append(now, p)
		s.found++ // who made it may not have come as far
	}
	return now, moved, nil
}

// isPack reports whether a file is one by its name.
func isPack(e fs.DirEntry) bool {
	id, ok := strings.CutSuffix(e.Name(), packSuffix)
	return ok && transcript.ID(id).Valid() && e.Type().IsRegular()
}

// hasPacked reports whether one of the packs has the chunk. In there it keeps
// which of them are on the disk.
func (s *Store) hasPacked(known []*pack, id transcript.ID, there map[*pack]bool) (bool, error) {
	if len(known) == 0 || !id.Valid() {
		return false, nil
	}
	k := keyOf(id)
	for _, p := range known {
		if _, _, ok := p.find(k); !ok {
			continue
		}
		is, asked := there[p]
		if !asked {
			info, err := s.fs.Stat(p.file)
			if ignoreMissing(err) != nil {
				return false, err
			}
			is = err == nil && info.Mode().IsRegular() && info.Size() == p.size
			there[p] = is
		}
		if is {
			return true, nil
		}
	}
	return false, nil
}

// readPacked appends the frame of a chunk to buf, which is empty, from one of the
// packs: from one in which it is good, if there is any. It is nil where no pack has
// it.
func (s *Store) readPacked(buf []byte, known []*pack, id transcript.ID) (frame []byte, where string, err error) {
	if len(known) == 0 {
		return nil, "", nil
	}
	k := keyOf(id)
	for _, p := range known {
		offset, length, ok := p.find(k)
		if !ok {
			continue
		}
		read, err := s.readAt(buf, p, offset, length)
		if errors.Is(err, fs.ErrNotExist) {
			continue // swept meanwhile: what is in use is in another one by now
		}
		if err != nil {
			return nil, s.path(p.file), err
		}
		frame, where = read, s.path(p.file)+"/"+string(id)
		if _, err := Check(frame); err == nil {
			break
		}
	}
	return frame, where, nil
}

// readAt appends a part of a pack to buf. What a pack has lost of its end reads as
// zeros, which no frame is.
func (s *Store) readAt(buf []byte, p *pack, offset int64, length int) ([]byte, error) {
	f, err := s.fs.Open(p.file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	start := len(buf)
	buf = slices.Grow(buf, length)[:start+length]
	clear(buf[start:])
	if _, err := f.ReadAt(buf[start:], offset); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read %s: %w", s.path(p.file), err)
	}
	return buf, nil
}
