package tests

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sess/store/durable/durabletest"
	"sess/store/session"
	"sess/store/transcript"
)

// stepped is a home with a clock that is set back and forth.
type stepped struct {
	*rig
	clock atomic.Pointer[time.Time] // host and plugin look at it from their goroutines
}

func (s *stepped) now() time.Time { return *s.clock.Load() }

func (s *stepped) set(now time.Time) { s.clock.Store(&now) }

func newStepped(t *testing.T, now time.Time) *stepped {
	t.Helper()
	s := &stepped{}
	s.set(now)
	r, err := openRigAt(t, newHome(t, now), durabletest.Unsynced, s.now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	s.rig = r
	return s
}

// do runs a command that must work, and decodes its data.
func (s *stepped) do(into any, argv ...string) string {
	s.Helper()
	res, err := s.answer(argv...)
	if err == nil && into != nil {
		err = json.Unmarshal(res.Data, into)
	}
	if err != nil {
		s.Fatalf("sess %s at %v: %v", strings.Join(argv, " "), s.now(), err)
	}
	return res.Text
}

// say adds a message to the session.
func (s *stepped) say(text string) {
	s.Helper()
	if err := s.write(text, 1); err != nil {
		s.Fatal(err)
	}
}

// loadEarly loads the snapshot early and returns the name of the backup.
func (s *stepped) loadEarly() string {
	s.Helper()
	var loaded struct{ Backup string }
	s.do(&loaded, "load", "early")
	if loaded.Backup == "" {
		s.Fatal("the load made no backup")
	}
	return loaded.Backup
}

// listedAt is what a list says of a snapshot.
type listedAt struct {
	Name      string
	Future    bool
	UpdatedAt time.Time
}

func (s *stepped) list() []listedAt {
	s.Helper()
	var all []listedAt
	s.do(&all, "list", "--include-auto")
	return all
}

// holds reports whether a snapshot ends in the message.
func (s *stepped) holds(name, text string) bool {
	s.Helper()
	var seen struct{ Messages []struct{ Content string } }
	s.do(&seen, "view", name, "--limit=1")
	return len(seen.Messages) == 1 && strings.HasPrefix(seen.Messages[0].Content, text)
}

// S4-27, S4-90: in the last instant of a year, which does not end, each load makes
// a backup of its own: it holds what was live just before, and they are listed in
// the order in which they were made.
func TestBackupsOfOneInstant(t *testing.T) {
	t.Parallel()
	s := newStepped(t, time.Date(2031, 12, 31, 23, 59, 59, 999e6, time.UTC))
	var made []string
	texts := []string{"first of all", "second to none", "third time", "fourth and last"}
	for _, text := range texts {
		s.say(text)
		made = append(made, s.loadEarly())
	}
	s.set(s.now().Add(time.Millisecond)) // of the next year
	s.say("happy new year")
	texts, made = append(texts, "happy new year"), append(made, s.loadEarly())
	for i, name := range made {
		if !s.holds(name, texts[i]) {
			t.Errorf("%s does not hold %q", name, texts[i])
		}
		if !regexp.MustCompile(`^pre-load~20\d{6}T\d{9}Z(-\d)?$`).MatchString(name) {
			t.Errorf("the backup is called %q", name)
		}
	}
	var backups []string
	for _, e := range s.list() {
		if slices.Contains(made, e.Name) {
			backups = append(backups, e.Name)
		}
	}
	slices.Reverse(backups)
	if !slices.Equal(backups, made) {
		t.Errorf("listed are %q, oldest first; they were made in the order %q", backups, made)
	}
	if !slices.IsSorted(made) {
		t.Errorf("the names %q do not sort by time", made)
	}
}

// A clock that is set back, two years ahead, and right again: names stay unique,
// nobody is told an age that is none, undo goes back by the order of what was
// done, and what was dated ahead neither costs others their place nor passes for
// the newest backup.
func TestClockSteps(t *testing.T) {
	t.Parallel()
	right := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	s := newStepped(t, right)
	var made []string
	for i, at := range []time.Time{
		right, right.Add(-time.Hour), right.Add(-time.Hour), right.AddDate(2, 0, 0), right.AddDate(2, 0, 0), right.Add(time.Minute),
	} {
		s.set(at)
		text := []string{"one", "two", "three", "four", "five", "six"}[i]
		s.say(text)
		name := s.loadEarly()
		if slices.Contains(made, name) {
			t.Errorf("the backup of %v has the name of another one: %s", at, name)
		}
		made = append(made, name)
		if !s.holds(name, text) {
			t.Errorf("%s does not hold %q", name, text)
		}
		for line := range strings.Lines(s.do(nil, "list", "--include-auto")) {
			if regexp.MustCompile(`-\d+(s|m|h|d)\b`).MatchString(line) {
				t.Errorf("at %v a list says %s", at, line)
			}
		}
	}
	fresh, ahead := made[5], made[3:5]
	for _, e := range s.list() {
		if want := slices.Contains(ahead, e.Name); e.Future != want {
			t.Errorf("%s of %v is dated in the future: %t, want %t", e.Name, e.UpdatedAt, e.Future, want)
		}
	}
	if text := s.do(nil, "list", "--include-auto"); strings.Count(text, "in the future (2033-05-06)") != 2 {
		t.Errorf("a list does not tell what is dated in the future:\n%s", text)
	}

	// The pruner has run in 2033, as it seems. What it is to keep is counted
	// without what is dated ahead.
	s.do(nil, "prune", "--keep=1")
	left := s.list()
	for _, name := range []string{fresh, "early", "late"} {
		if !slices.ContainsFunc(left, func(e listedAt) bool { return e.Name == name }) {
			t.Errorf("%s was pruned; left are %v", name, left)
		}
	}
	s.set(s.now().Add(48 * time.Hour))
	s.do(nil, "save", "later")
	if last := s.list(); !slices.ContainsFunc(last, func(e listedAt) bool { return e.Name == fresh }) {
		t.Errorf("a save after the clock was right again cost the newest backup; left are %v", last)
	}

	// Back by the order of the loads, whatever the clock said.
	s.do(nil, "undo") // of the prune
	for _, text := range []string{"six", "five", "four", "three", "two", "one"} {
		s.do(nil, "undo")
		live, err := s.Sessions().Read(t.Context(), session.Ref{Project: "default", ID: talkID})
		if err != nil {
			t.Fatal(err)
		}
		if all := items(t, live, transcript.ListMessages); !strings.Contains(all[len(all)-1], `"content":"`+text) {
			t.Errorf("undo did not bring back %q", text)
		}
	}
	s.do(nil, "verify")
}
