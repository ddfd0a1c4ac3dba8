package tests

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// pool is the folder of the default project's snapshots.
func (u *user) pool() string { return filepath.Join(u.home, "agents", "main", "sessions") }

// A list reads the heads of the files: what they hold beyond does not matter for
// it, neither how much that is nor whether it is whole.
func TestListReadsHeadsOnly(t *testing.T) {
	t.Parallel()
	const many, kilobytes = 2000, 20
	u := newUser(t)
	u.do("chat", "--message", "hello")
	u.do("save", "whole")
	data, err := os.ReadFile(filepath.Join(u.pool(), "whole.sess.json"))
	if err != nil {
		t.Fatal(err)
	}
	var whole []struct{ ID, UpdatedAt string }
	u.answer(&whole, "list")
	end := bytes.Index(data, []byte(`"header":`))
	if end < 0 || len(whole) != 1 {
		t.Fatalf("a list of %d snapshots, and a document without a header:\n%s", len(whole), data)
	}
	// The bodies are no JSON: who reads one calls the snapshot damaged.
	body := `"header":{},"lists":{"messages":{"records":9,"tail":[` + strings.Repeat("no JSON ", kilobytes<<10/8)
	start := time.Date(2031, 12, 31, 0, 0, 0, 0, time.UTC).AddDate(-20, 0, 0)
	write := func(name string, i int) string {
		t.Helper()
		head := strings.Replace(string(data[:end]), whole[0].ID, fmt.Sprintf("01234567-89ab-7def-8000-%012d", i), 1)
		head = strings.ReplaceAll(head, whole[0].UpdatedAt, start.Add(time.Duration(i)*time.Minute).Format("2006-01-02T15:04:05.000Z"))
		file := filepath.Join(u.pool(), name+".sess.json")
		if err := os.WriteFile(file, []byte(head+body), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for i := range many {
		write(fmt.Sprintf("s%04d", i), i)
	}
	// This one would not fit into any memory; it has no blocks on the disk.
	if err := os.Truncate(write("huge", many), 1<<40); err != nil {
		t.Fatal(err)
	}

	var page []struct{ Name, State string }
	used := u.memory(&page, "list", "--limit=20")
	if used > 150<<20 {
		t.Errorf("a list of %d snapshots took %d MB of memory, want at most 150", many+2, used>>20)
	}
	if len(page) != 20 || page[0].Name != "whole" || page[1].Name != "huge" || page[2].Name != "s1999" || page[19].Name != "s1982" {
		t.Errorf("the first page is %+v", page)
	}
	var all []struct{ Name, State string }
	u.answer(&all, "list")
	if len(all) != many+2 {
		t.Errorf("the list has %d snapshots, want %d", len(all), many+2)
	}
	if i := slices.IndexFunc(all, func(s struct{ Name, State string }) bool { return s.State != "ok" }); i >= 0 {
		t.Errorf("the list calls %s %s: it has read more than its head", all[i].Name, all[i].State)
	}
	// That they are broken shows as soon as they are read.
	for _, name := range []string{"s0007", "huge"} {
		var failure struct{ Code string }
		if u.fails(7, &failure, "load", name); failure.Code != "corrupt" {
			t.Errorf("load %s: %+v", name, failure)
		}
	}
}
