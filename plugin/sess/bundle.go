package sess

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"sess/plugin"
	"sess/store/snapshot"
	"sess/store/transcript"
)

// A bundle is one JSON document that holds snapshots whole, to be taken along:
//
//	{"format":"sess-bundle/1","exportedAt":"…","snapshots":[
//	{"name":"v1","format":"sess/1","meta":{…},"header":{…},"lists":{"messages":[
//	<record>,
//	…
//	], …},"sha256":"…"}
//	]}
//
// meta, header and records stand as they are stored, byte for byte; a record that
// is not exactly one JSON value stands as in a stored document. The checksum is
// over everything before it in the snapshot, so it tells of damage, and of a bundle
// that was edited. Blanks between values do not count. Keys that are not known are
// passed over, but those of a snapshot are part of the checksum.

// bundleFormat is the format that this version writes.
const bundleFormat = "sess-bundle/1"

// bundleSum is the checksum of a snapshot in a bundle: a SHA-256 over fields that
// each have their length in front.
type bundleSum struct{ hash.Hash }

func newBundleSum() bundleSum { return bundleSum{sha256.New()} }

func (s bundleSum) field(b []byte) {
	s.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b)))) // a hash takes all
	s.Write(b)
}

func (s bundleSum) String() string { return hex.EncodeToString(s.Sum(nil)) }

// bundleWriter writes a bundle. The first error stays.
type bundleWriter struct {
	w     *bufio.Writer
	sum   bundleSum
	count int // snapshots
}

func newBundleWriter(w io.Writer, now time.Time) *bundleWriter {
	b := &bundleWriter{w: bufio.NewWriterSize(w, 256<<10)}
	fmt.Fprintf(b.w, `{"format":%q,"exportedAt":%q,"snapshots":[`, bundleFormat, now.UTC().Format(transcript.TimeLayout))
	return b
}

// member writes a key and its value, and adds both to the checksum.
func (b *bundleWriter) member(key string, value []byte) {
	b.sum.field([]byte(key))
	b.sum.field(value)
	b.w.Write(jsonText(key)) // a bufio.Writer remembers its error
	b.w.WriteByte(':')
	b.w.Write(value)
	b.w.WriteByte(',')
}

// add writes one snapshot; done is told how much each record is.
func (b *bundleWriter) add(e exported, mask *masker, done func(bytes int) error) error {
	doc := e.Doc
	if b.count++; b.count > 1 {
		b.w.WriteByte(',')
	}
	b.w.WriteString("\n{")
	b.sum = newBundleSum()
	b.member("name", jsonText(string(e.Name)))
	b.member("format", jsonText(transcript.Format))
	b.member("meta", doc.Meta.AppendJSON(nil))
	header := doc.Header
	if len(header) == 0 {
		header = json.RawMessage("{}")
	}
	b.member("header", header)
	for _, key := range slices.Sorted(maps.Keys(doc.Extra)) {
		if !bundleKey(key) {
			b.member(key, doc.Extra[key])
		}
	}
	b.w.WriteString(`"lists":{`)
	b.sum.field([]byte("lists"))
	var record []byte
	for i, list := range slices.Sorted(maps.Keys(doc.Lists)) {
		if i > 0 {
			b.w.WriteByte(',')
		}
		b.w.Write(jsonText(list))
		b.w.WriteString(":[")
		b.sum.field([]byte(list))
		first := true
		for rec, err := range e.records(doc.Lists[list]) {
			if err != nil {
				return err
			}
			if !first {
				b.w.WriteByte(',')
			}
			first = false
			rec = mask.record(rec)
			record = transcript.EncodeRecordJSON(append(record[:0], '\n'), rec)
			b.sum.field(rec)
			if _, err := b.w.Write(record); err != nil {
				return err
			}
			if err := done(len(rec)); err != nil {
				return err
			}
		}
		b.w.WriteString("\n]")
		b.sum.field(binary.BigEndian.AppendUint64(nil, uint64(doc.Lists[list].Records)))
	}
	_, err := fmt.Fprintf(b.w, `},"sha256":"%s"}`, b.sum)
	return err
}

// end says of a bundle whose secrets were masked that it is no true copy.
func (b *bundleWriter) end(mask *masker) error {
	b.w.WriteString("\n]")
	if mask.on {
		fmt.Fprintf(b.w, `,"masked":%d`, mask.count)
	}
	b.w.WriteString("}\n")
	return b.w.Flush()
}

// bundleKey reports whether a key of a snapshot in a bundle has a meaning.
func bundleKey(key string) bool {
	return slices.Contains([]string{"name", "format", "meta", "header", "lists", "sha256"}, key)
}

// jsonText is a string as JSON, without the escapes that only HTML needs.
func jsonText(s string) []byte { return transcript.AppendText(nil, s) }

// bundled is a snapshot that was read from a bundle. Its records have been sealed.
type bundled struct {
	name snapshot.Name
	doc  *transcript.Document
}

// bundleReader reads a bundle, a record at a time.
type bundleReader struct {
	dec  *json.Decoder
	seal transcript.Sealer
	// done is told how many bytes have been read.
	done func(offset int64) error
}

// errBundle is what is wrong with a bundle.
func errBundle(format string, args ...any) *plugin.Error {
	return plugin.Errorf(plugin.Corrupt, "the bundle is damaged: "+format+"; nothing was imported", args...).
		WithHint("export it again, and take care that it is carried over whole and unchanged")
}

// read returns all snapshots of the bundle, checked.
func (b *bundleReader) read() ([]bundled, error) {
	var all []bundled
	known := false
	err := b.object("", func(key string) error {
		switch {
		case key == "format":
			format, err := b.text()
			if err != nil {
				return err
			}
			known = true
			return checkBundleFormat(format)
		case !known:
			return errNoBundle
		case key == "snapshots":
			return b.array(func() error {
				one, err := b.snapshot()
				all = append(all, one)
				return err
			})
		}
		_, err := b.value()
		return err
	})
	if err == nil {
		if _, err := b.dec.Token(); !errors.Is(err, io.EOF) {
			return nil, errBundle("something follows its end")
		}
		return all, nil
	}
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, errNoBundle), !known && errors.As(err, &syntax):
		return nil, plugin.Errorf(plugin.Usage, "this is no bundle of snapshots").
			WithHint("give what sess export wrote: a JSON document that begins with {\"format\":%q", bundleFormat)
	case b.dec.InputOffset() == 0 && errors.Is(err, io.EOF):
		return nil, errBundle("it is empty")
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return nil, errBundle("it ends after %d bytes, in the middle", b.dec.InputOffset())
	case errors.As(err, &syntax):
		return nil, errBundle("byte %d: %v", syntax.Offset, err)
	}
	return nil, err
}

// errNoBundle marks input that is something else.
var errNoBundle = errors.New("no bundle")

func checkBundleFormat(format string) error {
	if format == bundleFormat {
		return nil
	}
	if strings.HasPrefix(format, "sess-bundle/") {
		return plugin.Errorf(plugin.NewerFormat, "the bundle was written by a newer version (format %s); nothing was imported", clip(format, 40)).
			WithHint("update sess to read it").WithDetail("format", clip(format, 40))
	}
	return errNoBundle
}

// snapshot reads one snapshot. What stands out of order has another checksum.
func (b *bundleReader) snapshot() (bundled, error) {
	var one bundled
	sum := newBundleSum()
	name, said, listed := "", "", false
	// A stored document without lists says all but them.
	head := []byte(`{"lists":{}`)
	lists := map[string]*transcript.List{}
	err := b.object("a snapshot", func(key string) error {
		if key == "sha256" {
			var err error
			said, err = b.text()
			return err
		}
		if said != "" {
			return errBundle("the key %q of %s stands behind its checksum", clip(key, 40), clip(name, 80))
		}
		if key == "lists" {
			if listed {
				return errBundle("%s has two sets of lists", clip(name, 80))
			}
			listed = true
			sum.field([]byte("lists"))
			return b.object("lists", func(list string) error {
				if lists[list] != nil {
					return errBundle("%s has the list %q twice", clip(name, 80), clip(list, 40))
				}
				l, err := b.list(list, sum)
				lists[list] = l
				return err
			})
		}
		value, err := b.value()
		if err != nil {
			return err
		}
		sum.field([]byte(key))
		sum.field(value)
		if key == "name" {
			if json.Unmarshal(value, &name) != nil {
				return errBundle("the name %s of a snapshot is no string", clip(string(value), 40))
			}
			return nil
		}
		head = append(append(append(append(head, ','), jsonText(key)...), ':'), value...)
		return nil
	})
	if err != nil {
		return one, err
	}
	if said != sum.String() {
		return one, errBundle("the content of %s does not match its checksum", cmp.Or(clip(name, 80), "a snapshot"))
	}
	doc, err := transcript.Decode(append(head, '}'))
	if newer, ok := errors.AsType[*transcript.NewerError](err); ok {
		return one, plugin.Errorf(plugin.NewerFormat, "%s was written by a newer version (format %s); nothing was imported", clip(name, 80), newer.Format).
			WithHint("update sess to read it").WithDetail("format", newer.Format)
	}
	if err != nil {
		return one, errBundle("%s: %v", clip(name, 80), err)
	}
	doc.Lists = lists
	one.name, err = snapshot.ParseName(name)
	one.doc = doc
	return one, err
}

// list reads the records of a list, and seals them.
func (b *bundleReader) list(name string, sum bundleSum) (*transcript.List, error) {
	const batch = 1 << 20 // bytes that are cut at a time
	l := &transcript.List{}
	var pending []transcript.Record
	size := 0
	flush := func() error {
		err := l.Append(pending, b.seal)
		pending, size = nil, 0
		return err
	}
	sum.field([]byte(name))
	err := b.array(func() error {
		value, err := b.value()
		if err != nil {
			return err
		}
		rec, err := transcript.DecodeRecordJSON(value)
		if err != nil {
			return errBundle("record %d of %s: %v", l.Records+len(pending), clip(name, 40), err)
		}
		sum.field(rec)
		pending = append(pending, rec)
		if size += len(rec); size >= batch {
			err = flush()
		}
		return errors.Join(err, b.done(b.dec.InputOffset()))
	})
	if err == nil {
		err = flush()
	}
	sum.field(binary.BigEndian.AppendUint64(nil, uint64(l.Records)))
	return l, err
}

// value reads one value as it stands.
func (b *bundleReader) value() (json.RawMessage, error) {
	var v json.RawMessage
	err := b.dec.Decode(&v)
	return v, err
}

func (b *bundleReader) text() (string, error) {
	v, err := b.dec.Token()
	s, ok := v.(string)
	if err == nil && !ok {
		err = errBundle("byte %d: want a string", b.dec.InputOffset())
	}
	return s, err
}

// object reads an object, and calls visit where each value stands.
func (b *bundleReader) object(what string, visit func(key string) error) error {
	if err := b.delim('{', what); err != nil {
		return err
	}
	for b.dec.More() {
		key, err := b.text()
		if err == nil {
			err = visit(key)
		}
		if err != nil {
			return err
		}
	}
	return b.delim('}', what)
}

// array reads an array, and calls visit where each value stands.
func (b *bundleReader) array(visit func() error) error {
	if err := b.delim('[', "a list"); err != nil {
		return err
	}
	for b.dec.More() {
		if err := visit(); err != nil {
			return err
		}
	}
	return b.delim(']', "a list")
}

func (b *bundleReader) delim(want json.Delim, what string) error {
	got, err := b.dec.Token()
	if err == nil && got != want {
		if what == "" {
			return errNoBundle
		}
		return errBundle("byte %d: %s has no %s", b.dec.InputOffset(), what, want)
	}
	return err
}
