package host

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/google/uuid"

	"sess/host/server"
)

// Kinds of [server.ChatEvent] beside those of the event log.
const (
	chatAnswer   = "answer"
	chatNotice   = "notice"
	chatReplaced = "session_replaced"
	chatChanged  = "session_changed"
	chatDeleted  = "session_deleted"
	chatMoved    = "session_moved"
	chatDropped  = "events_dropped"
)

// noFields are the data of an event that has none.
const noFields = "{}"

// Bounds of what a feed keeps.
const (
	feedEvents = 1 << 16
	feedBytes  = 4 << 20
)

// feed keeps the last events of one conversation, for any number of readers, each
// at its own speed. Who adds to it never waits: what a reader did not take in time
// is gone, and the reader is told.
type feed struct {
	// life tells the events of this feed from those of the conversation's earlier
	// ones, whose numbers began at 1 too.
	life string

	mu     sync.Mutex // guards what follows
	events []feedEvent
	first  int64 // the number of events[0]
	bytes  int
	wake   chan struct{} // closed when something changes; nil while nobody waits
	over   bool
}

type feedEvent struct {
	kind string
	data json.RawMessage
}

func newFeed() *feed { return &feed{life: uuid.NewString()[:8], first: 1} }

// add adds an event. After close it is dropped.
func (f *feed) add(kind string, data json.RawMessage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return
	}
	f.events = append(f.events, feedEvent{kind, data})
	f.bytes += len(data)
	for len(f.events) > feedEvents || f.bytes > feedBytes && len(f.events) > 1 {
		f.bytes -= len(f.events[0].data)
		f.events[0] = feedEvent{}
		f.events = f.events[1:]
		f.first++
	}
	f.changed()
}

// next is the number of the event that comes next. The caller holds mu.
func (f *feed) next() int64 { return f.first + int64(len(f.events)) }

// changed wakes who waits. The caller holds mu.
func (f *feed) changed() {
	if f.wake != nil {
		close(f.wake)
		f.wake = nil
	}
}

// end is the number of the event that comes next.
func (f *feed) end() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.next()
}

// close ends all readers, once they have what came until now.
func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	f.changed()
}

// parse returns the number of the event with an id of this feed.
func (f *feed) parse(id string) (int64, bool) {
	number, ok := strings.CutPrefix(id, f.life+"-")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(number, 10, 64)
	return n, err == nil && n > 0 && n < f.end()
}

// feedReader reads a feed from a number on.
type feedReader struct {
	feed *feed
	next int64
	// ahead comes before all others; nil once it has come, or where there is none.
	ahead *server.ChatEvent
	// until is closed once stop is known: the number before which this reader ends.
	until <-chan struct{} // nil: it ends with the feed
	stop  func() int64

	closing sync.Once
	closed  chan struct{}
	left    func() // called once, by Close; may be nil
}

func (f *feed) reader(from int64) *feedReader {
	return &feedReader{feed: f, next: from, closed: make(chan struct{})}
}

// take returns the next event if there is one, and otherwise whether there will be
// none, or what to wait for.
func (r *feedReader) take() (e server.ChatEvent, ok, end bool, wake <-chan struct{}) {
	stop := int64(-1)
	select {
	case <-r.until:
		stop = r.stop()
	default:
	}
	f := r.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case stop >= 0 && r.next >= stop:
		return e, false, true, nil
	case r.next < f.first:
		missed := f.first - r.next
		r.next = f.first
		return server.ChatEvent{Kind: chatDropped, Data: fmt.Appendf(nil, `{"dropped":%d}`, missed)}, true, false, nil
	case r.next < f.next():
		kept := f.events[r.next-f.first]
		e = server.ChatEvent{ID: fmt.Sprintf("%s-%d", f.life, r.next), Kind: kept.kind, Data: kept.data}
		r.next++
		return e, true, false, nil
	case f.over:
		return e, false, true, nil
	}
	if f.wake == nil {
		f.wake = make(chan struct{})
	}
	return e, false, false, f.wake
}

// Next waits for the next event.
func (r *feedReader) Next(ctx context.Context) (server.ChatEvent, error) {
	if e := r.ahead; e != nil {
		r.ahead = nil
		return *e, nil
	}
	for {
		e, ok, end, wake := r.take()
		if ok {
			return e, nil
		}
		if end {
			return server.ChatEvent{}, io.EOF
		}
		select {
		case <-wake:
		case <-r.until:
		case <-r.closed:
			return server.ChatEvent{}, io.EOF
		case <-ctx.Done():
			return server.ChatEvent{}, ctx.Err()
		}
	}
}

// Close ends the reader.
func (r *feedReader) Close() {
	r.closing.Do(func() {
		close(r.closed)
		if r.left != nil {
			r.left()
		}
	})
}
