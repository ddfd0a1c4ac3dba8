package supervise

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sess/plugin/wire"
)

func TestParseLineTakesNothingForGranted(t *testing.T) {
	t.Parallel()
	now := time.Unix(9, 0).UTC()
	at := time.Date(2031, 12, 31, 23, 59, 59, 1000, time.UTC)
	for _, test := range []struct {
		line    string
		level   slog.Level
		message string
		at      time.Time
		attrs   string
	}{
		{`{"@level":"warn","@message":"slow","@timestamp":"2031-12-31T23:59:59.000001Z","ms":3}`, slog.LevelWarn, "slow", at, "ms=3"},
		{`{"level":"ERROR","msg":"bad","time":"2031-12-31T23:59:59.000001Z"}`, slog.LevelError, "bad", at, ""},
		{`{"@message":"m","@level":"trace"}`, wire.LevelTrace, "m", now, ""},
		{`{"@message":"m","@level":"loud","@timestamp":"noon"}`, slog.LevelDebug, "m", now, ""},
		{`{"@message":"closed","@level":"error","@module":"yamux"}`, slog.LevelDebug, "closed", now, "@module=yamux"},
		{`{"@message":1}`, slog.LevelDebug, `{"@message":1}`, now, ""},
		{`{"@message":"m","@level":{},"@timestamp":[]}`, slog.LevelDebug, "m", now, "@level=map[] @timestamp=[]"},
		{`{"@message":`, slog.LevelDebug, `{"@message":`, now, ""},
		{`null`, slog.LevelDebug, `null`, now, ""},
		{`[INFO] started`, slog.LevelInfo, `[INFO] started`, now, ""},
		{`plain`, slog.LevelDebug, `plain`, now, ""},
	} {
		r := parseLine(test.line, now)
		var attrs []string
		r.Attrs(func(a slog.Attr) bool { attrs = append(attrs, a.String()); return true })
		if r.Level != test.level || r.Message != test.message || !r.Time.Equal(test.at) || strings.Join(attrs, " ") != test.attrs {
			t.Errorf("parseLine(%s) = %v %q at %v with %q", test.line, r.Level, r.Message, r.Time, attrs)
		}
	}
}

func FuzzOutputNeverPanics(f *testing.F) {
	f.Add([]byte(`{"@message":1,"@level":2,"@timestamp":3}` + "\n\r\n\x00"))
	f.Add([]byte("panic: boom\n\ngoroutine 1 [running]:\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		o := &output{log: slog.New(slog.DiscardHandler)}
		o.read(bytes.NewReader(data))
		p := printed{out: o}
		if n, err := p.Write(data); n != len(data) || err != nil {
			t.Errorf("Write = %d, %v", n, err)
		}
		if strings.ContainsAny(o.cause(), "\n\x1b\x00") {
			t.Errorf("the cause is not one printable line: %q", o.cause())
		}
	})
}

func TestLongLinesAreCutOnEveryWay(t *testing.T) {
	t.Parallel()
	data := strings.Repeat("x", 3*maxLine) + "\r\nnext\n\nlast"
	type line struct {
		length int
		cut    bool
	}
	var got []line
	readLines(strings.NewReader(data), func(l string, cut bool) { got = append(got, line{len(l), cut}) })
	want := []line{{maxLine, true}, {4, false}, {0, false}, {4, false}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(line{})); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}

	o := &output{log: slog.New(slog.DiscardHandler)}
	p := printed{out: o}
	for chunk := range slices.Chunk([]byte(data), 1000) {
		if _, err := p.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range o.last() {
		if len(l) > maxTailLine+len("…") {
			t.Errorf("a line of %d bytes is kept", len(l))
		}
	}
	if o.cause() != "next" {
		t.Errorf("cause = %q", o.cause())
	}
}

func TestTheCauseIsThePanicOrTheLastTellingLine(t *testing.T) {
	t.Parallel()
	o := &output{log: slog.New(slog.DiscardHandler)}
	for _, step := range []struct{ line, cause string }{
		{`{"@message":"detail","@level":"debug"}`, ""},
		{"no licence \x1b[1mfound", `no licence \x1b[1mfound`},
		{`{"@message":"ready","@level":"info"}`, `no licence \x1b[1mfound`},
		{`{"@message":"disk is full","@level":"error"}`, "disk is full"},
		{"panic: boom", "panic: boom"},
		{"goroutine 1 [running]:", "panic: boom"},
	} {
		o.line(step.line, false)
		if got := o.cause(); got != step.cause {
			t.Errorf("after %q the cause is %q, want %q", step.line, got, step.cause)
		}
	}
	if diff := cmp.Diff([]string{"panic: boom", "goroutine 1 [running]:"}, o.last()); diff != "" {
		t.Errorf("last (-want +got):\n%s", diff)
	}
}

func TestTheLogIsNotFlooded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var buf bytes.Buffer
		o := &output{log: slog.New(slog.NewTextHandler(&buf, nil))}
		for range maxPerSecond + 7 {
			o.line("[WARN] again", false)
		}
		time.Sleep(time.Second)
		o.line("[WARN] later", false)
		o.finish()
		if n := strings.Count(buf.String(), "again"); n != maxPerSecond {
			t.Errorf("%d lines reached the log, want %d", n, maxPerSecond)
		}
		if !strings.Contains(buf.String(), `msg="plugin output dropped" lines=7`) || !strings.Contains(buf.String(), "later") {
			t.Errorf("the log ends with %q", buf.String()[buf.Len()-200:])
		}
	})
}

func TestDescribeFile(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ head, want string }{
		{"", "an empty file"},
		{"hello\n", "a text file"},
		{"naïve", "a text file"},
		{"\x00\x01", "not a program"},
		{"\x7fELF\x02\x01" + strings.Repeat("\x00", 12) + "\xb7\x00", "an ELF program for arm64"},
		{"\x7fELF\x02\x02" + strings.Repeat("\x00", 12) + "\x00\x16", "an ELF program for s390x"},
		{"\x7fELF\x02\x01" + strings.Repeat("\x00", 12) + "\xff\xff", "an ELF program for a machine of type 65535"},
		{"\xcf\xfa\xed\xfe\x0c\x00\x00\x01", "a macOS program for arm64"},
		{"MZ\x90", "a Windows program"},
	} {
		if got := describeFile([]byte(test.head)); got != test.want {
			t.Errorf("describeFile(%q) = %q, want %q", test.head, got, test.want)
		}
	}
}
