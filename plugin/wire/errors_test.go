package wire

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sess/plugin"
)

func TestFailuresOfTheConnection(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		code    codes.Code
		want    plugin.Code
		text    string
		stopped bool
	}{
		{codes.Unavailable, plugin.Unavailable, "plugin x stopped during Status", true},
		{codes.Canceled, plugin.Unavailable, "plugin x stopped during Status", true},
		{codes.ResourceExhausted, plugin.Internal, "larger than the 4 MB", false},
		{codes.Unimplemented, plugin.Unavailable, "plugin x does not offer Status", false},
		{codes.Unknown, plugin.Internal, "plugin x broke off Status: detail", false},
		{codes.DeadlineExceeded, plugin.Unavailable, "plugin x: Status did not answer before the deadline", false},
	} {
		err := peer("plugin x").fail(t.Context(), "Status", status.Error(test.code, "detail"))
		e := plugin.AsError(err)
		if e.Code != test.want || !strings.Contains(e.Text(), test.text) || errors.Is(err, ErrStopped) != test.stopped {
			t.Errorf("%v became %s %q (stopped: %t)", test.code, e.Code, e.Text(), errors.Is(err, ErrStopped))
		}
		if got := optional(err) == nil; got != (test.code == codes.Unimplemented) {
			t.Errorf("%v of an optional method is ignored: %t", test.code, got)
		}
	}
}

func TestTheCausesOfACallersEndStayRecognisable(t *testing.T) {
	t.Parallel()
	reason := errors.New("the host is closing")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	err := peer("plugin x").fail(ctx, "Status", status.Error(codes.Canceled, "context canceled"))
	if !errors.Is(err, context.Canceled) || !errors.Is(err, reason) || errors.Is(err, ErrStopped) {
		t.Errorf("fail = %v", err)
	}
	if text := plugin.AsError(err).Text(); text != "plugin x: Status was cancelled: the host is closing" {
		t.Errorf("text = %q", text)
	}
}
