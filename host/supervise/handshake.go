package supervise

import (
	"strconv"
	"strings"

	goplugin "github.com/hashicorp/go-plugin"

	"sess/plugin"
)

// permanent marks a fault that another start would only meet again.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// expectation is what the first line of a plugin is held against.
type expectation struct {
	id, version, path string
	mux, mtls         bool
}

// check tells what is wrong with the first line of stdout. A good one is the
// handshake: core protocol, plugin protocol, network, address, "grpc", the
// certificate of mutual TLS, and whether the broker can multiplex.
func (x expectation) check(line string) error {
	fields := strings.Split(line, "|")
	core, err := strconv.Atoi(fields[0])
	if err != nil || len(fields) < 4 {
		return plugin.Errorf(plugin.Unavailable,
			`plugin %s: %s printed "%s" where the line of its handshake was expected ("1|%d|unix|<path>|grpc")`,
			x.id, x.path, shorten(line, 120), plugin.ProtocolVersion).
			WithHint("stdout is for the handshake: let the plugin print to stderr")
	}
	if core != goplugin.CoreProtocolVersion {
		return plugin.Errorf(plugin.Unavailable,
			"plugin %s: %s speaks version %d of go-plugin's protocol, this host speaks %d",
			x.id, x.path, core, goplugin.CoreProtocolVersion).
			WithHint("build the plugin with go-plugin 1.x")
	}
	if fields[1] != strconv.Itoa(plugin.ProtocolVersion) {
		return plugin.Errorf(plugin.Unavailable,
			`plugin %s %s: %s speaks protocol version "%s", this host speaks %d`,
			x.id, x.version, x.path, shorten(fields[1], 20), plugin.ProtocolVersion).
			WithHint("install a version of the plugin made for protocol %d", plugin.ProtocolVersion)
	}
	if len(fields) < 5 || fields[4] != string(goplugin.ProtocolGRPC) {
		return plugin.Errorf(plugin.Unavailable, "plugin %s: %s does not speak gRPC", x.id, x.path).
			WithHint("build the plugin with its gRPC server switched on")
	}
	if x.mtls && (len(fields) < 6 || fields[5] == "") {
		return plugin.Errorf(plugin.Unavailable, "plugin %s: %s offers no certificate for mutual TLS", x.id, x.path).
			WithHint(`put "mtls": false into its plugin.json`)
	}
	if x.mux && (len(fields) < 7 || fields[6] != "true") {
		return plugin.Errorf(plugin.Unavailable, "plugin %s: %s cannot multiplex its connection", x.id, x.path).
			WithHint(`put "mux": false into its plugin.json`)
	}
	return nil
}
