package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"sess/store/transcript"
)

const (
	// saveTime bounds a save that runs.
	saveTime = 15 * time.Second
	// keyTitled says who chose the session's title: people, so that no title that
	// is made automatically replaces it.
	keyTitled = "titleBy"
	titledBy  = "user"

	keyTitle         = "title"
	keyCwd           = "cwd"
	keyArtifacts     = "artifacts"
	keyRevision      = "revision"
	keyProviderState = "providerState"
	keyCompaction    = "compaction"
)

// SaveSession stores a session as a client has it, durably, and returns its new
// revision: object is what [Store.View] shows, with the client's changes. What
// the client was not shown stays: keys, messages and activities that are hidden,
// and the stored bytes of whatever it sends back as it was shown it. A message or
// activity that it was shown and does not send is removed; an object without one
// of the arrays, or without title, cwd or status, says nothing about it.
//
// base is the revision that the client has seen; where it is nil, that is the
// object's key revision. Another stored revision is a *ConflictError. Without
// any revision a session can be made and added to; what would replace or remove
// something is a *ConflictError. Where a message was changed or removed, history
// follows from its turn on, and the provider's state is dropped.
//
// A session that was deleted is a *DeletedError, also without a revision: a late
// save brings nothing back. While a snapshot is shown instead of the session it is
// a *ReadOnlyError, while a turn runs a *durable.LockedError, and an object that
// is no session an *ObjectError. A damaged file is set aside. After an error
// nothing has changed, unless it is ErrUndecided.
//
// Calls about one session run in the order in which they were made. A call that
// was made is carried out, also if ctx ends meanwhile: who leaves after a save
// meant it to be kept.
func (s *Store) SaveSession(ctx context.Context, object json.RawMessage, base *int64) (revision int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	in, err := parseSave(bytes.Clone(object))
	if err != nil {
		return 0, err
	}
	if base != nil {
		in.base = new(*base)
	}
	made := time.Now()
	defer s.queue.enter(in.ref)()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTime)
	defer cancel()
	k, err := s.lockUntil(ctx, in.ref, "save", made.Add(clientWait))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, k.Unlock()) }()
	if err := s.refuseSelected(in.ref); err != nil {
		return 0, err
	}
	return k.save(ctx, in)
}

// save merges what a client has into what is stored.
func (k *Locked) save(ctx context.Context, in *saved) (int64, error) {
	l, err := k.Read(ctx)
	switch {
	case errors.Is(err, ErrNotFound):
		if err := k.refuseDeleted(in); err != nil {
			return 0, err
		}
		return k.saveNew(ctx, in)
	case errors.Is(err, ErrDamaged):
		if _, err := k.setAside(ctx); err != nil {
			return 0, err
		}
		return k.saveNew(ctx, in)
	case err != nil:
		return 0, err
	case in.base != nil && *in.base != l.Revision:
		return 0, &ConflictError{Ref: in.ref, Have: l.Revision, Want: *in.base}
	}
	changed, err := l.merge(in)
	if err != nil {
		return 0, fmt.Errorf("save session %s: %w", in.ref, err)
	}
	if !changed {
		return l.Revision, nil
	}
	return k.Write(ctx, l, l.Revision)
}

// saveNew stores a session that has no file.
func (k *Locked) saveNew(ctx context.Context, in *saved) (int64, error) {
	l := k.store.New(in.ref, "", "")
	in.base = new(int64(0)) // nothing is there to be replaced
	if _, err := l.merge(in); err != nil {
		return 0, fmt.Errorf("save session %s: %w", in.ref, err)
	}
	l.CreatedAt = in.createdAt
	if _, err := k.create(ctx, l); err != nil {
		return 0, err
	}
	// Its own time may be long ago, as of one that is taken over: it is used now.
	if err := k.store.small(ctx, func() error { return k.store.touchMeta(in.ref, false) }); err != nil {
		k.store.log.Warn("use of a session not noted", "session_id", in.ref.ID, "project", in.ref.Project, "err", err)
	}
	return l.Revision, nil
}

// refuseDeleted refuses to bring a session back that was deleted.
func (k *Locked) refuseDeleted(in *saved) error {
	trashed, err := k.store.trashed(k.ref)
	if err != nil {
		return err
	}
	if len(trashed) > 0 || in.base != nil && *in.base > 0 {
		return &DeletedError{Ref: k.ref, Trashed: len(trashed) > 0}
	}
	return nil
}

// saved is a session as a client sends it.
type saved struct {
	ref                  Ref
	base                 *int64 // nil: it names no revision
	title, cwd, status   *string
	messages, activities []json.RawMessage // nil: it says nothing about them
	artifacts            json.RawMessage   // nil: nothing about them
	activeRun            json.RawMessage
	err                  string
	createdAt, updatedAt int64    // 0: none
	other                []member // keys that are not known here
}

// ObjectError says what keeps a JSON value from being a session that can be
// stored.
type ObjectError struct {
	Field  string // "" is the value itself
	Reason string
}

func (e *ObjectError) Error() string {
	if e.Field == "" {
		return "the session " + e.Reason
	}
	return fmt.Sprintf("the session's %s %s", e.Field, e.Reason)
}

func parseSave(object json.RawMessage) (*saved, error) {
	list, err := members(object)
	if err != nil {
		return nil, &ObjectError{Reason: "is no JSON object: " + err.Error()}
	}
	in := &saved{}
	var id, project string
	str := func(m member, to **string) {
		if m.value[0] == '"' {
			*to = new(text(m.value))
		}
	}
	for _, m := range list {
		switch m.key {
		case keyID:
			id = text(m.value)
		case keyProjectID:
			project = text(m.value)
		case keyTitle:
			str(m, &in.title)
		case keyCwd:
			str(m, &in.cwd)
		case keyStatus:
			str(m, &in.status)
		case keyError:
			in.err = text(m.value)
		case keyActiveRun:
			if string(m.value) != "null" {
				in.activeRun = m.value
			}
		case keyCreatedAt:
			in.createdAt = millis(m.value)
		case keyUpdatedAt:
			in.updatedAt = millis(m.value)
		case keyArtifacts:
			in.artifacts = m.value
			if m.value[0] != '[' {
				return nil, &ObjectError{Field: m.key, Reason: "is no array"}
			}
		case keyMessages, keyActivities:
			values, err := elements(m.value)
			if err != nil || values == nil && m.value[0] != '[' {
				return nil, &ObjectError{Field: m.key, Reason: "is no array"}
			}
			if values == nil {
				values = []json.RawMessage{}
			}
			if m.key == keyMessages {
				in.messages = values
			} else {
				in.activities = values
			}
		case keyRevision:
			var n int64
			if string(m.value) == "null" {
				break
			}
			if json.Unmarshal(m.value, &n) != nil || n < 0 {
				return nil, &ObjectError{Field: m.key, Reason: "is no whole number from 0 on"}
			}
			in.base = &n
		case keySess, keyNotifications, keyProviderState, keyCompaction, keyTitled, transcript.ListHistory: // the program's own
		default:
			in.other = append(in.other, m)
		}
	}
	if id == "" {
		return nil, &ObjectError{Field: keyID, Reason: "is missing"}
	}
	if project == "" {
		return nil, &ObjectError{Field: keyProjectID, Reason: "is missing"}
	}
	in.ref, err = ParseRef(project, id)
	return in, err
}

// merge takes over what a client has changed, and reports whether that is
// anything. Without a revision it refuses what is more than an addition.
func (l *Live) merge(in *saved) (changed bool, err error) {
	if l.Interrupted {
		// What is written here is no turn that died any more.
		if err := l.Recall(); err != nil {
			return false, err
		}
	}
	if in.messages != nil && in.base != nil {
		if changed, err = l.removeUnsent(in.messages); err != nil {
			return false, err
		}
	}
	old := l.Doc.Clone()
	before, err := l.spoken()
	if err != nil {
		return false, err
	}
	replaced := false // something that was there
	for _, part := range []struct {
		name  string
		sent  []json.RawMessage
		rules recordRules
	}{
		{keyMessages, in.messages, messageRules()},
		{keyActivities, in.activities, activityRules()},
	} {
		if part.sent == nil {
			continue
		}
		did, lost, err := l.mergeList(part.name, part.sent, part.rules, in.base != nil)
		if err != nil {
			return false, err
		}
		changed, replaced = changed || did, replaced || lost
	}
	did, lost, err := l.mergeFields(in)
	if err != nil {
		return false, err
	}
	changed, replaced = changed || did, replaced || lost
	if replaced && in.base == nil {
		return false, &ConflictError{Ref: l.Ref, Have: l.Revision, Want: NoRevision}
	}
	if err := l.historyFollows(old, before); err != nil {
		return false, err
	}
	if in.updatedAt > l.UpdatedAt {
		l.updatedAt, changed = in.updatedAt, true
	}
	return changed, nil
}

// removeUnsent takes out the messages that a client was shown and does not send,
// with their activities and their share of history.
func (l *Live) removeUnsent(sent []json.RawMessage) (changed bool, err error) {
	ids := make(map[string]bool, len(sent))
	for _, v := range sent {
		if shown, id := shownMessage(v); shown != nil {
			ids[id] = true
		}
	}
	list, show := l.Doc.List(keyMessages), showing(shownMessage)
	var gone []int
	i := 0
	for r, err := range list.All(l.load, 0, list.Records) {
		if err != nil {
			return false, err
		}
		if shown, id := show(r); shown != nil && !ids[id] {
			gone = append(gone, i)
		}
		i++
	}
	if len(gone) == 0 {
		return false, nil
	}
	doc := l.Doc.Clone()
	if _, err := transcript.RemoveMessages(doc, l.load, l.seal, gone); err != nil {
		return false, err
	}
	return true, l.adopt(doc)
}

// mergeFields takes over what is in no list; lost is set where something gave
// way.
func (l *Live) mergeFields(in *saved) (changed, lost bool, err error) {
	set := func(key string, value any) {
		if err == nil {
			changed, err = true, l.Set(key, value)
		}
	}
	if title := in.title; title != nil && *title != "" && *title != l.Doc.Meta.Title {
		lost = lost || !automatic(l.Ref, l.Doc.Meta.Title)
		set(keyTitle, *title)
		if !automatic(l.Ref, *title) {
			set(keyTitled, titledBy)
		}
	}
	if cwd := text(l.Get(keyCwd)); in.cwd != nil && *in.cwd != cwd {
		lost = lost || cwd != ""
		set(keyCwd, *in.cwd)
	}
	if stored := l.Get(keyArtifacts); in.artifacts != nil && !sameJSON(goodArtifacts(stored), goodArtifacts(in.artifacts)) {
		merged, gone := mergeArtifacts(stored, in.artifacts, in.base != nil)
		lost = lost || gone
		set(keyArtifacts, merged)
	}
	for _, m := range in.other {
		if stored := l.Get(m.key); !sameJSON(stored, m.value) {
			lost = lost || stored != nil
			set(m.key, m.value)
		}
	}
	if in.status != nil && *in.status != l.Status {
		l.Status, changed = StatusIdle, true
		if knownStatus(*in.status) {
			l.Status = *in.status
		}
	}
	if !sameJSON(in.activeRun, l.ActiveRun) && (in.activeRun != nil || l.ActiveRun != nil) {
		l.ActiveRun, changed = in.activeRun, true
	}
	if in.err != l.Error {
		l.Error, changed = in.err, true
	}
	return changed, lost, err
}

// automatic reports whether a title is one that nobody chose.
func automatic(ref Ref, title string) bool {
	return title == "" || title == ref.ID || title == DefaultTitle
}

// mergeArtifacts is what a client sends, without embedded content, and what it was
// not shown; without a revision also what it does not send.
func mergeArtifacts(stored, sent json.RawMessage, full bool) (merged json.RawMessage, lost bool) {
	var list []json.RawMessage
	ids := make(map[string]bool)
	values, _ := elements(sent) // it is an array
	for _, v := range values {
		if shown := shownArtifact(v); shown != nil {
			v = shown
			ids[memberText(v, keyID)] = true
		}
		list = append(list, oneLine(v))
	}
	old, _ := elements(stored)
	for _, v := range old {
		shown := shownArtifact(v)
		switch {
		case shown != nil && ids[memberText(v, keyID)]:
			lost = lost || !slices.ContainsFunc(list, func(n json.RawMessage) bool { return sameJSON(n, shown) })
		case shown == nil && slices.ContainsFunc(list, func(n json.RawMessage) bool { return sameJSON(n, v) }):
		case shown == nil || !full:
			list = append(list, v)
		default:
			lost = true
		}
	}
	dst := []byte{'['}
	for i, v := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, v...)
	}
	return append(dst, ']'), lost
}

// memberText is the string that a key of an object has, or "".
func memberText(object json.RawMessage, key string) string { return text(headerValue(object, key)) }

// recordRules say how the records of a list are shown and taken back.
type recordRules struct {
	show     func([]byte) (shown []byte, id string)
	optional []string            // keys that a client removes by leaving them out
	bound    func([]byte) []byte // what the file has of a record; nil: all of it
}

func messageRules() recordRules {
	return recordRules{show: shownMessage, optional: []string{"streamId", "responseToMessageId"}}
}

func activityRules() recordRules {
	return recordRules{
		show: shownActivity, bound: BoundActivity,
		optional: []string{"messageId", "title", "name", "rawInput", "rawOutput", "content"},
	}
}

// mergeRecord is a record of a list while it is merged.
type mergeRecord struct {
	raw   transcript.Record
	shown []byte // nil: it is hidden
}

// keyOf names a record in its list: by its id, or, where it has none, by what is
// shown of it, or, where it is hidden, by what it is. Several may have one name.
func keyOf(shown []byte, id string, raw []byte) string {
	kind := "shown "
	switch {
	case shown == nil:
		kind, shown = "hidden ", raw
	case id != "":
		return "id " + id
	}
	if canonical, err := transcript.Canonical(shown); err == nil {
		shown = canonical
	}
	return kind + string(shown)
}

// mergeList makes a list what a client sends. What it was not shown stays behind
// the record that it stood behind; so does, if not full, all that it does not
// send. lost is set where a record was changed, moved or removed.
func (l *Live) mergeList(name string, sent []json.RawMessage, rules recordRules, full bool) (changed, lost bool, err error) {
	list := l.Doc.List(name)
	stored := make([]mergeRecord, 0, list.Records)
	at := make(map[string][]int, list.Records) // the records of a key that are not taken
	show := showing(rules.show)
	for r, err := range list.All(l.load, 0, list.Records) {
		if err != nil {
			return false, false, fmt.Errorf("%s: %w", name, err)
		}
		shown, id := show(r)
		key := keyOf(shown, id, r)
		at[key] = append(at[key], len(stored))
		stored = append(stored, mergeRecord{raw: r, shown: shown})
	}
	type item struct {
		record transcript.Record
		stored int // -1: it is new
	}
	items := make([]item, 0, len(sent))
	taken := make([]bool, len(stored))
	last := -1
	show = showing(rules.show)
	for _, v := range sent {
		r := transcript.Record(oneLine(v))
		shown, id := show(r)
		key := keyOf(shown, id, r)
		if free := at[key]; len(free) > 0 {
			i := free[0]
			at[key], taken[i] = free[1:], true
			merged := mergeBytes(stored[i], r, rules)
			lost = lost || !bytes.Equal(merged, stored[i].raw) || i < last
			last = max(last, i)
			items = append(items, item{merged, i})
			continue
		}
		if rules.bound != nil {
			r = rules.bound(r)
		}
		items = append(items, item{r, -1})
	}
	// What is not sent and stays has its place behind a record that is sent.
	behind := make(map[int][]transcript.Record)
	anchor := -1
	for i, r := range stored {
		switch {
		case taken[i]:
			anchor = i
		case r.shown != nil && full:
			lost = true
		default:
			behind[anchor] = append(behind[anchor], r.raw)
		}
	}
	result := append(make([]transcript.Record, 0, len(items)), behind[-1]...)
	for _, it := range items {
		result = append(result, it.record)
		if it.stored >= 0 {
			result = append(result, behind[it.stored]...)
		}
	}
	from := 0
	for from < min(len(stored), len(result)) && bytes.Equal(stored[from].raw, result[from]) {
		from++
	}
	end := 0
	for end < min(len(stored), len(result))-from && bytes.Equal(stored[len(stored)-1-end].raw, result[len(result)-1-end]) {
		end++
	}
	if from == len(stored) && from == len(result) {
		return false, lost, nil
	}
	return true, lost, l.Splice(name, from, len(stored)-end, result[from:len(result)-end]...)
}

// mergeBytes is a record that is stored with what a client has changed in it: each
// key that it sends as it was shown it keeps its bytes, and so does one that it was
// not shown.
func mergeBytes(stored mergeRecord, sent transcript.Record, rules recordRules) transcript.Record {
	if stored.shown == nil || bytes.Equal(stored.shown, sent) || bytes.Equal(stored.raw, sent) {
		return stored.raw
	}
	if rules.bound != nil {
		sent = rules.bound(sent)
	}
	// All three are objects: the one could be shown, the other has its key.
	old, _ := members(stored.raw)
	shown, _ := members(stored.shown)
	now, _ := members(sent)
	find := func(list []member, key string) json.RawMessage {
		if i := slices.IndexFunc(list, func(m member) bool { return m.key == key }); i >= 0 {
			return list[i].value
		}
		return nil
	}
	merged := make([]member, 0, len(old)+len(now))
	changed := false
	for _, m := range old {
		switch was, is := find(shown, m.key), find(now, m.key); {
		case is == nil && was != nil && slices.Contains(rules.optional, m.key):
			changed = true
			continue
		case is == nil, sameJSON(was, is), was == nil && sameJSON(m.value, is):
		default:
			m.value, changed = is, true
		}
		merged = append(merged, m)
	}
	for _, m := range now {
		if find(old, m.key) == nil && !sameJSON(find(shown, m.key), m.value) {
			merged, changed = append(merged, m), true
		}
	}
	if !changed {
		return stored.raw
	}
	return transcript.Record(joinMembers(merged))
}
