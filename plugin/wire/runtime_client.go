package wire

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"sess/plugin"
	pb "sess/plugin/wire/pluginv1"
	"sess/store/transcript"
)

// runtimeClient is the host's services as a plugin sees them.
type runtimeClient struct {
	api  pb.RuntimeServiceClient
	peer peer
}

var _ plugin.Runtime = (*runtimeClient)(nil)

func (c *runtimeClient) Session(ctx context.Context, ref plugin.SessionRef) (*plugin.Session, error) {
	const op = "Session"
	ctx, cancel := withDeadline(ctx, streamTimeout)
	defer cancel()
	stream, err := c.api.Session(ctx, &pb.SessionRequest{Ref: toRef(ref)})
	if err != nil {
		return nil, c.peer.fail(ctx, op, err)
	}
	var (
		head     *pb.SessionHead
		document assembly
	)
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, c.peer.fail(ctx, op, err)
		}
		switch part := resp.GetPart().(type) {
		case *pb.SessionResponse_Head:
			head = part.Head
		case *pb.SessionResponse_Piece:
			if err := document.add(part.Piece); err != nil {
				return nil, err
			}
		case *pb.SessionResponse_Error:
			return nil, c.peer.answer(ctx, op, part.Error)
		}
	}
	if head == nil {
		return nil, c.peer.protocol(op, "the answer has no head")
	}
	session, err := fromSession(head, document.data)
	if err != nil {
		return nil, plugin.AsError(err)
	}
	return session, nil
}

func (c *runtimeClient) ReadChunks(ctx context.Context, ids []transcript.ID) plugin.Chunks {
	const op = "ReadChunks"
	return func(yield func(plugin.Chunk, error) bool) {
		ctx, cancel := withDeadline(ctx, streamTimeout)
		defer cancel()
		stream, err := c.api.ReadChunks(ctx, &pb.ReadChunksRequest{Ids: toIDs(ids)})
		for err == nil {
			var resp *pb.ReadChunksResponse
			if resp, err = stream.Recv(); err != nil {
				break
			}
			switch part := resp.GetPart().(type) {
			case *pb.ReadChunksResponse_Chunk:
				if !yield(fromChunk(part.Chunk), nil) {
					return
				}
			case *pb.ReadChunksResponse_Error:
				yield(plugin.Chunk{}, c.peer.answer(ctx, op, part.Error))
				return
			}
		}
		if !errors.Is(err, io.EOF) {
			yield(plugin.Chunk{}, c.peer.fail(ctx, op, err))
		}
	}
}

func (c *runtimeClient) Stage(ctx context.Context, req plugin.StageRequest) (*plugin.Stage, error) {
	const op = "Stage"
	ctx, cancel := withDeadline(ctx, streamTimeout)
	defer cancel()
	stream, err := c.api.Stage(ctx)
	if err != nil {
		return nil, c.peer.fail(ctx, op, err)
	}
	head, document := toStageRequest(req)
	err = stream.Send(&pb.StageRequest{Part: &pb.StageRequest_Head{Head: head}})
	if err == nil {
		err = sendPieces(document, func(piece []byte) error {
			return stream.Send(&pb.StageRequest{Part: &pb.StageRequest_Piece{Piece: piece}})
		})
	}
	if err != nil && !errors.Is(err, io.EOF) { // after EOF the answer tells why
		return nil, c.peer.fail(ctx, op, err)
	}
	resp, err := stream.CloseAndRecv()
	if err := outcome(ctx, c.peer, op, resp, err); err != nil {
		return nil, err
	}
	return fromStage(resp), nil
}

func (c *runtimeClient) WriteChunks(ctx context.Context, stage string, chunks plugin.Chunks) ([]transcript.ID, error) {
	const op = "WriteChunks"
	ctx, cancel := withDeadline(ctx, streamTimeout)
	defer cancel()
	stream, err := c.api.WriteChunks(ctx)
	if err != nil {
		return nil, c.peer.fail(ctx, op, err)
	}
	err = stream.Send(&pb.WriteChunksRequest{Part: &pb.WriteChunksRequest_Stage{Stage: valid(stage)}})
	if err == nil {
		for chunk, failed := range chunks {
			if failed != nil {
				return nil, plugin.AsError(failed) // cancel tells the host
			}
			if err = stream.Send(&pb.WriteChunksRequest{Part: &pb.WriteChunksRequest_Chunk{Chunk: toChunk(chunk)}}); err != nil {
				break
			}
		}
	}
	if err != nil && !errors.Is(err, io.EOF) { // after EOF the answer tells why
		return nil, c.peer.fail(ctx, op, err)
	}
	resp, err := stream.CloseAndRecv()
	if err := outcome(ctx, c.peer, op, resp, err); err != nil {
		return nil, err
	}
	return fromIDs(resp.GetMissing()), nil
}

func (c *runtimeClient) Commit(ctx context.Context, req plugin.CommitRequest) (int64, error) {
	ctx, cancel := withDeadline(ctx, longTimeout)
	defer cancel()
	resp, err := c.api.Commit(ctx, toCommit(req))
	return resp.GetRevision(), outcome(ctx, c.peer, "Commit", resp, err)
}

func (c *runtimeClient) Unstage(ctx context.Context, stage string) error {
	ctx, cancel := withDeadline(ctx, longTimeout)
	defer cancel()
	resp, err := c.api.Unstage(ctx, &pb.UnstageRequest{Stage: valid(stage)})
	return outcome(ctx, c.peer, "Unstage", resp, err)
}

func (c *runtimeClient) OpState(ctx context.Context, ref plugin.SessionRef, op string) (plugin.OpState, error) {
	ctx, cancel := withDeadline(ctx, longTimeout)
	defer cancel()
	resp, err := c.api.OpState(ctx, &pb.OpStateRequest{Ref: toRef(ref), Op: valid(op)})
	return plugin.OpState(resp.GetState()), outcome(ctx, c.peer, "OpState", resp, err)
}

func (c *runtimeClient) NewSession(ctx context.Context, req plugin.NewSessionRequest) (plugin.MadeSession, error) {
	ctx, cancel := withDeadline(ctx, longTimeout)
	defer cancel()
	resp, err := c.api.NewSession(ctx, toNewSession(req))
	made := plugin.MadeSession{Ref: fromRef(resp.GetRef()), File: resp.GetFile(), Resume: resp.GetResume()}
	return made, outcome(ctx, c.peer, "NewSession", resp, err)
}

func (c *runtimeClient) Select(ctx context.Context, ref plugin.SessionRef, snapshot string) error {
	ctx, cancel := withDeadline(ctx, longTimeout)
	defer cancel()
	resp, err := c.api.Select(ctx, &pb.SelectRequest{Ref: toRef(ref), Snapshot: valid(snapshot)})
	return outcome(ctx, c.peer, "Select", resp, err)
}

func (c *runtimeClient) Call(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	const op = "Call"
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.api.Call(ctx)
	if err != nil {
		return nil, c.peer.fail(ctx, op, err)
	}
	err = stream.Send(&pb.CallRequest{Part: &pb.CallRequest_Head{Head: &pb.CallHead{Method: valid(method)}}})
	if err == nil {
		err = sendPieces(params, func(piece []byte) error {
			return stream.Send(&pb.CallRequest{Part: &pb.CallRequest_Piece{Piece: piece}})
		})
	}
	if err == nil {
		err = stream.CloseSend()
	}
	if err != nil && !errors.Is(err, io.EOF) { // after EOF the answer tells why
		return nil, c.peer.fail(ctx, op, err)
	}
	var result assembly
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return raw(result.data), nil
		}
		if err != nil {
			return nil, c.peer.fail(ctx, op, err)
		}
		if e := resp.GetError(); e != nil {
			return nil, c.peer.answer(ctx, op, e)
		}
		if err := result.add(resp.GetPiece()); err != nil {
			return nil, err
		}
	}
}
