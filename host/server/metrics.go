package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	runtimemetrics "runtime/metrics"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"sess/plugin"
)

// metrics counts what the server does, for the text format of Prometheus
// (version 0.0.4). The format is a few lines; the libraries for it cost every
// start of the program more than that.
type metrics struct {
	mu       sync.Mutex // guards what follows
	calls    map[verbKey]*callStats
	inFlight map[plugin.Caller]int
	requests map[int]int64 // by status
}

type verbKey struct {
	surface       plugin.Caller
	command, verb string
}

type callStats struct {
	codes   map[plugin.Code]int64 // "ok" for none
	buckets []int64               // one per latencyBuckets, not cumulative
	seconds float64
	count   int64
}

// latencyBuckets are upper bounds in seconds.
func latencyBuckets() []float64 {
	return []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}
}

func newMetrics() *metrics {
	return &metrics{calls: map[verbKey]*callStats{}, inFlight: map[plugin.Caller]int{}, requests: map[int]int64{}}
}

// request counts an answer.
func (m *metrics) request(status int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests[status]++
}

// begin counts a call that comes in over a surface. The caller reports its end
// with the verb that it was for and what it returns. Command and verb are names
// that a Spec or the host has, never what a client made up.
func (m *metrics) begin(surface plugin.Caller) func(command, verb string, err error) {
	started := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inFlight[surface]++
	return func(command, verb string, err error) {
		took := time.Since(started).Seconds()
		code := plugin.Code("ok")
		if err != nil {
			code = plugin.AsError(err).Code
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.inFlight[surface]--
		key := verbKey{surface, command, verb}
		bounds := latencyBuckets()
		s := m.calls[key]
		if s == nil {
			s = &callStats{codes: map[plugin.Code]int64{}, buckets: make([]int64, len(bounds))}
			m.calls[key] = s
		}
		s.codes[code]++
		s.count++
		s.seconds += took
		if i, _ := slices.BinarySearch(bounds, took); i < len(bounds) {
			s.buckets[i]++
		}
	}
}

// timed counts a call and makes it. One that panics counts as internal.
func (m *metrics) timed(surface plugin.Caller, command, verb string, call func() (plugin.Result, error)) (result plugin.Result, err error) {
	done := m.begin(surface)
	err = plugin.Errorf(plugin.Internal, "panic") // unless it returns
	defer func() { done(command, verb, err) }()
	result, err = call()
	return result, err
}

// measured counts the gateway methods that are called.
type measured struct {
	Host
	server *Server
}

// Call is that of the host.
func (m *measured) Call(ctx context.Context, caller plugin.Caller, method string, params json.RawMessage, progress plugin.ProgressFunc) (result json.RawMessage, err error) {
	done := m.server.metrics.begin(caller)
	err = plugin.Errorf(plugin.Internal, "panic") // unless it returns
	defer func() {
		command, verb := m.server.methodNames(ctx, method, params)
		if errors.Is(err, ErrUnknownMethod) {
			command, verb = "unknown", "unknown"
		}
		done(command, verb, err)
	}()
	result, err = m.Host.Call(ctx, caller, method, params, progress)
	return result, err
}

// methodNames are the command and verb that a method stands for. For
// "<command>.invoke" the params name the verb; where they name none it is
// "invoke".
func (s *Server) methodNames(ctx context.Context, method string, params json.RawMessage) (command, verb string) {
	command, verb, _ = strings.Cut(method, ".")
	if verb != "invoke" {
		return command, strings.ReplaceAll(verb, ".", " ")
	}
	var named struct {
		Action string   `json:"action"`
		Argv   []string `json:"argv"`
	}
	if json.Unmarshal(params, &named) != nil {
		return command, verb
	}
	words := named.Argv
	if len(words) == 0 {
		words = strings.Fields(strings.ToLower(named.Action))
	}
	for _, c := range s.mounted(ctx).commands {
		if v, _ := c.Spec.Find(words); v != nil && c.Spec.Command == command {
			return command, v.Name
		}
	}
	return command, verb
}

// exposition writes metrics in the text format.
type exposition struct{ bytes.Buffer }

func (e *exposition) family(name, kind, help string) {
	fmt.Fprintf(e, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// sample writes one line; labels are names and values in turn.
func (e *exposition) sample(name string, value float64, labels ...string) {
	e.WriteString(name)
	for i := 0; i < len(labels); i += 2 {
		open := ","
		if i == 0 {
			open = "{"
		}
		fmt.Fprintf(e, `%s%s="%s"`, open, labels[i], strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(labels[i+1]))
	}
	if len(labels) > 0 {
		e.WriteByte('}')
	}
	fmt.Fprintf(e, " %v\n", value)
}

func (m *metrics) write(e *exposition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	keys := make([]verbKey, 0, len(m.calls))
	for k := range m.calls {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b verbKey) int {
		return cmp.Or(cmp.Compare(a.surface, b.surface), cmp.Compare(a.command, b.command), cmp.Compare(a.verb, b.verb))
	})
	e.family("sess_calls_total", "counter", "Calls of verbs by the code of their answer.")
	for _, k := range keys {
		for _, code := range sortedKeys(m.calls[k].codes) {
			e.sample("sess_calls_total", float64(m.calls[k].codes[code]), "surface", string(k.surface), "command", k.command, "verb", k.verb, "code", string(code))
		}
	}
	const duration = "sess_call_duration_seconds"
	e.family(duration, "histogram", "How long calls of verbs took.")
	for _, k := range keys {
		s, labels := m.calls[k], []string{"surface", string(k.surface), "command", k.command, "verb", k.verb}
		sum := int64(0)
		for i, bound := range latencyBuckets() {
			sum += s.buckets[i]
			e.sample(duration+"_bucket", float64(sum), append(slices.Clone(labels), "le", fmt.Sprint(bound))...)
		}
		e.sample(duration+"_bucket", float64(s.count), append(slices.Clone(labels), "le", "+Inf")...)
		e.sample(duration+"_sum", s.seconds, labels...)
		e.sample(duration+"_count", float64(s.count), labels...)
	}
	e.family("sess_calls_in_flight", "gauge", "Calls of verbs that run now.")
	for _, surface := range sortedKeys(m.inFlight) {
		e.sample("sess_calls_in_flight", float64(m.inFlight[surface]), "surface", string(surface))
	}
	e.family("sess_http_requests_total", "counter", "Answers over HTTP by status.")
	for _, status := range sortedKeys(m.requests) {
		e.sample("sess_http_requests_total", float64(m.requests[status]), "status", fmt.Sprint(status))
	}
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// pluginState is what the host's list of plugins says about one.
type pluginState struct {
	ID       string `json:"id"`
	State    string `json:"state"`
	Restarts int64  `json:"restarts"`
}

// plugins asks the host for its plugins, in the way everybody does.
func (s *Server) plugins(ctx context.Context) ([]pluginState, error) {
	result, err := s.host.Dispatch(ctx, plugin.Call{Argv: []string{"plugins", "list"}, Caller: plugin.CallerHost}, nil)
	if err != nil {
		return nil, err
	}
	var states []pluginState
	return states, json.Unmarshal(result.Data, &states)
}

func (s *Server) serveMetrics(c echo.Context) error {
	var e exposition
	e.family("sess_build_info", "gauge", "The version of the program and of Go.")
	e.sample("sess_build_info", 1, "version", s.opts.Version, "go_version", runtime.Version())
	s.metrics.write(&e)
	states, err := s.plugins(c.Request().Context())
	if err != nil {
		return err
	}
	e.family("sess_plugin_state", "gauge", "1 for the state that a plugin is in.")
	for _, p := range states {
		e.sample("sess_plugin_state", 1, "plugin", p.ID, "state", p.State)
	}
	e.family("sess_plugin_restarts_total", "counter", "How often a plugin's process was started again.")
	for _, p := range states {
		e.sample("sess_plugin_restarts_total", float64(p.Restarts), "plugin", p.ID)
	}
	s.process(&e)
	return c.Blob(http.StatusOK, "text/plain; version=0.0.4; charset=utf-8", e.Bytes())
}

// process tells about the process itself.
func (s *Server) process(e *exposition) {
	samples := []runtimemetrics.Sample{
		{Name: "/sched/goroutines:goroutines"}, {Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
	}
	runtimemetrics.Read(samples)
	for i, m := range []struct{ name, help string }{
		{"go_goroutines", "Goroutines that there are now."},
		{"go_memory_total_bytes", "Memory that the runtime holds."},
		{"go_memory_heap_objects_bytes", "Memory of objects on the heap."},
	} {
		if samples[i].Value.Kind() == runtimemetrics.KindUint64 {
			e.family(m.name, "gauge", m.help)
			e.sample(m.name, float64(samples[i].Value.Uint64()))
		}
	}
	if rss, fds, ok := processUsage(); ok {
		e.family("process_resident_memory_bytes", "gauge", "Memory of the process that is in RAM.")
		e.sample("process_resident_memory_bytes", float64(rss))
		e.family("process_open_fds", "gauge", "Open file descriptors.")
		e.sample("process_open_fds", float64(fds))
	}
	if !s.opts.StartedAt.IsZero() {
		e.family("process_start_time_seconds", "gauge", "When the gateway was started, in seconds since 1970.")
		e.sample("process_start_time_seconds", float64(s.opts.StartedAt.UnixMilli())/1000)
	}
}
