package sess_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"sess/plugin"
	"sess/store/transcript"
)

// taken keeps what a verb writes.
type taken struct {
	bytes.Buffer
	name, mediaType string
}

func (o *taken) Begin(name, mediaType string) error {
	o.name, o.mediaType = name, mediaType
	return nil
}

// export returns what export writes.
func (w *world) export(argv ...string) *taken {
	w.Helper()
	out := &taken{}
	if _, err := w.plugin.Dispatch(w.Context(), plugin.Call{Argv: append([]string{"export"}, argv...), Caller: plugin.CallerCLI, Output: out}, nil); err != nil {
		w.Fatalf("export %q: %v", argv, err)
	}
	return out
}

// bring imports a bundle.
func (w *world) bring(bundle string, argv ...string) (plugin.Result, error) {
	return w.plugin.Dispatch(w.Context(), plugin.Call{
		Argv: append([]string{"import"}, argv...), Caller: plugin.CallerCLI, Input: strings.NewReader(bundle),
	}, nil)
}

func (w *world) brought(want, bundle string, argv ...string) {
	w.Helper()
	res, err := w.bring(bundle, argv...)
	if err != nil || !strings.Contains(res.Text, want) {
		w.Errorf("import %q = %q, %v, want %q", argv, res.Text, err, want)
	}
}

func (w *world) refusedBundle(code plugin.Code, want, bundle string, argv ...string) {
	w.Helper()
	w.untouched(func() {
		_, err := w.bring(bundle, argv...)
		if e := plugin.AsError(err); e == nil || e.Code != code || !strings.Contains(e.Message, want) || e.Hint == "" {
			w.Errorf("import %q: %v, want %s: %s, and a hint", argv, err, code, want)
		}
	})
}

// odd are records of every kind that a list can have.
func odd() []transcript.Record {
	return []transcript.Record{
		transcript.Record(`{"id":"a", "role":"user","content":"caf\u00e9 <b>&amp;</b>","status":"complete", "unknown":{"k":[1, 2]}}`),
		transcript.Record(`{"$raw":"eA=="}`),
		transcript.Record("not \xff JSON\r"),
		transcript.Record(``),
		transcript.Record(`{"role":"agent","content":"` + strings.Repeat("long ", 300_000) + `"}`), // in pieces
	}
}

// S1-18, S0-06: a conversation is taken along whole: to another place and another
// user, byte for byte, with all that people said of it.
func TestExportAndImport(t *testing.T) {
	t.Parallel()
	a, b := newWorld(t, ""), newWorld(t, "")
	ref := a.session("default", "s1", 3000)
	a.change(ref, func(l *live) {
		for _, list := range []string{transcript.ListMessages, transcript.ListHistory, "file:a b.txt"} {
			if err := l.doc.List(list).Append(odd(), sealed(t, a.host)); err != nil {
				t.Fatal(err)
			}
		}
		l.doc.Header = json.RawMessage(`{"title":"T","providerState":{"x":{"responseId":"r_1"}},"later": 1}`)
	})
	a.do("save", "v1", "--note=a \"note\"", "--tags=area=db,x=y", "--reason=why not")
	a.do("pin", "v1")
	out := a.export("v1")
	if out.name != "v1.sess.json" || out.mediaType != "application/json" || !json.Valid(out.Bytes()) {
		t.Errorf("export wrote %q of %s, JSON: %t", out.name, out.mediaType, json.Valid(out.Bytes()))
	}

	b.brought("imported v1: ", out.String())
	was, is := a.list("v1"), b.list("v1")
	if was.Digest == "" || is.Digest != was.Digest {
		t.Errorf("the digest became %q, want %q", is.Digest, was.Digest)
	}
	if is.ID != was.ID || is.Note != was.Note || fmt.Sprint(is.Tags) != fmt.Sprint(was.Tags) || !is.Pinned || is.Reason != was.Reason ||
		is.UpdatedAt != was.UpdatedAt || is.CreatedAt != was.CreatedAt || is.Trigger != "import" {
		t.Errorf("imported as %+v, want what %+v says", is, was)
	}
	b.do("verify")
	again := b.export("v1")
	if body := func(s string) string { return s[strings.Index(s, `"header"`):strings.LastIndex(s, `"sha256"`)] }; body(again.String()) != body(out.String()) {
		t.Error("what is exported again differs")
	}

	// It may be repeated, under the same name and others.
	b.untouched(func() { b.brought("v1 is there already, with the same content: nothing to do", out.String()) })
	b.brought("imported v2: ", out.String(), "--name=v2")
	if id := b.list("v2").ID; id == is.ID || id == "" {
		t.Errorf("the second one has the id %q, want another than %q", id, is.ID)
	}
	b.ref = b.session("default", "s9", 2)
	b.do("save", "v2", "--overwrite")
	b.refusedBundle(plugin.Exists, "there is a snapshot v2 already", out.String(), "--name=v2")
	b.refusedBundle(plugin.Exists, "there is a snapshot v2 already", out.String(), "--name=V2")
	b.brought("the version before is in the trash", out.String(), "--name=v2", "--overwrite")
	b.do("undo")
	if got := b.list("v2").Messages; got != 2 {
		t.Errorf("after undo v2 has %d messages, want 2", got)
	}
}

// Several go together; they come as one or not at all.
func TestExportOfAll(t *testing.T) {
	t.Parallel()
	a, b := newWorld(t, ""), newWorld(t, "")
	ref := a.session("default", "s1", 5)
	a.do("save", "v1")
	a.say(ref, "more", 400)
	a.do("save", "v2")
	a.do("load", "v1")
	all := a.export("--all").String()
	damaged := strings.Replace(all, `"more`, `"less`, 1)
	b.refusedBundle(plugin.Corrupt, "does not match its checksum", damaged)
	b.refusedBundle(plugin.Usage, "--name is for one snapshot", all, "--name=x")
	b.brought("imported 3 snapshots: ", all)
	b.untouched(func() { b.brought("are there already", all) })
	b.fails(plugin.Usage, "export: want either a name or --all; as in: sess export v1 --output=v1.sess.json", "export", "v1", "--all")
}

// Room is needed for all that come, and is there for those that are there already.
func TestImportOfSeveralWhereTheCapRefuses(t *testing.T) {
	t.Parallel()
	a, b := newWorld(t, ""), newWorld(t, `{"maxSnapshots":2,"onCap":"refuse"}`)
	a.session("default", "s1", 5)
	a.do("save", "v1")
	a.do("save", "v2")
	two := a.export("--all").String()
	a.do("save", "v3")
	three := a.export("--all").String()
	b.refusedBundle(plugin.NoSpace, "there are 0 snapshots with names of your own and 3 would come, and maxSnapshots is 2", three)
	b.brought("imported 2 snapshots: ", two)
	b.refusedBundle(plugin.NoSpace, "there are 2 snapshots with names of your own, and maxSnapshots is 2", three)
	b.untouched(func() { b.brought("are there already", two) })
}

// S1-18: whatever happens to a bundle on its way is found, and nothing is imported
// then.
func TestImportRefuses(t *testing.T) {
	t.Parallel()
	a, b := newWorld(t, ""), newWorld(t, "")
	a.session("default", "s1", 8)
	a.do("save", "v1", "--note=n")
	good := a.export("v1").String()
	b.session("default", "s2", 1)
	b.do("save", "here")
	for at := strings.Index(good, `{"name"`); at < len(good)-2; at += max(1, len(good)/97) {
		_, err := b.bring(good[:at])
		if e := plugin.AsError(err); e == nil || e.Code != plugin.Corrupt {
			t.Errorf("cut at byte %d of %d: %v", at, len(good), err)
		}
		flipped := []byte(good)
		flipped[at] ^= 1
		if _, err := b.bring(string(flipped)); err == nil {
			t.Errorf("byte %d changed from %q to %q: it was imported", at, good[at], flipped[at])
		}
		if names := b.names(); fmt.Sprint(names) != "[here]" {
			t.Fatalf("cut or changed at byte %d: there are %v now", at, names)
		}
	}
	for _, c := range []struct {
		code         plugin.Code
		bundle, want string
	}{
		{plugin.Corrupt, "", "it is empty"},
		{plugin.Usage, "hello", "no bundle"},
		{plugin.Usage, "[]", "no bundle"},
		{plugin.Usage, `{"messages":[]}`, "no bundle"},
		{plugin.Usage, `{"format":"zip"}`, "no bundle"},
		{plugin.Usage, `{"format":"sess-bundle/1","snapshots":[]}`, "has no snapshots"},
		{plugin.NewerFormat, `{"format":"sess-bundle/2"}`, "newer version (format sess-bundle/2)"},
		{plugin.NewerFormat, rebundled(good, `"format":"sess/1"`, `"format":"sess/2"`), "v1 was written by a newer version (format sess/2)"},
		{plugin.InvalidName, rebundled(good, `"name":"v1"`, `"name":"../v1"`), `"../v1" is no name`},
		{plugin.Corrupt, good + "x", "something follows its end"},
		{plugin.Corrupt, strings.Replace(good, `"note":"n"`, `"note":"m"`, 1), "does not match its checksum"},
	} {
		b.refusedBundle(c.code, c.want, c.bundle)
	}
	b.fails(plugin.Usage, "import: there is no bundle to read; name its file, as in: sess import v1.sess.json", "import")
	b.fails(plugin.Usage, "import: the file x.json is not opened here; files are read by the command line; give the content itself as input", "import", "x.json")

	lost := errors.New("the network is gone")
	_, err := b.plugin.Dispatch(t.Context(), plugin.Call{
		Argv: []string{"import"}, Caller: plugin.CallerCLI, Input: io.MultiReader(strings.NewReader(good[:200]), iotest.ErrReader(lost)),
	}, nil)
	if !errors.Is(err, lost) || fmt.Sprint(b.names()) != "[here]" {
		t.Errorf("an input that breaks off: %v, want %v; there are %v", err, lost, b.names())
	}
}

// A session never goes on from where the provider is with another one, also where
// that has its name: what was imported is a copy, until it is saved here.
func TestImportedStateIsACopy(t *testing.T) {
	t.Parallel()
	const header, without = `{"title":"T","providerState":{"x":{"continuation":"r_1","k":1}}}`, `{"title":"T","providerState":{"x":{"k":1}}}`
	a, b := newWorld(t, ""), newWorld(t, "")
	for _, w := range []*world{a, b} {
		w.change(w.session("default", "s1", 4), func(l *live) { l.doc.Header = json.RawMessage(header) })
		w.do("save", "v1")
	}
	headed := func(name, want string) {
		t.Helper()
		b.change(b.ref, func(l *live) { l.doc.Header = json.RawMessage(`{"title":"other"}`) })
		b.do("load", name)
		b.change(b.ref, func(l *live) {
			if string(l.doc.Header) != want {
				t.Errorf("after load %s the header is %s, want %s", name, l.doc.Header, want)
			}
		})
	}
	headed("v1", header)
	b.brought("imported v2", a.export("v1").String(), "--name=v2")
	b.do("copy", "v2", "v3")
	headed("v2", without)
	headed("v3", without)
	b.change(b.ref, func(l *live) { l.doc.Header = json.RawMessage(header) })
	b.do("save", "v2", "--overwrite")
	headed("v2", header)
}

// What other programs made of a bundle is as good, if it says the same.
func TestImportOfAnotherLayout(t *testing.T) {
	t.Parallel()
	a, b := newWorld(t, ""), newWorld(t, "")
	a.session("default", "s1", 8)
	a.do("save", "v1")
	var one bytes.Buffer
	if err := json.Compact(&one, a.export("v1").Bytes()); err != nil {
		t.Fatal(err)
	}
	b.brought("imported v1", one.String())
}

// A snapshot of a clock that is ahead keeps its time, and is in nobody's way.
func TestImportFromTheFuture(t *testing.T) {
	t.Parallel()
	a, b := newWorld(t, ""), newWorld(t, `{"maxSnapshots":2}`)
	a.session("default", "s1", 2)
	a.add(2 * 365 * 24 * time.Hour)
	a.do("save", "f")
	b.brought("imported f", a.export("f").String())
	b.do("save", "n")
	b.say(b.ref, "later", 1)
	b.do("load", "n")
	if text := b.do("list", "--include-auto").Text; !strings.Contains(text, "in the future (2033-05-05)") {
		t.Errorf("list says\n%s", text)
	}
	b.do("prune", "--keep=2")
	names := b.names()
	if len(names) != 3 || !strings.Contains(fmt.Sprint(names), " n") {
		t.Errorf("after prune there are %v, want f, n and the backup", names)
	}
}

// What people are shown is text, whatever it is.
func TestExportForPeople(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	ref := w.session("default", "s1", 0)
	const evil = "<img src=x onerror=alert(1)> \"></script><script>alert(2)</script>\n```\n\x1b[31m \u202e [a](http://x) ````"
	w.change(ref, func(l *live) {
		add(t, w.host, l, transcript.ListMessages, transcript.Message{ID: "m1", Role: evil, Content: evil, Status: "complete", CreatedAt: 1})
		add(t, w.host, l, transcript.ListMessages, transcript.Message{ID: "m2", Role: "agent", Content: "done", Status: "error"})
		add(t, w.host, l, transcript.ListActivities, transcript.Activity{ID: "a1", MessageID: "m2", Name: evil, Status: "completed", RawInput: mustJSON(t, evil), RawOutput: json.RawMessage(`{"k":1}`)})
		add(t, w.host, l, transcript.ListActivities, transcript.Activity{ID: "a2", MessageID: "gone", Name: "late", Status: evil})
	})
	w.do("save", "v1", "--note="+evil, "--tags=k="+strings.ReplaceAll(evil, `"`, "'"), "--reason="+evil)

	page := w.export("v1", "--format=html")
	if page.name != "v1.html" || page.mediaType != "text/html; charset=utf-8" {
		t.Errorf("HTML is %q of %s", page.name, page.mediaType)
	}
	for _, never := range []string{"<script", "<img", "\x1b", "\u202e", "<a ", "src=\"", "href="} {
		if strings.Contains(page.String(), never) {
			t.Errorf("the HTML contains %q:\n%s", never, page)
		}
	}
	for _, want := range []string{"&lt;img src=x onerror=alert(1)&gt;", `\u001b[31m \u202e`, "<details><summary>tool &lt;img", "done (error)", "default-src &#39;none&#39;", "other tool calls"} {
		if !strings.Contains(strings.ReplaceAll(page.String(), "default-src 'none'", "default-src &#39;none&#39;"), want) {
			t.Errorf("the HTML lacks %q:\n%s", want, page)
		}
	}

	text := w.export("v1", "--format=markdown")
	if text.name != "v1.md" || text.mediaType != "text/markdown; charset=utf-8" {
		t.Errorf("Markdown is %q of %s", text.name, text.mediaType)
	}
	outside := outsideOfFences(t, text.String())
	for _, never := range []string{"<img", "<script", "](", "\x1b"} {
		if strings.Contains(outside, never) {
			t.Errorf("outside of its blocks the Markdown contains %q:\n%s", never, outside)
		}
	}
	if !strings.Contains(text.String(), "`````text\n<img src=x onerror=alert(1)>") {
		t.Errorf("the Markdown does not show what was said:\n%s", text)
	}
}

// outsideOfFences is Markdown without its fenced blocks, its escaped characters,
// and its lines of HTML, in which nothing is Markdown.
func outsideOfFences(t *testing.T, s string) string {
	t.Helper()
	var out []string
	fence := ""
	for line := range strings.SplitSeq(s, "\n") {
		switch {
		case fence == "" && strings.HasPrefix(line, "```"):
			fence = strings.TrimSuffix(line, "text")
		case strings.HasPrefix(line, "<details><summary>"):
			if strings.Contains(strings.TrimPrefix(strings.TrimSuffix(line, "</summary>"), "<details><summary>"), "<") {
				t.Errorf("a title has markup: %s", line)
			}
		case fence == "":
			out = append(out, regexp.MustCompile(`\\.`).ReplaceAllString(line, ""))
		case line == fence:
			fence = ""
		}
	}
	if fence != "" {
		t.Errorf("a block is not closed:\n%s", s)
	}
	return strings.Join(out, "\n")
}

// Secrets go, all else stays; what comes of it is another conversation.
func TestExportMasked(t *testing.T) {
	t.Parallel()
	a, b := newWorld(t, ""), newWorld(t, "")
	ref := a.session("default", "s1", 1)
	pem := "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7\nqq\n-----END RSA PRIVATE KEY-----"
	secrets := []string{
		"sk-proj-abcdefghijklmnop1234", "ghp_abcdefghijklmnopqrstuvwxyz012345", "github_pat_11ABCDEFG0abcdefghijkl_x", "AKIAIOSFODNN7EXAMPLE",
		"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abc-DEF_1", "MIIEpAIBAAKCAQEA7", "hunter2hunter2", "s3cr3t-in-url", "bearer-value-0123456789",
		"xoxb-123456789012-abcdef", "glpat-abcdefghijklmnopqrst", "AIzaSyA1234567890abcdefghijklmnopqrstuv", "swordfish99", "topsecret-json", "nested-once-1", "nested-twice-2",
	}
	said := strings.Join([]string{
		secrets[0], secrets[1], secrets[2], secrets[3], secrets[4], pem, "password: " + secrets[6], "postgres://me:" + secrets[7] + "@db/x",
		"Authorization: Bearer " + secrets[8], secrets[9], secrets[10], secrets[11],
	}, "\nand ")
	a.change(ref, func(l *live) {
		add(t, a.host, l, transcript.ListMessages, transcript.Message{ID: "m", Role: "user", Content: said, Status: "complete"})
		once := mustJSON(t, `{"a":1,"password":"`+secrets[14]+`"}`)
		twice := mustJSON(t, string(mustJSON(t, `{"client_secret": "`+secrets[15]+`"}`)))
		add(t, a.host, l, transcript.ListActivities, transcript.Activity{ID: "b", Status: "completed", RawInput: once, RawOutput: twice})
		add(t, a.host, l, transcript.ListActivities, transcript.Activity{ID: "a", Name: "http", Status: "completed", RawInput: json.RawMessage(`{"apiKey": "` + secrets[12] + `", "tokens": 12, "keys":["visible"]}`)})
		if err := l.doc.List(transcript.ListHistory).Append([]transcript.Record{transcript.Record("SECRET_KEY=" + secrets[13] + " \xff")}, nil); err != nil {
			t.Fatal(err)
		}
		l.doc.Header = json.RawMessage(`{"title":"about ` + secrets[0] + `","kept": [1, 2]}`)
	})
	a.do("save", "v1", "--note=my "+secrets[1])
	for _, format := range []string{"json", "html", "markdown"} {
		out := a.export("v1", "--mask-secrets", "--format="+format).String()
		for _, s := range secrets {
			if strings.Contains(out, s) {
				t.Errorf("%s still contains %q", format, s)
			}
		}
		if !strings.Contains(out, "visible") && format != "markdown" || !strings.Contains(out, "[masked]") && format != "markdown" {
			t.Errorf("%s lacks what is no secret:\n%s", format, out)
		}
	}
	bundle := a.export("v1", "--mask-secrets").String()
	if !strings.Contains(bundle, `"kept": [1, 2]`) || !strings.Contains(bundle, `,"masked":`) {
		t.Errorf("the masked bundle is\n%s", bundle)
	}
	b.brought("imported v1", bundle)
	if was, is := a.list("v1").Digest, b.list("v1").Digest; is == was || is == "" {
		t.Errorf("the digest of the masked one is %q, of the other %q", is, was)
	}
	res, err := a.call("export", "v1", "--mask-secrets")
	if err != nil || !strings.Contains(fmt.Sprint(res.Notices), "secrets masked") {
		t.Errorf("export --mask-secrets told %q, %v", res.Notices, err)
	}
	if again := a.export("v1").String(); !strings.Contains(again, secrets[0]) {
		t.Error("an export that does not mask lacks what was said")
	}
}

// An answer holds what is small; the rest needs somebody who takes it.
func TestExportWithoutAFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.session("default", "s1", 3)
	w.do("save", "v1")
	res := w.do("export", "v1")
	if !json.Valid(res.Data) || !strings.HasPrefix(res.Text, `{"format":"sess-bundle/1"`) {
		t.Errorf("export answered %s", res.Data)
	}
	w.fails(plugin.Usage, "export: the file x.json is not opened here; files are written by the command line; leave --output out to have the content as the answer", "export", "v1", "--output=x.json")
	w.fails(plugin.NotFound, `there is no snapshot "v9"; did you mean v1?`, "export", "v9")
	w.ref.Project = "empty"
	w.ref.ID = ""
	w.fails(plugin.NotFound, "there is no snapshot to export; save one with: sess save <name>", "export", "--all")
}

// A snapshot that is damaged is not exported in part.
func TestExportOfADamagedOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.session("default", "s1", 2000)
	w.do("save", "v1")
	chunks, err := filepath.Glob(w.pool() + "/.chunks/*.zst")
	if err != nil || len(chunks) == 0 {
		t.Fatal(chunks, err)
	}
	if err := os.Remove(chunks[0]); err != nil {
		t.Fatal(err)
	}
	out := &taken{}
	_, err = w.plugin.Dispatch(t.Context(), plugin.Call{Argv: []string{"export", "v1"}, Caller: plugin.CallerCLI, Output: out}, nil)
	if e := plugin.AsError(err); e == nil || e.Code != plugin.Corrupt || out.Len() > 0 {
		t.Errorf("export of a damaged one: %v, and %d bytes", err, out.Len())
	}
}

// rebundled changes a bundle and makes its checksum right again.
func rebundled(bundle, old, with string) string {
	return resum(strings.Replace(bundle, old, with, 1))
}

// resum makes the checksums of a bundle right, as its description says.
func resum(bundle string) string {
	field := func(h hash.Hash, b []byte) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b))))
		h.Write(b)
	}
	var all struct {
		Snapshots []json.RawMessage `json:"snapshots"`
	}
	if err := json.Unmarshal([]byte(bundle), &all); err != nil {
		panic(err)
	}
	for _, one := range all.Snapshots {
		var s struct {
			Name, Format, Meta, Header json.RawMessage
			Lists                      map[string][]json.RawMessage
			Sha256                     string
		}
		if err := json.Unmarshal(one, &s); err != nil {
			panic(err)
		}
		h := sha256.New()
		for _, m := range []struct {
			key   string
			value json.RawMessage
		}{{"name", s.Name}, {"format", s.Format}, {"meta", s.Meta}, {"header", s.Header}} {
			field(h, []byte(m.key))
			field(h, m.value)
		}
		field(h, []byte("lists"))
		for _, list := range slices.Sorted(maps.Keys(s.Lists)) {
			field(h, []byte(list))
			for _, v := range s.Lists[list] {
				rec, err := transcript.DecodeRecordJSON(v)
				if err != nil {
					panic(err)
				}
				field(h, rec)
			}
			field(h, binary.BigEndian.AppendUint64(nil, uint64(len(s.Lists[list]))))
		}
		bundle = strings.Replace(bundle, s.Sha256, hex.EncodeToString(h.Sum(nil)), 1)
	}
	return bundle
}

// sealed puts chunks into the host's store.
func sealed(t *testing.T, h *host) transcript.Sealer {
	return func(c transcript.Sealed) error {
		batch := h.chunks.NewBatch()
		defer batch.Discard()
		return errors.Join(batch.Seal(c), batch.Commit(t.Context()))
	}
}

// add appends a record to a list of a session.
func add(t *testing.T, h *host, l *live, list string, v any) {
	t.Helper()
	if err := l.doc.List(list).Append([]transcript.Record{transcript.Record(mustJSON(t, v))}, sealed(t, h)); err != nil {
		t.Fatal(err)
	}
}

func mustJSON(t *testing.T, v any) json.RawMessage {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
