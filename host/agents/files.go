package agents

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
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
	if there, err := durable.Exists(into, name); err != nil || there {
		return errors.Join(err, existing(there, filepath.Join(dir, name)))
	}
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	temp := "." + hex.EncodeToString(random[:]) + durable.TempSuffix
	file, err := into.Create(temp)
	if err != nil {
		return err
	}
	defer func() {
		if gone := into.Remove(temp); err != nil && !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}()
	out := bufio.NewWriterSize(file, 256<<10)
	err = write(out)
	if err == nil {
		err = out.Flush()
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if l, ok := into.(durable.Linker); ok {
		err = l.Link(temp, name) // which never replaces
		if err == nil || errors.Is(err, fs.ErrExist) {
			return errors.Join(err, into.SyncDir(path.Dir(name)))
		}
	}
	return durable.Move(into, temp, name)
}

func existing(there bool, path string) error {
	if !there {
		return nil
	}
	return &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
}
