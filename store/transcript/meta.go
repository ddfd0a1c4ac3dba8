package transcript

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"
)

// TimeLayout is how times stand in meta: RFC 3339 with exactly milliseconds, in
// UTC.
const TimeLayout = "2006-01-02T15:04:05.000Z07:00"

// stamp is a time as it stands in meta.
type stamp time.Time

func (s stamp) MarshalText() ([]byte, error) {
	return time.Time(s).UTC().AppendFormat(nil, TimeLayout), nil
}

func (s *stamp) UnmarshalText(text []byte) error {
	t, err := time.Parse(time.RFC3339, string(text))
	if err != nil {
		return err
	}
	t = t.UTC()
	if y := t.Year(); y < 0 || y > 9999 { // its zone has it so, and it could not be read again
		return fmt.Errorf("time %s is in the year %d in UTC", text, y)
	}
	*s = stamp(t.Truncate(time.Millisecond))
	return nil
}

// fields are the known keys of meta and where their values go.
func (m *Meta) fields() map[string]any {
	return map[string]any{
		"id":        &m.ID,
		"agent":     &m.Agent,
		"sessionId": &m.SessionID,
		"projectId": &m.ProjectID,
		"title":     &m.Title,
		"model":     &m.Model,
		"messages":  &m.Messages,
		"bytes":     &m.Bytes,
		"createdAt": (*stamp)(&m.CreatedAt),
		"updatedAt": (*stamp)(&m.UpdatedAt),
		"note":      &m.Note,
		"tags":      &m.Tags,
		"pinned":    &m.Pinned,
		"reason":    &m.Reason,
		"automatic": &m.Automatic,
		"trigger":   &m.Trigger,
		"plugin":    &m.Plugin,
		"action":    &m.Action,
		"indices":   &m.Indices,
		"range":     &m.Range,
		"parent":    &m.Parent,
		"digest":    &m.Digest,
	}
}

// AppendJSON appends meta as one JSON object, with times cut to milliseconds
// and the extra keys last.
func (m Meta) AppendJSON(dst []byte) []byte {
	type plain Meta // without this method
	// The times of the outer struct hide those of the inner one.
	whole, err := EncodeJSON(struct {
		plain
		CreatedAt stamp `json:"createdAt"`
		UpdatedAt stamp `json:"updatedAt"`
	}{plain(m), stamp(m.CreatedAt), stamp(m.UpdatedAt)})
	if err != nil {
		panic("transcript: encode meta: " + err.Error()) // strings and numbers always encode
	}
	dst = append(dst, bytes.TrimSuffix(whole, []byte("}"))...)
	if len(m.Extra) > 0 {
		known := m.fields()
		dst = appendExtra(dst, m.Extra, func(key string) bool { return known[key] != nil })
	}
	return append(dst, '}')
}

// decodeMeta is the inverse of AppendJSON. Keys that this version does not know
// are kept in Extra, which aliases v.
func decodeMeta(v json.RawMessage) (Meta, error) {
	var m Meta
	fields := m.fields()
	p := parser{data: v}
	err := p.object(func(key string) error {
		raw, err := p.value()
		if err != nil {
			return err
		}
		if !utf8.Valid(raw) {
			return errNotUTF8
		}
		if field, ok := fields[key]; ok {
			if err := decodeField(raw, field); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			return nil
		}
		if m.Extra == nil {
			m.Extra = map[string]json.RawMessage{}
		}
		m.Extra[key] = raw
		return nil
	})
	if err == nil {
		err = p.end()
	}
	if err == nil && (m.Messages < 0 || m.Bytes < 0) {
		err = fmt.Errorf("%d messages of %d bytes", m.Messages, m.Bytes)
	}
	if err != nil {
		return Meta{}, fmt.Errorf("meta: %w", err)
	}
	return m, nil
}

func decodeField(raw json.RawMessage, field any) error {
	if s, ok := field.(*string); ok && raw[0] == '"' {
		p := parser{data: raw}
		text, err := p.text()
		*s = text
		return err
	}
	return json.Unmarshal(raw, field)
}
