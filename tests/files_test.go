package tests

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A program that runs sees the files as they come and go: it keeps no list of
// its own.
func TestAChatSeesFilesComeAndGo(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.do("chat", "--message", "hello")
	for _, name := range []string{"a", "b", "c"} {
		u.do("save", name)
	}
	chat := u.command("chat")
	in, err := chat.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	pipe, err := chat.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := chat.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(pipe)
	ask := func(line string, into any) {
		t.Helper()
		if _, err := io.WriteString(in, line+"\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := out.ReadString('\n')
		if err != nil {
			t.Fatalf("after %s: %v", line, err)
		}
		if err := json.Unmarshal([]byte(answer), into); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, answer)
		}
	}
	has := func(want ...string) {
		t.Helper()
		var list []struct{ Name string }
		ask("/sess list --json", &list)
		var got []string
		for _, s := range list {
			got = append(got, s.Name)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("the list has %q, want %q", got, want)
		}
	}
	file := func(name string) string { return filepath.Join(u.pool(), name+".sess.json") }

	has("a", "b", "c")
	u.remove(file("b"))
	has("a", "c")
	var failure struct{ Code string }
	if ask("/sess load b --json", &failure); failure.Code != "not_found" {
		t.Errorf("load of a file that went: %+v", failure)
	}
	data, err := os.ReadFile(file("a"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file("d"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	has("a", "c", "d")
	var loaded struct{ Text string }
	if ask("/sess load d --json", &loaded); !strings.Contains(loaded.Text, "equals d") {
		t.Errorf("load of a file that came: %+v", loaded)
	}
	if err := os.Rename(u.pool(), u.pool()+".away"); err != nil {
		t.Fatal(err)
	}
	has()
	if err := os.Rename(u.pool()+".away", u.pool()); err != nil {
		t.Fatal(err)
	}
	has("a", "c", "d")
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if exit := u.exit(chat.Wait()); exit != 3 {
		t.Errorf("the chat ended with status %d, want that of the line that failed", exit)
	}
}
