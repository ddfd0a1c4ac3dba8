package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sess/store/snapshot"
)

// TestMain lets the test binary stand for another process on the same pool.
func TestMain(m *testing.M) {
	if role := os.Getenv("SESS_TEST_ROLE"); role != "" {
		if err := play(role, os.Getenv("SESS_TEST_DIR")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(t *testing.T, role, dir string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), "SESS_TEST_ROLE="+role, "SESS_TEST_DIR="+dir)
	return cmd
}

func play(role, dir string) (err error) {
	ctx := context.Background()
	p, err := snapshot.Open(dir, snapshot.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	switch role {
	case "die":
		op, err := p.OpenOp(ctx, snapshot.OpInfo{Kind: snapshot.OpLoad, Session: os.Getenv("SESS_TEST_SESSION")})
		if err != nil {
			return err
		}
		if _, err := newTalk("s1").save(ctx, p, snapshot.SaveRequest{AutoPrefix: "pre-load~", BackupFor: op}); err != nil {
			return err
		}
		fmt.Println(op.ID())
		os.Exit(3)
	case "churn":
		return churnAlone(ctx, p)
	case "save":
		mark := os.Getenv("SESS_TEST_MARK")
		for i := range 5 {
			name := snapshot.Name(fmt.Sprintf("n-%s-%d", mark, i))
			if _, err := newTalk("s1").speak(mark, 20, 8<<10).save(ctx, p, snapshot.SaveRequest{Name: name}); err != nil {
				return err
			}
			if _, err := newTalk("s1").speak(mark, 20, 8<<10).save(ctx, p, snapshot.SaveRequest{Name: "same", Overwrite: true}); err != nil {
				return err
			}
			if _, err := newTalk("s1").speak(mark, 1, 0).save(ctx, p, snapshot.SaveRequest{AutoPrefix: "auto~"}); err != nil {
				return err
			}
			if _, err := p.Prune(ctx, snapshot.Policy{Max: 3}, snapshot.PruneOptions{Automatic: true}); err != nil {
				return err
			}
			if _, err := p.Sweep(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func TestProcessesAtOnce(t *testing.T) {
	t.Parallel()
	p, _ := newPool(t)
	marks := []string{"m1", "m2", "m3", "m4"}
	var wg sync.WaitGroup
	for _, mark := range marks {
		cmd := child(t, "save", p.Dir())
		cmd.Env = append(cmd.Env, "SESS_TEST_MARK="+mark)
		wg.Go(func() {
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("process %s: %v: %s", mark, err, out)
			}
		})
	}
	wg.Wait()
	for _, mark := range marks {
		for i := range 5 {
			name := snapshot.Name(fmt.Sprintf("n-%s-%d", mark, i))
			if got := content(t, p, name); strings.Count(got, "\n") != 20 || !strings.HasPrefix(got, mark) {
				t.Errorf("%s holds %.30q", name, got)
			}
		}
	}
	same := content(t, p, "same")
	mark := same[:2]
	for line := range strings.Lines(same) {
		if !strings.HasPrefix(line, mark+" "+mark) {
			t.Errorf("same mixes %s with %.20q", mark, line)
		}
	}
	// Each of the 20 saves under one name but the first replaced one.
	list, err := p.ListTrash(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	overwritten := 0
	for _, e := range list {
		if e.Name == "same" {
			overwritten++
		}
	}
	if overwritten != 19 {
		t.Errorf("%d old versions of same, want 19", overwritten)
	}
	r, err := p.Verify(t.Context(), nil, nil)
	if err != nil || len(r.Problems) != 0 {
		t.Errorf("Verify: %+v, %v", r.Problems, err)
	}
	if left := leftovers(t, filepath.Clean(p.Dir())); len(left) != 0 {
		t.Errorf("temp files left: %v", left)
	}
}
