package surfaces

import (
	"bytes"
	"encoding/json"

	"sess/plugin"
)

// MCPTool is an agent tool as clients of the Model Context Protocol are told of
// it. What it can do is that of all its actions: they are one tool.
type MCPTool struct {
	Tool
	Title string
	// ReadOnly tools change nothing, Destructive ones have an action that removes
	// stored data.
	ReadOnly, Destructive bool
}

// MCPToolOf derives the tool of a command.
func MCPToolOf(spec *plugin.Spec) MCPTool {
	tool := MCPTool{Tool: toolSchema(spec, false), Title: spec.Summary, ReadOnly: true}
	for i := range spec.Verbs {
		v := &spec.Verbs[i]
		if v.Internal || v.ByHand {
			continue
		}
		tool.ReadOnly = tool.ReadOnly && v.Effect == plugin.EffectRead
		tool.Destructive = tool.Destructive || v.Effect == plugin.EffectDestroy
	}
	return tool
}

// LowerMCP turns the arguments of a tool call into a call: an object with the
// field "action", or one that is written in a string.
func LowerMCP(spec *plugin.Spec, arguments json.RawMessage) (Lowered, error) {
	if len(bytes.TrimSpace(arguments)) == 0 {
		return Lower(spec, "", map[string]any{})
	}
	value, err := parseValue(arguments)
	if err != nil {
		return Lowered{}, plugin.Errorf(plugin.Usage, "bad JSON: %w", err).WithHint("send the arguments as one JSON object")
	}
	fields, ok := spelt(value, "{").(map[string]any)
	if !ok {
		return Lowered{}, plugin.Errorf(plugin.Usage, "arguments: %s is not an object", show(value)).WithDetail("field", "arguments")
	}
	return Lower(spec, "", fields)
}

// MCPResult is the answer to a tool call: Text for the model, Structured the same
// for programs. Both have at most [MaxToolText] bytes.
type MCPResult struct {
	Text string
	// Structured is one object: {"text","data"}, with "notices" and "page" where
	// there are some, or {"error":{"code","message","hint","details"}}. It is nil
	// where it would be too long: JSON may take more room than what it writes.
	Structured json.RawMessage
	IsError    bool
}

// RenderMCP renders an answer, or an error, which is a result as well, so that the
// model can act on it.
func RenderMCP(result plugin.Result, err error) MCPResult {
	if err == nil && result.Data != nil && !json.Valid(result.Data) {
		err = plugin.Errorf(plugin.Internal, "the answer is not JSON")
	}
	out := MCPResult{}
	out.Text, out.IsError = ToolRender(result, err)
	if err != nil {
		out.Structured = encodeJSON(struct {
			Error toolError `json:"error"`
		}{newToolError(plugin.AsError(err))})
	} else {
		result = fit(result)
		out.Structured = encodeJSON(changeBody{result.Text, result.Data, result.Notices, result.Page})
	}
	if out.Structured = bytes.TrimSpace(out.Structured); len(out.Structured) > MaxToolText {
		out.Structured = nil
	}
	return out
}
