package surfaces

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"sess/plugin"
)

// Split splits a line into words as a shell does: at blanks of any script and
// line ends; single quotes keep everything, double quotes keep all but \" and
// \\, a backslash outside quotes keeps the next character. Nothing is expanded.
//
// Phones and word processors replace what people type, so at the start of a
// word, or of a value after "=", typographic quotes are quotes too (one closes
// where a word ends, so the apostrophe of “it’s” is text), and a typographic
// dash at the start of a word is the two dashes of a flag.
func Split(line string) ([]string, error) {
	p := splitter{line: line}
	for {
		p.skipBlanks()
		if p.at == len(p.line) {
			return p.words, nil
		}
		word, err := p.word()
		if err != nil {
			return nil, err
		}
		p.words = append(p.words, word)
	}
}

type splitter struct {
	line  string
	at    int // in bytes
	words []string
}

// peek returns the next character and its length in bytes; 0 at the end.
func (p *splitter) peek() (rune, int) { return utf8.DecodeRuneInString(p.line[p.at:]) }

func (p *splitter) skipBlanks() {
	for p.at < len(p.line) {
		r, size := p.peek()
		if !unicode.IsSpace(r) {
			return
		}
		p.at += size
	}
}

// wordEnds reports whether a word ends at byte i.
func (p *splitter) wordEnds(i int) bool {
	r, size := utf8.DecodeRuneInString(p.line[i:])
	return size == 0 || unicode.IsSpace(r)
}

func (p *splitter) word() (string, error) {
	var b strings.Builder
	b.WriteString(p.dashes())
	for !p.wordEnds(p.at) {
		r, size := p.peek()
		var err error
		switch closing := closingQuotes(r); {
		case r == '\'' || r == '"':
			err = p.quoted(&b, string(r))
		case closing != "" && (b.Len() == 0 || strings.HasSuffix(b.String(), "=")):
			err = p.quoted(&b, closing)
		case r == '\\':
			if p.at++; p.at == len(p.line) {
				return "", plugin.Errorf(plugin.Usage, "the line ends in a backslash").WithHint(`write \\ for a backslash`)
			}
			_, size = p.peek()
			fallthrough
		default:
			b.WriteString(p.line[p.at : p.at+size])
			p.at += size
		}
		if err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

// dashes reads typographic dashes at the start of a word, before a flag's name
// or, if it is the long one that "--" becomes, alone.
func (p *splitter) dashes() string {
	rest := strings.TrimLeft(p.line[p.at:], "—–―")
	n := utf8.RuneCountInString(p.line[p.at : len(p.line)-len(rest)])
	next, _ := utf8.DecodeRuneInString(rest)
	alone := strings.HasPrefix(p.line[p.at:], "—") && p.wordEnds(len(p.line)-len(rest))
	if n == 0 || n > 2 || !unicode.IsLetter(next) && !alone {
		return ""
	}
	p.at = len(p.line) - len(rest)
	return "--"
}

// closingQuotes lists what closes a typographic quote, in the habits of
// several languages.
func closingQuotes(opening rune) string {
	switch opening {
	case '“', '”':
		return "”"
	case '„':
		return "“”"
	case '«':
		return "»"
	case '»':
		return "«"
	case '‘':
		return "’"
	case '‚':
		return "‘’"
	}
	return ""
}

// quoted reads from an opening quote to one of the closing ones.
func (p *splitter) quoted(b *strings.Builder, closing string) error {
	start := p.at
	_, size := p.peek()
	p.at += size
	plain := closing == "'" || closing == `"`
	for p.at < len(p.line) {
		r, size := p.peek()
		if strings.ContainsRune(closing, r) && r != utf8.RuneError && (plain || p.wordEnds(p.at+size)) {
			p.at += size
			return nil
		}
		if r == '\\' && closing != "'" {
			next, nextSize := utf8.DecodeRuneInString(p.line[p.at+1:])
			if next == '\\' || nextSize > 0 && next != utf8.RuneError && strings.ContainsRune(closing, next) {
				p.at++
				size = nextSize
			}
		}
		b.WriteString(p.line[p.at : p.at+size])
		p.at += size
	}
	hint := "close it, or write a backslash before it"
	if !plain {
		hint = "close it at the end of a word, or use plain double quotes"
	}
	return plugin.Errorf(plugin.Usage, "the quote at character %d is not closed: %s",
		utf8.RuneCountInString(p.line[:start])+1, shorten(p.line[start:], 20)).WithHint("%s", hint)
}

// shorten cuts s to n characters.
func shorten(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// Slash lowers the commands of a chat.
type Slash struct {
	Specs []plugin.Spec
	// Builtins are the chat's own commands, without the slash, in lower case.
	Builtins []string
	// Absent says why a command that none of the Specs has is not there now; nil
	// where nobody knows it. It may be nil itself.
	Absent func(command string) error
}

// SlashCall is a chat line, lowered. The chat that it came from gives the
// call's agent, project and session.
type SlashCall struct {
	// Builtin is the chat's own command that was called; then Argv holds its
	// words and everything else is zero.
	Builtin string
	Spec    *plugin.Spec // whose dispatcher gets Argv
	Argv    []string
	JSON    bool // the answer is to be shown as JSON, also where it is an error
	Help    bool // the help for Argv is to be shown, nothing dispatched
}

// IsSlash reports whether a chat line is a command, known or not. Such a line
// is never meant for the model.
func IsSlash(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "/") }

// Lower lowers a line that [IsSlash]. Commands and verbs are found in any case.
// Beside an error only JSON says something: that the line asked for it.
func (s *Slash) Lower(line string) (SlashCall, error) {
	words, err := Split(line)
	if err != nil {
		return SlashCall{}, err
	}
	if len(words) == 0 || !strings.HasPrefix(words[0], "/") {
		return SlashCall{}, plugin.Errorf(plugin.Usage, "%q is no command", shorten(line, 20)).
			WithHint("the commands are /%s", strings.Join(s.names(), ", /"))
	}
	typed, words := words[0][1:], words[1:]
	spec, argv, err := s.find(typed)
	if err != nil {
		return SlashCall{}, err
	}
	if spec == nil {
		return SlashCall{Builtin: strings.ToLower(typed), Argv: words}, nil
	}
	find := func(words []string) *plugin.Verb {
		v, _ := spec.Find(foldVerb(spec, words))
		return v
	}
	host, argv, err := SplitHostFlags(append(argv, words...), find)
	call := SlashCall{Spec: spec, JSON: host.JSON}
	if err != nil {
		return call, err
	}
	for _, f := range hostFlags() {
		text := host.text(f.Name)
		on := host.on(f.Name)
		if text != nil && *text != "" {
			return call, plugin.Errorf(plugin.Usage, "--%s: a slash command works on its own chat's session", f.Name).
				WithHint("leave it out, or use the command line")
		}
		if on != nil && *on && f.Name != "json" && f.Name != "help" {
			return call, plugin.Errorf(plugin.Usage, "--%s has no meaning in a chat", f.Name).WithHint("leave it out")
		}
	}
	call.Argv, call.Help = foldVerb(spec, argv), host.Help || len(argv) == 0
	if len(argv) > 0 && strings.EqualFold(argv[0], "help") {
		call.Help, call.Argv = true, foldVerb(spec, argv[1:])
	}
	return call, nil
}

// find resolves a command or shortcut; for one of the chat's own commands the
// Spec is nil.
func (s *Slash) find(typed string) (*plugin.Spec, []string, error) {
	spellings := []string{typed, strings.ToLower(typed)}
	for _, name := range spellings {
		if slices.Contains(s.Builtins, name) {
			return nil, nil, nil
		}
		for i := range s.Specs {
			spec := &s.Specs[i]
			if spec.Command == name {
				return spec, nil, nil
			}
			for _, sc := range spec.Shortcuts {
				if sc.Name == name {
					return spec, slices.Clone(sc.Argv), nil
				}
			}
		}
	}
	for _, name := range spellings {
		if s.Absent == nil {
			break
		}
		if err := s.Absent(name); err != nil {
			return nil, nil, err
		}
	}
	unknown := plugin.Errorf(plugin.Usage, "unknown command /%s", shorten(typed, 40))
	if verbs := s.verbs(strings.ToLower(typed)); verbs != nil {
		return nil, nil, unknown.WithHint("did you mean /%s?", strings.Join(verbs, " or /")).
			WithDetail("candidates", "/"+strings.Join(verbs, ", /"))
	}
	names := s.names()
	if near := plugin.Nearest(typed, names); near != nil {
		return nil, nil, unknown.WithHint("did you mean /%s?", strings.Join(near, " or /")).
			WithDetail("candidates", "/"+strings.Join(near, ", /"))
	}
	return nil, nil, unknown.WithHint("the commands are /%s", strings.Join(names, ", /"))
}

// verbs lists the commands that have a verb or alias of that name, each with it.
func (s *Slash) verbs(name string) []string {
	var all []string
	for i := range s.Specs {
		if v, _ := s.Specs[i].Find([]string{name}); v != nil && !v.Internal {
			all = append(all, s.Specs[i].Command+" "+name)
		}
	}
	return all
}

// names lists everything that may follow a slash.
func (s *Slash) names() []string {
	names := slices.Clone(s.Builtins)
	for _, spec := range s.Specs {
		names = append(names, spec.Command)
		for _, sc := range spec.Shortcuts {
			names = append(names, sc.Name)
		}
	}
	return names
}

// foldVerb returns argv with its verb in lower case, if it names one that way
// only.
func foldVerb(spec *plugin.Spec, argv []string) []string {
	if v, _ := spec.Find(argv); v != nil {
		return argv
	}
	folded := slices.Clone(argv)
	for i := range folded[:min(2, len(folded))] {
		folded[i] = strings.ToLower(folded[i])
	}
	v, n := spec.Find(folded)
	if v == nil {
		return argv
	}
	return append(folded[:n:n], argv[n:]...)
}
