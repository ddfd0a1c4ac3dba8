package server_test

import (
	"context"
	"io"
	"testing"

	"sess/dispatch"
	"sess/host/server"
	"sess/plugin"
)

// An answer that is an output is a file to be kept, an error never is: also not that
// of a verb that had begun its output and written nothing.
func TestDownload(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	d, err := dispatch.New(dispatch.Command{Name: "carry", Summary: "Carry", Verbs: []dispatch.Verb{{
		Name: "out", Summary: "Write", Effect: plugin.EffectRead, Output: "output",
		Args:  []plugin.Arg{{Name: "text", Type: plugin.TypeString}},
		Flags: func(fs *dispatch.Flags) { fs.String("output", "", "file") },
		Run: func(_ context.Context, in *dispatch.Invocation) (plugin.Result, error) {
			err := in.Call.Output.Begin("x.txt", "text/plain")
			if err == nil && !in.Has("text") {
				err = plugin.Errorf(plugin.Corrupt, "nothing can be read")
			}
			if err == nil {
				_, err = io.WriteString(in.Call.Output, in.Arg("text"))
			}
			return plugin.Result{}, err
		},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	h.verbs["carry"] = d
	h.commands = append(h.commands, server.Command{Spec: d.Spec(), HTTP: true})
	g := start(t, h, server.Options{})
	for target, want := range map[string][3]string{
		"/carry/out?text=hi": {"hi", "text/plain", "attachment; filename=x.txt"},
		"/carry/out":         {`{"error":"nothing can be read","code":"corrupt","text":"nothing can be read"}` + "\n", "application/json", ""},
	} {
		a := g.ask(t, "GET", target, "")
		if got := [3]string{a.body, a.header.Get("Content-Type"), a.header.Get("Content-Disposition")}; got != want {
			t.Errorf("GET %s: %q, want %q", target, got, want)
		}
	}
}
