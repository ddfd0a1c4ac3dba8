package server

import (
	"fmt"
	"testing"

	"sess/plugin"
)

// A conversation is known by all that was said in it, and the ones that were not
// used for longest are forgotten.
func TestThreads(t *testing.T) {
	t.Parallel()
	said := func(texts ...string) digest {
		var all []completionMessage
		for _, text := range texts {
			all = append(all, completionMessage{Role: "user", text: text})
		}
		return saidIn("p", all)
	}
	ref := func(i int) plugin.SessionRef { return plugin.SessionRef{ID: fmt.Sprint(i)} }
	var all threads
	if got, ok := all.find(said("a")); ok {
		t.Errorf("what nobody said was said in %v", got)
	}
	all.keep(said("a"), ref(0))
	all.keep(said("a", "b"), ref(0))
	if _, ok := all.find(said("a")); ok {
		t.Error("a session that went on is known by what was said before")
	}
	if got, ok := all.find(said("a", "b ")); !ok || got != ref(0) {
		t.Errorf("outer blanks count: %v, %v", got, ok)
	}
	for _, other := range []digest{said("ab"), said("a", "b", ""), saidIn("q", []completionMessage{{Role: "user", text: "a"}, {Role: "user", text: "b"}})} {
		if _, ok := all.find(other); ok {
			t.Error("another conversation is taken for this one")
		}
	}
	for i := 1; i <= maxThreads; i++ {
		if i == maxThreads {
			if _, ok := all.find(said("a", "b")); !ok { // used, so it stays
				t.Error("a conversation is forgotten while there is room")
			}
		}
		all.keep(said(fmt.Sprint(i)), ref(i))
	}
	if _, ok := all.find(said("a", "b")); !ok {
		t.Error("the conversation that was used lately is forgotten")
	}
	if _, ok := all.find(said("1")); ok || len(all.bySaid) != maxThreads || len(all.byRef) != maxThreads {
		t.Errorf("%d conversations are known, the oldest among them: %v", len(all.bySaid), ok)
	}
}
