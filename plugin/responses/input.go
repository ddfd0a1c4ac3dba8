package responses

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"

	"sess/plugin"
	"sess/store/transcript"
)

// nativeKind is the kind of the native items of a provider: items of the Responses
// API, of which some make sense only to who made them.
func nativeKind(to plugin.Endpoint) string { return "openai-responses:" + to.Provider }

// input is a conversation in the words of the API.
type input struct {
	items []json.RawMessage
	// fresh is the index of the first item behind the answer that the provider
	// keeps; 0 where that is not part of the conversation.
	fresh int
}

// readInput reads a history for an endpoint. last is the id of the last item of the answer that
// the provider keeps; it may be empty. Items of this provider are taken as they
// are, others are told anew. A call without a result, which the API would refuse,
// gets one, and a result without a call is left out.
func readInput(to plugin.Endpoint, history iter.Seq2[transcript.HistoryItem, error], last string) (input, error) {
	var in input
	var open []string // ids of calls
	closeCalls := func() error {
		for _, id := range open {
			if err := in.tell(outputItem{"function_call_output", id, transcript.Interrupted}); err != nil {
				return err
			}
		}
		open = nil
		return nil
	}
	for h, err := range history {
		if err != nil {
			return input{}, err
		}
		if h.Role == transcript.RoleTool {
			at := slices.Index(open, h.ToolCallID)
			if at < 0 {
				continue
			}
			open = slices.Delete(open, at, at+1)
		} else if err := closeCalls(); err != nil {
			return input{}, err
		}
		if h.Native != nil && h.Native.Kind == nativeKind(to) {
			in.items = append(in.items, h.Native.Items...)
			if n := len(h.Native.Items); last != "" && n > 0 && itemID(h.Native.Items[n-1]) == last {
				in.fresh = len(in.items)
			}
		} else if err := in.retell(h); err != nil {
			return input{}, err
		}
		for _, c := range h.ToolCalls {
			open = append(open, c.ID)
		}
	}
	return in, closeCalls()
}

// itemID is the id of an item of an answer, or "".
func itemID(item json.RawMessage) string {
	var head struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(item, &head)
	return head.ID
}

// The items of the API that a history becomes which is not this provider's.
type (
	messageItem struct {
		Role    transcript.Role `json:"role"`
		Content string          `json:"content"`
	}
	callItem struct {
		Type      string `json:"type"`
		CallID    string `json:"call_id"`
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	outputItem struct {
		Type   string `json:"type"`
		CallID string `json:"call_id"`
		Output string `json:"output"`
	}
)

// retell tells an item of history in the words of the API.
func (in *input) retell(h transcript.HistoryItem) error {
	var items []any
	switch {
	case h.Role == transcript.RoleTool:
		items = append(items, outputItem{"function_call_output", h.ToolCallID, h.Content})
	case h.Content != "":
		items = append(items, messageItem{h.Role, h.Content})
	}
	for _, c := range h.ToolCalls {
		items = append(items, callItem{"function_call", c.ID, c.Name, arguments(c)})
	}
	return in.tell(items...)
}

// arguments are those of a call as the model wrote them: what is no JSON is kept
// as a string that holds it.
func arguments(c transcript.ToolCall) string {
	var text string
	if json.Unmarshal(c.Arguments, &text) == nil {
		return text
	}
	return string(c.Arguments)
}

func (in *input) tell(items ...any) error {
	for _, item := range items {
		data, err := json.Marshal(item)
		if err != nil {
			return fmt.Errorf("tell an item of history: %w", err)
		}
		in.items = append(in.items, data)
	}
	return nil
}

// toolItem is a tool in the words of the API.
type toolItem struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      bool            `json:"strict"` // a schema need not follow the API's own rules
}

func tools(list []plugin.Tool) []toolItem {
	var out []toolItem
	for _, t := range list {
		out = append(out, toolItem{"function", t.Name, t.Description, t.Schema, false})
	}
	return out
}

// body is the body of a request: its fields, the parameters of the endpoint, and
// the items byte for byte, which Go's encoder would write anew.
func body(to plugin.Endpoint, fields any, items []json.RawMessage) ([]byte, error) {
	head, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("encode a request: %w", err)
	}
	var more map[string]json.RawMessage
	if len(to.Parameters) > 0 {
		if err := json.Unmarshal(to.Parameters, &more); err != nil {
			return nil, plugin.Errorf(plugin.Usage, "models.providers.%s.parameters: want an object", to.Provider)
		}
	}
	out := head[:len(head)-1]
	for _, name := range slices.Sorted(maps.Keys(more)) {
		if slices.Contains(reserved(), name) {
			return nil, plugin.Errorf(plugin.Usage, "models.providers.%s.parameters.%s: this is filled in by the program", to.Provider, name).WithHint("leave it out")
		}
		key, err := json.Marshal(name)
		if err != nil {
			return nil, fmt.Errorf("encode a request: %w", err)
		}
		out = slices.Concat(out, []byte(","), key, []byte(":"), more[name])
	}
	list := make([][]byte, len(items))
	for i, item := range items {
		list[i] = item
	}
	return slices.Concat(out, []byte(`,"input":[`), bytes.Join(list, []byte(",")), []byte("]}")), nil
}

// reserved are the members of a request that are no parameters.
func reserved() []string {
	return []string{"include", "input", "instructions", "max_output_tokens", "model", "previous_response_id", "store", "stream", "tools"}
}
