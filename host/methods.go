package host

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"sess/host/chat"
	"sess/host/server"
	"sess/plugin"
	"sess/surfaces"
)

var _ server.Host = (*Host)(nil)

// A Method is a gateway method beside those that the commands have:
// "<command>.invoke" of each, and "<command>.<verb>" of the host's own.
type Method struct {
	Name string
	// Call answers it. Its errors are turned into [*plugin.Error] values.
	Call func(ctx context.Context, caller plugin.Caller, params json.RawMessage, progress plugin.ProgressFunc) (json.RawMessage, error)
}

// hostMethods lists the host's own methods.
func (h *Host) hostMethods() []Method {
	return slices.Concat([]Method{
		{"gateway.dispatch", h.callDispatch},
		{"events.publish", h.callPublish},
		{RelayMethod, h.callRelay},
		{"models.compact", h.callCompact},
	}, h.persistMethods(), h.liveMethods())
}

// AddMethods adds methods to what Call knows. A name that is taken is refused.
func (h *Host) AddMethods(methods ...Method) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range methods {
		if _, taken := h.methods[m.Name]; taken {
			return plugin.Errorf(plugin.Internal, "the method %s is declared twice", m.Name)
		}
		h.methods[m.Name] = m
	}
	return nil
}

// Call answers a gateway method; see [Method] for what there is. The params are
// one JSON object, whose fields are checked. An unknown method's error wraps
// [server.ErrUnknownMethod].
func (h *Host) Call(ctx context.Context, caller plugin.Caller, method string, params json.RawMessage, progress plugin.ProgressFunc) (json.RawMessage, error) {
	h.mu.Lock()
	m, ok := h.methods[method]
	h.mu.Unlock()
	if ok {
		out, err := m.Call(ctx, caller, params, progress)
		if err != nil {
			return nil, plugin.AsError(err)
		}
		return out, nil
	}
	spec, verb, err := h.commandMethod(ctx, method)
	if err != nil {
		return nil, err
	}
	call, err := surfaces.LowerRPC(spec, verb, params)
	if err != nil {
		return nil, err
	}
	res, err := h.Dispatch(ctx, plugin.Call{
		Argv:    append([]string{spec.Command}, call.Argv...),
		Agent:   call.Agent,
		Project: call.Project,
		Session: call.Session,
		Caller:  caller,
		Input:   call.Input,
	}, progress)
	if err != nil {
		return nil, plugin.AsError(err)
	}
	if call.Bare() && len(res.Notices) > 0 && !server.TellNotices(ctx, res.Notices) {
		h.log.Info("notices of a call", "method", method, "caller", caller, "notices", res.Notices)
	}
	return surfaces.RenderRPC(call, res)
}

// commandMethod finds the Spec that a command's method is about, and the verb
// if the method names it.
func (h *Host) commandMethod(ctx context.Context, method string) (spec *plugin.Spec, verb string, err error) {
	command, rest, _ := strings.Cut(method, ".")
	hint := ""
	for _, d := range h.own {
		spec := d.Spec()
		if spec.Command != command {
			continue
		}
		if rest == "invoke" {
			return &spec, "", nil
		}
		verb := strings.ReplaceAll(rest, ".", " ")
		words := strings.Fields(verb)
		if v, n := spec.Find(words); v != nil && n == len(words) && !v.Internal {
			return &spec, v.Name, nil
		}
	}
	for _, p := range h.plugins() {
		if !slices.Contains(p.Manifest.Commands, command) {
			continue
		}
		if rest == "invoke" {
			spec, err := h.spec(ctx, p)
			if err != nil {
				return nil, "", plugin.AsError(err)
			}
			return spec, "", nil
		}
		if d, ok := h.cached(p); ok {
			words := strings.Split(rest, ".")
			if v, n := d.Spec.Find(words); v != nil && n == len(words) && !v.Internal {
				hint = command + `.invoke with "action": "` + v.Name + `"`
			}
		}
	}
	unknown := plugin.Errorf(plugin.Usage, "%w %q", server.ErrUnknownMethod, method)
	near := plugin.Nearest(method, h.Methods(ctx))
	switch {
	case hint != "":
		return nil, "", unknown.WithHint("call %s", hint)
	case near != nil:
		return nil, "", unknown.WithHint("did you mean %s?", strings.Join(near, " or ")).WithDetail("candidates", strings.Join(near, ", "))
	}
	return nil, "", unknown.WithHint("sess gateway call gateway.methods lists the methods")
}

// Methods lists the names that Call knows, sorted. Other names of verbs are left
// out.
func (h *Host) Methods(context.Context) []string {
	h.mu.Lock()
	names := slices.Collect(maps.Keys(h.methods))
	h.mu.Unlock()
	for _, d := range h.own {
		spec := d.Spec()
		names = append(names, spec.Command+".invoke")
		for _, v := range spec.Verbs {
			if !v.Internal && !v.ByHand {
				names = append(names, spec.Command+"."+strings.ReplaceAll(v.Name, " ", "."))
			}
		}
	}
	for _, p := range h.plugins() {
		for _, c := range p.Manifest.Commands {
			if p.sup != nil {
				names = append(names, c+".invoke")
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Commands lists what the surfaces offer: the host's own commands, and those of
// the plugins that can be started.
func (h *Host) Commands(ctx context.Context) []server.Command {
	var all []server.Command
	for _, d := range h.own {
		all = append(all, server.Command{Spec: d.Spec(), HTTP: true})
	}
	for _, p := range h.described(ctx) {
		all = append(all, server.Command{Spec: *p.spec, Plugin: p.Manifest.ID, HTTP: p.exposes("httpRoutes"), Tool: p.exposes("exposeTool")})
	}
	return all
}

// Confirms reports whether chat.confirm wants a person to be asked before a model
// may call a verb.
func (h *Host) Confirms(spec *plugin.Spec, verb *plugin.Verb) bool {
	return chat.Confirms(h.Config().Chat.Confirm, spec, verb)
}

// dispatchParams are those of gateway.dispatch: a call as its client knows it.
type dispatchParams struct {
	Argv      []string `json:"argv"`
	Agent     string   `json:"agent"`
	Project   string   `json:"project"`
	Session   string   `json:"session"`
	Cwd       string   `json:"cwd"`
	Input     []byte   `json:"input"` // base64
	RequestID string   `json:"requestId"`
	// Files says that the client lends its input and output.
	Files bool `json:"files"`
}

// callDispatch answers gateway.dispatch: the command line of any command, and
// everything that it answers.
func (h *Host) callDispatch(ctx context.Context, caller plugin.Caller, params json.RawMessage, progress plugin.ProgressFunc) (json.RawMessage, error) {
	var p dispatchParams
	if err := surfaces.Params(params, &p); err != nil {
		return nil, err
	}
	if p.RequestID != "" && !plugin.GoodRequestID(p.RequestID) {
		return nil, plugin.Errorf(plugin.Usage, "requestId: %q is not an id of letters, digits and ._:- with at most 128 characters", p.RequestID).
			WithHint("leave it out to have one made").WithDetail("field", "requestId")
	}
	call := plugin.Call{
		Argv: p.Argv, Agent: p.Agent, Project: p.Project, Session: p.Session,
		Caller: caller, Cwd: p.Cwd, RequestID: p.RequestID,
	}
	if p.Input != nil {
		call.Input = bytes.NewReader(p.Input)
	}
	if files := server.ClientFiles(ctx); files != nil && p.Files {
		ctx = plugin.WithFiles(ctx, files)
	}
	res, err := h.Dispatch(ctx, call, progress)
	if err != nil {
		return nil, err
	}
	return surfaces.RenderWhole(res)
}
