package wire

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"sess/plugin"
)

// dialOptions are those of every connection to the other process. It is never
// put to sleep: waking a multiplexed one up again costs a round of knocking.
func dialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithIdleTimeout(0),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return invoke(outgoing(ctx), method, req, reply, conn, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return open(outgoing(ctx), desc, conn, method, opts...)
		}),
	}
}

// serverOptions are those of every server. onCall learns of each call, by the
// full name of its method, before it is handled.
func serverOptions(onCall func(method string)) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			onCall(info.FullMethod)
			return handle(incoming(ctx), req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			onCall(info.FullMethod)
			return handle(srv, &identified{stream, incoming(stream.Context())})
		}),
	}
}

// outgoing sends the request id of ctx along.
func outgoing(ctx context.Context) context.Context {
	if id := plugin.RequestID(ctx); id != "" {
		return metadata.AppendToOutgoingContext(ctx, plugin.RequestIDKey, printable(id))
	}
	return ctx
}

// incoming takes the request id that was sent along.
func incoming(ctx context.Context) context.Context {
	if ids := metadata.ValueFromIncomingContext(ctx, plugin.RequestIDKey); len(ids) > 0 {
		return plugin.WithRequestID(ctx, ids[0])
	}
	return ctx
}

// printable replaces what gRPC would refuse in metadata.
func printable(id string) string {
	b := []byte(id)
	for i, c := range b {
		if c < 0x20 || c > 0x7e {
			b[i] = '?'
		}
	}
	return string(b)
}

// identified is a stream under another context.
type identified struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *identified) Context() context.Context { return s.ctx }
