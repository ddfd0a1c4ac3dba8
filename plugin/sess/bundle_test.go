package sess

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"sess/plugin"
	"sess/store/durable/durabletest"
	"sess/store/snapshot"
	"sess/store/transcript"
)

// Whoever makes a bundle can make its checksum too. What is refused is refused with a
// reason, and what is not can be saved, read and exported again, and is the same then.
func FuzzBundle(f *testing.F) {
	for _, seed := range [][5]string{
		{`"v1"`, `{"id":"x","note":"n"}`, `{"title":"T"}`, `"messages"`, `{"id":"m1"}`},
		{`"V~1"`, `{"createdAt":"2031-12-31T23:59:59Z","updatedAt":"9999-12-31T23:59:59.999-23:59","messages":7,"tags":{"a":"b"}}`, `{}`, `"file:../x"`, `{"$raw":"Cg=="}`},
		{`"a\u0000"`, `{"note":7}`, `[]`, `"\ud800"`, "{\n}"},
		{`"v1"`, `{"indices":[1],"range":{"start":-1},"extra":"\ud800","digest":"d"}`, `{"a":1,"a":2}`, `""`, `"` + strings.Repeat("x", 70) + `"`},
		{`"v1"`, `{"updatedAt":"9999-12-31T00:01:00-23:59"}`, `{}`, `"messages"`, `{}`},
		{`7`, `{}`, `{}`, `"messages"`, `{}`},
		{`null`, `null`, `null`, `null`, `null`},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3], seed[4], uint8(2))
	}
	pool, err := snapshot.Open(f.TempDir(), snapshot.Options{FS: durabletest.Unsynced})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = pool.Close() })
	f.Fuzz(func(t *testing.T, name, meta, header, list, record string, n uint8) {
		bundle := forged(name, meta, header, list, record, int(n))
		read := func(bundle []byte, w *snapshot.Writer) ([]bundled, error) {
			b := bundleReader{dec: json.NewDecoder(bytes.NewReader(bundle)), seal: w.Seal, done: func(int64) error { return nil }}
			return b.read()
		}
		w, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		}()
		all, err := read(bundle, w)
		if err != nil {
			if e := explain(err); e.Code == plugin.Internal || e.Message == "" {
				t.Fatalf("%q is refused with %s: %q", bundle, e.Code, e.Text())
			}
			return
		}
		for _, one := range all {
			if _, err := w.Save(t.Context(), snapshot.SaveRequest{Name: one.name, Doc: one.doc, Overwrite: true, Imported: true}); err != nil {
				if e := explain(err); e.Code == plugin.Internal {
					t.Fatalf("%q cannot be saved: %v", bundle, err)
				}
				return
			}
			snap, err := pool.Read(t.Context(), one.name)
			if err == nil {
				err = pool.Check(t.Context(), snap, nil)
			}
			if err != nil {
				t.Fatalf("%q, saved as %s: %v", bundle, one.name, err)
			}
			var out bytes.Buffer
			b := newBundleWriter(&out, time.Unix(0, 0))
			err = b.add(exported{pool, snap}, &masker{}, func(int) error { return nil })
			if err = errors.Join(err, b.end(&masker{})); err != nil {
				t.Fatalf("%q, saved as %s, cannot be exported: %v", bundle, one.name, err)
			}
			again, err := read(out.Bytes(), w)
			if err != nil || len(again) != 1 || again[0].doc.Digest() != snap.Doc.Digest() {
				t.Fatalf("%q, exported as %q, is another one: %v", bundle, out.Bytes(), err)
			}
		}
	})
}

// forged is a bundle of one snapshot with a checksum that is right, if the parts are
// JSON values.
func forged(name, meta, header, list, record string, records int) []byte {
	sum := newBundleSum()
	var head strings.Builder
	for _, part := range [][2]string{{"name", name}, {"format", `"` + transcript.Format + `"`}, {"meta", meta}, {"header", header}} {
		sum.field([]byte(part[0]))
		sum.field([]byte(part[1]))
		fmt.Fprintf(&head, "%q:%s,", part[0], part[1])
	}
	sum.field([]byte("lists"))
	var named string
	_ = json.Unmarshal([]byte(list), &named)
	sum.field([]byte(named))
	var values []string
	for range records {
		if rec, err := transcript.DecodeRecordJSON([]byte(record)); err == nil {
			sum.field(rec)
		}
		values = append(values, record)
	}
	sum.field(binary.BigEndian.AppendUint64(nil, uint64(records)))
	return fmt.Appendf(nil, `{"format":%q,"snapshots":[{%s"lists":{%s:[%s]},"sha256":%q}]}`, bundleFormat, head.String(), list, strings.Join(values, ","), sum)
}
