package plugin

import (
	"slices"
	"strings"
)

// Usage is the verb's usage line without a program's name:
// "save <name> [flags]". Internal flags do not count.
func (v *Verb) Usage() string {
	var b strings.Builder
	b.WriteString(v.Name)
	for _, a := range v.Args {
		word := "<" + a.Name + ">"
		if a.Repeated {
			word += "..."
		}
		if !a.Required {
			word = "[" + word + "]"
		}
		b.WriteString(" " + word)
	}
	if slices.ContainsFunc(v.Flags, func(f Flag) bool { return !f.Internal }) {
		b.WriteString(" [flags]")
	}
	return b.String()
}

// Field is the name of the flag in objects: camelCase, and without the "no-"
// of a flag that exists in its negative form only.
func (f *Flag) Field() string { return Camel(strings.TrimPrefix(f.Name, "no-")) }

// Placeholder stands for the flag's value in help and hints: "<text>", or what
// completes it, such as "<snapshot>". It is ""
// for a boolean, which needs none.
func (f *Flag) Placeholder() string {
	switch f.Type {
	case TypeBool:
		return ""
	case TypeInt:
		return "<number>"
	case TypeMap:
		return "<key=value>"
	case TypeDuration:
		return "<duration>"
	}
	if f.Enum != nil {
		return "<" + strings.Join(f.Enum, "|") + ">"
	}
	if f.Complete != "" {
		return "<" + f.Complete + ">"
	}
	return "<text>"
}

// Nearest returns those of the known words that someone who typed word most
// likely meant, at most three, best first and otherwise in the order of known.
// It ignores case; it returns nil where nothing is near.
func Nearest(word string, known []string) []string {
	const most = 3
	typed := []rune(strings.ToLower(word))
	limit := min(3, max(1, len(typed)/3), len(typed))
	byDistance := make([][]string, limit+1)
	for _, k := range known {
		lower := strings.ToLower(k)
		d := distance(typed, []rune(lower), limit)
		if len(typed) > 1 && strings.HasPrefix(lower, string(typed)) {
			d = min(d, 1)
		}
		if d <= limit && !slices.Contains(byDistance[d], k) {
			byDistance[d] = append(byDistance[d], k)
		}
	}
	// Words at a greater distance than the best ones are noise.
	for _, words := range byDistance {
		if len(words) > 0 {
			return words[:min(most, len(words))]
		}
	}
	return nil
}

// distance counts the insertions, deletions, replacements and swaps of
// neighbours that turn a into b; it returns limit+1 for anything above limit.
func distance(a, b []rune, limit int) int {
	if len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit + 1
	}
	var before []int
	prev := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := range a {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range b {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(prev[j+1]+1, row[j]+1, prev[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, prev = prev, row
	}
	return min(prev[len(b)], limit+1)
}
