package transcript

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
)

// digestVersion begins what a digest is taken of.
const digestVersion = "sess/digest/1"

// Digest returns "sha256:<hex>" over the header and the records. Documents have
// the same digest exactly when they restore the same conversation: blanks and
// the order of keys in the header do not count, nor does a list without
// records, nor meta and the extra keys. Nothing is loaded: equal records are
// cut into equal chunks, so the ids of chunks stand for their records.
//
// The fields hashed are, each led by its length in 8 bytes (big-endian):
// a version tag; the header in canonical form; the count of lists; then for each
// list with records, in order of names, its name, its count of records, the
// count and the ids of its index chunks, the count of its inline references and
// for each the count and the ids of its chunks, the count of the tail's records
// and these.
func (d *Document) Digest() string {
	h := fieldHash{hash: sha256.New(), buf: make([]byte, 0, hashBuffer)}
	h.text(digestVersion)
	h.field(canonicalHeader(d))
	var names []string
	for _, name := range d.names() {
		if d.Lists[name].Records > 0 {
			names = append(names, name)
		}
	}
	h.count(len(names))
	for _, name := range names {
		l := d.Lists[name]
		h.text(name)
		h.count(l.Records)
		h.ids(l.Index)
		h.count(len(l.Chunks))
		for _, r := range l.Chunks {
			h.ids(r.chunkIDs())
		}
		h.count(len(l.Tail))
		for _, r := range l.Tail {
			h.field(r)
		}
	}
	h.flush()
	return "sha256:" + hex.EncodeToString(h.hash.Sum(nil))
}

// canonicalHeader is the header as the digest sees it. One that is not JSON,
// which Validate refuses, counts as the bytes it is.
func canonicalHeader(d *Document) []byte {
	if len(d.Header) == 0 {
		return []byte("{}")
	}
	header, err := Canonical(d.Header)
	if err != nil {
		return d.Header
	}
	return header
}

// fieldHash hashes fields that cannot run into each other. Most are short, so it
// gathers them.
type fieldHash struct {
	hash hash.Hash
	buf  []byte
}

// hashBuffer is how many bytes are hashed at a time.
const hashBuffer = 4 << 10

func (h *fieldHash) field(b []byte) {
	h.lead(len(b))
	if len(b) > cap(h.buf)-len(h.buf) {
		h.flush()
		h.hash.Write(b)
		return
	}
	h.buf = append(h.buf, b...)
}

func (h *fieldHash) text(s string) {
	if len(s) > hashBuffer/2 {
		h.field([]byte(s))
		return
	}
	h.lead(len(s))
	h.room(len(s))
	h.buf = append(h.buf, s...)
}

func (h *fieldHash) count(n int) {
	h.lead(8)
	h.room(8)
	h.buf = binary.BigEndian.AppendUint64(h.buf, uint64(n))
}

// lead appends the length of a field.
func (h *fieldHash) lead(n int) {
	h.room(8)
	h.buf = binary.BigEndian.AppendUint64(h.buf, uint64(n))
}

// room makes room for n bytes.
func (h *fieldHash) room(n int) {
	if len(h.buf)+n > cap(h.buf) {
		h.flush()
	}
}

func (h *fieldHash) flush() {
	h.hash.Write(h.buf)
	h.buf = h.buf[:0]
}

func (h *fieldHash) ids(ids []ID) {
	h.count(len(ids))
	for _, id := range ids {
		h.text(string(id))
	}
}
