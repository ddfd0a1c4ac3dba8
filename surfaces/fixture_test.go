package surfaces_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"sess/dispatch"
	"sess/plugin"
)

// values is what a verb of the fixture was given.
type values struct {
	Verb string
	Args map[string][]string
	Ints []int64
	// Text, Lists and Maps hold the flags that were given.
	Text  map[string]string
	Lists map[string][]string
	Maps  map[string]map[string]string
	Bools map[string]bool
}

// fixture is a command with a verb for every shape of declaration. Its answers
// are the values that its verbs were given.
func fixture(tb testing.TB) *dispatch.Dispatcher {
	tb.Helper()
	run := func(name string, read func(in *dispatch.Invocation, v *values)) func(context.Context, *dispatch.Invocation) (plugin.Result, error) {
		return func(_ context.Context, in *dispatch.Invocation) (plugin.Result, error) {
			v := values{Verb: name}
			if read != nil {
				read(in, &v)
			}
			data, err := json.Marshal(v)
			return plugin.Result{Text: name + " ran", Data: data}, err
		}
	}
	name := func(name string, required bool) plugin.Arg {
		return plugin.Arg{Name: name, Type: plugin.TypeString, Required: required, Help: "name of a snapshot", Complete: "snapshot"}
	}
	d, err := dispatch.New(dispatch.Command{
		Name:    "sess",
		Summary: "named snapshots of conversations",
		Verbs: []dispatch.Verb{
			{
				Name: "save", Summary: "keep the conversation under a name", Main: true, Effect: plugin.EffectWrite,
				Help:     "The snapshot holds the whole conversation.\n\nAn existing name is refused unless --overwrite is given.",
				Examples: []string{"save v1", `save v2 --note="before the refactoring"`},
				Args:     []plugin.Arg{name("name", true)},
				Flags: func(fs *dispatch.Flags) {
					fs.String("note", "", "text to remember it by").Short("n")
					fs.Map("tags", "labels")
					fs.Strings("include-file", "files to keep with it")
					fs.Bool("overwrite", false, "replace a snapshot of this name").Short("o")
					fs.String("trigger", "manual", "who asked").Internal()
				},
				Run: run("save", func(in *dispatch.Invocation, v *values) {
					v.Args = map[string][]string{"name": in.Args("name")}
					v.Text = map[string]string{"note": in.String("note")}
					v.Lists = map[string][]string{"include-file": in.Strings("include-file")}
					v.Maps = map[string]map[string]string{"tags": in.Map("tags")}
					v.Bools = map[string]bool{"overwrite": in.Bool("overwrite")}
				}),
			},
			{
				Name: "load", Aliases: []string{"restore", "get"}, Summary: "go back to a snapshot", Main: true,
				Effect: plugin.EffectWrite, AfterTurn: true,
				Args:  []plugin.Arg{name("name", true)},
				Flags: func(fs *dispatch.Flags) { fs.Bool("no-backup", false, "make no backup first") },
				Run: run("load", func(in *dispatch.Invocation, v *values) {
					v.Args = map[string][]string{"name": in.Args("name")}
					v.Bools = map[string]bool{"no-backup": in.Bool("no-backup")}
				}),
			},
			{
				Name: "list", Aliases: []string{"ls", "show"}, Summary: "list the snapshots", Main: true, Effect: plugin.EffectRead,
				Flags: func(fs *dispatch.Flags) {
					fs.Int("limit", 50, "how many").Min(1)
					fs.Bool("include-auto", false, "also automatic ones")
					fs.String("sort", "updated", "order").Enum("updated", "name")
					fs.Duration("newer-than", 0, "only those changed since then")
				},
				Run: run("list", func(in *dispatch.Invocation, v *values) {
					v.Ints = []int64{in.Int("limit")}
					v.Text = map[string]string{"sort": in.String("sort"), "newer-than": in.Duration("newer-than").String()}
					v.Bools = map[string]bool{"include-auto": in.Bool("include-auto")}
				}),
			},
			{
				Name: "new", Aliases: []string{"reset", "fresh"}, Summary: "start a fresh conversation", Main: true, Effect: plugin.EffectWrite,
				Args: []plugin.Arg{name("name", false)},
				Flags: func(fs *dispatch.Flags) {
					fs.String("from", "", "snapshot to start from").Complete("snapshot")
					fs.Bool("backup", true, "back up first").Negatable()
				},
				Run: run("new", func(in *dispatch.Invocation, v *values) {
					v.Args = map[string][]string{"name": in.Args("name")}
					v.Text = map[string]string{"from": in.String("from")}
					v.Bools = map[string]bool{"backup": in.Bool("backup")}
				}),
			},
			{
				Name: "copy", Aliases: []string{"cp"}, Summary: "copy a snapshot", Main: true, Effect: plugin.EffectWrite,
				Args: []plugin.Arg{name("from", true), name("to", true)},
				Run: run("copy", func(in *dispatch.Invocation, v *values) {
					v.Args = map[string][]string{"from": in.Args("from"), "to": in.Args("to")}
				}),
			},
			{
				Name: "delete", Aliases: []string{"rm"}, Summary: "remove snapshots", Main: true, Effect: plugin.EffectDestroy,
				Args: []plugin.Arg{name("name", false)},
				Flags: func(fs *dispatch.Flags) {
					fs.String("prefix", "", "remove all that begin with this")
					fs.Bool("confirm", false, "really remove them").Confirm()
				},
				Run: run("delete", func(in *dispatch.Invocation, v *values) {
					v.Args = map[string][]string{"name": in.Args("name")}
					v.Text = map[string]string{"prefix": in.String("prefix")}
					v.Bools = map[string]bool{"confirm": in.Bool("confirm")}
				}),
			},
			{
				Name: "drop", Summary: "drop messages", Effect: plugin.EffectDestroy,
				Args: []plugin.Arg{{Name: "indices", Type: plugin.TypeInt, Required: true, Repeated: true}},
				Run:  run("drop", func(in *dispatch.Invocation, v *values) { v.Ints = in.ArgInts("indices") }),
			},
			{
				Name: "tag", Summary: "label a snapshot", Effect: plugin.EffectWrite,
				Args: []plugin.Arg{name("name", false), {Name: "labels", Type: plugin.TypeString, Repeated: true}},
				Run: run("tag", func(in *dispatch.Invocation, v *values) {
					v.Args = map[string][]string{"name": in.Args("name"), "labels": in.Args("labels")}
				}),
			},
			{Name: "trash list", Summary: "list the trash", Effect: plugin.EffectRead, Run: run("trash list", nil)},
			{
				Name: "trash restore", Summary: "bring one back", Effect: plugin.EffectWrite, Args: []plugin.Arg{name("name", true)},
				Run: run("trash restore", func(in *dispatch.Invocation, v *values) {
					v.Args = map[string][]string{"name": in.Args("name")}
				}),
			},
			{Name: "op", Summary: "records of operations", Effect: plugin.EffectWrite, Internal: true, Run: run("op", nil)},
		},
		Shortcuts: []plugin.Shortcut{{Name: "snapshot", Argv: []string{"save"}, Summary: "save a snapshot"}},
	})
	if err != nil {
		tb.Fatalf("dispatch.New: %v", err)
	}
	return d
}

func spec(tb testing.TB) *plugin.Spec {
	tb.Helper()
	s := fixture(tb).Spec()
	return &s
}

// text is the whole text of an error, "" for none. Every error of a surface has
// the code usage.
func text(tb testing.TB, err error) string {
	tb.Helper()
	if err == nil {
		return ""
	}
	e, ok := errors.AsType[*plugin.Error](err)
	if !ok || e.Code != plugin.Usage {
		tb.Errorf("error %v (%T), want one of the code usage", err, err)
	}
	return err.(*plugin.Error).Text()
}
