package wire

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"sess/plugin"
	pb "sess/plugin/wire/pluginv1"
)

// pluginName is the one thing that a plugin process dispenses.
const pluginName = "plugin"

// Handshake is what host and plugin must agree on before they speak. The cookie
// is no secret: it only tells a start by a host from a start by hand.
func Handshake() goplugin.HandshakeConfig {
	return goplugin.HandshakeConfig{
		ProtocolVersion:  plugin.ProtocolVersion,
		MagicCookieKey:   "SESS_PLUGIN_COOKIE",
		MagicCookieValue: "c0f2c1d8a3b14f7d9a55e3f6b7a0e921",
	}
}

// ClientConfig is the go-plugin configuration for one start of the plugin named
// id: the caller adds how the process runs, and whether it multiplexes and uses
// mutual TLS. It serves for one client only. A nil logger discards.
func ClientConfig(id string, logger *slog.Logger) *goplugin.ClientConfig {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	config := &goplugin.ClientConfig{
		HandshakeConfig:  Handshake(),
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		SkipHostEnv:      true,
		GRPCDialOptions:  dialOptions(),
	}
	config.VersionedPlugins = map[int]goplugin.PluginSet{
		plugin.ProtocolVersion: {pluginName: &hostSide{
			peer: peer("plugin " + id),
			log:  logger,
			// go-plugin fills it in while it starts the plugin.
			tls: func() *tls.Config { return config.TLSConfig },
		}},
	}
	return config
}

// Dispense connects to the plugin behind client, which was made from a
// [ClientConfig], and starts it if need be. The result lives as long as the
// process; close it after that has ended.
func Dispense(client *goplugin.Client) (*Client, error) {
	conn, err := client.Client()
	if err != nil {
		return nil, err
	}
	dispensed, err := conn.Dispense(pluginName)
	if err != nil {
		return nil, err
	}
	c, ok := dispensed.(*Client)
	if !ok {
		return nil, fmt.Errorf("dispensed a %T: the client was not made from wire.ClientConfig", dispensed)
	}
	return c, nil
}

// hostSide is go-plugin's view of the host's side.
type hostSide struct {
	goplugin.NetRPCUnsupportedPlugin
	peer peer
	log  *slog.Logger
	tls  func() *tls.Config
}

func (h *hostSide) GRPCServer(*goplugin.GRPCBroker, *grpc.Server) error {
	return fmt.Errorf("%s: the host's side does not serve it", h.peer)
}

func (h *hostSide) GRPCClient(_ context.Context, broker *goplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return &Client{
		peer:     h.peer,
		api:      pb.NewPluginServiceClient(conn),
		provider: pb.NewProviderServiceClient(conn),
		broker:   broker,
		tls:      h.tls,
		log:      h.log,
	}, nil
}

// pluginSide is go-plugin's view of the plugin's side.
type pluginSide struct {
	goplugin.NetRPCUnsupportedPlugin
	plugin plugin.Plugin
	log    *slog.Logger
}

func (p *pluginSide) GRPCServer(broker *goplugin.GRPCBroker, server *grpc.Server) error {
	pb.RegisterPluginServiceServer(server, newServer(p.plugin, broker, p.log))
	if provider, ok := p.plugin.(plugin.Provider); ok {
		pb.RegisterProviderServiceServer(server, &providerServer{handler: handler{p.log}, provider: provider})
	}
	return nil
}

func (p *pluginSide) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, fmt.Errorf("the plugin's side does not dial itself")
}
