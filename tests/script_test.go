package tests

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"sess/dispatch"
	"sess/store/transcript"
)

// TestScript runs every script of testdata/script. A script starts in an empty
// folder, $WORK, with the built binary first in PATH and with no variables of
// the caller's environment; HOME is $WORK/home, SESS_HOME is $HOME/.sess and
// POOL is the folder of the default project's snapshots; only HOME exists.
// Beside testscript's own commands it may use:
//
//	wantexit CODE CMD [ARG…]      run CMD, which must end with exactly this code
//	umask MASK CMD [ARG…]         run CMD under this umask (Unix)
//	jsonpath FILE PATH [VALUE]    the JSON has something at PATH (.0.name), equal to VALUE
//	jsonmatch FILE PATH REGEXP    the string or number at PATH matches
//	jsonlen FILE PATH COUNT       the list, object or string at PATH has this length
//	jsonenv NAME FILE PATH        put the value at PATH into a variable
//	mode PERM FILE…               the files have exactly these permissions (Unix)
//	aged AGE FILE…                the snapshots were made and changed so long ago (90d, 12h); with
//	                              a minus sign, so long from now, as by a clock that is ahead
//	snaptree NAME [DIR]           remember all files below DIR (default: SESS_HOME)
//	sametree NAME [PATTERN…]      they are as remembered, but for names that match
//
// FILE may be stdout or stderr; PATH "." is the whole document. In front of
// umask, jsonpath, jsonmatch and sametree an exclamation mark turns the
// meaning around. go test ./tests -update writes new output into the scripts.
func TestScript(t *testing.T) {
	testscript.Run(t, scriptParams(binDir(t), "testdata/script"))
}

// treesKey finds the trees that snaptree remembered in a script's values.
type treesKey struct{}

type rememberedTree struct {
	dir   string
	files map[string]string
}

func scriptParams(bin, dir string) testscript.Params {
	return testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
		Setup: func(env *testscript.Env) error {
			home := filepath.Join(env.WorkDir, "home")
			env.Setenv("HOME", home)
			env.Setenv("USERPROFILE", home)
			env.Setenv("SESS_HOME", filepath.Join(home, ".sess"))
			env.Setenv("POOL", filepath.Join(home, ".sess", "agents", "main", "sessions"))
			env.Setenv("TZ", "UTC")
			env.Setenv("LC_ALL", "C.UTF-8")
			env.Setenv("PATH", bin+string(filepath.ListSeparator)+env.Getenv("PATH"))
			env.Values[treesKey{}] = map[string]rememberedTree{}
			// Sockets lie here, and their paths may have about a hundred bytes.
			tmp, err := os.MkdirTemp("", "s")
			if err != nil {
				return err
			}
			env.Defer(func() { os.RemoveAll(tmp) })
			env.Setenv("TMPDIR", tmp)
			return os.Mkdir(home, 0o700)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"wantexit":  wantExit,
			"umask":     underUmask,
			"jsonpath":  jsonPath,
			"jsonmatch": jsonMatch,
			"jsonlen":   jsonLen,
			"jsonenv":   jsonEnv,
			"mode":      wantMode,
			"aged":      age,
			"snaptree":  snapTree,
			"sametree":  sameTree,
		},
	}
}

// usage ends the script unless it used the command as it is meant.
func usage(ts *testscript.TestScript, ok bool, text string) {
	if !ok {
		ts.Fatalf("usage: %s", text)
	}
}

func wantExit(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) >= 2, "wantexit CODE CMD [ARG…]")
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%s did not run: %v", args[1], err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("%s ended with exit code %d, want %d", strings.Join(args[1:], " "), got, want)
	}
}

func underUmask(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, len(args) >= 2, "umask MASK CMD [ARG…]")
	// The shell sets its own umask: this process has only one for all scripts.
	err := ts.Exec("sh", append([]string{"-c", `umask "$0" && exec "$@"`}, args...)...)
	if (err != nil) != neg {
		ts.Fatalf("%s: got error %v", strings.Join(args[1:], " "), err)
	}
}

// lookup finds what stands at a path such as ".0.name" in exactly one JSON
// document.
func lookup(text, at string) (value any, found bool, err error) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&value); err != nil {
		return nil, false, fmt.Errorf("not JSON: %w\n%s", err, text)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, false, fmt.Errorf("more than one JSON document:\n%s", text)
	}
	if !strings.HasPrefix(at, ".") {
		return nil, false, fmt.Errorf("path %q does not begin with a dot", at)
	}
	for key := range strings.SplitSeq(strings.TrimPrefix(at, "."), ".") {
		if at == "." {
			break
		}
		switch v := value.(type) {
		case map[string]any:
			value, found = v[key]
		case []any:
			i, err := strconv.Atoi(key)
			if found = err == nil && i >= 0 && i < len(v); found {
				value = v[i]
			}
		default:
			found = false
		}
		if !found {
			return nil, false, nil
		}
	}
	return value, true, nil
}

// plain is a JSON value as a script writes it: strings without quotes, the
// rest in the shortest JSON, keys in order.
func plain(value any) string {
	if s, ok := value.(string); ok {
		return s
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return err.Error()
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// mustLookup is lookup in a file of the script; it ends the script where there
// is nothing.
func mustLookup(ts *testscript.TestScript, file, at string) any {
	text := ts.ReadFile(file)
	value, found, err := lookup(text, at)
	ts.Check(err)
	if !found {
		ts.Fatalf("%s has nothing at %s:\n%s", file, at, text)
	}
	return value
}

func jsonPath(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, len(args) == 2 || len(args) == 3, "[!] jsonpath FILE PATH [VALUE]")
	text := ts.ReadFile(args[0])
	value, found, err := lookup(text, args[1])
	ts.Check(err)
	switch {
	case len(args) == 2 && found == neg:
		ts.Fatalf("%s at %s: found is %t\n%s", args[0], args[1], found, text)
	case len(args) == 3 && !found:
		ts.Fatalf("%s has nothing at %s:\n%s", args[0], args[1], text)
	case len(args) == 3 && (plain(value) == args[2]) == neg:
		ts.Fatalf("%s at %s: got %s", args[0], args[1], plain(value))
	}
}

func jsonMatch(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, len(args) == 3, "[!] jsonmatch FILE PATH REGEXP")
	re, err := regexp.Compile(args[2])
	ts.Check(err)
	got := plain(mustLookup(ts, args[0], args[1]))
	if re.MatchString(got) == neg {
		ts.Fatalf("%s at %s: got %s", args[0], args[1], got)
	}
}

func jsonLen(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 3, "jsonlen FILE PATH COUNT")
	got := -1
	switch v := mustLookup(ts, args[0], args[1]).(type) {
	case []any:
		got = len(v)
	case map[string]any:
		got = len(v)
	case string:
		got = len(v)
	}
	if strconv.Itoa(got) != args[2] {
		ts.Fatalf("%s at %s has length %d, want %s", args[0], args[1], got, args[2])
	}
}

func jsonEnv(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 3, "jsonenv NAME FILE PATH")
	ts.Setenv(args[0], plain(mustLookup(ts, args[1], args[2])))
}

func wantMode(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) >= 2, "mode PERM FILE…")
	want, err := strconv.ParseUint(args[0], 8, 12)
	ts.Check(err)
	for _, file := range args[1:] {
		info, err := os.Lstat(ts.MkAbs(file))
		ts.Check(err)
		if got := info.Mode().Perm(); got != fs.FileMode(want) {
			ts.Fatalf("%s has mode %#o, want %#o", file, got, want)
		}
	}
}

func age(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) >= 2, "aged AGE FILE…")
	text, ahead := strings.CutPrefix(args[0], "-")
	ago, err := dispatch.ParseDuration(text)
	ts.Check(err)
	if ahead {
		ago = -ago
	}
	for _, file := range args[1:] {
		doc, err := transcript.Decode([]byte(ts.ReadFile(file)))
		if err != nil {
			ts.Fatalf("%s: %v", file, err)
		}
		doc.Meta.CreatedAt = time.Now().Add(-ago)
		doc.Meta.UpdatedAt = doc.Meta.CreatedAt
		ts.Check(os.WriteFile(ts.MkAbs(file), doc.Encode(), 0o600))
	}
}

func snapTree(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && (len(args) == 1 || len(args) == 2), "snaptree NAME [DIR]")
	dir := ts.Getenv("SESS_HOME")
	if len(args) == 2 {
		dir = ts.MkAbs(args[1])
	}
	files, err := readTree(dir)
	ts.Check(err)
	ts.Value(treesKey{}).(map[string]rememberedTree)[args[0]] = rememberedTree{dir, files}
}

func sameTree(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, len(args) >= 1, "[!] sametree NAME [PATTERN…]")
	before, ok := ts.Value(treesKey{}).(map[string]rememberedTree)[args[0]]
	if !ok {
		ts.Fatalf("no snaptree %s before", args[0])
	}
	after, err := readTree(before.dir)
	ts.Check(err)
	changes, err := diffTrees(before.files, after, args[1:])
	ts.Check(err)
	if (changes == "") == neg {
		ts.Fatalf("%s since snaptree %s; changes:\n%s", before.dir, args[0], changes)
	}
}

// readTree describes all that lies below dir, by path: kind, permissions, and
// content as a hash. Nothing lies below a folder that does not exist.
func readTree(dir string) (map[string]string, error) {
	tree := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if name == dir && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			text += fmt.Sprintf(" %d bytes, %x", len(data), sha256.Sum256(data))
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(name)
			if err != nil {
				return err
			}
			text += " to " + to
		}
		rel, err := filepath.Rel(dir, name)
		tree[filepath.ToSlash(rel)] = text
		return err
	})
	return tree, err
}

// diffTrees lists what differs, one line each, leaving out every path with an
// element that matches one of the patterns.
func diffTrees(before, after map[string]string, ignore []string) (string, error) {
	var b strings.Builder
	all := maps.Clone(before)
	maps.Copy(all, after)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		ignored, err := matchesAny(name, ignore)
		if err != nil {
			return "", err
		}
		was, is := before[name], after[name]
		if ignored || was == is {
			continue
		}
		if was != "" {
			fmt.Fprintf(&b, "- %s %s\n", name, was)
		}
		if is != "" {
			fmt.Fprintf(&b, "+ %s %s\n", name, is)
		}
	}
	return b.String(), nil
}

func matchesAny(name string, patterns []string) (bool, error) {
	for element := range strings.SplitSeq(name, "/") {
		for _, p := range patterns {
			if ok, err := path.Match(p, element); ok || err != nil {
				return ok, err
			}
		}
	}
	return false, nil
}
