package sess

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"sess/plugin"
	"sess/store/transcript"
)

// autosaveTime bounds one autosave: it runs after the call that asked for it may
// have ended.
const autosaveTime = 2 * time.Minute

// autosaver saves sessions into the rolling slot after their turns. Of one
// session one save runs at a time; turns that end meanwhile make one more, which
// saves the state that is the newest then.
type autosaver struct {
	dispatcher plugin.Dispatcher
	slot       string
	log        *slog.Logger
	changed    func(context.Context, change)

	tasks tasks
	mu    sync.Mutex // guards sessions
	// sessions are those with a save under way.
	sessions map[sessionKey]*pendingSave
}

type sessionKey struct{ agent, project, session string }

// pendingSave is the newest event that came while a save ran; nil is none.
type pendingSave struct{ next *plugin.Event }

// turnEnded saves the session of the event, and answers with what its people
// must know. Where a save is under way already it returns at once.
func (a *autosaver) turnEnded(ctx context.Context, event plugin.Event) []string {
	key := sessionKey{event.Agent, event.Project, event.Session}
	a.mu.Lock()
	if running := a.sessions[key]; running != nil {
		running.next = &event
		a.mu.Unlock()
		return nil
	}
	pending := &pendingSave{next: &event}
	a.sessions[key] = pending
	a.mu.Unlock()

	var notices []string
	done := make(chan struct{})
	started := a.tasks.run(func() {
		defer close(done)
		for {
			a.mu.Lock()
			next := pending.next
			pending.next = nil
			if next == nil {
				delete(a.sessions, key)
				a.mu.Unlock()
				return
			}
			a.mu.Unlock()
			if notice := a.save(context.WithoutCancel(ctx), *next); notice != "" {
				notices = append(notices, notice)
			}
		}
	})
	if !started {
		a.mu.Lock()
		delete(a.sessions, key)
		a.mu.Unlock()
		return []string{"autosave failed: the plugin is being stopped"}
	}
	select {
	case <-done:
		return notices
	case <-ctx.Done():
		return nil // the save goes on; draining waits for it
	}
}

// save goes through the dispatcher like every other save. A failure never
// reaches the turn: it is a notice.
func (a *autosaver) save(ctx context.Context, event plugin.Event) string {
	ctx, cancel := context.WithTimeout(ctx, autosaveTime)
	defer cancel()
	_, err := a.dispatcher.Dispatch(ctx, plugin.Call{
		Argv:  []string{"save", "--overwrite", "--trigger=" + string(transcript.TriggerAutosave), "--", a.slot},
		Agent: event.Agent, Project: event.Project, Session: event.Session, Caller: plugin.CallerHost,
	}, nil)
	if err == nil {
		a.changed(ctx, change{Agent: event.Agent, Project: event.Project, Session: event.Session, Verb: "save", Data: map[string]string{"name": a.slot}})
		return ""
	}
	a.log.WarnContext(ctx, "autosave", "session_id", event.Session, "turn", event.Turn, "err", err)
	return fmt.Sprintf("autosave failed: %s", plugin.AsError(err).Text())
}

// drain waits for the saves under way and starts no more.
func (a *autosaver) drain(ctx context.Context) error {
	a.tasks.close()
	return a.tasks.wait(ctx)
}
