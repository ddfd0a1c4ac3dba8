package server_test

import (
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"

	"sess/host/server"
	"sess/host/web"
)

// htmlWanted is how a browser asks for a page.
const htmlWanted = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

// A browser is served the page, its parts and the client module without a token, as
// they hold no secret and a page has no token before it has them. A program is told
// what it always was.
func TestPage(t *testing.T) {
	t.Parallel()
	g := start(t, newHost(t), server.Options{Version: "9.9"})
	page := g.ask(t, "GET", "/", "", "-", htmlWanted)
	if page.status != 200 || page.header.Get("Content-Type") != "text/html; charset=utf-8" || !strings.Contains(page.body, "<!doctype html>") {
		t.Errorf("GET / of a browser: %d %v\n%s", page.status, page.header, page.body)
	}
	for _, accept := range []string{"", "Accept: */*", "Accept: application/json"} {
		if a := g.ask(t, "GET", "/", "", slices.DeleteFunc([]string{"-", accept}, func(h string) bool { return h == "" })...); a.status != 200 || !strings.Contains(a.body, `"version":"9.9"`) || !slices.Contains(a.header.Values("Vary"), "Accept") {
			t.Errorf("GET / with %q: %d %v %s, want JSON", accept, a.status, a.header.Values("Vary"), a.body)
		}
	}
	// Nothing runs that is not the gateway's own, and nobody may frame the page.
	for _, directive := range []string{
		"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'",
		"frame-ancestors 'none'", "require-trusted-types-for 'script'",
	} {
		if policy := page.header.Get("Content-Security-Policy"); !slices.Contains(strings.Split(policy, "; "), directive) {
			t.Errorf("the policy %q lacks %s", policy, directive)
		}
	}
	if strings.Contains(page.header.Get("Content-Security-Policy"), "unsafe") {
		t.Errorf("the policy is %s", page.header.Get("Content-Security-Policy"))
	}

	kinds := map[string]string{
		".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml", ".ts": "text/plain; charset=utf-8",
	}
	targets := map[string]string{"/": page.header.Get("Content-Type"), "/client.js": kinds[".js"], "/client.d.ts": kinds[".ts"]}
	files, err := fs.Glob(web.Assets, "assets/*")
	if err != nil || len(files) < 5 {
		t.Fatalf("the parts of the page are %q, %v", files, err)
	}
	for _, name := range files {
		targets["/"+name] = kinds[path.Ext(name)]
	}
	for target, kind := range targets {
		a := g.ask(t, "GET", target, "", "-", htmlWanted)
		tag := a.header.Get("ETag")
		if a.status != 200 || a.header.Get("Content-Type") != kind || tag == "" || a.header.Get("Cache-Control") != "no-cache" {
			t.Errorf("GET %s: %d %v, want the type %q", target, a.status, a.header, kind)
		}
		for header, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin"} {
			if got := a.header.Get(header); got != want {
				t.Errorf("GET %s: %s is %q, want %q", target, header, got, want)
			}
		}
		if a := g.ask(t, "GET", target, "", "-", htmlWanted, "If-None-Match: "+tag); a.status != 304 || a.body != "" {
			t.Errorf("GET %s for who has it: %d with %d bytes, want 304 with none", target, a.status, len(a.body))
		}
		if a := g.ask(t, "GET", target, "", "-", htmlWanted, `If-None-Match: "another"`); a.status != 200 {
			t.Errorf("GET %s for who has another: %d, want 200", target, a.status)
		}
		if a := g.ask(t, "HEAD", target, "", "-", htmlWanted); a.status != 200 || a.body != "" || a.header.Get("ETag") != tag {
			t.Errorf("HEAD %s: %d %v %q", target, a.status, a.header, a.body)
		}
		if a := g.ask(t, "POST", target, "{}", htmlWanted); a.status != 405 || a.header.Get("Allow") != "GET, HEAD" {
			t.Errorf("POST %s: %d, Allow %q, want 405", target, a.status, a.header.Get("Allow"))
		}
		if a := g.ask(t, "GET", target, "", "-", "Origin: https://elsewhere.example"); a.status != 403 {
			t.Errorf("GET %s from a page of another origin: %d, want 403", target, a.status)
		}
	}
}

// An unknown path is an error in JSON, also for a browser, and never the page.
func TestPageIsNoFallback(t *testing.T) {
	t.Parallel()
	g := start(t, newHost(t), server.Options{})
	for _, target := range []string{"/nosuch", "/index.html", "/assets", "/assets/", "/assets/nosuch.js", "/assets/../client.js", "/assets/%70age.js", "//", "/sessions/nosuch/page"} {
		a := g.ask(t, "GET", target, "", htmlWanted)
		if a.status < 400 || a.header.Get("Content-Type") != "application/json" || strings.Contains(a.body, "<!doctype") {
			t.Errorf("GET %s: %d %s\n%.200s", target, a.status, a.header.Get("Content-Type"), a.body)
		}
		if a := g.ask(t, "GET", target, "", "-", htmlWanted); a.status != 401 || a.header.Get("Content-Type") != "application/json" {
			t.Errorf("GET %s without a token: %d %s, want 401", target, a.status, a.header.Get("Content-Type"))
		}
	}
}
