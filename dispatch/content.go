package dispatch

import (
	"bytes"
	"encoding/json"
	"strings"

	"sess/plugin"
)

// MaxContent is how many bytes an answer may have that is a verb's output, as
// nobody takes that beside it.
const MaxContent = 4 << 20

// content checks what the call brings against what its verb uses. It returns what
// takes the output where nobody else does, else nil.
func (in *Invocation) content() (*content, error) {
	v := &in.verb.spec
	const noFile = "%s: the file %s is not opened here"
	switch {
	case in.Call.Input != nil && v.Input == "":
		return nil, plugin.Errorf(plugin.Usage, "%s reads no input", v.Name).WithHint("leave the input out")
	case in.Call.Input == nil && v.Input != "" && in.Arg(v.Input) != "" && in.Call.Turn == "":
		return nil, plugin.Errorf(plugin.Usage, noFile, v.Name, in.Arg(v.Input)).
			WithHint("files are read by the command line; give the content itself as %s", plugin.FieldInput)
	case in.Call.Output != nil || v.Output == "":
		return nil, nil
	case in.String(v.Output) != "" && in.String(v.Output) != "-":
		return nil, plugin.Errorf(plugin.Usage, noFile, v.Name, in.String(v.Output)).
			WithHint("files are written by the command line; leave --%s out to have the content as the answer", v.Output)
	}
	c := &content{verb: v.Name}
	in.Call.Output = c
	return c, nil
}

// content is output that becomes the answer.
type content struct {
	verb      string
	mediaType string
	data      bytes.Buffer
}

func (c *content) Begin(_, mediaType string) error {
	c.mediaType = mediaType
	return nil
}

func (c *content) Write(p []byte) (int, error) {
	if c.data.Len()+len(p) > MaxContent {
		return 0, plugin.Errorf(plugin.Usage, "%s: there is more than the %d MB that an answer can have", c.verb, MaxContent>>20).
			WithHint("write it to a file at the command line, with --output, or get it over HTTP")
	}
	return c.data.Write(p)
}

// answer makes the content the result.
func (c *content) answer(r *plugin.Result) error {
	r.Text = strings.TrimSuffix(c.data.String(), "\n")
	r.Data = c.data.Bytes()
	if c.mediaType == "application/json" {
		return nil
	}
	var err error
	r.Data, err = json.Marshal(r.Text)
	return err
}
