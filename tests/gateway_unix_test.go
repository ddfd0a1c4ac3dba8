//go:build unix

package tests

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Every signal that means an end ends the gateway in order, and its plugins with
// it.
func TestGatewaySignals(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			u := newUser(t)
			g := u.gateway()
			u.do("list") // the plugin runs
			if err := g.cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if exit := g.end(); exit != 0 || g.stderr.Len() > 0 {
				t.Errorf("the gateway ended with status %d: %s", exit, &g.stderr)
			}
			if log := u.log(); strings.Count(log, "plugin ended") != strings.Count(log, "plugin started") || !strings.Contains(log, "gateway stopped") {
				t.Errorf("the log does not tell of an end in order:\n%s", log)
			}
			if _, err := os.Lstat(g.Socket); !os.IsNotExist(err) {
				t.Errorf("the socket is left (%v)", err)
			}
		})
	}
}

// waitForCall waits until a call that came over the socket runs.
func (g *gateway) waitForCall() {
	g.t.Helper()
	token := strings.TrimSpace(g.do("gateway", "token", "--show"))
	waitFor(g.t, "the call to run", func() bool {
		_, metrics := g.get(http.DefaultClient, "/metrics", token)
		return strings.Contains(metrics, `sess_calls_in_flight{surface="cli"} 1`) || strings.Contains(metrics, `sess_calls_in_flight{surface="rpc"} 1`)
	})
}

// Under nohup a terminal that closes ends nothing.
func TestGatewayUnderNohup(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	u.prepare = func(cmd *exec.Cmd) {
		if slices.Contains(cmd.Args, "run") {
			cmd.Args = append([]string{sh, "-c", `trap "" HUP; exec "$0" "$@"`}, append([]string{u.bin}, cmd.Args[1:]...)...)
			cmd.Path = sh
		}
	}
	g := u.gateway()
	if err := g.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	var s gatewayStatus
	if u.answer(&s, "gateway", "status"); s.State != "running" {
		t.Errorf("status after SIGHUP: %+v", s)
	}
	u.do("gateway", "stop")
	if exit := g.end(); exit != 0 {
		t.Errorf("the gateway ended with status %d: %s", exit, &g.stderr)
	}
}

// A gateway that was killed leaves a socket and its record: commands work without
// it, no plugin lives on, and the next start takes the place.
func TestGatewayKilled(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	g := u.gateway()
	u.chat("hello")
	u.do("save", "a")
	var plugins []struct{ PID int }
	u.answer(&plugins, "plugins", "list")
	running := func() bool {
		return slices.ContainsFunc(plugins, func(p struct{ PID int }) bool { return p.PID != 0 && syscall.Kill(p.PID, 0) == nil })
	}
	if !running() {
		t.Fatalf("plugins: %+v", plugins)
	}
	if err := g.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = g.cmd.Wait()
	waitFor(t, "the end of the plugins", func() bool { return !running() })
	if info, err := os.Lstat(g.Socket); err != nil || info.Mode().Type() != os.ModeSocket {
		t.Fatalf("the socket of a killed gateway: %v, %v", info, err)
	}
	if stdout, stderr, exit := u.run("list", "-q"); exit != 0 || stderr != "" || !strings.Contains(stdout, "a ") {
		t.Errorf("list without it: status %d\n%s%s", exit, stdout, stderr)
	}
	var s gatewayStatus
	if u.answer(&s, "gateway", "status"); s.State != "stopped" {
		t.Errorf("status: %+v", s)
	}
	g = u.gateway()
	if got := u.names(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("list through the next one: %v", got)
	}
	if info, err := os.Lstat(g.Socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v; want 0600", info, err)
	}
}

// A gateway that is stopped has the lock and does not answer: commands work
// without it and say so, and its own verbs say what to do.
func TestGatewayHangs(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	g := u.gateway()
	u.chat("hello")
	if err := g.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	who := "does not answer: process " + strconv.Itoa(g.PID) + ", " + g.Address
	// Each waits until it gives up: all at once.
	var list, status, stop, doctor struct {
		stdout, stderr string
		exit           int
	}
	var all sync.WaitGroup
	all.Go(func() { list.stdout, list.stderr, list.exit = u.run("list") })
	all.Go(func() { status.stdout, status.stderr, status.exit = u.run("gateway", "status", "--json") })
	all.Go(func() { stop.stdout, stop.stderr, stop.exit = u.run("gateway", "stop", "--json") })
	all.Go(func() { doctor.stdout, doctor.stderr, doctor.exit = u.run("doctor") })
	all.Wait()
	if list.exit != 0 || !strings.Contains(list.stderr, who) || !strings.Contains(list.stderr, "this was done without it") {
		t.Errorf("list: %+v", list)
	}
	var s gatewayStatus
	if err := json.Unmarshal([]byte(status.stdout), &s); err != nil || status.exit != 0 || s.State != "unreachable" || s.PID != g.PID {
		t.Errorf("status: %v, %+v", err, status)
	}
	var stuck failure
	if err := json.Unmarshal([]byte(stop.stdout), &stuck); err != nil || stop.exit != 9 ||
		!strings.Contains(stuck.Error, who) || !strings.HasSuffix(stuck.Hint, ": kill -9 "+strconv.Itoa(g.PID)) {
		t.Errorf("stop: %v, %+v", err, stop)
	}
	// It asks once, and looks at all the rest without it.
	if doctor.exit != 9 || !strings.Contains(doctor.stderr, who) || !strings.Contains(doctor.stderr, "1 of ") {
		t.Errorf("doctor: %+v", doctor)
	}
	// Which is what ends a process that takes no signal.
	if err := g.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = g.cmd.Wait()
	if stdout, stderr, exit := u.run("list"); exit != 0 || stderr != "" {
		t.Errorf("list after that: status %d\n%s%s", exit, stdout, stderr)
	}
}

// A gateway whose socket was removed is worked around, and told of.
func TestGatewayWithoutItsSocket(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	g := u.gateway()
	if err := os.Remove(g.Socket); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, exit := u.run("list")
	if exit != 0 || !strings.Contains(stderr, "process "+strconv.Itoa(g.PID)) || !strings.Contains(stderr, "this was done without it") {
		t.Errorf("list: status %d\n%s%s", exit, stdout, stderr)
	}
}

// A gateway that is late, as on a busy machine, is waited for: it does what it was
// asked, and once.
func TestGatewayIsLate(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.chat("hello")
	g := u.gateway()
	if err := g.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	type run struct {
		stdout, stderr string
		exit           int
	}
	lines := [][]string{{"save", "late"}, {"gateway", "reload"}, {"gateway", "status", "--json"}, {"gateway", "call", "gateway.version"}}
	runs := make([]run, len(lines))
	var all sync.WaitGroup
	for i, line := range lines {
		all.Go(func() { runs[i].stdout, runs[i].stderr, runs[i].exit = u.run(line...) })
	}
	// Longer than it has to begin with a command line.
	time.AfterFunc(2200*time.Millisecond, func() { _ = g.cmd.Process.Signal(syscall.SIGCONT) })
	all.Wait()
	for i, got := range runs {
		if got.exit != 0 || got.stderr != "" || strings.Contains(got.stdout, "unreachable") {
			t.Errorf("%q: status %d\n%s%s", lines[i], got.exit, got.stdout, got.stderr)
		}
	}
	if got := u.names(); !slices.Equal(got, []string{"late"}) {
		t.Errorf("list: %v", got)
	}
}

// A socket that something else answers at is told of.
func TestForeignSocket(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.chat("hello")
	path := filepath.Join(u.home, "gateway.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("220 mail.example ESMTP\r\n"))
			_ = c.Close()
		}
	}()
	var lost failure
	u.fails(9, &lost, "list")
	if !strings.Contains(lost.Error, path) || !strings.Contains(lost.Hint, "sess gateway status") {
		t.Errorf("list: %+v", lost)
	}
}

// Ctrl-C ends a command that a gateway works on: the gateway gives it up, and goes
// on.
func TestCtrlCThroughGateway(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.chat("hello")
	g := u.gateway()
	u.do("save", "first") // its plugin is ready then
	holder := u.stoppedHolder()
	save := u.command("save", "given-up", "--json")
	out, err := save.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := save.Start(); err != nil {
		t.Fatal(err)
	}
	g.waitForCall()
	if err := save.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	var doc failure
	err = json.Unmarshal(said, &doc)
	if exit := u.exit(save.Wait()); exit != 130 || err != nil || doc.Code != "unavailable" || !strings.HasSuffix(doc.Error, " was cancelled") {
		t.Errorf("after Ctrl-C: status %d, %s", exit, said)
	}
	if err := holder.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if exit := u.exit(holder.Wait()); exit != 0 {
		t.Errorf("who held the lock ended with status %d", exit)
	}
	if got := u.names(); !slices.Equal(got, []string{"first"}) {
		t.Errorf("list: %v, want nothing of what was given up", got)
	}
}

// Whoever follows what happens sees each event as it comes, until Ctrl-C or until
// the gateway has gone, and is told of what cannot be followed.
func TestEventsAreFollowed(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.chat("hello")
	g := u.gateway()
	for _, end := range []struct {
		name string
		by   func(follower *exec.Cmd) error
		exit int
	}{
		{"Ctrl-C", func(follower *exec.Cmd) error { return follower.Process.Signal(os.Interrupt) }, 0},
		{"the gateway's end", func(*exec.Cmd) error { u.do("gateway", "stop"); return nil }, 9},
	} {
		follower := u.command("gateway", "call", "events.subscribe", `--params={"kinds":["sess"]}`)
		out, err := follower.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		notes, err := follower.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := follower.Start(); err != nil {
			t.Fatal(err)
		}
		said := bufio.NewReader(notes)
		if line, err := said.ReadString('\n'); err != nil || !strings.Contains(line, "Ctrl-C") {
			t.Fatalf("at first it says %q (%v)", line, err)
		}
		events := bufio.NewReader(out)
		for _, verb := range []string{"save", "delete"} {
			u.do(verb, "v1")
			line, err := events.ReadString('\n')
			var e struct{ Kind, Verb string }
			if err == nil {
				err = json.Unmarshal([]byte(line), &e)
			}
			if err != nil || e.Kind != "sess.changed" || e.Verb != verb {
				t.Errorf("after a %s: %q (%v)", verb, line, err)
			}
		}
		if err := end.by(follower); err != nil {
			t.Fatal(err)
		}
		rest, err := io.ReadAll(events)
		if err != nil || len(rest) > 0 {
			t.Errorf("at %s it prints %q (%v)", end.name, rest, err)
		}
		told, err := io.ReadAll(said)
		if exit := u.exit(follower.Wait()); exit != end.exit || err != nil || (len(told) > 0) != (exit != 0) {
			t.Errorf("%s ends it with status %d, %q (%v)", end.name, exit, told, err)
		}
	}
	if exit := g.end(); exit != 0 {
		t.Errorf("the gateway ended with status %d", exit)
	}
	var none failure
	u.fails(9, &none, "gateway", "call", "events.subscribe")
}

// A second signal ends a gateway at once that still waits for a call.
func TestGatewaySecondSignal(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.chat("hello")
	u.do("save", "first")
	g := u.gateway()
	holder := u.stoppedHolder()
	save := u.command("save", "slow")
	if err := save.Start(); err != nil {
		t.Fatal(err)
	}
	g.waitForCall()
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the stop to begin", func() bool { return strings.Contains(u.log(), "gateway stopping") })
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = g.cmd.Wait()
	if status := g.cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGTERM {
		t.Errorf("the gateway ended with %v, want the second signal to end it", g.cmd.ProcessState)
	}
	if exit := u.exit(save.Wait()); exit != 9 {
		t.Errorf("the call that ran ended with status %d, want 9: nobody knows what came of it", exit)
	}
	if err := holder.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if exit := u.exit(holder.Wait()); exit != 0 {
		t.Errorf("who held the lock ended with status %d", exit)
	}
	u.gateway()
	if got := u.names(); !slices.Contains(got, "first") {
		t.Errorf("list: %v", got)
	}
}

// A call that does not end is not waited for without end: the gateway stops all the
// same, and nothing comes of the call.
func TestGatewayStopIsBounded(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.chat("hello")
	u.do("save", "first")
	g := u.gateway()
	holder := u.stoppedHolder()
	save := u.command("save", "stuck")
	var said strings.Builder
	save.Stderr = &said
	if err := save.Start(); err != nil {
		t.Fatal(err)
	}
	g.waitForCall()
	u.do("gateway", "stop")
	if exit := g.end(); exit != 0 || g.stderr.Len() > 0 {
		t.Errorf("the gateway ended with status %d: %s", exit, &g.stderr)
	}
	if exit := u.exit(save.Wait()); exit != 9 || !strings.Contains(said.String(), "did not come to its end: the gateway is stopping") {
		t.Errorf("the call ended with status %d, want 9 and the reason: %s", exit, &said)
	}
	if err := holder.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if exit := u.exit(holder.Wait()); exit != 0 {
		t.Errorf("who held the lock ended with status %d", exit)
	}
	if got := u.names(); !slices.Equal(got, []string{"first"}) {
		t.Errorf("list: %v, want nothing of what was cut short", got)
	}
}
