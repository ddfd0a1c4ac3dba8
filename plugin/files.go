package plugin

import (
	"context"
	"io"
)

// Output takes the content that a verb makes beside its answer, for whoever
// called to keep. It is written to by one goroutine at a time, and a reader that
// is slow makes a write wait.
type Output interface {
	// Begin comes once, before anything is written: a name for a file with the
	// content, without folders, and its media type. An error of it or of a write
	// is that of the reader, and ends the call.
	Begin(name, mediaType string) error
	io.Writer
}

// Files are the files of whoever makes a call, by the names that stand on the
// command line. Only who has them opens them, so a name means the same through a
// gateway on another machine.
type Files interface {
	// Open opens a file to be read; "" or "-" is what comes in beside the command
	// line. A nil reader means that there is none. A read ends when ctx does.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// Create begins a file; "" or "-" is what goes out beside the answer. A nil
	// File means that nobody takes it.
	Create(ctx context.Context, name string) (File, error)
}

// File is one that is being written. Either of Commit and Discard ends it.
type File interface {
	io.Writer
	// Commit makes the file visible under its name, whole.
	Commit() error
	// Discard leaves what was there before, as far as it can.
	Discard() error
}

type filesKey struct{}

// WithFiles returns a context whose calls may use the files of their caller.
func WithFiles(ctx context.Context, files Files) context.Context {
	return context.WithValue(ctx, filesKey{}, files)
}

// FilesOf returns what was lent with [WithFiles], or nil.
func FilesOf(ctx context.Context) Files {
	files, _ := ctx.Value(filesKey{}).(Files)
	return files
}
