package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"sess/store/transcript"
)

// syntaxError is what is wrong with the content of a session's file.
type syntaxError struct{ reason string }

func (e *syntaxError) Error() string { return e.reason }

// jsonReader reads the JSON of a session part by part. It holds one value at a
// time.
type jsonReader struct {
	r    io.Reader
	read int64 // how far
	buf  []byte
	pos  int // of what is next in buf
	end  bool
}

// byteOrderMark may stand before the object.
const byteOrderMark = "\xEF\xBB\xBF"

// window is how much is read at a time, and what is held for values that are not
// larger.
const window = 256 << 10

// more reads more of what follows, and reports whether there was any.
func (j *jsonReader) more() (bool, error) {
	if j.end {
		return false, nil
	}
	rest := j.buf[j.pos:]
	if cap(j.buf)-len(rest) < window || cap(j.buf) > 4*window && len(rest) < window {
		grown := make([]byte, len(rest), max(2*len(rest), window)+window)
		copy(grown, rest)
		j.buf = grown
	} else {
		j.buf = j.buf[:copy(j.buf, rest)]
	}
	j.pos = 0
	n, err := j.r.Read(j.buf[len(j.buf):cap(j.buf)])
	j.buf, j.read = j.buf[:len(j.buf)+n], j.read+int64(n)
	if errors.Is(err, io.EOF) {
		j.end, err = true, nil
	}
	return n > 0 || !j.end, err
}

// peek returns the next byte that is no blank, or 0 at the end.
func (j *jsonReader) peek() (byte, error) {
	for {
		if j.pos = blanks(j.buf, j.pos); j.pos < len(j.buf) {
			return j.buf[j.pos], nil
		}
		if ok, err := j.more(); err != nil || !ok {
			return 0, err
		}
	}
}

// take steps over c, which is due.
func (j *jsonReader) take(c byte, what string) error {
	next, err := j.peek()
	switch {
	case err != nil:
		return err
	case next == c:
		j.pos++
		return nil
	case next == 0 && j.end:
		return &syntaxError{"it is cut off"}
	}
	return j.wrong(fmt.Errorf("%s is due", what))
}

// wrong says where it is wrong.
func (j *jsonReader) wrong(err error) error {
	return &syntaxError{fmt.Sprintf("byte %d: %v", j.read-int64(len(j.buf)-j.pos), err)}
}

// value reads the next value, which is lent until the next call.
func (j *jsonReader) value() (json.RawMessage, error) {
	if _, err := j.peek(); err != nil {
		return nil, err
	}
	for {
		n, err := transcript.NextJSON(j.buf[j.pos:])
		switch {
		case err == nil && (j.end || j.pos+n < len(j.buf)):
			v := j.buf[j.pos : j.pos+n : j.pos+n]
			j.pos += n
			return v, nil
		case err != nil && !errors.Is(err, transcript.ErrShort):
			return nil, j.wrong(err)
		}
		if ok, err := j.more(); err != nil {
			return nil, err
		} else if !ok && j.pos+n >= len(j.buf) && n > 0 {
			continue // a number that ends with the file
		} else if !ok {
			return nil, &syntaxError{"it is cut off"}
		}
	}
}

// session reads all that there is: one object, whose arrays of records go to take.
// What stands there in their place is empty.
func (j *jsonReader) session(take arrays) ([]member, error) {
	for len(j.buf) < len(byteOrderMark) {
		if ok, err := j.more(); err != nil {
			return nil, err
		} else if !ok {
			break
		}
	}
	j.pos = len(j.buf) - len(bytes.TrimPrefix(j.buf, []byte(byteOrderMark)))
	if err := j.take('{', "an object"); err != nil {
		return nil, err
	}
	var list []member
	at := map[string]int{}
	for {
		switch c, err := j.peek(); {
		case err != nil:
			return nil, err
		case c == '}' && len(list) == 0:
		case len(list) > 0 && c != '}':
			if err := j.take(',', "a comma or the object's end"); err != nil {
				return nil, err
			}
			fallthrough
		case c != '}':
			m, err := j.member(take)
			if err != nil {
				return nil, err
			}
			if i, ok := at[m.key]; ok {
				list[i].value = m.value
				continue
			}
			at[m.key] = len(list)
			list = append(list, m)
			continue
		}
		break
	}
	j.pos++ // over the brace
	switch c, err := j.peek(); {
	case err != nil:
		return nil, err
	case c != 0 || !j.end:
		return nil, j.wrong(errors.New("more follows the end of the value"))
	}
	return list, nil
}

func (j *jsonReader) member(take arrays) (m member, err error) {
	if c, err := j.peek(); err != nil {
		return m, err
	} else if c != '"' {
		return m, j.take('"', "a string")
	}
	raw, err := j.value()
	if err != nil {
		return m, err
	}
	m.rawKey = bytes.Clone(raw)
	if err := json.Unmarshal(m.rawKey, &m.key); err != nil {
		return m, j.wrong(err)
	}
	if err := j.take(':', "a colon"); err != nil {
		return m, err
	}
	if m.key == keyMessages || m.key == keyActivities {
		if err := take.begin(m.key); err != nil {
			return m, err
		}
		if c, err := j.peek(); err != nil {
			return m, err
		} else if c == '[' {
			m.value = json.RawMessage("[]")
			return m, j.array(m.key, take)
		}
	}
	raw, err = j.value()
	m.value = bytes.Clone(raw)
	return m, err
}

func (j *jsonReader) array(name string, take arrays) error {
	j.pos++ // over the bracket
	for i := 0; ; i++ {
		c, err := j.peek()
		if err != nil {
			return err
		}
		if c == ']' {
			j.pos++
			return nil
		}
		if i > 0 {
			if err := j.take(',', "a comma or the array's end"); err != nil {
				return err
			}
		}
		v, err := j.value()
		if err != nil {
			return err
		}
		r, err := decodeElement(v, i)
		if err != nil {
			return &syntaxError{name + ": " + err.Error()}
		}
		if err := take.record(name, r); err != nil {
			return err
		}
	}
}
