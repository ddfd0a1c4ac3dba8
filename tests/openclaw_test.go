package tests

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// OpenClaw's conversations lie in its database: they are saved, looked at, searched,
// and brought back as a new one. What was deleted or rewound is taken only if it
// is named, and a conversation is found by OpenClaw's own name for it, too.
func TestOpenClawSnapshots(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	home := filepath.Join(u.dir, ".openclaw")
	if err := os.CopyFS(home, os.DirFS(filepath.Join(root, "host/agents/testdata/openclaw-sqlite/.openclaw"))); err != nil {
		t.Fatal(err)
	}
	packed := filepath.Join(home, "agents", "main", "agent", "openclaw-agent.sqlite.gz")
	unpack(t, packed, strings.TrimSuffix(packed, ".gz"))

	openclaw := func(args ...string) []string { return append([]string{"--agent=openclaw"}, args...) }
	var list []struct{ ID, Key, Archived, ProjectID, Title string }
	u.answer(&list, openclaw("sessions", "list", "--all-projects")...)
	archived, project := 0, ""
	for _, c := range list {
		if c.Archived != "" {
			archived++
		}
		if c.Title == "First question: alpha" {
			project = c.ProjectID
		}
	}
	if len(list) != 7 || archived != 3 || project == "" {
		t.Fatalf("the conversations are %+v", list)
	}
	in := func(args ...string) []string { return openclaw(append([]string{"--project=" + project}, args...)...) }
	if got := u.do(in("save", "v1")...); !strings.Contains(got, "6 messages") || !strings.Contains(got, "First question: alpha") {
		t.Errorf("save: %s", got)
	}
	if got := u.do(in("save", "v2", "--session=agent:main:main")...); !strings.Contains(got, "a3210c08-6af0-4c27-9bee-dc54240946b3") {
		t.Errorf("save by OpenClaw's own name: %s", got)
	}
	if got := u.do(in("view", "v1")...); !strings.Contains(got, "[0] user: first question: alpha") {
		t.Errorf("view: %s", got)
	}
	if got := u.do(in("search", "reply 1 to")...); !strings.Contains(got, "v1") {
		t.Errorf("search: %s", got)
	}
	if got := u.do(in("load", "v1")...); !strings.Contains(got, "go on with: openclaw tui --session agent:main:") {
		t.Errorf("load: %s", got)
	}
	if u.answer(&list, openclaw("sessions", "list", "--all-projects")...); len(list) != 8 {
		t.Errorf("after the load there are %d conversations, want 8", len(list))
	}
}

func unpack(t *testing.T, from, to string) {
	t.Helper()
	f, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
