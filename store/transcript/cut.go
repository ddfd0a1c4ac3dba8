package transcript

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
)

// Sizes of chunks, in plain bytes. They are part of the format: other sizes cut
// other chunks, and equal lists would no longer have equal digests.
const (
	MinChunk = 32 << 10
	AvgChunk = 64 << 10
	MaxChunk = 128 << 10

	// GiantRecord is the longest record that shares a chunk with others. A longer
	// one is sealed alone, at once, in pieces of PieceBytes.
	GiantRecord = 1 << 20
	PieceBytes  = 1 << 20

	// InlineRefs is how many of a list's newest references always stay inline.
	InlineRefs = 128

	// MaxPlain is more than any chunk has: a reader refuses what claims to be
	// bigger.
	MaxPlain = 2 << 20
)

// Sizes of index chunks: references, and chunk ids in them.
const (
	minIndex    = 32
	maxIndex    = 128
	maxIndexIDs = 8192
)

// Kind says what the plain bytes of a chunk are.
type Kind byte

// The kinds of chunks.
const (
	KindRecords Kind = iota + 1 // records, each followed by a newline
	KindIndex                   // references, one JSON object a line
	KindPiece                   // a part of a giant record and its newline
)

func (k Kind) String() string {
	switch k {
	case KindRecords:
		return "records"
	case KindIndex:
		return "index"
	case KindPiece:
		return "piece"
	}
	return fmt.Sprintf("kind %d", byte(k))
}

// Sealed is a chunk to be stored. Plain is lent: nobody writes into it, and who
// takes the chunk copies what is to be kept.
type Sealed struct {
	ID    ID
	Kind  Kind
	Plain []byte
}

// Loader returns the plain bytes of a chunk, which nobody writes into.
type Loader func(id ID) ([]byte, error)

// Sealer takes a chunk to be stored, whose Plain it has until it returns. The
// chunks that an index chunk names come before it.
type Sealer func(Sealed) error

// ErrNewline is returned for a record that has a newline in it.
var ErrNewline = errors.New("a record has a newline in it")

// Sum is the id of a chunk with these plain bytes.
func Sum(plain []byte) ID {
	sum := sha256.Sum256(plain)
	return ID(hex.EncodeToString(sum[:]))
}

// Valid reports whether id has the form of a chunk's name.
func (id ID) Valid() bool {
	if len(id) != 2*sha256.Size {
		return false
	}
	all := byte(1) // looked at once, at the end: nobody can foresee a branch for each digit
	for i := range len(id) {
		all &= hexDigit[id[i]]
	}
	return all == 1
}

// hexDigit is 1 for the digits of an id.
var hexDigit = [256]byte{
	'0': 1, '1': 1, '2': 1, '3': 1, '4': 1, '5': 1, '6': 1, '7': 1, '8': 1, '9': 1,
	'a': 1, 'b': 1, 'c': 1, 'd': 1, 'e': 1, 'f': 1,
}

// chunkIDs are the chunks of a reference.
func (r Ref) chunkIDs() []ID {
	if r.ID != "" {
		return []ID{r.ID}
	}
	return r.IDs
}

func (r Ref) giant() bool { return r.ID == "" }

func (r Ref) equal(o Ref) bool {
	if r.ID != o.ID || r.Records != o.Records || r.Bytes != o.Bytes || len(r.IDs) != len(o.IDs) {
		return false
	}
	for i := range r.IDs {
		if r.IDs[i] != o.IDs[i] {
			return false
		}
	}
	return true
}

// check finds what no cut can have made.
func (r Ref) check() error {
	for _, id := range r.chunkIDs() {
		if !id.Valid() {
			return fmt.Errorf("%.70q is not a chunk id", string(id))
		}
	}
	switch {
	case (r.ID == "") == (len(r.IDs) == 0):
		return errors.New("a reference needs one of id and ids")
	case r.Records < 1 || r.Bytes < int64(r.Records):
		return fmt.Errorf("%d records cannot be %d bytes", r.Records, r.Bytes)
	case !r.giant() && r.Bytes > MaxPlain:
		return fmt.Errorf("a chunk of %d bytes is more than the limit of %d", r.Bytes, MaxPlain)
	case r.giant() && (r.Records != 1 || (r.Bytes-1)/PieceBytes+1 != int64(len(r.IDs))):
		return fmt.Errorf("%d records of %d bytes are not %d pieces", r.Records, r.Bytes, len(r.IDs))
	}
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ends reports whether a chunk of size bytes ends with the record last. It does
// with a probability that grows with the record's length, so that chunks are of
// AvgChunk on average whatever the records are like.
func ends(size int, last Record) bool {
	if size < MinChunk || size >= MaxChunk {
		return size >= MaxChunk
	}
	hash := uint64(crc32.Checksum(last, castagnoli))
	return hash*(AvgChunk-MinChunk)>>32 < uint64(len(last))+1
}

// cutter cuts records into chunks, beginning at a boundary. It has no memory of
// what came before that boundary.
type cutter struct {
	emit Sealer
	refs []Ref    // of what is sealed
	open []Record // not sealed yet; never empty after a record that is no giant
	size int      // plain bytes of open
	buf  []byte   // for the plain bytes of one chunk after the other
}

// closes reports whether a boundary lies between the open records and a next
// one. Only the next record makes a boundary, so the newest record stays open.
func (c *cutter) closes(giant bool) bool {
	return len(c.open) == 0 || giant || ends(c.size, c.open[len(c.open)-1])
}

func (c *cutter) add(r Record) error {
	giant := len(r) > GiantRecord
	if len(c.open) > 0 && c.closes(giant) {
		if err := c.seal(); err != nil {
			return err
		}
	}
	if giant {
		return c.sealGiant(r)
	}
	c.open = append(c.open, r)
	c.size += len(r) + 1
	return nil
}

func (c *cutter) addAll(records []Record) error {
	for _, r := range records {
		if err := c.add(r); err != nil {
			return err
		}
	}
	return nil
}

// seal makes the open records a chunk.
func (c *cutter) seal() error {
	if c.buf == nil {
		c.buf = make([]byte, 0, max(c.size, MaxChunk))
	}
	plain := c.buf[:0]
	for _, r := range c.open {
		plain = append(append(plain, r...), '\n')
	}
	c.buf = plain
	ref := Ref{Records: len(c.open), Bytes: int64(c.size)}
	id, err := c.put(KindRecords, plain)
	if err != nil {
		return err
	}
	ref.ID = id
	c.refs = append(c.refs, ref)
	c.open, c.size = nil, 0
	return nil
}

func (c *cutter) sealGiant(r Record) error {
	ref := Ref{Records: 1, Bytes: int64(len(r)) + 1}
	for rest := r; rest != nil; {
		piece := rest
		if len(piece) >= PieceBytes {
			piece, rest = rest[:PieceBytes:PieceBytes], rest[PieceBytes:]
		} else {
			piece, rest = append(piece[:len(piece):len(piece)], '\n'), nil
		}
		id, err := c.put(KindPiece, piece)
		if err != nil {
			return err
		}
		ref.IDs = append(ref.IDs, id)
	}
	c.refs = append(c.refs, ref)
	return nil
}

func (c *cutter) put(kind Kind, plain []byte) (ID, error) {
	id := Sum(plain)
	if c.emit == nil {
		return id, nil
	}
	return id, c.emit(Sealed{ID: id, Kind: kind, Plain: plain})
}

// indexCut returns how many of the first refs make an index chunk, or 0 where
// its end is not reached.
func indexCut(refs []Ref) int {
	ids := 0
	for i, r := range refs {
		list := r.chunkIDs()
		ids += len(list)
		n := i + 1
		if n >= maxIndex || ids >= maxIndexIDs || n >= minIndex && endsIndex(list[len(list)-1]) {
			return n
		}
	}
	return 0
}

// endsIndex is true for one id in 32.
func endsIndex(id ID) bool {
	return id[len(id)-1] == '0' && strings.IndexByte("02468ace", id[len(id)-2]) >= 0
}

// sealIndex moves the references that are old enough from refs into index
// chunks. Chunks in known are stored already.
func sealIndex(index []ID, refs []Ref, known map[ID]bool, emit Sealer) ([]ID, []Ref, error) {
	for len(refs) > InlineRefs {
		n := indexCut(refs)
		if n == 0 || len(refs)-n < InlineRefs {
			break
		}
		var plain []byte
		for _, r := range refs[:n] {
			plain = append(appendRef(plain, r), '\n')
		}
		id := Sum(plain)
		if emit != nil && !known[id] {
			if err := emit(Sealed{ID: id, Kind: KindIndex, Plain: plain}); err != nil {
				return nil, nil, err
			}
		}
		index, refs = append(index, id), refs[n:]
	}
	return index, refs, nil
}
