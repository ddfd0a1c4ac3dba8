package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"sess/host"
	"sess/host/client"
	"sess/plugin"
)

const (
	// startByTime is how long a gateway on this machine may take to begin with a
	// command line. One that reads it later does not begin, and says so.
	startByTime = 2 * time.Second
	// silentTime is how long one may say nothing at all before the work is done
	// without it. On a busy machine it may be late with its words, but not by as
	// much as lies between the two.
	silentTime = 5 * time.Second
	// answerTime is how long it may take to answer what nobody else can do.
	answerTime = 10 * time.Second
)

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

// checkRemote refuses flags that say which gateway is meant where they have no
// meaning. own is an argv of the program's own, nil for that of another command.
func (a *app) checkRemote(own []string) error {
	flag := ""
	switch {
	case a.flags.Token != "":
		flag = "--token"
	case a.flags.TokenFile != "":
		flag = "--token-file"
	}
	if flag != "" && !a.remote() {
		return plugin.Errorf(plugin.Usage, "%s is for a gateway at a URL", flag).WithHint("name it with --url, or leave %s out", flag)
	}
	if own == nil || a.flags.URL == "" {
		return nil
	}
	verbs := []string{"call", "reload", "status", "stop"}
	if own[0] == "gateway" && len(own) > 1 && slices.Contains(verbs, own[1]) {
		return nil
	}
	hint := "leave --url out"
	if own[0] == "gateway" {
		hint += "; the verbs that take it are " + strings.Join(verbs, ", ")
	}
	return plugin.Errorf(plugin.Usage, "--url has no meaning here: %s works in this process", strings.Join(own[:min(2, len(own))], " ")).WithHint("%s", hint)
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
	ctx, cancel := context.WithTimeout(ctx, answerTime)
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
	if err == nil && !host.SameFolder(v.Home, home) {
		err = plugin.Errorf(plugin.Unavailable, "the gateway at the socket of %s is that of %s", home, v.Home)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
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
	c, err := a.dialGateway(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return call(ctx, c, method, params)
}

// dialGateway connects to the gateway that the flags mean.
func (a *app) dialGateway(ctx context.Context) (*client.Client, error) {
	if a.remote() {
		return a.dialRemote(ctx)
	}
	home, err := a.homeDir()
	if err != nil {
		return nil, err
	}
	c, err := a.dialHome(ctx, home)
	if err == nil {
		return c, nil
	}
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

// throughGateway has a line answered by a gateway: the named one, or else the
// one of the home where it answers. Without one ok is false.
func (a *app) throughGateway(ctx context.Context, line host.Line) (reply host.Reply, ok bool, err error) {
	if err := a.checkRemote(nil); err != nil {
		return reply, true, err
	}
	if !line.Portable() {
		if a.remote() {
			return reply, true, plugin.Errorf(plugin.Usage, "a word of the command line is not UTF-8, and cannot be sent").WithHint("write it in UTF-8")
		}
		return reply, false, nil
	}
	if a.remote() {
		c, err := a.dialRemote(ctx)
		if err != nil {
			return reply, true, err
		}
		defer c.Close()
		reply, err = a.runLine(ctx, c, line, nil)
		return reply, true, err
	}
	if a.told != "" {
		return reply, false, nil // it did not answer before
	}
	home, err := a.homeDir()
	if err != nil {
		return reply, true, err
	}
	c, err := client.Dial(ctx, client.Options{Socket: host.GatewaySocketPath(home)})
	if err != nil {
		// One that begins or ends has the home as well, and no socket yet or any more.
		if s, err := host.GatewayHeld(ctx, home); err == nil && s.Socket != "" {
			a.told = a.hangs(ctx, home)
		}
		return reply, false, nil
	}
	defer c.Close()
	if a.flags.Verbose {
		a.compare(ctx, c)
	}
	// It takes the line in time or not at all: then it is done without it, and by
	// nobody twice.
	line.AtHome = home
	for {
		line.StartBy = time.Now().Add(startByTime)
		var hangs atomic.Bool
		patience := time.AfterFunc(silentTime, func() {
			hangs.Store(true)
			_ = c.Close() // which ends the call
		})
		reply, err = a.runLine(ctx, c, line, func() { patience.Stop() })
		switch answered := patience.Stop(); {
		case err == nil && reply.Refused && time.Now().After(line.StartBy):
			continue // it is there, and was only late
		case err == nil && reply.Refused, err != nil && !answered && hangs.Load(), isRefusal(err):
			a.told = a.hangs(ctx, home)
			return host.Reply{}, false, nil
		default:
			return reply, true, err
		}
	}
}

// isRefusal reports whether a gateway said that it takes no calls, as one does that
// stops. An error with a cause tells of a connection that was lost: there nobody
// knows how far it came.
func isRefusal(err error) bool {
	e, ok := errors.AsType[*plugin.Error](err)
	return ok && e.Code == plugin.Unavailable && e.Err == nil
}

// runLine has a line answered by a gateway, and calls begun when it takes long,
// but is at work.
func (a *app) runLine(ctx context.Context, c *client.Client, line host.Line, begun func()) (reply host.Reply, err error) {
	progress := newProgress(a.stderr, a.flags.Quiet)
	defer progress.done()
	line.Files = true
	files := userFiles{stdin: a.stdin, stdout: a.out, words: line.Args}
	data, err := c.CallWithFiles(ctx, "command.run", line, func(step plugin.Progress) {
		if begun != nil {
			begun()
		}
		if step.Stage != host.StageBegun {
			progress.report(step)
		}
	}, files)
	if err != nil {
		return reply, err
	}
	return reply, json.Unmarshal(data, &reply)
}

// compare says when a gateway is another build than this program.
func (a *app) compare(ctx context.Context, c *client.Client) {
	ctx, cancel := context.WithTimeout(ctx, startByTime)
	defer cancel()
	data, err := c.Call(ctx, "gateway.version", nil, nil)
	var v host.GatewayVersion
	if err == nil && json.Unmarshal(data, &v) == nil && v.Version != host.Version() {
		fmt.Fprintf(a.stderr, "note: the gateway has the version %s, this program %s\n", v.Version, host.Version())
	}
}

// hangs is what people are told when a gateway is there that did not answer in
// time; "" is nothing.
func (a *app) hangs(ctx context.Context, home string) string {
	s, err := host.GatewayHeld(ctx, home)
	if err != nil || s.State == host.GatewayStopped {
		return ""
	}
	return plugin.AsError(unreachable(&s)).Text() + "; this was done without it"
}
