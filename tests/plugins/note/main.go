// Command note is a plugin that keeps notes beside the conversation.
package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"sess/dispatch"
	"sess/plugin"
	"sess/plugin/wire"
)

func main() {
	name := plugin.Arg{Name: "name", Type: plugin.TypeString, Required: true, Help: "name of the note"}
	text := plugin.Arg{Name: "text", Type: plugin.TypeString, Required: true, Help: "what to note"}
	var n note
	n.Plugin = dispatch.MustPlugin(dispatch.Command{Name: "note", Summary: "Notes beside the conversation", Verbs: []dispatch.Verb{
		{Name: "add", Summary: "Write a note", Args: []plugin.Arg{name, text}, Effect: plugin.EffectWrite, Run: n.add},
		{Name: "list", Summary: "List the notes", Effect: plugin.EffectRead, Run: n.list},
		{Name: "save", Summary: "Save the conversation with a note", Args: []plugin.Arg{name, text}, Effect: plugin.EffectWrite, Run: n.save},
	}})
	wire.Serve(&n, wire.ServeOptions{})
}

type note struct{ *dispatch.Plugin }

func (n *note) path(in *dispatch.Invocation, name string) string {
	return filepath.Join(n.Configuration().AgentsDir, in.Call.Agent, "notes", name+".txt")
}

func (n *note) add(_ context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	name := in.Arg("name")
	if name == "" || strings.ContainsAny(name, "/\\\x00") {
		return plugin.Result{}, plugin.Errorf(plugin.InvalidName, "%q is no name for a note", name).WithHint("leave out slashes")
	}
	err := os.MkdirAll(filepath.Dir(n.path(in, name)), 0o700)
	if err == nil {
		err = os.WriteFile(n.path(in, name), []byte(in.Arg("text")), 0o600)
	}
	return plugin.Result{Text: "noted " + name}, err
}

func (n *note) list(_ context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	files, err := filepath.Glob(n.path(in, "*"))
	names := []string{}
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".txt"))
	}
	data, _ := json.Marshal(names) // of strings: it cannot fail
	return plugin.Result{Text: strings.Join(names, "\n"), Data: data}, err
}

// save asks another plugin, as the permissions in plugin.json let it.
func (n *note) save(ctx context.Context, in *dispatch.Invocation) (plugin.Result, error) {
	params, _ := json.Marshal(map[string]string{"action": "save", "name": in.Arg("name"), "note": in.Arg("text"), "session": in.Call.Session})
	answer, err := n.Runtime().Call(ctx, "sess.invoke", params)
	return plugin.Result{Text: "saved the conversation as " + in.Arg("name"), Data: answer}, err
}
