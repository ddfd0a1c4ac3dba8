package host

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"runtime/debug"
)

// Version is the program's version, from the module's or the source's state
// when it was built.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	revision, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+changes"
		}
	}
	if revision == "" {
		return "development"
	}
	return "development-" + revision + dirty
}

// BuildID identifies the executable at path by what the linker wrote into it,
// so that two builds of the same source version are told apart. It reads the
// beginning of the file only; where there is no linker's id, the file's size
// and time stand in.
func BuildID(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	head := make([]byte, 64<<10)
	n, err := io.ReadFull(f, head)
	if err != nil && n == 0 {
		return "", err
	}
	id := head[:0]
	if _, rest, ok := bytes.Cut(head[:n], []byte("\xff Go build ID: \"")); ok {
		id, _, _ = bytes.Cut(rest, []byte(`"`))
	} else if _, rest, ok := bytes.Cut(head[:n], []byte("Go\x00\x00")); ok { // the ELF note
		id, _, _ = bytes.Cut(rest, []byte{0})
	}
	if len(id) == 0 || len(id) > 200 {
		info, err := f.Stat()
		if err != nil {
			return "", err
		}
		id = fmt.Appendf(nil, "%d %d", info.Size(), info.ModTime().UnixNano())
	}
	sum := sha256.Sum256(id)
	return hex.EncodeToString(sum[:8]), nil
}
