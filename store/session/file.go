package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sess/store/transcript"
)

// The keys of a session file that are not part of the header.
const (
	keyID            = "id"
	keyProjectID     = "projectId"
	keyStatus        = "status"
	keyMessages      = transcript.ListMessages
	keyActivities    = transcript.ListActivities
	keyActiveRun     = "activeRun"
	keyError         = "error"
	keyCreatedAt     = "createdAt"
	keyUpdatedAt     = "updatedAt"
	keyNotifications = "notifications"
	keySess          = "sess"
)

// defaultLayout is the order of keys in a file that is made here.
var defaultLayout = [...]string{
	keyID, keyProjectID, "title", "cwd", keyStatus, keyMessages, keyActivities,
	keyActiveRun, keyError, "artifacts", keyCreatedAt, keyUpdatedAt, keyNotifications,
}

func inHeader(key string) bool {
	switch key {
	case keyID, keyProjectID, keyStatus, keyMessages, keyActivities, keyActiveRun,
		keyError, keyCreatedAt, keyUpdatedAt, keyNotifications, keySess:
		return false
	}
	return true
}

// cleanHeader returns header without the keys that are not part of it.
func cleanHeader(header json.RawMessage) (json.RawMessage, error) {
	if len(header) == 0 {
		return json.RawMessage("{}"), nil
	}
	list, err := members(header)
	if err != nil {
		return nil, err
	}
	return joinMembers(slices.DeleteFunc(list, func(m member) bool { return !inHeader(m.key) })), nil
}

// maxOps is how many operations a session remembers.
const maxOps = 64

// newerFormat is the decoder's error for a format it does not know.
type newerFormat string

func (f newerFormat) Error() string { return fmt.Sprintf("its format is %q", string(f)) }

// decode reads a session file. Its errors say what is wrong with the file;
// newerFormat is one of them. The result aliases data.
func decode(ref Ref, data []byte) (*Live, error) {
	data = bytes.TrimPrefix(data, []byte(byteOrderMark))
	list, err := members(data)
	if err != nil {
		return nil, err
	}
	return decodeMembers(ref, list)
}

// decodeMembers is decode of a file that was split.
func decodeMembers(ref Ref, list []member) (*Live, error) {
	l := &Live{Ref: ref, Status: StatusIdle, sealed: map[string]int64{}}
	l.Doc.Lists = map[string]*transcript.List{keyMessages: {}, keyActivities: {}, transcript.ListHistory: {}}
	var header []member
	id, arrays := "", map[string]json.RawMessage{}
	for _, m := range list {
		if m.key != keySess {
			l.layout = append(l.layout, m.key)
		}
		switch m.key {
		case keyID:
			id = text(m.value)
		case keyProjectID: // the folder decides
		case keyStatus:
			if s := text(m.value); knownStatus(s) {
				l.Status = s
			}
		case keyActiveRun:
			if string(m.value) != "null" {
				l.ActiveRun = m.value
			}
		case keyError:
			l.Error = text(m.value)
		case keyCreatedAt:
			l.CreatedAt = millis(m.value)
		case keyUpdatedAt:
			l.UpdatedAt = millis(m.value)
		case keyNotifications:
			l.Notifications = m.value
		case keyMessages, keyActivities:
			arrays[m.key] = m.value
		case keySess:
			if err := l.decodeSess(m.value); err != nil {
				return nil, err
			}
		default:
			header = append(header, m)
		}
	}
	switch {
	case id == "":
		return nil, errors.New("it has no id")
	case id != ref.ID:
		return nil, fmt.Errorf("its id is %q, not the name of the file", id)
	}
	l.Doc.Header = joinMembers(header)
	for name, array := range arrays {
		if err := decodeTail(l.Doc.Lists[name], array); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	l.describe()
	return l, nil
}

func knownStatus(s string) bool {
	return s == StatusIdle || s == StatusRunning || s == StatusPermission || s == StatusError
}

// decodeTail adds the elements of an array to the records of a list.
func decodeTail(list *transcript.List, array json.RawMessage) error {
	values, err := elements(array)
	if err != nil {
		return err
	}
	list.Tail = make([]transcript.Record, 0, len(values))
	for i, v := range values {
		r, err := decodeElement(v, i)
		if err != nil {
			return err
		}
		list.Tail = append(list.Tail, r)
	}
	list.Records += len(list.Tail)
	return nil
}

// decodeElement is the record that an element of an array stands for.
func decodeElement(v json.RawMessage, i int) (transcript.Record, error) {
	r, err := transcript.DecodeRecordJSON(oneLine(v))
	if err != nil {
		return nil, fmt.Errorf("record %d: %w", i, err)
	}
	if bytes.IndexByte(r, '\n') >= 0 {
		return nil, fmt.Errorf("record %d has a newline in it", i)
	}
	return r, nil
}

// decodeSess reads the key that only this program writes.
func (l *Live) decodeSess(raw json.RawMessage) error {
	list, err := members(raw)
	if err != nil {
		return fmt.Errorf("sess: %w", err)
	}
	format := ""
	for _, m := range list {
		if m.key == "format" {
			format = text(m.value)
		}
	}
	if format != transcript.Format {
		if strings.HasPrefix(format, "sess/") {
			return newerFormat(format)
		}
		return fmt.Errorf("sess.format is %q", format)
	}
	var lists json.RawMessage
	for _, m := range list {
		var target any
		switch m.key {
		case "format":
			continue
		case "revision":
			target = &l.Revision
		case "ops":
			target = &l.Ops
		case "note":
			target = &l.Note
		case "noteRevision":
			target = &l.NoteRevision
		case "lists":
			lists = m.value
			continue
		default:
			l.extra = append(l.extra, m)
			continue
		}
		if err := json.Unmarshal(m.value, target); err != nil {
			return fmt.Errorf("sess.%s: %w", m.key, err)
		}
	}
	if l.Revision < 0 {
		return fmt.Errorf("sess.revision is %d", l.Revision)
	}
	if lists == nil {
		return nil
	}
	named, err := members(lists)
	if err != nil {
		return fmt.Errorf("sess.lists: %w", err)
	}
	for _, m := range named {
		if err := l.decodeList(m.key, m.value); err != nil {
			return fmt.Errorf("sess.lists.%s: %w", m.key, err)
		}
	}
	return nil
}

// decodeList reads what is sealed of a list, and its tail where that does not
// stand in an array of its own.
func (l *Live) decodeList(name string, raw json.RawMessage) error {
	keys, err := members(raw)
	if err != nil {
		return err
	}
	list, sealed := &transcript.List{}, struct {
		records int
		bytes   int64
	}{}
	var tail json.RawMessage
	for _, m := range keys {
		var err error
		switch m.key {
		case "sealed":
			err = json.Unmarshal(m.value, &sealed.records)
		case "bytes":
			err = json.Unmarshal(m.value, &sealed.bytes)
		case "index":
			err = json.Unmarshal(m.value, &list.Index)
		case "chunks":
			err = json.Unmarshal(m.value, &list.Chunks)
		case "tail":
			tail = m.value
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m.key, err)
		}
	}
	records, size := 0, int64(0)
	for _, r := range list.Chunks {
		if r.ID == "" && len(r.IDs) == 0 || r.ID != "" && !r.ID.Valid() || slices.ContainsFunc(r.IDs, invalidID) {
			return errors.New("a reference has no chunk id")
		}
		if r.Records < 1 || r.Bytes < int64(r.Records) {
			return fmt.Errorf("chunk %s has %d records of %d bytes", r.ID, r.Records, r.Bytes)
		}
		records, size = records+r.Records, size+r.Bytes
	}
	if slices.ContainsFunc(list.Index, invalidID) {
		return errors.New("a part of the index has no chunk id")
	}
	if len(list.Index) == 0 && (records != sealed.records || size != sealed.bytes) || records > sealed.records || size > sealed.bytes {
		return fmt.Errorf("%d records of %d bytes are counted, but its chunks have %d of %d", sealed.records, sealed.bytes, records, size)
	}
	list.Records = sealed.records
	if name != keyMessages && name != keyActivities && tail != nil {
		if err := decodeTail(list, tail); err != nil {
			return fmt.Errorf("tail: %w", err)
		}
	}
	l.Doc.Lists[name] = list
	l.sealed[name] = sealed.bytes
	return nil
}

func invalidID(id transcript.ID) bool { return !id.Valid() }

// encode is the session file. Records and keys that are not known here stand in
// it as they were read.
func (l *Live) encode() ([]byte, error) {
	header := []member{}
	if len(l.Doc.Header) > 0 {
		var err error
		if header, err = members(l.Doc.Header); err != nil {
			return nil, fmt.Errorf("header: %w", err)
		}
	}
	values := make(map[string]member, len(header))
	order := slices.Clone(l.layout)
	if order == nil {
		order = defaultLayout[:]
	}
	for _, m := range header {
		if inHeader(m.key) {
			values[m.key] = m
			order = append(order, m.key)
		}
	}
	order = append(order, defaultLayout[:]...)
	size := 4096
	for _, list := range l.Doc.Lists {
		size += 160*len(list.Chunks) + int(tailBytes(list)) + 8*len(list.Tail)
	}
	dst := append(make([]byte, 0, size+len(l.Doc.Header)), '{')
	done := make(map[string]bool, len(order))
	for _, key := range order {
		if done[key] {
			continue
		}
		done[key] = true
		if m, ok := values[key]; ok {
			dst = appendMember(dst, m.rawKey, m.value)
		} else if !inHeader(key) {
			dst = l.appendCore(dst, key)
		}
	}
	dst = appendMember(dst, []byte(`"`+keySess+`"`), l.encodeSess())
	return append(dst, '}', '\n'), nil
}

// appendCore appends a key that is not part of the header.
func (l *Live) appendCore(dst []byte, key string) []byte {
	var v json.RawMessage
	switch key {
	case keyID:
		v = encode(l.Ref.ID)
	case keyProjectID:
		v = encode(l.Ref.Project)
	case keyStatus:
		v = encode(l.Status)
	case keyMessages, keyActivities:
		v = appendRecords(nil, l.Doc.Lists[key])
	case keyActiveRun:
		v = l.ActiveRun
	case keyError:
		if l.Error != "" {
			v = encode(l.Error)
		}
	case keyCreatedAt:
		v = encode(l.CreatedAt)
	case keyUpdatedAt:
		v = encode(l.UpdatedAt)
	case keyNotifications:
		v = l.Notifications
	}
	if v == nil {
		return dst
	}
	return appendMember(dst, encode(key), v)
}

// appendRecords appends the tail of a list as an array, one record a line.
func appendRecords(dst []byte, list *transcript.List) []byte {
	dst = append(dst, '[')
	if list == nil || len(list.Tail) == 0 {
		return append(dst, ']')
	}
	for i, r := range list.Tail {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = transcript.EncodeRecordJSON(append(dst, '\n'), r)
	}
	return append(dst, '\n', ']')
}

func (l *Live) encodeSess() json.RawMessage {
	dst := []byte{'{'}
	dst = appendMember(dst, []byte(`"format"`), encode(transcript.Format))
	dst = appendMember(dst, []byte(`"revision"`), encode(l.Revision))
	if len(l.Ops) > 0 {
		dst = appendMember(dst, []byte(`"ops"`), encode(l.Ops))
	}
	if l.Note != "" {
		dst = appendMember(dst, []byte(`"note"`), encode(l.Note))
		dst = appendMember(dst, []byte(`"noteRevision"`), encode(l.NoteRevision))
	}
	lists := []byte{'{'}
	for _, name := range slices.Sorted(maps.Keys(l.Doc.Lists)) {
		list := l.Doc.Lists[name]
		elsewhere := name == keyMessages || name == keyActivities
		sealed := list.Records - len(list.Tail)
		if sealed == 0 && (elsewhere || len(list.Tail) == 0) {
			continue
		}
		one := []byte{'{'}
		one = appendMember(one, []byte(`"sealed"`), encode(sealed))
		one = appendMember(one, []byte(`"bytes"`), encode(l.sealed[name]))
		if len(list.Index) > 0 {
			one = appendMember(one, []byte(`"index"`), encode(list.Index))
		}
		if len(list.Chunks) > 0 {
			one = appendMember(one, []byte(`"chunks"`), encode(list.Chunks))
		}
		if !elsewhere {
			one = appendMember(one, []byte(`"tail"`), appendRecords(nil, list))
		}
		lists = appendMember(lists, encode(name), append(one, '}'))
	}
	dst = appendMember(dst, []byte(`"lists"`), append(lists, '}'))
	for _, m := range l.extra {
		dst = appendMember(dst, m.rawKey, m.value)
	}
	return append(dst, '}')
}

func tailBytes(list *transcript.List) int64 {
	n := int64(0)
	for _, r := range list.Tail {
		n += int64(len(r)) + 1
	}
	return n
}

func chunkBytes(list *transcript.List) int64 {
	n := int64(0)
	for _, r := range list.Chunks {
		n += r.Bytes
	}
	return n
}
