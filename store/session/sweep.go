package session

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"sess/store/chunk"
	"sess/store/durable"
	"sess/store/transcript"
)

const (
	// tempAge is how old a temp file must be where it cannot be told whose it is.
	tempAge = time.Hour
	// voidAge is how long a void operation without a session is remembered.
	voidAge = 30 * 24 * time.Hour
)

// Sweep removes what crashes and replaced states have left: chunks that neither
// a session nor the trash refers to, and temp files of writers that are gone. It
// waits for nobody: what somebody works on is left for the next sweep. No chunk
// goes while a session's file is damaged or of a newer format, for it may refer
// to any; the error then names that file, and the rest was swept.
func (s *Store) Sweep(ctx context.Context) error {
	report, err := s.chunks.Sweep(ctx, chunk.SweepOptions{
		Now:  s.now(),
		Live: func(yield func(transcript.ID) bool) error { return s.liveChunks(ctx, yield) },
	})
	if report.Removed > 0 {
		s.log.Info("chunks swept", "removed", report.Removed, "bytes", report.RemovedBytes, "kept", report.Kept)
	}
	if err != nil {
		err = fmt.Errorf("sweep the sessions' chunks: %w", err)
	}
	return errors.Join(err, s.sweepTemps(ctx), s.sweepVoid(ctx), s.sweepTrash(ctx))
}

// liveChunks yields the chunks that are referred to, by files that are there for
// good: whoever wrote one may not have come as far as the sync of its folder, and
// after a power cut the one before would need its chunks. A file that moves from
// the sessions to the trash meanwhile is seen in one of them; who moves one back
// holds the chunk lock.
func (s *Store) liveChunks(ctx context.Context, yield func(transcript.ID) bool) error {
	refs, err := s.refs(ctx)
	if err != nil {
		return err
	}
	for _, ref := range refs {
		l, err := s.Outline(ctx, ref)
		if errors.Is(err, ErrNotFound) {
			continue // in the trash by now, which is read below
		}
		if err != nil {
			return err
		}
		for _, id := range l.Doc.InlineIDs() {
			if !yield(id) {
				return nil
			}
		}
	}
	// What was put away need not parse: whatever may be a reference counts.
	dirs, err := s.projects()
	if err != nil {
		return err
	}
	for _, dir := range append(dirs, trashDir) {
		entries, err := s.fs.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err = errors.Join(err, s.fs.SyncDir(dir)); err != nil {
			return err
		}
		for _, e := range entries {
			name := path.Join(dir, e.Name())
			switch {
			case dir == trashDir && e.IsDir():
				name = path.Join(name, trashSession)
			case !e.Type().IsRegular() || dir != trashDir && !strings.Contains(e.Name(), invalidMark):
				continue
			}
			ids, err := s.mentioned(ctx, name)
			if errors.Is(err, fs.ErrNotExist) {
				if err := s.fs.SyncDir(path.Dir(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
				continue
			}
			if err != nil {
				return err
			}
			for _, id := range ids {
				has, err := s.chunks.Has(id)
				if err != nil {
					return err
				}
				if has && !yield(id) {
					return nil
				}
			}
		}
	}
	return nil
}

// mentioned returns everything in a file that looks like a chunk's id.
func (s *Store) mentioned(ctx context.Context, name string) ([]transcript.ID, error) {
	const length = 64
	f, err := s.fs.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var ids []transcript.ID
	var run []byte // of hex digits; what is longer than an id is cut
	end := func() {
		if len(run) == length {
			ids = append(ids, transcript.ID(run))
		}
		run = run[:0]
	}
	buf := make([]byte, window)
	for {
		n, err := reader{ctx, f}.Read(buf)
		for _, c := range buf[:n] {
			if c-'0' > 9 && c-'a' > 5 { // below the first it is a large number
				end()
			} else if len(run) <= length {
				run = append(run, c)
			}
		}
		if errors.Is(err, io.EOF) {
			end()
			return ids, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (s *Store) sweepTemps(ctx context.Context) error {
	err := s.small(ctx, func() error {
		_, err := durable.SweepTemps(s.fs, ".")
		return err
	})
	projects, listErr := s.projects()
	err = errors.Join(err, listErr)
	for _, project := range projects {
		if ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		err = errors.Join(err, s.sweepProject(ctx, project))
	}
	return err
}

// sweepProject removes the leftover temp files of a project's sessions.
func (s *Store) sweepProject(ctx context.Context, project string) error {
	entries, err := s.fs.ReadDir(project)
	if err != nil {
		return err
	}
	for _, e := range entries {
		ref := Ref{Project: project, ID: e.Name()}
		switch {
		case e.IsDir() && ref.check() == nil:
			err = errors.Join(err, s.sweepFolder(ctx, ref))
		case e.Type().IsRegular() && strings.HasSuffix(e.Name(), durable.TempSuffix):
			err = errors.Join(err, s.sweepTemp(ctx, project, e))
		}
	}
	return err
}

// sweepTemp removes a temp file of a session's file: under the session's lock,
// or, where the name does not tell the session, when it is old.
func (s *Store) sweepTemp(ctx context.Context, project string, e fs.DirEntry) error {
	ref := Ref{Project: project, ID: tempID(e.Name())}
	if ref.check() != nil {
		if info, err := e.Info(); err != nil || s.now().Sub(info.ModTime()) < tempAge {
			return nil // gone, or perhaps in use
		}
		return durable.Remove(s.fs, path.Join(project, e.Name()))
	}
	return s.ifFree(ctx, ref, func() error {
		return durable.Remove(s.fs, path.Join(project, e.Name()))
	})
}

// tempID is the session that a temp file's name tells: .<id>.json.<hex>.tmp. It
// is empty where it tells none.
func tempID(name string) string {
	name, ok := strings.CutSuffix(strings.TrimPrefix(name, "."), durable.TempSuffix)
	i := strings.LastIndexByte(name, '.')
	if !ok || i < 0 {
		return ""
	}
	if _, err := hex.DecodeString(name[i+1:]); err != nil {
		return ""
	}
	id, ok := strings.CutSuffix(name[:i], fileSuffix)
	if !ok {
		return ""
	}
	return id
}

// sweepFolder removes the temp files beside a session's event logs.
func (s *Store) sweepFolder(ctx context.Context, ref Ref) error {
	left, err := s.hasTemps(ref.folder())
	if err != nil || !left {
		return err
	}
	return s.ifFree(ctx, ref, func() error { return s.sweepLogs(ctx, ref.folder()) })
}

// hasTemps reports whether a folder has temp files. One that is deleted meanwhile has
// none.
func (s *Store) hasTemps(folder string) (bool, error) {
	entries, err := s.fs.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return strings.HasSuffix(e.Name(), durable.TempSuffix) }), err
}

// sweepLogs removes the temp files of a folder with event logs.
func (s *Store) sweepLogs(ctx context.Context, folder string) error {
	return s.small(ctx, func() error {
		_, err := durable.SweepTemps(s.fs, folder)
		return err
	})
}

// ifFree runs do under the session's lock, unless somebody holds it.
func (s *Store) ifFree(ctx context.Context, ref Ref, do func() error) error {
	k, err := s.Lock(ctx, ref, "sweep", false)
	if errors.Is(err, durable.ErrLocked) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(do(), k.Unlock())
}

// sweepVoid forgets void operations that nobody can come back to.
func (s *Store) sweepVoid(ctx context.Context) error {
	entries, err := s.fs.ReadDir(locksDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !strings.HasPrefix(e.Name(), voidPrefix) {
			continue
		}
		if info, infoErr := e.Info(); infoErr == nil && s.now().Sub(info.ModTime()) > voidAge {
			err = errors.Join(err, durable.Remove(s.fs, path.Join(locksDir, e.Name())))
		}
	}
	return err
}
