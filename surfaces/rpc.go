package surfaces

import (
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"

	"sess/plugin"
)

// RPCCall is a call of a command by a gateway method, lowered.
type RPCCall struct {
	// Verb is nil where the words name none: the command says what it has.
	Verb                    *plugin.Verb
	Argv                    []string
	Agent, Project, Session string
	// Input is the content that the call brings; nil where it brings none.
	Input io.Reader
	// Whole asks for everything that the command answers, as its command line
	// shows it.
	Whole bool
}

// Bare reports whether the answer is the bare data, which has no room for notices.
func (c *RPCCall) Bare() bool {
	return !c.Whole && c.Verb != nil && c.Verb.Effect == plugin.EffectRead
}

// rpcArgv are the params that hold a command line.
type rpcArgv struct {
	Argv    []string `json:"argv"`
	Agent   *string  `json:"agent"`
	Project *string  `json:"project"`
	Session *string  `json:"session"`
	Input   *string  `json:"input"`
}

// LowerRPC lowers the params of a method of a command. verb is the one that the
// method names, or "" for "<command>.invoke": then the params are {"action": …}
// and the verb's fields, or {"argv": […]} with the words of a command line,
// which reach the command as they are. Beside them agent, project and session
// choose what is meant; none of the host's flags may stand in argv.
func LowerRPC(spec *plugin.Spec, verb string, params json.RawMessage) (RPCCall, error) {
	fields, err := ParseObject(params)
	if err != nil {
		return RPCCall{}, err
	}
	if _, words := fields["argv"]; words && verb == "" {
		return lowerArgv(spec, fields, params)
	}
	l, err := Lower(spec, verb, fields)
	if err != nil {
		return RPCCall{}, err
	}
	return RPCCall{Verb: l.Verb, Argv: l.Argv, Agent: l.Agent, Project: l.Project, Session: l.Session, Input: l.Input}, nil
}

func lowerArgv(spec *plugin.Spec, fields map[string]any, params json.RawMessage) (RPCCall, error) {
	if _, both := fields["action"]; both {
		return RPCCall{}, plugin.Errorf(plugin.Usage, "both action and argv are given").WithHint("give one of them")
	}
	var p rpcArgv
	if err := Params(params, &p); err != nil {
		return RPCCall{}, err
	}
	call := RPCCall{Argv: p.Argv, Whole: true}
	for name, from := range map[string]*string{"agent": p.Agent, "project": p.Project, "session": p.Session} {
		if from != nil && *from == "" {
			return RPCCall{}, plugin.Errorf(plugin.Usage, "%s is empty", name).WithHint("leave it out for the default").WithDetail("field", name)
		}
	}
	if p.Input != nil {
		call.Input = strings.NewReader(*p.Input)
	}
	call.Agent, call.Project, call.Session = deref(p.Agent), deref(p.Project), deref(p.Session)
	if len(p.Argv) == 0 {
		return RPCCall{}, plugin.Errorf(plugin.Usage, "argv is empty").WithHint(`give a verb and its words, such as ["%s"]`, firstVerb(spec)).WithDetail("field", "argv")
	}
	find := func(words []string) *plugin.Verb {
		v, _ := spec.Find(words)
		return v
	}
	if err := refuseHostFlags(p.Argv, find); err != nil {
		return RPCCall{}, err
	}
	call.Verb = find(p.Argv)
	return call, nil
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// firstVerb is an example of a verb.
func firstVerb(spec *plugin.Spec) string {
	for i := range spec.Verbs {
		if v := &spec.Verbs[i]; !v.Internal {
			return v.Name
		}
	}
	return "help"
}

// refuseHostFlags refuses the host's flags where they cannot be meant: outside a
// command line that the host itself has read.
func refuseHostFlags(argv []string, find FindVerb) error {
	s, err := scan(argv, find)
	for _, f := range hostFlags() {
		text, on := s.host.text(f.Name), s.host.on(f.Name)
		pending := s.pending != nil && s.pending.Name == f.Name && text != nil
		if !pending && (text == nil || *text == "") && (on == nil || !*on) {
			continue
		}
		e := plugin.Errorf(plugin.Usage, "--%s has no meaning in argv", f.Name).WithDetail("field", f.Name)
		switch f.Name {
		case "agent", "project", "session":
			return e.WithHint("give it as the field %s beside argv", f.Name)
		}
		return e.WithHint("leave it out")
	}
	return err
}

// Params parses the params of a gateway method that is not a command's into a
// struct. Only the names in its json tags are fields, in their exact case.
func Params(params json.RawMessage, into any) error {
	fields, err := ParseObject(params)
	if err != nil {
		return err
	}
	var known []string
	for t, i := reflect.TypeOf(into).Elem(), 0; i < t.NumField(); i++ {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name != "" && name != "-" {
			known = append(known, name)
		}
	}
	takes := "it takes " + strings.Join(known, ", ")
	if known == nil {
		takes = "it takes no fields"
	}
	for field, value := range fields {
		if !slices.Contains(known, field) {
			e := plugin.Errorf(plugin.Usage, "unknown field %q: %s", shorten(field, 40), takes).WithDetail("field", field)
			if near := plugin.Nearest(field, known); near != nil {
				e = e.WithHint("did you mean %s?", strings.Join(near, " or ")).WithDetail("candidates", strings.Join(near, ", "))
			}
			return e
		}
		if value == nil {
			return plugin.Errorf(plugin.Usage, "%s is null", field).WithHint("leave the field out").WithDetail("field", field)
		}
	}
	if len(fields) == 0 {
		return nil
	}
	if err := json.Unmarshal(params, into); err != nil {
		return BadJSON(err)
	}
	return nil
}

// BadJSON is the error for a caller whose JSON could not be read into what it
// stands for, as encoding/json tells it.
func BadJSON(err error) *plugin.Error {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case !ok:
		return plugin.Errorf(plugin.Usage, "bad JSON: %w", err)
	case wrong.Field == "":
		return plugin.Errorf(plugin.Usage, "%s is not %s", wrong.Value, jsonKind(wrong.Type))
	}
	return plugin.Errorf(plugin.Usage, "%s: %s is not %s", wrong.Field, wrong.Value, jsonKind(wrong.Type)).WithDetail("field", wrong.Field)
}

// jsonKind names what JSON has for a type of Go.
func jsonKind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "a boolean"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "an object"
	}
	return "a whole number"
}

// whole is everything that a command answers.
type whole struct {
	Text    string          `json:"text"`
	Data    json.RawMessage `json:"data"`
	Notices []string        `json:"notices,omitempty"`
	Page    *plugin.Page    `json:"page,omitempty"`
}

// RenderRPC renders the answer to a call: the bare data where the verb only
// reads, and otherwise, or if the whole is asked for, {"text", "data"}, with
// "notices" and "page" where there are some.
func RenderRPC(call RPCCall, result plugin.Result) (json.RawMessage, error) {
	if result.Data != nil && !json.Valid(result.Data) {
		return nil, plugin.Errorf(plugin.Internal, "the answer is not JSON")
	}
	if call.Bare() {
		if result.Data == nil && result.Text != "" {
			return json.Marshal(result.Text)
		}
		if result.Data == nil {
			return json.RawMessage("null"), nil
		}
		return result.Data, nil
	}
	return RenderWhole(result)
}

// RenderWhole renders everything that a command answers.
func RenderWhole(result plugin.Result) (json.RawMessage, error) {
	out, err := json.Marshal(whole{result.Text, result.Data, result.Notices, result.Page})
	if err != nil {
		return nil, plugin.Errorf(plugin.Internal, "the answer is not JSON: %w", err)
	}
	return out, nil
}

// RPCError is an error as JSON-RPC 2.0 has it.
type RPCError struct {
	Code    int          `json:"code"`
	Message string       `json:"message"`
	Data    RPCErrorData `json:"data"`
}

// RPCErrorData tells programs what an error is about.
type RPCErrorData struct {
	Code    plugin.Code       `json:"code"`
	Hint    string            `json:"hint,omitempty"`
	Details map[string]string `json:"details,omitempty"`
}

// RenderRPCError renders an error for a client. Its cause stays behind.
func RenderRPCError(err error) RPCError {
	e := plugin.AsError(err)
	return RPCError{e.Code.Info().JSONRPC, e.Message, RPCErrorData{e.Code, e.Hint, e.Details}}
}
