package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"sess/host"
	"sess/host/client"
	"sess/plugin"
)

// helloTime is how long a gateway on this machine may take to say that it is
// there, before the work is done without it.
const helloTime = 2 * time.Second

const urlEnv = "SESS_GATEWAY_URL"

// remote reports whether the command line goes to a gateway that is named, and
// not to the one of a home.
func (a *app) remote() bool { return a.gatewayURL() != "" }

// gatewayURL is the address of a named gateway. A home that is named on the
// command line is meant before what the environment says.
func (a *app) gatewayURL() string {
	if a.flags.Home != "" {
		return a.flags.URL
	}
	return cmp.Or(a.flags.URL, a.getenv(urlEnv))
}

// dialRemote connects to the gateway that is named.
func (a *app) dialRemote(ctx context.Context) (*client.Client, error) {
	if a.flags.Home != "" {
		return nil, plugin.Errorf(plugin.Usage, "--home and --url name two places").WithHint("give one of them; the home is where the gateway is")
	}
	token, err := a.clientToken()
	if err != nil {
		return nil, err
	}
	return client.Dial(ctx, client.Options{URL: a.gatewayURL(), Token: token})
}

// clientToken is the token to show to a named gateway.
func (a *app) clientToken() (string, error) {
	token := a.flags.Token
	switch {
	case token != "" && a.flags.TokenFile != "":
		return "", plugin.Errorf(plugin.Usage, "--token and --token-file are both given").WithHint("give one of them")
	case a.flags.TokenFile != "":
		data, err := os.ReadFile(a.flags.TokenFile)
		if err != nil {
			return "", plugin.Errorf(plugin.Denied, "cannot read the token: %w", err).WithHint("name a file that you can read")
		}
		token = strings.TrimSpace(string(data))
	case token == "":
		token = a.getenv(host.TokenEnv)
	}
	if token == "" {
		return "", plugin.Errorf(plugin.Denied, "a gateway at a URL wants its token").
			WithHint("name a file that has it with --token-file, or set %s; on its machine, sess gateway token prints it", host.TokenEnv)
	}
	return token, nil
}

// dialHome connects to the gateway of a home. Its error is of no concern to
// those who can do without.
func (a *app) dialHome(ctx context.Context, home string) (*client.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTime)
	defer cancel()
	c, err := client.Dial(ctx, client.Options{Socket: host.GatewaySocketPath(home)})
	if err != nil {
		return nil, err
	}
	data, err := c.Call(ctx, "gateway.version", nil, nil)
	var v host.GatewayVersion
	if err == nil {
		err = json.Unmarshal(data, &v)
	}
	if err == nil && !sameFolder(v.Home, home) {
		err = plugin.Errorf(plugin.Unavailable, "the gateway at the socket of %s is that of %s", home, v.Home)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if a.flags.Verbose && v.Version != host.Version() {
		fmt.Fprintf(a.stderr, "note: the gateway has the version %s, this program %s\n", v.Version, host.Version())
	}
	return c, nil
}

// sameFolder reports whether two paths lead to one folder.
func sameFolder(one, other string) bool {
	if one == other {
		return true
	}
	a, err1 := os.Stat(one)
	b, err2 := os.Stat(other)
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}

// callHome calls a method of the gateway of a home.
func (a *app) callHome(ctx context.Context, home, method string, params json.RawMessage) (json.RawMessage, error) {
	c, err := a.dialHome(ctx, home)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return call(ctx, c, method, params)
}

// call calls a method whose params are a JSON object, or nil for none.
func call(ctx context.Context, c *client.Client, method string, params json.RawMessage) (json.RawMessage, error) {
	if params == nil {
		return c.Call(ctx, method, nil, nil)
	}
	return c.Call(ctx, method, params, nil)
}

// callGateway calls a method of the gateway that the flags mean. Where there is
// none, the error says so.
func (a *app) callGateway(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	if a.remote() {
		c, err := a.dialRemote(ctx)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		return call(ctx, c, method, params)
	}
	home, err := a.homeDir()
	if err != nil {
		return nil, err
	}
	c, err := a.dialHome(ctx, home)
	if err != nil {
		s, herr := host.GatewayHeld(ctx, home)
		switch {
		case herr != nil:
			return nil, herr
		case s.State == host.GatewayStopped:
			return nil, plugin.Errorf(plugin.Unavailable, "no gateway runs for %s", home).
				WithHint("start it with: %s", a.typed("gateway", "start"))
		}
		return nil, unreachable(&s)
	}
	defer c.Close()
	return call(ctx, c, method, params)
}

// throughGateway has a line answered by a gateway: the named one, or else the
// one of the home where it answers. Without one ok is false.
func (a *app) throughGateway(ctx context.Context, line host.Line) (reply host.Reply, ok bool, err error) {
	if !line.Portable() {
		return reply, false, nil
	}
	var c *client.Client
	if a.remote() {
		if c, err = a.dialRemote(ctx); err != nil {
			return reply, true, err
		}
	} else {
		home, err := a.homeDir()
		if err != nil {
			return reply, true, err
		}
		if c, err = a.dialHome(ctx, home); err != nil {
			a.told = cmp.Or(a.told, a.hangs(ctx, home, err))
			return reply, false, nil
		}
	}
	defer c.Close()
	progress := newProgress(a.stderr, a.flags.Quiet)
	data, err := c.Call(ctx, "command.run", line, progress.report)
	progress.done()
	if err != nil {
		return reply, true, err
	}
	return reply, true, json.Unmarshal(data, &reply)
}

// hangs is what people are told when a gateway is there that did not answer in
// time; "" is nothing.
func (a *app) hangs(ctx context.Context, home string, err error) string {
	if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
		return ""
	}
	s, err := host.GatewayHeld(ctx, home)
	if err != nil || s.State == host.GatewayStopped {
		return ""
	}
	return plugin.AsError(unreachable(&s)).Text() + "; this was done without it"
}
