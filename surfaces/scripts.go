package surfaces

import (
	"regexp"
	"strings"
	"sync"

	"sess/plugin"
)

// Shells lists the shells that [CompletionScript] knows.
func Shells() []string { return []string{"bash", "zsh", "fish"} }

var progPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`) })

// CompletionScript returns the script that makes a shell complete the command
// lines of prog. The script runs "prog __complete -- words…", with the words
// after the program's name up to the cursor, and reads one candidate a line:
// value, tab, help. Where there is none, the shell completes file names.
func CompletionScript(shell, prog string) (string, error) {
	script, ok := map[string]string{"bash": bashScript, "zsh": zshScript, "fish": fishScript}[shell]
	if !ok {
		return "", plugin.Errorf(plugin.Usage, "no completion for the shell %q", shell).
			WithHint("there is one for each of %s", strings.Join(Shells(), ", "))
	}
	if !progPattern().MatchString(prog) {
		return "", plugin.Errorf(plugin.Usage, "no completion for a program named %q", prog).
			WithHint("name it with letters, digits, - and _ only")
	}
	return strings.NewReplacer("PROG", prog, "FUNC", "_"+strings.ReplaceAll(prog, "-", "_")).Replace(script), nil
}

// Bash has split the line at "=" too, so the words of one flag are put together
// again, and what stands before the "=" is taken off the candidates: bash
// replaces only what follows it. It works from bash 3.2 on.
const bashScript = `# bash completion for PROG: source <(PROG completion bash)
FUNC_complete() {
    local i word glue= line=${COMP_LINE:0:COMP_POINT}
    local -a words=()
    for ((i = 1; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if ((i == COMP_CWORD)); then
            while [[ -n $word && $line != *"$word" ]]; do word=${word%?}; done
        fi
        if [[ $word == = && ${#words[@]} -gt 0 && ${words[${#words[@]}-1]} == --* ]]; then
            words[${#words[@]}-1]+==
            glue=1
        elif [[ -n $glue ]]; then
            words[${#words[@]}-1]+=$word
            glue=
        else
            words+=("$word")
        fi
    done
    local last=${words[${#words[@]}-1]} before=
    if [[ $last == --*=* && $COMP_WORDBREAKS == *=* ]]; then
        before=${last%%=*}=
    fi
    COMPREPLY=()
    local value
    while IFS=$'\t' read -r value _; do
        value=${value#"$before"}
        if [[ $value != *= ]]; then
            printf -v value %q "$value"
        fi
        COMPREPLY+=("$value")
    done < <(PROG __complete -- "${words[@]}" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -o default -F FUNC_complete PROG
`

// The last lines serve both ways of loading: from a folder of fpath the file is
// the function's body and is run for the first completion; sourced, it only
// registers the function.
const zshScript = `#compdef PROG
# zsh completion for PROG: a file _PROG in a folder of fpath, or
# source <(PROG completion zsh)
FUNC() {
    local line value help
    local -a values shown flags flagsshown
    while IFS= read -r line; do
        value=${line%%$'\t'*}
        help=
        [[ $line == *$'\t'* ]] && help=${line#*$'\t'}
        [[ -n $help ]] && help="$value -- $help" || help=$value
        if [[ $value == *= ]]; then
            flags+=("$value")
            flagsshown+=("$help")
        else
            values+=("$value")
            shown+=("$help")
        fi
    done < <(PROG __complete -- "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)
    if ((${#values} + ${#flags} == 0)); then
        _files
        return
    fi
    ((${#values})) && compadd -l -d shown -a values
    ((${#flags})) && compadd -l -S '' -d flagsshown -a flags
    return 0
}
if [[ ${funcstack[1]} == FUNC ]]; then
    FUNC "$@"
else
    compdef FUNC PROG
fi
`

const fishScript = `# fish completion for PROG: PROG completion fish | source
function FUNC_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l found (PROG __complete -- $words[2..-1] "$current" 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path "$current"
    end
end
complete -c PROG -f -a '(FUNC_complete)'
`
