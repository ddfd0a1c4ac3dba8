package session

import (
	"context"
	"sync"
)

// queue orders what clients ask for: calls about one session run one after the
// other, in the order in which they were made; one about a whole project waits
// for those made before it, and those made after it wait for it. Each call runs
// whatever has become of the one before. The zero value is ready.
type queue struct {
	mu       sync.Mutex // guards projects
	projects map[string]*projectQueue
}

// projectQueue knows the end of the last call about each session of a project,
// and of the last one about all of it. An end is a channel that is closed then.
type projectQueue struct {
	whole    chan struct{} // nil: none
	sessions map[string]chan struct{}
	waiting  int // calls that have not ended; the queue is dropped with the last
}

// enter waits until it is this call's turn; the returned function ends the call
// and has to be called. With an empty id the call is about the whole project.
// What is waited for are calls that are bounded themselves.
func (q *queue) enter(ref Ref) (leave func()) {
	end := make(chan struct{})
	q.mu.Lock()
	if q.projects == nil {
		q.projects = make(map[string]*projectQueue)
	}
	p := q.projects[ref.Project]
	if p == nil {
		p = &projectQueue{sessions: make(map[string]chan struct{})}
		q.projects[ref.Project] = p
	}
	p.waiting++
	var before []chan struct{}
	if ref.ID == "" {
		before = p.all()
		p.whole = end
		clear(p.sessions)
	} else {
		last := p.sessions[ref.ID]
		if last == nil {
			last = p.whole
		}
		if last != nil {
			before = append(before, last)
		}
		p.sessions[ref.ID] = end
	}
	q.mu.Unlock()
	for _, ended := range before {
		<-ended
	}
	return func() {
		close(end)
		q.mu.Lock()
		defer q.mu.Unlock()
		if p.waiting--; p.waiting == 0 {
			delete(q.projects, ref.Project)
		}
	}
}

// all are the ends of the last calls.
func (p *projectQueue) all() []chan struct{} {
	var ends []chan struct{}
	if p.whole != nil {
		ends = append(ends, p.whole)
	}
	for _, end := range p.sessions {
		ends = append(ends, end)
	}
	return ends
}

// flush waits until all calls made until now have ended, or ctx ends.
func (q *queue) flush(ctx context.Context) error {
	q.mu.Lock()
	var ends []chan struct{}
	for _, p := range q.projects {
		ends = append(ends, p.all()...)
	}
	q.mu.Unlock()
	for _, ended := range ends {
		select {
		case <-ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
