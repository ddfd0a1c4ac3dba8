package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sess/host"
	"sess/host/server"
	"sess/plugin"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coder/websocket"
	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
)

const token = "0123456789abcdef0123456789abcdef"

const idleManifest = `{"id": "idle", "version": "1", "builtin": "idle", "protocol": 1, "commands": ["idle"], "configSchema": {"type": "object"}}`

// gateway measures calls through the gateway's server to a plugin that does
// nothing, against the bare things that such a call is made of.
func (b *bench) gateway(ctx context.Context) (err error) {
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	h, err := host.Open(ctx, host.Options{
		Home: filepath.Join(b.dir, "gateway"), Exe: exe, Environ: os.Environ(), Builtins: [][]byte{[]byte(idleManifest)},
		Background: true, RuntimeDir: filepath.Join(b.dir, "g"),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close(context.WithoutCancel(ctx))) }()
	srv, err := server.New(h, server.Options{Token: token})
	if err != nil {
		return err
	}
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	socket, err := net.Listen("unix", filepath.Join(b.dir, "s"))
	if err != nil {
		return errors.Join(err, web.Close())
	}
	running.Go(func() { _ = srv.Serve(ctx, web) })
	running.Go(func() { _ = srv.ServeSocket(ctx, socket) })

	echoAddr, err := serveEcho(ctx, &running)
	if err != nil {
		return err
	}
	bare, end, err := bareCall(true) // the mode of a gateway's plugins
	if err != nil {
		return err
	}
	defer end()
	line, err := net.Dial("unix", socket.Addr().String())
	if err != nil {
		return err
	}
	defer line.Close()
	ws, _, err := websocket.Dial(ctx, "ws://"+web.Addr().String()+"/rpc", &websocket.DialOptions{Subprotocols: []string{"jsonrpc", "bearer." + token}})
	if err != nil {
		return err
	}
	defer func() { _ = ws.CloseNow() }()

	const request = `{"jsonrpc":"2.0","id":1,"method":"idle.invoke","params":{"action":"do"}}`
	lines := bufio.NewReader(line)
	t, err := inTurns(60, 50,
		func() error { return get(ctx, "http://"+echoAddr+"/idle/do") },
		func() error { return bare(ctx) },
		func() error { return get(ctx, "http://"+web.Addr().String()+"/idle/do") },
		func() error {
			if _, err := io.WriteString(line, request+"\n"); err != nil {
				return err
			}
			answer, err := lines.ReadBytes('\n')
			return errors.Join(err, answered(answer))
		},
		func() error {
			if err := ws.Write(ctx, websocket.MessageText, []byte(request)); err != nil {
				return err
			}
			_, answer, err := ws.Read(ctx)
			return errors.Join(err, answered(answer))
		},
		func() error {
			_, err := h.Dispatch(ctx, plugin.Call{Argv: []string{"idle", "do"}, Caller: plugin.CallerHTTP}, nil)
			return err
		},
	)
	if err != nil {
		return err
	}
	b.row("HTTP with token to a plugin", "echo with token, and a bare plugin call", t[2]/(t[0]+t[1]), 2)
	b.row("JSON-RPC over the socket to a plugin", "bare plugin call", t[3]/t[1], 2)
	b.row("JSON-RPC over a WebSocket to a plugin", "bare plugin call", t[4]/t[1], 2)
	fmt.Fprintf(os.Stderr, "%-52s echo %.0f µs, bare plugin %.0f, HTTP %.0f, socket %.0f, WebSocket %.0f, host alone %.0f\n", "",
		t[0]/1e3, t[1]/1e3, t[2]/1e3, t[3]/1e3, t[4]/1e3, t[5]/1e3)
	return nil
}

// serveEcho is the least that an HTTP server with a token can be.
func serveEcho(ctx context.Context, running *sync.WaitGroup) (addr string, err error) {
	e := echo.New()
	e.Use(middleware.KeyAuth(func(key string, _ echo.Context) (bool, error) { return key == token, nil }))
	e.GET("/idle/do", func(c echo.Context) error { return c.JSON(http.StatusOK, map[string]any{}) })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s := &http.Server{Handler: e}
	running.Go(func() { _ = s.Serve(listener) })
	context.AfterFunc(ctx, func() { _ = s.Close() })
	return listener.Addr().String(), nil
}

func get(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(res.Body)
	if res.StatusCode != http.StatusOK {
		err = errors.Join(err, fmt.Errorf("%s: %s: %s", url, res.Status, body))
	}
	return errors.Join(err, res.Body.Close())
}

// answered is the error of a JSON-RPC answer that has one.
func answered(answer []byte) error {
	var a struct {
		Result, Error json.RawMessage
	}
	if err := json.Unmarshal(bytes.TrimSpace(answer), &a); err != nil {
		return err
	}
	if a.Error != nil || a.Result == nil {
		return fmt.Errorf("answered %s", answer)
	}
	return nil
}

// daemon measures the gateway as its users meet it: a process, and commands that
// have it answer.
func (b *bench) daemon(ctx context.Context) (err error) {
	sess, _, err := b.build(ctx)
	if err != nil {
		return err
	}
	sess.home = filepath.Join(b.dir, "d")
	if err := os.MkdirAll(sess.home, 0o700); err != nil {
		return err
	}
	config := `{"gateway": {"listen": "127.0.0.1:0"}}`
	if err := os.WriteFile(filepath.Join(sess.home, "config.json"), []byte(config), 0o600); err != nil {
		return err
	}
	for _, args := range [][]string{{"chat", "--message", "hello"}, {"save", "v1"}} {
		if err := sess.run(ctx, args...); err != nil {
			return err
		}
	}
	var ready, versions samples
	for range 11 {
		if err := versions.time(func() error { return sess.run(ctx, "version") }); err != nil {
			return err
		}
		g, took, err := startGateway(ctx, sess)
		if err != nil {
			return err
		}
		ready = append(ready, took)
		if err := g.stop(); err != nil {
			return err
		}
	}
	b.row("gateway ready after its start", "sess version", ready.median()/versions.median(), 5)

	g, _, err := startGateway(ctx, sess)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.stop()) }()
	t, err := inTurns(41, 1,
		func() error { return sess.run(ctx, "version") },
		func() error { return sess.run(ctx, "list") },
	)
	if err != nil {
		return err
	}
	b.row("sess list through the gateway, the whole process", "sess version", t[1]/t[0], 1.2)
	fmt.Fprintf(os.Stderr, "%-52s ready %.1f ms, sess version %.1f, sess list %.1f\n", "", ready.median()/1e6, t[0]/1e6, t[1]/1e6)
	return b.sizesOf(g.cmd.Process.Pid)
}

// sizesOf measures the memory of a gateway and its plugin.
func (b *bench) sizesOf(pid int) error {
	own, err := residentNow(pid)
	if err != nil {
		return err
	}
	b.row("gateway, memory", "50 MB", own/(50<<20), 1)
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return err
	}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return err
	}
	for _, task := range tasks { // whichever thread started it
		more, err := os.ReadFile(task)
		if err == nil {
			children = append(append(children, ' '), more...)
		}
	}
	seen := map[string]bool{}
	for _, child := range strings.Fields(string(children)) {
		if seen[child] {
			continue
		}
		seen[child] = true
		n, err := strconv.Atoi(child)
		if err != nil {
			return err
		}
		size, err := residentNow(n)
		if err != nil {
			return err
		}
		b.row("plugin of a gateway, memory", "25 MB", size/(25<<20), 1)
	}
	if len(seen) == 0 {
		return errors.New("the gateway has no plugin")
	}
	return nil
}

// residentNow is the memory of a process in bytes.
func residentNow(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0, fmt.Errorf("/proc/%d/status has no VmRSS", pid)
	}
	kilobytes, err := strconv.ParseFloat(fields[0], 64)
	return kilobytes * 1024, err
}

// gatewayProcess is a gateway that runs.
type gatewayProcess struct {
	cmd     *exec.Cmd
	out     io.Reader
	address string
}

// startGateway starts one; took is the time until it says that it is ready for
// calls.
func startGateway(ctx context.Context, sess program) (g *gatewayProcess, took time.Duration, err error) {
	cmd := exec.CommandContext(ctx, sess.path, "--json", "gateway", "run")
	cmd.Env = append(os.Environ(), "SESS_HOME="+sess.home)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, 0, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, 0, err
	}
	g = &gatewayProcess{cmd: cmd, out: out}
	var status struct{ Address string }
	if err := json.NewDecoder(out).Decode(&status); err != nil {
		return nil, 0, errors.Join(err, g.stop())
	}
	g.address = status.Address
	for time.Since(began) < 10*time.Second {
		if err = get(ctx, status.Address+"/readyz"); err == nil {
			return g, time.Since(began), nil
		}
	}
	return nil, 0, errors.Join(err, g.stop())
}

func (g *gatewayProcess) stop() error {
	err := g.cmd.Process.Signal(syscall.SIGTERM)
	_, copied := io.Copy(io.Discard, g.out)
	return errors.Join(err, copied, g.cmd.Wait())
}
