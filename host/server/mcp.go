package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sess/plugin"
	"sess/surfaces"
)

// timedCall makes a call of a verb; a server counts it.
type timedCall func(command, verb string, call func() (plugin.Result, error)) (plugin.Result, error)

// speaker offers the tools of a host over the Model Context Protocol, to any
// number of clients. The library has the protocol; what a tool takes and gives is
// that of package surfaces.
type speaker struct {
	host ToolHost
	log  *slog.Logger
	// given holds for the calls that do not say otherwise: agent, project, session
	// and working directory.
	given plugin.Call
	timed timedCall
	sdk   *mcp.Server

	looking  sync.Mutex // held while the tools are brought up to date
	mu       sync.Mutex // guards what follows
	commands []Command  // as of the last look
	tools    *surfaces.Tools
	offered  map[string]string // the tools that clients are told of, each as JSON
}

func newSpeaker(host ToolHost, version string, log *slog.Logger, given plugin.Call, timed timedCall) *speaker {
	s := &speaker{host: host, log: log, given: given, timed: timed, tools: toolsOf(nil), offered: map[string]string{}}
	s.sdk = mcp.NewServer(&mcp.Implementation{Name: "sess", Version: cmp.Or(version, "unknown")}, &mcp.ServerOptions{
		// Also where there is no tool now.
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{ListChanged: true}},
	})
	s.sdk.AddReceivingMiddleware(s.receive)
	return s
}

// receive looks at the tools before a client is told of them or calls one, so that
// nothing depends on how fast a change is told.
func (s *speaker) receive(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (result mcp.Result, err error) {
		switch method {
		case "tools/list":
			s.look(ctx)
		case "tools/call":
			if params, ok := req.GetParams().(*mcp.CallToolParamsRaw); ok {
				if _, err := s.look(ctx).Find(params.Name); err != nil {
					return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: plugin.AsError(err).Text()}
				}
			}
		}
		return next(ctx, method, req)
	}
}

// look brings the tools up to date, and has clients told where that changes them.
func (s *speaker) look(ctx context.Context) *surfaces.Tools {
	s.looking.Lock() // what was asked for first must not be taken for the newer
	defer s.looking.Unlock()
	now := s.host.Commands(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.EqualFunc(s.commands, now, sameCommand) {
		return s.tools
	}
	s.commands, s.tools = now, toolsOf(now)
	offered := map[string]string{}
	for _, spec := range s.tools.Offered {
		tool := mcpTool(surfaces.MCPToolOf(spec))
		encoded, err := json.Marshal(tool)
		if err != nil {
			s.log.WarnContext(ctx, "tool left out", "tool", tool.Name, "err", err)
			continue
		}
		if offered[tool.Name] = string(encoded); s.offered[tool.Name] != string(encoded) {
			s.sdk.AddTool(tool, s.call)
		}
	}
	for name := range s.offered {
		if _, still := offered[name]; !still {
			s.sdk.RemoveTools(name)
		}
	}
	s.offered = offered
	return s.tools
}

func mcpTool(t surfaces.MCPTool) *mcp.Tool {
	return &mcp.Tool{
		Name: t.Name, Description: t.Description, InputSchema: t.InputSchema,
		Annotations: &mcp.ToolAnnotations{
			Title: t.Title, ReadOnlyHint: t.ReadOnly, DestructiveHint: new(t.Destructive),
			IdempotentHint: t.ReadOnly, // of what is not read only, an action may be either
		},
	}
}

// follow looks at the tools whenever a plugin comes, goes or changes, until ctx
// ends.
func (s *speaker) follow(ctx context.Context) {
	events := s.host.Subscribe(EventFilter{Kinds: []string{"plugins"}})
	defer events.Close()
	for {
		if _, err := events.Next(ctx); err != nil {
			return
		}
		s.look(ctx)
	}
}

// close ends the sessions of all clients.
func (s *speaker) close() {
	for session := range s.sdk.Sessions() {
		_ = session.Close() // its client is gone, or learns it
	}
}

// call answers a call of a tool. What goes wrong is a result, too.
func (s *speaker) call(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	ctx, end := untilCut(ctx)
	defer end()
	id := ""
	if req.Extra != nil {
		id = req.Extra.Header.Get("X-Request-Id")
	}
	if !plugin.GoodRequestID(id) {
		id = uuid.NewString()
	}
	ctx = plugin.WithRequestID(ctx, id)
	result, asked, err := s.answer(ctx, req)
	if asked != nil {
		return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{allowID: asked}}, nil
	}
	if e := plugin.AsError(err); e != nil && e.Code == plugin.Internal && e.Details["incident"] == "" {
		err = incident(ctx, s.log, e, nil)
	}
	out := surfaces.RenderMCP(result, err)
	answer := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: out.Text}}, IsError: out.IsError}
	if out.Structured != nil {
		answer.StructuredContent = out.Structured
	}
	return answer, nil
}

// answer makes the call that a client asks for, unless a person has to be asked
// first. A panic is a bug: it ends the call and nothing else.
func (s *speaker) answer(ctx context.Context, req *mcp.CallToolRequest) (result plugin.Result, asked *mcp.ElicitParams, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = incident(ctx, s.log, plugin.Errorf(plugin.Internal, "panic: %v", v), debug.Stack())
		}
	}()
	s.mu.Lock()
	tools := s.tools
	s.mu.Unlock()
	spec, err := tools.Find(req.Params.Name)
	if err != nil {
		return plugin.Result{}, nil, err
	}
	lowered, err := surfaces.LowerMCP(spec, req.Params.Arguments)
	if err != nil {
		return plugin.Result{}, nil, err
	}
	if s.host.Confirms(spec, lowered.Verb) {
		if asked, err = allowed(req, surfaces.Typed(spec, lowered.Argv)); asked != nil || err != nil {
			return plugin.Result{}, asked, err
		}
	}
	call := callOf(ctx, plugin.CallerMCP, lowered)
	call.Agent, call.Project, call.Session, call.Cwd = cmp.Or(call.Agent, s.given.Agent), cmp.Or(call.Project, s.given.Project), cmp.Or(call.Session, s.given.Session), s.given.Cwd
	steps := tellSteps(ctx, req)
	defer steps.end()
	command := plugin.DispatcherFunc(func(ctx context.Context, call plugin.Call, _ plugin.ProgressFunc) (plugin.Result, error) {
		call.Argv = append([]string{spec.Command}, call.Argv...)
		result, err := s.host.Dispatch(ctx, call, steps.report)
		return result, CutShort(ctx, spec.Command, err)
	})
	result, err = s.timed(spec.Command, lowered.Verb.Name, func() (plugin.Result, error) {
		return surfaces.ToolCall(ctx, command, lowered.Verb, call)
	})
	return result, nil, err
}

// allowID names the question whether a call may run.
const allowID = "allow"

// allowed asks the client's person about a call, as chat.confirm wants it: the
// first return value is the question where there is no answer yet. Where the
// client cannot ask, or the person does not allow it, the error says so.
func allowed(req *mcp.CallToolRequest, what string) (*mcp.ElicitParams, error) {
	// Whoever allows it has to see all of it, and nothing that looks like another question.
	question := "Allow " + strings.ReplaceAll(surfaces.Printable(what), "\n", `\n`) + "?"
	if short := []rune(what); len(short) > 200 {
		what = string(short[:200]) + "…"
	}
	if answer, ok := req.Params.InputResponses[allowID].(*mcp.ElicitResult); ok {
		if answer.Action == "accept" {
			return nil, nil
		}
		return nil, plugin.Errorf(plugin.Denied, "%s: a person did not allow it", what).WithHint("ask what to do instead")
	}
	if c := req.ClientCapabilities(); c == nil || c.Elicitation == nil || c.Elicitation.Form == nil && c.Elicitation.URL != nil {
		return nil, plugin.Errorf(plugin.Denied, "%s: only a person may allow it, and this client cannot ask one", what).
			WithHint("ask for it to be run by hand")
	}
	return &mcp.ElicitParams{
		Mode: "form", Message: question, RequestedSchema: json.RawMessage(`{"type":"object","properties":{}}`),
	}, nil
}

// steps tell a client of the progress of a call, as fast as it takes that: what
// comes meanwhile is left out.
type steps struct {
	queue chan plugin.Progress // nil: the client wants none
	done  chan struct{}
}

func tellSteps(ctx context.Context, req *mcp.CallToolRequest) *steps {
	token := req.Params.GetProgressToken()
	if token == nil {
		return &steps{}
	}
	s := &steps{queue: make(chan plugin.Progress, 1), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		told := 0.0
		for p := range s.queue {
			told++ // it has to grow from one to the next, whatever the stages are
			params := &mcp.ProgressNotificationParams{ProgressToken: token, Progress: told, Message: p.String()}
			_ = req.Session.NotifyProgress(ctx, params) // where it does not arrive, the answer will not either
		}
	}()
	return s
}

func (s *steps) report(p plugin.Progress) {
	select {
	case s.queue <- p: // never, where it is nil
	default:
	}
}

// end waits until what was told is sent: after the answer there is no progress.
func (s *steps) end() {
	if s.queue != nil {
		close(s.queue)
		<-s.done
	}
}

// MCPOptions configures [ServeMCP].
type MCPOptions struct {
	// Given holds for calls that do not say otherwise: its agent, project, session
	// and working directory.
	Given plugin.Call
	// Version is what the server tells about itself.
	Version string
	// Logger receives what an operator should know; nil drops it.
	Logger *slog.Logger
}

// ServeMCP offers the tools of a host to the one client at in and out, in the
// protocol's stdio transport: a message in each line. It returns when in ends,
// once what was asked has been answered, and when ctx ends, nil both times.
func ServeMCP(ctx context.Context, host ToolHost, in io.Reader, out io.Writer, o MCPOptions) error {
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := newSpeaker(host, o.Version, log, o.Given, func(_, _ string, call func() (plugin.Result, error)) (plugin.Result, error) { return call() })
	s.look(ctx) // before the client is there, which would be told that they have changed
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	following.Go(func() { s.follow(ctx) })
	err := s.sdk.Run(ctx, &stdioTransport{in: in, out: out})
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
