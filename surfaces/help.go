package surfaces

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"sess/plugin"
)

// helpWidth is the number of columns that help fills at most, unless a single
// word is longer.
const helpWidth = 80

// Help renders the help for an argv: of the whole command where it is empty, of
// a verb, or of the verbs that share a first word. prog is what stands before
// the verb: "sess", "sess actions", "/sess". An argv that names no verb is a
// usage error.
func Help(spec *plugin.Spec, prog string, argv []string) (string, error) {
	if len(argv) == 0 {
		return HelpCommand(spec, prog), nil
	}
	if v, _ := spec.Find(argv); v != nil && !v.Internal {
		return HelpVerb(v, prog), nil
	}
	var words []string
	group := *spec
	group.Verbs = nil
	for _, v := range spec.Verbs {
		if v.Internal {
			continue
		}
		words = append(append(words, v.Name), v.Aliases...)
		if strings.HasPrefix(v.Name, argv[0]+" ") {
			group.Verbs = append(group.Verbs, v)
		}
	}
	if group.Verbs != nil {
		return HelpCommand(&group, prog), nil
	}
	e := plugin.Errorf(plugin.Usage, "no help for %q: there is no such verb", shorten(argv[0], 40))
	if near := plugin.Nearest(argv[0], words); near != nil {
		return "", e.WithHint("did you mean %s?", strings.Join(near, " or "))
	}
	return "", e.WithHint("%s lists the verbs", helpLine(prog, ""))
}

// HelpTopic is what a line asks help for, by "help …" or "<command> help …"; ok is
// false for a line that asks for something else. isCommand knows the commands.
func HelpTopic(argv []string, isCommand func(word string) bool) (topic []string, ok bool) {
	for len(argv) > 0 && argv[0] == "help" {
		argv, ok = argv[1:], true
	}
	if len(argv) > 1 && argv[1] == "help" && isCommand(argv[0]) {
		argv, ok = slices.Delete(slices.Clone(argv), 1, 2), true
	}
	return argv, ok
}

// helpLine is how help is asked for.
func helpLine(prog, verb string) string { return strings.TrimSpace(prog + " help " + verb) }

// HelpCommand tells what a command can do, on one screen: the main verbs a
// line each, the others by name, and so what else can stand in their place.
func HelpCommand(spec *plugin.Spec, prog string, beside ...string) string {
	var main, rest []plugin.Verb
	for _, v := range spec.Verbs {
		switch {
		case v.Internal:
		case v.Main:
			main = append(main, v)
		default:
			rest = append(rest, v)
		}
	}
	if main == nil {
		main, rest = rest, nil
	}
	var b strings.Builder
	wrap(&b, "", spec.Summary, 0)
	wrap(&b, "\nusage: ", prog+" <verb> [arguments] [flags]", 0)
	if main != nil {
		b.WriteByte('\n')
	}
	rows := make([][2]string, len(main))
	for i, v := range main {
		rows[i] = [2]string{strings.TrimSuffix(v.Usage(), " [flags]"), v.Summary}
		if v.Aliases != nil {
			rows[i][1] += " (also " + strings.Join(v.Aliases, ", ") + ")"
		}
	}
	table(&b, rows)
	if rest != nil {
		names := make([]string, len(rest))
		for i, v := range rest {
			names[i] = v.Name
		}
		b.WriteByte('\n')
		wrap(&b, "more:   ", strings.Join(names, ", "), 8)
	}
	if beside != nil {
		if rest == nil {
			b.WriteByte('\n')
		}
		wrap(&b, "beside: ", strings.Join(beside, ", "), 8)
	}
	b.WriteByte('\n')
	about := " tells about one verb."
	if !inChat(prog) {
		about = " tells about one verb, and the flags of every verb."
	}
	wrap(&b, "", helpLine(prog, "<verb>")+about, 0)
	return strings.TrimSuffix(b.String(), "\n")
}

// HelpVerb tells everything about a verb.
func HelpVerb(v *plugin.Verb, prog string) string {
	var b strings.Builder
	wrap(&b, "", v.Summary, 0)
	wrap(&b, "\nusage: ", prog+" "+v.Usage(), 7)
	if v.Aliases != nil {
		wrap(&b, "also: ", strings.Join(v.Aliases, ", "), 6)
	}
	for para := range strings.SplitSeq(v.Help, "\n\n") {
		if para != "" {
			b.WriteByte('\n')
			wrap(&b, "", para, 0)
		}
	}
	var rows [][2]string
	for _, a := range v.Args {
		help := a.Help
		if !a.Required {
			help = strings.TrimSpace(help + " (optional)")
		}
		rows = append(rows, [2]string{"<" + a.Name + ">", help})
	}
	section(&b, "arguments", rows)
	rows = nil
	for i := range v.Flags {
		if f := &v.Flags[i]; !f.Internal {
			rows = append(rows, [2]string{flagColumn(f), flagText(f)})
		}
	}
	section(&b, "flags", rows)
	if len(v.Examples) > 0 {
		b.WriteString("\nexamples:\n")
		for _, e := range v.Examples {
			b.WriteString("  " + prog + " " + e + "\n")
		}
	}
	if !inChat(prog) {
		rows = nil
		for _, f := range hostFlags() {
			rows = append(rows, [2]string{flagColumn(&f), flagText(&f)})
		}
		section(&b, "flags of every verb", rows)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// inChat reports whether commands are typed in a chat, which gives its own
// session and has no exit status.
func inChat(prog string) bool { return strings.HasPrefix(prog, "/") }

func section(b *strings.Builder, title string, rows [][2]string) {
	if rows != nil {
		b.WriteString("\n" + title + ":\n")
		table(b, rows)
	}
}

// flagForm is a flag as it is typed: "--note=<text>".
func flagForm(f *plugin.Flag) string {
	name := "--" + f.Name
	if f.Negatable {
		name = "--[no-]" + f.Name
	}
	if f.Type == plugin.TypeBool {
		return name
	}
	return name + "=" + f.Placeholder()
}

func flagColumn(f *plugin.Flag) string {
	if f.Short == "" {
		return "    " + flagForm(f)
	}
	return "-" + f.Short + ", " + flagForm(f)
}

func flagText(f *plugin.Flag) string {
	help := f.Help
	if f.Type == plugin.TypeStrings || f.Type == plugin.TypeMap {
		help += " (may be repeated)"
	}
	if f.Default != "" {
		help += " (default " + f.Default + ")"
	}
	return help
}

// ExitStatuses lists the exit statuses in order, from the table of codes, in
// lines that fit help.
func ExitStatuses() string {
	byExit := map[int]string{
		plugin.ExitOK: "done", plugin.ExitDeadline: "deadline", plugin.ExitInterrupt: "interrupted",
	}
	for _, info := range plugin.Codes() {
		if said := byExit[info.Exit]; said != "" {
			byExit[info.Exit] = said + " or " + string(info.Code)
		} else {
			byExit[info.Exit] = string(info.Code)
		}
	}
	parts := make([]string, 0, len(byExit))
	for _, exit := range slices.Sorted(maps.Keys(byExit)) {
		parts = append(parts, strconv.Itoa(exit)+" "+byExit[exit])
	}
	var b strings.Builder
	wrap(&b, "exit status: ", strings.Join(parts, ", "), 13)
	return strings.TrimSuffix(b.String(), "\n")
}

// table writes rows of two columns. A row whose first column is too wide for
// its place goes on in the next line.
func table(b *strings.Builder, rows [][2]string) {
	const widest = 30
	column := 0
	for _, r := range rows {
		if n := utf8.RuneCountInString(r[0]); n <= widest {
			column = max(column, n)
		}
	}
	column += 5 // two blanks before, three after
	for _, r := range rows {
		lead := fmt.Sprintf("  %-*s", column-2, r[0])
		if utf8.RuneCountInString(r[0]) > column-5 {
			b.WriteString("  " + r[0] + "\n")
			lead = strings.Repeat(" ", column)
		}
		wrap(b, lead, r[1], column)
	}
}

// wrap writes lead and the words of text, broken into lines, the second and
// later ones indented. Line ends in text count as blanks.
func wrap(b *strings.Builder, lead, text string, indent int) {
	line := lead
	width := utf8.RuneCountInString(lead[strings.LastIndexByte(lead, '\n')+1:])
	empty := true
	for word := range strings.FieldsSeq(text) {
		n := utf8.RuneCountInString(word)
		if !empty && width+1+n > helpWidth {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line, width, empty = strings.Repeat(" ", indent), indent, true
		}
		if !empty {
			line += " "
			width++
		}
		line += word
		width += n
		empty = false
	}
	b.WriteString(strings.TrimRight(line, " ") + "\n")
}
