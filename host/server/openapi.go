package server

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"

	"sess/surfaces"
)

// serveOpenAPI describes everything that can be asked for now.
func (s *Server) serveOpenAPI(c echo.Context) error {
	m := s.mounted(c.Request().Context())
	own := s.operations(m)
	return c.Blob(http.StatusOK, echo.MIMEApplicationJSON, surfaces.OpenAPI(s.opts.Version, m.table, own))
}

// operations describes the server's own endpoints; a test sees to it that none is
// missing.
func (s *Server) operations(m *mounts) []surfaces.HTTPOperation {
	const status = `{"type":"object","required":["ok","status"],"properties":{"ok":{"type":"boolean"},"status":{"type":"string"},"failing":{"type":"array","items":{"type":"string"}}}}`
	return slices.Concat([]surfaces.HTTPOperation{
		{
			Method: http.MethodGet, Path: "/", ID: "root", Summary: "Tell what this is and where to go on", Open: true,
			Description: "Where the header Accept names text/html it is the page.",
			Response:    json.RawMessage(`{"type":"object","required":["name","version"],"properties":{"name":{"type":"string"},"version":{"type":"string"}}}`),
		},
		{
			Method: http.MethodGet, Path: "/healthz", ID: "healthz", Summary: "Tell that the process lives", Open: true,
			Response: json.RawMessage(status),
		},
		{
			Method: http.MethodGet, Path: "/readyz", ID: "readyz", Summary: "Tell whether calls can be answered", Open: true,
			Description: "The status is 503 where they cannot; failing then lists what is missing.",
			Response:    json.RawMessage(status),
			Failure:     json.RawMessage(`{"anyOf":[` + status + `,` + surfaces.FailureRef + `]}`),
		},
		{
			Method: http.MethodGet, Path: "/client.js", ID: "client", Summary: "The client of the gateway, as a JavaScript module", Open: true,
			Type: "text/javascript", Response: json.RawMessage(`{"type":"string"}`),
		},
		{
			Method: http.MethodGet, Path: "/client.d.ts", ID: "client.types", Summary: "Its TypeScript declarations", Open: true,
			Type: "text/plain", Response: json.RawMessage(`{"type":"string"}`),
		},
		{
			Method: http.MethodGet, Path: "/openapi.json", ID: "openapi", Summary: "This document",
			Response: json.RawMessage(`{"type":"object"}`),
		},
		{
			Method: http.MethodGet, Path: "/metrics", ID: "metrics", Summary: "Counts and times, in the text format of Prometheus", Type: "text/plain",
			Response: json.RawMessage(`{"type":"string"}`),
		},
		{
			Method: http.MethodGet, Path: "/tools", ID: "tools.list", Summary: "List the tools that models can call",
			Response: json.RawMessage(`{"type":"array","items":{"type":"object","required":["name","description","inputSchema"],"properties":{"name":{"type":"string"},"description":{"type":"string"},"inputSchema":{"type":"object"}}}}`),
		},
		{
			Method: http.MethodPost, Path: toolPath, ID: "tools.invoke", Summary: "Call a tool as a model does",
			Description: `An error is {"ok": false, "error": {"code", "message", "hint"}}. No person is asked: an action that destroys is confirmed by the boolean confirm among its arguments. A long list is given in parts: page.next is the argument after of the next one.`,
			Request:     surfaces.ToolCallSchema(m.tools),
			Failure:     json.RawMessage(`{"type":"object","required":["ok","error"],"properties":{"ok":{"const":false},"error":{"type":"object","required":["code","message"],"properties":{"code":{"type":"string"},"message":{"type":"string"},"hint":{"type":"string"},"details":{"type":"object","additionalProperties":{"type":"string"}}}}}}`),
			Response:    json.RawMessage(`{"type":"object","required":["ok","result"],"properties":{"ok":{"const":true},"result":{"type":"object","required":["text","data"],"properties":{"text":{"type":"string"},"data":{},"notices":{"type":"array","items":{"type":"string"}},"page":{"type":"object","required":["total"],"properties":{"total":{"type":"integer"},"next":{"type":"string"}}}}}}}`),
		},
		{
			Method: http.MethodGet, Path: "/rpc", ID: "rpc.connect", Summary: "Open a WebSocket for JSON-RPC 2.0, one message in each of its messages", Status: http.StatusSwitchingProtocols,
			Description: "A page gives the token as the subprotocol bearer.<token>, since it cannot set the header; offer jsonrpc as well to have that one chosen. rpc.cancel ends a call of the connection, events.subscribe sends what happens as notifications, gateway.methods lists the rest.",
		},
		{
			Method: http.MethodPost, Path: "/rpc", ID: "rpc.call", Summary: "Answer a JSON-RPC 2.0 request, or a batch",
			Description: "The status is 200 also where a call failed, 204 where no answer is wanted, and 400 where there was no request to answer. Warnings for which an answer has no room are in the header X-Notices.",
			Request:     json.RawMessage(`{"anyOf":[{"type":"object","required":["jsonrpc","method"],"properties":{"jsonrpc":{"const":"2.0"},"id":{},"method":{"type":"string"},"params":{"type":"object"}}},{"type":"array","minItems":1}]}`),
			Response:    json.RawMessage(`{"anyOf":[{"type":"object"},{"type":"array"}]}`),
			Failure:     json.RawMessage(`{"anyOf":[{"type":"object","required":["jsonrpc","id","error"],"properties":{"jsonrpc":{"const":"2.0"},"id":{"type":"null"},"error":{"type":"object","required":["code","message","data"]}}},` + surfaces.FailureRef + `]}`),
		},
	}, sessionOperations(), chatOperations(), completionOperations())
}

// The JSON Schemas of what the session endpoints take and give.
const (
	sessionSchema = `{"type":"object","required":["projectId"],"properties":{"id":{"type":"string"},"projectId":{"type":"string"},"title":{"type":"string"},"cwd":{"type":"string"},` +
		`"status":{"type":"string","enum":["idle","running","waiting-permission","error"]},"messages":{"type":"array","items":` + messageSchema + `},"activities":{"type":"array","items":{"type":"object"}},` +
		`"activeRun":{},"error":{"type":"string"},"artifacts":{"type":"array","items":{"type":"object"}},"createdAt":{"type":"number"},"updatedAt":{"type":"number"},"revision":{"type":"integer","minimum":0}}}`
	messageSchema = `{"type":"object","required":["id","role","content"],"properties":{"id":{"type":"string"},"role":{"type":"string","enum":["user","agent"]},"content":{"type":"string"},` +
		`"status":{"type":"string","enum":["complete","streaming","error"]},"streamId":{"type":"string"},"responseToMessageId":{"type":"string"},"eventIds":{"type":"array","items":{"type":"string"}},` +
		`"artifactIds":{"type":"array","items":{"type":"string"}},"uploads":{"type":"array"},"createdAt":{"type":"number"},"updatedAt":{"type":"number"}}}`
	manifestSchema = `{"type":"object","required":["version"],"properties":{"version":{"const":1},"lastProjectId":{"type":"string"},"lastSessionId":{"type":"string"}}}`
)

// sessionOperations describes the endpoints that stand for the gateway methods of
// the same names.
func sessionOperations() []surfaces.HTTPOperation {
	return []surfaces.HTTPOperation{
		{
			Method: http.MethodGet, Path: pathSessions, ID: methodLoadAll, Summary: "Load the live sessions of all projects, and the manifest",
			Description: "The newest come first. Notices tell of sessions that are left out as their files are damaged. The connection is cut where it fails on the way.",
			Response:    json.RawMessage(`{"type":"object","required":["sessions","manifest"],"properties":{"sessions":{"type":"array","items":` + sessionSchema + `},"manifest":` + manifestSchema + `,"notices":{"type":"array","items":{"type":"string"}}}}`),
		},
		{
			Method: http.MethodPut, Path: pathSession, ID: methodSaveSession, Summary: "Create or replace a session",
			Description: "The revision that it is based on stands in the body or in If-Match; where the stored one is another, or none is given and records would be lost, the answer is 409 and nothing has changed.",
			Parameters:  []surfaces.HTTPParameter{{Name: "If-Match", In: "header", Help: `the revision that the session is based on, as in "7"`}},
			Request:     json.RawMessage(sessionSchema),
			Response:    json.RawMessage(`{"type":"object","required":["revision"],"properties":{"revision":{"type":"integer"}}}`),
		},
		{
			Method: http.MethodDelete, Path: pathSession, ID: methodDeleteSession, Summary: "Move a session to the trash",
			Parameters: []surfaces.HTTPParameter{{Name: "project", In: "query", Help: "the project that it is of", Required: true}},
			Response:   json.RawMessage(`{"type":"object"}`),
		},
		{
			Method: http.MethodPut, Path: pathManifest, ID: methodSaveManifest, Summary: "Say which session was open last",
			Description: "It replaces what was said before; empty and unknown fields are dropped.",
			Request:     json.RawMessage(`{"type":"object","properties":{"lastProjectId":{"type":"string"},"lastSessionId":{"type":"string"}}}`),
			Response:    json.RawMessage(`{"type":"object"}`),
		},
		{
			Method: http.MethodDelete, Path: pathProjectsSessions, ID: methodDeleteProject, Summary: "Move all sessions of a project to the trash",
			Response: json.RawMessage(`{"type":"object","required":["deleted"],"properties":{"deleted":{"type":"integer"}}}`),
		},
	}
}
