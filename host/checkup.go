package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"time"

	"sess/plugin"
	"sess/store/durable"
)

// Finding is one thing that a checkup has looked at.
type Finding struct {
	// Check names it: "home", "config", …
	Check string       `json:"check"`
	State FindingState `json:"state"`
	// Text says how it is, Fix what to do where something is to be done.
	Text string `json:"text"`
	Fix  string `json:"fix,omitempty"`

	// Code is that of what is wrong.
	Code plugin.Code `json:"code,omitempty"`
}

// FindingState says whether somebody has to act.
type FindingState string

// The states. What is only noted needs nobody.
const (
	FindingOK     FindingState = "ok"
	FindingNote   FindingState = "note"
	FindingFailed FindingState = "failed"
)

// Failure is a finding about an error.
func Failure(check string, err error) Finding {
	e := plugin.AsError(err)
	return Finding{Check: check, State: FindingFailed, Text: e.Message, Fix: e.Hint, Code: e.Code}
}

// Free space, in bytes, below which somebody should act, and be told.
const (
	spaceNeeded = 64 << 20
	spaceLow    = 1 << 30
)

// CheckHome looks at a home from outside: its folder, the disk, the
// configuration, the locks, and what crashes have left. It changes nothing, and
// reads no conversation.
func CheckHome(ctx context.Context, home string, builtins [][]byte) []Finding {
	info, err := os.Stat(home)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := checkWritable(nearest(home)); err != nil {
			return []Finding{Failure("home", HomeError(home, err))}
		}
		return []Finding{{Check: "home", State: FindingNote, Text: home + " is not there yet; the first command makes it"}}
	case err != nil || !info.IsDir():
		return []Finding{Failure("home", checkHome(home))}
	}
	found := []Finding{checkFolder(home, info)}
	if free, known := freeSpace(home); known {
		f := Finding{Check: "space", State: FindingOK, Text: plugin.Size(int64(min(free, 1<<62))) + " are free"}
		switch {
		case free < spaceNeeded:
			f.State, f.Fix, f.Code = FindingFailed, "free some space on the disk of "+home, plugin.NoSpace
		case free < spaceLow:
			f.State = FindingNote
		}
		found = append(found, f)
	}
	if _, err := EffectiveConfig(home, builtins); err != nil {
		found = append(found, Failure("config", err))
	} else {
		found = append(found, Finding{Check: "config", State: FindingOK, Text: ConfigPath(home)})
	}
	return append(append(found, checkLocks(ctx, home)...), checkLeft(ctx, home)...)
}

// checkFolder tries whether the home can be written to, and who else may read it.
func checkFolder(home string, info fs.FileInfo) Finding {
	if err := checkWritable(home); err != nil {
		return Failure("home", HomeError(home, err))
	}
	f := Finding{Check: "home", State: FindingOK, Text: home + " can be written to, and is private"}
	if now, err := os.Stat(home); err == nil && goruntime.GOOS != "windows" && now.Mode().Perm()&0o077 != 0 {
		return Finding{
			Check: "home", State: FindingFailed, Code: plugin.Denied,
			Text: fmt.Sprintf("others may look into %s: its mode is %s", home, info.Mode().Perm()), Fix: fmt.Sprintf("chmod 700 '%s'", home),
		}
	}
	return f
}

// checkWritable tries whether a folder can be written to.
func checkWritable(dir string) error {
	fsys, err := durable.OpenAsIs(dir)
	if err != nil {
		return err
	}
	t, err := durable.WriteTemp(fsys, "checkup", []byte("x"))
	if err == nil {
		err = t.Discard()
	}
	return errors.Join(err, fsys.Close())
}

// nearest is the folder on the way to a path that is there.
func nearest(path string) string {
	for {
		up := filepath.Dir(path)
		if _, err := os.Stat(up); !errors.Is(err, fs.ErrNotExist) || up == path {
			return up
		}
		path = up
	}
}

// checkLocks tells who holds the locks of the home that a process keeps for long.
// That is no fault: they end with their holder.
func checkLocks(ctx context.Context, home string) []Finding {
	fsys, err := durable.OpenAsIs(home)
	if err != nil {
		return nil // checkFolder has told
	}
	defer fsys.Close()
	names := []string{pluginsLock}
	if entries, err := fsys.ReadDir("sessions/.locks"); err == nil {
		for _, e := range entries {
			if e.Type().IsRegular() && !strings.HasSuffix(e.Name(), ".holder") {
				names = append(names, "sessions/.locks/"+e.Name())
			}
		}
	}
	var held []string
	for _, name := range names {
		if there, err := durable.Exists(fsys, name); err != nil || !there {
			continue
		}
		unlock, err := fsys.Lock(ctx, name, durable.Shared, false)
		switch {
		case err == nil:
			_ = unlock() // it was held to see that it is free
		case errors.Is(err, durable.ErrLocked):
			held = append(held, fmt.Sprintf("%s by %s", name, durable.ReadHolder(fsys, name)))
		}
	}
	if len(held) == 0 {
		return []Finding{{Check: "locks", State: FindingOK, Text: "nobody holds one"}}
	}
	return []Finding{{Check: "locks", State: FindingNote, Text: "held: " + strings.Join(held, "; ")}}
}

// checkLeft counts what crashes have left: files that never got their names.
func checkLeft(ctx context.Context, home string) []Finding {
	const most = 100_000 // entries that are looked at
	left, seen := 0, 0
	err := filepath.WalkDir(home, func(_ string, e fs.DirEntry, err error) error {
		seen++
		switch {
		case err != nil:
			return nil // what cannot be read is told by those who need it
		case seen > most:
			return fs.SkipAll
		case !e.Type().IsRegular() || !strings.HasSuffix(e.Name(), durable.TempSuffix):
			return ctx.Err()
		}
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > time.Hour {
			left++
		}
		return ctx.Err()
	})
	switch {
	case err != nil:
		return []Finding{Failure("leftovers", err)}
	case left == 0:
		return []Finding{{Check: "leftovers", State: FindingOK, Text: "none"}}
	}
	return []Finding{{Check: "leftovers", State: FindingNote, Text: fmt.Sprintf("%d temporary files of commands that were killed; they go by themselves", left)}}
}
