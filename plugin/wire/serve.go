package wire

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"sess/plugin"
)

// ServeOptions adjusts [Serve]. The zero value works.
type ServeOptions struct {
	// Logger takes what went wrong inside; nil means NewLogger on stderr at
	// level info.
	Logger *slog.Logger
}

// Serve is the body of a plugin's main: it answers the host until the host is
// done with it, then returns. Started by hand it says what it is and exits 1.
//
// Stdin is the plugin's lifeline: the host holds the other end, and when it
// closes, also because the host was killed, Serve ends the process at once,
// with its whole process group where the process leads one. So it does when the
// connection breaks. Code of the plugin reads an empty stdin instead.
//
// The environment variables of the handshake are gone by the time the plugin's
// methods run, so that processes started by them inherit none. Call it once,
// from main.
func Serve(p plugin.Plugin, opts ServeOptions) {
	handshake := Handshake()
	if os.Getenv(handshake.MagicCookieKey) != handshake.MagicCookieValue {
		fmt.Fprint(os.Stderr, byHand)
		os.Exit(1)
	}
	logger := opts.Logger
	if logger == nil {
		logger = NewLogger(os.Stderr, slog.LevelInfo)
	}
	holdLifeline()

	forget := sync.OnceFunc(clearHandshake)
	var served, dismissed atomic.Bool
	onCall := func(method string) {
		forget()
		served.Store(true)
		if method == shutdownMethod {
			dismissed.Store(true)
		}
	}
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: handshake,
		VersionedPlugins: map[int]goplugin.PluginSet{
			plugin.ProtocolVersion: {pluginName: &pluginSide{plugin: p, log: logger}},
		},
		// Each step of the connection is told at the level debug, six lines a start
		// that nobody asked for; what goes wrong is of a higher one.
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Info, Output: os.Stderr, JSONFormat: true}),
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(opts, serverOptions(onCall)...)...)
		},
	})
	switch {
	case dismissed.Load(): // the host sees to what is left of the group
	case served.Load(): // it ended for another reason, such as the host's death
		endGroup()
	default: // go-plugin has logged why it could not even begin
		os.Exit(1)
	}
}

// shutdownMethod is by what a host ends a plugin that it is done with.
const shutdownMethod = "/plugin.GRPCController/Shutdown"

const byHand = `This program is a plugin of sess. It does nothing by itself: sess starts it
when one of its commands is used. "sess plugins list" shows the plugins there are.
`

// holdLifeline ends the process group when stdin does.
func holdLifeline() {
	lifeline := os.Stdin
	if empty, err := os.Open(os.DevNull); err == nil {
		os.Stdin = empty
	}
	surviveBrokenPipes()
	go func() {
		// Nobody writes to it; whatever ends the reading, the host is gone.
		_, _ = io.Copy(io.Discard, lifeline)
		endGroup()
	}()
}

// clearHandshake removes what the host told this process only.
func clearHandshake() {
	for _, entry := range os.Environ() {
		key, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(key, "PLUGIN_") || key == Handshake().MagicCookieKey {
			_ = os.Unsetenv(key)
		}
	}
}
