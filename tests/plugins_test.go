package tests

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var buildNote = sync.OnceValues(func() (string, error) {
	if err := walkSource(func(string) error { return nil }); err != nil { // see buildBinary
		return "", err
	}
	name := filepath.Join(tempDir, "note")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", name, "./tests/plugins/note")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", errors.Join(fmt.Errorf("go build ./tests/plugins/note: %w", err), errors.New(string(out)))
	}
	return name, nil
})

// notePackage makes the package of the plugin "note" in a new folder. change may
// change its plugin.json.
func notePackage(t testing.TB, change func(manifest map[string]any)) string {
	t.Helper()
	program, err := buildNote()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "note")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", program, filepath.Join(dir, "note")).CombinedOutput(); err != nil {
		t.Fatalf("copy the plugin: %v: %s", err, out)
	}
	data, err := os.ReadFile("plugins/note/plugin.json")
	if err != nil {
		t.Fatal(err)
	}
	writeManifest(t, dir, data, change)
	return dir
}

// writeManifest writes a plugin.json, changed.
func writeManifest(t testing.TB, dir string, data []byte, change func(manifest map[string]any)) {
	t.Helper()
	if change != nil {
		manifest := map[string]any{}
		if err := json.Unmarshal(data, &manifest); err != nil {
			t.Fatal(err)
		}
		change(manifest)
		var err error
		if data, err = json.MarshalIndent(manifest, "", "  "); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "plugin.json"), data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// archive packs a folder, in a folder of that name, as plugins are handed on.
func archive(t testing.TB, dir string) string {
	t.Helper()
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	out := tar.NewWriter(zipped)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		header, err := tar.FileInfoHeader(info, "")
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(filepath.Dir(dir), path)
		if err != nil {
			return err
		}
		header.Name = filepath.ToSlash(rel)
		if err := out.WriteHeader(header); err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		_, err = out.Write(data)
		return err
	})
	if err := errors.Join(err, out.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "note-1.0.0.tar.gz")
	if err := os.WriteFile(name, packed.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// pluginRow is a plugin as plugins list shows it.
type pluginRow struct {
	ID, Version, State, Reason string
	Bundled                    bool
	PID                        int
}

// plugin is the row of one plugin; the zero row if it is not there.
func (u *user) plugin(id string) pluginRow {
	u.t.Helper()
	var rows []pluginRow
	u.answer(&rows, "plugins", "list")
	for _, row := range rows {
		if row.ID == id {
			return row
		}
	}
	return pluginRow{}
}

// installedFiles lists what lies below the folder of the plugins, by mode.
func (u *user) installedFiles() map[string]fs.FileMode {
	u.t.Helper()
	files := map[string]fs.FileMode{}
	root := filepath.Join(u.home, "plugins")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if rel := filepath.ToSlash(strings.TrimPrefix(path, root)); rel != "" && !strings.HasPrefix(rel, "/.describe") && !strings.HasPrefix(rel, "/.lock") {
			files[rel[1:]] = info.Mode()
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		u.t.Fatal(err)
	}
	return files
}

// refusal is the JSON document of an error.
type refusal struct {
	Error, Code, Hint string
	Details           map[string]string
}

// S4-17, S4-61, S4-95: a plugin from elsewhere is installed from a folder or an
// archive, is on every surface at once, calls another plugin, and goes again.
func TestPluginLife(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	first := notePackage(t, nil)

	var asked refusal
	u.fails(2, &asked, "plugins", "install", first)
	if !strings.Contains(asked.Error, "call sess.invoke (rpc:sess.invoke)") || !strings.Contains(asked.Hint, "--yes") {
		t.Errorf("without --yes: %+v, want its permissions, and --yes named", asked)
	}
	if files := u.installedFiles(); len(files) > 0 {
		t.Errorf("what was not confirmed left %v", files)
	}

	out := u.do("plugins", "install", "--yes", archive(t, first))
	if !strings.Contains(out, "installed note 1.0.0") {
		t.Errorf("install says %q", out)
	}
	want := map[string]fs.FileMode{
		"note": fs.ModeDir | 0o700, "note/.install.json": 0o600, "note/plugin.json": 0o600, "note/note": 0o700,
	}
	if diff := cmp.Diff(want, u.installedFiles()); diff != "" && runtime.GOOS != "windows" {
		t.Errorf("installed files (-want +got):\n%s", diff)
	}

	// All surfaces of this program have it at once.
	u.do("note", "add", "one", "some text")
	if got := u.do("note", "list"); got != "one\n" {
		t.Errorf("note list says %q", got)
	}
	if got := u.do("chat", "--message", "/note list"); !strings.Contains(got, "one") {
		t.Errorf("/note list says %q", got)
	}
	about := u.do("plugins", "inspect", "note")
	for _, name := range []string{"chat /note", "command line sess note", "tool note_manage", "HTTP /note/{verb}", "RPC note.invoke", "add, list, save"} {
		if !strings.Contains(about, " "+name+"\n") {
			t.Errorf("plugins inspect says nothing of %q:\n%s", name, about)
		}
	}
	if got := u.do("chat", "--message", "/tools"); !strings.Contains(got, "note_manage") {
		t.Errorf("/tools says %q, want note_manage in it", got)
	}
	if got := u.do("help", "note"); !strings.Contains(got, "Write a note") {
		t.Errorf("help note says %q", got)
	}
	if got := u.do("plugins", "inspect", "note"); !strings.Contains(got, "tool note_manage") || !strings.Contains(got, "add, list, save") {
		t.Errorf("inspect says %q, want its surfaces and verbs", got)
	}
	var inspected map[string]json.RawMessage
	u.answer(&inspected, "plugins", "inspect", "note")
	if got := string(inspected["services"]); got != "[]" {
		t.Errorf("inspect says that its services are %s, want []", got)
	}
	u.do("note", "save", "v1", "as far as we came")
	if got := u.names(); !slices.Equal(got, []string{"v1"}) {
		t.Errorf("after note save the snapshots are %q", got)
	}
	var canary refusal
	u.fails(2, &canary, "note", "add", "../../canary", "x")
	if canary.Code != "invalid_name" {
		t.Errorf("a note outside of the folder: %+v", canary)
	}

	var again refusal
	u.fails(4, &again, "plugins", "install", "--yes", first)
	if again.Code != "exists" || !strings.Contains(again.Error, first) || !strings.Contains(again.Error, "note-1.0.0.tar.gz") {
		t.Errorf("a second install: %+v, want exists with both sources", again)
	}

	second := notePackage(t, func(m map[string]any) {
		m["version"] = "1.1.0"
		m["permissions"] = []string{"session.read"}
	})
	u.fails(2, &asked, "plugins", "update", second)
	if !strings.Contains(asked.Error, "from version 1.0.0 to 1.1.0") ||
		!strings.Contains(asked.Error, "newly may read conversations (session.read), and no longer call sess.invoke (rpc:sess.invoke)") {
		t.Errorf("update asks %q", asked.Error)
	}
	u.fails(3, &asked, "plugins", "update", "note")
	if !strings.Contains(asked.Hint, "note-1.0.0.tar.gz") {
		t.Errorf("update by its id advises %q, want where it came from", asked.Hint)
	}
	u.do("plugins", "update", "--yes", second, "note")
	if got := u.plugin("note"); got.Version != "1.1.0" {
		t.Errorf("after the update: %+v", got)
	}
	u.fails(6, &refusal{}, "note", "save", "v2", "not any more")

	u.do("plugins", "disable", "note")
	if got := u.plugin("note"); got.State != "disabled" {
		t.Errorf("after disable: %+v", got)
	}
	u.fails(9, &refusal{}, "note", "list")
	u.do("plugins", "enable", "note")
	if got := u.do("note", "list"); got != "one\n" {
		t.Errorf("after enable note list says %q", got)
	}

	u.fails(2, &asked, "plugins", "uninstall", "note")
	if !strings.Contains(asked.Error, `{"enabled":true}`) {
		t.Errorf("uninstall asks %q, want the entry in it", asked.Error)
	}
	u.do("plugins", "uninstall", "note", "--yes")
	if files := slices.Sorted(maps.Keys(u.installedFiles())); !slices.Equal(files, []string{".removed"}) {
		t.Errorf("uninstall left %v", files)
	}
	u.fails(2, &refusal{}, "note", "list")
	u.do("plugins", "doctor")
	u.do("config", "validate")
}

// What a package has wrong is told by name, and leaves nothing behind.
func TestPluginsNotInstalled(t *testing.T) {
	t.Parallel()
	link := func(name, to string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	set := func(key string, value any) func(map[string]any) {
		return func(m map[string]any) { m[key] = value }
	}
	tests := []struct {
		name     string
		manifest func(map[string]any)
		files    func(t *testing.T, dir string)
		exit     int
		text     string
	}{
		{"a bundled plugin's id", set("id", "sess"), nil, 4, "which is part of this program"},
		{"a bundled plugin's command", set("commands", []string{"sess"}), nil, 4, "its command sess is that of plugin sess"},
		{"a command of the host", set("commands", []string{"sessions"}), nil, 4, "its command sessions is one of this program"},
		{"a word of the program", set("commands", []string{"chat"}), nil, 4, "its command chat is one of this program"},
		{"a word of the chat", set("commands", []string{"tools"}), nil, 4, "its command tools is one of this program"},
		{"a route", set("commands", []string{"metrics"}), nil, 4, "its command metrics is one of this program"},
		{"a verb of sess", set("commands", []string{"save"}), nil, 4, "its command save is a verb of sess"},
		{"another name of a verb of sess", set("commands", []string{"rm"}), nil, 4, "its command rm is a verb of sess"},
		{"a command that it does not bring", set("commands", []string{"other"}), nil, 9, `brings the command "note", which its plugin.json does not list`},
		{"commands that it does not bring", set("commands", []string{"note", "other"}), nil, 9, "lists the commands note, other, but it brings note alone"},
		{"another protocol", set("protocol", 7), nil, 2, "is made for protocol 7, this host speaks 1"},
		{"an unknown permission", set("permissions", []string{"root"}), nil, 2, "unknown permission root"},
		{"an unknown key", set("colour", "red"), nil, 2, `unknown key "colour"`},
		{"an id that leads out", set("id", "../note"), nil, 2, "plugin.json: id"},
		{"a program elsewhere", set("command", []string{"../note"}), nil, 2, "its command ../note is not a file in it"},
		{"no program", set("command", []string{"absent"}), nil, 2, "its command absent is not a file in it"},
		{"a part of this program", func(m map[string]any) { delete(m, "command"); m["builtin"] = "sess" }, nil, 2, "builtin"},
		{"a schema that is none", set("configSchema", map[string]any{"type": "object", "properties": map[string]any{"a": map[string]any{"pattern": "("}}}), nil, 2, "configSchema"},
		{"a default that the schema refuses", set("configSchema", map[string]any{"type": "object", "properties": map[string]any{"a": map[string]any{"type": "integer", "default": "x"}}}), nil, 2, "configSchema: #/properties/a/default: want integer"},
		{"a link to elsewhere", nil, link("key", "/etc/passwd"), 2, "key is a link"},
		{"a link within", nil, link("same", "note"), 2, "same is a link"},
		{"no manifest", nil, func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "plugin.json")) }, 2, "it has no plugin.json"},
		{"a record of its own", nil, func(t *testing.T, dir string) { write(t, filepath.Join(dir, ".install.json"), "{}", 0o600) }, 2, ".install.json is where the host keeps"},
		{"a program that is text", nil, func(t *testing.T, dir string) { write(t, filepath.Join(dir, "note"), "hello\n", 0o700) }, 9, "is a text file"},
		{"a program that is not executable", nil, func(t *testing.T, dir string) { write(t, filepath.Join(dir, "note"), "hello\n", 0o600) }, 2, "is not executable"},
		{"a program that ends at once", nil, script("echo no licence >&2; exit 3"), 9, "no licence"},
		{"a program that prints", nil, script("echo hello from a library; sleep 60"), 9, `printed "hello from a library" where the line of its handshake was expected`},
		{"a program of another version", nil, script("echo '1|7|unix|/nowhere|grpc'; sleep 60"), 9, `speaks protocol version "7", this host speaks 1`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if runtime.GOOS == "windows" {
				t.Skip("modes, links and shell scripts are Unix's")
			}
			u := newUser(t)
			dir := filepath.Join(t.TempDir(), "note")
			if strings.Contains(tt.text, "brings") {
				dir = notePackage(t, tt.manifest)
			} else {
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				script("exit 1")(t, dir)
				data, err := os.ReadFile("plugins/note/plugin.json")
				if err != nil {
					t.Fatal(err)
				}
				writeManifest(t, dir, data, tt.manifest)
			}
			if tt.files != nil {
				tt.files(t, dir)
			}
			var got refusal
			u.fails(tt.exit, &got, "plugins", "install", "--yes", dir)
			if !strings.Contains(got.Error, tt.text) {
				t.Errorf("install says %q, want %q in it", got.Error, tt.text)
			}
			if strings.Contains(got.Error, ".staging") || strings.Contains(got.Hint, "inspect") {
				t.Errorf("install tells of what is gone: %+v", got)
			}
			if files := u.installedFiles(); len(files) > 0 {
				t.Errorf("left behind: %v", files)
			}
		})
	}
}

// An archive that leads out of its folder, or cannot be read, is told of, and
// leaves nothing behind.
func TestPluginArchivesNotInstalled(t *testing.T) {
	t.Parallel()
	file := func(name string) *tar.Header {
		return &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o700, Size: 1}
	}
	tests := []struct {
		name    string
		headers []*tar.Header
		text    string
	}{
		{"a path that leads out", []*tar.Header{file("../canary")}, `the path "../canary" is not one that a plugin's file may have`},
		{"a path that leads out on the way", []*tar.Header{file("a/../../canary")}, "is not one that a plugin's file may have"},
		{"a whole path", []*tar.Header{file("/canary")}, "is not one that a plugin's file may have"},
		{"a path of Windows", []*tar.Header{file(`..\canary`)}, "is not one that a plugin's file may have"},
		{"a drive of Windows", []*tar.Header{file("C:/canary")}, "is not one that a plugin's file may have"},
		{"a line end in a path", []*tar.Header{file("a\nb")}, "is not one that a plugin's file may have"},
		{"a link", []*tar.Header{{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "../.."}, file("a/canary")}, "a is a link"},
		{"a hard link", []*tar.Header{{Name: "a", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}}, "a is a link"},
		{"a device", []*tar.Header{{Name: "a", Typeflag: tar.TypeChar}}, "a is a link or another special file"},
		{"a file twice", []*tar.Header{file("a"), file("a")}, "a is in it twice"},
		{"a file that is a folder too", []*tar.Header{file("a"), file("a/b")}, "a/b is in it twice, or once as a file and once as a folder"},
		{"a file without a name", []*tar.Header{file(".")}, `the path "." is not one`},
		{"a name that no file can have", []*tar.Header{file(strings.Repeat("n", 256))}, "is not one that a plugin's file may have"},
		{"a record, differently written", []*tar.Header{file(".Install.JSON")}, ".Install.JSON is where the host keeps"},
		{"a folder in the record's place", []*tar.Header{file(".install.json/a")}, ".install.json/a is where the host keeps"},
		{"a large manifest", []*tar.Header{{Name: "plugin.json", Typeflag: tar.TypeReg, Mode: 0o600, Size: 5 << 20}}, "its plugin.json has more than 4194304 bytes"},
		{"nothing", nil, "it has no plugin.json"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			u := newUser(t)
			var packed bytes.Buffer
			zipped := gzip.NewWriter(&packed)
			out := tar.NewWriter(zipped)
			for _, header := range tt.headers {
				err := out.WriteHeader(header)
				if header.Size > 0 && err == nil {
					_, err = out.Write(bytes.Repeat([]byte("x"), int(header.Size)))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(out.Close(), zipped.Close()); err != nil {
				t.Fatal(err)
			}
			source := filepath.Join(u.dir, "p.tar.gz")
			if err := os.WriteFile(source, packed.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			var got refusal
			u.fails(2, &got, "plugins", "install", "--yes", "p.tar.gz")
			if !strings.Contains(got.Error, tt.text) {
				t.Errorf("install says %q, want %q in it", got.Error, tt.text)
			}
			if files := u.installedFiles(); len(files) > 0 {
				t.Errorf("left behind: %v", files)
			}
			cut := packed.Bytes()[:packed.Len()-9]
			if err := os.WriteFile(source, cut, 0o600); err != nil {
				t.Fatal(err)
			}
			u.fails(2, &got, "plugins", "install", "--yes", "p.tar.gz")
		})
	}
}

// What was damaged on its way shows in the archive's checksum.
func TestDamagedPluginArchive(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	dir := filepath.Join(t.TempDir(), "note")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	script("exit 1")(t, dir)
	data, err := os.ReadFile("plugins/note/plugin.json")
	if err != nil {
		t.Fatal(err)
	}
	writeManifest(t, dir, data, nil)
	packed, err := os.ReadFile(archive(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	wrong := bytes.Clone(packed)
	wrong[len(wrong)-8] ^= 1
	for want, bytes := range map[string][]byte{"invalid checksum": wrong, "unexpected EOF": packed[:len(packed)-4]} {
		write(t, filepath.Join(u.dir, "p.tar.gz"), string(bytes), 0o600)
		var got refusal
		u.fails(2, &got, "plugins", "install", "--yes", "p.tar.gz")
		if !strings.Contains(got.Error, want) {
			t.Errorf("install says %q, want %q in it", got.Error, want)
		}
	}
}

// A folder with the home in it would be copied into itself.
func TestPluginFolderWithTheHome(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	script("exit 1")(t, u.dir)
	data, err := os.ReadFile("plugins/note/plugin.json")
	if err != nil {
		t.Fatal(err)
	}
	writeManifest(t, u.dir, data, nil)
	var got refusal
	u.fails(2, &got, "plugins", "install", "--yes", ".")
	if !strings.Contains(got.Error, "the home "+u.home+" lies in it") {
		t.Errorf("install says %+v", got)
	}
}

// script makes the program of a plugin a shell script.
func script(text string) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) { write(t, filepath.Join(dir, "note"), "#!/bin/sh\n"+text+"\n", 0o700) }
}

func write(t *testing.T, path, text string, mode fs.FileMode) {
	t.Helper()
	remove(t, path)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}

// A plugin that was broken after its installation is shown with the reason, is
// not run, and keeps nothing else from working; update repairs it.
func TestBrokenPlugins(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("programs that run cannot be changed there")
	}
	pack := notePackage(t, func(m map[string]any) { m["configSchema"].(map[string]any)["additionalProperties"] = false })
	write(t, filepath.Join(pack, "words.txt"), "one\n", 0o600)
	template := newUser(t)
	template.do("plugins", "install", "--yes", pack)
	template.do("note", "list")

	edit := func(name string, change func(old []byte) []byte) func(t *testing.T, u *user) {
		return func(t *testing.T, u *user) {
			path := filepath.Join(u.home, "plugins", "note", name)
			old, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			write(t, path, string(change(old)), info.Mode())
			// As by somebody who wants it not to be seen.
			if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
				t.Fatal(err)
			}
		}
	}
	longer := func(old []byte) []byte { return append(old, '\n') }
	other := func(old []byte) []byte { old[len(old)-1] ^= 1; return old }
	wider := func(old []byte) []byte {
		return bytes.Replace(old, []byte("rpc:sess.invoke"), []byte("session.write"), 1)
	}
	tests := []struct {
		name   string
		damage func(t *testing.T, u *user)
		hidden bool // shows only when its files are read
		text   string
	}{
		{"another program", edit("note", longer), false, "has the SHA-256 "},
		{"another program of the same size and time", edit("note", other), true, "has the SHA-256 "},
		{"another file", edit("words.txt", longer), true, "words.txt has the SHA-256 "},
		{"more permissions", edit("plugin.json", wider), false, "plugin.json has the SHA-256 "},
		{"no JSON", edit("plugin.json", func([]byte) []byte { return []byte("{") }), false, "plugin.json"},
		{"no manifest", func(t *testing.T, u *user) { remove(t, filepath.Join(u.home, "plugins", "note", "plugin.json")) }, false, "has no plugin.json"},
		{"no record", func(t *testing.T, u *user) { remove(t, filepath.Join(u.home, "plugins", "note", ".install.json")) }, false, "nobody installed it"},
		{"a record that is none", edit(".install.json", func([]byte) []byte { return []byte("[]") }), false, ".install.json"},
		{"no program", func(t *testing.T, u *user) { remove(t, filepath.Join(u.home, "plugins", "note", "note")) }, false, "does not exist"},
		{"a wrong configuration", func(t *testing.T, u *user) {
			write(t, filepath.Join(u.home, "config.json"), `{"plugins": {"entries": {"note": {"config": {"colour": "red"}}}}}`, 0o600)
		}, false, "plugins.entries.note.config.colour: unknown key"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			u := newUser(t)
			if out, err := exec.Command("cp", "-a", template.home, u.home).CombinedOutput(); err != nil {
				t.Fatalf("copy the home: %v: %s", err, out)
			}
			tt.damage(t, u)
			if got := u.plugin("note"); !tt.hidden && (got.State != "failed" || !strings.Contains(got.Reason, tt.text)) {
				t.Errorf("plugins list shows %+v, want failed with %q", got, tt.text)
			}
			if list := u.do("plugins", "list"); !tt.hidden && !strings.Contains(list, "\nnote: ") {
				t.Errorf("plugins list says no reason:\n%s", list)
			}
			for _, args := range [][]string{{"note", "list"}, {"plugins", "inspect", "note"}, {"plugins", "doctor", "note"}, {"plugins", "doctor"}} {
				stdout, stderr, exit := u.run(args...)
				if exit == 0 || stdout != "" || !strings.Contains(stderr, tt.text) {
					t.Errorf("sess %s ended with status %d and says %s%s, want %q", strings.Join(args, " "), exit, stdout, stderr, tt.text)
				}
			}
			var got refusal
			if _, _, exit := u.run("plugins", "inspect", "note"); exit > 0 {
				u.fails(exit, &got, "plugins", "inspect", "note")
			}
			var row pluginRow
			if err := json.Unmarshal([]byte(got.Details["plugin"]), &row); err != nil || row.State != "failed" || !strings.Contains(row.Reason, tt.text) {
				t.Errorf("plugins inspect says %+v, %v; want failed with %q", row, err, tt.text)
			}
			u.do("chat", "--message", "hello")
			u.do("save", "v1")
			u.do("plugins", "inspect", "sess")
			if tt.name == "a wrong configuration" {
				u.fails(2, &refusal{}, "config", "validate")
				remove(t, filepath.Join(u.home, "config.json"))
			} else {
				u.do("plugins", "update", "--yes", pack, "note")
			}
			u.do("note", "list")
			u.do("plugins", "doctor")
		})
	}
}

// An update that is killed between its two moves leaves the version before at
// work; the next change puts everything in its place.
func TestPluginUpdateKilled(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	pack := notePackage(t, nil)
	u.do("plugins", "install", "--yes", pack)
	plugins := filepath.Join(u.home, "plugins")
	for _, dir := range []string{".replaced", ".staging"} {
		if err := os.Mkdir(filepath.Join(plugins, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(filepath.Join(plugins, "note"), filepath.Join(plugins, ".replaced", "note")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(plugins, ".staging", "half"), "x", 0o600)
	u.do("note", "add", "one", "text")
	var again refusal
	if u.fails(4, &again, "plugins", "install", "--yes", pack); again.Code != "exists" {
		t.Errorf("install beside what was put aside: %+v", again)
	}
	want := []string{"note", "note/.install.json", "note/note", "note/plugin.json"}
	if got := slices.Sorted(maps.Keys(u.installedFiles())); !slices.Equal(got, want) {
		t.Errorf("after the next change the files are %q, want %q", got, want)
	}
	if got := u.do("note", "list"); got != "one\n" {
		t.Errorf("note list says %q", got)
	}
}

// A config.json that is a link is its owner's to change.
func TestPluginsLeaveALinkedConfiguration(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("links need a right there")
	}
	u := newUser(t)
	kept := filepath.Join(t.TempDir(), "mine.json")
	write(t, kept, "{}\n", 0o600)
	if err := errors.Join(os.Mkdir(u.home, 0o700), os.Symlink(kept, filepath.Join(u.home, "config.json"))); err != nil {
		t.Fatal(err)
	}
	var refused refusal
	if u.fails(6, &refused, "plugins", "disable", "sess"); !strings.Contains(refused.Error, "is a link") {
		t.Errorf("disable with a linked configuration: %+v", refused)
	}
	if text, err := os.ReadFile(kept); err != nil || string(text) != "{}\n" {
		t.Errorf("the linked file holds %q, %v", text, err)
	}
	u.do("plugins", "inspect", "sess")
}

// What config.json says of a plugin is all that enable and disable change in it.
func TestPluginsLeaveTheConfigurationAsItIs(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	pack := notePackage(t, func(m map[string]any) {
		schema := m["configSchema"].(map[string]any)
		schema["properties"].(map[string]any)["server"] = map[string]any{"type": "string"}
		schema["required"] = []string{"server"}
	})
	file := filepath.Join(u.home, "config.json")
	text := `// mine
{
	"models": {"default": "offline/echo"}, // the only one
	"plugins": {
		"entries": {
			/* as it is */ "sess": {"config": {"maxSnapshots": 7,}}, // few
		},
	},
}
`
	if err := os.Mkdir(u.home, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, file, text, 0o600)
	out := u.do("plugins", "install", "--yes", pack)
	if !strings.Contains(out, "switched off: it needs configuration first") || !strings.Contains(out, "plugins.entries.note.config.server") {
		t.Errorf("install says %q, want what it needs", out)
	}
	reads := func(want string) {
		t.Helper()
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("config.json (-want +got):\n%s", diff)
		}
	}
	off := strings.Replace(text, "}}, // few\n", "}}, // few\n\t\t\t\"note\": {\"enabled\": false},\n", 1)
	reads(off)
	var refused refusal
	u.fails(2, &refused, "plugins", "enable", "note")
	if !strings.Contains(refused.Error, "plugins.entries.note.config.server: missing") || !strings.Contains(refused.Hint, "sess plugins enable note") {
		t.Errorf("enable without configuration: %+v", refused)
	}
	reads(off)
	set := strings.Replace(off, `"enabled": false`, `"config": {"server": "here"}, "enabled": false`, 1)
	write(t, file, set, 0o600)
	u.do("plugins", "enable", "note")
	reads(strings.Replace(set, `"enabled": false`, `"enabled": true`, 1))
	u.do("note", "list")
	u.do("plugins", "disable", "note")
	reads(set)
	u.do("plugins", "uninstall", "note", "--yes")
	reads(text)
}
