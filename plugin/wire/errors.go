package wire

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sess/plugin"
	pb "sess/plugin/wire/pluginv1"
)

// ErrStopped is the cause of every error that means that the other process is
// gone or cannot be reached: whatever the call was, its outcome is not known.
var ErrStopped = errors.New("the other process has stopped")

// toError makes err ready to cross; nil stays nil. The cause stays behind.
func toError(err error) *pb.Error {
	e := plugin.AsError(err)
	if e == nil {
		return nil
	}
	out := &pb.Error{Code: valid(string(e.Code)), Message: valid(e.Message), Hint: valid(e.Hint)}
	if len(e.Details) > 0 {
		out.Details = make(map[string]string, len(e.Details))
		for k, v := range e.Details {
			out.Details[valid(k)] = valid(v)
		}
	}
	return out
}

// fromError is the way back; nil stays a nil error. One that says nothing is still
// a failure that people and programs can tell.
func fromError(e *pb.Error) error {
	if e == nil {
		return nil
	}
	return &plugin.Error{
		Code:    cmp.Or(plugin.Code(e.GetCode()), plugin.Internal),
		Message: cmp.Or(e.GetMessage(), "it failed and did not say why"),
		Hint:    e.GetHint(),
		Details: e.GetDetails(),
	}
}

// valid replaces what protobuf would refuse in a string.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// peer names the process at the other end in error texts: "plugin sess".
type peer string

// fail turns what ended the exchange behind op into an [*plugin.Error]: the
// end of the caller's context, an error of the other process, or a failure of
// the connection.
func (p peer) fail(ctx context.Context, op string, err error) error {
	if own := ctx.Err(); own != nil {
		return ended(ctx, p, op, own)
	}
	s, ok := status.FromError(err)
	if !ok {
		return plugin.AsError(err)
	}
	switch s.Code() {
	case codes.DeadlineExceeded: // its clock was a little ahead of ours
		return ended(ctx, p, op, context.DeadlineExceeded)
	case codes.Unavailable, codes.Canceled:
		return &plugin.Error{
			Code:    plugin.Unavailable,
			Message: fmt.Sprintf("%s stopped during %s", p, op),
			Err:     errors.Join(ErrStopped, err),
		}
	case codes.ResourceExhausted:
		return &plugin.Error{
			Code:    plugin.Internal,
			Message: fmt.Sprintf("%s: a message of %s is larger than the %d MB that one may have", p, op, maxMessage>>20),
			Err:     err,
		}
	case codes.Unimplemented:
		return &plugin.Error{
			Code:    plugin.Unavailable,
			Message: fmt.Sprintf("%s does not offer %s", p, op),
			Hint:    "use a version of it that does",
			Err:     err,
		}
	default:
		return &plugin.Error{
			Code:    plugin.Internal,
			Message: fmt.Sprintf("%s broke off %s: %s", p, op, s.Message()),
			Err:     err,
		}
	}
}

// answer is the error that the other process gave, or nil. One that only says
// that the caller's context ended gets that as its cause again.
func (p peer) answer(ctx context.Context, op string, e *pb.Error) error {
	err := fromError(e)
	if err == nil {
		return nil
	}
	if own := ctx.Err(); own != nil && e.GetCode() == string(plugin.Unavailable) {
		return ended(ctx, p, op, own)
	}
	return err
}

// protocol says that the other process sent what it must not.
func (p peer) protocol(op, what string) error {
	return plugin.Errorf(plugin.Internal, "%s broke the protocol in %s: %s", p, op, what)
}

func ended(ctx context.Context, p peer, op string, err error) error {
	text := "was cancelled"
	if errors.Is(err, context.DeadlineExceeded) {
		text = "did not answer before the deadline"
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		text += ": " + cause.Error()
		err = errors.Join(err, cause)
	}
	return &plugin.Error{Code: plugin.Unavailable, Message: fmt.Sprintf("%s: %s %s", p, op, text), Err: err}
}

// handler runs the Go side of a service.
type handler struct{ log *slog.Logger }

// run calls f and makes its error ready to cross. A panic, and an error of the
// code internal that has no incident id yet, is logged under a new one.
func (h handler) run(ctx context.Context, op string, f func() error) *pb.Error {
	err := recovered(f)
	if err == nil {
		return nil
	}
	e := plugin.AsError(err)
	if e.Code == plugin.Internal && e.Details["incident"] == "" {
		incident := strings.ToLower(rand.Text()[:12])
		attrs := []slog.Attr{
			slog.String("incident", incident),
			slog.String("op", op),
			slog.String("err", e.Error()),
		}
		if e.Err != nil {
			attrs = append(attrs, slog.Any("cause", e.Err))
		}
		if p, ok := errors.AsType[stacked](err); ok {
			attrs = append(attrs, slog.String("stack", p.Stack()))
		}
		if _, ok := errors.AsType[*panicError](err); ok {
			e = plugin.Errorf(plugin.Internal, "a bug stopped %s", op)
		}
		h.log.LogAttrs(ctx, slog.LevelError, "internal error", attrs...)
		e = e.WithDetail("incident", incident)
		if e.Hint == "" {
			e = e.WithHint("look for incident %s in the log", incident)
		}
	}
	return toError(e)
}

// stacked is a panic that became an error, here or in what was called.
type stacked interface {
	error
	Stack() string
}

type panicError struct {
	value any
	stack string
}

func (p *panicError) Error() string { return fmt.Sprintf("panic: %v", p.value) }

func (p *panicError) Stack() string { return p.stack }

func recovered(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{v, string(debug.Stack())}
		}
	}()
	return f()
}
