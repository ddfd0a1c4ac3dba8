package tests

import (
	"path/filepath"
	"strings"
	"testing"
)

// The Tab key in a shell asks a gateway, the one of the home or the one that is
// named, and knows the names that are there.
func TestCompletionAsksTheGateway(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.do("chat", "--message", "hello")
	u.do("save", "good-plan")
	g := u.gateway()
	// Alone, nobody could tell any more.
	write(t, filepath.Join(u.home, "config.json"), "{broken", 0o600)
	if got := u.do("__complete", "--", "load", ""); !strings.HasPrefix(got, "good-plan\t2 messages, ") {
		t.Errorf("candidates %q", got)
	}

	elsewhere := newUser(t)
	flags := []string{"__complete", "--", "--url=" + g.Address, "--token-file=" + filepath.Join(u.home, "gateway.token")}
	if got := elsewhere.do(append(flags, "load", "g")...); !strings.HasPrefix(got, "good-plan\t") {
		t.Errorf("candidates of the gateway that is named %q", got)
	}
	flags[3] = "--token=wrong"
	if got := elsewhere.do(append(flags, "load", "")...); got != "" {
		t.Errorf("without its token it told %q", got)
	}
	write(t, filepath.Join(u.home, "config.json"), "{}", 0o600)
}
