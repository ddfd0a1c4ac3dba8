package surfaces

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"sess/plugin"
)

// Commands is what stands behind a program's name.
type Commands struct {
	// Prog is the program's name. The verbs of the command of the same name
	// stand at the top level: "sess save" is "sess sess save".
	Prog  string
	Specs []plugin.Spec
	// Host lists further words of the top level that are no Spec's, for
	// completion.
	Host []plugin.Candidate
}

// Resolve finds the command that a command line is for, and the argv for its
// dispatcher. The verb is nil where the words name none; the command is nil
// only where there is none of the program's own name either.
func (c *Commands) Resolve(argv []string) (spec *plugin.Spec, verb *plugin.Verb, rest []string) {
	for i := range c.Specs {
		s := &c.Specs[i]
		if len(argv) > 0 && s.Command == argv[0] {
			verb, _ := s.Find(argv[1:])
			return s, verb, argv[1:]
		}
		if s.Command == c.Prog {
			spec = s
		}
	}
	if spec != nil {
		verb, _ = spec.Find(argv)
	}
	return spec, verb, argv
}

// Find is the [FindVerb] of the command lines of c.
func (c *Commands) Find(words []string) *plugin.Verb {
	_, verb, _ := c.Resolve(words)
	return verb
}

// SplitHostFlags takes the host's flags out of a command line, wherever they
// stand before "--", and returns the rest untouched. A word that is the value
// of one of the verb's own flags stays: of "save x --note --json" nothing is
// taken. Beside an error it returns the flags without mistakes, so that the
// error can be shown as they ask.
func SplitHostFlags(args []string, find FindVerb) (HostFlags, []string, error) {
	s, err := scan(args, find)
	if err == nil && s.pending != nil && s.host.text(s.pending.Name) != nil {
		err = plugin.Errorf(plugin.Usage, "--%s needs a value", s.pending.Name).WithHint("write --%s=<text>", s.pending.Name)
	}
	if err != nil {
		return s.host, nil, err
	}
	return s.host, s.argv, nil
}

// CLIOptions say how an answer is printed. The zero value prints text as for a
// verb that changes something.
type CLIOptions struct {
	Prog   string // begins the line of an error; "" means "sess"
	JSON   bool   // print exactly one JSON document, whatever happened
	Quiet  bool   // leave out notices and what a change says about itself
	Effect plugin.Effect
}

// CLIOutput is what the command line prints, and its exit status.
type CLIOutput struct {
	Stdout, Stderr []byte
	Exit           int
}

// RenderCLI renders an answer for a terminal or a script. With JSON a verb
// that only reads gives its data, or its text as a string where it has none,
// another one {"text","data"}, and an error {"error","code","hint","details"}, to
// which text and data are added where a result is beside it: what was done before.
// Without it, control characters in texts
// are escaped, so that what someone once stored cannot act on the terminal.
func RenderCLI(result plugin.Result, err error, opts CLIOptions) CLIOutput {
	var stdout, stderr bytes.Buffer
	if err == nil && opts.JSON && result.Data != nil && !json.Valid(result.Data) {
		err = plugin.Errorf(plugin.Internal, "the answer is not JSON").WithHint("run it again without --json")
	}
	if err != nil {
		return renderCLIError(result, plugin.AsError(err), opts)
	}
	read := opts.Effect == plugin.EffectRead
	switch {
	case opts.JSON && read && result.Data == nil && result.Text != "":
		writeJSON(&stdout, result.Text)
	case opts.JSON && read:
		writeJSON(&stdout, result.Data)
	case opts.JSON:
		writeJSON(&stdout, answer{result.Text, result.Data})
	case result.Text != "" && (read || !opts.Quiet):
		fmt.Fprintln(&stdout, Printable(result.Text))
	}
	if !opts.Quiet {
		if opts.JSON && result.Page != nil && result.Page.Next != "" { // a text says it itself
			fmt.Fprintf(&stderr, "note: these are not all %d; for the next ones add --%s=%s\n",
				result.Page.Total, plugin.FlagAfter, Printable(result.Page.Next))
		}
		for _, n := range result.Notices {
			fmt.Fprintln(&stderr, "note: "+Printable(n))
		}
	}
	return CLIOutput{stdout.Bytes(), stderr.Bytes(), plugin.ExitOK}
}

// answer and failure are the JSON documents of the command line.
type (
	answer struct {
		Text string          `json:"text"`
		Data json.RawMessage `json:"data"`
	}
	failure struct {
		Error   string            `json:"error"`
		Code    plugin.Code       `json:"code"`
		Hint    string            `json:"hint,omitempty"`
		Details map[string]string `json:"details,omitempty"`
		// What was done before, where that was something.
		Text string          `json:"text,omitempty"`
		Data json.RawMessage `json:"data,omitempty"`
	}
)

func renderCLIError(result plugin.Result, e *plugin.Error, opts CLIOptions) CLIOutput {
	var stdout, stderr bytes.Buffer
	if opts.JSON {
		if !json.Valid(result.Data) {
			result.Data = nil
		}
		writeJSON(&stdout, failure{e.Message, e.Code, e.Hint, e.Details, result.Text, result.Data})
	} else {
		prog := opts.Prog
		if prog == "" {
			prog = program
		}
		fmt.Fprintf(&stderr, "%s: %s\n", prog, Printable(e.Message))
		if e.Hint != "" {
			fmt.Fprintf(&stderr, "hint: %s\n", Printable(e.Hint))
		}
	}
	exit := e.Code.Info().Exit
	switch {
	case errors.Is(e, context.Canceled):
		exit = plugin.ExitInterrupt
	case errors.Is(e, context.DeadlineExceeded):
		exit = plugin.ExitDeadline
	}
	return CLIOutput{stdout.Bytes(), stderr.Bytes(), exit}
}

// writeJSON writes one document and a newline, without the escapes that only
// HTML needs. v holds valid JSON and strings only, so encoding cannot fail.
func writeJSON(b *bytes.Buffer, v any) {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic("surfaces: encode an answer: " + err.Error())
	}
}

// Printable escapes what could act on a terminal or hide text from its reader:
// control characters other than newline and tab, line ends that look like
// blanks, characters that embed or override the direction of writing, and bytes that are not UTF-8. Everything else stays.
func Printable(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\n' || r == '\t':
			b.WriteRune(r)
		case unicode.IsControl(r) && r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case unicode.IsControl(r), '\u2028' <= r && r <= '\u202e', '\u2066' <= r && r <= '\u2069':
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteString(s[i : i+size])
		}
		i += size
	}
	return b.String()
}
