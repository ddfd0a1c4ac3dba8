package snapshot

import (
	"cmp"
	"slices"
	"strings"
)

// near returns the names, at most five, that text may have been meant as: the
// same in another case, those it begins, and those a few slips away.
func near(text string, names []Name) []Name {
	type candidate struct {
		name Name
		cost int
	}
	text = strings.ToLower(text)
	slips := min(3, 1+len(text)/4)
	var found []candidate
	for _, n := range names {
		lower := strings.ToLower(string(n))
		cost := 0
		switch {
		case lower == text:
		case text != "" && strings.HasPrefix(lower, text):
			cost = 1
		default:
			// With nothing in common it is no slip, however short the names.
			if cost = distance(text, lower); cost > slips || cost >= max(len(text), len(lower)) {
				continue
			}
		}
		found = append(found, candidate{n, cost})
	}
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.name, b.name))
	})
	var out []Name
	for _, c := range found[:min(5, len(found))] {
		out = append(out, c.name)
	}
	return out
}

// distance counts the signs to insert, remove or replace, and the neighbours to
// exchange, to get from a to b.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			same := 1
			if a[i] == b[j] {
				same = 0
			}
			row[j+1] = min(row[j]+1, last[j+1]+1, last[j]+same)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
