//go:build unix

package chunk_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestLinkIsNoChunk(t *testing.T) {
	t.Parallel()
	s, dir, _ := open(t)
	c := records("a")
	put(t, s, c)
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.Rename(path(dir, c.ID), outside); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, path(dir, c.ID)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Plain(c.ID); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Plain through a link = %v, want a refusal", err)
	}
	if has, err := s.Has(c.ID); has || err != nil {
		t.Errorf("Has of a link = %v, %v; want false", has, err)
	}
}
