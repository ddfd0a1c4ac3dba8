package wire

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sess/plugin"
	pb "sess/plugin/wire/pluginv1"
	"sess/store/transcript"
)

// runtimeServer is the host's side of RuntimeService, for one plugin process.
type runtimeServer struct {
	pb.UnimplementedRuntimeServiceServer
	handler
	runtime plugin.Runtime
}

func (s *runtimeServer) Session(req *pb.SessionRequest, stream grpc.ServerStreamingServer[pb.SessionResponse]) error {
	var (
		head     *pb.SessionHead
		document []byte
	)
	ctx := stream.Context()
	e := s.run(ctx, "Session", func() error {
		session, err := s.runtime.Session(ctx, fromRef(req.GetRef()))
		if err != nil {
			return err
		}
		head, document = toSession(session)
		return nil
	})
	if e != nil {
		return stream.Send(&pb.SessionResponse{Part: &pb.SessionResponse_Error{Error: e}})
	}
	if err := stream.Send(&pb.SessionResponse{Part: &pb.SessionResponse_Head{Head: head}}); err != nil {
		return err
	}
	return sendPieces(document, func(piece []byte) error {
		return stream.Send(&pb.SessionResponse{Part: &pb.SessionResponse_Piece{Piece: piece}})
	})
}

func (s *runtimeServer) ReadChunks(req *pb.ReadChunksRequest, stream grpc.ServerStreamingServer[pb.ReadChunksResponse]) error {
	var broken error
	ctx := stream.Context()
	e := s.run(ctx, "ReadChunks", func() error {
		for chunk, err := range s.runtime.ReadChunks(ctx, fromIDs(req.GetIds())) {
			if err != nil {
				return err
			}
			broken = stream.Send(&pb.ReadChunksResponse{Part: &pb.ReadChunksResponse_Chunk{Chunk: toChunk(chunk)}})
			if broken != nil {
				return nil
			}
		}
		return nil
	})
	if broken != nil {
		return broken
	}
	if e != nil {
		return stream.Send(&pb.ReadChunksResponse{Part: &pb.ReadChunksResponse_Error{Error: e}})
	}
	return nil
}

func (s *runtimeServer) Stage(stream grpc.ClientStreamingServer[pb.StageRequest, pb.StageResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if first.GetHead() == nil {
		return status.Error(codes.InvalidArgument, "the first message must be the head")
	}
	var document assembly
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := document.add(req.GetPiece()); err != nil {
			return stream.SendAndClose(&pb.StageResponse{Error: toError(err)})
		}
	}
	resp := &pb.StageResponse{}
	ctx := stream.Context()
	e := s.run(ctx, "Stage", func() error {
		req, err := fromStageRequest(first.GetHead(), document.data)
		if err != nil {
			return err
		}
		stage, err := s.runtime.Stage(ctx, req)
		if err != nil {
			return err
		}
		resp = toStage(stage)
		return nil
	})
	resp.Error = e
	return stream.SendAndClose(resp)
}

func (s *runtimeServer) WriteChunks(stream grpc.ClientStreamingServer[pb.WriteChunksRequest, pb.WriteChunksResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	var broken error
	chunks := func(yield func(plugin.Chunk, error) bool) {
		for {
			req, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				broken = err
				yield(plugin.Chunk{}, plugin.Errorf(plugin.Unavailable, "the plugin broke off sending chunks: %w", err))
				return
			}
			if !yield(fromChunk(req.GetChunk()), nil) {
				return
			}
		}
	}
	var missing []transcript.ID
	ctx := stream.Context()
	e := s.run(ctx, "WriteChunks", func() (err error) {
		missing, err = s.runtime.WriteChunks(ctx, first.GetStage(), chunks)
		return err
	})
	if broken != nil {
		return broken
	}
	return stream.SendAndClose(&pb.WriteChunksResponse{Missing: toIDs(missing), Error: e})
}

func (s *runtimeServer) Commit(ctx context.Context, req *pb.CommitRequest) (*pb.CommitResponse, error) {
	resp := &pb.CommitResponse{}
	resp.Error = s.run(ctx, "Commit", func() (err error) {
		resp.Revision, err = s.runtime.Commit(ctx, fromCommit(req))
		return err
	})
	return resp, nil
}

func (s *runtimeServer) Unstage(ctx context.Context, req *pb.UnstageRequest) (*pb.UnstageResponse, error) {
	return &pb.UnstageResponse{Error: s.run(ctx, "Unstage", func() error {
		return s.runtime.Unstage(ctx, req.GetStage())
	})}, nil
}

func (s *runtimeServer) OpState(ctx context.Context, req *pb.OpStateRequest) (*pb.OpStateResponse, error) {
	resp := &pb.OpStateResponse{}
	resp.Error = s.run(ctx, "OpState", func() error {
		state, err := s.runtime.OpState(ctx, fromRef(req.GetRef()), req.GetOp())
		resp.State = valid(string(state))
		return err
	})
	return resp, nil
}

func (s *runtimeServer) NewSession(ctx context.Context, req *pb.NewSessionRequest) (*pb.NewSessionResponse, error) {
	resp := &pb.NewSessionResponse{}
	resp.Error = s.run(ctx, "NewSession", func() error {
		made, err := s.runtime.NewSession(ctx, fromNewSession(req))
		resp.Ref, resp.File, resp.Resume = toRef(made.Ref), valid(made.File), validAll(made.Resume)
		return err
	})
	return resp, nil
}

func (s *runtimeServer) Select(ctx context.Context, req *pb.SelectRequest) (*pb.SelectResponse, error) {
	return &pb.SelectResponse{Error: s.run(ctx, "Select", func() error {
		return s.runtime.Select(ctx, fromRef(req.GetRef()), req.GetSnapshot())
	})}, nil
}

func (s *runtimeServer) Call(stream grpc.BidiStreamingServer[pb.CallRequest, pb.CallResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if first.GetHead() == nil {
		return status.Error(codes.InvalidArgument, "the first message must be the head")
	}
	var params assembly
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := params.add(req.GetPiece()); err != nil {
			return stream.Send(&pb.CallResponse{Part: &pb.CallResponse_Error{Error: toError(err)}})
		}
	}
	var result json.RawMessage
	ctx := stream.Context()
	e := s.run(ctx, "Call", func() (err error) {
		result, err = s.runtime.Call(ctx, first.GetHead().GetMethod(), raw(params.data))
		return err
	})
	if e != nil {
		return stream.Send(&pb.CallResponse{Part: &pb.CallResponse_Error{Error: e}})
	}
	return sendPieces(result, func(piece []byte) error {
		return stream.Send(&pb.CallResponse{Part: &pb.CallResponse_Piece{Piece: piece}})
	})
}
