package supervise

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sess/plugin"
	"sess/plugin/wire"
)

// fake is an instance without a process.
type fake struct {
	plugin.Plugin   // answers what the tests do not use
	plugin.Provider // likewise
	number          int
	dispatch        func(ctx context.Context) error
	dead            chan struct{}
	once            sync.Once
	stubborn        bool // ends by force only
	forced          atomic.Bool
	released        atomic.Bool
	drained         atomic.Bool
}

func newFake(n int) *fake { return &fake{number: n, dead: make(chan struct{})} }

func (f *fake) Dispatch(ctx context.Context, _ plugin.Call, _ plugin.ProgressFunc) (plugin.Result, error) {
	if f.dispatch != nil {
		if err := f.dispatch(ctx); err != nil {
			return plugin.Result{}, err
		}
	}
	return plugin.Result{Text: fmt.Sprint(f.number)}, nil
}

func (f *fake) Drain(ctx context.Context) error {
	f.drained.Store(true)
	if f.stubborn {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (f *fake) die()     { f.once.Do(func() { close(f.dead) }) }
func (f *fake) pid() int { return 1000 + f.number }
func (f *fake) description() plugin.Description {
	return plugin.Description{Build: fmt.Sprint(f.number)}
}
func (f *fake) gone() <-chan struct{} { return f.dead }
func (f *fake) ended() string         { return "exit status 2: panic: boom" }
func (f *fake) last() []string        { return []string{"panic: boom"} }
func (f *fake) release()              { f.released.Store(true) }

func (f *fake) end(ctx context.Context) {
	if f.stubborn && alive(f) {
		<-ctx.Done()
		f.forced.Store(true)
	}
	f.die()
}

var errGone = &plugin.Error{Code: plugin.Unavailable, Message: "stopped", Err: wire.ErrStopped}

// supervised is a supervisor whose instances launch makes.
func supervised(t *testing.T, cfg Config, launch func(ctx context.Context, n int) (instance, error)) *Supervisor {
	t.Helper()
	cfg.Manifest = &plugin.Manifest{ID: "test", Version: "1"}
	s := New(cfg)
	s.launch = launch
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func call(t *testing.T, s *Supervisor) (string, error) {
	t.Helper()
	r, err := s.Dispatch(t.Context(), plugin.Call{Argv: []string{"list"}}, nil)
	return r.Text, err
}

func wantUnavailable(t *testing.T, err error, parts ...string) {
	t.Helper()
	if !errors.Is(err, &plugin.Error{Code: plugin.Unavailable}) {
		t.Errorf("error = %v, want unavailable", err)
		return
	}
	for _, part := range parts {
		if !strings.Contains(plugin.AsError(err).Text(), part) {
			t.Errorf("error %q does not say %q", plugin.AsError(err).Text(), part)
		}
	}
}

func TestManyCallsStartOneProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := supervised(t, Config{}, func(_ context.Context, n int) (instance, error) {
			time.Sleep(8 * time.Second) // a first start may take longer than a restart
			return newFake(n), nil
		})
		if got := s.State(); got.Phase != Stopped || got.PID != 0 {
			t.Errorf("before the first call: %+v", got)
		}
		var calls sync.WaitGroup
		for range 100 {
			calls.Go(func() {
				if text, err := call(t, s); text != "1" || err != nil {
					t.Errorf("Dispatch = %q, %v", text, err)
				}
			})
		}
		calls.Wait()
		if got := s.State(); got.Phase != Ready || got.PID != 1001 || got.Restarts != 0 {
			t.Errorf("after the calls: %+v", got)
		}
	})
}

func TestPausesGrowAndTheFifthFailureIsTheLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var starts []time.Time
		s := supervised(t, Config{}, func(context.Context, int) (instance, error) {
			starts = append(starts, time.Now())
			return nil, plugin.Errorf(plugin.Unavailable, "no luck")
		})
		_, err := call(t, s)
		wantUnavailable(t, err, "no luck")
		if phase := s.State().Phase; phase != Backoff {
			t.Errorf("after the first failure the phase is %s", phase)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(starts) != maxFailures {
			t.Fatalf("%d starts, want %d", len(starts), maxFailures)
		}
		for i := 1; i < len(starts); i++ {
			longest := firstPause << (i - 1)
			if d := starts[i].Sub(starts[i-1]); d < longest/2 || d > longest {
				t.Errorf("pause %d is %v, want between %v and %v", i, d, longest/2, longest)
			}
		}
		_, err = call(t, s)
		wantUnavailable(t, err, "failed 5 times in a row", "no luck", "sess plugins inspect test")
		if state := s.State(); state.Phase != Failed || state.LastError == nil {
			t.Errorf("in the end: %+v", state)
		}
	})
}

func TestPauseHasALimit(t *testing.T) {
	t.Parallel()
	for failures := 1; failures < 100; failures++ {
		if d := pause(failures); d < firstPause/2 || d > maxPause {
			t.Errorf("pause(%d) = %v", failures, d)
		}
	}
}

func TestOnlyALongReadyTimeForgivesFailures(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		well time.Duration
		want Phase
	}{
		{settleAfter - time.Second, Failed},
		{settleAfter + time.Second, Ready},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := supervised(t, Config{}, func(_ context.Context, n int) (instance, error) {
				f := newFake(n)
				time.AfterFunc(test.well, f.die)
				return f, nil
			})
			if _, err := call(t, s); err != nil {
				t.Fatal(err)
			}
			// Ends well within the life of a seventh instance.
			time.Sleep(6*test.well + 30*time.Second)
			if got := s.State().Phase; got != test.want {
				t.Errorf("after lives of %v: %s, want %s", test.well, got, test.want)
			}
		})
	}
}

func TestACrashFailsTheCallsInFlightOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var exits []Exit
		var fakes []*fake
		s := supervised(t, Config{OnExit: func(e Exit) { exits = append(exits, e) }}, func(_ context.Context, n int) (instance, error) {
			f := newFake(n)
			fakes = append(fakes, f)
			if n == 1 {
				f.dispatch = func(context.Context) error {
					f.die()
					return errGone
				}
			}
			return f, nil
		})
		_, err := call(t, s)
		wantUnavailable(t, err, "plugin test stopped (exit status 2: panic: boom) during the call and is being restarted", "see whether")
		if text, err := call(t, s); text != "2" || err != nil {
			t.Errorf("the next call = %q, %v, want the second instance", text, err)
		}
		if len(exits) != 1 || exits[0] != (Exit{1, 1001, "exit status 2: panic: boom", false}) {
			t.Errorf("exits = %+v", exits)
		}
		if !fakes[0].released.Load() {
			t.Error("the runtime of the dead instance is still there")
		}
		if got := s.State(); got.Restarts != 1 || got.PID != 1002 {
			t.Errorf("State = %+v", got)
		}
	})
}

func TestACallThatOnlyReadsIsSentAgainOnce(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		deaths int
		want   string
	}{{1, "2"}, {2, ""}} {
		synctest.Test(t, func(t *testing.T) {
			s := supervised(t, Config{ReadOnly: func(c plugin.Call) bool { return c.Argv[0] == "list" }},
				func(_ context.Context, n int) (instance, error) {
					f := newFake(n)
					if n <= test.deaths {
						f.dispatch = func(context.Context) error {
							f.die()
							return errGone
						}
					}
					return f, nil
				})
			text, err := call(t, s)
			if text != test.want || (err == nil) != (test.want != "") {
				t.Errorf("with %d deaths: %q, %v, want %q", test.deaths, text, err, test.want)
			}
		})
	}
}

func TestAPluginsOwnUnavailableIsNoCrash(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		own := plugin.Errorf(plugin.Unavailable, "the store is offline")
		s := supervised(t, Config{ReadOnly: func(plugin.Call) bool { return true }}, func(_ context.Context, n int) (instance, error) {
			f := newFake(n)
			f.dispatch = func(context.Context) error { return own }
			return f, nil
		})
		if _, err := call(t, s); err != own {
			t.Errorf("Dispatch = %v, want the plugin's own error", err)
		}
		if got := s.State(); got.Phase != Ready || got.Restarts != 0 {
			t.Errorf("State = %+v", got)
		}
	})
}

func TestCallsWaitAWhileForARestart(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		restart time.Duration
		ctx     time.Duration
		want    time.Duration // until the error; 0 for an answer
		cause   error
	}{
		{"a quick one", time.Second, time.Hour, 0, nil},
		{"a slow one", 9 * time.Second, time.Hour, patience, nil},
		{"a slow one under a deadline", 9 * time.Second, 2 * time.Second, 2 * time.Second, context.DeadlineExceeded},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var first *fake
				s := supervised(t, Config{}, func(_ context.Context, n int) (instance, error) {
					if n > 1 {
						time.Sleep(test.restart)
						return newFake(n), nil
					}
					first = newFake(n)
					return first, nil
				})
				if err := s.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				first.die()
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), test.ctx)
				defer cancel()
				began := time.Now()
				_, err := s.Dispatch(ctx, plugin.Call{}, nil)
				if test.want == 0 {
					if err != nil {
						t.Errorf("Dispatch = %v", err)
					}
					return
				}
				wantUnavailable(t, err)
				if waited := time.Since(began); waited != test.want {
					t.Errorf("it waited %v, want %v", waited, test.want)
				}
				if test.cause != nil && !errors.Is(err, test.cause) {
					t.Errorf("Dispatch = %v, want the cause %v", err, test.cause)
				}
			})
		})
	}
}

func TestARefusedStartIsNotRepeatedUntilAskedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var starts atomic.Int64
		s := supervised(t, Config{}, func(_ context.Context, n int) (instance, error) {
			if starts.Add(1) == 1 {
				return nil, permanent{plugin.Errorf(plugin.Corrupt, "wrong checksum").WithHint("install it again")}
			}
			return newFake(n), nil
		})
		for range 2 {
			_, err := call(t, s)
			if e := plugin.AsError(err); e.Code != plugin.Corrupt || e.Text() != "wrong checksum; install it again" {
				t.Errorf("Dispatch = %v", err)
			}
			time.Sleep(time.Hour)
		}
		if n := starts.Load(); n != 1 {
			t.Errorf("%d starts, want 1", n)
		}
		if err := s.Start(t.Context()); err != nil {
			t.Errorf("Start = %v", err)
		}
		if _, err := call(t, s); err != nil {
			t.Errorf("Dispatch after Start = %v", err)
		}
	})
}

func TestCloseWaitsForCallsThenEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(1)
		f.dispatch = func(context.Context) error { time.Sleep(3 * time.Second); return nil }
		s := supervised(t, Config{}, func(context.Context, int) (instance, error) { return f, nil })
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		answered := make(chan error, 1)
		go func() {
			_, err := call(t, s)
			answered <- err
		}()
		synctest.Wait()
		began := time.Now()
		if err := s.Close(t.Context()); err != nil {
			t.Errorf("Close = %v", err)
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("Close took %v, want the call's 3 s", took)
		}
		if err := <-answered; err != nil {
			t.Errorf("the call in flight = %v", err)
		}
		if !f.drained.Load() || !f.released.Load() || f.forced.Load() {
			t.Errorf("drained %t, released %t, forced %t", f.drained.Load(), f.released.Load(), f.forced.Load())
		}
		_, err := call(t, s)
		wantUnavailable(t, err, "is stopped")
		if err := s.Start(t.Context()); err == nil {
			t.Error("Start after Close succeeded")
		}
		if got := s.State(); got.Phase != Stopped || got.PID != 0 {
			t.Errorf("State = %+v", got)
		}
	})
}

func TestCloseCannotHang(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		ctx  time.Duration
		want time.Duration
	}{
		{"no hurry", time.Hour, 5*time.Second + killGrace},
		{"one second", time.Second, time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFake(1)
				f.stubborn = true
				f.dispatch = func(ctx context.Context) error { <-f.dead; return errGone }
				s := supervised(t, Config{}, func(context.Context, int) (instance, error) { return f, nil })
				if err := s.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				answered := make(chan error, 1)
				go func() {
					_, err := call(t, s)
					answered <- err
				}()
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), test.ctx)
				defer cancel()
				began := time.Now()
				if err := s.Close(ctx); err != nil {
					t.Errorf("Close = %v", err)
				}
				if took := time.Since(began); took != test.want {
					t.Errorf("Close took %v, want %v", took, test.want)
				}
				wantUnavailable(t, <-answered, "was stopped during the call, as its host is stopping")
			})
		})
	}
}

func TestCloseGivesAStartUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := supervised(t, Config{}, func(ctx context.Context, n int) (instance, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		failed := make(chan error, 1)
		go func() {
			_, err := call(t, s)
			failed <- err
		}()
		synctest.Wait()
		began := time.Now()
		if err := s.Close(t.Context()); err != nil || time.Since(began) != 0 {
			t.Errorf("Close = %v after %v", err, time.Since(began))
		}
		wantUnavailable(t, <-failed)
	})
}

func TestAProcessWithoutAConnectionIsEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := supervised(t, Config{}, func(_ context.Context, n int) (instance, error) {
			f := newFake(n)
			if n == 1 {
				f.stubborn = true
				f.dispatch = func(context.Context) error { return errGone }
			}
			return f, nil
		})
		_, err := call(t, s)
		wantUnavailable(t, err, "plugin test stopped")
		if text, err := call(t, s); text != "2" || err != nil {
			t.Errorf("the next call = %q, %v, want the second instance", text, err)
		}
	})
}
