package dispatch_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"sess/dispatch"
	"sess/plugin"
)

// A verb's output is the answer where nobody else takes it; what a call brings or
// names must be of use to its verb.
func TestContent(t *testing.T) {
	t.Parallel()
	d, err := dispatch.New(dispatch.Command{Name: "carry", Summary: "Carry", Verbs: []dispatch.Verb{
		{
			Name: "write", Summary: "Write", Effect: plugin.EffectRead, Output: "output",
			Args: []plugin.Arg{{Name: "text", Type: plugin.TypeString}},
			Flags: func(fs *dispatch.Flags) {
				fs.String("output", "", "file")
				fs.String("type", "text/plain", "what it is")
				fs.Int("times", 1, "how often")
			},
			Run: func(_ context.Context, in *dispatch.Invocation) (plugin.Result, error) {
				err := in.Call.Output.Begin("x", in.String("type"))
				for range in.Int("times") {
					_, werr := io.WriteString(in.Call.Output, in.Arg("text"))
					err = errors.Join(err, werr)
				}
				return plugin.Result{Text: "written"}, err
			},
		},
		{
			Name: "read", Summary: "Read", Effect: plugin.EffectWrite, Input: "file",
			Args: []plugin.Arg{{Name: "file", Type: plugin.TypeString}},
			Run: func(_ context.Context, in *dispatch.Invocation) (plugin.Result, error) {
				data, err := io.ReadAll(in.Call.Input)
				return plugin.Result{Text: string(data)}, err
			},
		},
		{
			Name: "none", Summary: "None", Effect: plugin.EffectRead,
			Run: func(context.Context, *dispatch.Invocation) (plugin.Result, error) { return plugin.Result{}, nil },
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	call := func(input io.Reader, argv ...string) (plugin.Result, error) {
		return d.Dispatch(t.Context(), plugin.Call{Argv: argv, Caller: plugin.CallerCLI, Input: input}, nil)
	}
	for _, tt := range []struct {
		argv       []string
		text, data string
	}{
		{[]string{"write", "a <b>\n"}, "a <b>", "\"a \\u003cb\\u003e\""},
		{[]string{"write", `{"k":1}`, "--type=application/json"}, `{"k":1}`, `{"k":1}`},
		{[]string{"write", "x", "--output=-"}, "x", `"x"`},
	} {
		res, err := call(nil, tt.argv...)
		if err != nil || res.Text != tt.text || string(res.Data) != tt.data {
			t.Errorf("%q = %q, %s, %v, want %q, %s", tt.argv, res.Text, res.Data, err, tt.text, tt.data)
		}
	}
	if res, err := call(strings.NewReader("in"), "read", "label"); err != nil || res.Text != "in" {
		t.Errorf("read = %q, %v", res.Text, err)
	}
	for _, tt := range []struct {
		input io.Reader
		argv  []string
		want  string
	}{
		{nil, []string{"write", "x", "--output=f"}, "write: the file f is not opened here"},
		{nil, []string{"read", "f"}, "read: the file f is not opened here"},
		{strings.NewReader(""), []string{"none"}, "none reads no input"},
		{nil, []string{"write", strings.Repeat("x", 1000), "--times=5000"}, "write: there is more than the 4 MB"},
	} {
		_, err := call(tt.input, tt.argv...)
		if e := plugin.AsError(err); e == nil || e.Code != plugin.Usage || !strings.HasPrefix(e.Message, tt.want) || e.Hint == "" {
			t.Errorf("%.40q: %v, want %s, and a hint", tt.argv, err, tt.want)
		}
	}
}
