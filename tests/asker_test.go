package tests

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// asker asks a gateway over HTTP. It is safe for concurrent use.
type asker struct{ url, token string }

// asker asks this gateway.
func (g *gateway) asker() asker {
	g.t.Helper()
	return asker{g.Address, strings.TrimSpace(g.do("gateway", "token", "--show"))}
}

// must is ask for what has to work; the answer is decoded into into, unless that
// is nil.
func (a asker) must(t *testing.T, method, path string, body, into any) {
	t.Helper()
	status, answer, err := a.ask(t.Context(), method, path, body)
	if err == nil && status >= http.StatusBadRequest {
		err = fmt.Errorf("status %d: %s", status, answer)
	}
	if err == nil && into != nil {
		err = json.Unmarshal(answer, into)
	}
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
}

// ask sends a request with the token. body is sent as JSON unless it is nil.
func (a asker) ask(ctx context.Context, method, path string, body any) (status int, answer []byte, err error) {
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		content = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, a.url+path, content)
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+a.token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// route calls a verb by its route: GET with a query where it only reads, and
// otherwise POST with a body.
func (a asker) route(ctx context.Context, path string, read bool, fields map[string]any) (status int, answer []byte, err error) {
	if !read {
		return a.ask(ctx, http.MethodPost, path, fields)
	}
	query := url.Values{}
	for key, value := range fields {
		list, ok := value.([]any)
		if !ok {
			list = []any{value}
		}
		for _, item := range list {
			query.Add(key, fmt.Sprint(item))
		}
	}
	return a.ask(ctx, http.MethodGet, path+"?"+query.Encode(), nil)
}

// rpcAnswer is the answer to a JSON-RPC request.
type rpcAnswer struct {
	Result json.RawMessage
	Error  *struct {
		Code    int
		Message string
		Data    struct{ Code, Hint string }
	}
}

// rpc calls a method of the gateway with a request of its own.
func (a asker) rpc(ctx context.Context, method string, params any) (out rpcAnswer, err error) {
	status, body, err := a.ask(ctx, http.MethodPost, "/rpc", map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s: status %d: %s", method, status, body)
	}
	if err == nil {
		err = json.Unmarshal(body, &out)
	}
	return out, err
}
