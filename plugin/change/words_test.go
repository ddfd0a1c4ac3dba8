package change_test

import (
	"slices"
	"testing"

	"sess/plugin/change"
)

func TestIndices(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in, want []int
		n        int
		bad      string
	}{
		{[]int{25, 18, 22, 18, -1}, []int{18, 22, 25, 29}, 30, ""},
		{[]int{-30, 0}, []int{0}, 30, ""},
		{nil, nil, 30, ""},
		{[]int{1, 30}, nil, 30, "there is no message 30: the session has 30, 0 to 29"},
		{[]int{-2}, nil, 1, "there is no message -2: the session has one, message 0"},
		{[]int{0}, nil, 0, "there is no message 0: the session has none"},
	} {
		got, err := change.Indices(c.in, c.n)
		if text := errorText(err); !slices.Equal(got, c.want) || text != c.bad {
			t.Errorf("Indices(%v, %d) = %v, %q; want %v, %q", c.in, c.n, got, text, c.want, c.bad)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestParseSlice(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]int{
		"3:9": {3, 9}, ":3": {0, 3}, "7:": {7, 10}, ":": {0, 10}, "-2:": {8, 10}, ":-2": {0, 8}, "-3:-1": {7, 9},
		"10:": {10, 10}, "50:60": {10, 10}, "8:60": {8, 10}, "9:2": {9, 9}, "-50:2": {0, 2}, "4:4": {4, 4},
	} {
		start, end, err := change.ParseSlice(text, 10)
		if err != nil || [2]int{start, end} != want {
			t.Errorf("ParseSlice(%q, 10) = %d, %d, %v; want %v", text, start, end, err, want)
		}
	}
	for _, text := range []string{"", "3", "a:", ":b", "1:2:3", "1 :2", "1.5:"} {
		if _, _, err := change.ParseSlice(text, 10); err == nil {
			t.Errorf("ParseSlice(%q) is taken", text)
		}
	}
}

// S0-31, S0-32, S0-33: one message, several, and an open end have their words.
func TestDescribe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		indices []int
		n       int
		words   string
		span    string // "" for none
	}{
		{[]int{14}, 30, "message [14]", ""},
		{[]int{29}, 30, "message [29]", ""},
		{[]int{18, 22, 25}, 30, "messages [18, 22, 25]", ""},
		{[]int{27, 28, 29}, 30, "messages [27:]", "27:"},
		{[]int{0, 1, 2}, 30, "messages [:3]", ":3"},
		{[]int{5, 6}, 30, "messages [5:7]", "5:7"},
		{[]int{0, 1}, 2, "messages [0:]", "0:"},
	} {
		words, span := change.Describe(c.indices, c.n)
		text := ""
		if span != nil {
			text = change.Slice(*span)
		}
		if words != c.words || text != c.span {
			t.Errorf("Describe(%v, %d) = %q, %q; want %q, %q", c.indices, c.n, words, text, c.words, c.span)
		}
	}
}
