package supervise

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"sess/plugin/wire"
)

const (
	maxLine      = 64 << 10 // bytes of a line that are kept
	maxTail      = 20       // lines that are kept of what came last
	maxPanic     = 20       // lines that are kept of a panic
	maxTailLine  = 500      // bytes of each of those
	maxPerSecond = 1000     // lines that reach the log
)

// output takes what a plugin writes, line by line: into the log, and the end of
// it for error texts. It is safe for concurrent use.
type output struct {
	log *slog.Logger

	mu      sync.Mutex // guards all below
	tail    []string
	panics  []string // from the line that began a panic on
	telling string   // the last line that may tell why a process ends
	second  time.Time
	logged  int // lines in this second
	dropped int
}

// read takes lines until r ends.
func (o *output) read(r io.Reader) {
	readLines(r, func(line string, cut bool) { o.line(line, cut) })
}

// readLines calls f with each line of r, without its end. Of a longer line
// than maxLine it passes the beginning, and skips the rest.
func readLines(r io.Reader, f func(line string, cut bool)) {
	br := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := br.ReadSlice('\n')
		cut := errors.Is(err, bufio.ErrBufferFull)
		if len(line) > 0 {
			f(strings.TrimRight(string(line), "\r\n"), cut)
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = br.ReadSlice('\n')
		}
		if err != nil {
			return
		}
	}
}

func (o *output) line(line string, cut bool) {
	if line == "" {
		return
	}
	record := parseLine(line, time.Now())
	if cut {
		record.AddAttrs(slog.Bool("cut", true))
	}
	o.mu.Lock()
	text := shorten(record.Message, maxTailLine)
	plain := record.Message == line
	switch {
	case len(o.panics) > 0 || isPanic(line):
		record.Level = slog.LevelError
		if len(o.panics) < maxPanic {
			o.panics = append(o.panics, text)
		}
	case plain || record.Level >= slog.LevelInfo: // not the details of a log
		if len(o.tail) == maxTail {
			o.tail = slices.Delete(o.tail, 0, 1)
		}
		o.tail = append(o.tail, text)
		if plain || record.Level >= slog.LevelWarn {
			o.telling = text
		}
	}
	dropped, pass := o.admit(record.Time)
	o.mu.Unlock()

	ctx := context.Background()
	if dropped > 0 {
		o.log.Warn("plugin output dropped", "lines", dropped)
	}
	if pass && o.log.Enabled(ctx, record.Level) {
		_ = o.log.Handler().Handle(ctx, record)
	}
}

// admit says whether one more line may reach the log now, and how many were
// dropped in the second that has passed.
func (o *output) admit(now time.Time) (dropped int, pass bool) {
	if now.Sub(o.second) >= time.Second {
		dropped, o.dropped = o.dropped, 0
		o.second, o.logged = now, 0
	}
	if o.logged == maxPerSecond {
		o.dropped++
		return dropped, false
	}
	o.logged++
	return dropped, true
}

// finish reports what was dropped last. Nothing is written afterwards.
func (o *output) finish() {
	o.mu.Lock()
	dropped := o.dropped
	o.dropped = 0
	o.mu.Unlock()
	if dropped > 0 {
		o.log.Warn("plugin output dropped", "lines", dropped)
	}
}

// last is what explains an end best: the panic, or the last lines.
func (o *output) last() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.panics) > 0 {
		return slices.Clone(o.panics)
	}
	return slices.Clone(o.tail)
}

// cause is the one line that tells most of that, or "".
func (o *output) cause() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.panics) > 0 {
		return clip(o.panics[0], 200)
	}
	return clip(o.telling, 200)
}

func isPanic(line string) bool {
	return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
}

// parseLine understands the JSON lines of hclog and of slog, and takes anything
// else as a message. The time is the plugin's, where it tells one. Nothing is
// taken for granted: any program can write anything.
func parseLine(line string, now time.Time) slog.Record {
	var fields map[string]any
	if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &fields) != nil {
		return slog.NewRecord(now, prefixLevel(line), line, 0)
	}
	message, ok := take(fields, "@message", "msg")
	if !ok {
		return slog.NewRecord(now, slog.LevelDebug, line, 0)
	}
	level := slog.LevelDebug
	if name, ok := take(fields, "@level", "level"); ok {
		level = namedLevel(name)
	}
	if fields["@module"] == "yamux" {
		// The transport calls it an error when the host closes the connection,
		// which is how every plugin ends. One that is lost is told by its end.
		level = min(level, slog.LevelDebug)
	}
	at := now
	if text, ok := take(fields, "@timestamp", "time"); ok {
		for _, layout := range []string{wire.TimeFormat, time.RFC3339Nano} {
			if t, err := time.Parse(layout, text); err == nil {
				at = t
				break
			}
		}
	}
	record := slog.NewRecord(at, level, message, 0)
	keys := make([]string, 0, len(fields))
	for key := range fields {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		record.AddAttrs(slog.Any(key, fields[key]))
	}
	return record
}

// take removes the first of keys that is a string.
func take(fields map[string]any, keys ...string) (string, bool) {
	for _, key := range keys {
		if s, ok := fields[key].(string); ok {
			delete(fields, key)
			return s, true
		}
	}
	return "", false
}

func namedLevel(name string) slog.Level {
	switch strings.ToLower(name) {
	case "trace":
		return wire.LevelTrace
	case "info":
		return slog.LevelInfo
	case "warn", "warning":
		return slog.LevelWarn
	case "error", "fatal":
		return slog.LevelError
	}
	return slog.LevelDebug
}

// prefixLevel is the level of a line such as "[WARN] slow".
func prefixLevel(line string) slog.Level {
	if rest, ok := strings.CutPrefix(line, "["); ok {
		if name, _, ok := strings.Cut(rest, "]"); ok {
			return namedLevel(name)
		}
	}
	return slog.LevelDebug
}

// shorten makes text fit for a line of people's: unprintable characters escaped,
// and clipped.
func shorten(text string, n int) string {
	quoted := strconv.Quote(clip(text, n))
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// clip cuts text off after n bytes and says so.
func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + "…"
}

// printed is what a plugin prints once its own stdout and stderr belong to
// go-plugin: the same lines by another way, in pieces of any size.
type printed struct {
	out *output

	mu   sync.Mutex // guards rest
	rest []byte
}

func (p *printed) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rest = append(p.rest, data...)
	for {
		i := bytes.IndexByte(p.rest, '\n')
		switch {
		case i >= 0:
			p.out.line(strings.TrimRight(string(p.rest[:min(i, maxLine)]), "\r"), i > maxLine)
			p.rest = slices.Delete(p.rest, 0, i+1)
		case len(p.rest) > maxLine:
			p.out.line(string(p.rest[:maxLine]), true)
			p.rest = nil
		default:
			return len(data), nil
		}
	}
}
