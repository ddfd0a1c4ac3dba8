package server

import (
	"bytes"
	"encoding/json"
	"slices"
	"unicode/utf8"

	"github.com/creachadair/jrpc2"

	"sess/plugin"
	"sess/surfaces"
)

// rpcResponse and rpcRequest are messages that the server sends.
type rpcResponse struct {
	Version string             `json:"jsonrpc"`
	ID      json.RawMessage    `json:"id"`
	Result  any                `json:"result,omitempty"`
	Error   *surfaces.RPCError `json:"error,omitempty"`
}

type rpcRequest struct {
	Version string `json:"jsonrpc"`
	Method  string `json:"method"`
	Params  any    `json:"params"`
}

// encodeRPC writes a message in one line.
func encodeRPC(r rpcResponse) ([]byte, error) {
	r.Version = jrpc2.Version
	if len(r.ID) == 0 {
		r.ID = nil
	}
	return encodeLine(r)
}

func encodeLine(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func failRPC(id json.RawMessage, failure surfaces.RPCError) []byte {
	out, err := encodeRPC(rpcResponse{ID: id, Error: &failure})
	if err != nil { // an id that is no JSON: a request's was parsed
		return []byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"the error cannot be told","data":{"code":"internal"}}}`)
	}
	return out
}

func notification(method string, params any) ([]byte, error) {
	return encodeLine(rpcRequest{jrpc2.Version, method, params})
}

// joinRPC puts the answers to one message together; nil is none.
func joinRPC(answers [][]byte, batch bool) []byte {
	answers = slices.DeleteFunc(answers, func(a []byte) bool { return a == nil })
	switch {
	case len(answers) == 0:
		return nil
	case !batch:
		return answers[0]
	}
	return slices.Concat([]byte("["), bytes.Join(answers, []byte(",")), []byte("]"))
}

// parseRPC reads a message, or refuses all of it.
func parseRPC(message []byte) (requests []*jrpc2.ParsedRequest, batch bool, refusal []byte) {
	refuse := func(code jrpc2.Code, format string, args ...any) ([]*jrpc2.ParsedRequest, bool, []byte) {
		return nil, false, protocolFailure(nil, code, plugin.Errorf(plugin.Usage, format, args...).
			WithHint(`send {"jsonrpc": "2.0", "id": 1, "method": "sess.invoke", "params": {"action": "list"}}, or a list of such`))
	}
	if !utf8.Valid(message) {
		return refuse(jrpc2.ParseError, "the message is not UTF-8")
	}
	requests, err := jrpc2.ParseRequests(message)
	switch {
	case err != nil:
		return refuse(jrpc2.ParseError, "the message is not JSON")
	case len(requests) == 0:
		return refuse(jrpc2.InvalidRequest, "the batch is empty")
	case len(requests) > maxCalls:
		return refuse(jrpc2.InvalidRequest, "the batch has %d requests, more than the %d that one may have", len(requests), maxCalls)
	}
	if key, twice := keyTwice(message); twice {
		return refuse(jrpc2.InvalidRequest, "the key %q is given twice", key)
	}
	return requests, requests[0].Batch, nil
}

// keyTwice finds a key that a request has twice: jrpc2 takes the last one, and
// whoever let the message through may have read the first. The message is valid;
// the params are looked at where they are read.
func keyTwice(message []byte) (key string, twice bool) {
	dec := json.NewDecoder(bytes.NewReader(message))
	token, err := dec.Token()
	list := token == json.Delim('[')
	keys := map[string]bool{}
	for err == nil && dec.More() {
		if !list {
			if token, err = dec.Token(); err != nil {
				break
			}
			if key = token.(string); keys[key] { // an object has nothing else there
				return key, true
			}
			keys[key] = true
		}
		var value json.RawMessage
		if err = dec.Decode(&value); list && bytes.HasPrefix(value, []byte("{")) {
			if key, twice = keyTwice(value); twice {
				return key, true
			}
		}
	}
	return "", false
}

// refuseRPC answers what is no request.
func refuseRPC(req *jrpc2.ParsedRequest) []byte {
	return protocolFailure(json.RawMessage(req.ID), jrpc2.InvalidRequest, plugin.Errorf(plugin.Usage, "this is no request: %s", req.Error.Message).
		WithHint("send jsonrpc, id, method and params, and nothing else"))
}

// protocolFailure is an error that JSON-RPC itself has a code for.
func protocolFailure(id json.RawMessage, code jrpc2.Code, e *plugin.Error) []byte {
	failure := surfaces.RenderRPCError(e)
	failure.Code = int(code)
	return failRPC(id, failure)
}
