// Package wire carries a [plugin.Plugin] and the [plugin.Runtime] that the host
// gives it between two processes: over gRPC, started and connected by
// hashicorp/go-plugin.
//
// A plugin's main calls [Serve]. A host takes its go-plugin configuration from
// [ClientConfig] and the connected plugin from [Dispense]; package
// host/supervise does both. Neither side sees protobuf: the types of package
// plugin go in and come out.
//
// What it promises:
//   - An [*plugin.Error] arrives with its code, message, hint and details. A
//     failure of the connection is unavailable and wraps [ErrStopped]; the
//     caller's own cancellation stays recognisable with [errors.Is].
//   - Deadlines, cancellation and the request id cross in both directions,
//     also into the calls that a plugin makes back while it serves one.
//   - No message exceeds 4 MB; documents, inputs and results cross in pieces.
//   - A panic in a handler becomes an internal error; its stack goes to the log.
//
// Every call but Dispatch, Turn, Compact and Call, which take as long as they take,
// has a deadline of its own when its context brings none.
//
// The contract is proto/plugin/v1/plugin.proto; pluginv1 is generated from it.
//
// # Plugins in other languages
//
// A plugin that is not written in Go serves PluginService of that contract, and
// the services of goplugin.proto, on one gRPC server without TLS. Its plugin.json
// says "mux": false and "mtls": false. It is started with SESS_PLUGIN_COOKIE,
// whose value is in [Handshake], and with PLUGIN_UNIX_SOCKET_DIR, the folder
// where its socket may lie; only once it accepts connections it prints one line
// to stdout, and nothing else ever:
//
//	1|1|unix|<path of the socket>|grpc
//
// Whatever it writes to stderr goes to the host's log. GRPCBroker.StartStream
// tells it where the host's RuntimeService is, under the number that Configure
// gives; the two may arrive in either order. Notify, Complete, Status and Drain
// may be left unimplemented, and so may the whole ProviderService, which is for
// plugins that talk to models. It need not watch its stdin: the host runs it under a
// guard, which ends it when the host is gone. tests/testdata/node-plugin is one in
// JavaScript.
package wire

//go:generate npx --yes @bufbuild/buf@1.75.0 lint
//go:generate npx --yes @bufbuild/buf@1.75.0 generate
