package surfaces

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sess/plugin"
)

// HTTPOperation describes an endpoint that no Spec declares.
type HTTPOperation struct {
	Method, Path string
	ID           string // unique among the operations
	Summary      string
	Description  string
	// Open endpoints are served without a token.
	Open bool
	// Parameters are those of the query and the headers; the path names its own.
	Parameters []HTTPParameter
	// Request is the JSON Schema of the body; nil where there is none.
	Request json.RawMessage
	// Status is that of success, 0 means 200; Type is the media type of its body,
	// "" means JSON, and Response the body's JSON Schema, nil means any.
	Status   int
	Type     string
	Response json.RawMessage
	// Failure is the JSON Schema of the body of an error; nil means the one that
	// all routes have, which FailureRef refers to.
	Failure json.RawMessage
}

// HTTPParameter is a parameter of an endpoint that no Spec declares.
type HTTPParameter struct {
	Name     string
	In       string // "query" or "header"
	Help     string
	Type     string // of JSON Schema; "" means "string"
	Required bool
}

// FailureRef is the schema of the body of an error.
const FailureRef = `{"$ref":"#/components/schemas/error"}`

// OpenAPI describes the routes of a table and the endpoints beside them as one
// OpenAPI 3.1 document. Other names of verbs are left out; the description of
// an operation names them.
func OpenAPI(version string, table *HTTPTable, own []HTTPOperation) []byte {
	paths := map[string]map[string]any{}
	add := func(path, method string, operation map[string]any) {
		if paths[path] == nil {
			paths[path] = map[string]any{}
		}
		paths[path][strings.ToLower(method)] = operation
	}
	type tag struct {
		Name        string `json:"name"`
		Description string `json:"description"`
	}
	tags := []tag{{"gateway", "the gateway itself"}}
	for i := range own {
		add(own[i].Path, own[i].Method, own[i].operation())
	}
	for _, r := range table.routes {
		if r.Own != nil || r.Alias || r.Verb.ByHand {
			continue
		}
		if !slices.ContainsFunc(tags, func(t tag) bool { return t.Name == r.Command.Command }) {
			tags = append(tags, tag{r.Command.Command, r.Command.Summary})
		}
		add(r.Path, r.Method, r.operation())
	}
	codes := plugin.Codes()
	names := make([]string, len(codes))
	for i, info := range codes {
		names[i] = string(info.Code)
	}
	return encodeJSON(map[string]any{
		"openapi": "3.1.0",
		"info": map[string]any{
			"title": "sess", "version": version,
			"description": "Every verb of every plugin, over HTTP. What a verb answers is the same on each surface.",
			"license":     map[string]any{"name": "MIT", "identifier": "MIT"},
		},
		"servers":  []any{map[string]any{"url": "/"}},
		"security": []any{map[string]any{"token": []string{}}},
		"tags":     tags,
		"paths":    paths,
		"components": map[string]any{
			"securitySchemes": map[string]any{"token": map[string]any{
				"type": "http", "scheme": "bearer", "description": "what is printed by: sess gateway token --show",
			}},
			"responses": map[string]any{"error": map[string]any{
				"description": "It failed; the code says how.",
				"content":     jsonContent(map[string]any{"$ref": "#/components/schemas/error"}),
			}},
			"schemas": map[string]any{"error": map[string]any{
				"type": "object", "required": []string{"error", "code", "text"},
				"properties": map[string]any{
					"error":   map[string]any{"type": "string", "description": "what is wrong"},
					"code":    map[string]any{"type": "string", "enum": names},
					"text":    map[string]any{"type": "string", "description": "error and hint in one sentence"},
					"hint":    map[string]any{"type": "string", "description": "one step that helps"},
					"details": map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "string"}},
				},
			}},
		},
	})
}

func jsonContent(schema any) map[string]any {
	return map[string]any{"application/json": map[string]any{"schema": schema}}
}

func (o *HTTPOperation) operation() map[string]any {
	success := map[string]any{"description": "Done."}
	schema := o.Response
	if schema == nil {
		schema = json.RawMessage("{}")
	}
	kind := o.Type
	if kind == "" {
		kind = "application/json"
	}
	success["content"] = map[string]any{kind: map[string]any{"schema": schema}}
	if o.Status == 101 || o.Status == 204 {
		delete(success, "content")
	}
	op := map[string]any{
		"operationId": o.ID, "summary": o.Summary, "tags": []string{"gateway"},
		"responses": responses(max(o.Status, httpOK), success),
	}
	if o.Status == 101 {
		op["responses"] = responses(o.Status, success)
	}
	if o.Failure != nil {
		op["responses"].(map[string]any)["default"] = map[string]any{"description": "It failed; the code says how.", "content": jsonContent(o.Failure)}
	}
	if o.Description != "" {
		op["description"] = o.Description
	}
	if o.Open {
		op["security"] = []any{}
	}
	if parameters := o.parameters(); parameters != nil {
		op["parameters"] = parameters
	}
	if o.Request != nil {
		op["requestBody"] = map[string]any{"required": true, "content": jsonContent(o.Request)}
	}
	return op
}

// parameters describes those of the path, the query and the headers.
func (o *HTTPOperation) parameters() []any {
	var all []any
	for _, s := range parseTemplatePath(o.Path) {
		if s.param {
			all = append(all, pathParameter(s.text))
		}
	}
	for _, p := range o.Parameters {
		kind := p.Type
		if kind == "" {
			kind = "string"
		}
		one := map[string]any{"name": p.Name, "in": p.In, "description": p.Help, "schema": &schema{Type: kind}}
		if p.Required {
			one["required"] = true
		}
		all = append(all, one)
	}
	return all
}

func pathParameter(name string) any {
	return map[string]any{"name": name, "in": "path", "required": true, "schema": &schema{Type: "string"}}
}

func responses(status int, success map[string]any) map[string]any {
	return map[string]any{
		strconv.Itoa(status): success,
		"default":            map[string]any{"$ref": "#/components/responses/error"},
	}
}

// operation describes a route of a verb.
func (r *HTTPRoute) operation() map[string]any {
	op := map[string]any{
		"operationId": r.operationID(),
		"summary":     r.Verb.Summary,
		"tags":        []string{r.Command.Command},
		"responses":   responses(r.Status, r.success()),
	}
	text := []string{r.Verb.Help}
	if len(r.Verb.Aliases) > 0 && r.template == nil && !strings.Contains(r.Path, "{") {
		text = append(text, "Also at /"+r.Command.Command+"/"+strings.Join(r.Verb.Aliases, ", /"+r.Command.Command+"/")+".")
	}
	if r.Verb.Effect == plugin.EffectDestroy {
		text = append(text, "It removes stored data.")
	}
	if description := strings.TrimSpace(strings.Join(text, "\n\n")); description != "" {
		op["description"] = description
	}
	var parameters []any
	for _, name := range r.params {
		parameters = append(parameters, pathParameter(name))
	}
	fields := r.operationFields()
	if r.InQuery() {
		for _, f := range fields {
			p := map[string]any{"name": f.name, "in": "query", "schema": f.schema}
			if f.help != "" {
				p["description"] = f.help
			}
			if f.required {
				p["required"] = true
			}
			parameters = append(parameters, p)
		}
	} else {
		props, required := map[string]any{}, []string{}
		for _, f := range fields {
			s := *f.schema
			s.Description = f.help
			props[f.name] = &s
			if f.required {
				required = append(required, f.name)
			}
		}
		body := map[string]any{"type": "object", "properties": props, "additionalProperties": false}
		if len(required) > 0 {
			body["required"] = required
		}
		op["requestBody"] = map[string]any{"required": len(required) > 0, "content": jsonContent(body)}
	}
	if parameters != nil {
		op["parameters"] = parameters
	}
	return op
}

func (r *HTTPRoute) operationID() string {
	id := r.Command.Command + "." + strings.ReplaceAll(r.Verb.Name, " ", ".")
	if r.template == nil && r.params == nil {
		return id
	}
	words := strings.FieldsFunc(r.Path, func(c rune) bool { return strings.ContainsRune("/{}", c) })
	return fmt.Sprintf("%s.%s.%s", r.Command.Command, strings.ToLower(r.Method), strings.Join(words, "."))
}

// success describes the answer of a route; see [HTTPRoute.Render].
func (r *HTTPRoute) success() map[string]any {
	out := map[string]any{"description": "Done."}
	if r.Verb.Effect != plugin.EffectRead {
		out["content"] = jsonContent(map[string]any{
			"type": "object", "required": []string{"text", "data"},
			"properties": map[string]any{
				"text":    map[string]any{"type": "string", "description": "the sentence for people"},
				"data":    map[string]any{"description": "the same for programs"},
				"notices": map[string]any{"type": "array", "items": map[string]any{"type": "string"}, "description": "warnings that belong to no one answer"},
			},
		})
		return out
	}
	body := map[string]any{}
	headers := map[string]any{"X-Notices": map[string]any{
		"description": "warnings, as a JSON list of strings in ASCII", "schema": map[string]any{"type": "string"},
	}}
	if r.Verb.Paged() {
		body["type"] = "array"
		headers["X-Total-Count"] = map[string]any{"description": "how many there are in all", "schema": map[string]any{"type": "integer"}}
		headers["Link"] = map[string]any{"description": `where the next ones are, with rel="next"`, "schema": map[string]any{"type": "string"}}
	}
	out["content"], out["headers"] = jsonContent(body), headers
	return out
}

// operationField is a field that a request may have.
type operationField struct {
	name     string
	schema   *schema
	help     string
	required bool
}

// operationFields lists the fields of a route's request: those of its verb that
// the route itself does not say, those that its placeholders take, and the host's.
func (r *HTTPRoute) operationFields() []operationField {
	made := func(name string) bool {
		return slices.ContainsFunc(r.template, func(t templateField) bool { return t.name == name && !t.list })
	}
	var fields []operationField
	add := func(f operationField) {
		if !slices.ContainsFunc(fields, func(o operationField) bool { return o.name == f.name }) {
			fields = append(fields, f)
		}
	}
	for _, t := range r.template {
		for _, part := range t.text {
			if part.param && !slices.Contains(r.params, part.text) {
				add(operationField{name: part.text, schema: &schema{Type: "string"}})
			}
		}
	}
	for a := range r.Verb.ObjectArgs() {
		name := plugin.Camel(a.Name)
		if made(name) {
			continue
		}
		s := &schema{Type: "string"}
		if a.Type == plugin.TypeInt {
			s.Type = "integer"
		}
		if a.Repeated {
			s = &schema{Type: "array", Items: s}
		}
		add(operationField{name, s, a.Help, a.Required})
	}
	if r.Verb.Input != "" {
		add(operationField{plugin.FieldInput, &schema{Type: "string"}, inputHelp, false})
	}
	for f := range r.Verb.ObjectFlags() {
		if made(f.Field()) || f.Confirm && r.InQuery() { // text confirms nothing
			continue
		}
		s := flagSchema(f)
		if r.InQuery() && f.Type == plugin.TypeMap {
			s = &schema{Type: "array", Items: &schema{Type: "string"}}
		}
		add(operationField{f.Field(), s, flagHelp(f), false})
	}
	for _, f := range plugin.HostFlags() {
		if slices.Contains(hostFields(), f.Name) && !made(f.Name) {
			add(operationField{f.Name, &schema{Type: "string"}, f.Help, false})
		}
	}
	return fields
}

// ToolCallSchema is the JSON Schema of the body that calls a tool.
func ToolCallSchema(tools *Tools) json.RawMessage {
	names := make([]string, len(tools.Offered))
	for i, spec := range tools.Offered {
		names[i] = spec.ToolName()
	}
	text := map[string]any{"type": "string"}
	tool := map[string]any{"type": "string"}
	if len(names) > 0 {
		tool["enum"] = names
	}
	args := map[string]any{"type": []string{"object", "string"}, "description": "the tool's arguments; GET /tools has their schema"}
	return bytes.TrimSpace(encodeJSON(map[string]any{
		"type": "object", "additionalProperties": false,
		"properties": map[string]any{
			"tool": tool, "name": tool, "args": args, "arguments": args, "agent": text, "project": text, "session": text,
		},
		"oneOf": []any{map[string]any{"required": []string{"tool"}}, map[string]any{"required": []string{"name"}}},
	}))
}
