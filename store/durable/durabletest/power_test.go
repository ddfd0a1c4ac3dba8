package durabletest_test

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sess/store/durable"
	"sess/store/durable/durabletest"
)

// left tells, for many cuts of the power, what the folder holds afterwards: each
// file with its content, a line for each kind of outcome.
func left(t *testing.T, do func(fsys durable.FS) error) []string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "disk")
	fsys, err := durable.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(fsys.Mkdir("sub"), durable.Write(fsys, "old", []byte("old")), fsys.Close()); err != nil {
		t.Fatal(err)
	}
	power, err := durabletest.NewPower(dir)
	if err != nil {
		t.Fatal(err)
	}
	if fsys, err = power.Open(dir); err != nil {
		t.Fatal(err)
	}
	defer fsys.Close()
	if err := do(fsys); err != nil {
		t.Fatal(err)
	}
	var outcomes []string
	if err := os.Mkdir(dir+"-left", 0o700); err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(100) {
		at := filepath.Join(dir+"-left", strconv.FormatUint(seed, 10))
		if err := power.Cut(at, rand.New(rand.NewPCG(seed, 0))); err != nil {
			t.Fatal(err)
		}
		var files []string
		err := filepath.WalkDir(at, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(name)
			rel, _ := filepath.Rel(at, name)
			files = append(files, filepath.ToSlash(rel)+"="+strings.ReplaceAll(string(data), "\x00", "0"))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		outcomes = append(outcomes, strings.Join(files, " "))
	}
	slices.Sort(outcomes)
	return slices.Compact(outcomes)
}

// create makes a file without a sync of its folder.
func create(fsys durable.FS, name, content string, sync bool) error {
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(content))
	if sync {
		err = errors.Join(err, f.Sync())
	}
	return errors.Join(err, f.Close())
}

func TestPowerCut(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		do   func(fsys durable.FS) error
		want []string
	}{
		{"nothing", func(durable.FS) error { return nil }, []string{"old=old"}},
		{"a durable write", func(fsys durable.FS) error { return durable.Write(fsys, "old", []byte("new")) }, []string{"old=new"}},
		{"a file that was synced in a folder that was not", func(fsys durable.FS) error {
			return create(fsys, "a", "x", true)
		}, []string{"a=x old=old", "old=old"}},
		{"a file that was not synced in a folder that was", func(fsys durable.FS) error {
			return errors.Join(create(fsys, "a", "xy", false), fsys.SyncDir("."))
		}, []string{"a= old=old", "a=00 old=old", "a=x old=old", "a=xy old=old"}},
		{"a rename", func(fsys durable.FS) error { return fsys.Rename("old", "a") }, []string{"a=old", "old=old"}},
		{"a rename into a folder that was synced", func(fsys durable.FS) error {
			return errors.Join(fsys.Rename("old", "sub/a"), fsys.SyncDir("sub"))
		}, []string{"sub/a=old"}},
		{"a rename from a folder that was synced", func(fsys durable.FS) error {
			return errors.Join(fsys.Rename("old", "sub/a"), fsys.SyncDir("."))
		}, []string{"sub/a=old"}},
		{"a rename without a sync of what was written", func(fsys durable.FS) error {
			return errors.Join(create(fsys, "a", "x", false), fsys.Rename("a", "old"), fsys.SyncDir("."))
		}, []string{"old=", "old=0", "old=x"}},
		{"a removal", func(fsys durable.FS) error { return fsys.Remove("old") }, []string{"", "old=old"}},
		{"a durable removal", func(fsys durable.FS) error { return durable.Remove(fsys, "old") }, []string{""}},
		{"a folder that is not synced", func(fsys durable.FS) error {
			return errors.Join(fsys.Mkdir("new"), create(fsys, "new/a", "x", true), fsys.SyncDir("new"))
		}, []string{"new/a=x old=old", "old=old"}},
		{"what is appended", func(fsys durable.FS) error {
			f, err := fsys.Append("old")
			if err != nil {
				return err
			}
			_, err = f.Write([]byte("er"))
			return errors.Join(err, f.Close())
		}, []string{"old=old", "old=old00", "old=olde", "old=older"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := left(t, tt.do); !slices.Equal(got, tt.want) {
				t.Errorf("left behind:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}
