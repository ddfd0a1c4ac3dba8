package transcript

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// maxDepth bounds how deep a JSON value may be nested, as encoding/json does.
const maxDepth = 10000

// A parser reads JSON in one pass and hands out values as the bytes they are.
// encoding/json would read every level of a document again, twice.
type parser struct {
	data []byte
	pos  int
}

// syntaxError is what is wrong with JSON, and where.
type syntaxError struct {
	pos  int
	what string
	cut  bool // the data ended too early; more of it might do
}

func (e *syntaxError) Error() string { return fmt.Sprintf("byte %d: %s", e.pos, e.what) }

func (p *parser) fail(what string) error {
	if p.pos >= len(p.data) {
		return &syntaxError{pos: len(p.data), what: "it ends too early", cut: true}
	}
	return &syntaxError{pos: p.pos, what: what}
}

func (p *parser) blanks() {
	for p.pos < len(p.data) {
		switch p.data[p.pos] {
		case ' ', '\t', '\r', '\n':
			p.pos++
		default:
			return
		}
	}
}

// take steps over c and reports whether it was there.
func (p *parser) take(c byte) bool {
	if p.pos < len(p.data) && p.data[p.pos] == c {
		p.pos++
		return true
	}
	return false
}

// end checks that nothing but blanks follows.
func (p *parser) end() error {
	p.blanks()
	if p.pos < len(p.data) {
		return p.fail("more follows the end of the value")
	}
	return nil
}

// object reads an object; visit is called before each member's value and reads
// it.
func (p *parser) object(visit func(key string) error) error {
	p.blanks()
	if !p.take('{') {
		return p.fail("an object is due")
	}
	if p.blanks(); p.take('}') {
		return nil
	}
	for {
		p.blanks()
		key, err := p.text()
		if err != nil {
			return err
		}
		if p.blanks(); !p.take(':') {
			return p.fail("a colon is due")
		}
		p.blanks()
		if err := visit(key); err != nil {
			return err
		}
		p.blanks()
		if p.take('}') {
			return nil
		}
		if !p.take(',') {
			return p.fail("a comma or the object's end is due")
		}
	}
}

// array reads an array; visit is called before each element and reads it.
func (p *parser) array(visit func() error) error {
	p.blanks()
	if !p.take('[') {
		return p.fail("an array is due")
	}
	if p.blanks(); p.take(']') {
		return nil
	}
	for {
		p.blanks()
		if err := visit(); err != nil {
			return err
		}
		p.blanks()
		if p.take(']') {
			return nil
		}
		if !p.take(',') {
			return p.fail("a comma or the array's end is due")
		}
	}
}

// text reads a string.
func (p *parser) text() (string, error) {
	start := p.pos
	if err := p.skipString(); err != nil {
		return "", err
	}
	raw := p.data[start:p.pos]
	if bytes.IndexByte(raw, '\\') < 0 && utf8.Valid(raw) {
		return string(raw[1 : len(raw)-1]), nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", &syntaxError{pos: start, what: err.Error()}
	}
	return s, nil
}

// number reads an integer that is not negative.
func (p *parser) number() (int64, error) {
	start := p.pos
	if err := p.skipNumber(); err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(p.data[start:p.pos]), 10, 64)
	if err != nil || n < 0 {
		p.pos = start
		return 0, p.fail("a count is due")
	}
	return n, nil
}

// value reads any value and returns its bytes, which alias the data.
func (p *parser) value() (json.RawMessage, error) {
	start := p.pos
	if err := p.skip(0); err != nil {
		return nil, err
	}
	return p.data[start:p.pos:p.pos], nil
}

func (p *parser) skip(depth int) error {
	if p.pos >= len(p.data) {
		return p.fail("")
	}
	switch c := p.data[p.pos]; {
	case c == '"':
		return p.skipString()
	case c == '{' || c == '[':
		return p.skipNested(depth + 1)
	case c == '-' || '0' <= c && c <= '9':
		return p.skipNumber()
	case c == 't':
		return p.skipWord("true")
	case c == 'f':
		return p.skipWord("false")
	case c == 'n':
		return p.skipWord("null")
	}
	return p.fail("a value is due")
}

func (p *parser) skipNested(depth int) error {
	if depth > maxDepth {
		return p.fail("it is nested too deeply")
	}
	object := p.data[p.pos] == '{'
	closing := byte(']')
	if object {
		closing = '}'
	}
	p.pos++
	if p.blanks(); p.take(closing) {
		return nil
	}
	for {
		p.blanks()
		if object {
			if err := p.skipString(); err != nil {
				return err
			}
			if p.blanks(); !p.take(':') {
				return p.fail("a colon is due")
			}
			p.blanks()
		}
		if err := p.skip(depth); err != nil {
			return err
		}
		p.blanks()
		if p.take(closing) {
			return nil
		}
		if !p.take(',') {
			return p.fail("a comma or an end is due")
		}
	}
}

func (p *parser) skipString() error {
	if !p.take('"') {
		return p.fail("a string is due")
	}
	data, i := p.data, p.pos
	for i < len(data) {
		if len(data)-i >= 8 && plainText(binary.LittleEndian.Uint64(data[i:])) {
			i += 8
			continue
		}
		c := data[i]
		switch {
		case c == '"':
			p.pos = i + 1
			return nil
		case c < ' ':
			p.pos = i
			return p.fail("a control character is in a string")
		case c != '\\':
			i++
			continue
		}
		if i+1 >= len(data) {
			break
		}
		switch data[i+1] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			i += 2
		case 'u':
			for j := i + 2; j < i+6; j++ {
				if j >= len(data) {
					p.pos = j
					return p.fail("")
				}
				if !isHex(data[j]) {
					p.pos = j
					return p.fail("a hex digit is due")
				}
			}
			i += 6
		default:
			p.pos = i
			return p.fail("an unknown escape is in a string")
		}
	}
	p.pos = len(data)
	return p.fail("")
}

// plainText reports whether none of eight bytes is a quote, a backslash or a
// control character. It looks at all of them at once: a byte is smaller than n
// where taking n from it borrows from its highest bit, which was clear.
func plainText(eight uint64) bool {
	const each, high = 0x0101010101010101, 0x8080808080808080
	quote, slash := eight^('"'*each), eight^('\\'*each)
	return (eight-' '*each)&^eight&high|(quote-each)&^quote&high|(slash-each)&^slash&high == 0
}

func (p *parser) skipNumber() error {
	p.take('-')
	if !p.take('0') && !p.digits() {
		return p.fail("a digit is due")
	}
	if p.take('.') && !p.digits() {
		return p.fail("a digit is due")
	}
	if p.take('e') || p.take('E') {
		if !p.take('+') {
			p.take('-')
		}
		if !p.digits() {
			return p.fail("a digit is due")
		}
	}
	return nil
}

// digits steps over digits and reports whether there were any.
func (p *parser) digits() bool {
	start := p.pos
	for p.pos < len(p.data) && '0' <= p.data[p.pos] && p.data[p.pos] <= '9' {
		p.pos++
	}
	return p.pos > start
}

func (p *parser) skipWord(word string) error {
	for i := range len(word) {
		if !p.take(word[i]) {
			return p.fail("a value is due")
		}
	}
	return nil
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// ValidJSON is [json.Valid], and several times as fast.
func ValidJSON(data []byte) bool {
	p := parser{data: data}
	p.blanks()
	return p.skip(0) == nil && p.end() == nil
}

// ErrShort is returned for JSON whose end is not there yet.
var ErrShort = errors.New("it ends too early")

// NextJSON returns how many bytes the JSON value at the beginning of data has,
// for who reads more than is to be held. The error is ErrShort where more of data
// might make it one; a number that ends with data may go on as well.
func NextJSON(data []byte) (int, error) {
	p := parser{data: data}
	err := p.skip(0)
	if e, ok := errors.AsType[*syntaxError](err); ok && e.cut {
		return 0, ErrShort
	}
	return p.pos, err
}

// isValue reports whether data is exactly one JSON value in UTF-8 with no
// blanks around it.
func isValue(data []byte) bool {
	p := parser{data: data}
	return p.skip(0) == nil && p.pos == len(data) && utf8.Valid(data)
}

// isObject reports whether data is one JSON object, as isValue has it.
func isObject(data []byte) bool { return len(data) > 0 && data[0] == '{' && isValue(data) }

// EncodeJSON is the JSON of a value in one line, without the escapes that only HTML
// needs. It is an error if the value has no JSON; one that is made of strings,
// numbers and valid [json.RawMessage] values always has.
func EncodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// AppendText appends s as a JSON string without escaping more than JSON asks.
// Bytes that are no UTF-8 become U+FFFD.
func AppendText(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r == '\n':
			dst = append(dst, '\\', 'n')
		case r == '\r':
			dst = append(dst, '\\', 'r')
		case r == '\t':
			dst = append(dst, '\\', 't')
		case r < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			dst = utf8.AppendRune(dst, r) // invalid bytes become U+FFFD
		}
	}
	return append(dst, '"')
}
