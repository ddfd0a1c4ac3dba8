package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"sess/store/transcript"
)

// PageRequest says which messages of a session to read: the last ones before one,
// or the first ones after one. Messages are numbered from 0.
type PageRequest struct {
	Before *int // nil: those at the end
	After  *int // wins over Before; nil: Before counts
	Limit  int  // how many at most
	Bytes  int  // how large they may be together; one is there in any case
}

// Page is a part of the messages of a session.
type Page struct {
	Live *Live // what they are of
	// Messages are those from the number First on, each as [Store.View] shows it.
	// What cannot be shown is left out.
	Messages []json.RawMessage
	First    int
	End      int // the number after the last one
}

// Messages reads a page of a session's messages, as [Store.View] has them. Only
// the chunks that they are in are read. The errors are those of Read.
func (s *Store) Messages(ctx context.Context, ref Ref, req PageRequest) (*Page, error) {
	return shownOf(ctx, s, ref, func(l *Live, running bool) (*Page, error) { return l.page(ctx, running, req) })
}

func (l *Live) page(ctx context.Context, running bool, req PageRequest) (*Page, error) {
	if !running {
		if err := l.mend(ctx); err != nil {
			return nil, err
		}
	}
	list := l.Doc.List(transcript.ListMessages)
	from, to := 0, list.Records
	forward := req.After != nil
	if forward {
		from = min(max(*req.After, -1), list.Records-1) + 1
		to = from + min(req.Limit, list.Records-from)
	} else {
		if req.Before != nil {
			to = min(max(*req.Before, 0), list.Records)
		}
		from = max(0, to-req.Limit)
	}
	page := &Page{Live: l, First: from, End: from}
	var records []transcript.Record
	size := 0
	for r, err := range list.All(l.load, from, to) {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return nil, fmt.Errorf("%s: %w", transcript.ListMessages, err)
		}
		size += len(r)
		if forward && size > req.Bytes && len(records) > 0 {
			break
		}
		records = append(records, r)
		for page.End++; size > req.Bytes && len(records) > 1; page.First++ {
			size -= len(records[0])
			records = records[1:]
		}
	}
	page.Messages = ShownMessages(records)
	return page, nil
}
