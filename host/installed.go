package host

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sess/host/supervise"
	"sess/plugin"
)

// Names in the home. An installed plugin lies in a folder of its own, named by
// its id; folders whose names begin with a dot are the host's.
const (
	pluginsDir   = "plugins"
	manifestName = "plugin.json"
	recordName   = ".install.json"
)

// manifestLimit bounds the size of a plugin.json and of an install record, in
// bytes.
const manifestLimit = 4 << 20

// installRecord is what the host keeps of an installation, in the plugin's
// folder. Nothing of a plugin runs whose files are not those of its record.
type installRecord struct {
	// Source is the folder or archive that it came from, as an absolute path.
	Source      string    `json:"source"`
	InstalledAt time.Time `json:"installedAt"` // UTC
	// Permissions are those that a person accepted.
	Permissions []plugin.Permission `json:"permissions"`
	// Program is the path of the executable below the folder.
	Program string `json:"program"`
	// ModTime is the executable's, so that a change shows without reading it.
	ModTime time.Time `json:"modTime"`
	// Files are all files that came with it, by their path below the folder.
	Files map[string]installedFile `json:"files"`
}

// installedFile is a file of a plugin.
type installedFile struct {
	SHA256 string `json:"sha256"` // hex
	Bytes  int64  `json:"bytes"`
}

// sum is the checksum of the executable.
func (r *installRecord) sum() string { return r.Files[r.Program].SHA256 }

// digest identifies what is installed: all files together.
func (r *installRecord) digest() string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(r.Files)) {
		fmt.Fprintf(h, "%s %s\n", r.Files[name].SHA256, name)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// candidate is a plugin that was found, bundled or installed.
type candidate struct {
	manifest *plugin.Manifest // of a broken one only the id is known
	record   *installRecord   // nil: bundled, or broken
	dir      string           // of an installed one
	problem  error            // why it cannot run, whatever the configuration says
}

func (c *candidate) bundled() bool { return c.dir == "" }

// find lists the bundled plugins, then the installed ones in order of their ids.
// An installed one that is broken is listed with its problem: the others work.
func find(home string, builtins [][]byte) ([]candidate, error) {
	if err := checkHome(home); err != nil {
		return nil, err
	}
	bundled, err := manifests(builtins)
	if err != nil {
		return nil, err
	}
	var found []candidate
	for _, m := range bundled {
		found = append(found, candidate{manifest: m})
	}
	dir := filepath.Join(home, pluginsDir)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, plugin.AsError(fmt.Errorf("look for installed plugins: %w", err))
	}
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			found = append(found, inspectFolder(filepath.Join(dir, e.Name())))
		}
	}
	// What an update that was killed had put aside is still installed.
	aside, err := os.ReadDir(filepath.Join(home, filepath.FromSlash(replacedDir)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, plugin.AsError(fmt.Errorf("look for installed plugins: %w", err))
	}
	for _, e := range aside {
		if !slices.ContainsFunc(found, func(c candidate) bool { return c.manifest.ID == e.Name() }) {
			found = append(found, inspectFolder(filepath.Join(home, filepath.FromSlash(replacedDir), e.Name())))
		}
	}
	for i := range found {
		c := &found[i]
		for _, other := range found[:i] {
			if c.problem == nil {
				c.problem = c.clash(other)
			}
		}
	}
	return found, nil
}

// clash tells what two plugins both claim, the earlier of which has it.
func (c *candidate) clash(first candidate) error {
	if c.manifest.ID == first.manifest.ID {
		return plugin.Errorf(plugin.Exists, "plugin id %s is taken by %s", c.manifest.ID, first.origin()).
			WithHint("sess plugins uninstall %s removes the installed one", c.manifest.ID)
	}
	for _, command := range c.manifest.Commands {
		if slices.Contains(first.manifest.Commands, command) {
			return plugin.Errorf(plugin.Exists, "its command %s is that of plugin %s, %s", command, first.manifest.ID, first.origin()).
				WithHint("sess plugins uninstall one of them")
		}
	}
	return nil
}

// origin says where a plugin comes from.
func (c *candidate) origin() string {
	switch {
	case c.bundled():
		return "which is part of this program"
	case c.record != nil:
		return "installed from " + c.record.Source
	}
	return "in " + c.dir
}

// inspectFolder reads what is installed in a folder, and does not run it.
func inspectFolder(dir string) candidate {
	id := filepath.Base(dir)
	c := candidate{manifest: &plugin.Manifest{ID: id}, dir: dir}
	again := func(err error, step supervise.Step) candidate {
		e := plugin.AsError(err)
		if e.Hint == "" {
			e = e.WithHint("install it again with: sess plugins update <folder or tar.gz> %s", id)
		}
		if e.Details[supervise.StepDetail] == "" {
			e = supervise.AtStep(e, step)
		}
		c.problem = e
		return c
	}
	data, err := readSmall(filepath.Join(dir, manifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return again(plugin.Errorf(plugin.Corrupt, "%s has no %s", dir, manifestName).
			WithHint("to remove it: sess plugins uninstall %s; or install it again with: sess plugins update <folder or tar.gz> %s", id, id), supervise.StepManifest)
	}
	if err != nil {
		return again(err, supervise.StepManifest)
	}
	m, err := plugin.ParseManifest(data)
	if err != nil {
		return again(plugin.Errorf(plugin.Corrupt, "%s: %w", filepath.Join(dir, manifestName), err), supervise.StepManifest)
	}
	if m.ID != id {
		return again(plugin.Errorf(plugin.Corrupt, "%s is of a plugin %s, but lies in the folder %s", manifestName, m.ID, dir), supervise.StepManifest)
	}
	c.manifest = m
	data, err = readSmall(filepath.Join(dir, recordName))
	if errors.Is(err, fs.ErrNotExist) {
		return again(plugin.Errorf(plugin.Denied, "nobody installed it: %s has no record of what its files have to be", dir).
			WithHint("move that folder elsewhere, then: sess plugins install <that folder>"), supervise.StepChecksum)
	}
	record := new(installRecord)
	if err == nil {
		if err = json.Unmarshal(data, record); err != nil {
			err = plugin.Errorf(plugin.Corrupt, "%s: %w", filepath.Join(dir, recordName), err)
		}
	}
	if err != nil {
		return again(err, supervise.StepChecksum)
	}
	c.record = record
	if err := checkFiles(dir, record, manifestName); err != nil {
		return again(err, supervise.StepChecksum)
	}
	// Its program is read when it is started, or when it looks like another one.
	info, err := os.Stat(filepath.Join(dir, filepath.FromSlash(record.Program)))
	if err != nil || !info.ModTime().Equal(record.ModTime) || info.Size() != record.Files[record.Program].Bytes {
		if err := supervise.CheckProgram(id, filepath.Join(dir, filepath.FromSlash(record.Program)), record.sum()); err != nil {
			return again(err, supervise.StepChecksum)
		}
	}
	return c
}

// checkFiles compares files of an installation with its record; no names means
// all of them. A missing, different or unreadable one is an error.
func checkFiles(dir string, record *installRecord, names ...string) error {
	if names == nil {
		names = slices.Sorted(maps.Keys(record.Files))
	}
	for _, name := range names {
		path := filepath.Join(dir, filepath.FromSlash(name))
		want := record.Files[name].SHA256
		got, err := supervise.FileSum(path)
		if err != nil {
			return plugin.AsError(fmt.Errorf("cannot read %s of the plugin: %w", path, err))
		}
		if got != want {
			return plugin.Errorf(plugin.Corrupt, "%s has the SHA-256 %s, but %s was installed", path, got, cmp.Or(want, "none"))
		}
	}
	return nil
}

// readSmall reads a file of a plugin's folder.
func readSmall(path string) ([]byte, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, plugin.Errorf(plugin.Corrupt, "%s is not a file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, manifestLimit+1))
	if err == nil && len(data) > manifestLimit {
		err = plugin.Errorf(plugin.Corrupt, "%s has more than %d bytes", path, manifestLimit)
	}
	return data, err
}
