package models

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"sess/plugin"
	"sess/plugin/upstream"
	"sess/store/transcript"
)

// remote is what all models have in common that are asked over the network.
type remote struct {
	id, model string // of the provider, and its name there
	kind      string
	config    Provider
	client    *upstream.Client
}

// address is where a kind's own provider is, and how it is told the key.
type address struct {
	baseURL, keyEnv string
	authorize       func(h http.Header, key string)
	header          http.Header
}

func openRemote(id, model string, p Provider, c Config, own address) (*remote, error) {
	key := p.key(c)
	if p.BaseURL == "" {
		p.BaseURL = own.baseURL
		if key == (upstream.Key{}) {
			key.Env = own.keyEnv
		}
	}
	client, err := upstream.New(upstream.Options{
		BaseURL: p.BaseURL, Key: key, Authorize: own.authorize, Header: own.header, Getenv: c.Getenv,
		Timeout: seconds(p.TimeoutSeconds), Idle: seconds(p.IdleTimeoutSeconds), MaxRetries: noneIfZero(p.MaxRetries), Transport: c.Transport,
	})
	if err != nil {
		e := *plugin.AsError(err)
		e.Message = "models.providers." + id + "." + e.Message
		return nil, &e
	}
	return &remote{id: id, model: model, kind: p.Kind, config: p, client: client}, nil
}

// key says where the provider's key is.
func (p Provider) key(c Config) upstream.Key {
	key := upstream.Key{Env: p.APIKeyEnv, File: p.APIKeyFile}
	if key.File != "" && c.Path != nil {
		key.File = c.Path(key.File)
	}
	return key
}

// noneIfZero gives a setting the meaning that it has in [upstream.Options]: 0 there
// is the default, and a negative value is none.
func noneIfZero(n *int) int {
	switch {
	case n == nil:
		return 0
	case *n == 0:
		return -1
	}
	return *n
}

func seconds(n *int) time.Duration {
	return time.Duration(noneIfZero(n)) * time.Second
}

// Name is the model's whole name.
func (r *remote) Name() string { return r.id + "/" + r.model }

// own reports whether a native item is this provider's. The words that
// every provider of the kind understands have the kind's name; those with more in
// them go back to nobody but who said them.
func (r *remote) own(n *transcript.Native) bool { return n.Kind == r.kind || n.Kind == r.kind+":"+r.id }

// native makes an answer the native item of the history; nil where the item is
// the same when it is told anew.
func (r *remote) native(message, anew []byte, standard bool) *transcript.Native {
	if bytes.Equal(message, anew) {
		return nil
	}
	kind := r.kind
	if !standard {
		kind += ":" + r.id
	}
	return &transcript.Native{Kind: kind, Items: []json.RawMessage{message}}
}

// reserved are the members of a request that are not parameters.
func reserved() []string {
	return []string{"messages", "model", "stream", "stream_options", "system", "tools"}
}

// checkParameters refuses parameters that would make another request of it.
func (r *remote) checkParameters() error {
	for _, name := range slices.Sorted(maps.Keys(r.config.Parameters)) {
		if slices.Contains(reserved(), name) {
			return plugin.Errorf(plugin.Usage, "models.providers.%s.parameters.%s: this is filled in by the program", r.id, name).WithHint("leave it out")
		}
	}
	return nil
}

// object writes a JSON object member by member, values as they are.
type object struct{ bytes.Buffer }

func (o *object) raw(name string, value []byte) {
	if o.Len() == 0 {
		o.WriteByte('{')
	} else {
		o.WriteByte(',')
	}
	o.Write(encode(name))
	o.WriteByte(':')
	o.Write(value)
}

func (o *object) set(name string, value any) { o.raw(name, encode(value)) }

// end is the whole object.
func (o *object) end() []byte {
	if o.Len() == 0 {
		o.WriteByte('{')
	}
	o.WriteByte('}')
	return o.Bytes()
}

// encode is the JSON of a value. Only values of this package's own types are
// given to it, so one that has no JSON is a bug.
func encode(v any) []byte {
	raw, err := transcript.EncodeJSON(v)
	if err != nil {
		panic(fmt.Sprintf("models: a %T has no JSON: %v", v, err))
	}
	return raw
}

// list is a JSON array of values as they are.
func list(values [][]byte) []byte {
	return slices.Concat([]byte{'['}, bytes.Join(values, []byte{','}), []byte{']'})
}

const (
	maxToolName = 64
	maxCallID   = 40
)

// word matches what all providers take as a tool's name and as a call's id.
var word = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-zA-Z0-9_-]+$`) })

// wireWord is a name or an id as all providers take it: itself where it is short
// and plain enough, else another that is always the same.
func wireWord(text string, most int) string {
	if len(text) <= most && word().MatchString(text) {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	plain := strings.Map(func(r rune) rune {
		if word().MatchString(string(r)) {
			return r
		}
		return '_'
	}, text)
	return plain[:min(len(plain), most-17)] + "_" + hex.EncodeToString(sum[:8])
}

// schema is that of a tool's arguments, which the APIs want to be there.
func schema(t Tool) []byte {
	if len(t.Schema) == 0 {
		return []byte(`{"type":"object"}`)
	}
	return t.Schema
}

// toolNames maps the names that the provider is told to the tools' own.
func toolNames(tools []Tool) map[string]string {
	names := make(map[string]string, len(tools))
	for _, t := range tools {
		names[wireWord(t.Name, maxToolName)] = t.Name
	}
	return names
}

// arguments are those of a call as text, as the model wrote them: what is no JSON
// is stored as a string that holds it.
func arguments(call transcript.ToolCall) string {
	var text string
	switch {
	case len(call.Arguments) == 0:
		return "{}"
	case call.Arguments[0] == '"' && json.Unmarshal(call.Arguments, &text) == nil:
		return text
	}
	return string(call.Arguments)
}

// fill tells people when a conversation is about to outgrow the model.
func (r *remote) fill(u Usage, emit func(Delta)) {
	const near = 90 // percent
	if used, all := u.InputTokens+u.OutputTokens, r.config.ContextWindow; all > 0 && used*100 >= all*near {
		notice(emit, fmt.Sprintf("this conversation fills %d%% of what %s can read; /sess new begins another one, and this one stays", used*100/all, r.Name()))
	}
}

func notice(emit func(Delta), text string) { emit(Delta{Kind: DeltaNotice, Text: text}) }

// ask sends a request and reads the answer with what begin makes for each
// attempt.
func (r *remote) ask(ctx context.Context, path string, body []byte, emit func(Delta), begin func() upstream.Reader) error {
	return r.client.Stream(ctx, upstream.Request{
		Model: r.Name(), Path: path, Body: body, Notice: func(text string) { notice(emit, text) },
	}, begin)
}
