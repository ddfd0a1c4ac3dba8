package server_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sess/host/server"
	"sess/plugin"
)

// S4-84: a server that would be open is not made.
func TestNewRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		opts server.Options
		want string // in the text
	}{
		{"no token", server.Options{}, "gateway.token"},
		{"a blank token", server.Options{Token: "  "}, "gateway.token"},
		{"no address", server.Options{Token: token, Listen: "7777"}, "gateway.listen"},
		{"other machines without TLS", server.Options{Token: token, Listen: "192.0.2.1:7777"}, "gateway.insecure"},
		{"all addresses without TLS", server.Options{Token: token, Listen: ":7777"}, "gateway.insecure"},
		{"an origin with a path", server.Options{Token: token, AllowedOrigins: []string{"https://a.example/x"}}, "gateway.allowedOrigins"},
		{"any origin", server.Options{Token: token, AllowedOrigins: []string{"*"}}, "gateway.allowedOrigins"},
		{"the origin null", server.Options{Token: token, AllowedOrigins: []string{"null"}}, "gateway.allowedOrigins"},
		{"a URL as host", server.Options{Token: token, AllowedHosts: []string{"http://a.example"}}, "gateway.allowedHosts"},
		{"no certificate", server.Options{Token: token, TLSCert: "nowhere.pem", TLSKey: "nowhere.key"}, "gateway.tls"},
	}
	for _, tt := range tests {
		_, err := server.New(newHost(t), tt.opts)
		if e, ok := errors.AsType[*plugin.Error](err); !ok || !strings.Contains(e.Text(), tt.want) {
			t.Errorf("New with %s: %v, want an error that names %s", tt.name, err, tt.want)
		}
	}
	for _, o := range []server.Options{
		{Token: token, Listen: "localhost:0"},
		{Token: token, Listen: "[::1]:0"},
		{Token: token, Listen: "0.0.0.0:7777", Insecure: true},
	} {
		if _, err := server.New(newHost(t), o); err != nil {
			t.Errorf("New listening on %s: %v", o.Listen, err)
		}
	}
}

// S4-60: only the exact token passes, everywhere but on the open paths, and nothing
// tells which part of another one was wrong.
func TestToken(t *testing.T) {
	t.Parallel()
	g := start(t, newHost(t), server.Options{})
	bad := map[string][]string{
		"none":                            {"-"},
		"the scheme alone":                {"-", "Authorization: Bearer"},
		"an empty token":                  {"-", "Authorization: Bearer "},
		"a longer token":                  {"-", "Authorization: Bearer " + token + "2"},
		"a shorter token":                 {"-", "Authorization: Bearer " + token[:4]},
		"another scheme":                  {"-", "Authorization: Basic " + token},
		"no scheme":                       {"-", "Authorization: " + token},
		"two blanks":                      {"-", "Authorization: Bearer  " + token},
		"two headers":                     {"Authorization: Bearer " + token},
		"1 MiB":                           {"-", "Authorization: Bearer " + strings.Repeat("x", 1<<20)},
		"in the protocol of no WebSocket": {"-", "Sec-WebSocket-Protocol: bearer." + token},
	}
	var first answer
	for name, headers := range bad {
		for _, target := range []string{"/notes/list", "/notes/nosuch", "/nowhere", "/%68ealthz", "/metrics", "/tools", "/notes/list?token=" + token} {
			a := g.ask(t, "GET", target, "", headers...)
			if a.status != http.StatusUnauthorized || !strings.HasPrefix(a.header.Get("WWW-Authenticate"), "Bearer") || a.header.Get("Content-Type") != "application/json" {
				t.Errorf("GET %s with %s: status %d, %v; want 401 with WWW-Authenticate, in JSON", target, name, a.status, a.header)
			}
			if first.body == "" {
				first = a
			}
			if diff := cmp.Diff(first.body, a.body); diff != "" {
				t.Errorf("GET %s with %s is refused in another way than the first (-first +this):\n%s", target, name, diff)
			}
		}
		if a := g.ask(t, "POST", "/notes/save", `{"name":"x"}`, headers...); a.status != http.StatusUnauthorized {
			t.Errorf("POST with %s: status %d, want 401", name, a.status)
		}
	}
	if n, call := g.host.reached(); n > 0 {
		t.Errorf("a call without the token was dispatched: %+v", call)
	}
	for _, scheme := range []string{"Bearer", "bearer", "BEARER"} {
		if a := g.ask(t, "GET", "/notes/list", "", "-", "Authorization: "+scheme+" "+token); a.status != http.StatusOK {
			t.Errorf("with the scheme %s: status %d, want 200", scheme, a.status)
		}
	}
	for _, target := range []string{"/", "/healthz", "/readyz"} {
		if a := g.ask(t, "GET", target, "", "-"); a.status != http.StatusOK {
			t.Errorf("GET %s without a token: status %d, want 200", target, a.status)
		}
	}
	if strings.Contains(g.log.String(), token) {
		t.Errorf("the token is in the log:\n%s", g.log)
	}
}

func TestOriginAndHost(t *testing.T) {
	t.Parallel()
	const page, evil = "https://notes.example", "https://evil.example"
	g := start(t, newHost(t), server.Options{AllowedOrigins: []string{"HTTPS://Notes.example:443"}, AllowedHosts: []string{"Sess.example", "[2001:db8::1]", "ported.example:8443"}})
	_, port, err := net.SplitHostPort(strings.TrimPrefix(g.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	preflight := "Access-Control-Request-Method: POST"
	tests := []struct {
		name, method string
		headers      []string
		status       int
		allow        string // the origin that may read the answer
		setting      string // what the text names
	}{
		{"no origin", "GET", nil, 200, "", ""},
		{"the server's own page", "GET", []string{"Origin: " + g.url}, 200, "", ""},
		{"an allowed page", "GET", []string{"Origin: " + page}, 200, page, ""},
		{"an allowed page without token", "GET", []string{"-", "Origin: " + page}, 401, page, ""},
		{"its preflight without token", "OPTIONS", []string{"-", "Origin: " + page, preflight}, 204, page, ""},
		{"an error for an allowed page", "POST", []string{"Origin: " + page}, 405, page, ""},
		{"another page with the token", "GET", []string{"Origin: " + evil}, 403, "", "gateway.allowedOrigins"},
		{"its POST", "POST", []string{"Origin: " + evil}, 403, "", "gateway.allowedOrigins"},
		{"its preflight", "OPTIONS", []string{"-", "Origin: " + evil, preflight}, 403, "", "gateway.allowedOrigins"},
		{"the origin null", "GET", []string{"Origin: null"}, 403, "", "gateway.allowedOrigins"},
		{"an allowed page on another port", "GET", []string{"Origin: " + page + ":8443"}, 403, "", "gateway.allowedOrigins"},
		{"an allowed page without TLS", "GET", []string{"Origin: http://notes.example"}, 403, "", "gateway.allowedOrigins"},
		{"a page on another port of this machine", "GET", []string{"Origin: http://127.0.0.1:1"}, 403, "", "gateway.allowedOrigins"},
		{"a WebSocket of another page", "GET", []string{"Origin: " + evil, "Connection: Upgrade", "Upgrade: websocket"}, 403, "", "gateway.allowedOrigins"},
		{"another host", "GET", []string{"Host: evil.test:" + port}, 403, "", "gateway.allowedHosts"},
		{"another host as its own page", "GET", []string{"Host: evil.test:" + port, "Origin: http://evil.test:" + port}, 403, "", "gateway.allowedHosts"},
		{"an open path of another host", "OPTIONS", []string{"-", "Host: evil.test"}, 403, "", "gateway.allowedHosts"},
		{"localhost", "GET", []string{"Host: LocalHost:" + port}, 200, "", ""},
		{"this machine by IPv6", "GET", []string{"Host: [::1]:" + port}, 200, "", ""},
		{"an allowed host", "GET", []string{"Host: sess.example:" + port}, 200, "", ""},
		{"an allowed address", "GET", []string{"Host: [2001:db8::1]:" + port}, 200, "", ""},
		{"an allowed host with its port", "GET", []string{"Host: ported.example:8443"}, 200, "", ""},
		{"an allowed host with another port", "GET", []string{"Host: ported.example:8444"}, 403, "", "gateway.allowedHosts"},
		{"a host below an allowed one", "GET", []string{"Host: x.sess.example"}, 403, "", "gateway.allowedHosts"},
	}
	for _, tt := range tests {
		before, _ := g.host.reached()
		a := g.ask(t, tt.method, "/notes/list", "", tt.headers...)
		if a.status != tt.status || a.header.Get("Access-Control-Allow-Origin") != tt.allow {
			t.Errorf("%s: status %d, allowed origin %q; want %d, %q", tt.name, a.status, a.header.Get("Access-Control-Allow-Origin"), tt.status, tt.allow)
		}
		if tt.status == 204 && (!strings.Contains(a.header.Get("Access-Control-Allow-Headers"), "Authorization") || !strings.Contains(a.header.Get("Access-Control-Allow-Methods"), "POST")) {
			t.Errorf("%s: headers %v, want the method and Authorization allowed", tt.name, a.header)
		}
		if tt.setting != "" {
			if code, text := failure(t, a); code != "denied" || !strings.Contains(text, tt.setting) {
				t.Errorf("%s: %s %q, want denied, naming %s", tt.name, code, text, tt.setting)
			}
		}
		if after, call := g.host.reached(); tt.status != 200 && after != before {
			t.Errorf("%s: %+v was dispatched", tt.name, call)
		}
	}
}

// What no client library sends is refused like the rest: another spelling of an
// open path is none, and the host is that of the request line where one stands there.
func TestRawRequests(t *testing.T) {
	t.Parallel()
	g := start(t, newHost(t), server.Options{})
	const authorization = "Authorization: Bearer " + token + "\r\n"
	for name, tt := range map[string]struct{ line, headers, status string }{
		"two dots":              {"GET /notes/../healthz", "", "401"},
		"an encoded letter":     {"GET /%68ealthz", "", "401"},
		"a slash more":          {"GET /healthz/", "", "401"},
		"two slashes":           {"GET //healthz", "", "401"},
		"a foreign host":        {"GET http://evil.test/healthz", "", "403"},
		"its own host":          {"GET http://localhost/notes/list", authorization, "200"},
		"all of the server":     {"OPTIONS *", "", "401"},
		"a tunnel":              {"CONNECT localhost:1", "", "401"},
		"a malformed escape":    {"GET /notes/%zz", authorization, "400"},
		"a method in lowercase": {"get /notes/list", authorization, "405"},
		"two origins":           {"GET /notes/list", authorization + "Origin: " + g.url + "\r\nOrigin: " + g.url + "\r\n", "403"},
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s\r\n", tt.line, tt.headers)
		answer, err := io.ReadAll(conn)
		if err := errors.Join(err, conn.Close()); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(answer), "HTTP/1.1 "+tt.status+" ") {
			t.Errorf("%s: %q, want status %s", name, answer, tt.status)
		}
	}
}
