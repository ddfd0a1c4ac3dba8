package models

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"sess/plugin"
	"sess/store/transcript"
)

// offline is the model that needs nothing. Its answer depends on the request
// alone.
type offline struct {
	name string
	pace time.Duration
}

var _ Model = (*offline)(nil)

func openOffline(id, model string, _ Provider, c Config) (Model, error) {
	if model != "echo" {
		return nil, plugin.Errorf(plugin.Usage, "model %s/%s: the offline provider has no model %q", id, model, model).
			WithHint("use %s/echo", id)
	}
	return &offline{name: id + "/" + model, pace: c.Pace}, nil
}

func (o *offline) Name() string { return o.name }

const offlineHelp = `I am a model that works without a network; I answer what I see of the conversation.
call <tool> <JSON object>   calls a tool; several such lines call several
slow <words> [<pause>]      counts that many words, with a pause after each: slow 200 20ms
think <text>                thinks aloud before it answers
fail                        fails, as a model may
help                        shows this`

const (
	quoteRunes   = 60      // of a message that is quoted in a sentence
	quoteBytes   = 2_000   // of a tool's result
	maxSlowWords = 100_000 // more is not patience any more
	slowPause    = 10 * time.Millisecond
)

var (
	callLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^call\s+(\S+)(?:\s+(\{.*))?$`) })
	slowLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^slow\s+(\d{1,6})(?:\s+(\S+))?$`) })
)

func (o *offline) Turn(ctx context.Context, req Request, emit func(Delta)) (Answer, error) {
	usage := Usage{InputTokens: len(strings.Fields(req.System))}
	past, err := recall(req)
	if err != nil {
		return Answer{}, err
	}
	usage.InputTokens += past.Words
	state, err := past.state(req)
	if err != nil {
		return Answer{}, err
	}
	say := func(text string, pause time.Duration) (Answer, error) {
		for word := range strings.SplitAfterSeq(text, " ") {
			if err := wait(ctx, pause); err != nil {
				return Answer{}, err
			}
			emit(Delta{Kind: DeltaText, Text: word})
		}
		usage.OutputTokens += len(strings.Fields(text))
		return Answer{Text: text, Usage: usage, State: state}, nil
	}
	if results := answered(past.results); results != "" {
		return say(results, o.pace)
	}
	if past.Messages == 0 {
		return say("Nobody has said anything yet.", o.pace)
	}
	last := past.last
	calls, refusal := parseCalls(last, req.Tools, past.Calls)
	switch {
	case refusal != "":
		return say(refusal, o.pace)
	case calls != nil:
		for _, call := range calls {
			if err := wait(ctx, o.pace); err != nil {
				return Answer{}, err
			}
			emit(Delta{Kind: DeltaTool, Call: call})
			usage.OutputTokens++
		}
		return Answer{ToolCalls: calls, Usage: usage, State: state}, nil
	case last == "help":
		return say(offlineHelp, o.pace)
	case last == "fail":
		return Answer{}, plugin.Errorf(plugin.Unavailable, "%s failed because it was told to", o.name).
			WithHint("say something else")
	}
	if m := slowLine().FindStringSubmatch(last); m != nil {
		n, err := strconv.Atoi(m[1])
		pause := slowPause
		if m[2] != "" && err == nil {
			pause, err = time.ParseDuration(m[2])
		}
		if err == nil && n <= maxSlowWords {
			words := make([]string, n)
			for i := range words {
				words[i] = strconv.Itoa(i + 1)
			}
			return say(strings.Join(words, " "), pause)
		}
	}
	if thought, ok := strings.CutPrefix(last, "think "); ok {
		for word := range strings.SplitAfterSeq(strings.TrimSpace(thought), " ") {
			if err := wait(ctx, o.pace); err != nil {
				return Answer{}, err
			}
			emit(Delta{Kind: DeltaThought, Text: word})
			usage.OutputTokens++
		}
	}
	text := fmt.Sprintf("You said: %q. This is your first message in this conversation.", short(last))
	if n := past.Messages; n > 1 {
		text = fmt.Sprintf("You said: %q. This conversation has %d messages from you; the first was %q.", short(last), n, past.First)
	}
	return say(text, o.pace)
}

// parseCalls reads a message that consists of call lines; the numbers in their
// ids follow one that was used before. A message that is none gives nothing; one
// that cannot be followed gives what to say about it.
func parseCalls(text string, tools []Tool, used int) (calls []transcript.ToolCall, refusal string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		m := callLine().FindStringSubmatch(line)
		if m == nil {
			return nil, ""
		}
		name, arguments := m[1], m[2]
		if arguments == "" {
			arguments = "{}"
		}
		known := []string{}
		for _, tool := range tools {
			if tool.Name == name {
				known = nil
				break
			}
			known = append(known, tool.Name)
		}
		switch {
		case len(known) > 0:
			return nil, fmt.Sprintf("There is no tool %q. The tools are: %s.", name, strings.Join(known, ", "))
		case len(tools) == 0:
			return nil, fmt.Sprintf("There is no tool %q, nor any other.", name)
		case !json.Valid([]byte(arguments)):
			return nil, fmt.Sprintf("What follows %q is not one JSON object: %s", "call "+name, short(arguments))
		}
		used++
		calls = append(calls, transcript.ToolCall{ID: callPrefix + strconv.Itoa(used), Name: name, Arguments: json.RawMessage(arguments)})
	}
	return calls, ""
}

// callPrefix stands before the number of a call.
const callPrefix = "call_"

// recollection is what the model needs of a conversation, whatever its length.
// What is exported goes into the state, so that the next request need not read
// the conversation from its beginning.
type recollection struct {
	Items    int    `json:"items"`    // that the other fields tell of
	Words    int    `json:"words"`    // of all that was said
	Messages int    `json:"messages"` // from the user
	First    string `json:"first"`    // of them, as it is quoted
	Calls    int    `json:"calls"`    // the highest number in the id of a call

	last    string
	results []transcript.HistoryItem // of tools, at the end; as much as is quoted
}

// offlineState is what the model leaves behind.
type offlineState struct {
	Past *recollection `json:"offline"`
}

// recall remembers the conversation: what the last answer's state tells, and what
// was said since. A state that does not fit counts as none.
func recall(req Request) (recollection, error) {
	var known offlineState
	_ = json.Unmarshal(req.State, &known) // it may be another provider's
	if p := known.Past; p != nil && req.Since != nil && 0 < p.Items && p.Items < req.Items {
		past := *p
		asked := past.Messages
		err := past.add(req.Since(p.Items))
		if err != nil || past.Messages > asked || len(past.results) > 0 {
			return past, err
		}
	}
	var past recollection
	if req.History == nil {
		return past, nil
	}
	return past, past.add(req.History)
}

// state is what the next request is to know.
func (p *recollection) state(req Request) (json.RawMessage, error) {
	if req.Since == nil {
		return nil, nil
	}
	p.Items = req.Items
	return json.Marshal(offlineState{p})
}

// add remembers what follows.
func (p *recollection) add(history iter.Seq2[transcript.HistoryItem, error]) error {
	for item, err := range history {
		if err != nil {
			return err
		}
		for range strings.FieldsSeq(item.Content) {
			p.Words++
		}
		for _, call := range item.ToolCalls {
			number, ok := strings.CutPrefix(call.ID, callPrefix)
			if n, err := strconv.Atoi(number); ok && err == nil {
				p.Calls = max(p.Calls, n)
			}
		}
		if item.Role != transcript.RoleTool {
			p.results = nil
		}
		switch item.Role {
		case transcript.RoleTool:
			text := strings.ToValidUTF8(item.Content[:min(len(item.Content), quoteBytes)], "")
			if len(item.Content) > quoteBytes {
				text += "…"
			}
			p.results = append(p.results, transcript.HistoryItem{Name: item.Name, Content: text})
		case transcript.RoleUser:
			p.last = strings.TrimSpace(item.Content)
			if p.Messages++; p.Messages == 1 {
				p.First = short(p.last)
			}
		}
	}
	return nil
}

// answered quotes the results of tools.
func answered(results []transcript.HistoryItem) string {
	var b strings.Builder
	for _, item := range results {
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(cmp.Or(item.Name, "a tool") + " answered:")
		for line := range strings.SplitSeq(item.Content, "\n") {
			b.WriteString("\n> " + line)
		}
	}
	return b.String()
}

// short is a text that fits a sentence.
func short(text string) string {
	runes := []rune(text)
	if len(runes) <= quoteRunes {
		return text
	}
	return string(runes[:quoteRunes-1]) + "…"
}

// wait pauses; it returns the context's error if that ends first.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
