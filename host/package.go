package host

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"syscall"

	"sess/host/schema"
	"sess/plugin"
	"sess/store/durable"
)

// Limits of what is installed.
const (
	packageBytes = 512 << 20 // all files together
	packageFiles = 20000
	packagePath  = 400 // bytes of a path
	packageName  = 255 // bytes of one name in it
)

// stagedPackage is a plugin's package, copied below the home and checked, and not
// yet in its place.
type stagedPackage struct {
	name     string // of its folder, below the home
	dir      string // its path
	manifest *plugin.Manifest
	record   installRecord
}

// unpacker copies the files of a package into a folder.
type unpacker struct {
	ctx     context.Context
	home    durable.FS
	into    string // below the home
	files   map[string]installedFile
	program map[string]bool // which its package marks as programs
	bytes   int64
}

// badPackage is the error for a package that nobody should install.
func badPackage(source, format string, args ...any) *plugin.Error {
	return plugin.Errorf(plugin.Usage, "%s: %s", source, fmt.Sprintf(format, args...))
}

// stage copies the package at source, a folder or a tar.gz, into the home and
// checks everything that shows without running it. The caller throws away the
// folder "into" when it is done, whatever stage answers.
func (h *Host) stage(ctx context.Context, source, into string) (*stagedPackage, error) {
	info, err := os.Stat(source)
	if err != nil {
		e := plugin.AsError(fmt.Errorf("cannot read the plugin: %w", err))
		if errors.Is(err, fs.ErrNotExist) {
			e = plugin.Errorf(plugin.NotFound, "there is no folder or archive %s", source).WithHint("name the plugin's folder, or its tar.gz")
		}
		return nil, e
	}
	if err := durable.MkdirAll(h.home, into); err != nil {
		return nil, err
	}
	u := &unpacker{ctx: ctx, home: h.home, into: into, files: map[string]installedFile{}, program: map[string]bool{}}
	if info.IsDir() {
		err = u.folder(source)
	} else {
		err = u.archive(source)
	}
	if err != nil {
		return nil, err
	}
	return u.check(source)
}

// folder copies a folder, all but what git keeps in it.
func (u *unpacker) folder(source string) error {
	return filepath.WalkDir(source, func(at string, e fs.DirEntry, err error) error {
		if err != nil {
			return plugin.AsError(fmt.Errorf("cannot read the plugin: %w", err))
		}
		rel, err := filepath.Rel(source, at)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		switch {
		case name == ".":
			return nil
		case e.IsDir() && e.Name() == ".git":
			return fs.SkipDir
		case e.IsDir() && SameFolder(at, u.home.Dir()):
			return badPackage(source, "the home %s lies in it", at).WithHint("move the plugin's files to a folder of their own")
		case e.IsDir():
			return nil
		case !e.Type().IsRegular():
			return u.notAFile(source, name)
		}
		f, err := os.Open(at)
		if err != nil {
			return plugin.AsError(fmt.Errorf("cannot read the plugin: %w", err))
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() { // it was replaced since
			return u.notAFile(source, name)
		}
		return u.add(source, name, info.Mode(), f)
	})
}

func (u *unpacker) notAFile(source, name string) error {
	return badPackage(source, "%s is a link or another special file; a plugin consists of files and folders", name).
		WithHint("replace it by what it points to; for npm's links: npm ci --no-bin-links")
}

// archive copies what a tar.gz holds. One folder around everything is left out.
func (u *unpacker) archive(source string) error {
	f, err := os.Open(source)
	if err != nil {
		return plugin.AsError(fmt.Errorf("cannot read the plugin: %w", err))
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return badPackage(source, "it is neither a folder nor a file").WithHint("name the plugin's folder, or its tar.gz")
	}
	damaged := func(err error) error {
		return badPackage(source, "it is no tar.gz archive, or a damaged one: %v", err).WithHint("name the plugin's folder, or its tar.gz")
	}
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		return damaged(err)
	}
	// What is no file's content counts as well: an archive may have a lot of it.
	whole := &io.LimitedReader{R: unzipped, N: 2 * packageBytes}
	archive := tar.NewReader(whole)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && whole.N == 0 {
			return tooMuch(source)
		}
		if err != nil {
			return damaged(err)
		}
		switch header.Typeflag {
		case tar.TypeDir, tar.TypeXGlobalHeader:
			continue
		case tar.TypeReg:
		default:
			return u.notAFile(source, header.Name)
		}
		name := strings.TrimPrefix(header.Name, "./")
		content := &sourceReader{r: archive}
		if err := u.add(source, name, header.FileInfo().Mode(), content); err != nil {
			if content.err != nil {
				return damaged(content.err)
			}
			return err
		}
	}
	// The checksum stands at the very end.
	if _, err := io.Copy(io.Discard, whole); err != nil {
		return damaged(err)
	}
	if whole.N == 0 {
		return tooMuch(source)
	}
	return u.unwrap()
}

func tooMuch(source string) error {
	return badPackage(source, "its files have more than %d bytes together", int64(packageBytes))
}

// sourceReader remembers what kept it from reading on.
type sourceReader struct {
	r   io.Reader
	err error
}

func (s *sourceReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// unwrap takes away the one folder around everything, as archives have it.
func (u *unpacker) unwrap() error {
	top := ""
	for name := range u.files {
		first, _, inFolder := strings.Cut(name, "/")
		if !inFolder || top != "" && top != first {
			return nil
		}
		top = first
	}
	if top == "" {
		return nil
	}
	files, program := map[string]installedFile{}, map[string]bool{}
	for name, file := range u.files {
		inner := strings.TrimPrefix(name, top+"/")
		files[inner], program[inner] = file, u.program[name]
	}
	u.files, u.program = files, program
	u.into = path.Join(u.into, top)
	return nil
}

// add copies one file.
func (u *unpacker) add(source, name string, mode fs.FileMode, r io.Reader) error {
	if err := u.ctx.Err(); err != nil {
		return err
	}
	names := strings.Split(name, "/")
	if name == "." || !fs.ValidPath(name) || !filepath.IsLocal(filepath.FromSlash(name)) || len(name) > packagePath ||
		slices.ContainsFunc(names, func(s string) bool { return len(s) > packageName }) ||
		strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' || r == ':' }) {
		return badPackage(source, "the path %q is not one that a plugin's file may have", name).
			WithHint("use paths below the plugin's folder, of at most %d bytes, names of at most %d, without control characters, backslash and colon", packagePath, packageName)
	}
	// Whatever the file system makes of upper and lower case.
	if slices.ContainsFunc(names, func(s string) bool { return strings.EqualFold(s, recordName) }) {
		return badPackage(source, "%s is where the host keeps what it knows of an installed plugin", name).WithHint("remove that file")
	}
	if len(u.files) == packageFiles {
		return badPackage(source, "it has more than %d files", packageFiles)
	}
	sum := sha256.New()
	limited := io.LimitReader(r, packageBytes-u.bytes+1)
	program := mode&0o111 != 0
	n, err := durable.Import(u.home, path.Join(u.into, name), io.TeeReader(limited, sum), program)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTDIR) {
		return badPackage(source, "%s is in it twice, or once as a file and once as a folder", name)
	}
	if err != nil {
		return err
	}
	if u.bytes += n; u.bytes > packageBytes {
		return tooMuch(source)
	}
	u.files[name] = installedFile{SHA256: hex.EncodeToString(sum.Sum(nil)), Bytes: n}
	u.program[name] = program
	return nil
}

// check reads the manifest of what was copied and makes the record.
func (u *unpacker) check(source string) (*stagedPackage, error) {
	s := &stagedPackage{name: u.into, dir: filepath.Join(u.home.Dir(), filepath.FromSlash(u.into))}
	switch file, ok := u.files[manifestName]; {
	case !ok:
		return nil, badPackage(source, "it has no %s", manifestName).WithHint("name the folder that the plugin's %s lies in", manifestName)
	case file.Bytes > manifestLimit:
		return nil, badPackage(source, "its %s has more than %d bytes", manifestName, manifestLimit).WithHint("the plugin's author has to shorten it")
	}
	data, err := durable.ReadFile(u.home, path.Join(u.into, manifestName), manifestLimit)
	if err != nil {
		return nil, err
	}
	m, err := plugin.ParseManifest(data)
	if err != nil {
		return nil, plugin.AsError(fmt.Errorf("%s: %w", source, err)).WithHint("the plugin's author has to correct its %s", manifestName)
	}
	s.manifest = m
	if m.Protocol != plugin.ProtocolVersion {
		return nil, plugin.Errorf(plugin.Usage, "%s: plugin %s %s is made for protocol %d, this host speaks %d", source, m.ID, m.Version, m.Protocol, plugin.ProtocolVersion).
			WithHint("install a version of the plugin made for protocol %d", plugin.ProtocolVersion)
	}
	if m.Builtin != "" {
		return nil, badPackage(source, "its plugin.json says builtin, which is for plugins of this program itself").
			WithHint("give the plugin's executable as command")
	}
	if _, err := schema.Vet(m.ConfigSchema); err != nil {
		return nil, badPackage(source, "plugin.json: configSchema: %v", err).WithHint("the plugin's author has to correct it")
	}
	program := path.Clean(filepath.ToSlash(m.Command[0]))
	if _, ok := u.files[program]; !ok && goruntime.GOOS == "windows" {
		program += ".exe"
	}
	file, ok := u.files[program]
	if !ok {
		return nil, badPackage(source, "its command %s is not a file in it", m.Command[0]).
			WithHint("build the plugin first, or correct command in its plugin.json")
	}
	if !u.program[program] {
		return nil, badPackage(source, "its command %s is not executable", m.Command[0]).WithHint("chmod +x %s", program)
	}
	info, err := u.home.Stat(path.Join(u.into, program))
	if err != nil {
		return nil, err
	}
	s.record = installRecord{
		Source: source, Permissions: slices.Concat([]plugin.Permission{}, m.Permissions),
		Program: program, ModTime: info.ModTime(), Files: u.files,
	}
	if file.Bytes == 0 {
		return nil, badPackage(source, "its command %s is an empty file", m.Command[0])
	}
	return s, nil
}

// seal writes the record and makes everything durable.
func (s *stagedPackage) seal(home durable.FS) error {
	data, err := json.MarshalIndent(s.record, "", "  ")
	if err != nil {
		return err
	}
	if err := durable.Write(home, path.Join(s.name, recordName), data); err != nil {
		return err
	}
	return durable.SyncTree(home, s.name)
}
