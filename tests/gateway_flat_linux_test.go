package tests

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// held is what a process holds on to.
type held struct {
	goroutines, descriptors int
	memory                  int // bytes in RAM
}

// Calls over HTTP leave nothing behind in the gateway, whether they read,
// write, fail, are refused or come in over a connection of their own; nor in the
// plugin's process. TESTS_CALLS says how many.
func TestGatewayCallsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	calls := 600
	if text := os.Getenv("TESTS_CALLS"); text != "" {
		var err error
		if calls, err = strconv.Atoi(text); err != nil {
			t.Fatalf("TESTS_CALLS: %v", err)
		}
	}
	u := newUser(t)
	u.do("chat", "--message", "hello")
	g := u.gateway()
	token := strings.TrimSpace(u.do("gateway", "token", "--show"))
	send := func(client *http.Client, token, method, target, body string, status int) string {
		req, err := http.NewRequestWithContext(t.Context(), method, g.Address+target, strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return ""
		}
		req.Header.Set("Authorization", "Bearer "+token)
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Error(err)
			return ""
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != status {
			t.Errorf("%s %s: %d %s (%v), want status %d", method, target, resp.StatusCode, data, err, status)
		}
		return string(data)
	}
	work := func(calls int) {
		const workers = 4
		var all sync.WaitGroup
		for w := range workers {
			all.Go(func() {
				transport := &http.Transport{}
				defer transport.CloseIdleConnections()
				client := &http.Client{Transport: transport}
				for i := range calls / workers {
					slot := fmt.Sprintf(`{"name":"slot%d","overwrite":true}`, w)
					switch i % 10 {
					case 0:
						send(client, token, "POST", "/sess/view", "{}", 405)
					case 1:
						send(client, token, "GET", "/sess/view?name=nosuch", "", 400)
					case 2:
						send(client, "wrong", "GET", "/sess/list", "", 401)
					case 3:
						send(client, token, "POST", "/tools/invoke", `{"tool":"sess_manage","args":{"action":"list"}}`, 200)
					case 4:
						send(client, token, "POST", "/rpc", `{"jsonrpc":"2.0","id":1,"method":"sess.invoke","params":{"action":"list"}}`, 200)
					case 5:
						transport.CloseIdleConnections()
						send(client, token, "GET", "/sess/list", "", 200)
					case 6:
						if i%50 == 6 {
							send(client, token, "POST", "/sess/save", slot, 200)
						}
					default:
						send(client, token, "GET", "/sess/list?limit=5", "", 200)
					}
				}
			})
		}
		all.Wait()
	}
	watch := &http.Client{Transport: &http.Transport{}}
	defer watch.CloseIdleConnections()
	var plugins []struct{ PID int }
	if err := json.Unmarshal([]byte(send(watch, token, "GET", "/plugins/list", "", 200)), &plugins); err != nil || len(plugins) == 0 {
		t.Fatalf("GET /plugins/list: %v, %d plugins", err, len(plugins))
	}
	work(200) // pools, caches and connections fill
	if err := json.Unmarshal([]byte(send(watch, token, "GET", "/plugins/list", "", 200)), &plugins); err != nil || plugins[0].PID == 0 {
		t.Fatalf("GET /plugins/list: %v, %+v", err, plugins)
	}
	look := func() (gateway, plugin held) {
		values := map[string]int{}
		lines := bufio.NewScanner(strings.NewReader(send(watch, token, "GET", "/metrics", "", 200)))
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), " ")
			if n, err := strconv.ParseFloat(value, 64); err == nil {
				values[name] = int(n)
			}
		}
		gateway = held{values["go_goroutines"], values["process_open_fds"], values["process_resident_memory_bytes"]}
		if gateway.goroutines == 0 || gateway.descriptors == 0 || gateway.memory == 0 {
			t.Fatalf("/metrics tells nothing: %v", values)
		}
		return gateway, processHolds(t, plugins[0].PID)
	}
	gatewayBefore, pluginBefore := look()
	work(calls)
	const more = 16 << 20 // the collector's own pace
	flat := func(before, after held) bool {
		return after.goroutines <= before.goroutines && after.descriptors <= before.descriptors && after.memory <= before.memory+more
	}
	// Connections that were closed are noticed a little later.
	for deadline := time.Now().Add(20 * time.Second); ; {
		gatewayAfter, pluginAfter := look()
		if flat(gatewayBefore, gatewayAfter) && flat(pluginBefore, pluginAfter) {
			t.Logf("%d calls: gateway %+v, then %+v; plugin %+v, then %+v", calls, gatewayBefore, gatewayAfter, pluginBefore, pluginAfter)
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d calls leave something behind: gateway %+v, then %+v; plugin %+v, then %+v", calls, gatewayBefore, gatewayAfter, pluginBefore, pluginAfter)
		}
	}
}

// processHolds reads from /proc what another process holds; of goroutines
// nothing can be seen from outside.
func processHolds(t *testing.T, pid int) held {
	t.Helper()
	descriptors, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := bytes.Fields(statm)
	if len(fields) < 2 {
		t.Fatalf("/proc/%d/statm: %q", pid, statm)
	}
	pages, err := strconv.Atoi(string(fields[1]))
	if err != nil {
		t.Fatal(err)
	}
	return held{descriptors: len(descriptors), memory: pages * os.Getpagesize()}
}
