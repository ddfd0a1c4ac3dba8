package wire

import (
	"context"
	"io"
	"log/slog"
	"strings"

	"sess/plugin"
)

// TimeFormat is the form of @timestamp in a plugin's log lines.
const TimeFormat = "2006-01-02T15:04:05.000000Z07:00"

// LevelTrace is the level below slog's own: "trace" in a plugin's log lines.
const LevelTrace = slog.LevelDebug - 4

// NewLogger is the logger of a plugin: one JSON object a line, in the keys that
// every go-plugin host understands (@message, @level, @timestamp, all strings),
// with the request id of the context beside the caller's attributes. w is the
// process's own stderr; make the logger before [Serve] replaces os.Stderr.
func NewLogger(w io.Writer, level slog.Leveler) *slog.Logger {
	return slog.New(requestHandler{slog.NewJSONHandler(w, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) > 0 {
				return a
			}
			switch {
			case a.Key == slog.MessageKey && a.Value.Kind() == slog.KindString:
				a.Key = "@message"
			case a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime:
				return slog.String("@timestamp", a.Value.Time().Format(TimeFormat))
			case a.Key == slog.LevelKey:
				if level, ok := a.Value.Any().(slog.Level); ok {
					return slog.String("@level", levelName(level))
				}
			}
			return a
		},
	})})
}

func levelName(l slog.Level) string {
	if l < slog.LevelDebug {
		return "trace"
	}
	name, _, _ := strings.Cut(strings.ToLower(l.String()), "+")
	return name
}

// requestHandler adds the request id of the context.
type requestHandler struct{ slog.Handler }

func (h requestHandler) Handle(ctx context.Context, r slog.Record) error {
	if id := plugin.RequestID(ctx); id != "" {
		r = r.Clone()
		r.AddAttrs(slog.String("request_id", id))
	}
	return h.Handler.Handle(ctx, r)
}

func (h requestHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return requestHandler{h.Handler.WithAttrs(attrs)}
}

func (h requestHandler) WithGroup(name string) slog.Handler {
	return requestHandler{h.Handler.WithGroup(name)}
}
