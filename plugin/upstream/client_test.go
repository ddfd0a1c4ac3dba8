package upstream_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sess/plugin"
	"sess/plugin/upstream"
)

const base = "http://desk.test/v1"

func TestEvents(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100_000)
	for _, tt := range []struct {
		rule, stream string
		want         []string
		broken       bool
	}{
		{"one after the other", "data: a\n\ndata: b\n\ndata: [DONE]\n\n", []string{"a", "b"}, false},
		{"carriage returns", "data: a\r\n\r\ndata: [DONE]\r\n\r\n", []string{"a"}, false},
		{"names", "event: ping\ndata: a\n\ndata: b\n\ndata: [DONE]\n\n", []string{"ping=a", "b"}, false},
		{"a name without data is no event", "event: ping\n\ndata: a\n\ndata: [DONE]\n\n", []string{"a"}, false},
		{"comments", ": working\n\n: working\ndata: a\n\ndata: [DONE]\n\n", []string{"a"}, false},
		{"several lines", "data: a\ndata:b\ndata:\ndata:  c\n\ndata: [DONE]\n\n", []string{"a\nb\n\n c"}, false},
		{"other fields", "id: 7\nretry: 5\nnonsense\ndata: a\n\ndata: [DONE]\n\n", []string{"a"}, false},
		{"a byte order mark", "\xef\xbb\xbfdata: a\n\ndata: [DONE]\n\n", []string{"a"}, false},
		{"bytes that are no text", "data: a\xffb\n\ndata: [DONE]\n\n", []string{"a\uFFFDb"}, false},
		{"a long line", "data: " + long + "\n\ndata: [DONE]\n\n", []string{long}, false},
		{"no empty line at the end", "data: a\n\ndata: [DONE]\n", []string{"a"}, false},
		{"what follows the end", "data: [DONE]\n\ndata: a\n\n", nil, false},
		{"no end", "data: a\n\n", []string{"a"}, true},
		{"broken off in a line", "data: a\n\ndata: [DON", []string{"a"}, true},
		{"nothing", "", nil, true},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			t.Parallel()
			s := send(t.Context(), t, upstream.Options{BaseURL: base, MaxRetries: -1, Transport: &script{steps: []func(*http.Request) (*http.Response, error){
				func(*http.Request) (*http.Response, error) {
					return answer(200, nil, io.NopCloser(strings.NewReader(tt.stream)))
				},
			}}})
			if diff := cmp.Diff(tt.want, s.got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if s.plain != nil || (s.err != nil) != tt.broken {
				t.Errorf("Stream = %v, %v, want an error: %v", s.err, s.plain, tt.broken)
			}
			if tt.broken && !strings.HasPrefix(s.err.Message, "model desk/m1: the connection broke before the end of the answer") {
				t.Errorf("error %q", s.err.Text())
			}
		})
	}
}

func TestHugeEvent(t *testing.T) {
	t.Parallel()
	s := send(t.Context(), t, upstream.Options{BaseURL: base, Transport: &script{steps: []func(*http.Request) (*http.Response, error){
		func(*http.Request) (*http.Response, error) {
			return answer(200, nil, io.NopCloser(io.MultiReader(strings.NewReader("data: "), io.LimitReader(zeros{}, 40<<20))))
		},
	}}})
	if s.err == nil || s.tries != 1 || !strings.Contains(s.err.Message, "larger than 32 MB") {
		t.Errorf("Stream = %v after %d tries, want one that says that the event is too large", s.err, s.tries)
	}
}

// A server that never comes to an end of its answer is left, however fast it is.
func TestEndlessAnswer(t *testing.T) {
	t.Parallel()
	s := send(t.Context(), t, upstream.Options{BaseURL: base, Transport: &script{steps: []func(*http.Request) (*http.Response, error){
		func(*http.Request) (*http.Response, error) {
			return answer(200, nil, io.NopCloser(io.MultiReader(strings.NewReader("data: hello\n\n"), comments{})))
		},
	}}})
	if s.err == nil || s.tries != 1 || !strings.Contains(s.err.Message, "larger than 256 MB") || len(s.got) != 1 {
		t.Errorf("Stream = %v after %d tries, want one that says that the answer is too large", s.err, s.tries)
	}
}

// comments gives lines without an event for ever.
type comments struct{}

func (comments) Read(p []byte) (int, error) {
	clear(p)
	p[0], p[len(p)-1] = ':', '\n'
	return len(p), nil
}

// zeros gives the digit 0 for ever.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

// A request carries the key, and its path stands behind the whole base.
func TestRequest(t *testing.T) {
	t.Parallel()
	net := &script{steps: []func(*http.Request) (*http.Response, error){events("[DONE]"), events("[DONE]")}}
	env := func(name string) string { return map[string]string{"DESK_KEY": " k-1 \n"}[name] }
	s := send(t.Context(), t, upstream.Options{BaseURL: base + "/", Key: upstream.Key{Env: "DESK_KEY"}, Getenv: env, Transport: net})
	send(t.Context(), t, upstream.Options{
		BaseURL: base, Key: upstream.Key{Env: "DESK_KEY"}, Getenv: env, Transport: net,
		Authorize: func(h http.Header, key string) { h.Set("X-Api-Key", key) }, Header: http.Header{"X-Version": {"7"}},
	})
	if s.err != nil || s.plain != nil {
		t.Fatalf("Stream: %v %v", s.err, s.plain)
	}
	one, two := net.seen[0], net.seen[1]
	if got := one.Method + " " + one.URL.String() + " " + one.Header.Get("Authorization") + " " + one.Header.Get("Content-Type"); got != "POST http://desk.test/v1/chat Bearer k-1 application/json" {
		t.Errorf("request %s", got)
	}
	if two.Header.Get("Authorization") != "" || two.Header.Get("X-Api-Key") != "k-1" || two.Header.Get("X-Version") != "7" {
		t.Errorf("header %v", two.Header)
	}
}

func TestWholeAnswer(t *testing.T) {
	t.Parallel()
	net := &script{steps: []func(*http.Request) (*http.Response, error){
		refuses(200, `{"a":1}`, "Content-Type: application/json; charset=utf-8"), refuses(200, `{"b":1}`),
	}}
	s := send(t.Context(), t, upstream.Options{BaseURL: base, Transport: net, MaxRetries: -1})
	if diff := cmp.Diff([]string{`whole={"a":1}`}, s.got); diff != "" || s.err == nil {
		t.Errorf("events (-want +got):\n%s\nerror %v, want one: the collector saw no end", diff, s.err)
	}
	c, err := upstream.New(upstream.Options{BaseURL: base, Transport: net})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.Post(t.Context(), upstream.Request{Model: "desk/m1", Path: "/x", Body: []byte(`{}`)}); err != nil || string(got) != `{"b":1}` {
		t.Errorf("Post = %s, %v", got, err)
	}
}

// What is worth another attempt is sent again after growing pauses, as often as
// configured, and people are told.
func TestSentAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }
		net := &script{steps: []func(*http.Request) (*http.Response, error){
			refuses(500, `{"error":{"message":"Oh."}}`), refuses(529, `{"type":"error","error":{"type":"overloaded_error"}}`), broken, events(), events("a", "[DONE]"),
		}}
		start := time.Now()
		s := send(t.Context(), t, upstream.Options{BaseURL: base, Transport: net})
		if s.err != nil || s.plain != nil || s.tries != 5 || len(s.got) != 1 {
			t.Fatalf("Stream = %v %v after %d tries, got %q", s.err, s.plain, s.tries, s.got)
		}
		// At most 0.5 + 1 + 2 + 4 s, and at least three quarters of that.
		if took := time.Since(start); took < 5625*time.Millisecond || took > 7500*time.Millisecond {
			t.Errorf("took %s", took)
		}
		for i, want := range []string{"model desk/m1", "Oh (HTTP 500)", "overloaded_error (HTTP 529)", "the connection broke", "the connection broke"} {
			if i > 0 && (!strings.Contains(s.notices[i-1], want) || !strings.HasSuffix(s.notices[i-1], fmt.Sprintf("(%d of 4)", i))) {
				t.Errorf("notice %q, want %q in it", s.notices[i-1], want)
			}
		}
	})
}

// A provider may say when to come back.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	at := time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		rule   string
		header []string
		want   time.Duration // 0: it is not waited for
		hint   string
	}{
		{"in seconds", []string{"Retry-After: 7"}, 7 * time.Second, ""},
		{"in parts of seconds", []string{"Retry-After: 1.5"}, 1500 * time.Millisecond, ""},
		{"in milliseconds, which are more exact", []string{"Retry-After: 2", "Retry-After-Ms: 1200"}, 1200 * time.Millisecond, ""},
		{"as a date, by the provider's own clock", []string{"Date: " + at.Format(http.TimeFormat), "Retry-After: " + at.Add(30*time.Second).Format(http.TimeFormat)}, 30 * time.Second, ""},
		{"the longest", []string{"Retry-After: 60"}, time.Minute, ""},
		{"longer than people wait", []string{"Retry-After: 3600"}, 0, "send the message again in 1h0m0s"},
		{"longer than there is time", []string{"Retry-After: 1e300"}, 0, "send the message again in 277777h46m40s"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := &script{steps: []func(*http.Request) (*http.Response, error){refuses(429, `{"error":{"message":"slow down","type":"rate_limit_error"}}`, tt.header...), events("[DONE]")}}
				start := time.Now()
				s := send(t.Context(), t, upstream.Options{BaseURL: base, Transport: net})
				if took := time.Since(start); took != tt.want {
					t.Errorf("took %s, want %s", took, tt.want)
				}
				if tt.hint == "" {
					if s.err != nil || s.plain != nil || s.tries != 2 {
						t.Errorf("Stream = %v %v after %d tries", s.err, s.plain, s.tries)
					}
				} else if s.err == nil || s.err.Code != plugin.Unavailable || s.err.Text() != "model desk/m1: slow down (HTTP 429); "+tt.hint {
					t.Errorf("Stream = %v, want the hint %q", s.err.Text(), tt.hint)
				}
			})
		})
	}
}

func TestNotSentAgain(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		rule  string
		first func(*http.Request) (*http.Response, error)
		tries int // in all, with four more allowed
	}{
		{"a refusal that stays", refuses(400, `{}`), 1},
		{"a key that is refused", refuses(401, `{}`), 1},
		{"an account that is empty", refuses(429, `{"error":{"code":"insufficient_quota"}}`), 1},
		{"an answer that people have seen", events("a"), 1},
		{"an error after people have seen something", events("a", `{"error":{"message":"overloaded","code":503}}`), 1},
		{"a page", refuses(200, "<html>", "Content-Type: text/html"), 1},
		{"the others for comparison", refuses(503, `{}`), 2},
		{"an error before anything was seen", events(`{"error":{"message":"overloaded","code":503}}`), 2},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := &script{steps: []func(*http.Request) (*http.Response, error){tt.first, events("[DONE]")}}
				s := send(t.Context(), t, upstream.Options{BaseURL: base, Transport: net})
				if s.tries != tt.tries || (s.err == nil) != (tt.tries == 2) || s.plain != nil {
					t.Errorf("%d tries, error %v %v; want %d", s.tries, s.err, s.plain, tt.tries)
				}
			})
		})
	}
}

func TestRetriesEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var steps []func(*http.Request) (*http.Response, error)
		for range 20 {
			steps = append(steps, refuses(503, `busy`))
		}
		net := &script{steps: steps}
		s := send(t.Context(), t, upstream.Options{BaseURL: base, Transport: net, MaxRetries: 10})
		if s.tries != 11 || s.err.Text() != "model desk/m1: busy (HTTP 503); send the message again in a while" {
			t.Errorf("%d tries, error %q", s.tries, s.err.Text())
		}
		if s := send(t.Context(), t, upstream.Options{BaseURL: base, Transport: net, MaxRetries: -1}); s.tries != 1 || s.notices != nil {
			t.Errorf("%d tries, notices %q, want one and none", s.tries, s.notices)
		}
	})
}

// The end of the context ends everything at once.
func TestCancel(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		rule string
		step func(*http.Request) (*http.Response, error)
	}{
		{"in a pause", refuses(429, ``, "Retry-After: 50")},
		{"before the answer", func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}},
		{"in the answer", slowly(func(ctx context.Context, w io.Writer) {
			_, _ = io.WriteString(w, "data: a\n\n")
			<-ctx.Done()
		})},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(3*time.Second, cancel)
				start := time.Now()
				s := send(ctx, t, upstream.Options{BaseURL: base, Transport: &script{steps: []func(*http.Request) (*http.Response, error){tt.step}}})
				if !errors.Is(s.plain, context.Canceled) || time.Since(start) != 3*time.Second {
					t.Errorf("Stream = %v %v after %s", s.err, s.plain, time.Since(start))
				}
			})
		})
	}
}

func TestTimeouts(t *testing.T) {
	t.Parallel()
	never := func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	drip := slowly(func(ctx context.Context, w io.Writer) {
		for ctx.Err() == nil {
			_, _ = io.WriteString(w, ": still here\n\n")
			select {
			case <-time.After(time.Minute):
			case <-ctx.Done():
			}
		}
	})
	quiet := slowly(func(ctx context.Context, w io.Writer) {
		_, _ = io.WriteString(w, "data: a\n\n")
		<-ctx.Done()
	})
	for _, tt := range []struct {
		rule string
		step func(*http.Request) (*http.Response, error)
		o    upstream.Options
		want time.Duration
		text string
	}{
		{"silence before the answer", never, upstream.Options{}, 5 * time.Minute, "model desk/m1: nothing came for 5m0s; send the message again, or raise models.providers.desk.idleTimeoutSeconds for a model that is slow"},
		{"silence in the answer", quiet, upstream.Options{Idle: 10 * time.Second}, 10 * time.Second, "model desk/m1: nothing came for 10s; send the message again, or raise models.providers.desk.idleTimeoutSeconds for a model that is slow"},
		{"whatever comes is no silence, but all has an end", drip, upstream.Options{}, 30 * time.Minute, "model desk/m1: the answer took too long (30m0s); raise models.providers.desk.timeoutSeconds for a model that is slow"},
		{"the configured end", drip, upstream.Options{Timeout: 90 * time.Second, Idle: -1}, 90 * time.Second, "model desk/m1: the answer took too long (1m30s); raise models.providers.desk.timeoutSeconds for a model that is slow"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tt.o.BaseURL, tt.o.MaxRetries, tt.o.Transport = base, -1, &script{steps: []func(*http.Request) (*http.Response, error){tt.step}}
				start := time.Now()
				s := send(t.Context(), t, tt.o)
				if time.Since(start) != tt.want || s.err == nil || s.err.Code != plugin.Unavailable || s.err.Text() != tt.text {
					t.Errorf("after %s: %v %v\nwant %s: %s", time.Since(start), s.err.Text(), s.plain, tt.want, tt.text)
				}
			})
		})
	}
}

// What a provider refuses is said with what to do about it.
func TestRefusals(t *testing.T) {
	t.Parallel()
	const setting = "models.providers.desk"
	for _, tt := range []struct {
		rule   string
		status int
		body   string
		header []string
		code   plugin.Code
		text   string
	}{
		{"OpenAI: too long", 400, `{"error":{"message":"This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`, nil, plugin.Usage, "this conversation is longer than the model can read: This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens (HTTP 400); /sess new begins another one, and this one stays; or go on with a model that reads more"},
		{"Anthropic: too long", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 214321 tokens > 200000 maximum"}}`, nil, plugin.Usage, "this conversation is longer than the model can read: prompt is too long: 214321 tokens > 200000 maximum (HTTP 400)"},
		{"llama.cpp: too long", 400, `{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_prompt_tokens":9,"n_ctx":8}}`, nil, plugin.Usage, "this conversation is longer than the model can read: "},
		{"vLLM: too long", 400, `{"object":"error","message":"This model's maximum context length is 4096 tokens.","type":"BadRequestError","param":null,"code":400}`, nil, plugin.Usage, "this conversation is longer than the model can read: "},
		{"too large for the server", 413, ``, nil, plugin.Usage, "this conversation is longer than the model can read: Request Entity Too Large (HTTP 413)"},
		{"the key", 401, `{"error":{"message":"Incorrect API key provided: k-se*ret."}}`, nil, plugin.Denied, "the provider refuses the key of the variable DESK_KEY; put a valid key there"},
		{"no right", 403, `{"error":{"message":"Project has no access to model m1"}}`, nil, plugin.Denied, "Project has no access to model m1 (HTTP 403); see what the account"},
		{"no credit", 402, `{"error":{"code":402,"message":"Insufficient credits"}}`, nil, plugin.Denied, "Insufficient credits (HTTP 402); see to the account"},
		{"no quota", 429, `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}`, nil, plugin.Denied, "You exceeded your current quota (HTTP 429); see to the account"},
		{"too many requests", 429, `{"error":{"message":"slow down"}}`, nil, plugin.Unavailable, "slow down (HTTP 429); send the message again in a while"},
		{"something else", 400, `{"error":{"message":"temperature: want 0 to 1","type":"invalid_request_error"}}`, nil, plugin.Usage, "the provider refuses the request: temperature: want 0 to 1 (HTTP 400); see the settings in " + setting + ", or use another model"},
		{"a text", 503, "upstream connect error\nor reset", []string{"Content-Type: text/plain"}, plugin.Unavailable, "upstream connect error or reset (HTTP 503)"},
		{"a page", 502, "<html>Bad gateway</html>", []string{"Content-Type: text/html"}, plugin.Unavailable, "Bad Gateway (HTTP 502)"},
		{"Ollama's older form", 500, `{"error":"model runner has stopped"}`, nil, plugin.Unavailable, "model runner has stopped (HTTP 500)"},
		{"FastAPI's form", 422, `{"detail":[{"msg":"field required"}]}`, nil, plugin.Usage, `the provider refuses the request: [{"msg":"field required"}] (HTTP 422)`},
		{"a redirect", 308, ``, []string{"Location: https://elsewhere.test/v1/chat"}, plugin.Usage, "http://desk.test/v1 leads on to https://elsewhere.test/v1/chat, which is not followed; set " + setting + ".baseURL to where the API is"},
		{"a page instead of the API", 200, "<html>", []string{"Content-Type: text/html; charset=utf-8"}, plugin.Usage, "a page for people came instead of an answer; set " + setting + ".baseURL (http://desk.test/v1) to where the API is; most end in /v1"},
		{"a message that quotes the key", 400, `{"error":{"message":"bad k-secret in it"}}`, nil, plugin.Usage, "the provider refuses the request: bad (hidden) in it (HTTP 400)"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			t.Parallel()
			s := send(t.Context(), t, upstream.Options{
				BaseURL: base, MaxRetries: -1, Key: upstream.Key{Env: "DESK_KEY"}, Getenv: func(string) string { return "k-secret" },
				Transport: &script{steps: []func(*http.Request) (*http.Response, error){refuses(tt.status, tt.body, tt.header...)}},
			})
			if s.err == nil || s.err.Code != tt.code || !strings.HasPrefix(s.err.Text(), "model desk/m1: "+tt.text) {
				t.Errorf("Stream = %v (%v)\nwant %s: %s", s.err.Text(), s.plain, tt.code, tt.text)
			}
			if strings.Contains(s.err.Text(), "k-se") {
				t.Errorf("%q tells some of the key", s.err.Text())
			}
			if e, ok := errors.AsType[*upstream.StatusError](s.err); ok != (tt.status != 200) || ok && e.Status != tt.status {
				t.Errorf("the cause is %#v", e)
			}
		})
	}
}

// A model that is not there is one that was mistyped, or the address is wrong.
func TestUnknownModel(t *testing.T) {
	t.Parallel()
	const missing = `{"error":{"message":"no such model","code":"model_not_found"}}`
	for _, tt := range []struct {
		rule   string
		models func(*http.Request) (*http.Response, error)
		hint   string
	}{
		{"a name that is near", refuses(200, `{"data":[{"id":"x"},{"id":"m2"}]}`), "did you mean desk/m2?"},
		{"names that are far", refuses(200, `{"data":[{"id":"tulip"},{"id":"rose"}]}`), "the provider has tulip, rose"},
		{"no names", refuses(200, `{"data":[]}`), "name another model of the provider, with --model desk/<model>"},
		{"no list", refuses(404, ``), `see that models.providers.desk.baseURL (http://desk.test/v1) is where the API is, and that it has "m1"`},
		{"something else than a list", refuses(200, `[]`), `see that models.providers.desk.baseURL (http://desk.test/v1) is where the API is, and that it has "m1"`},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			t.Parallel()
			net := &script{steps: []func(*http.Request) (*http.Response, error){refuses(404, missing), tt.models}}
			s := send(t.Context(), t, upstream.Options{BaseURL: base, Transport: net})
			if want := "model desk/m1: no such model (HTTP 404); " + tt.hint; s.err == nil || s.err.Code != plugin.NotFound || s.err.Text() != want {
				t.Errorf("Stream = %v, want %s", s.err.Text(), want)
			}
			if got := net.seen[1].Method + " " + net.seen[1].URL.String(); got != "GET http://desk.test/v1/models" {
				t.Errorf("asked for the models with %s", got)
			}
		})
	}
}

// The key goes nowhere but to the configured address, also if that leads on.
func TestRedirectGetsNoKey(t *testing.T) {
	t.Parallel()
	followed := make(chan string, 10)
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { followed <- r.Header.Get("X-Api-Key") }))
	defer thief.Close()
	server := httptest.NewServer(http.RedirectHandler(thief.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	s := send(t.Context(), t, upstream.Options{
		BaseURL: server.URL, Key: upstream.Key{Env: "K"}, Getenv: func(string) string { return "k-1" },
		Authorize: func(h http.Header, key string) { h.Set("X-Api-Key", key) },
	})
	if s.err == nil || s.err.Code != plugin.Usage || len(followed) != 0 {
		t.Errorf("Stream = %v, and %d requests followed", s.err, len(followed))
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s := send(t.Context(), t, upstream.Options{BaseURL: "http://" + address + "/v1", MaxRetries: 1})
	if want := "model desk/m1: nobody answers at " + address + "; see that the server runs there, or set models.providers.desk.baseURL to where it does"; s.err == nil || s.err.Code != plugin.Unavailable || s.err.Text() != want || s.tries != 2 {
		t.Errorf("Stream = %v after %d tries, want %s after 2", s.err.Text(), s.tries, want)
	}
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	secure.Config.ErrorLog = nil
	s = send(t.Context(), t, upstream.Options{BaseURL: secure.URL})
	if s.err == nil || s.err.Code != plugin.Unavailable || s.tries != 1 || !strings.Contains(s.err.Message, "certificate") {
		t.Errorf("Stream = %v after %d tries, want one that names the certificate", s.err, s.tries)
	}
}

// A connection that the provider has given up meanwhile is replaced without a word.
func TestStaleConnection(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	served := make(chan error, 1)
	go func() { served <- serveStale(l) }()
	c, err := upstream.New(upstream.Options{BaseURL: "http://" + l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got, err := c.Post(t.Context(), upstream.Request{Model: "desk/m1", Path: "/x", Body: []byte(`{}`), Notice: func(text string) { t.Errorf("told: %s", text) }})
		if err != nil || string(got) != "{}" {
			t.Errorf("Post = %s, %v", got, err)
		}
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// serveStale answers the first request, closes its connection at the second, and
// answers that on another one.
func serveStale(l net.Listener) error {
	first, err := l.Accept()
	if err != nil {
		return err
	}
	in := bufio.NewReader(first)
	if err := serveOne(in, first); err != nil {
		return err
	}
	if err := errors.Join(serveOne(in, io.Discard), first.Close()); err != nil {
		return err
	}
	second, err := l.Accept()
	if err != nil {
		return err
	}
	return errors.Join(serveOne(bufio.NewReader(second), second), second.Close())
}

func serveOne(in *bufio.Reader, out io.Writer) error {
	req, err := http.ReadRequest(in)
	if err != nil {
		return err
	}
	if _, sent := req.Header["Idempotency-Key"]; sent {
		return errors.New("a header came that is for the client alone")
	}
	if _, err := io.Copy(io.Discard, req.Body); err != nil {
		return err
	}
	_, err = io.WriteString(out, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
	return err
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "localhost:11434", "ftp://x/v1", "http://", "http://me:secret@desk.test/v1", "http://de\nsk"} {
		_, err := upstream.New(upstream.Options{BaseURL: address})
		if e := plugin.AsError(err); err == nil || e.Code != plugin.Usage || e.Hint == "" || strings.Contains(e.Text(), "secret") {
			t.Errorf("New(%q) = %v, want usage with a hint", address, err)
		}
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, content string, mode os.FileMode) upstream.Key {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return upstream.Key{File: path}
	}
	env := func(name string) string {
		return map[string]string{"GOOD": "k-1", "BLANK": "  ", "TWO": "sk-a sk-b", "ODD": "schlüssel"}[name]
	}
	for _, tt := range []struct {
		rule string
		key  upstream.Key
		want string
		err  string // a part of it
	}{
		{"none", upstream.Key{}, "", ""},
		{"a variable", upstream.Key{Env: "GOOD"}, "k-1", ""},
		{"a variable that is not set", upstream.Key{Env: "NONE"}, "", "there is no key: the variable NONE is not set; export NONE=<key>"},
		{"a variable that is blank", upstream.Key{Env: "BLANK"}, "", "the variable BLANK is not set"},
		{"two words", upstream.Key{Env: "TWO"}, "", "what the variable TWO holds is no key"},
		{"letters that no header may have", upstream.Key{Env: "ODD"}, "", "what the variable ODD holds is no key"},
		{"a file, which counts first", upstream.Key{Env: "GOOD", File: file("good", "k-2\n", 0o600).File}, "k-2", ""},
		{"a file that is not there", upstream.Key{File: filepath.Join(dir, "none")}, "", "none is not there; write the key into it"},
		{"a file that is empty", file("empty", "\n", 0o600), "", "empty is empty"},
		{"a file of two lines", file("lines", "k-3\nk-4\n", 0o400), "", "lines holds is no key"},
		{"a folder", upstream.Key{File: dir}, "", "it is not a file"},
		{"a file that is no key", file("large", strings.Repeat("x", 65<<10), 0o600), "", "more than any key"},
	} {
		got, err := tt.key.Read(env)
		if tt.err == "" && (err != nil || got != tt.want) || tt.err != "" && (err == nil || plugin.AsError(err).Code != plugin.Denied || !strings.Contains(plugin.AsError(err).Text(), tt.err)) {
			t.Errorf("%s: Read = %q, %v, want %q, %q", tt.rule, got, err, tt.want, tt.err)
		}
		if err != nil && (strings.Contains(err.Error(), "k-3") || strings.Contains(err.Error(), "sk-a") || strings.Contains(err.Error(), "schl")) {
			t.Errorf("%s: %v quotes what it read", tt.rule, err)
		}
	}
	if runtime.GOOS == "windows" {
		return // modes say nothing there
	}
	open := file("open", "k-5", 0o644)
	if _, err := open.Read(env); err == nil || plugin.AsError(err).Text() != "the key file "+open.File+" may be used by others (mode 0644); chmod 600 "+open.File {
		t.Errorf("a file that others may read: %v", err)
	}
}
