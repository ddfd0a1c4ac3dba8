package tests

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sess/store/durable"
)

// gatewayStatus is what a gateway says about itself.
type gatewayStatus struct {
	State, Address, Socket, Home, Version, StartedAt string
	PID                                              int
}

// gateway is a gateway that runs in the foreground.
type gateway struct {
	*user
	gatewayStatus
	cmd    *exec.Cmd
	out    io.ReadCloser // stdout, behind the status
	stderr bytes.Buffer  // to be read when it has ended
}

// gateway starts a gateway at a free port, and returns when it answers.
func (u *user) gateway(args ...string) *gateway {
	u.t.Helper()
	g := &gateway{user: u, cmd: u.command(append([]string{"--json", "gateway", "run", "--listen=127.0.0.1:0"}, args...)...)}
	g.cmd.Stderr = &g.stderr
	var err error
	if g.out, err = g.cmd.StdoutPipe(); err != nil {
		u.t.Fatal(err)
	}
	if err := g.cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(func() {
		if g.cmd.ProcessState == nil {
			_ = g.cmd.Process.Kill()
			_ = g.cmd.Wait()
		}
	})
	dec := json.NewDecoder(g.out)
	if err := dec.Decode(&g.gatewayStatus); err != nil || g.State != "running" {
		rest, _ := io.ReadAll(io.MultiReader(dec.Buffered(), g.out))
		_ = g.cmd.Wait()
		u.t.Fatalf("gateway run: %v: %+v %s\n%s", err, g.gatewayStatus, rest, &g.stderr)
	}
	return g
}

// end waits for the gateway's own end, and returns its exit status.
func (g *gateway) end() int {
	g.t.Helper()
	rest, err := io.ReadAll(g.out)
	if err != nil || len(bytes.TrimSpace(rest)) > 0 {
		g.t.Errorf("after its status the gateway printed %q (%v), want nothing", rest, err)
	}
	return g.exit(g.cmd.Wait())
}

// get asks the gateway over HTTP.
func (g *gateway) get(client *http.Client, path, token string) (status int, body string) {
	g.t.Helper()
	req, err := http.NewRequestWithContext(g.t.Context(), http.MethodGet, g.Address+path, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := client.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// log is all that the logs of the home have.
func (u *user) log() string {
	u.t.Helper()
	files, err := filepath.Glob(filepath.Join(u.home, "logs", "*"))
	if err != nil {
		u.t.Fatal(err)
	}
	var all strings.Builder
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			u.t.Fatal(err)
		}
		all.Write(data)
	}
	return all.String()
}

type failure struct {
	Error, Code, Hint string
	Details           map[string]string
}

// A gateway in the background: there when its start has ended, found by every
// command, one for a home, and gone when its stop has ended.
func TestGatewayLife(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	status := func() (s gatewayStatus) {
		t.Helper()
		u.answer(&s, "gateway", "status")
		return s
	}
	if s := status(); s.State != "stopped" || s.PID != 0 || s.Home != u.home {
		t.Errorf("status before: %+v, want a stopped one", s)
	}
	if _, err := os.Stat(u.home); !os.IsNotExist(err) {
		t.Errorf("asking for the status made %s (%v)", u.home, err)
	}
	var none failure
	u.fails(9, &none, "gateway", "reload")
	if want := "no gateway runs for " + u.home; none.Error != want || none.Hint != "start it with: sess gateway start" {
		t.Errorf("reload without one: %+v, want %q", none, want)
	}
	u.stopsGateway()
	var started struct{ Data gatewayStatus }
	u.answer(&started, "gateway", "start", "--listen=127.0.0.1:0")
	s := status()
	if s.State != "running" || s.PID != started.Data.PID || s.PID == 0 || !strings.HasPrefix(s.Address, "http://127.0.0.1:") ||
		s.Socket != filepath.Join(u.home, "gateway.sock") || s.Version == "" {
		t.Errorf("status: %+v after the start said %+v", s, started)
	}
	if at, err := time.Parse(time.RFC3339, s.StartedAt); err != nil || time.Since(at) > time.Minute {
		t.Errorf("startedAt: %q (%v)", s.StartedAt, err)
	}
	for _, verb := range []string{"start", "run"} {
		var second failure
		u.fails(5, &second, "gateway", verb, "--listen=127.0.0.1:0")
		if second.Code != "busy" || !strings.Contains(second.Error, fmt.Sprintf("process %d, %s, since ", s.PID, s.Address)) {
			t.Errorf("a second gateway %s: %+v, want who has the home", verb, second)
		}
	}
	u.chat("hello")
	u.do("save", "a")
	if got := u.names(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("list through the gateway: %v", got)
	}
	var again struct{ Data gatewayStatus }
	u.answer(&again, "gateway", "restart")
	restarted := again.Data
	if restarted.PID == s.PID || !strings.HasPrefix(restarted.Address, "http://127.0.0.1:") {
		t.Errorf("restart: %+v, want another process at the address of its own", restarted)
	}
	if got := u.do("gateway", "stop"); got != fmt.Sprintf("gateway stopped: process %d\n", restarted.PID) {
		t.Errorf("stop says %q", got)
	}
	if s := status(); s.State != "stopped" {
		t.Errorf("status after: %+v", s)
	}
	if got := u.do("gateway", "stop"); got != "no gateway runs for "+u.home+"\n" {
		t.Errorf("a second stop says %q", got)
	}
	for _, name := range []string{"gateway.sock", "gateway.json"} {
		if _, err := os.Lstat(filepath.Join(u.home, name)); !os.IsNotExist(err) {
			t.Errorf("%s is left (%v)", name, err)
		}
	}
	if got := u.names(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("list without it: %v", got)
	}
	log := u.log()
	for _, want := range []string{"gateway started", "gateway stopping", "gateway stopped"} {
		if strings.Count(log, want) != 2 {
			t.Errorf("the log tells %d times of %q, want 2:\n%s", strings.Count(log, want), want, log)
		}
	}
}

// stopsGateway stops the gateway in the background, if there is one, at the end of
// the test.
func (u *user) stopsGateway() {
	u.t.Cleanup(func() {
		stop := exec.Command(u.bin, "gateway", "stop") // after the test's context
		stop.Env = u.env
		if out, err := stop.CombinedOutput(); err != nil {
			u.t.Errorf("gateway stop: %v\n%s", err, out)
		}
	})
}

// The token is made at the first start, for its owner alone; it is in no log, and
// printed only when that is meant. An empty one opens nothing.
func TestGatewayToken(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	var none failure
	u.fails(3, &none, "gateway", "token", "--show")
	g := u.gateway()
	token := strings.TrimSpace(u.do("gateway", "token", "--show"))
	if !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(token) {
		t.Errorf("token: %q, want 32 random bytes in hex", token)
	}
	if info, err := os.Stat(filepath.Join(u.home, "gateway.token")); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("gateway.token: %v, %v", info, err)
	}
	var hidden failure
	u.fails(2, &hidden, "gateway", "token")
	if !strings.Contains(hidden.Hint, "sess gateway token --show") {
		t.Errorf("token into a pipe: %+v", hidden)
	}
	if status, body := g.get(http.DefaultClient, "/sess/list", token); status != 200 || strings.TrimSpace(body) != "[]" {
		t.Errorf("list with the token: %d %s", status, body)
	}
	if status, body := g.get(http.DefaultClient, "/sess/list", "wrong"); status != 401 {
		t.Errorf("list with a wrong token: %d %s", status, body)
	}
	u.do("gateway", "stop")
	if exit := g.end(); exit != 0 || g.stderr.Len() > 0 {
		t.Errorf("the gateway ended with status %d: %s", exit, &g.stderr)
	}
	if log := u.log(); strings.Contains(log, token) || log == "" {
		t.Errorf("the token is in the log, or there is none:\n%s", log)
	}
	rotated := strings.TrimSpace(u.do("gateway", "token", "--rotate", "--show"))
	if rotated == token || len(rotated) != 64 {
		t.Errorf("rotated token: %q", rotated)
	}

	file := filepath.Join(u.home, "gateway.token")
	env := u.env
	tests := []struct {
		name, where string
		prepare     func() error
	}{
		{"an empty file", file, func() error { return os.WriteFile(file, nil, 0o600) }},
		{"a file of blanks", file, func() error { return os.WriteFile(file, []byte(" \n\n"), 0o600) }},
		{"two words", file, func() error { return os.WriteFile(file, []byte("a b"), 0o600) }},
		{"an empty variable", "SESS_GATEWAY_TOKEN", func() error { u.env = append(slices.Clone(env), "SESS_GATEWAY_TOKEN="); return nil }},
	}
	for _, tt := range tests {
		u.env = env
		if err := tt.prepare(); err != nil {
			t.Fatal(err)
		}
		var refused failure
		u.fails(2, &refused, "gateway", "run", "--listen=127.0.0.1:0")
		if !strings.Contains(refused.Error, tt.where) || refused.Hint == "" {
			t.Errorf("%s: %+v, want it refused because of %s", tt.name, refused, tt.where)
		}
	}
	u.env = append(slices.Clone(env), "SESS_GATEWAY_TOKEN=from-the-environment")
	g = u.gateway()
	if status, _ := g.get(http.DefaultClient, "/sess/list", "from-the-environment"); status != 200 {
		t.Errorf("list with the variable's token: %d", status)
	}
}

// A start that cannot be says why, and leaves nothing.
func TestGatewayStartRefused(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	tests := []struct {
		name, config, listen string
		exit                 int
		error, hint          string
	}{
		{"an address in use", "", taken.Addr().String(), 9, "cannot listen on " + taken.Addr().String(), "port 0 picks a free one"},
		{"one that others reach", "", "0.0.0.0:0", 2, "0.0.0.0:0", "gateway.tls"},
		{"no address", "", "here", 2, `"here" is not an address`, "host:port"},
		{"a wrong configuration", `{"gateway":{"listn":"x"}}`, "127.0.0.1:0", 2, "gateway.listn: unknown key; did you mean listen?", "sess config validate"},
		{"no certificate", `{"gateway":{"tls":{"cert":"no.pem","key":"no.key"}}}`, "127.0.0.1:0", 6, "no.pem", "gateway.tls"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			u := newUser(t)
			if tt.config != "" {
				if err := os.Mkdir(u.home, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(u.home, "config.json"), []byte(tt.config), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for _, verb := range []string{"run", "start"} {
				var refused failure
				u.fails(tt.exit, &refused, "gateway", verb, "--listen="+tt.listen)
				if !strings.Contains(refused.Error, tt.error) || !strings.Contains(refused.Hint, tt.hint) {
					t.Errorf("gateway %s: %+v, want %q and %q", verb, refused, tt.error, tt.hint)
				}
			}
			var s gatewayStatus
			if u.answer(&s, "gateway", "status"); s.State != "stopped" {
				t.Errorf("status: %+v", s)
			}
		})
	}
}

// A stop begins while a call runs: that one is answered, and then the gateway
// ends.
func TestGatewayStopDrains(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.chat("hello")
	u.do("save", "first")
	g := u.gateway()
	pool, err := durable.OpenExisting(u.pool())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	unlock, err := pool.Lock(t.Context(), ".lock", durable.Exclusive, false)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	token := strings.TrimSpace(u.do("gateway", "token", "--show"))
	saved := make(chan string, 1)
	go func() {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.Address+"/sess/save", strings.NewReader(`{"name":"slow"}`))
		if err != nil {
			saved <- err.Error()
			return
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			saved <- err.Error()
			return
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		saved <- fmt.Sprintf("%d %s", res.StatusCode, body)
	}()
	waitFor(t, "the save to run", func() bool {
		_, metrics := g.get(http.DefaultClient, "/metrics", token)
		return strings.Contains(metrics, `sess_calls_in_flight{surface="http"} 1`)
	})
	if err := g.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the stop to begin", func() bool { return strings.Contains(u.log(), "gateway stopping") })
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if got := <-saved; !strings.HasPrefix(got, "200 ") || !strings.Contains(got, "saved slow: ") {
		t.Errorf("the call that ran was answered %s", got)
	}
	if exit := g.end(); exit != 0 || g.stderr.Len() > 0 {
		t.Errorf("the gateway ended with status %d: %s", exit, &g.stderr)
	}
	if got := u.names(); !slices.Contains(got, "slow") {
		t.Errorf("list: %v, want what was saved", got)
	}
}

// waitFor waits until what is true, or the test fails.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("wait for %s: %v", what, context.Cause(ctx))
		}
	}
}

// S4-84: A gateway speaks TLS with a certificate of one's own, also where others
// reach it, and a file named without a folder lies in the home.
func TestGatewayTLS(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	if err := os.Mkdir(u.home, 0o700); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(certificate(t, filepath.Join(u.home, "tls.pem"), filepath.Join(u.home, "tls.key")))
	config := `{"gateway":{"tls":{"cert":"tls.pem","key":"tls.key"}}}`
	if err := os.WriteFile(filepath.Join(u.home, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	g := u.gateway()
	if !strings.HasPrefix(g.Address, "https://127.0.0.1:") {
		t.Fatalf("address: %s", g.Address)
	}
	token := strings.TrimSpace(u.do("gateway", "token", "--show"))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	if status, body := g.get(&http.Client{Transport: transport}, "/sess/list", token); status != 200 {
		t.Errorf("list: %d %s", status, body)
	}
}

// certificate writes a certificate for 127.0.0.1 and its key.
func certificate(t *testing.T, certFile, keyFile string) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []struct {
		name, kind string
		data       []byte
	}{{certFile, "CERTIFICATE", der}, {keyFile, "PRIVATE KEY", secret}} {
		if err := os.WriteFile(f.name, pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.data}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// In a home whose path is too long for a socket the socket lies elsewhere, where
// only its owner gets, and commands find it.
func TestGatewayInALongHome(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.home = filepath.Join(u.dir, strings.Repeat("long", 30))
	u.env = append(u.env, "SESS_HOME="+u.home)
	g := u.gateway()
	if len(g.Socket) > 103 || strings.HasPrefix(g.Socket, u.home) {
		t.Errorf("socket: %s", g.Socket)
	}
	if info, err := os.Stat(filepath.Dir(g.Socket)); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o700 {
		t.Errorf("the socket's folder: %v, %v", info, err)
	}
	var s gatewayStatus
	if u.answer(&s, "gateway", "status"); s.PID != g.PID {
		t.Errorf("status: %+v, want that of process %d", s, g.PID)
	}
	u.do("gateway", "stop")
	if exit := g.end(); exit != 0 {
		t.Errorf("the gateway ended with status %d: %s", exit, &g.stderr)
	}
	if _, err := os.Stat(filepath.Dir(g.Socket)); !os.IsNotExist(err) {
		t.Errorf("the socket's folder is left (%v)", err)
	}
}

// A file in the place of the socket is not removed.
func TestGatewaySocketIsAFile(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	if err := os.Mkdir(u.home, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(u.home, "gateway.sock")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	var refused failure
	u.fails(4, &refused, "gateway", "run", "--listen=127.0.0.1:0")
	if data, err := os.ReadFile(path); err != nil || string(data) != "precious" || !strings.Contains(refused.Error, path) {
		t.Errorf("%+v; the file has %q (%v)", refused, data, err)
	}
}

// Each line is answered alike by a gateway and without one: the same bytes on
// both streams, and the same status.
func TestGatewayAnswersLikeNone(t *testing.T) {
	t.Parallel()
	alone, through := newUser(t), newUser(t)
	g := through.gateway()
	bad := "caf\xe9"
	lines := [][]string{
		{},
		{"help"},
		{"help", "save"},
		{"save", "--help"},
		{"help", "gateway", "run"},
		{"help", "nosuch"},
		{"sess", "help"},
		{"--version"},
		{"list", "--version"},
		{"version", "--json"},
		{"list"},
		{"list", "--json"},
		{"sess", "list", "--json"},
		{"ls", "-q"},
		{"save"},
		{"save", "no name"},
		{"save", "x", "--json"},
		{"load", "nosuch"},
		{"load", "nosuch", "--json"},
		{"chat", "--message", "hello"},
		{"save", "one", "--note", "--json"},
		{"save", "one"},
		{"--json", "save", "two", "--tags=a=b,c=<d>&"},
		{"save", "three", "-q"},
		{"copy", "one", "four"},
		{"rename", "four", "five"},
		{"delete", "five"},
		{"undo"},
		{"redo"},
		{"list", "--limit=1", "--json"},
		{"list", "--limit=1"},
		{"list", "--limit=-1"},
		{"view", "one"},
		{"view", "one", "--json"},
		{"lst"},
		{"--nosuch", "list"},
		{"list", "--nosuch"},
		{"trash"},
		{"trash", "lst"},
		{"trash", "list", "--json"},
		{"--json", "--json=false", "list"},
		{"list", "--project"},
		{"--project=web", "list", "--json"},
		{"--project=../x", "list"},
		{"sessions", "show", "--json"},
		{"sessions", "show", "nosuch"},
		{"sessions", "use"},
		{"plugins", "inspect", "nosuch"},
		{"save", bad},
		{"save", "x", "--note=" + bad},
		{"save", "x", "--note", "--home=/nowhere"},
		{"verify"},
		{"gateway", "run", "--nosuch"},
		{"config", "show"},
		{"prune", "--dry-run", "--json"},
	}
	changing := regexp.MustCompile(strings.Join([]string{
		`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}`, `20\d\d-\d\d-\d\d[T ][0-9:.]+Z?`, `20\d{6}_[0-9a-f]{8}`, `20\d{6}T\d+Z`,
		`sha256:[0-9a-f]+`, `"(at|createdAt|updatedAt|bytes|revision)":\d+`, `\b\d+ bytes\b`, `\b(now|\d+[smh] ago)\b`, `--after=\S+`, `\b6\d\d\b`, ` {2,}|-{2,}`,
	}, "|"))
	for _, line := range lines {
		var got [2]string
		for i, u := range []*user{alone, through} {
			stdout, stderr, exit := u.run(line...)
			text := fmt.Sprintf("status %d\n--- stdout\n%s--- stderr\n%s", exit, stdout, stderr)
			got[i] = changing.ReplaceAllString(strings.ReplaceAll(text, u.dir, "DIR"), "~")
		}
		if diff := cmp.Diff(got[0], got[1]); diff != "" {
			t.Errorf("sess %q (-alone +through the gateway):\n%s", line, diff)
		}
	}
	calls := strconv.Itoa(strings.Count(through.log(), `"level"`))
	through.do("gateway", "stop")
	if exit := g.end(); exit != 0 {
		t.Errorf("the gateway ended with status %d after %s log lines: %s", exit, calls, &g.stderr)
	}
}

// A chat goes on in its own process beside a gateway: each sees what the other
// one did to the session.
func TestChatBesideAGateway(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.gateway()
	u.chat("one", "/sess save early", "two")
	if got := u.names(); !slices.Equal(got, []string{"early"}) {
		t.Errorf("list through the gateway: %v", got)
	}
	u.do("load", "early")
	if got := u.messages(); len(got) != 2 || got[0] != "one" {
		t.Errorf("messages after load through the gateway: %q", got)
	}
	u.chat("three")
	if got := u.messages(); len(got) != 4 || got[2] != "three" {
		t.Errorf("messages after one more turn: %q", got)
	}
}

// A gateway that is named by its address does what one of this machine does, for
// those who have its token; what only a person at its machine may do is refused.
func TestRemoteGateway(t *testing.T) {
	t.Parallel()
	there, here := newUser(t), newUser(t)
	there.chat("hello")
	there.do("save", "a")
	g := there.gateway()
	token := strings.TrimSpace(there.do("gateway", "token", "--show"))
	file := filepath.Join(here.dir, "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	named := []string{"--url=" + g.Address, "--token-file=" + file}
	if got := here.names(named...); !slices.Equal(got, []string{"a"}) {
		t.Errorf("list there: %v", got)
	}
	here.do(append(named, "save", "b", "--note=from here")...)
	if got := there.names(); !slices.Equal(got, []string{"b", "a"}) {
		t.Errorf("list after a save from elsewhere: %v", got)
	}
	var s gatewayStatus
	if here.answer(&s, append(named, "gateway", "status")...); s.PID != g.PID {
		t.Errorf("status: %+v", s)
	}
	env := here.env
	refusals := []struct {
		name string
		env  []string
		exit int
		args []string
		want string
	}{
		{"no token", nil, 6, []string{"--url=" + g.Address, "list"}, "--token-file"},
		{"a wrong token", nil, 6, []string{"--url=" + g.Address, "--token=" + token + "x", "list"}, "sess gateway token prints it"},
		{"two tokens", nil, 2, append(slices.Clone(named), "--token=x", "list"), "--token-file"},
		{"no such snapshot", nil, 3, append(slices.Clone(named), "load", "nosuch"), "nosuch"},
		{"a home, too", nil, 2, append(slices.Clone(named), "--home=x", "list"), "--home and --url"},
		{"change of plugins", nil, 6, append(slices.Clone(named), "plugins", "disable", "sess"), "command line"},
		{"nobody there", nil, 9, []string{"--url=http://127.0.0.1:1", "--token=x", "list"}, "On its machine, sess gateway status"},
		{"no address", nil, 2, []string{"--url=localhost:7777", "--token=x", "list"}, "https://host:7777"},
		{"by the environment", []string{"SESS_GATEWAY_URL=" + g.Address, "SESS_GATEWAY_TOKEN=no"}, 6, []string{"list"}, "token"},
	}
	for _, tt := range refusals {
		here.env = append(slices.Clone(env), tt.env...)
		var refused failure
		here.fails(tt.exit, &refused, tt.args...)
		if !strings.Contains(refused.Error+refused.Hint, tt.want) || strings.Contains(refused.Error+refused.Hint, token) {
			t.Errorf("%s: %+v, want %q", tt.name, refused, tt.want)
		}
	}
	here.env = append(slices.Clone(env), "SESS_GATEWAY_URL="+g.Address, "SESS_GATEWAY_TOKEN="+token)
	if got := here.names(); !slices.Equal(got, []string{"b", "a"}) {
		t.Errorf("list by the environment: %v", got)
	}
	if got := here.names("--home=" + here.home); len(got) != 0 {
		t.Errorf("list of a home that is named beside the environment: %v", got)
	}
}

// A reload applies what has changed in the configuration, and refuses a wrong one
// without a change.
func TestGatewayReload(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.configure(`{"maxSnapshots":7}`)
	g := u.gateway()
	limit := func() (n int) {
		t.Helper()
		var plugin struct {
			PID    int
			Config struct{ MaxSnapshots int }
		}
		u.answer(&plugin, "plugins", "inspect", "sess")
		return plugin.Config.MaxSnapshots
	}
	if got := limit(); got != 7 {
		t.Fatalf("maxSnapshots: %d", got)
	}
	type report struct {
		Data struct{ Changed, Restart []string }
	}
	var r report
	if u.answer(&r, "gateway", "reload"); len(r.Data.Changed)+len(r.Data.Restart) > 0 {
		t.Errorf("reload without a change: %+v", r)
	}
	u.configure(`{"maxSnapshots":"many"}`)
	var wrong failure
	u.fails(2, &wrong, "gateway", "reload")
	if !strings.Contains(wrong.Error, "maxSnapshots") || limit() != 7 {
		t.Errorf("reload of a wrong configuration: %+v; now maxSnapshots is %d", wrong, limit())
	}
	u.configure(`{"maxSnapshots":8}`)
	if u.answer(&r, "gateway", "reload"); !slices.Equal(r.Data.Changed, []string{"sess"}) || limit() != 8 {
		t.Errorf("reload: %+v; now maxSnapshots is %d", r, limit())
	}
	config := `{"gateway":{"listen":"127.0.0.1:1","token":"secret"}}`
	if err := os.WriteFile(filepath.Join(u.home, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, exit := u.run("gateway", "reload")
	if exit != 0 || !strings.Contains(stderr, "gateway.listen, gateway.token: changed, and holds from the next start on") || !strings.Contains(stderr, "was started with --listen=127.0.0.1:0: sess gateway stop, then sess gateway start") {
		t.Errorf("reload with other settings of the gateway: status %d\n%s%s", exit, stdout, stderr)
	}
	if shown := u.do("config", "show"); strings.Contains(shown, "secret") || !strings.Contains(shown, "(hidden)") {
		t.Errorf("config show does not hide the token:\n%s", shown)
	}
	if log := u.log(); strings.Contains(log, "secret") || strings.Count(log, "configuration reloaded") != 3 {
		t.Errorf("log:\n%s", log)
	}
	u.do("gateway", "stop")
	if exit := g.end(); exit != 0 {
		t.Errorf("the gateway ended with status %d: %s", exit, &g.stderr)
	}
}

// The service file says how this program runs for this home, and is removed only
// as it was written.
func TestGatewayInstall(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.home = filepath.Join(u.dir, `a "home" of 100%`)
	u.env = append(u.env, "SESS_HOME="+u.home)
	switch runtime.GOOS {
	case "linux", "darwin":
	default:
		var refused failure
		u.fails(2, &refused, "gateway", "install")
		return
	}
	var none failure
	u.fails(3, &none, "gateway", "uninstall")
	var wrote struct {
		Data struct {
			File   string
			Enable []string
		}
	}
	u.answer(&wrote, "gateway", "install")
	path := wrote.Data.File
	if err := os.Chmod(filepath.Dir(path), 0o755); err != nil { // as others made it
		t.Fatal(err)
	}
	u.answer(&wrote, "gateway", "install") // again, which changes nothing
	text, err := os.ReadFile(path)
	if err != nil || !strings.HasPrefix(path, u.dir) || len(wrote.Data.Enable) == 0 {
		t.Fatalf("install: %+v, %v", wrote, err)
	}
	if runtime.GOOS == "linux" {
		want := fmt.Sprintf(`ExecStart="%s" "--home=%s/a \"home\" of 100%%%%" gateway run`, u.bin, u.dir)
		if !strings.Contains(string(text), "\n"+want+"\n") {
			t.Errorf("%s has no line %s:\n%s", path, want, text)
		}
	}
	for name, other := range map[string]string{"changed": string(text) + "# mine\n", "foreign": "[Service]\nExecStart=/bin/true\n"} {
		if err := os.WriteFile(path, []byte(other), 0o600); err != nil {
			t.Fatal(err)
		}
		var refused failure
		u.fails(6, &refused, "gateway", "uninstall")
		u.fails(4, &refused, "gateway", "install")
		if left, err := os.ReadFile(path); err != nil || string(left) != other {
			t.Errorf("a %s file: now it has %q (%v)", name, left, err)
		}
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	u.do("gateway", "uninstall")
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("after uninstall: %v", err)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the folder of all service files: %v (%v), want its mode kept", info, err)
	}
}

// What a person reads at the start in the foreground works: the address answers,
// and the command that is named prints the token.
func TestUp(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	cmd := u.command("up", "--listen=127.0.0.1:0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 4096)
	n, err := out.Read(said)
	if err != nil {
		t.Fatal(err)
	}
	address := regexp.MustCompile(`http://[0-9.:]+`).Find(said[:n])
	if address == nil || !strings.Contains(string(said[:n]), "sess gateway token") {
		t.Fatalf("up says:\n%s", said[:n])
	}
	g := &gateway{user: u, gatewayStatus: gatewayStatus{Address: string(address)}}
	if status, body := g.get(http.DefaultClient, "/healthz", ""); status != 200 {
		t.Errorf("healthz: %d %s", status, body)
	}
	u.do("gateway", "stop")
	if rest, err := io.ReadAll(out); err != nil || len(rest) > 0 {
		t.Errorf("then it says %q (%v)", rest, err)
	}
	if exit := u.exit(cmd.Wait()); exit != 0 {
		t.Errorf("up ended with status %d", exit)
	}
}

// Of many that start at once one becomes the gateway, and the others say which.
func TestGatewayStartsAtOnce(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	const n = 4
	var (
		starts [n]*exec.Cmd
		said   [n]bytes.Buffer
	)
	for i := range starts {
		starts[i] = u.command("--json", "gateway", "start", "--listen=127.0.0.1:0")
		starts[i].Stdout = &said[i]
		if err := starts[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	var exits []int
	for i := range starts {
		exits = append(exits, u.exit(starts[i].Wait()))
	}
	slices.Sort(exits)
	if want := []int{0, 5, 5, 5}; !slices.Equal(exits, want) {
		t.Errorf("exit statuses: %v, want %v", exits, want)
	}
	var s gatewayStatus
	u.answer(&s, "gateway", "status")
	for i := range said {
		var doc struct {
			Data  gatewayStatus
			Error string
		}
		if err := json.Unmarshal(said[i].Bytes(), &doc); err != nil {
			t.Fatalf("%v: %s", err, &said[i])
		}
		if doc.Data.PID != s.PID && !strings.Contains(doc.Error, fmt.Sprintf("process %d", s.PID)) {
			t.Errorf("a start said %s, but the gateway is process %d", &said[i], s.PID)
		}
	}
	u.do("gateway", "stop")
}

// A restart with settings that no gateway starts with leaves the one that runs.
func TestGatewayRestartChecksFirst(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	g := u.gateway()
	for _, c := range []struct {
		config string
		args   []string
		want   string
	}{
		{`{"gateway":{"listen":1}}`, nil, "want string"},
		{`{"gateway":{"listen":"0.0.0.0:0"}}`, nil, "other machines can reach"},
		{`{"gateway":{"tls":{"cert":"a.pem","key":"b.pem"}}}`, nil, "a.pem"},
		{`{"gateway":{"allowedOrigins":["*"]}}`, nil, "is not an origin"},
		{`{"gateway":{"token":" "}}`, nil, "has blanks"},
		{`{}`, []string{"--listen=nonsense"}, "is not an address"},
	} {
		u.config(c.config)
		_, stderr, exit := u.run(append([]string{"gateway", "restart"}, c.args...)...)
		if exit == 0 || !strings.Contains(stderr, c.want) {
			t.Errorf("restart with %s %v: status %d, %s; want %q", c.config, c.args, exit, stderr, c.want)
		}
	}
	if status, body := g.get(http.DefaultClient, "/healthz", ""); status != 200 {
		t.Errorf("afterwards: %d %s", status, body)
	}
	u.do("gateway", "stop")
	if exit := g.end(); exit != 0 {
		t.Errorf("the gateway of the beginning ended with status %d", exit)
	}
}
