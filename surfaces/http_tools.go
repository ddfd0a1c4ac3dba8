package surfaces

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"sess/plugin"
)

// Tools are the tools that can be called from outside, over HTTP or MCP.
type Tools struct {
	Offered []*plugin.Spec
	// Off are the keys of the configuration that switch off the tools of further
	// commands, by the tools' names.
	Off map[string]string
}

// List is the body that tells of the tools: a list of {"name","description",
// "inputSchema"}.
func (t *Tools) List() []byte {
	type tool struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"inputSchema"`
	}
	list := make([]tool, 0, len(t.Offered))
	for _, spec := range t.Offered {
		list = append(list, tool(ToolSchema(spec)))
	}
	return encodeJSON(list)
}

// Lower turns the body of a tool call into a call: {"tool","args","agent",
// "project","session"}, where "name" may stand for "tool" and "arguments" for
// "args", which may be an object or one that is written in a string.
func (t *Tools) Lower(body []byte) (*plugin.Spec, Lowered, error) {
	fields, err := ParseObject(body)
	if err != nil {
		return nil, Lowered{}, err
	}
	name, err := eitherField(fields, "tool", "name")
	if err != nil {
		return nil, Lowered{}, err
	}
	text, ok := name.(string)
	switch {
	case name == nil:
		return nil, Lowered{}, plugin.Errorf(plugin.Usage, "tool is missing").WithHint("%s", t.names())
	case !ok:
		return nil, Lowered{}, plugin.Errorf(plugin.Usage, "tool: %s is not a string", show(name)).WithHint("%s", t.names())
	}
	spec, err := t.Find(text)
	if err != nil {
		return nil, Lowered{}, err
	}
	given, err := eitherField(fields, "args", "arguments")
	if err != nil {
		return nil, Lowered{}, err
	}
	args, ok := spelt(given, "{").(map[string]any)
	if given != nil && !ok {
		return nil, Lowered{}, plugin.Errorf(plugin.Usage, "args: %s is not an object", show(given)).WithDetail("field", "args")
	}
	args = maps.Clone(args)
	if args == nil {
		args = map[string]any{}
	}
	for _, field := range hostFields() {
		value, ok := fields[field]
		if !ok {
			continue
		}
		if _, twice := args[field]; twice {
			return nil, Lowered{}, plugin.Errorf(plugin.Usage, "%s is given twice", field).WithHint("give it once").WithDetail("field", field)
		}
		args[field] = value
		delete(fields, field)
	}
	if len(fields) > 0 {
		field := slices.Sorted(maps.Keys(fields))[0]
		e := plugin.Errorf(plugin.Usage, "unknown field %q: a tool call takes tool, args, agent, project, session", shorten(field, 40)).WithDetail("field", field)
		if near := plugin.Nearest(field, append([]string{"tool", "args"}, hostFields()...)); near != nil {
			e = e.WithHint("did you mean %s?", strings.Join(near, " or "))
		}
		return nil, Lowered{}, e
	}
	lowered, err := Lower(spec, "", args)
	return spec, lowered, err
}

// eitherField takes the value of a field that has two names, nil if none.
func eitherField(fields map[string]any, name, other string) (any, error) {
	value, given := fields[name]
	second, twice := fields[other]
	delete(fields, name)
	delete(fields, other)
	switch {
	case given && twice:
		return nil, plugin.Errorf(plugin.Usage, "%s and %s are both given", name, other).WithHint("give one of them")
	case twice:
		return second, nil
	}
	return value, nil
}

// Find returns the command whose tool has that name. Where there is none, the error
// says which tools there are.
func (t *Tools) Find(name string) (*plugin.Spec, error) {
	for _, spec := range t.Offered {
		if spec.ToolName() == name {
			return spec, nil
		}
	}
	if key := t.Off[name]; key != "" {
		return nil, plugin.Errorf(plugin.NotFound, "the tool %s is switched off by %s", name, key).WithHint("%s", t.names())
	}
	return nil, plugin.Errorf(plugin.NotFound, "no tool %q", shorten(name, 40)).WithHint("%s", t.names())
}

// names says which tools there are.
func (t *Tools) names() string {
	if len(t.Offered) == 0 {
		return "there is no tool"
	}
	names := make([]string, len(t.Offered))
	for i, spec := range t.Offered {
		names[i] = spec.ToolName()
	}
	return "the tools are " + strings.Join(names, ", ")
}

// RenderHTTPTool turns the answer of a tool call into a response: {"ok":true,
// "result":{"text","data"}}, with "notices" and "page" where there are some, or
// {"ok":false,"error":{"code","message","hint"}}.
func RenderHTTPTool(result plugin.Result, err error) HTTPAnswer {
	if err == nil && result.Data != nil && !json.Valid(result.Data) {
		err = plugin.Errorf(plugin.Internal, "the answer is not JSON")
	}
	if err != nil {
		e := plugin.AsError(err)
		return HTTPAnswer{Status: e.Code.Info().HTTP, Body: HTTPToolErrorBody(e)}
	}
	return HTTPAnswer{Status: httpOK, Body: encodeJSON(struct {
		OK     bool       `json:"ok"`
		Result changeBody `json:"result"`
	}{true, changeBody{result.Text, result.Data, result.Notices, result.Page}})}
}

// HTTPToolErrorBody is the body of a tool call that failed, whatever the reason:
// {"ok": false, "error": {"code", "message", "hint", "details"}}.
func HTTPToolErrorBody(e *plugin.Error) []byte {
	return encodeJSON(struct {
		OK    bool      `json:"ok"`
		Error toolError `json:"error"`
	}{false, newToolError(e)})
}

// toolError is the error of a tool call, for programs.
type toolError struct {
	Code    plugin.Code       `json:"code"`
	Message string            `json:"message"`
	Hint    string            `json:"hint,omitempty"`
	Details map[string]string `json:"details,omitempty"`
}

func newToolError(e *plugin.Error) toolError { return toolError{e.Code, e.Message, e.Hint, e.Details} }
