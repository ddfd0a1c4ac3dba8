package lineedit

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// key is one key, or one paste.
type key struct {
	kind keyKind
	text string // of keyText and keyPaste
}

type keyKind int

const (
	keyNone keyKind = iota // nothing that is of use here
	keyText
	keyPaste
	keyEnter
	keyNewline // a line end that is part of the text
	keyTab
	keyLeft
	keyRight
	keyUp
	keyDown
	keyHome
	keyEnd
	keyWordLeft
	keyWordRight
	keyBackspace
	keyDelete
	keyKillWord  // before the cursor
	keyKillBlank // likewise, back to a blank
	keyKillNextWord
	keyKillStart // to the start of the line
	keyKillEnd
	keyYank
	keySwap
	keySearch
	keyCancel    // Ctrl-G
	keyInterrupt // Ctrl-C
	keyEOF       // Ctrl-D
	keySuspend   // Ctrl-Z
	keyClear     // Ctrl-L
	keyPrevious  // Ctrl-P
	keyNext      // Ctrl-N
)

const (
	escape     = '\x1b'
	pasteStart = "\x1b[200~"
	pasteEnd   = "\x1b[201~"
)

// control is the key that a control character stands for.
func control(b byte) keyKind {
	switch b {
	case '\r', '\n':
		return keyEnter
	case '\t':
		return keyTab
	case 0x7f, 0x08:
		return keyBackspace
	case 'A' & 0x1f:
		return keyHome
	case 'B' & 0x1f:
		return keyLeft
	case 'C' & 0x1f:
		return keyInterrupt
	case 'D' & 0x1f:
		return keyEOF
	case 'E' & 0x1f:
		return keyEnd
	case 'F' & 0x1f:
		return keyRight
	case 'G' & 0x1f:
		return keyCancel
	case 'K' & 0x1f:
		return keyKillEnd
	case 'L' & 0x1f:
		return keyClear
	case 'N' & 0x1f:
		return keyNext
	case 'P' & 0x1f:
		return keyPrevious
	case 'R' & 0x1f:
		return keySearch
	case 'T' & 0x1f:
		return keySwap
	case 'U' & 0x1f:
		return keyKillStart
	case 'W' & 0x1f:
		return keyKillBlank
	case 'Y' & 0x1f:
		return keyYank
	case 'Z' & 0x1f:
		return keySuspend
	}
	return keyNone
}

// sequence is the key that a control sequence stands for; final is its last
// byte, params what is between.
func sequence(params string, final byte) keyKind {
	// The second parameter holds the modifiers, 3 and 5 being Alt and Ctrl.
	first, modifier, _ := strings.Cut(params, ";")
	byWord := modifier == "3" || modifier == "5"
	switch final {
	case 'A':
		return keyUp
	case 'B':
		return keyDown
	case 'C':
		if byWord {
			return keyWordRight
		}
		return keyRight
	case 'D':
		if byWord {
			return keyWordLeft
		}
		return keyLeft
	case 'H':
		return keyHome
	case 'F':
		return keyEnd
	case '~':
		switch first {
		case "1", "7":
			return keyHome
		case "4", "8":
			return keyEnd
		case "3":
			return keyDelete
		}
	}
	return keyNone
}

// meta is the key that a character after an escape stands for: Alt was held.
func meta(b byte) keyKind {
	switch b {
	case 'b', 'B':
		return keyWordLeft
	case 'f', 'F':
		return keyWordRight
	case 'd', 'D':
		return keyKillNextWord
	case 0x7f, 0x08:
		return keyKillWord
	case '\r', '\n':
		return keyNewline
	}
	return keyNone
}

// parseKey takes the first key off what was typed. n is how many bytes it has;
// 0 means that it is not whole yet.
func parseKey(typed []byte) (k key, n int) {
	if len(typed) == 0 {
		return key{}, 0
	}
	switch b := typed[0]; {
	case b == escape:
		return parseEscape(typed)
	case b < 0x20 || b == 0x7f:
		return key{kind: control(b)}, 1
	}
	// Text that came at once is one key: what is typed ahead may be long.
	for n < len(typed) && typed[n] >= 0x20 && typed[n] != 0x7f && utf8.FullRune(typed[n:]) {
		_, size := utf8.DecodeRune(typed[n:])
		n += size
	}
	return key{kind: keyText, text: valid(typed[:n])}, n
}

func parseEscape(typed []byte) (k key, n int) {
	if rest, ok := bytes.CutPrefix(typed, []byte(pasteStart)); ok {
		text, _, ended := bytes.Cut(rest, []byte(pasteEnd))
		if !ended {
			return key{}, 0
		}
		return key{kind: keyPaste, text: pasted(text)}, len(pasteStart) + len(text) + len(pasteEnd)
	}
	if len(typed) < 2 {
		return key{}, 0
	}
	switch typed[1] {
	case '[':
		for i := 2; i < len(typed); i++ {
			if b := typed[i]; b >= 0x40 && b <= 0x7e {
				return key{kind: sequence(string(typed[2:i]), b)}, i + 1
			} else if b < 0x20 || b > 0x7e {
				return key{}, i // no control sequence after all
			}
		}
		return key{}, 0
	case 'O':
		if len(typed) < 3 {
			return key{}, 0
		}
		return key{kind: sequence("", typed[2])}, 3
	case escape:
		return key{}, 1
	}
	return key{kind: meta(typed[1])}, 2
}

// pasted is a pasted text with the line ends that text has; terminals paste them
// as the Enter key.
func pasted(b []byte) string {
	return strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(valid(b))
}

func valid(b []byte) string { return strings.ToValidUTF8(string(b), string(utf8.RuneError)) }
