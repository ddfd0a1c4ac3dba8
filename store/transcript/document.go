package transcript

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ErrDamaged is what decoding reports, wrapped in what is wrong and where.
var ErrDamaged = errors.New("damaged")

// ErrNewer is what a *[NewerError] is.
var ErrNewer = errors.New("written by a newer version")

// NewerError is a document in a format that this version does not know.
type NewerError struct{ Format string }

func (e *NewerError) Error() string {
	return fmt.Sprintf("format %q was written by a newer version; this one reads %q", e.Format, Format)
}

// Is makes errors.Is(err, ErrNewer) true.
func (e *NewerError) Is(target error) bool { return target == ErrNewer }

// rawKey marks the object that stands for a record which is not exactly one
// JSON value.
const rawKey = `"$raw"`

// List returns the list of that name; an empty one is added where there is
// none.
func (d *Document) List(name string) *List {
	if l := d.Lists[name]; l != nil {
		return l
	}
	if d.Lists == nil {
		d.Lists = map[string]*List{}
	}
	l := &List{}
	d.Lists[name] = l
	return l
}

// names are the names of the lists, in order.
func (d *Document) names() []string { return slices.Sorted(maps.Keys(d.Lists)) }

// Clone copies the document but not its records and raw values, which are
// immutable. Changing the one then leaves the other as it is.
func (d *Document) Clone() *Document {
	c := *d
	c.Extra = maps.Clone(d.Extra)
	c.Meta = d.Meta.Clone()
	if d.Lists != nil {
		c.Lists = make(map[string]*List, len(d.Lists))
		for name, l := range d.Lists {
			c.Lists[name] = l.Clone()
		}
	}
	return &c
}

// Clone copies the metadata but not its raw values, which are immutable.
func (m *Meta) Clone() Meta {
	c := *m
	c.Extra = maps.Clone(m.Extra)
	c.Tags = maps.Clone(m.Tags)
	c.Indices = slices.Clone(m.Indices)
	if r := m.Range; r != nil {
		c.Range = &Range{Start: r.Start}
		if r.End != nil {
			c.Range.End = new(*r.End)
		}
	}
	return c
}

// InlineIDs are the chunks that the document names itself, without those that
// only its index chunks name.
func (d *Document) InlineIDs() []ID {
	n := 0
	for _, l := range d.Lists {
		n += len(l.Index)
		for _, r := range l.Chunks {
			n += len(r.chunkIDs())
		}
	}
	if n == 0 {
		return nil
	}
	ids := make([]ID, 0, n)
	for _, name := range d.names() {
		l := d.Lists[name]
		ids = append(ids, l.Index...)
		for _, r := range l.Chunks {
			ids = append(ids, r.chunkIDs()...)
		}
	}
	return ids
}

// ChunkIDs iterates over every chunk that the document needs: index chunks,
// chunks of records, and pieces. A chunk that is used twice comes twice. It
// loads one index chunk at a time, after yielding its id, and ends at the first
// error.
func (d *Document) ChunkIDs(load Loader) iter.Seq2[ID, error] {
	return func(yield func(ID, error) bool) {
		each := func(refs []Ref) bool {
			for _, r := range refs {
				for _, id := range r.chunkIDs() {
					if !yield(id, nil) {
						return false
					}
				}
			}
			return true
		}
		for _, name := range d.names() {
			l := d.Lists[name]
			for _, id := range l.Index {
				if !yield(id, nil) {
					return
				}
				refs, err := loadIndex(load, id)
				if err != nil {
					yield("", err)
					return
				}
				if !each(refs) {
					return
				}
			}
			if !each(l.Chunks) {
				return
			}
		}
	}
}

// Validate finds what would make an encoded document unreadable: a header or an
// extra key that is not JSON, a list whose count does not fit its records, a
// record with a newline. What Decode, Append and Splice return is valid.
func (d *Document) Validate() error {
	if len(d.Header) > 0 && !isObject(d.Header) {
		return errors.New("the header is not one JSON object")
	}
	for _, extra := range []map[string]json.RawMessage{d.Extra, d.Meta.Extra} {
		for key, v := range extra {
			if !isValue(v) || !utf8.ValidString(key) {
				return fmt.Errorf("the extra key %q is not one JSON value", key)
			}
		}
	}
	for name, l := range d.Lists {
		if !utf8.ValidString(name) {
			return fmt.Errorf("the list name %q is not UTF-8", name)
		}
		if err := l.check(); err != nil {
			return fmt.Errorf("list %q: %w", name, err)
		}
		for i, r := range l.Tail {
			if bytes.IndexByte(r, '\n') >= 0 {
				return fmt.Errorf("list %q: record %d of the tail: %w", name, i, ErrNewline)
			}
		}
	}
	return nil
}

// check finds a list that does not hang together.
func (l *List) check() error {
	for i, id := range l.Index {
		if !id.Valid() {
			return fmt.Errorf("index %d: %.70q is not a chunk id", i, string(id))
		}
	}
	for i, r := range l.Chunks {
		if err := r.check(); err != nil {
			return fmt.Errorf("chunk %d: %w", i, err)
		}
	}
	// The records of an index chunk are not known here, but there are some.
	rest := l.Records - l.inlineRecords()
	if len(l.Index) == 0 && rest != 0 || rest < len(l.Index) {
		return fmt.Errorf("it counts %d records, but has %d and %d index chunks", l.Records, l.inlineRecords(), len(l.Index))
	}
	return nil
}

// Encode returns the document as it stands in a file: format and meta first,
// the records byte for byte. A document that Validate refuses panics, for its
// file could not be read again.
func (d *Document) Encode() []byte {
	if err := d.Validate(); err != nil {
		panic("transcript: encode: " + err.Error())
	}
	size := 4096 + len(d.Header)
	for _, l := range d.Lists {
		size += 70*len(l.Index) + 128*len(l.Chunks)
		for _, r := range l.Tail {
			size += len(r) + 1
		}
	}
	format := d.Format
	if format == "" {
		format = Format
	}
	dst := append(make([]byte, 0, size), `{"format":`...)
	dst = AppendText(dst, format)
	dst = append(dst, `,"meta":`...)
	dst = d.Meta.AppendJSON(dst)
	dst = append(dst, `,"header":`...)
	if len(d.Header) == 0 {
		dst = append(dst, "{}"...)
	}
	dst = append(dst, d.Header...)
	dst = append(dst, `,"lists":{`...)
	for i, name := range d.names() {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(AppendText(dst, name), ':')
		dst = appendList(dst, d.Lists[name])
	}
	dst = append(dst, '}')
	dst = appendExtra(dst, d.Extra, isTopKey)
	return append(dst, '}')
}

func isTopKey(key string) bool {
	return key == "format" || key == "meta" || key == "header" || key == "lists"
}

// appendExtra appends the members of extra in order, but for known keys.
func appendExtra(dst []byte, extra map[string]json.RawMessage, known func(string) bool) []byte {
	for _, key := range slices.Sorted(maps.Keys(extra)) {
		if !known(key) {
			dst = append(AppendText(append(dst, ','), key), ':')
			dst = append(dst, extra[key]...)
		}
	}
	return dst
}

func appendList(dst []byte, l *List) []byte {
	dst = strconv.AppendInt(append(dst, `{"records":`...), int64(l.Records), 10)
	if len(l.Index) > 0 {
		dst = appendIDs(append(dst, `,"index":`...), l.Index)
	}
	if len(l.Chunks) > 0 {
		dst = append(dst, `,"chunks":[`...)
		for i, r := range l.Chunks {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendRef(dst, r)
		}
		dst = append(dst, ']')
	}
	if len(l.Tail) > 0 {
		dst = append(dst, `,"tail":[`...)
		for i, r := range l.Tail {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = EncodeRecordJSON(dst, r)
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

func appendIDs(dst []byte, ids []ID) []byte {
	dst = append(dst, '[')
	for i, id := range ids {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, '"'), id...), '"')
	}
	return append(dst, ']')
}

func appendRef(dst []byte, r Ref) []byte {
	if r.giant() {
		dst = appendIDs(append(dst, `{"ids":`...), r.IDs)
	} else {
		dst = append(append(append(dst, `{"id":"`...), r.ID...), '"')
	}
	dst = strconv.AppendInt(append(dst, `,"records":`...), int64(r.Records), 10)
	dst = strconv.AppendInt(append(dst, `,"bytes":`...), r.Bytes, 10)
	return append(dst, '}')
}

// EncodeRecordJSON appends the JSON value that a record stands as: itself where
// it is exactly one, else {"$raw":"<base64>"}.
func EncodeRecordJSON(dst []byte, r Record) []byte {
	if bytes.IndexByte(r, '\n') < 0 && isValue(r) && !isRaw(r) {
		return append(dst, r...)
	}
	dst = append(dst, `{"$raw":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, r)
	return append(dst, `"}`...)
}

// isRaw reports whether a JSON value is an object that begins with the key
// "$raw". Such an object always stands for a record of other bytes.
func isRaw(v []byte) bool {
	p := parser{data: v}
	if !p.take('{') {
		return false
	}
	p.blanks()
	return bytes.HasPrefix(v[p.pos:], []byte(rawKey))
}

// DecodeRecordJSON is the inverse of EncodeRecordJSON. The record may alias v.
// A value on several lines is put on one; anything but one JSON value, and a
// $raw that is not base64 of one line, is ErrDamaged.
func DecodeRecordJSON(v json.RawMessage) (Record, error) {
	p := parser{data: v}
	p.blanks()
	r, err := p.record()
	if err == nil {
		err = p.end()
	}
	if err == nil && !utf8.Valid(v) {
		err = errNotUTF8
	}
	if err != nil {
		return nil, fmt.Errorf("%w: record: %w", ErrDamaged, err)
	}
	return r, nil
}

var (
	errNotUTF8 = errors.New("it is not UTF-8 text")
	errEmpty   = errors.New("it is empty")
)

// record reads a value as the record it stands for.
func (p *parser) record() (Record, error) {
	start := p.pos
	v, err := p.value()
	if err != nil {
		return nil, err
	}
	if !isRaw(v) {
		if bytes.IndexByte(v, '\n') < 0 {
			return Record(v), nil
		}
		var line bytes.Buffer // newlines are only between tokens
		err := json.Compact(&line, v)
		return line.Bytes(), err
	}
	var r Record
	raw := parser{data: v}
	members := 0
	err = raw.object(func(string) error {
		members++
		s, err := raw.text()
		if err != nil {
			return err
		}
		r, err = base64.StdEncoding.Strict().DecodeString(s)
		return err
	})
	if err == nil && (members != 1 || bytes.IndexByte(r, '\n') >= 0) {
		err = errors.New("it is not one line of bytes")
	}
	if err != nil {
		return nil, &syntaxError{pos: start, what: "a $raw record: " + err.Error()}
	}
	return r, nil
}

func (p *parser) id() (ID, error) {
	start := p.pos
	s, err := p.text()
	if err == nil && !ID(s).Valid() {
		err = &syntaxError{pos: start, what: fmt.Sprintf("%.70q is not a chunk id", s)}
	}
	return ID(s), err
}

func (p *parser) ids() ([]ID, error) {
	var ids []ID
	err := p.array(func() error {
		id, err := p.id()
		ids = append(ids, id)
		return err
	})
	return ids, err
}

func (p *parser) ref() (Ref, error) {
	start := p.pos
	var r Ref
	err := p.object(func(key string) error {
		var err error
		var n int64
		switch key {
		case "id":
			r.ID, err = p.id()
		case "ids":
			r.IDs, err = p.ids()
		case "records":
			n, err = p.number()
			r.Records = int(min(n, MaxPlain+1))
		case "bytes":
			r.Bytes, err = p.number()
		default:
			err = p.skip(0)
		}
		return err
	})
	if err != nil {
		return Ref{}, err
	}
	if err := r.check(); err != nil {
		return Ref{}, &syntaxError{pos: start, what: err.Error()}
	}
	return r, nil
}

func (p *parser) list() (*List, error) {
	start := p.pos
	l := &List{}
	counted := false
	err := p.object(func(key string) error {
		var err error
		var n int64
		switch key {
		case "records":
			counted = true
			n, err = p.number()
			l.Records = int(min(n, math.MaxInt))
		case "index":
			l.Index, err = p.ids()
		case "chunks":
			err = p.array(func() error {
				r, err := p.ref()
				l.Chunks = append(l.Chunks, r)
				return err
			})
		case "tail":
			err = p.array(func() error {
				r, err := p.record()
				l.Tail = append(l.Tail, r)
				return err
			})
		default:
			err = p.skip(0)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if !counted && len(l.Index) == 0 {
		l.Records = l.inlineRecords()
	}
	if err := l.check(); err != nil {
		return nil, &syntaxError{pos: start, what: err.Error()}
	}
	return l, nil
}

// errEnough ends reading where the caller has what it wants.
var errEnough = errors.New("enough")

// document reads top-level keys into d. Where head is true it stops after format
// and meta, with errEnough.
func (p *parser) document(d *Document, head bool) error {
	seen := map[string]bool{}
	err := p.object(func(key string) error {
		start := p.pos
		if seen[key] {
			return p.fail(fmt.Sprintf("the key %q stands twice", key))
		}
		seen[key] = true
		var v json.RawMessage
		var err error
		switch key {
		case "format":
			if d.Format, err = p.text(); err == nil {
				err = checkFormat(d.Format)
			}
		case "meta":
			if v, err = p.value(); err == nil {
				if d.Meta, err = decodeMeta(v); err != nil {
					err = &syntaxError{pos: start, what: err.Error()}
				}
			}
		case "header":
			if d.Header, err = p.value(); err == nil && d.Header[0] != '{' {
				err = &syntaxError{pos: start, what: "the header is not an object"}
			}
			if string(d.Header) == "{}" {
				d.Header = nil
			}
		case "lists":
			d.Lists = map[string]*List{}
			err = p.object(func(name string) error {
				if d.Lists[name] != nil {
					return p.fail(fmt.Sprintf("the list %q stands twice", name))
				}
				l, err := p.list()
				if e, ok := errors.AsType[*syntaxError](err); ok && !e.cut {
					return &syntaxError{pos: e.pos, what: fmt.Sprintf("list %q: %s", name, e.what)}
				}
				d.Lists[name] = l
				return err
			})
		default:
			if v, err = p.value(); err == nil {
				if d.Extra == nil {
					d.Extra = map[string]json.RawMessage{}
				}
				d.Extra[key] = v
			}
		}
		if err == nil && head && seen["format"] && seen["meta"] {
			return errEnough
		}
		return err
	})
	if err != nil {
		return err
	}
	if !seen["format"] && !seen["meta"] && !seen["lists"] {
		return errors.New("it has none of the keys format, meta and lists")
	}
	return p.end()
}

func checkFormat(format string) error {
	switch {
	case format == Format:
		return nil
	case strings.HasPrefix(format, "sess/"):
		return &NewerError{Format: format}
	}
	return fmt.Errorf("%.40q is no format of a conversation", format)
}

// Decode reads an encoded document, which its records then alias. A document
// that a newer version wrote is a *[NewerError], anything else that Encode
// cannot have written is ErrDamaged and says where; one without a format is
// read as the oldest. Keys that are unknown at the top and in meta are kept.
func Decode(data []byte) (*Document, error) {
	d := &Document{}
	p := parser{data: data}
	err := p.document(d, false)
	switch {
	case len(data) == 0:
		err = errEmpty // as a crash of another program may leave a file
	case err == nil && !utf8.Valid(data):
		err = errNotUTF8
	}
	return d.decoded(err)
}

// DecodeHead reads format and meta from the first bytes of a file. It reports
// false where they do not reach; then it wants more bytes, up to the whole
// file. What else it read of the document is not to be relied on.
func DecodeHead(head []byte) (*Document, bool, error) {
	d := &Document{}
	p := parser{data: head}
	err := p.document(d, true)
	if e, ok := errors.AsType[*syntaxError](err); ok && e.cut {
		return d, false, nil
	}
	if errors.Is(err, errEnough) {
		err = nil
	}
	d, err = d.decoded(err)
	return d, err == nil, err
}

func (d *Document) decoded(err error) (*Document, error) {
	switch {
	case err == nil:
		return d, nil
	case errors.Is(err, ErrNewer):
		return nil, err
	}
	return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
}
