package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"sess/dispatch"
	"sess/host"
	"sess/plugin"
	"sess/store/durable"
)

const (
	// startTime bounds the wait for a gateway that begins, endTime that for one
	// that ends: it takes 5 seconds at most by itself.
	startTime = 30 * time.Second
	endTime   = 10 * time.Second
)

// gatewayOut is what a gateway in the background prints beside its log, such as
// the text of a crash; each start begins it anew.
const gatewayOut = "gateway.out"

// gatewayCommand declares "gateway".
func (a *app) gatewayCommand() dispatch.Command {
	listen := func(fs *dispatch.Flags) {
		fs.String("listen", "", "address of the HTTP server instead of the configured one, host:port; port 0 picks a free one")
	}
	return dispatch.Command{
		Name:    "gateway",
		Summary: "The server for other programs",
		Verbs: []dispatch.Verb{{
			Name: "run", Summary: "Run the gateway in the foreground",
			Help: "It answers until it is told to stop, by sess gateway stop, Ctrl-C, or the signals TERM and HUP (HUP unless it is ignored, " +
				"as under nohup): calls that run may finish, sessions are written, plugins end, all within 5 seconds. A second Ctrl-C ends it at once.\n\n" +
				"With --json its status is printed once it answers.",
			Examples: []string{"run", "run --listen=127.0.0.1:0"},
			Flags:    listen, Effect: plugin.EffectWrite, Run: a.gatewayRun,
		}, {
			Name: "start", Summary: "Start the gateway in the background",
			Help:  "It is there when the command has ended, and goes on when the terminal closes.",
			Flags: listen, Effect: plugin.EffectWrite, Run: a.gatewayStart,
		}, {
			Name: "stop", Summary: "Stop the gateway, and wait until it has ended",
			Effect: plugin.EffectWrite, Run: a.gatewayStop,
		}, {
			Name: "restart", Summary: "Stop the gateway if it runs, and start it in the background",
			Help:  "What --listen said at its start holds again, unless it is given now.",
			Flags: listen, Effect: plugin.EffectWrite, Run: a.gatewayRestart,
		}, {
			Name: "reload", Summary: "Have the gateway read its configuration again",
			Help: "Plugins that are new, or whose configuration or program has changed, are started again; the others go on, and no call is lost. " +
				"A wrong configuration is refused, and the old one stays. What the gateway's own part says holds from the next start on.",
			Effect: plugin.EffectWrite, Run: a.gatewayReload,
		}, {
			Name: "status", Summary: "Show whether the gateway runs, and where it is reached",
			Help: "The state is running, stopping, stopped, or unreachable: then a process has the home's lock but does not answer. " +
				"The exit status is 0 in each case; scripts read the state with --json.",
			Effect: plugin.EffectRead, Run: a.gatewayStatus,
		}, {
			Name: "token", Summary: "Print the token that clients over the network have to show",
			Help: "Whoever has it can do everything that you can do here, except for changing plugins. It comes from " + host.TokenEnv + ", gateway.token in the configuration, " +
				"or a file in the home that the first start makes.",
			Flags: func(fs *dispatch.Flags) {
				fs.Bool("show", false, "print it also where the output is no terminal")
				fs.Bool("rotate", false, "make a new one first; it holds from the next start on")
			},
			Effect: plugin.EffectRead, Run: a.gatewayToken,
		}, {
			Name: "call", Summary: "Call a method of the gateway and print what it answers",
			Help: "gateway.methods lists the methods. events.subscribe prints each event as one line of JSON, until Ctrl-C; " +
				"its params choose among them.",
			Examples: []string{
				"call gateway.methods", `call sess.invoke --params='{"action":"list"}'`,
				`call events.subscribe --params='{"kinds":["sess","plugins"]}'`,
			},
			Args: []plugin.Arg{{Name: "method", Type: plugin.TypeString, Required: true, Help: "name of the method"}},
			Flags: func(fs *dispatch.Flags) {
				fs.String("params", "", "its params, a JSON object")
			},
			Effect: plugin.EffectRead, Run: a.gatewayCall,
		}, {
			Name: "install", Summary: "Write a service file that starts the gateway when you log in",
			Help: "On Linux it is a unit of systemd, on macOS an agent of launchd, for this user only. The file is written, " +
				"and the commands that switch it on are printed; nothing is started.",
			Effect: plugin.EffectWrite, Run: a.gatewayInstall,
		}, {
			Name: "uninstall", Summary: "Remove the service file that install wrote",
			Help:   "A file that was changed since, or that something else wrote, is left.",
			Effect: plugin.EffectWrite, Run: a.gatewayUninstall,
		}},
	}
}

// upVerb is "gateway run" for people.
func (a *app) upVerb() dispatch.Verb {
	return dispatch.Verb{
		Name: "up", Summary: "Run the gateway here, and say how to reach it",
		Help: "It is sess gateway run for a terminal: Ctrl-C ends it.",
		Flags: func(fs *dispatch.Flags) {
			fs.String("listen", "", "address of the HTTP server instead of the configured one, host:port; port 0 picks a free one")
		},
		Effect: plugin.EffectWrite, Run: a.gatewayUp,
	}
}

func (a *app) gatewayRun(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	return a.serve(ctx, in.String("listen"), func(s host.GatewayStatus) string {
		return fmt.Sprintf("gateway ready at %s, process %d", s.Address, s.PID)
	})
}

func (a *app) gatewayUp(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	return a.serve(ctx, in.String("listen"), func(s host.GatewayStatus) string {
		return fmt.Sprintf("The gateway is ready at %s\n\n"+
			"  commands   every sess command of yours goes through it from now on\n"+
			"  programs   send the header: Authorization: Bearer <token>\n"+
			"  the token  %s\n\n"+
			"Ctrl-C ends it.", s.Address, a.typed("gateway", "token"))
	})
}

// typed is a command line of this program for the home in use.
func (a *app) typed(words ...string) string {
	if a.flags.Home != "" {
		words = append([]string{"--home=" + a.flags.Home}, words...)
	}
	return prog + " " + quote(words)
}

// serve runs the gateway until ctx ends or it is told to stop. What it is, is
// printed as soon as it answers.
func (a *app) serve(ctx context.Context, listen string, ready func(host.GatewayStatus) string) (plugin.Result, error) {
	options, err := a.hostOptions()
	if err != nil {
		return plugin.Result{}, err
	}
	g, err := host.OpenGateway(ctx, host.GatewayOptions{Host: options, Program: a.program, Listen: listen})
	if err != nil {
		return plugin.Result{}, err
	}
	a.shown = true
	s := g.Status(ctx)
	text := ready(s)
	if a.flags.JSON {
		data, err := json.Marshal(s)
		if err != nil {
			return plugin.Result{}, err
		}
		text = string(data)
	}
	if a.flags.JSON || !a.flags.Quiet {
		_, _ = fmt.Fprintln(a.out, text) // remembered
	}
	if err := g.Serve(ctx); err != nil {
		return plugin.Result{}, err
	}
	return plugin.Result{}, nil
}

func (a *app) gatewayStart(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	home, err := a.homeDir()
	if err != nil {
		return plugin.Result{}, err
	}
	s, err := a.startGateway(ctx, home, in.String("listen"))
	if err != nil {
		return plugin.Result{}, err
	}
	return answer(fmt.Sprintf("gateway started at %s, process %d", s.Address, s.PID), s)
}

// startGateway runs this program again as a gateway that outlives this process
// and its terminal, and returns when that answers. What keeps it from doing so is
// the error.
func (a *app) startGateway(ctx context.Context, home, listen string) (s host.GatewayStatus, err error) {
	exe, err := os.Executable()
	if err != nil {
		return s, err
	}
	logs, err := durable.OpenDir(filepath.Join(home, "logs"))
	if err != nil {
		return s, host.HomeError(home, err)
	}
	defer logs.Close()
	outPath := filepath.Join(logs.Dir(), gatewayOut)
	out, err := os.OpenFile(outPath, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, durable.FileMode)
	if err != nil {
		return s, err
	}
	defer out.Close()
	args := []string{"--home=" + home, "--json", "gateway", "run"}
	if listen != "" {
		args = append(args, "--listen="+listen)
	}
	cmd := exec.Command(exe, args...)
	cmd.Dir, cmd.Env, cmd.Stderr, cmd.SysProcAttr = home, a.environ, out, detached()
	said, err := cmd.StdoutPipe()
	if err != nil {
		return s, err
	}
	if err := cmd.Start(); err != nil {
		return s, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	// It prints one document, once it answers or has failed, and nothing after.
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	var doc struct {
		host.GatewayStatus
		Error   string            `json:"error"`
		Code    plugin.Code       `json:"code"`
		Hint    string            `json:"hint"`
		Details map[string]string `json:"details"`
	}
	err = json.NewDecoder(said).Decode(&doc)
	switch ended := !stop(); {
	case ended:
		_ = cmd.Wait()
		return s, plugin.Errorf(plugin.Unavailable, "the gateway was not ready in time: %w", ctx.Err()).WithHint("see %s", outPath)
	case err != nil:
		exit := cmd.Wait()
		printed, _ := os.ReadFile(outPath)
		return s, plugin.Errorf(plugin.Unavailable, "the gateway ended at its start (%v): %s", exit, lastLines(printed)).WithHint("see %s", outPath)
	case doc.Error != "":
		_ = cmd.Wait()
		return s, &plugin.Error{Code: doc.Code, Message: doc.Error, Hint: doc.Hint, Details: doc.Details}
	}
	return doc.GatewayStatus, cmd.Process.Release()
}

// lastLines is the end of what a process printed.
func lastLines(printed []byte) string {
	const most = 2000
	printed = bytes.TrimSpace(printed)
	if len(printed) > most {
		printed = printed[len(printed)-most:]
	}
	if len(printed) == 0 {
		return "it said nothing"
	}
	return string(printed)
}

func (a *app) gatewayStop(ctx context.Context, _ *dispatch.Invocation) (plugin.Result, error) {
	if a.remote() {
		data, err := a.callGateway(ctx, "gateway.stop", nil)
		return plugin.Result{Text: "the gateway is stopping", Data: data}, err
	}
	home, err := a.homeDir()
	if err != nil {
		return plugin.Result{}, err
	}
	s, err := a.stopGateway(ctx, home)
	if err != nil {
		return plugin.Result{}, err
	}
	if s.State == host.GatewayStopped {
		return answer("no gateway runs for "+home, s)
	}
	s.State, s.Reason = host.GatewayStopped, ""
	return answer(fmt.Sprintf("gateway stopped: process %d", s.PID), s)
}

// stopGateway ends the gateway of a home, and returns what it was.
func (a *app) stopGateway(ctx context.Context, home string) (host.GatewayStatus, error) {
	s, err := a.askStatus(ctx, home)
	if err != nil || s.State == host.GatewayStopped {
		return s, err
	}
	if s.State == host.GatewayUnreachable {
		return s, unreachable(&s)
	}
	if _, err := a.callHome(ctx, home, "gateway.stop", nil); err != nil && s.State != host.GatewayStopping {
		return s, err
	}
	return s, host.AwaitGatewayEnd(ctx, home, endTime)
}

// unreachable explains a lock whose holder does not answer.
func unreachable(s *host.GatewayStatus) error {
	e := plugin.Errorf(plugin.Unavailable, "a gateway has the home %s but does not answer: %s", s.Home, s.String())
	if s.PID == 0 {
		return e.WithHint("see which process has gateway.lock in the home open, and end it")
	}
	// One that still took TERM would have answered, or ended within its time.
	kill := "kill -9"
	if runtime.GOOS == "windows" {
		kill = "taskkill /F /PID"
	}
	return e.WithHint("if it hangs, end it with: %s %d", kill, s.PID).WithDetail("pid", fmt.Sprint(s.PID))
}

func (a *app) gatewayRestart(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	options, err := a.hostOptions()
	if err != nil {
		return plugin.Result{}, err
	}
	home := options.Home
	if err := host.CheckGateway(host.GatewayOptions{Host: options, Listen: in.String("listen")}); err != nil {
		return plugin.Result{}, err
	}
	was, err := a.stopGateway(ctx, home)
	if err != nil {
		return plugin.Result{}, err
	}
	listen := was.Listen
	if in.Changed("listen") {
		listen = in.String("listen")
	}
	s, err := a.startGateway(ctx, home, listen)
	if err != nil {
		return plugin.Result{}, err
	}
	return answer(fmt.Sprintf("gateway started at %s, process %d", s.Address, s.PID), s)
}

func (a *app) gatewayReload(ctx context.Context, _ *dispatch.Invocation) (plugin.Result, error) {
	data, err := a.callGateway(ctx, "gateway.reload", nil)
	if err != nil {
		return plugin.Result{}, err
	}
	var r host.Reloaded
	if err := json.Unmarshal(data, &r); err != nil {
		return plugin.Result{}, err
	}
	res := plugin.Result{Data: data, Text: "configuration reloaded"}
	for _, part := range []struct {
		what string
		ids  []string
	}{{"added", r.Added}, {"changed", r.Changed}, {"removed", r.Removed}} {
		if len(part.ids) > 0 {
			res.Text += "; " + part.what + ": " + strings.Join(part.ids, ", ")
		}
	}
	for id, why := range r.Failed {
		res.Notices = append(res.Notices, fmt.Sprintf("plugin %s does not run: %s", id, why))
	}
	if len(r.Restart) > 0 {
		res.Notices = append(res.Notices, fmt.Sprintf("%s: changed, and holds from the next start on: %s", strings.Join(r.Restart, ", "), a.typed("gateway", "restart")))
	}
	if !slices.Contains(r.Restart, "gateway.listen") {
		return res, nil
	}
	var s host.GatewayStatus
	if data, err = a.callGateway(ctx, "gateway.status", nil); err == nil {
		err = json.Unmarshal(data, &s)
	}
	if s.Listen != "" { // a restart keeps it
		res.Notices = append(res.Notices, fmt.Sprintf("gateway.listen holds only without --listen, and this gateway was started with --listen=%s: %s, then %s",
			s.Listen, a.typed("gateway", "stop"), a.typed("gateway", "start")))
	}
	return res, err
}

func (a *app) gatewayStatus(ctx context.Context, _ *dispatch.Invocation) (plugin.Result, error) {
	if a.remote() {
		data, err := a.callGateway(ctx, "gateway.status", nil)
		if err != nil {
			return plugin.Result{}, err
		}
		var s host.GatewayStatus
		if err := json.Unmarshal(data, &s); err != nil {
			return plugin.Result{}, err
		}
		return answer(statusText(&s), s)
	}
	home, err := a.homeDir()
	if err != nil {
		return plugin.Result{}, err
	}
	s, err := a.askStatus(ctx, home)
	if err != nil {
		return plugin.Result{}, err
	}
	res, err := answer(statusText(&s), s)
	if s.State == host.GatewayUnreachable {
		res.Notices = append(res.Notices, plugin.AsError(unreachable(&s)).Text())
	}
	return res, err
}

// askStatus asks the gateway of a home, or tells from its lock why there is none
// to ask.
func (a *app) askStatus(ctx context.Context, home string) (s host.GatewayStatus, err error) {
	data, err := a.callHome(ctx, home, "gateway.status", nil)
	if err == nil {
		return s, json.Unmarshal(data, &s)
	}
	if ctx.Err() != nil {
		return s, err
	}
	return host.GatewayHeld(ctx, home)
}

func statusText(s *host.GatewayStatus) string {
	var b strings.Builder
	line := func(key, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-9s %s\n", key+":", value)
		}
	}
	state := string(s.State)
	if s.PID != 0 {
		state += fmt.Sprintf(", process %d", s.PID)
	}
	if !s.StartedAt.IsZero() {
		state += ", since " + s.StartedAt.Local().Format(time.DateTime)
	}
	line("gateway", state)
	line("address", s.Address)
	line("socket", s.Socket)
	line("home", s.Home)
	line("version", s.Version)
	line("log", s.Log)
	var plugins []struct{ ID, State string }
	if json.Unmarshal(s.Plugins, &plugins) == nil {
		for _, p := range plugins {
			line("plugin", p.ID+" "+p.State)
		}
	}
	line("reason", s.Reason)
	return strings.TrimSuffix(b.String(), "\n")
}

func (a *app) gatewayToken(_ context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	if !in.Bool("show") && !isTerminal(a.stdout) {
		return plugin.Result{}, plugin.Errorf(plugin.Usage, "the token is a secret, and the output is no terminal").
			WithHint("to print it all the same: %s", a.typed("gateway", "token", "--show"))
	}
	home, err := a.homeDir()
	if err != nil {
		return plugin.Result{}, err
	}
	var token string
	var notices []string
	if in.Bool("rotate") {
		token, err = host.RotateGatewayToken(home, builtins(), a.environ)
		notices = append(notices, "it holds from the next start on: "+a.typed("gateway", "restart"))
	} else {
		token, _, err = host.ReadGatewayToken(home, builtins(), a.environ)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return plugin.Result{}, plugin.Errorf(plugin.NotFound, "there is no token yet in %s", home).
			WithHint("the first start makes it: %s", a.typed("gateway", "start"))
	}
	if err != nil {
		return plugin.Result{}, err
	}
	res, err := answer(token, map[string]string{"token": token})
	res.Notices = notices
	return res, err
}

func (a *app) gatewayCall(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	var params json.RawMessage
	if in.Changed("params") {
		params = json.RawMessage(in.String("params"))
		if !json.Valid(params) || !bytes.HasPrefix(bytes.TrimSpace(params), []byte("{")) {
			return plugin.Result{}, plugin.Errorf(plugin.Usage, "--params is not a JSON object").
				WithHint(`write it in single quotes: --params='{"action":"list"}'`)
		}
	}
	if in.Arg("method") == "events.subscribe" {
		return plugin.Result{}, a.follow(ctx, params)
	}
	c, err := a.dialGateway(ctx)
	if err != nil {
		return plugin.Result{}, err
	}
	defer c.Close()
	var notices []string
	c.OnNotices(func(more []string) { notices = append(notices, more...) })
	data, err := call(ctx, c, in.Arg("method"), params)
	if err != nil {
		return plugin.Result{}, err
	}
	var text bytes.Buffer
	if err := json.Indent(&text, data, "", "  "); err != nil {
		return plugin.Result{}, err
	}
	return plugin.Result{Text: text.String(), Data: data, Notices: notices}, nil
}

// follow prints what happens in the gateway, one event a line, until ctx ends:
// a person's Ctrl-C is how it is meant to end.
func (a *app) follow(ctx context.Context, filter json.RawMessage) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a.out.onFailure(cancel) // which is told of at the end
	c, err := a.dialGateway(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	events, err := c.Subscribe(ctx, filter)
	if err != nil {
		return err
	}
	if !a.flags.Quiet && !a.flags.JSON {
		fmt.Fprintln(a.stderr, "following what happens; Ctrl-C ends it")
	}
	for {
		e, err := events.Next(ctx)
		switch {
		case ctx.Err() != nil:
			a.shown = true
			return nil
		case errors.Is(err, io.EOF):
			return plugin.Errorf(plugin.Unavailable, "the gateway has gone, and with it what happens there").
				WithHint("follow it again when sess gateway status says that it runs")
		case err != nil:
			return err
		}
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		_, _ = a.out.Write(append(line, '\n')) // remembered
	}
}
