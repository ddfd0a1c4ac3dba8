package agents

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"sess/store/durable"
)

// folder is an agent's folder, to be read. Nothing in it is made or changed, not
// even a mode, and a link that leads out of it is not followed.
type folder struct {
	dir  string
	root *os.Root
}

// openFolder opens a folder; one that is not there is fs.ErrNotExist.
func openFolder(dir string) (*folder, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &folder{dir: dir, root: root}, nil
}

func (f *folder) Close() error { return f.root.Close() }

// path is where a name below the folder lies.
func (f *folder) path(name string) string { return filepath.Join(f.dir, filepath.FromSlash(name)) }

// open opens a regular file. What is written to it after that is not read: see
// [section].
func (f *folder) open(name string) (*os.File, fs.FileInfo, error) {
	info, err := f.root.Stat(name) // before it is opened: a pipe would wait for its writer
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, &fs.PathError{Op: "open", Path: f.path(name), Err: durable.ErrNotRegular}
	}
	file, err := f.root.Open(name)
	if err != nil {
		return nil, nil, err
	}
	if info, err = file.Stat(); err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return file, info, nil
}

// entries lists a folder; one that is not there has none.
func (f *folder) entries(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(f.root.FS(), name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return entries, err
}

// read returns a small file whole; one of more than limit bytes is an error.
func (f *folder) read(name string, limit int64) ([]byte, error) {
	file, info, err := f.open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info.Size() > limit {
		return nil, &fs.PathError{Op: "read", Path: f.path(name), Err: errors.New("it is too large")}
	}
	return io.ReadAll(io.LimitReader(file, limit))
}

// Sizes of what is read of a file to list it.
const (
	headBytes = 256 << 10
	tailBytes = 64 << 10
)

// section reads what a file has now.
func section(file io.ReaderAt, size int64) io.Reader { return io.NewSectionReader(file, 0, size) }

// tailOf reads the last lines of a file, as far as they fit into [tailBytes]. The
// first one may be a part of a line.
func tailOf(file io.ReaderAt, size int64) io.Reader {
	at := max(0, size-tailBytes)
	return io.NewSectionReader(file, at, size-at)
}

// writeNew makes a file that is not there yet of what write gives, durably, with
// the folder that it is in. It never replaces one: fs.ErrExist. On an error
// nothing is there.
func writeNew(dir, name string, write func(io.Writer) error) (err error) {
	into, err := durable.OpenShared(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, into.Close()) }()
	switch there, err := durable.Exists(into, name); {
	case err != nil:
		return err
	case there:
		return &fs.PathError{Op: "create", Path: filepath.Join(dir, name), Err: fs.ErrExist}
	}
	temp, err := durable.CreateTemp(into, name)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(temp, 256<<10)
	if err = write(out); err == nil {
		err = out.Flush()
	}
	if err == nil {
		err = temp.Sync()
	}
	if err != nil {
		return errors.Join(err, temp.Discard())
	}
	return temp.PublishNew(name)
}
