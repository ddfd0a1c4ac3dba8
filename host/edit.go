package host

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/tailscale/hujson"

	"sess/plugin"
	"sess/store/durable"
)

// configName is the name of the configuration in the home.
const configName = "config.json"

// setEnabled switches a plugin on or off in config.json, or with nil takes its
// entry out. Everything else in the file stays as somebody wrote it, comments
// and blanks too. What would not be valid is not written. It reports whether the
// file has changed.
func (h *Host) setEnabled(id string, on *bool, found []candidate) (bool, error) {
	c := newConfig(h.opts.Home)
	old, err := readConfig(c.path)
	if err != nil {
		return false, err
	}
	if _, err := c.parse(old); err != nil {
		return false, err
	}
	edited, err := editEntry(old, id, on)
	if err != nil {
		return false, plugin.AsError(fmt.Errorf("change %s: %w", c.path, err))
	}
	if bytes.Equal(edited, old) {
		return false, nil
	}
	object, err := c.parse(edited)
	if err == nil {
		err = c.take(object, manifestsOf(found))
	}
	if err != nil {
		return false, err
	}
	if info, err := h.home.Stat(configName); err == nil && !info.Mode().IsRegular() {
		// To replace it would cut it off from where its owner keeps it.
		return false, plugin.Errorf(plugin.Denied, "%s is a link: it is left to whoever made it", c.path).
			WithHint("change plugins.entries.%s in the file that it points to", id)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return true, durable.Write(h.home, configName, edited)
}

// editEntry sets or removes what a configuration says of a plugin.
func editEntry(text []byte, id string, on *bool) ([]byte, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{}\n")
	}
	v, err := hujson.Parse(bytes.Clone(text))
	if err != nil {
		return nil, err
	}
	object, path := &v, []string{"plugins", "entries", id, "enabled"}
	if on == nil {
		path = path[:3]
	}
	for depth, key := range path {
		members, ok := object.Value.(*hujson.Object)
		if !ok {
			return nil, fmt.Errorf("%s is not an object", strings.Join(path[:depth], "."))
		}
		at := slices.IndexFunc(members.Members, func(m hujson.ObjectMember) bool {
			name, ok := m.Name.Value.(hujson.Literal)
			return ok && name.String() == key
		})
		last := depth == len(path)-1
		switch {
		case at < 0 && on == nil:
			return text, nil
		case at < 0:
			value := fmt.Sprint(*on)
			for _, outer := range slices.Backward(path[depth+1:]) {
				value = fmt.Sprintf("{%q: %s}", outer, value)
			}
			err := appendMember(members, key, value, depth)
			return v.Pack(), err
		case last && on == nil:
			removeMember(members, at)
			return v.Pack(), nil
		case last:
			members.Members[at].Value.Value = hujson.Bool(*on)
			return v.Pack(), nil
		}
		object = &members.Members[at].Value
	}
	return nil, errors.New("the path of a plugin's entry is empty")
}

// appendMember adds a member to the end of an object, laid out like those that
// are there.
func appendMember(o *hujson.Object, key, value string, depth int) error {
	parsed, err := hujson.Parse([]byte(value))
	if err != nil {
		return err
	}
	m := hujson.ObjectMember{Name: hujson.Value{Value: hujson.String(key)}, Value: parsed}
	m.Value.BeforeExtra = hujson.Extra(" ")
	comment, end, lines := cutLast(o.AfterExtra)
	switch n := len(o.Members); {
	case n == 0 && !lines:
		m.Name.BeforeExtra = hujson.Extra("\n" + strings.Repeat("  ", depth+1))
		o.AfterExtra = append(o.AfterExtra, "\n"+strings.Repeat("  ", depth)...)
	case !lines:
		m.Name.BeforeExtra = hujson.Extra(" ")
	default:
		indent := strings.Repeat("  ", depth+1)
		if n > 0 {
			if _, before, ok := cutLast(o.Members[n-1].Name.BeforeExtra); ok {
				line := strings.TrimPrefix(string(before), "\n")
				indent = line[:len(line)-len(strings.TrimLeft(line, " \t"))]
			}
		}
		// A comment behind the last member stays behind it.
		m.Name.BeforeExtra = append(slices.Clone(comment), "\n"+indent...)
		o.AfterExtra = end
	}
	if n := len(o.Members); n > 0 && o.Members[n-1].Value.AfterExtra != nil {
		m.Value.AfterExtra = hujson.Extra{} // as hujson writes a comma at the end
	}
	o.Members = append(o.Members, m)
	return nil
}

// removeMember takes a member out of an object and leaves the comments around it.
func removeMember(o *hujson.Object, at int) {
	gone := o.Members[at]
	before, _, _ := cutLast(gone.Name.BeforeExtra)
	o.Members = slices.Delete(o.Members, at, at+1)
	if at < len(o.Members) {
		next := &o.Members[at].Name
		next.BeforeExtra = append(slices.Clone(before), next.BeforeExtra...)
		return
	}
	o.AfterExtra = append(slices.Clone(before), o.AfterExtra...)
	if at > 0 {
		last := &o.Members[at-1].Value
		switch {
		case gone.Value.AfterExtra == nil:
			o.AfterExtra = append(slices.Clone(last.AfterExtra), o.AfterExtra...)
			last.AfterExtra = nil
		case last.AfterExtra == nil:
			last.AfterExtra = hujson.Extra{}
		}
	}
}

// cutLast splits blanks and comments before their last line end.
func cutLast(extra hujson.Extra) (before, line hujson.Extra, found bool) {
	at := bytes.LastIndexByte(extra, '\n')
	if at < 0 {
		return nil, extra, false
	}
	return extra[:at], extra[at:], true
}
