package session_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/store/durable/durabletest"
	"sess/store/session"
)

// loadAll are the sessions that clients are given, and the errors.
func loadAll(t testing.TB, s *session.Store) (all []object, errs []error) {
	t.Helper()
	for raw, err := range s.LoadAll(t.Context()) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		var o object
		ok(t, json.Unmarshal(raw, &o))
		all = append(all, o)
	}
	return all, errs
}

// S3-09, S3-14, S3-15, S3-16: nothing stored is an empty answer, and makes no files.
func TestLoadAllOfNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	if all, errs := loadAll(t, s); len(all)+len(errs) > 0 {
		t.Errorf("LoadAll = %v, %v", all, errs)
	}
	if got := must(s.Manifest(t.Context()))(t); got != (session.Manifest{Version: 1}) {
		t.Errorf("Manifest = %+v", got)
	}
	if left := must(os.ReadDir(dir))(t); len(left) > 0 {
		t.Errorf("LoadAll made %v", left)
	}
}

// Opening a store looks at no session, however many there are, nor does finding out
// that none expires.
func TestOpenReadsNoSession(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 200 {
		put(t, dir, session.Ref{Project: "default", ID: fmt.Sprint("s", i)}, "{}")
	}
	n := durabletest.Counter{}
	s := must(session.Open(dir, session.Options{FS: n.Open}))(t)
	defer func() { ok(t, s.Close()) }()
	if got := n.Take(); got.Ops() > 0 || got.ReadBack > 0 {
		t.Errorf("opening asks the disk for %s", got)
	}
	must(s.Expire(t.Context(), session.Policy{Max: 200}))(t)
	if got := n.Take(); got.Opened > 0 || got.ReadBack > 0 || got.Listed > 3 {
		t.Errorf("finding out that none expires asks for %s", got)
	}
}

// S3-10, S3-15, S3-43: all projects, newest first, then by id; the folder says which
// project; links and other files are no sessions; a damaged one does not hide the
// others.
func TestLoadAllOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	for i, r := range []session.Ref{{Project: "p1", ID: "old"}, {Project: "p2", ID: "new"}, {Project: "p1", ID: "b"}, {Project: "p2", ID: "a"}} {
		put(t, dir, r, fmt.Sprintf(`{"id":%q,"projectId":"x","updatedAt":%d}`, r.ID, []int{10, 30, 20, 20}[i]))
	}
	put(t, dir, session.Ref{Project: "p1", ID: "bad"}, `{`)
	put(t, dir, session.Ref{Project: "p1", ID: "other"}, `{"id":"another"}`)
	put(t, dir, session.Ref{Project: "p1", ID: "noid"}, `{}`)
	put(t, dir, session.Ref{Project: "p1/deeper", ID: "x"}, `{"id":"x"}`)
	ok(t, os.Symlink(filepath.Join(dir, "p2", "new.json"), filepath.Join(dir, "p1", "link.json")))
	ok(t, os.Symlink(filepath.Join(dir, "p2"), filepath.Join(dir, "p3")))

	all, errs := loadAll(t, s)
	got := []string{}
	for _, o := range all {
		got = append(got, fmt.Sprint(o["projectId"], "/", o["id"]))
	}
	if diff := cmp.Diff([]string{"p2/new", "p2/a", "p1/b", "p1/old"}, got); diff != "" {
		t.Errorf("LoadAll (-want +got):\n%s", diff)
	}
	damaged := map[string]bool{}
	for _, err := range errs {
		e, is := errors.AsType[*session.DamagedError](err)
		if !is {
			t.Errorf("LoadAll told of %v", err)
			continue
		}
		damaged[e.Ref.ID] = true
	}
	if diff := cmp.Diff(map[string]bool{"bad": true, "other": true, "noid": true}, damaged); diff != "" {
		t.Errorf("damaged (-want +got):\n%s", diff)
	}
}
