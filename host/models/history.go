package models

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"sess/store/transcript"
)

// entry is an item of a conversation as a provider takes it: each answer stands
// together with the results of its calls, one for each, in the order of the
// calls.
type entry struct {
	transcript.HistoryItem
	results []string // by the index in ToolCalls
	// native says that the item's own words are the provider's, and go to it as
	// they are.
	native bool
}

// collect reads a history, and leaves out or completes what a provider would
// refuse; notes tell people what. own tells whether a native item is in the
// provider's own words, and which calls it asks for: one that asks for others than
// the item itself was changed since, and is told anew. The history on the disk
// stays as it is.
func collect(history iter.Seq2[transcript.HistoryItem, error], own func(*transcript.Native) (calls []string, ok bool)) (entries []entry, notes []string, err error) {
	type slot struct{ entry, call int }
	open := map[string]slot{} // calls without a result, by id
	given := map[slot]bool{}
	unknown, foreign := 0, map[string]int{}
	if history == nil {
		return nil, nil, nil
	}
	for item, err := range history {
		if err != nil {
			return nil, nil, err
		}
		native := false
		if item.Native != nil {
			calls, ok := own(item.Native)
			native = ok && slices.EqualFunc(calls, item.ToolCalls, func(id string, c transcript.ToolCall) bool { return id == c.ID })
		}
		switch item.Role {
		case transcript.RoleTool:
			if at, ok := open[item.ToolCallID]; ok {
				entries[at.entry].results[at.call], given[at] = item.Content, true
				delete(open, item.ToolCallID)
			}
			continue
		case transcript.RoleUser, transcript.RoleSystem, transcript.RoleAssistant:
		default:
			unknown++
			continue
		}
		if !native && item.Content == "" && len(item.ToolCalls) == 0 {
			if item.Native != nil {
				foreign[item.Native.Kind]++
			}
			continue
		}
		e := entry{HistoryItem: item, native: native, results: make([]string, len(item.ToolCalls))}
		for i, call := range item.ToolCalls {
			open[call.ID] = slot{len(entries), i}
		}
		entries = append(entries, e)
	}
	unanswered := 0
	for i, e := range entries {
		for j := range e.results {
			if !given[slot{i, j}] {
				e.results[j] = transcript.Interrupted
				unanswered++
			}
		}
	}
	if unanswered > 0 {
		notes = append(notes, fmt.Sprintf("%s no result; the model is told that they were interrupted", count(unanswered, "call of a tool has", "calls of tools have")))
	}
	if unknown > 0 {
		notes = append(notes, fmt.Sprintf("%s of a form that this version does not know; the model is not told of them", count(unknown, "item of the history is", "items of the history are")))
	}
	for _, kind := range slices.Sorted(maps.Keys(foreign)) {
		notes = append(notes, fmt.Sprintf("%s; the model is not told of them", count(foreign[kind],
			"item of the history makes sense to the provider kind "+kind+" alone", "items of the history make sense to the provider kind "+kind+" alone")))
	}
	return entries, notes, nil
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
