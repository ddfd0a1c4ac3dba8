package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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
	fresh := len(bytes.TrimSpace(text)) == 0
	if fresh {
		text = []byte("{}\n")
	}
	v, err := hujson.Parse(text)
	if err != nil {
		return nil, err
	}
	steps := []string{"plugins", "entries", id, "enabled"}
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	at := func(n int) (pointer string) {
		for _, step := range steps[:n] {
			pointer += "/" + escape.Replace(step)
		}
		return pointer
	}
	if on == nil {
		if v.Find(at(3)) == nil {
			return text, nil
		}
		return patched(&v, "remove", at(3), nil)
	}
	known := 0
	for known < len(steps) && v.Find(at(known+1)) != nil {
		known++
	}
	if known == len(steps) {
		return patched(&v, "replace", at(known), *on)
	}
	var value any = *on
	for i := len(steps) - 1; i > known; i-- {
		value = map[string]any{steps[i]: value}
	}
	object := &v
	if known > 0 {
		object = v.Find(at(known))
	}
	members, ok := object.Value.(*hujson.Object)
	if !ok {
		return nil, fmt.Errorf("%s is not an object", at(known))
	}
	indent := indentOf(members, known)
	if _, err := patched(&v, "add", at(known+1), value); err != nil {
		return nil, err
	}
	// The patch adds it without any blanks.
	if last := &members.Members[len(members.Members)-1]; !bytes.HasSuffix(last.Name.BeforeExtra, []byte("\n")) {
		last.Name.BeforeExtra = append(last.Name.BeforeExtra, '\n')
	}
	last := &members.Members[len(members.Members)-1]
	last.Name.BeforeExtra = append(last.Name.BeforeExtra, indent...)
	text, err = json.MarshalIndent(value, indent, "  ")
	if err != nil {
		return nil, err
	}
	if last.Value, err = hujson.Parse(text); err != nil {
		return nil, err
	}
	last.Value.BeforeExtra = hujson.Extra(" ")
	if !bytes.Contains(members.AfterExtra, []byte("\n")) {
		members.AfterExtra = append(members.AfterExtra, "\n"+strings.TrimSuffix(indent, "  ")...)
	}
	return v.Pack(), nil
}

// patched applies one operation of a JSON patch.
func patched(v *hujson.Value, op, at string, value any) ([]byte, error) {
	patch, err := json.Marshal([]map[string]any{{"op": op, "path": at, "value": value}})
	if err != nil {
		return nil, err
	}
	if err := v.Patch(patch); err != nil {
		return nil, err
	}
	return v.Pack(), nil
}

// indentOf is how deep the members of an object stand: as the last one does, or
// two blanks for each level.
func indentOf(o *hujson.Object, depth int) string {
	if n := len(o.Members); n > 0 {
		before := string(o.Members[n-1].Name.BeforeExtra)
		if at := strings.LastIndex(before, "\n"); at >= 0 {
			return before[at+1:]
		}
	}
	return strings.Repeat("  ", depth+1)
}
