package upstream

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// Event is one server-sent event. An answer that is one JSON document instead of
// a stream comes as one event with Whole set.
type Event struct {
	Name  string // "" where the server names none
	Data  []byte // in UTF-8; valid until the next event
	Whole bool
}

// eventLimit bounds one event, in bytes.
const eventLimit = 32 << 20

var errTooLarge = fmt.Errorf("one event of the answer is larger than %d MB", eventLimit>>20)

// readEvents calls each for every event of a stream until that returns an error,
// which it returns, or the stream ends. What a stream that breaks off has begun
// is no event.
func readEvents(r io.Reader, each func(Event) error) error {
	in := bufio.NewReaderSize(r, 16<<10)
	var name string
	var data, long []byte
	some := false
	flush := func() error {
		if !some {
			name = ""
			return nil
		}
		e := Event{Name: name, Data: inUTF8(data)}
		name, some = "", false
		err := each(e)
		data = data[:0]
		return err
	}
	for first := true; ; first = false {
		line, err := in.ReadSlice('\n')
		long = long[:0]
		for errors.Is(err, bufio.ErrBufferFull) {
			if long = append(long, line...); len(long) > eventLimit {
				return errTooLarge
			}
			line, err = in.ReadSlice('\n')
		}
		if len(long) > 0 {
			long = append(long, line...)
			line = long
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				return err
			}
			if len(line) > 0 { // it breaks off
				return nil
			}
			return flush()
		}
		line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		if first {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		if len(line) == 0 {
			if err := flush(); err != nil {
				return err
			}
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			name = string(value)
		case "data":
			if some {
				data = append(data, '\n')
			}
			if data, some = append(data, value...), true; len(data) > eventLimit {
				return errTooLarge
			}
		}
	}
}

// inUTF8 is data without what is none.
func inUTF8(data []byte) []byte {
	if utf8.Valid(data) {
		return data
	}
	return bytes.ToValidUTF8(data, []byte("\uFFFD"))
}
