package wire

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"sess/plugin"
	pb "sess/plugin/wire/pluginv1"
)

// Client is a plugin in another process. Get one from [Dispense]. It is safe
// for concurrent use. Errors are [*plugin.Error] values; see the package's
// comment for how a dead process shows.
type Client struct {
	peer     peer
	api      pb.PluginServiceClient
	provider pb.ProviderServiceClient
	broker   *goplugin.GRPCBroker
	tls      func() *tls.Config
	log      *slog.Logger

	mu      sync.Mutex   // guards what follows
	runtime *grpc.Server // nil until Configure
	build   string       // "" until Configure
	serving sync.WaitGroup
}

var _ plugin.Plugin = (*Client)(nil)

// Close stops serving the Runtime and waits until no call to it runs. End the
// process first: a living plugin would try to reconnect. Close may be called
// more than once.
func (c *Client) Close() {
	c.mu.Lock()
	runtime := c.runtime
	c.mu.Unlock()
	if runtime != nil {
		runtime.Stop()
	}
	c.serving.Wait()
}

// Describe asks the plugin what it is.
func (c *Client) Describe(ctx context.Context) (plugin.Description, error) {
	ctx, cancel := withDeadline(ctx, shortTimeout)
	defer cancel()
	resp, err := c.api.Describe(ctx, &pb.DescribeRequest{})
	if err := outcome(ctx, c.peer, "Describe", resp, err); err != nil {
		return plugin.Description{}, err
	}
	return fromDescription(resp)
}

// Configure configures the plugin and serves runtime to it until [Client.Close].
// It may be called once.
func (c *Client) Configure(ctx context.Context, config plugin.Configuration, runtime plugin.Runtime) error {
	ctx, cancel := withDeadline(ctx, longTimeout)
	defer cancel()
	id, err := c.serve(runtime)
	if err != nil {
		return err
	}
	resp, err := c.api.Configure(ctx, toConfiguration(config, id))
	if err := outcome(ctx, c.peer, "Configure", resp, err); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.build = resp.GetBuild()
	return nil
}

// Build is the build that the plugin said it is when it was configured; "" before
// that, and where it did not say.
func (c *Client) Build() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.build
}

// serve offers runtime on a new stream of the broker and returns its id. The
// listener stands before the plugin hears of it.
func (c *Client) serve(runtime plugin.Runtime) (uint32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if runtime == nil {
		return 0, plugin.Errorf(plugin.Internal, "%s: there is no runtime to serve", c.peer)
	}
	if c.runtime != nil {
		return 0, plugin.Errorf(plugin.Internal, "%s is configured already", c.peer)
	}
	id := c.broker.NextId()
	listener, err := c.broker.Accept(id)
	if err != nil {
		return 0, &plugin.Error{
			Code:    plugin.Unavailable,
			Message: fmt.Sprintf("%s: offer the host's services: %v", c.peer, err),
			Err:     err,
		}
	}
	opts := append(serverOptions(func(string) {}), grpc.WaitForHandlers(true))
	if config := c.tls(); config != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(config)))
	}
	c.runtime = grpc.NewServer(opts...)
	pb.RegisterRuntimeServiceServer(c.runtime, &runtimeServer{handler: handler{c.log}, runtime: runtime})
	server := c.runtime
	c.serving.Go(func() {
		if err := server.Serve(listener); err != nil && !errors.Is(err, net.ErrClosed) {
			c.log.Debug("runtime service ended", "err", err)
		}
	})
	return id, nil
}

// Dispatch sends one call. It has no deadline but that of ctx.
func (c *Client) Dispatch(ctx context.Context, call plugin.Call, progress plugin.ProgressFunc) (plugin.Result, error) {
	const op = "Dispatch"
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if plugin.RequestID(ctx) == "" {
		ctx = plugin.WithRequestID(ctx, call.RequestID)
	}
	stream, err := c.api.Dispatch(ctx)
	if err != nil {
		return plugin.Result{}, c.peer.fail(ctx, op, err)
	}
	err = stream.Send(&pb.DispatchRequest{Part: &pb.DispatchRequest_Call{Call: toCall(call)}})
	input := &wanted{from: call.Input, stream: stream}
	if err == nil && call.Input == nil {
		err = input.end()
	}
	if err != nil && !errors.Is(err, io.EOF) { // after EOF the answer tells why
		return plugin.Result{}, c.peer.fail(ctx, op, err)
	}
	var encoded assembly
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return plugin.Result{}, c.peer.protocol(op, "the answer has no end")
		}
		if err != nil {
			return plugin.Result{}, c.peer.fail(ctx, op, err)
		}
		switch part := resp.GetPart().(type) {
		case *pb.DispatchResponse_Progress:
			progress.Report(fromProgress(part.Progress))
		case *pb.DispatchResponse_Want:
			if err := input.next(); err != nil {
				return plugin.Result{}, err
			}
		case *pb.DispatchResponse_Output:
			if err := passOutput(call.Output, part.Output); err != nil {
				return plugin.Result{}, plugin.AsError(err)
			}
		case *pb.DispatchResponse_Piece:
			if err := encoded.add(part.Piece); err != nil {
				return plugin.Result{}, err
			}
		case *pb.DispatchResponse_Error:
			return plugin.Result{}, c.peer.answer(ctx, op, part.Error)
		case *pb.DispatchResponse_End:
			var result pb.Result
			if err := proto.Unmarshal(encoded.data, &result); err != nil {
				return plugin.Result{}, c.peer.protocol(op, "the result does not parse: "+err.Error())
			}
			if data := result.GetData(); len(data) > 0 && !json.Valid(data) {
				return plugin.Result{}, c.peer.protocol(op, "the data of the result is no JSON")
			}
			return fromResult(&result), nil
		}
	}
}

// Notify tells the plugin of an event. A plugin that takes no events says
// nothing.
func (c *Client) Notify(ctx context.Context, event plugin.Event) ([]string, error) {
	ctx, cancel := withDeadline(ctx, longTimeout)
	defer cancel()
	resp, err := c.api.Notify(ctx, toEvent(event))
	return resp.GetNotices(), optional(outcome(ctx, c.peer, "Notify", resp, err))
}

// Complete asks for words for the shell.
func (c *Client) Complete(ctx context.Context, req plugin.CompleteRequest) ([]plugin.Candidate, error) {
	ctx, cancel := withDeadline(ctx, shortTimeout)
	defer cancel()
	resp, err := c.api.Complete(ctx, toComplete(req))
	return fromCandidates(resp.GetCandidates()), optional(outcome(ctx, c.peer, "Complete", resp, err))
}

// Status asks for the state of the plugin's background services.
func (c *Client) Status(ctx context.Context) ([]plugin.ServiceStatus, error) {
	ctx, cancel := withDeadline(ctx, shortTimeout)
	defer cancel()
	resp, err := c.api.Status(ctx, &pb.StatusRequest{})
	return fromServices(resp.GetServices()), optional(outcome(ctx, c.peer, "Status", resp, err))
}

// Drain asks the plugin to finish its background work.
func (c *Client) Drain(ctx context.Context) error {
	ctx, cancel := withDeadline(ctx, shortTimeout)
	defer cancel()
	resp, err := c.api.Drain(ctx, &pb.DrainRequest{})
	return optional(outcome(ctx, c.peer, "Drain", resp, err))
}

// outcome is the error of a unary exchange: the connection's, or the answer's.
func outcome(ctx context.Context, p peer, op string, resp interface{ GetError() *pb.Error }, err error) error {
	if err != nil {
		return p.fail(ctx, op, err)
	}
	return p.answer(ctx, op, resp.GetError())
}

// optional ignores that the other side does not implement a method.
func optional(err error) error {
	if e, ok := errors.AsType[*plugin.Error](err); ok && status.Code(e.Err) == codes.Unimplemented {
		return nil
	}
	return err
}
