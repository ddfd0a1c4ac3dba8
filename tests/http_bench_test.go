package tests

import (
	"crypto/sha256"
	"crypto/subtle"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"sess/plugin"
)

// BenchmarkHTTPCall measures a call of the plugin over HTTP against what it
// consists of: a request to a bare echo server that checks a token, and a call
// of the plugin. The three take turns; "ratio" is that of the medians, and has
// to stay below 2.
func BenchmarkHTTPCall(b *testing.B) {
	u := newUser(b)
	u.do("chat", "--message", "hello")
	w := u.serve()
	bare := bareEcho(b)
	get := func(url string) {
		req, err := http.NewRequestWithContext(b.Context(), "GET", url, nil)
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+webToken)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			b.Fatalf("GET %s: status %d, %v", url, resp.StatusCode, err)
		}
	}
	parts := []struct {
		name string
		call func()
	}{
		{"echo-ns", func() { get(bare + "/sess/selected") }},
		{"plugin-ns", func() {
			if _, err := w.host.Dispatch(b.Context(), plugin.Call{Argv: []string{"sess", "selected"}, Caller: plugin.CallerHTTP}, nil); err != nil {
				b.Fatal(err)
			}
		}},
		{"http-ns", func() { get(w.url + "/sess/selected") }},
	}
	times := make([][]time.Duration, len(parts))
	for b.Loop() {
		for i, p := range parts {
			started := time.Now()
			p.call()
			times[i] = append(times[i], time.Since(started))
		}
	}
	medians := make([]float64, len(parts))
	for i, p := range parts {
		slices.Sort(times[i])
		medians[i] = float64(times[i][len(times[i])/2])
		b.ReportMetric(medians[i], p.name)
	}
	b.ReportMetric(medians[2]/(medians[0]+medians[1]), "ratio")
}

// bareEcho serves a small document to whoever has the token.
func bareEcho(b *testing.B) string {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	want := sha256.Sum256([]byte(webToken))
	e := echo.New()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			token, _ := strings.CutPrefix(c.Request().Header.Get("Authorization"), "Bearer ")
			if got := sha256.Sum256([]byte(token)); subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
				return c.NoContent(http.StatusUnauthorized)
			}
			return next(c)
		}
	})
	e.GET("/sess/selected", func(c echo.Context) error { return c.JSONBlob(http.StatusOK, []byte("null\n")) })
	srv := &http.Server{Handler: e, ReadHeaderTimeout: time.Second}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(listener) }()
	b.Cleanup(func() {
		if err := srv.Close(); err != nil {
			b.Error(err)
		}
		<-done
	})
	return "http://" + listener.Addr().String()
}
