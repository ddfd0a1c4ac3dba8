package wire

import (
	"context"
	"log/slog"
	"sync"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"sess/plugin"
	pb "sess/plugin/wire/pluginv1"
)

// server is the plugin's side of PluginService.
type server struct {
	pb.UnimplementedPluginServiceServer
	handler
	plugin plugin.Plugin
	broker *goplugin.GRPCBroker
}

func newServer(p plugin.Plugin, broker *goplugin.GRPCBroker, log *slog.Logger) *server {
	return &server{handler: handler{log}, plugin: p, broker: broker}
}

func (s *server) Describe(ctx context.Context, _ *pb.DescribeRequest) (*pb.DescribeResponse, error) {
	resp := &pb.DescribeResponse{}
	e := s.run(ctx, "Describe", func() error {
		d, err := s.plugin.Describe(ctx)
		if err != nil {
			return err
		}
		resp, err = toDescription(d)
		return err
	})
	if e != nil {
		return &pb.DescribeResponse{Error: e}, nil
	}
	return resp, nil
}

func (s *server) Configure(ctx context.Context, req *pb.ConfigureRequest) (*pb.ConfigureResponse, error) {
	resp := &pb.ConfigureResponse{}
	resp.Error = s.run(ctx, "Configure", func() error {
		runtime, err := s.runtime(req.GetRuntimeId())
		if err != nil {
			return err
		}
		if err := s.plugin.Configure(ctx, fromConfiguration(req), runtime); err != nil {
			return err
		}
		d, err := s.plugin.Describe(ctx)
		resp.Build = d.Build
		return err
	})
	return resp, nil
}

// runtime connects to the host's RuntimeService. The connection lives as long
// as the process.
func (s *server) runtime(id uint32) (plugin.Runtime, error) {
	if id == 0 {
		return nil, plugin.Errorf(plugin.Internal, "the host offered no runtime")
	}
	conn, err := s.broker.DialWithOptions(id, dialOptions()...)
	if err != nil {
		return nil, plugin.Errorf(plugin.Unavailable, "connect to the host: %w", err)
	}
	return &runtimeClient{pb.NewRuntimeServiceClient(conn), "the host"}, nil
}

func (s *server) Dispatch(stream grpc.BidiStreamingServer[pb.DispatchRequest, pb.DispatchResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if first.GetCall() == nil {
		return status.Error(codes.InvalidArgument, "the first message must be the call")
	}
	call := fromCall(first.GetCall())
	ctx := stream.Context()
	if plugin.RequestID(ctx) == "" {
		ctx = plugin.WithRequestID(ctx, call.RequestID)
	}

	var mu sync.Mutex // guards stream.Send until answered
	answered := false
	tell := func(m *pb.DispatchResponse) error {
		mu.Lock()
		defer mu.Unlock()
		if answered {
			return errAnswered
		}
		return stream.Send(m)
	}
	if first.GetCall().GetHasInput() {
		call.Input = &wireInput{tell: tell, stream: stream}
	}
	if first.GetCall().GetHasOutput() {
		call.Output = &wireOutput{tell: tell}
	}
	progress := func(p plugin.Progress) {
		// A connection that is gone ends ctx, which the call watches.
		_ = tell(&pb.DispatchResponse{Part: &pb.DispatchResponse_Progress{Progress: toProgress(p)}})
	}
	var encoded []byte
	failure := s.run(ctx, "Dispatch", func() error {
		result, err := s.plugin.Dispatch(ctx, call, progress)
		if err != nil {
			return err
		}
		encoded, err = proto.Marshal(toResult(result))
		return err
	})
	mu.Lock()
	answered = true
	mu.Unlock()
	if failure != nil {
		return stream.Send(dispatchError(failure))
	}
	err = sendPieces(encoded, func(piece []byte) error {
		return stream.Send(&pb.DispatchResponse{Part: &pb.DispatchResponse_Piece{Piece: piece}})
	})
	if err != nil {
		return err
	}
	return stream.Send(&pb.DispatchResponse{Part: &pb.DispatchResponse_End{End: &pb.End{}}})
}

func dispatchError(e *pb.Error) *pb.DispatchResponse {
	return &pb.DispatchResponse{Part: &pb.DispatchResponse_Error{Error: e}}
}

func (s *server) Notify(ctx context.Context, req *pb.NotifyRequest) (*pb.NotifyResponse, error) {
	var notices []string
	e := s.run(ctx, "Notify", func() (err error) {
		notices, err = s.plugin.Notify(ctx, fromEvent(req))
		return err
	})
	return &pb.NotifyResponse{Notices: validAll(notices), Error: e}, nil
}

func (s *server) Complete(ctx context.Context, req *pb.CompleteRequest) (*pb.CompleteResponse, error) {
	var candidates []plugin.Candidate
	e := s.run(ctx, "Complete", func() (err error) {
		candidates, err = s.plugin.Complete(ctx, fromComplete(req))
		return err
	})
	return &pb.CompleteResponse{Candidates: toCandidates(candidates), Error: e}, nil
}

func (s *server) Status(ctx context.Context, _ *pb.StatusRequest) (*pb.StatusResponse, error) {
	var services []plugin.ServiceStatus
	e := s.run(ctx, "Status", func() (err error) {
		services, err = s.plugin.Status(ctx)
		return err
	})
	return &pb.StatusResponse{Services: toServices(services), Error: e}, nil
}

func (s *server) Drain(ctx context.Context, _ *pb.DrainRequest) (*pb.DrainResponse, error) {
	return &pb.DrainResponse{Error: s.run(ctx, "Drain", func() error { return s.plugin.Drain(ctx) })}, nil
}
