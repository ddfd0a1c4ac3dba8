package agents

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

// projectName bounds the part of a project's id that people read, in bytes.
const projectName = 60

// Project is the id of the project that a folder is: its last part, and a short
// hash of its whole path, so that no two folders share one. The path is used as
// it is; see [RealPath].
func Project(folder string) string {
	sum := sha256.Sum256([]byte(folder))
	name := strings.Map(func(r rune) rune {
		if r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '.' || r == '_' || r == '-') {
			return r
		}
		return '-'
	}, filepath.Base(folder))
	for len(name) > projectName {
		_, n := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-n]
	}
	name = strings.Trim(name, ".-")
	if name == "" {
		name = "folder"
	}
	return name + "-" + hex.EncodeToString(sum[:5])
}

// RealPath is a folder without links in its path, as agents note it; of one that
// is not there, the path made absolute.
func RealPath(folder string) string {
	if folder == "" {
		return ""
	}
	abs, err := filepath.Abs(folder)
	if err != nil {
		return filepath.Clean(folder)
	}
	if path, err := filepath.EvalSymlinks(abs); err == nil {
		return path
	}
	return abs
}
