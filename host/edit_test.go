package host

import "testing"

func TestEditEntry(t *testing.T) {
	t.Parallel()
	on, off := new(true), new(false)
	tests := []struct {
		name      string
		enabled   *bool
		old, want string
	}{
		{"no file", off, "", "{\n  \"plugins\": {\"entries\": {\"note\": {\"enabled\": false}}}\n}\n"},
		{"an empty object", on, "{}", "{\n  \"plugins\": {\"entries\": {\"note\": {\"enabled\": true}}}\n}"},
		{"nothing to remove", nil, "{} // mine\n", "{} // mine\n"},
		{"an entry that says otherwise", on, `{"plugins":{"entries":{"note":{"enabled":/*a*/false/*b*/,}}}}`, `{"plugins":{"entries":{"note":{"enabled":/*a*/true/*b*/,}}}}`},
		{"an entry that says nothing", off, `{"plugins": {"entries": {"note": {"config": {}}}}}`, `{"plugins": {"entries": {"note": {"config": {}, "enabled": false}}}}`},
		{"one line", off, `{"plugins": {"entries": {"sess": {}}}}`, `{"plugins": {"entries": {"sess": {}, "note": {"enabled": false}}}}`},
		{"a comment at the end", off, "{\n \"chat\": {} // c\n}", "{\n \"chat\": {}, // c\n \"plugins\": {\"entries\": {\"note\": {\"enabled\": false}}}\n}"},
		{"a comma at the end", off, "{\n\t\"chat\": {}, // c\n}", "{\n\t\"chat\": {}, // c\n\t\"plugins\": {\"entries\": {\"note\": {\"enabled\": false}}},\n}"},
		{"a comment in front", off, "{\n  /* x */ \"chat\": {}\n}", "{\n  /* x */ \"chat\": {},\n  \"plugins\": {\"entries\": {\"note\": {\"enabled\": false}}}\n}"},
		{"the only entry", nil, `{"plugins": {"entries": {"note": {}}}}`, `{"plugins": {"entries": {}}}`},
		{"the first entry", nil, "{\"plugins\": {\"entries\": {\n  \"note\": {}, // n\n  \"b\": {}\n}}}", "{\"plugins\": {\"entries\": { // n\n  \"b\": {}\n}}}"},
		{"the last entry", nil, "{\"plugins\": {\"entries\": {\n  \"b\": {}, // b\n  \"note\": {}\n}}}", "{\"plugins\": {\"entries\": {\n  \"b\": {} // b\n}}}"},
		{"the last entry, with a comma", nil, "{\"plugins\": {\"entries\": {\n  \"b\": {}, // b\n  \"note\": {},\n}}}", "{\"plugins\": {\"entries\": {\n  \"b\": {}, // b\n}}}"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := editEntry([]byte(tt.old), "note", tt.enabled)
			if err != nil || string(got) != tt.want {
				t.Errorf("editEntry(%s) = %v\n%s\nwant\n%s", tt.old, err, got, tt.want)
			}
			if _, err := newConfig("").parse(got); err != nil {
				t.Errorf("what it made: %v", err)
			}
		})
	}
	if _, err := editEntry([]byte(`{"plugins": []}`), "note", on); err == nil {
		t.Error("editEntry of what is not an object works")
	}
}
