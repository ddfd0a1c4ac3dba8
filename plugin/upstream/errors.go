package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"
	"unicode"

	"sess/plugin"
)

// StatusError is what a provider answered instead of what it was asked for,
// also in the middle of an answer.
type StatusError struct {
	Status     int    // of HTTP; 0 where an event of the stream is the error
	Type, Code string // as the provider names the error; either may be empty
	Param      string // the field of the request that it is about; it may be empty
	Message    string // of the provider; it may be empty
	RetryAfter time.Duration
	Location   string // of a redirect
}

// Error is what the provider said, with the status.
func (s *StatusError) Error() string {
	text := cmp.Or(oneLine(s.Message), s.Type, s.Code, http.StatusText(s.Status), "the provider gave no reason")
	if s.Status == 0 {
		return text
	}
	return fmt.Sprintf("%s (HTTP %d)", text, s.Status)
}

// messageLimit bounds what is quoted of a provider's message, in characters.
const messageLimit = 500

// oneLine is a message as one short line without control characters.
func oneLine(text string) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	text = strings.TrimSuffix(text, ".")
	if r := []rune(text); len(r) > messageLimit {
		return string(r[:messageLimit-1]) + "…"
	}
	return text
}

func readStatus(resp *http.Response, body io.Reader) error {
	s := &StatusError{Status: resp.StatusCode, RetryAfter: retryAfter(resp.Header, time.Now())}
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		if to, err := resp.Location(); err == nil {
			to.User = nil
			s.Location = to.String()
		}
		return s
	}
	data, err := io.ReadAll(body)
	if err != nil && len(data) == 0 {
		return s // the status says the most
	}
	if e := ParseError(data); e != nil {
		s.Type, s.Code, s.Param, s.Message = e.Type, e.Code, e.Param, e.Message
	} else if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
		s.Message = string(data)
	}
	return s
}

// ParseError reads the JSON of an error as providers write it: an object "error"
// with a message, a type and a code, the same without that object around it, or
// the message alone. It is nil if data is none of these.
func ParseError(data []byte) *StatusError {
	var body struct {
		Error   json.RawMessage `json:"error"`
		Object  string          `json:"object"`
		Type    string          `json:"type"`
		Code    json.RawMessage `json:"code"`
		Param   string          `json:"param"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(data, &body) != nil {
		return nil
	}
	s := &StatusError{Type: body.Type, Param: body.Param, Message: body.Message}
	code := body.Code
	var inner struct {
		Type    string          `json:"type"`
		Code    json.RawMessage `json:"code"`
		Param   string          `json:"param"`
		Message string          `json:"message"`
	}
	switch {
	case len(body.Error) > 0 && body.Error[0] == '{' && json.Unmarshal(body.Error, &inner) == nil:
		s.Type, s.Param, s.Message, code = inner.Type, inner.Param, inner.Message, inner.Code
	case len(body.Error) > 0 && json.Unmarshal(body.Error, &s.Message) == nil && s.Message != "":
	case body.Message != "" && (body.Object == "error" || body.Type != "" || code != nil):
	case len(body.Detail) > 0:
		if json.Unmarshal(body.Detail, &s.Message) != nil {
			s.Message = string(body.Detail)
		}
	default:
		return nil
	}
	if json.Unmarshal(code, &s.Code) != nil { // a number is the status once more
		var status int
		if json.Unmarshal(code, &status) == nil && status >= 400 && status < 600 {
			s.Status = status
		}
	}
	return s
}

// tooLong reports whether the request was refused because the conversation does
// not fit into what the model can read at a time. Providers have no common code
// for it.
func (s *StatusError) tooLong() bool {
	for _, name := range []string{s.Code, s.Type} {
		switch name {
		case "context_length_exceeded", "exceed_context_size_error", "model_context_window_exceeded":
			return true
		}
	}
	switch s.Status {
	case 0, http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusInternalServerError:
	default:
		return false
	}
	text := strings.ToLower(s.Message)
	for _, sign := range []string{
		"context length", "context window", "context size", "prompt is too long", "input is too long", "maximum context", "too many tokens",
		"input length and `max_tokens` exceed", "reduce the length of the messages",
	} {
		if strings.Contains(text, sign) {
			return true
		}
	}
	return s.Status == http.StatusRequestEntityTooLarge
}

// reason is an error in the middle of a sentence for people.
func reason(err error) string {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return "the connection broke before the end of the answer"
	}
	if s, ok := errors.AsType[*StatusError](err); ok {
		return s.Error()
	}
	if e, ok := errors.AsType[*url.Error](err); ok { // its own text has the method
		host := e.URL
		if u, err := url.Parse(e.URL); err == nil {
			host = u.Host
		}
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			return "nobody answers at " + host
		case e.Timeout():
			return host + " does not answer"
		}
		return fmt.Sprintf("cannot talk to %s: %v", host, e.Err)
	}
	return err.Error()
}

// forModel says which model an error is about.
func forModel(model string, err error) error {
	e := *plugin.AsError(err)
	e.Message = fmt.Sprintf("model %s: %s", model, e.Message)
	return &e
}

// explain turns what ended the last attempt into what people are told.
func (c *Client) explain(ctx context.Context, req Request, key string, err error, begun bool) error {
	problem := func(code plugin.Code, text string) *plugin.Error {
		return &plugin.Error{Code: code, Message: fmt.Sprintf("model %s: %s", req.Model, hide(text, key)), Err: err}
	}
	provider, _, _ := strings.Cut(req.Model, "/")
	setting := "models.providers." + provider
	text := reason(err)
	s, answered := errors.AsType[*StatusError](err)
	switch {
	case !answered:
		return c.explainSilence(problem, text, setting, err, begun)
	case s.tooLong():
		return problem(plugin.Usage, "this conversation is longer than the model can read: "+text).
			WithHint("/sess new begins another one, and this one stays; or go on with a model that reads more")
	case s.Location != "":
		return problem(plugin.Usage, fmt.Sprintf("%s leads on to %s, which is not followed", c.base, s.Location)).
			WithHint("set %s.baseURL to where the API is", setting)
	case s.Status == http.StatusUnauthorized:
		if c.opts.Key == (Key{}) {
			return problem(plugin.Denied, "the provider wants a key").WithHint("name a variable or a file that has it: %s.apiKeyEnv or %s.apiKeyFile", setting, setting)
		}
		// What it says may quote some of the key.
		return problem(plugin.Denied, fmt.Sprintf("the provider refuses the key of %s", c.opts.Key)).WithHint("put a valid key there")
	case s.exhausted():
		return problem(plugin.Denied, text).WithHint("see to the account at the provider, or use another model")
	case s.Status == http.StatusForbidden:
		return problem(plugin.Denied, text).WithHint("see what the account at the provider may use, or use another model")
	case s.Status == http.StatusNotFound:
		return c.explainUnknown(ctx, req, problem, text, setting)
	case s.Status == http.StatusTooManyRequests && s.RetryAfter > 0:
		return problem(plugin.Unavailable, text).WithHint("send the message again in %s", inWords(s.RetryAfter))
	case s.passing() || s.Status == 0:
		return problem(plugin.Unavailable, text).WithHint("send the message again in a while")
	}
	return problem(plugin.Usage, "the provider refuses the request: "+text).WithHint("see the settings in %s, or use another model", setting)
}

// explainSilence is explain where no answer came, or not all of it.
func (c *Client) explainSilence(problem func(plugin.Code, string) *plugin.Error, text, setting string, err error, begun bool) error {
	_, unknown := errors.AsType[*tls.CertificateVerificationError](err)
	dns, noName := errors.AsType[*net.DNSError](err)
	switch {
	case errors.Is(err, errIdle):
		return problem(plugin.Unavailable, fmt.Sprintf("%s for %s", text, c.opts.Idle)).
			WithHint("send the message again, or raise %s.idleTimeoutSeconds for a model that is slow", setting)
	case errors.Is(err, errWhole):
		return problem(plugin.Unavailable, fmt.Sprintf("%s (%s)", text, c.opts.Timeout)).WithHint("raise %s.timeoutSeconds for a model that is slow", setting)
	case errors.Is(err, errPage):
		return problem(plugin.Usage, text).WithHint("set %s.baseURL (%s) to where the API is; most end in /v1", setting, c.base)
	case begun:
		return problem(plugin.Unavailable, text).WithHint("what came is kept; send another message to go on")
	case errors.Is(err, syscall.ECONNREFUSED), noName && dns.IsNotFound, unknown:
		return problem(plugin.Unavailable, text).WithHint("see that the server runs there, or set %s.baseURL to where it does", setting)
	}
	return problem(plugin.Unavailable, text).WithHint("send the message again in a while")
}

// modelsTimeout bounds the request for the names of the models.
const modelsTimeout = 5 * time.Second

// explainUnknown is explain for what was not found: most often the model, and
// then the provider knows its names.
func (c *Client) explainUnknown(ctx context.Context, req Request, problem func(plugin.Code, string) *plugin.Error, text, setting string) error {
	ctx, cancel := context.WithTimeout(ctx, modelsTimeout)
	defer cancel()
	names, err := c.Models(ctx)
	provider, model, _ := strings.Cut(req.Model, "/")
	switch near := plugin.Nearest(model, names); {
	case err != nil:
		return problem(plugin.NotFound, text).WithHint("see that %s.baseURL (%s) is where the API is, and that it has %q", setting, c.base, model)
	case len(near) > 0 && near[0] != model:
		return problem(plugin.NotFound, text).WithHint("did you mean %s/%s?", provider, near[0])
	case len(names) > 0 && len(names) <= 20:
		return problem(plugin.NotFound, text).WithHint("the provider has %s", strings.Join(names, ", "))
	}
	return problem(plugin.NotFound, text).WithHint("name another model of the provider, with --model %s/<model>", provider)
}

// Models asks for the names of the models that the provider has, once and
// without pauses.
func (c *Client) Models(ctx context.Context) ([]string, error) {
	key, err := c.opts.Key.Read(c.opts.Getenv)
	if err != nil {
		return nil, err
	}
	doc := &document{}
	if err := c.attempt(ctx, Request{Path: "/models"}, key, doc); err != nil {
		return nil, err
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(doc.data, &list); err != nil {
		return nil, fmt.Errorf("the list of models: %w", err)
	}
	var names []string
	for _, m := range list.Data {
		names = append(names, m.ID)
	}
	return names, nil
}
