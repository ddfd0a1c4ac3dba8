package wire

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"sess/plugin"
	pb "sess/plugin/wire/pluginv1"
	"sess/store/transcript"
)

var _ plugin.Provider = (*Client)(nil)

// Turn asks the plugin for an answer. It has no deadline but that of ctx.
func (c *Client) Turn(ctx context.Context, to plugin.Endpoint, req plugin.TurnRequest, emit func(plugin.Delta)) (plugin.TurnResult, error) {
	const op = "Turn"
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.provider.Turn(ctx)
	if err != nil {
		return plugin.TurnResult{}, c.peer.fail(ctx, op, err)
	}
	head := &pb.TurnHead{
		Endpoint: toEndpoint(to),
		System:   valid(req.System),
		Tools: convert(req.Tools, func(t plugin.Tool) *pb.Tool {
			return &pb.Tool{Name: valid(t.Name), Description: valid(t.Description), Schema: t.Schema}
		}),
		State: req.State,
	}
	err = stream.Send(&pb.TurnRequest{Part: &pb.TurnRequest_Head{Head: head}})
	if err == nil {
		err = sendHistory(req.History, func(piece []byte) error {
			return stream.Send(&pb.TurnRequest{Part: &pb.TurnRequest_Piece{Piece: piece}})
		})
	}
	if err := c.sent(ctx, op, stream, err); err != nil {
		return plugin.TurnResult{}, err
	}
	var encoded assembly
	for {
		resp, err := stream.Recv()
		if err != nil {
			return plugin.TurnResult{}, c.cut(ctx, op, err)
		}
		switch part := resp.GetPart().(type) {
		case *pb.TurnResponse_Delta:
			emit(fromDelta(part.Delta))
		case *pb.TurnResponse_Piece:
			if err := encoded.add(part.Piece); err != nil {
				return plugin.TurnResult{}, err
			}
		case *pb.TurnResponse_Error:
			return plugin.TurnResult{}, c.peer.answer(ctx, op, part.Error)
		case *pb.TurnResponse_End:
			var result pb.TurnResult
			if err := proto.Unmarshal(encoded.data, &result); err != nil {
				return plugin.TurnResult{}, c.peer.protocol(op, "the result does not parse: "+err.Error())
			}
			out := fromTurnResult(&result)
			if fault := faultOf(out.Native, out.State); fault != "" {
				return plugin.TurnResult{}, c.peer.protocol(op, fault)
			}
			return out, nil
		}
	}
}

// Compact asks the plugin to make a history shorter. It has no deadline but that
// of ctx.
func (c *Client) Compact(ctx context.Context, to plugin.Endpoint, req plugin.CompactRequest) (plugin.CompactResult, error) {
	const op = "Compact"
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.provider.Compact(ctx)
	if err != nil {
		return plugin.CompactResult{}, c.peer.fail(ctx, op, err)
	}
	head := &pb.CompactHead{Endpoint: toEndpoint(to), System: valid(req.System)}
	err = stream.Send(&pb.CompactRequest{Part: &pb.CompactRequest_Head{Head: head}})
	if err == nil {
		err = sendHistory(req.History, func(piece []byte) error {
			return stream.Send(&pb.CompactRequest{Part: &pb.CompactRequest_Piece{Piece: piece}})
		})
	}
	if err := c.sent(ctx, op, stream, err); err != nil {
		return plugin.CompactResult{}, err
	}
	var encoded assembly
	for {
		resp, err := stream.Recv()
		if err != nil {
			return plugin.CompactResult{}, c.cut(ctx, op, err)
		}
		switch part := resp.GetPart().(type) {
		case *pb.CompactResponse_Piece:
			if err := encoded.add(part.Piece); err != nil {
				return plugin.CompactResult{}, err
			}
		case *pb.CompactResponse_Error:
			return plugin.CompactResult{}, c.peer.answer(ctx, op, part.Error)
		case *pb.CompactResponse_End:
			var result pb.CompactResult
			if err := proto.Unmarshal(encoded.data, &result); err != nil {
				return plugin.CompactResult{}, c.peer.protocol(op, "the result does not parse: "+err.Error())
			}
			native := fromNative(result.GetNative())
			if native == nil {
				return plugin.CompactResult{}, c.peer.protocol(op, "the result is empty")
			}
			if fault := faultOf(native, nil); fault != "" {
				return plugin.CompactResult{}, c.peer.protocol(op, fault)
			}
			return plugin.CompactResult{Native: *native, Usage: fromUsage(result.GetUsage())}, nil
		}
	}
}

// sent ends the sending half of a call, which err may have ended before: a
// history that cannot be read says so itself.
func (c *Client) sent(ctx context.Context, op string, stream grpc.ClientStream, err error) error {
	if e, ok := errors.AsType[unreadable](err); ok {
		return plugin.AsError(e.error)
	}
	if err == nil {
		err = stream.CloseSend()
	}
	if err != nil && !errors.Is(err, io.EOF) { // after EOF the answer tells why
		return c.peer.fail(ctx, op, err)
	}
	return nil
}

// cut is why an answer has broken off.
func (c *Client) cut(ctx context.Context, op string, err error) error {
	if errors.Is(err, io.EOF) {
		return c.peer.protocol(op, "the answer has no end")
	}
	return c.peer.fail(ctx, op, err)
}

// unreadable marks the error of a history, in contrast to that of a connection.
type unreadable struct{ error }

// sendHistory passes a history on as lines, in pieces.
func sendHistory(history iter.Seq2[transcript.HistoryItem, error], send func(piece []byte) error) error {
	w := bufio.NewWriterSize(writerFunc(send), pieceSize)
	if history != nil {
		var line []byte
		for item, err := range history {
			if err == nil {
				line, err = item.AppendJSON(line[:0])
			}
			if err != nil {
				return unreadable{err}
			}
			if _, err := w.Write(append(line, '\n')); err != nil {
				return err
			}
		}
	}
	return w.Flush()
}

// writerFunc is a writer that passes on what it gets in pieces. The receiver
// keeps none.
type writerFunc func(piece []byte) error

func (f writerFunc) Write(p []byte) (int, error) {
	return len(p), sendPieces(p, func(piece []byte) error { return f(bytes.Clone(piece)) })
}

// receiveHistory is the way back: it reads pieces until next says io.EOF.
func receiveHistory(next func() ([]byte, error)) iter.Seq2[transcript.HistoryItem, error] {
	return func(yield func(transcript.HistoryItem, error) bool) {
		var line assembly
		for {
			piece, err := next()
			if errors.Is(err, io.EOF) {
				if len(line.data) > 0 {
					yield(transcript.HistoryItem{}, plugin.Errorf(plugin.Internal, "the history breaks off within an item"))
				}
				return
			}
			for err == nil {
				head, rest, whole := bytes.Cut(piece, []byte("\n"))
				if err = line.add(head); err != nil || !whole {
					break
				}
				var item transcript.HistoryItem // it aliases what it was read from
				if err = json.Unmarshal(line.data, &item); err != nil {
					err = plugin.Errorf(plugin.Internal, "an item of the history does not parse: %w", err)
					break
				}
				if !yield(item, nil) {
					return
				}
				line.data, piece = nil, rest
			}
			if err != nil {
				yield(transcript.HistoryItem{}, err)
				return
			}
		}
	}
}

// providerServer is the plugin's side of ProviderService.
type providerServer struct {
	pb.UnimplementedProviderServiceServer
	handler
	provider plugin.Provider
}

func (s *providerServer) Turn(stream grpc.BidiStreamingServer[pb.TurnRequest, pb.TurnResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	head := first.GetHead()
	if head == nil {
		return status.Error(codes.InvalidArgument, "the first message must be the head")
	}
	req := plugin.TurnRequest{
		System: head.GetSystem(),
		History: receiveHistory(func() ([]byte, error) {
			req, err := stream.Recv()
			return req.GetPiece(), err
		}),
		Tools: convert(head.GetTools(), func(t *pb.Tool) plugin.Tool {
			return plugin.Tool{Name: t.GetName(), Description: t.GetDescription(), Schema: raw(t.GetSchema())}
		}),
		State: raw(head.GetState()),
	}
	ctx := stream.Context()
	var encoded []byte
	failure := s.run(ctx, "Turn", func() error {
		result, err := s.provider.Turn(ctx, fromEndpoint(head.GetEndpoint()), req, func(d plugin.Delta) {
			// A connection that is gone ends ctx, which the turn watches.
			_ = stream.Send(&pb.TurnResponse{Part: &pb.TurnResponse_Delta{Delta: toDelta(d)}})
		})
		if err != nil {
			return err
		}
		encoded, err = proto.Marshal(toTurnResult(result))
		return err
	})
	if failure != nil {
		return stream.Send(&pb.TurnResponse{Part: &pb.TurnResponse_Error{Error: failure}})
	}
	err = sendPieces(encoded, func(piece []byte) error {
		return stream.Send(&pb.TurnResponse{Part: &pb.TurnResponse_Piece{Piece: piece}})
	})
	if err != nil {
		return err
	}
	return stream.Send(&pb.TurnResponse{Part: &pb.TurnResponse_End{End: &pb.End{}}})
}

func (s *providerServer) Compact(stream grpc.BidiStreamingServer[pb.CompactRequest, pb.CompactResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	head := first.GetHead()
	if head == nil {
		return status.Error(codes.InvalidArgument, "the first message must be the head")
	}
	req := plugin.CompactRequest{
		System: head.GetSystem(),
		History: receiveHistory(func() ([]byte, error) {
			req, err := stream.Recv()
			return req.GetPiece(), err
		}),
	}
	ctx := stream.Context()
	var encoded []byte
	failure := s.run(ctx, "Compact", func() error {
		result, err := s.provider.Compact(ctx, fromEndpoint(head.GetEndpoint()), req)
		if err != nil {
			return err
		}
		encoded, err = proto.Marshal(&pb.CompactResult{Native: toNative(&result.Native), Usage: toUsage(result.Usage)})
		return err
	})
	if failure != nil {
		return stream.Send(&pb.CompactResponse{Part: &pb.CompactResponse_Error{Error: failure}})
	}
	err = sendPieces(encoded, func(piece []byte) error {
		return stream.Send(&pb.CompactResponse{Part: &pb.CompactResponse_Piece{Piece: piece}})
	})
	if err != nil {
		return err
	}
	return stream.Send(&pb.CompactResponse{Part: &pb.CompactResponse_End{End: &pb.End{}}})
}

// faultOf says what of an answer could not be kept: "" where all can.
func faultOf(native *transcript.Native, state json.RawMessage) string {
	if len(state) > 0 && !json.Valid(state) {
		return "the state is no JSON"
	}
	if native == nil {
		return ""
	}
	if native.Kind == "" {
		return "the native items have no kind"
	}
	for _, item := range native.Items {
		if !json.Valid(item) {
			return "a native item is no JSON"
		}
	}
	return ""
}

func toEndpoint(e plugin.Endpoint) *pb.Endpoint {
	return &pb.Endpoint{
		Provider:      valid(e.Provider),
		Model:         valid(e.Model),
		BaseUrl:       valid(e.BaseURL),
		ApiKey:        valid(string(e.APIKey)),
		KeyOrigin:     valid(e.KeyOrigin),
		Timeout:       toDuration(e.Timeout),
		IdleTimeout:   toDuration(e.IdleTimeout),
		MaxRetries:    int64(e.MaxRetries),
		MaxTokens:     int64(e.MaxTokens),
		ContextWindow: int64(e.ContextWindow),
		Parameters:    e.Parameters,
	}
}

func fromEndpoint(e *pb.Endpoint) plugin.Endpoint {
	return plugin.Endpoint{
		Provider:      e.GetProvider(),
		Model:         e.GetModel(),
		BaseURL:       e.GetBaseUrl(),
		APIKey:        plugin.Secret(e.GetApiKey()),
		KeyOrigin:     e.GetKeyOrigin(),
		Timeout:       e.GetTimeout().AsDuration(),
		IdleTimeout:   e.GetIdleTimeout().AsDuration(),
		MaxRetries:    int(e.GetMaxRetries()),
		MaxTokens:     int(e.GetMaxTokens()),
		ContextWindow: int(e.GetContextWindow()),
		Parameters:    raw(e.GetParameters()),
	}
}

func toDuration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

func toDelta(d plugin.Delta) *pb.Delta {
	out := &pb.Delta{Kind: valid(string(d.Kind)), Text: valid(d.Text)}
	if d.Kind == plugin.DeltaTool {
		out.Call = toToolCall(d.Call)
	}
	return out
}

func fromDelta(d *pb.Delta) plugin.Delta {
	out := plugin.Delta{Kind: plugin.DeltaKind(d.GetKind()), Text: d.GetText()}
	if d.GetCall() != nil {
		out.Call = fromToolCall(d.GetCall())
	}
	return out
}

func toToolCall(c transcript.ToolCall) *pb.ToolCall {
	return &pb.ToolCall{Id: valid(c.ID), Name: valid(c.Name), Arguments: c.Arguments}
}

func fromToolCall(c *pb.ToolCall) transcript.ToolCall {
	return transcript.ToolCall{ID: c.GetId(), Name: c.GetName(), Arguments: raw(c.GetArguments())}
}

func toTurnResult(r plugin.TurnResult) *pb.TurnResult {
	return &pb.TurnResult{
		Text:      valid(r.Text),
		ToolCalls: convert(r.ToolCalls, toToolCall),
		Usage:     toUsage(r.Usage),
		Native:    toNative(r.Native),
		State:     r.State,
	}
}

func fromTurnResult(r *pb.TurnResult) plugin.TurnResult {
	return plugin.TurnResult{
		Text:      r.GetText(),
		ToolCalls: convert(r.GetToolCalls(), fromToolCall),
		Usage:     fromUsage(r.GetUsage()),
		Native:    fromNative(r.GetNative()),
		State:     raw(r.GetState()),
	}
}

func toUsage(u plugin.TokenUsage) *pb.TokenUsage {
	return &pb.TokenUsage{Input: int64(u.InputTokens), Output: int64(u.OutputTokens), Cached: int64(u.CachedTokens)}
}

func fromUsage(u *pb.TokenUsage) plugin.TokenUsage {
	return plugin.TokenUsage{InputTokens: int(u.GetInput()), OutputTokens: int(u.GetOutput()), CachedTokens: int(u.GetCached())}
}

func toNative(n *transcript.Native) *pb.Native {
	if n == nil {
		return nil
	}
	return &pb.Native{Kind: valid(n.Kind), Items: convert(n.Items, func(item json.RawMessage) []byte { return item })}
}

func fromNative(n *pb.Native) *transcript.Native {
	if n == nil {
		return nil
	}
	return &transcript.Native{
		Kind:  n.GetKind(),
		Items: convert(n.GetItems(), func(item []byte) json.RawMessage { return item }),
	}
}
