package transcript

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"slices"
)

// Append adds records to the end of the list. What thereby becomes final is
// sealed and given to emit (nil only computes the references); the rest stays
// as the tail. Nothing is ever loaded, so the cost does not depend on the
// list's length. The list keeps the records. A record with a newline in it is
// ErrNewline; after an error the list is as it was.
func (l *List) Append(records []Record, emit Sealer) error {
	if err := checkRecords(records); err != nil {
		return err
	}
	c := cutter{emit: emit, refs: slices.Clone(l.Chunks)}
	if err := c.addAll(l.Tail); err != nil {
		return err
	}
	if err := c.addAll(records); err != nil {
		return err
	}
	index, refs, err := sealIndex(slices.Clip(l.Index), c.refs, nil, emit)
	if err != nil {
		return err
	}
	l.Records += len(records)
	l.Index, l.Chunks, l.Tail = index, refs, c.open
	return nil
}

func checkRecords(records []Record) error {
	for i, r := range records {
		if bytes.IndexByte(r, '\n') >= 0 {
			return fmt.Errorf("record %d of those added: %w", i, ErrNewline)
		}
	}
	return nil
}

// InlineBytes counts the plain bytes of all records that no index chunk holds.
func (l *List) InlineBytes() int64 {
	var n int64
	for _, r := range l.Chunks {
		n += r.Bytes
	}
	for _, r := range l.Tail {
		n += int64(len(r)) + 1
	}
	return n
}

// Bytes counts the plain bytes of all records. It loads the index chunks only.
func (l *List) Bytes(load Loader) (int64, error) {
	var n int64
	for ref, err := range l.Refs(load) {
		if err != nil {
			return 0, err
		}
		n += ref.Bytes
	}
	for _, r := range l.Tail {
		n += int64(len(r)) + 1
	}
	return n, nil
}

// inlineRecords counts the records that no index chunk holds.
func (l *List) inlineRecords() int { return countRecords(l.Chunks) + len(l.Tail) }

func countRecords(refs []Ref) int {
	n := 0
	for _, r := range refs {
		n += r.Records
	}
	return n
}

// Clone copies the list but not its records, which are immutable. Changing the
// one list then leaves the other as it is.
func (l *List) Clone() *List {
	c := *l
	c.Index, c.Chunks, c.Tail = slices.Clone(l.Index), slices.Clone(l.Chunks), slices.Clone(l.Tail)
	return &c
}

// Equal reports whether both lists have the same records.
func (l *List) Equal(o *List) bool {
	return l.Records == o.Records && slices.Equal(l.Index, o.Index) &&
		slices.EqualFunc(l.Chunks, o.Chunks, Ref.equal) &&
		slices.EqualFunc(l.Tail, o.Tail, func(a, b Record) bool { return bytes.Equal(a, b) })
}

// Refs iterates over all references, also those in index chunks. It loads one
// index chunk at a time and ends at the first error.
func (l *List) Refs(load Loader) iter.Seq2[Ref, error] {
	return func(yield func(Ref, error) bool) {
		for _, id := range l.Index {
			refs, err := loadIndex(load, id)
			if err != nil {
				yield(Ref{}, err)
				return
			}
			for _, r := range refs {
				if !yield(r, nil) {
					return
				}
			}
		}
		for _, r := range l.Chunks {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// All iterates over the records from (inclusive) to (exclusive), both cut to
// the list. It loads one chunk at a time, joins a giant record, and ends at the
// first error. The records alias the loaded bytes.
func (l *List) All(load Loader, from, to int) iter.Seq2[Record, error] {
	return l.AllUpTo(load, from, to, math.MaxInt64)
}

// AllUpTo is [List.All] but for giant records of more than most bytes, which are
// not loaded: nil stands in their place.
func (l *List) AllUpTo(load Loader, from, to int, most int64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		from, to := max(from, 0), min(to, l.Records)
		if from >= to {
			return
		}
		refs, pos := l.Refs(load), 0
		if from > 0 { // then the first index chunks may not be needed
			at, err := l.locate(from, load)
			if err != nil {
				yield(nil, err)
				return
			}
			pos = at.start
			refs = (&List{Chunks: at.refs}).Refs(nil)
		}
		for ref, err := range refs {
			if err != nil {
				yield(nil, err)
				return
			}
			if pos >= to {
				return
			}
			if pos >= from && ref.giant() && ref.Bytes-1 > most {
				if !yield(nil, nil) {
					return
				}
			} else if pos+ref.Records > from {
				records, err := loadRecords(load, ref)
				if err != nil {
					yield(nil, err)
					return
				}
				for i := max(from-pos, 0); i < min(len(records), to-pos); i++ {
					if !yield(records[i], nil) {
						return
					}
				}
			}
			pos += ref.Records
		}
		if pos != l.Records-len(l.Tail) {
			yield(nil, fmt.Errorf("%w: the records in the chunks are not as many as counted", ErrDamaged))
			return
		}
		for i := max(from-pos, 0); i < min(len(l.Tail), to-pos); i++ {
			if !yield(l.Tail[i], nil) {
				return
			}
		}
	}
}

// lastIndex is the index of the last record that is wanted; -1 where there is
// none. It reads from the end on, and no more than it needs to.
func (l *List) lastIndex(load Loader, wanted func(Record) bool) (int, error) {
	for to, step := l.Records, 16; to > 0; step *= 2 {
		found, pos := -1, max(0, to-step)
		from := pos
		for r, err := range l.All(load, from, to) {
			if err != nil {
				return -1, err
			}
			if wanted(r) {
				found = pos
			}
			pos++
		}
		if found >= 0 {
			return found, nil
		}
		to = from
	}
	return -1, nil
}

// decoded iterates over records as values of T. What of a record has another
// shape is zero.
func decoded[T any](l *List, load Loader, from, to int) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for r, err := range l.All(load, from, to) {
			var v T
			if err == nil {
				_ = json.Unmarshal(r, &v)
			}
			if !yield(v, err) {
				return
			}
		}
	}
}

// Extends reports whether the list begins with all of old's records. It loads
// index chunks only where the one list has more of them, and the chunks that
// hold the records of old's tail.
func (l *List) Extends(old *List, load Loader) (bool, error) {
	// What old has sealed is sealed alike in every list that begins with it.
	if l.Records < old.Records || len(l.Index) < len(old.Index) || !slices.Equal(l.Index[:len(old.Index)], old.Index) {
		return false, nil
	}
	rest := &List{Records: l.Records - (old.Records - old.inlineRecords()), Index: l.Index[len(old.Index):], Chunks: l.Chunks, Tail: l.Tail}
	if len(old.Chunks) > 0 {
		i := 0
		for ref, err := range rest.Refs(load) {
			if err != nil {
				return false, err
			}
			if !ref.equal(old.Chunks[i]) {
				return false, nil
			}
			if i++; i == len(old.Chunks) {
				break
			}
		}
		if i < len(old.Chunks) {
			return false, nil
		}
	}
	i, from := 0, countRecords(old.Chunks)
	for r, err := range rest.All(load, from, from+len(old.Tail)) {
		if err != nil {
			return false, err
		}
		if !bytes.Equal(r, old.Tail[i]) {
			return false, nil
		}
		i++
	}
	return i == len(old.Tail), nil
}

// place is a part of a list from some index chunk on, with its index expanded.
type place struct {
	index []ID  // the index chunks before, not loaded
	refs  []Ref // all references after them
	start int   // records before refs
}

// locate expands index chunks from the last one backward until the part holds
// the record at pos.
func (l *List) locate(pos int, load Loader) (place, error) {
	p := place{index: l.Index, refs: l.Chunks, start: l.Records - l.inlineRecords()}
	for pos < p.start {
		if err := p.widen(load); err != nil {
			return place{}, err
		}
	}
	return p, nil
}

// widen expands one more index chunk.
func (p *place) widen(load Loader) error {
	if len(p.index) == 0 {
		return fmt.Errorf("%w: %d records more are counted than there are", ErrDamaged, p.start)
	}
	last := len(p.index) - 1
	refs, err := loadIndex(load, p.index[last])
	if err != nil {
		return err
	}
	p.index, p.refs = p.index[:last], slices.Concat(refs, p.refs)
	p.start -= countRecords(refs)
	if p.start < 0 || last == 0 && p.start > 0 {
		return fmt.Errorf("%w: the records in the index chunks are not as many as counted", ErrDamaged)
	}
	return nil
}

func loadIndex(load Loader, id ID) ([]Ref, error) {
	plain, err := loadPlain(load, id)
	if err != nil {
		return nil, err
	}
	refs, err := DecodeIndex(plain)
	if err != nil {
		return nil, fmt.Errorf("index chunk %s: %w", id, err)
	}
	return refs, nil
}

func loadPlain(load Loader, id ID) ([]byte, error) {
	if load == nil {
		return nil, fmt.Errorf("chunk %s: there is nothing to load it with", id)
	}
	return load(id)
}

// loadRecords returns the records of a reference.
func loadRecords(load Loader, ref Ref) ([]Record, error) {
	if !ref.giant() {
		plain, err := loadPlain(load, ref.ID)
		if err != nil {
			return nil, err
		}
		records, err := DecodeRecords(plain)
		if err != nil {
			return nil, fmt.Errorf("chunk %s: %w", ref.ID, err)
		}
		if len(records) != ref.Records || int64(len(plain)) != ref.Bytes {
			return nil, fmt.Errorf("%w: chunk %s has %d records in %d bytes, not %d in %d", ErrDamaged, ref.ID, len(records), len(plain), ref.Records, ref.Bytes)
		}
		return records, nil
	}
	// The size is not trusted before the pieces are there.
	var plain []byte
	for _, id := range ref.IDs {
		piece, err := loadPlain(load, id)
		if err != nil {
			return nil, err
		}
		plain = append(plain, piece...)
	}
	if int64(len(plain)) != ref.Bytes || bytes.IndexByte(plain, '\n') != len(plain)-1 {
		return nil, fmt.Errorf("%w: the pieces from %s on do not make one record of %d bytes", ErrDamaged, ref.IDs[0], ref.Bytes)
	}
	return []Record{plain[: len(plain)-1 : len(plain)-1]}, nil
}

// DecodeRecords splits the plain bytes of a records chunk. The records alias
// them. Anything but lines is ErrDamaged.
func DecodeRecords(plain []byte) ([]Record, error) {
	if len(plain) == 0 || plain[len(plain)-1] != '\n' {
		return nil, fmt.Errorf("%w: its last record has no end", ErrDamaged)
	}
	records := make([]Record, 0, bytes.Count(plain, []byte{'\n'}))
	for len(plain) > 0 {
		n := bytes.IndexByte(plain, '\n')
		records = append(records, plain[:n:n])
		plain = plain[n+1:]
	}
	return records, nil
}

// DecodeIndex reads the plain bytes of an index chunk. Anything else is
// ErrDamaged.
func DecodeIndex(plain []byte) ([]Ref, error) {
	lines, err := DecodeRecords(plain)
	if err != nil {
		return nil, err
	}
	if len(lines) > maxIndex {
		return nil, fmt.Errorf("%w: %d references are more than an index chunk has", ErrDamaged, len(lines))
	}
	refs := make([]Ref, 0, len(lines))
	for i, line := range lines {
		p := parser{data: line}
		ref, err := p.ref()
		if err == nil {
			err = p.end()
		}
		if err != nil {
			return nil, fmt.Errorf("%w: reference %d: %w", ErrDamaged, i, err)
		}
		refs = append(refs, ref)
	}
	return refs, nil
}

// Splice replaces the records from (inclusive) to (exclusive) by with. It cuts
// again from the chunk before the change until the boundaries meet the old
// ones, so only the chunks near the change are loaded and made anew. New chunks
// go to emit (nil only computes the references). The list keeps the records. A
// range outside the list is an error; after an error the list is as it was.
func (l *List) Splice(from, to int, with []Record, load Loader, emit Sealer) error {
	if from < 0 || to < from || to > l.Records {
		return fmt.Errorf("records %d to %d: the list has %d", from, to, l.Records)
	}
	if err := checkRecords(with); err != nil {
		return err
	}
	if from == l.Records {
		return l.Append(with, emit)
	}
	if from == to && len(with) == 0 {
		return nil
	}
	at, err := l.locate(from, load)
	if err != nil {
		return err
	}
	k, start := at.find(0, at.start, from)
	if start == from && start > 0 && !l.staysClosed(at, k, start, to, with) {
		// The chunk before has lost what closed it.
		for k == 0 {
			if err := at.widen(load); err != nil {
				return err
			}
			k, start = at.find(0, at.start, from)
		}
		if before := at.refs[k-1]; !before.giant() {
			k, start = k-1, start-before.Records
		}
	}
	c := cutter{emit: emit}
	j, pos := k, start
	for ; pos < from && j < len(at.refs); j++ {
		records, err := loadRecords(load, at.refs[j])
		if err != nil {
			return err
		}
		if err := c.addAll(records[:min(len(records), from-pos)]); err != nil {
			return err
		}
		pos += at.refs[j].Records
	}
	if pos < from {
		if err := c.addAll(l.Tail[:from-pos]); err != nil {
			return err
		}
	}
	if err := c.addAll(with); err != nil {
		return err
	}
	j, pos = at.find(k, start, to)
	for skip := to - pos; j < len(at.refs) && (skip > 0 || !c.closes(at.refs[j].giant())); j++ {
		records, err := loadRecords(load, at.refs[j])
		if err != nil {
			return err
		}
		if err := c.addAll(records[skip:]); err != nil {
			return err
		}
		pos, skip = pos+at.refs[j].Records, 0
	}
	tail := l.Tail[max(to-pos, 0):]
	if j == len(at.refs) && (len(tail) == 0 || len(tail) < len(l.Tail) || !c.closes(false)) {
		if err := c.addAll(tail); err != nil {
			return err
		}
		tail = c.open
	} else if len(c.open) > 0 {
		if err := c.seal(); err != nil {
			return err
		}
	}
	at.refs = slices.Concat(at.refs[:k], c.refs, at.refs[j:])
	for len(at.index) > 0 && len(at.refs) < InlineRefs {
		if err := at.widen(load); err != nil {
			return err
		}
	}
	known := map[ID]bool{}
	for _, id := range l.Index {
		known[id] = true
	}
	index, refs, err := sealIndex(slices.Clip(at.index), at.refs, known, emit)
	if err != nil {
		return err
	}
	l.Records += len(with) - (to - from)
	l.Index, l.Chunks, l.Tail = index, refs, tail
	return nil
}

// staysClosed reports whether the chunk that ends where a splice begins, before
// reference k (or before the tail), still ends there. It was closed by its own
// last record, or by a giant that follows.
func (l *List) staysClosed(at place, k, start, to int, with []Record) bool {
	var giant bool // whether the record that now follows is one
	switch {
	case len(with) > 0:
		giant = len(with[0]) > GiantRecord
	case to == l.Records:
		return false // none follows, and the newest record is never sealed
	default:
		if j, _ := at.find(k, start, to); j < len(at.refs) {
			giant = at.refs[j].giant()
		}
	}
	return giant || k == len(at.refs) || !at.refs[k].giant()
}

// find returns the reference that holds the record at pos, and the count of
// records before it, searching from reference k on, which has start records
// before it. For a record of the tail it is the end of refs.
func (p *place) find(k, start, pos int) (ref, before int) {
	for k < len(p.refs) && start+p.refs[k].Records <= pos {
		start += p.refs[k].Records
		k++
	}
	return k, start
}
