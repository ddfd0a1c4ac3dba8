package wire

import (
	"bytes"
	"errors"
	"io"

	"google.golang.org/grpc"

	"sess/plugin"
	pb "sess/plugin/wire/pluginv1"
)

// errAnswered is what a verb is told that goes on after it has answered.
var errAnswered = errors.New("the call has been answered")

// wanted sends the input of a call, a piece each time that the plugin wants one.
type wanted struct {
	from   io.Reader
	stream grpc.BidiStreamingClient[pb.DispatchRequest, pb.DispatchResponse]
	piece  []byte
	ended  bool
}

// next sends a piece, or that there are no more. What the plugin has to say to an
// end of the stream comes as its answer.
func (w *wanted) next() error {
	if w.ended || w.from == nil {
		return nil
	}
	if w.piece == nil {
		w.piece = make([]byte, pieceSize)
	}
	n, err := io.ReadAtLeast(w.from, w.piece, 1)
	if n > 0 {
		// The message may still be on its way when the next piece is read.
		return ignoreEOF(w.stream.Send(&pb.DispatchRequest{Part: &pb.DispatchRequest_Piece{Piece: bytes.Clone(w.piece[:n])}}))
	}
	if !errors.Is(err, io.EOF) {
		return plugin.AsError(err)
	}
	return w.end()
}

func (w *wanted) end() error {
	w.ended = true
	return ignoreEOF(w.stream.CloseSend())
}

// ignoreEOF leaves it to the answer to say why a stream was ended.
func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// passOutput hands on what a plugin writes.
func passOutput(to plugin.Output, m *pb.Output) error {
	if to == nil {
		return plugin.Errorf(plugin.Internal, "a plugin writes to an output that nobody takes")
	}
	if m.GetName() != "" || m.GetMediaType() != "" {
		if err := to.Begin(m.GetName(), m.GetMediaType()); err != nil {
			return err
		}
	}
	if len(m.GetData()) == 0 {
		return nil
	}
	_, err := to.Write(m.GetData())
	return err
}

// wireInput is the input of a call on the plugin's side.
type wireInput struct {
	tell   func(*pb.DispatchResponse) error
	stream grpc.BidiStreamingServer[pb.DispatchRequest, pb.DispatchResponse]
	piece  []byte
	err    error
}

func (in *wireInput) Read(p []byte) (int, error) {
	for len(in.piece) == 0 {
		if in.err != nil {
			return 0, in.err
		}
		if in.err = in.tell(&pb.DispatchResponse{Part: &pb.DispatchResponse_Want{Want: &pb.Want{}}}); in.err != nil {
			continue
		}
		var req *pb.DispatchRequest
		if req, in.err = in.stream.Recv(); in.err == nil {
			in.piece = req.GetPiece()
		}
	}
	n := copy(p, in.piece)
	in.piece = in.piece[n:]
	return n, nil
}

// wireOutput is the output of a call on the plugin's side.
type wireOutput struct {
	tell func(*pb.DispatchResponse) error
}

var _ plugin.Output = (*wireOutput)(nil)

func (out *wireOutput) Begin(name, mediaType string) error {
	return out.tell(toOutput(&pb.Output{Name: valid(name), MediaType: valid(mediaType)}))
}

func (out *wireOutput) Write(p []byte) (int, error) {
	// The message may still be on its way when the writer uses p again.
	for rest := bytes.Clone(p); len(rest) > 0; {
		n := min(len(rest), pieceSize)
		if err := out.tell(toOutput(&pb.Output{Data: rest[:n]})); err != nil {
			return len(p) - len(rest), err
		}
		rest = rest[n:]
	}
	return len(p), nil
}

func toOutput(m *pb.Output) *pb.DispatchResponse {
	return &pb.DispatchResponse{Part: &pb.DispatchResponse_Output{Output: m}}
}
