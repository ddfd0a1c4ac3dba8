package plugin_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"sess/plugin"
)

// A very long word is quoted in part only; lists stay whole.
func TestErrorfQuotesInPart(t *testing.T) {
	t.Parallel()
	for _, typed := range []string{strings.Repeat("a", 100_000), strings.Repeat("a", 999) + strings.Repeat("€", 10_000), strings.Repeat("\xff", 5000)} {
		e := plugin.Errorf(plugin.Usage, "unknown command %q", typed).WithHint("leave out %s", typed)
		for _, text := range []string{e.Message, e.Hint} {
			if len(text) > 5000 || !strings.Contains(text, "…") || utf8.ValidString(typed) && !utf8.ValidString(text) {
				t.Errorf("%.20q…: a text of %d bytes that ends in %q", typed, len(text), text[len(text)-10:])
			}
		}
	}
	list := strings.Repeat("one more problem\n", 1000)
	if e := plugin.Errorf(plugin.Corrupt, "found:\n%s", list); e.Message != "found:\n"+list {
		t.Errorf("of a list of %d bytes %d are left", len(list), len(e.Message))
	}
	if e := plugin.Errorf(plugin.Usage, "unknown command %q", "svae"); e.Message != `unknown command "svae"` {
		t.Errorf("message %q", e.Message)
	}
}
