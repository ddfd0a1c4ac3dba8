//go:build node

package tests

import (
	"bufio"
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestNodePlugin installs a plugin that is written in JavaScript over the
// published protocol, without multiplexing and mutual TLS, and uses it. It needs
// node and npm, which .ci/run installs, and npm's registry or its cache: that is
// why it has a build tag of its own, node.
func TestNodePlugin(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "count")
	if err := os.CopyFS(dir, os.DirFS("testdata/node-plugin")); err != nil {
		t.Fatal(err)
	}
	for _, proto := range []string{"goplugin.proto", "proto/plugin/v1/plugin.proto"} {
		text, err := os.ReadFile(filepath.Join(root, "plugin/wire", proto))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, filepath.Base(proto)), string(text), 0o600)
	}
	npmInstall(t, dir)

	u := newUser(t)
	u.do("plugins", "install", "--yes", dir)
	if got := u.do("count", "words", "one two  three"); got != "3 words\n" {
		t.Errorf("count words says %q", got)
	}
	u.do("new")
	var sessions struct{ Count int }
	u.answer(&sessions, "count", "sessions")
	var list []any
	if u.answer(&list, "sessions", "list"); len(list) == 0 || sessions.Count != len(list) {
		t.Errorf("count sessions says %d through the host, want %d", sessions.Count, len(list))
	}
	var refused refusal
	if u.fails(2, &refused, "count", "nope"); refused.Code != "usage" || refused.Hint == "" {
		t.Errorf("an error of the plugin arrives as %+v", refused)
	}
	u.do("plugins", "doctor")

	// It does not watch its stdin: the guard ends it when its host is killed.
	chat := u.command("chat")
	stdin, err := chat.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := chat.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := chat.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := stdin.Write([]byte("/count words 'a b'\n")); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "2 words\n" {
		t.Fatalf("the chat says %q, %v", line, err)
	}
	program := filepath.Join(u.home, "plugins", "count", "main.js")
	if running := nodesRunning(t, program); len(running) != 1 {
		t.Fatalf("the plugin's processes are %v", running)
	}
	if err := chat.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = chat.Wait() // it was killed
	late, look := time.After(5*time.Second), time.NewTicker(20*time.Millisecond)
	defer look.Stop()
	for left := nodesRunning(t, program); len(left) > 0; left = nodesRunning(t, program) {
		select {
		case <-look.C:
		case <-late:
			t.Fatalf("5 s after its host was killed the plugin runs: %v", left)
		}
	}
}

// npmInstall fetches the pinned packages that a folder of JavaScript needs.
func npmInstall(t *testing.T, dir string) {
	t.Helper()
	npm := exec.CommandContext(t.Context(), "npm", "ci", "--no-bin-links", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("npm ci, which needs npm's registry or its cache: %v\n%s", err, out)
	}
}

// TestNodeClient takes the client module from a gateway, as a page does, and uses
// it in Node against that gateway. Its types are checked as strictly as can be.
//
// S3-07, S3-08, S3-21, S3-71, S3-72: the five methods, whose calls need not wait
// for each other. S3-73: the documented types. S0-46, S0-47: notifications over a
// restore. S0-54, S0-55, S0-56, S0-57, S0-58, S0-59, S0-60, S0-61: one method for
// each route of the snapshots.
func TestNodeClient(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "client")
	if err := os.CopyFS(dir, os.DirFS("testdata/client")); err != nil {
		t.Fatal(err)
	}
	npmInstall(t, dir)
	g := newUser(t).gateway()
	for _, name := range []string{"client.js", "client.d.ts"} {
		status, text := g.get(http.DefaultClient, "/"+name, "")
		if status != http.StatusOK {
			t.Fatalf("GET /%s: status %d %s", name, status, text)
		}
		write(t, filepath.Join(dir, name), text, 0o600)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for _, args := range [][]string{{"node_modules/typescript/bin/tsc", "-p", "."}, {"--test", "--test-reporter=tap", "client.test.js"}} {
		node := exec.CommandContext(ctx, "node", args...)
		node.Dir = dir
		node.Env = append(os.Environ(), "SESS_URL="+g.Address, "SESS_TOKEN="+g.token())
		if out, err := node.CombinedOutput(); err != nil {
			t.Errorf("node %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// nodesRunning lists the processes of node that run a program.
func nodesRunning(t *testing.T, program string) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if words := strings.Split(string(line), "\x00"); err == nil && len(words) > 1 && filepath.Base(words[0]) == "node" && words[1] == program {
			found = append(found, pid)
		}
	}
	return found
}
