package dispatch

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"slices"
	"sort"

	"sess/plugin"
)

// Paged declares --limit and --after, by which a list is read in parts; see
// [Paginate].
func (f *Flags) Paged() {
	f.Int(plugin.FlagLimit, 0, "at most so many").Min(1)
	f.String(plugin.FlagAfter, "", "go on behind a page: what that page named")
}

// Paginate answers the flags of [Flags.Paged]: the part of all that they ask
// for, and what is said of it. all is in order. place names where an item
// stands in that order by words that no two items share: one that stands
// before another has the larger word where they first differ. It is asked for
// a few items only.
//
// A page's end is remembered as such a place, so the next one begins right
// behind it, whatever was added or taken away meanwhile, also the item itself.
func Paginate[T any](in *Invocation, all []T, place func(T) []string) ([]T, *plugin.Page, error) {
	page := &plugin.Page{Total: int64(len(all))}
	if in.Changed(plugin.FlagAfter) {
		after, err := in.parseCursor(in.String(plugin.FlagAfter))
		if err != nil {
			return nil, nil, err
		}
		all = all[sort.Search(len(all), func(i int) bool { return slices.Compare(place(all[i]), after) < 0 }):]
	}
	if n := in.Int(plugin.FlagLimit); n > 0 && n < int64(len(all)) {
		all = all[:n]
		page.Next = in.cursor(place(all[n-1]))
	}
	return all, page, nil
}

// PageText says in one line which part of a list is shown, and how to see the
// next; "" where it is the whole list.
func PageText(shown int, page *plugin.Page) string {
	switch {
	case page.Next != "":
		return fmt.Sprintf("%d of %d shown; for the next ones add --%s=%s", shown, page.Total, plugin.FlagAfter, page.Next)
	case int64(shown) < page.Total:
		return fmt.Sprintf("%d of %d shown; no more follow", shown, page.Total)
	}
	return ""
}

// A cursor is the place as a JSON list behind a checksum that covers the verb
// as well, so that one that was cut short or given by another verb is refused
// and not taken for another place.

func (in *Invocation) cursorSum(place []byte) []byte {
	return binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(append([]byte(in.verb.Name+"\x00"), place...)))
}

func (in *Invocation) cursor(place []string) string {
	b, err := json.Marshal(place)
	if err != nil {
		panic("dispatch: a list of strings that JSON cannot hold: " + err.Error())
	}
	return base64.RawURLEncoding.EncodeToString(append(in.cursorSum(b), b...))
}

func (in *Invocation) parseCursor(text string) ([]string, error) {
	const sum = crc32.Size
	data, err := base64.RawURLEncoding.Strict().DecodeString(text)
	var place []string
	if err != nil || len(data) < sum || !slices.Equal(data[:sum], in.cursorSum(data[sum:])) || json.Unmarshal(data[sum:], &place) != nil {
		return nil, plugin.Errorf(plugin.Usage, "--%s: %q is no place in what %s lists", plugin.FlagAfter, shorten(text), in.verb.Name).
			WithHint("give it as the page before named it, or leave it out to begin at the front")
	}
	return place, nil
}

// shorten cuts text for a message.
func shorten(text string) string {
	const most = 40
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}
