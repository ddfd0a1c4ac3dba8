package sess

import (
	"context"
	"log/slog"
	"time"

	"github.com/robfig/cron/v3"
)

// heartbeat bounds how late a job can be after the machine slept: timers stand
// still while it does, and an entry that fires every minute makes the scheduler
// look at the clock again.
const heartbeat = time.Minute

// scheduler runs named jobs, each at its own interval and never twice at once: a
// tick that finds its job still running is skipped and logged. A job that panics
// is logged too and runs again at its next tick.
type scheduler struct {
	cron *cron.Cron
	jobs map[string]cron.EntryID
}

func newScheduler(log *slog.Logger) *scheduler {
	logger := cronLogger{log}
	return &scheduler{
		// Skipping goes around recovering: the other way round a panic would keep
		// the token that says that the job runs.
		cron: cron.New(cron.WithLogger(logger), cron.WithChain(cron.SkipIfStillRunning(logger), cron.Recover(logger))),
		jobs: map[string]cron.EntryID{},
	}
}

// add schedules a job under a name of its own, before start. The interval is at
// least a second and a whole number of them.
func (s *scheduler) add(name string, every time.Duration, job func()) {
	s.jobs[name] = s.cron.Schedule(cron.Every(every), cron.FuncJob(job))
}

func (s *scheduler) start() {
	s.cron.Schedule(cron.Every(heartbeat), cron.FuncJob(func() {}))
	s.cron.Start()
}

// next is when a job runs next; zero before start and for one that is not there.
func (s *scheduler) next(name string) time.Time {
	id, ok := s.jobs[name]
	if !ok {
		return time.Time{}
	}
	return s.cron.Entry(id).Next
}

// stop starts no more jobs and waits, as long as ctx lasts, for those that run.
func (s *scheduler) stop(ctx context.Context) error {
	select {
	case <-s.cron.Stop().Done():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// cronLogger gives the scheduler's talk to slog. What it calls info is chatty.
type cronLogger struct{ log *slog.Logger }

func (l cronLogger) Info(msg string, keysAndValues ...any) {
	level := slog.LevelDebug
	if msg == "skip" {
		level = slog.LevelWarn
	}
	l.log.Log(context.Background(), level, "schedule: "+msg, keysAndValues...)
}

func (l cronLogger) Error(err error, msg string, keysAndValues ...any) {
	l.log.Error("schedule: "+msg, append(keysAndValues, "err", err)...)
}
