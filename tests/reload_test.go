package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sess/host/models/modelstest"
)

// A conversation that is open in a gateway has the settings of its model from the
// configuration as it is now, not from when it was opened.
func TestReloadReachesOpenConversations(t *testing.T) {
	t.Parallel()
	u := newModelUser(t, modelstest.Answer{Text: "Before."})
	u.env = append(u.env, "OTHER_KEY=k-other")
	g := u.gateway()
	a := g.asker()
	a.must(t, "POST", "/sessions", map[string]any{"id": "s1"}, nil)
	a.must(t, "POST", "/sessions/s1/messages", map[string]any{"content": "one"}, nil)

	other := modelstest.New()
	t.Cleanup(other.Close)
	other.Answers(modelstest.Answer{Text: "After."})
	before, err := os.ReadFile(filepath.Join(u.home, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	u.config(strings.NewReplacer(u.Server.URL, other.URL, "DESK_KEY", "OTHER_KEY").Replace(string(before)))
	g.do("gateway", "reload")
	var answer struct{ Message struct{ Content string } }
	a.must(t, "POST", "/sessions/s1/messages", map[string]any{"content": "two"}, &answer)
	if answer.Message.Content != "After." {
		t.Errorf("the answer is %q, want that of the new address", answer.Message.Content)
	}
	if all := other.Requests(); len(all) != 1 || all[0].Header.Get("Authorization") != "Bearer k-other" {
		t.Errorf("the new address was asked %+v, want one request with the new key", all)
	}
}

// What a provider was found not to take is not asked of it in every turn.
func TestProviderIsKnownInLaterTurns(t *testing.T) {
	t.Parallel()
	u := newModelUser(
		t,
		modelstest.Answer{Status: 400, Body: `{"error":{"message":"m1 does not support tools"}}`},
		modelstest.Answer{Text: "One."},
		modelstest.Answer{Text: "Two."},
	)
	a := u.gateway().asker()
	a.must(t, "POST", "/sessions", map[string]any{"id": "s1"}, nil)
	a.must(t, "POST", "/sessions/s1/messages", map[string]any{"content": "one"}, nil)
	a.must(t, "POST", "/sessions/s1/messages", map[string]any{"content": "two"}, nil)
	if n := len(u.Requests()); n != 3 {
		t.Errorf("two turns took %d requests, want 3: one was refused", n)
	}
}

// S1-06: what has expired is told in the next conversation, also where that is held
// over HTTP.
func TestExpiryIsToldInTheGateway(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	for _, id := range []string{"first", "second"} {
		u.do("chat", "--session="+id, "--message=hi")
	}
	u.config(`{"sessions": {"max": 2}}`)
	u.do("chat", "--session=third", "--message=hi")
	a := u.gateway().asker()
	for i, want := range []bool{true, false} {
		var answer struct{ Notices []string }
		a.must(t, "POST", "/sessions/third/messages", map[string]any{"content": "hi"}, &answer)
		told := strings.Contains(strings.Join(answer.Notices, "\n"), "moved to the trash: first (hi)")
		if told != want {
			t.Errorf("message %d: the notices are %q; told of what has expired: %t, want %t", i, answer.Notices, told, want)
		}
	}
}
