package surfaces

import (
	"strings"

	"sess/plugin"
)

// program is the name that hints give the program.
const program = "sess"

// SlashHints makes a text for people say how commands are typed in a chat: hints
// name them for the command line, "sess undo", of which a chat knows "/sess undo".
// What is not a command of the Specs stays, as the program's own commands are none
// in a chat.
func SlashHints(text string, specs []plugin.Spec) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, program+" ")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		typed := program + " "
		if written := b.String(); written == "" || strings.ContainsRune(" \n(\"'`", rune(written[len(written)-1])) {
			if slash := slashFor(after, specs); slash != "" {
				typed = slash
			}
		}
		b.WriteString(typed)
		text = after
	}
}

// slashFor is what stands in a chat before the words that follow the program's
// name; "" where they are no command of a chat.
func slashFor(words string, specs []plugin.Spec) string {
	var argv []string
	for w := range strings.FieldsSeq(words) {
		if argv = append(argv, strings.TrimRight(w, ".,;:)\"'`")); len(argv) == 2 {
			break
		}
	}
	if len(argv) == 0 {
		return ""
	}
	for i := range specs {
		if specs[i].Command == argv[0] {
			return "/"
		}
	}
	for i := range specs {
		if specs[i].Command != program {
			continue
		}
		if v, _ := specs[i].Find(argv); v != nil && !v.Internal {
			return "/" + program + " "
		}
	}
	return ""
}
