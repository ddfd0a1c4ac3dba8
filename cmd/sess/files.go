package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sess/plugin"
)

// userFiles are the files of whoever runs this program. A gateway, which may be
// on another machine, gets only those that the command line names.
type userFiles struct {
	stdin  io.Reader // nil: it is for something else
	stdout io.Writer // nil: likewise
	words  []string  // of the command line; nil: whoever asks is this program
}

var _ plugin.Files = userFiles{}

func (u userFiles) named(name string) bool {
	return u.words == nil || slices.ContainsFunc(u.words, func(word string) bool {
		return word == name || strings.HasSuffix(word, "="+name)
	})
}

// Open opens a file, or stdin unless that is a terminal and not asked for.
func (u userFiles) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if name == "" && isTerminal(u.stdin) || (name == "" || name == "-") && u.stdin == nil {
		return nil, nil
	}
	if name == "" || name == "-" {
		return io.NopCloser(&interruptible{ctx: ctx, from: u.stdin}), nil
	}
	if !u.named(name) {
		return nil, plugin.Errorf(plugin.Denied, "the gateway wants to read %s, which the command line does not name", name).
			WithHint("see which gateway it is: sess gateway status")
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fileError("read", err)
	}
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, errors.Join(plugin.Errorf(plugin.Usage, "%s is a folder", name).WithHint("name a file in it"), f.Close())
	}
	return f, nil
}

// Create begins a file, which gets its name when it is whole; what is no ordinary
// file, such as a pipe, is written at once.
func (u userFiles) Create(_ context.Context, name string) (plugin.File, error) {
	if name == "" || name == "-" {
		if u.stdout == nil {
			return nil, nil
		}
		return openFile{u.stdout}, nil
	}
	if !u.named(name) {
		return nil, plugin.Errorf(plugin.Denied, "the gateway wants to write %s, which the command line does not name", name).
			WithHint("see which gateway it is: sess gateway status")
	}
	info, err := os.Stat(name)
	switch {
	case err == nil && info.IsDir():
		return nil, plugin.Errorf(plugin.Usage, "%s is a folder", name).WithHint("name a file in it")
	case err == nil && !info.Mode().IsRegular():
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return nil, fileError("write", err)
		}
		return pipeFile{f}, nil
	case err == nil:
		if name, err = filepath.EvalSymlinks(name); err != nil { // a link stays one
			return nil, fileError("write", err)
		}
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*.tmp") // for this user only
	if err != nil {
		return nil, fileError("write", err)
	}
	return &freshFile{f, name}, nil
}

// fileError says what could not be done with a file of the user's.
func fileError(what string, err error) error {
	path := ""
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		path, err = e.Path, e.Err
	}
	code := plugin.AsError(err).Code
	if errors.Is(err, fs.ErrNotExist) {
		code = plugin.NotFound
	}
	return plugin.Errorf(code, "cannot %s %s: %w", what, path, err).WithHint("look at the path and at who may use it")
}

// openFile is a stream that is there already.
type openFile struct{ io.Writer }

func (openFile) Commit() error  { return nil }
func (openFile) Discard() error { return nil }

type pipeFile struct{ *os.File }

func (f pipeFile) Commit() error  { return f.Close() }
func (f pipeFile) Discard() error { return f.Close() }

// freshFile is a file that gets its name at the end.
type freshFile struct {
	*os.File
	name string
}

func (f *freshFile) Commit() error {
	err := errors.Join(f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), f.name)
	}
	if err != nil {
		return errors.Join(fileError("write", err), os.Remove(f.Name()))
	}
	return nil
}

func (f *freshFile) Discard() error { return errors.Join(f.Close(), os.Remove(f.Name())) }

// interruptible reads what cannot be interrupted, such as a terminal: a read that
// is given up ends with the program, or when something comes.
type interruptible struct {
	ctx   context.Context
	from  io.Reader
	piece []byte
}

func (r *interruptible) Read(p []byte) (int, error) {
	if len(r.piece) == 0 {
		type read struct {
			piece []byte
			err   error
		}
		done := make(chan read, 1)
		go func() {
			piece := make([]byte, 256<<10)
			n, err := r.from.Read(piece)
			done <- read{piece[:n], err}
		}()
		select {
		case got := <-done:
			if len(got.piece) == 0 {
				return 0, got.err
			}
			r.piece = got.piece // an error comes again
		case <-r.ctx.Done():
			return 0, context.Cause(r.ctx)
		}
	}
	n := copy(p, r.piece)
	r.piece = r.piece[n:]
	return n, nil
}
