package session

import (
	"context"
	"encoding/json"

	"sess/store/transcript"
)

// Settled returns a session as it is to be kept by whoever saves it. Of one in a
// turn that is all that is complete by now: the answer that is being written,
// the calls that have no result yet, and what belongs to them are left out. One
// whose turn died is mended as [Locked.Read] does it, so that the part of an
// answer that had come is in it. Any other is as stored. The file is not
// touched, and the revision is the file's. running reports whether somebody
// works on the session. The errors are those of Read.
func (s *Store) Settled(ctx context.Context, ref Ref) (l *Live, running bool, err error) {
	l, running, err = s.readRunning(ctx, ref)
	if err != nil || !interruptible(l.Status) {
		return l, running, err
	}
	stored := l.clone()
	if running {
		err = l.leaveOut()
	} else {
		err = l.mend(ctx)
	}
	if err != nil {
		return nil, running, err
	}
	if len(l.pending) > 0 {
		// What would have to be sealed anew is nowhere to be read from.
		return stored, running, nil
	}
	return l, running, nil
}

// leaveOut drops from the end of each list what the turn that runs has not
// completed.
func (l *Live) leaveOut() error {
	type state struct {
		Status transcript.Status `json:"status"`
	}
	streaming := func(r transcript.Record) bool {
		var m state
		return json.Unmarshal(r, &m) == nil && m.Status == transcript.StatusStreaming
	}
	unfinished := func(r transcript.Record) bool {
		var a state
		return json.Unmarshal(r, &a) == nil && (a.Status == transcript.StatusPending || a.Status == transcript.StatusInProgress)
	}
	answered := map[string]bool{}
	unanswered := func(r transcript.Record) (cut, last bool) {
		var h transcript.HistoryItem
		if json.Unmarshal(r, &h) != nil {
			return false, true
		}
		if h.Role == transcript.RoleTool {
			answered[h.ToolCallID] = true
			return false, false
		}
		for _, call := range h.ToolCalls {
			cut = cut || !answered[call.ID]
		}
		return cut, true
	}
	while := func(match func(transcript.Record) bool) func(transcript.Record) (bool, bool) {
		return func(r transcript.Record) (bool, bool) {
			cut := match(r)
			return cut, !cut
		}
	}
	for name, step := range map[string]func(transcript.Record) (cut, last bool){
		transcript.ListMessages:   while(streaming),
		transcript.ListActivities: while(unfinished),
		transcript.ListHistory:    unanswered,
	} {
		if err := l.cutEnd(name, step); err != nil {
			return err
		}
	}
	return nil
}

// cutEnd walks a list from its end, as long as step does not say that a record
// is the last to look at, and cuts the list before the first one of those that
// step wants cut.
func (l *Live) cutEnd(name string, step func(transcript.Record) (cut, last bool)) error {
	list := l.Doc.List(name)
	at := list.Records
	for i := list.Records - 1; i >= 0; i-- {
		var cut, last bool
		for r, err := range list.All(l.load, i, i+1) {
			if err != nil {
				return err
			}
			cut, last = step(r)
		}
		if cut {
			at = i
		}
		if last {
			break
		}
	}
	if at == list.Records {
		return nil
	}
	return l.Splice(name, at, list.Records)
}
