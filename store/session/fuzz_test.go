package session

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// What can be read is written so that it reads the same, byte for byte.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `{"id":"s1"}`, `[]`, "\xEF\xBB\xBF{\"id\":\"s1\"}", "{\"id\":\"s1\",\"messages\":[\"\xff\"]}",
		`{"id":"s1","messages":[ {"a" : 1} , 2,"x\ny", {"$raw":"eA=="} ],"activities":null,"status":"running","activeRun":{"t":1},"error":"e"}`,
		`{"id":"s1","un\u0000known":{"k":[1.0]},"title":"t","title":"u","createdAt":1e3,"updatedAt":-4,"notifications":[]}`,
		`{"id":"s1","sess":{"format":"sess/1","revision":3,"ops":[{"id":"a","void":true}],"x":1,"lists":{"history":{"sealed":0,"bytes":0,"tail":[1,{"$raw":"Cg=="}]}}}}`,
		`{"id":"s1","messages":[1],"sess":{"format":"sess/1","revision":3,"lists":{"messages":{"sealed":2,"bytes":9,"chunks":[{"id":"` + strings.Repeat("a", 64) + `","records":2,"bytes":9}]}}}}`,
		`{"id":"s1","sess":{"format":"sess/2"}}`, `{"id":"s1","sess":{"lists":[]}}`, `{"id":"s1","messages":[{}`,
	} {
		f.Add([]byte(seed))
	}
	r := Ref{Project: "default", ID: "s1"}
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := decode(r, data)
		if err != nil {
			return
		}
		first, err := l.encode()
		if err != nil {
			t.Fatalf("encode: %v", err)
		}
		back, err := decode(r, first)
		if err != nil {
			t.Fatalf("decode of what was encoded: %v\n%q", err, first)
		}
		if a, b := l.Doc.Digest(), back.Doc.Digest(); a != b {
			t.Fatalf("the digest changed:\n%q\n%q", data, first)
		}
		if back.Revision != l.Revision || back.Status != l.Status || back.Error != l.Error || !bytes.Equal(back.ActiveRun, l.ActiveRun) || len(back.Ops) != len(l.Ops) {
			t.Fatalf("the state changed:\n%q\n%q", data, first)
		}
		second, err := back.encode()
		if err != nil || !bytes.Equal(first, second) {
			t.Fatalf("encoding is not stable (%v):\n%q\n%q", err, first, second)
		}
	})
}

// Every line of a log is an event, a warning or blank, and nothing is made up.
func FuzzEvents(f *testing.F) {
	for _, seed := range []string{
		"", "\n\n", `{"seq":1,"type":"turn_start"}` + "\n", `{"seq":1,"type":"a"}` + "\n" + `{"seq":2,"ty`,
		`{"seq":"x","type":"a"}` + "\n7\nnull\n" + `{"type":"a"}{"type":"b"}` + "\r\n", "\x00\xff\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		events, warnings := decodeEvents(data)
		if n := bytes.Count(data, []byte{'\n'}) + 1; len(events)+len(warnings) > n {
			t.Fatalf("%d events and %d warnings of %d lines", len(events), len(warnings), n)
		}
		for _, e := range events {
			if !json.Valid(e.Raw) || e.Type == "" || !bytes.Contains(data, e.Raw) {
				t.Fatalf("event %q of %q", e.Raw, data)
			}
		}
	})
}
