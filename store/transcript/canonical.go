package transcript

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Canonical returns the one form of a JSON value that all ways of writing it
// share (RFC 8785): members in order of their names as UTF-16, no blanks, the
// shortest strings and numbers. Of members with one name the last counts. A
// number that a float64 does not give back keeps its own text, so that no two
// numbers become one. Anything but one JSON value is an error.
func Canonical(v json.RawMessage) ([]byte, error) {
	p := parser{data: v}
	p.blanks()
	dst, err := p.canonical(nil, 0)
	if err == nil {
		err = p.end()
	}
	if err == nil && !utf8.Valid(v) {
		err = errNotUTF8
	}
	if err != nil {
		return nil, fmt.Errorf("canonical JSON: %w", err)
	}
	return dst, nil
}

func (p *parser) canonical(dst []byte, depth int) ([]byte, error) {
	if depth > maxDepth {
		return nil, p.fail("it is nested too deeply")
	}
	if p.pos >= len(p.data) {
		return nil, p.fail("")
	}
	switch p.data[p.pos] {
	case '{':
		return p.canonicalObject(dst, depth)
	case '[':
		dst = append(dst, '[')
		first := true
		err := p.array(func() (err error) {
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst, err = p.canonical(dst, depth+1)
			return err
		})
		return append(dst, ']'), err
	case '"':
		units, err := p.units()
		return appendUnits(dst, units), err
	}
	v, err := p.value()
	if err != nil {
		return nil, err
	}
	if v[0] == 't' || v[0] == 'f' || v[0] == 'n' {
		return append(dst, v...), nil
	}
	return append(dst, canonicalNumber(string(v))...), nil
}

func (p *parser) canonicalObject(dst []byte, depth int) ([]byte, error) {
	type member struct {
		name  []uint16
		value []byte
	}
	var members []member
	p.pos++ // the brace
	for p.blanks(); !p.take('}'); p.blanks() {
		if len(members) > 0 {
			if !p.take(',') {
				return nil, p.fail("a comma or the object's end is due")
			}
			p.blanks()
		}
		name, err := p.units()
		if err != nil {
			return nil, err
		}
		if p.blanks(); !p.take(':') {
			return nil, p.fail("a colon is due")
		}
		p.blanks()
		value, err := p.canonical(nil, depth+1)
		if err != nil {
			return nil, err
		}
		members = append(members, member{name, value})
	}
	slices.SortStableFunc(members, func(a, b member) int { return slices.Compare(a.name, b.name) })
	dst = append(dst, '{')
	start := len(dst)
	for i, m := range members {
		if i+1 < len(members) && slices.Equal(m.name, members[i+1].name) {
			continue
		}
		if len(dst) > start {
			dst = append(dst, ',')
		}
		dst = append(appendUnits(dst, m.name), ':')
		dst = append(dst, m.value...)
	}
	return append(dst, '}'), nil
}

// units reads a string as the UTF-16 that it denotes, in which an escaped half
// of a surrogate pair may stand alone.
func (p *parser) units() ([]uint16, error) {
	start := p.pos
	if err := p.skipString(); err != nil {
		return nil, err
	}
	raw := p.data[start+1 : p.pos-1]
	units := make([]uint16, 0, len(raw))
	for i := 0; i < len(raw); {
		if raw[i] != '\\' {
			r, n := utf8.DecodeRune(raw[i:])
			units = utf16.AppendRune(units, r)
			i += n
			continue
		}
		if raw[i+1] == 'u' {
			n, _ := strconv.ParseUint(string(raw[i+2:i+6]), 16, 16) // checked by skipString
			units = append(units, uint16(n))
			i += 6
			continue
		}
		c := raw[i+1]
		if at := strings.IndexByte("bfnrt", c); at >= 0 {
			c = "\b\f\n\r\t"[at]
		}
		units = append(units, uint16(c))
		i += 2
	}
	return units, nil
}

func appendUnits(dst []byte, units []uint16) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(units); i++ {
		u := rune(units[i])
		switch at := strings.IndexRune("\b\f\n\r\t", u); {
		case u == '"' || u == '\\':
			dst = append(dst, '\\', byte(u))
		case at >= 0:
			dst = append(dst, '\\', "bfnrt"[at])
		case u < ' ':
			dst = fmt.Appendf(dst, `\u%04x`, u)
		case !utf16.IsSurrogate(u):
			dst = utf8.AppendRune(dst, u)
		default:
			pair := utf8.RuneError
			if i+1 < len(units) {
				pair = utf16.DecodeRune(u, rune(units[i+1]))
			}
			if pair == utf8.RuneError {
				dst = fmt.Appendf(dst, `\u%04x`, u)
				continue
			}
			dst = utf8.AppendRune(dst, pair)
			i++
		}
	}
	return append(dst, '"')
}

// canonicalNumber is the shortest form of a number, as ECMAScript writes it.
func canonicalNumber(text string) string {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || math.IsInf(f, 0) {
		return text
	}
	short := "0"
	if f != 0 {
		format := byte('f')
		if abs := math.Abs(f); abs < 1e-6 || abs >= 1e21 {
			format = 'e'
		}
		short = strconv.FormatFloat(f, format, -1, 64)
		// Go writes at least two digits of an exponent.
		short = strings.NewReplacer("e-0", "e-", "e+0", "e+").Replace(short)
	}
	if !sameNumber(text, short) {
		return text
	}
	return short
}

// sameNumber reports whether two JSON numbers have the same value.
func sameNumber(a, b string) bool {
	da, ea, oka := decimal(a)
	db, eb, okb := decimal(b)
	return oka && okb && da == db && ea == eb
}

// decimal returns a number as its significant digits, with a minus sign where
// it is negative, and the power of ten to multiply them by. Zero is "", 0.
func decimal(s string) (digits string, exponent int64, ok bool) {
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		var err error
		if exponent, err = strconv.ParseInt(s[i+1:], 10, 32); err != nil {
			return "", 0, false
		}
		s = s[:i]
	}
	s, negative := strings.CutPrefix(s, "-")
	whole, fraction, _ := strings.Cut(s, ".")
	exponent -= int64(len(fraction))
	digits = strings.TrimLeft(whole+fraction, "0")
	short := strings.TrimRight(digits, "0")
	exponent += int64(len(digits) - len(short))
	switch {
	case short == "":
		return "", 0, true
	case negative:
		short = "-" + short
	}
	return short, exponent, true
}
