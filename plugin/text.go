package plugin

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
)

// Table lays out rows in columns, below a header and a rule unless the header is
// nil. A cell is put on one line; no line ends in blanks, and the last one has no
// newline. Rows have as many cells as the header.
func Table(header []string, rows [][]string) string {
	if header != nil {
		rows = append([][]string{header}, rows...)
	}
	var widths []int
	lines := make([][]string, len(rows))
	for i, row := range rows {
		lines[i] = make([]string, len(row))
		for j, cell := range row {
			cell = strings.Join(strings.Fields(cell), " ")
			if j == len(widths) {
				widths = append(widths, 0)
			}
			widths[j] = max(widths[j], utf8.RuneCountInString(cell))
			lines[i][j] = cell
		}
	}
	out := make([]string, 0, len(lines)+1)
	for i, cells := range lines {
		var line strings.Builder
		for j, cell := range cells {
			line.WriteString(cell + strings.Repeat(" ", widths[j]-utf8.RuneCountInString(cell)+2))
		}
		out = append(out, strings.TrimRight(line.String(), " "))
		if i == 0 && header != nil {
			total := 2 * (len(widths) - 1)
			for _, w := range widths {
				total += w
			}
			out = append(out, strings.Repeat("-", total))
		}
	}
	return strings.Join(out, "\n")
}

// Size is a number of bytes for a column: 512, 14.2K, 3.0M. A K is 1024 bytes.
func Size(n int64) string {
	if n < 1024 {
		return strconv.FormatInt(n, 10)
	}
	v, unit := float64(n)/1024, 0
	const units = "KMGTPE"
	for v >= 1023.95 && unit < len(units)-1 {
		v /= 1024
		unit++
	}
	return strconv.FormatFloat(v, 'f', 1, 64) + units[unit:unit+1]
}

// ClockSkew is how far ahead a time may be and still be called "now": clocks of
// two processes or machines never agree exactly.
const ClockSkew = time.Minute

// Ago is how long ago t was, in one unit: "3h ago"; a date where that says more,
// and "-" for the zero time.
func Ago(t, now time.Time) string {
	switch since := now.Sub(t); {
	case t.IsZero():
		return "-"
	case since < -ClockSkew:
		return "in the future (" + t.UTC().Format(time.DateOnly) + ")"
	case since < time.Second:
		return "now"
	case since < 60*24*time.Hour:
		return humanize.CustomRelTime(t, now, "ago", "", []humanize.RelTimeMagnitude{
			{D: time.Minute, Format: "%ds %s", DivBy: time.Second},
			{D: time.Hour, Format: "%dm %s", DivBy: time.Minute},
			{D: 48 * time.Hour, Format: "%dh %s", DivBy: time.Hour},
			{D: 60 * 24 * time.Hour, Format: "%dd %s", DivBy: 24 * time.Hour},
		})
	}
	return t.UTC().Format(time.DateOnly)
}
