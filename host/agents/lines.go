package agents

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"

	"sess/store/transcript"
)

// MaxLine is the longest line that is kept, in bytes. A longer one is replaced
// by a marker record.
const MaxLine = 256 << 20

// tooLongKey is in the marker that stands for a line longer than [MaxLine].
const tooLongKey = "$tooLong"

// Line is one line of a file.
type Line struct {
	Number int // from 1
	// Bytes are the line without its newline, but with all else, such as a \r. They
	// are good until the next line is read.
	Bytes []byte
	// TooLong is the size of a line above the limit; Bytes are then the marker
	// that stands for it. Otherwise it is 0.
	TooLong int64
	// Open says that the file ends here without a newline.
	Open bool
}

// Lines iterates over the lines of a file, of any length. A last line that has
// no newline and is not whole JSON is not there yet: the iteration ends before it
// and half, if not nil, is called with its number. The error is the reader's.
func Lines(r io.Reader, half func(number int)) iter.Seq2[Line, error] { return lines(r, MaxLine, half) }

func lines(r io.Reader, limit int, half func(number int)) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		in := bufio.NewReaderSize(r, 128<<10)
		var long []byte // of a line that does not fit into the buffer
		for number := 1; ; number++ {
			line := Line{Number: number}
			part, err := in.ReadSlice('\n')
			size := int64(len(part))
			if errors.Is(err, bufio.ErrBufferFull) {
				long = append(long[:0], part...)
				for errors.Is(err, bufio.ErrBufferFull) {
					part, err = in.ReadSlice('\n')
					size += int64(len(part))
					if size <= int64(limit)+1 { // with its newline
						long = append(long, part...)
					}
				}
				part = long
				if cap(long) > 8<<20 {
					long = nil
				}
			}
			if err != nil && !errors.Is(err, io.EOF) {
				yield(line, err)
				return
			}
			if err != nil { // no newline comes any more
				if size == 0 {
					return
				}
				line.Open = true
			} else {
				size--
			}
			switch {
			case size > int64(limit) && line.Open:
				if half != nil {
					half(number)
				}
				return
			case size > int64(limit):
				line.TooLong = size
				line.Bytes = fmt.Appendf(nil, `{%q:%d}`, tooLongKey, size)
			default:
				line.Bytes = part[:size]
			}
			if line.Open && !whole(line.Bytes) {
				if half != nil {
					half(number)
				}
				return
			}
			if !yield(line, nil) || line.Open {
				return
			}
		}
	}
}

// whole reports whether a line is made of nothing but whole JSON objects.
func whole(line []byte) bool {
	objects, ok := Objects(line)
	return ok && len(objects) > 0
}

// bom is what some programs put before the first line.
const bom = "\xef\xbb\xbf"

// Objects are the JSON objects on a line: one, or several that were written
// without a newline between them. ok is false where something else stands there;
// of a blank line it is true, without objects. The objects alias the line.
func Objects(line []byte) (objects []json.RawMessage, ok bool) {
	line = bytes.TrimSpace(bytes.TrimPrefix(line, []byte(bom)))
	if len(line) == 0 {
		return nil, true
	}
	if json.Valid(line) {
		if line[0] != '{' {
			return nil, false
		}
		return []json.RawMessage{line}, true
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	for {
		start := dec.InputOffset()
		var v json.RawMessage
		if err := dec.Decode(&v); errors.Is(err, io.EOF) {
			return objects, true
		} else if err != nil {
			return nil, false
		}
		at := bytes.TrimSpace(line[start:dec.InputOffset()])
		if at[0] != '{' {
			return nil, false
		}
		objects = append(objects, at)
	}
}

// TooLong is the size of the line that a marker record stands for; 0 for any
// other record.
func TooLong(r transcript.Record) int64 {
	if !bytes.HasPrefix(r, []byte(`{"`+tooLongKey+`":`)) {
		return 0
	}
	var v map[string]int64
	_ = json.Unmarshal(r, &v)
	return v[tooLongKey]
}
