package host

import (
	"context"
	"errors"
	"io"
	"slices"

	"sess/plugin"
	"sess/surfaces"
)

// lending are the files that a call was lent, of whoever made it.
type lending struct {
	in  io.ReadCloser
	out plugin.File
	// aside is true where what is written goes out in place of the answer.
	aside bool
}

// lend gives a call the files that its words name, if its verb uses some and
// whoever makes it lends them. A model is never lent any.
func (h *Host) lend(ctx context.Context, command string, call *plugin.Call) (*lending, error) {
	files := plugin.FilesOf(ctx)
	people := []plugin.Caller{plugin.CallerCLI, plugin.CallerSlash, plugin.CallerRPC}
	l := &lending{}
	if files == nil || !slices.Contains(people, call.Caller) {
		return l, nil
	}
	spec, err := h.Spec(ctx, command)
	if err != nil {
		return l, nil // the call itself says so
	}
	verb, n := spec.Find(call.Argv)
	if verb == nil || verb.Input == "" && verb.Output == "" {
		return l, nil
	}
	in, out := surfaces.FileNames(verb, call.Argv[n:])
	if verb.Input != "" && call.Input == nil {
		if l.in, err = files.Open(ctx, in); err != nil {
			return nil, plugin.AsError(err)
		}
		if l.in != nil {
			call.Input = l.in
		}
	}
	if verb.Output != "" && call.Output == nil {
		if l.out, err = files.Create(ctx, out); err != nil {
			return nil, plugin.AsError(errors.Join(err, l.close()))
		}
		if l.out != nil {
			call.Output = lentOutput{l.out}
			l.aside = out == "" || out == "-"
		}
	}
	return l, nil
}

// lentOutput is a file of the caller's, who has named it himself.
type lentOutput struct{ plugin.File }

func (lentOutput) Begin(string, string) error { return nil }

func (l *lending) close() error {
	if l.in == nil {
		return nil
	}
	return l.in.Close()
}

// end makes what was written visible, or takes it back.
func (l *lending) end(res plugin.Result, err error) (plugin.Result, error) {
	bad := l.close()
	if err != nil {
		if l.out != nil {
			_ = l.out.Discard() // there is an error to tell of already
		}
		return res, err
	}
	if l.out != nil {
		bad = errors.Join(bad, l.out.Commit())
	}
	if bad != nil {
		return plugin.Result{}, plugin.AsError(bad)
	}
	if l.aside && res.Text != "" {
		res.Notices = append([]string{res.Text}, res.Notices...)
		res.Text = ""
	}
	return res, nil
}

// namedFiles lends only files that have names: where the answer is one document,
// nothing else can go out beside it.
type namedFiles struct{ plugin.Files }

func (f namedFiles) Create(ctx context.Context, name string) (plugin.File, error) {
	if name == "" || name == "-" {
		return nil, nil
	}
	return f.Files.Create(ctx, name)
}
