package supervise

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"syscall"

	"sess/plugin"
)

// CheckProgram tells why path cannot be a plugin's program, without running
// it. sum, unless empty, is the SHA-256 that it must have, in hex.
func CheckProgram(id, path, sum string) error {
	if err := canRun(id, path); err != nil {
		return AtStep(err, StepStart)
	}
	if sum == "" {
		return nil
	}
	if err := checkSum(id, path, sum); err != nil {
		return AtStep(err, StepChecksum)
	}
	return nil
}

func canRun(id, path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return plugin.Errorf(plugin.Unavailable, "plugin %s: its program %s does not exist", id, path).
			WithHint("install the plugin again, or correct the command in its plugin.json")
	case err != nil:
		return plugin.Errorf(plugin.Unavailable, "plugin %s: its program cannot be read: %w", id, err)
	case info.IsDir():
		return plugin.Errorf(plugin.Unavailable, "plugin %s: its program %s is a folder", id, path).
			WithHint("name the program in that folder in the command of its plugin.json")
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o111 == 0:
		return plugin.Errorf(plugin.Unavailable, "plugin %s: its program %s is not executable", id, path).
			WithHint("chmod +x '%s'", path)
	}
	return nil
}

func checkSum(id, path, sum string) error {
	got, err := FileSum(path)
	if err != nil {
		return plugin.Errorf(plugin.Unavailable, "plugin %s: its program cannot be read: %w", id, err)
	}
	if !strings.EqualFold(got, sum) {
		return plugin.Errorf(plugin.Corrupt,
			"plugin %s: its program %s has the SHA-256 %s, but %s was installed", id, path, got, strings.ToLower(sum)).
			WithHint("if you know why it changed: sess plugins update <folder or tar.gz> %s; otherwise do not trust it", id)
	}
	return nil
}

// FileSum is the SHA-256 of a file, in hex.
func FileSum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// explainExec tells why the system would not run path.
func explainExec(id, path string, err error) error {
	e := plugin.Errorf(plugin.Unavailable, "plugin %s: its program %s cannot be run: %w", id, path, err)
	head := make([]byte, 4096)
	f, openErr := os.Open(path)
	if openErr != nil {
		return e
	}
	defer f.Close()
	n, _ := io.ReadFull(f, head)
	head = head[:n]
	interpreter, isScript := bytes.CutPrefix(head, []byte("#!"))
	switch {
	case isScript && errors.Is(err, fs.ErrNotExist):
		interpreter, _, _ = bytes.Cut(interpreter, []byte("\n"))
		e.Message = fmt.Sprintf("plugin %s: its program %s wants the interpreter %s, which does not exist",
			id, path, shorten(strings.TrimSpace(string(interpreter)), 120))
	case errors.Is(err, errNotAProgram):
		e.Message = fmt.Sprintf("plugin %s: its program %s is %s; this machine runs programs for %s/%s",
			id, path, describeFile(head), runtime.GOOS, runtime.GOARCH)
		return e.WithHint("install the plugin's build for this machine")
	}
	return e
}

// errNotAProgram is the system's error for a file of a format that it does not
// run.
const errNotAProgram = syscall.ENOEXEC

// describeFile says what a file that begins with head is.
func describeFile(head []byte) string {
	arch := func(names map[uint32]string, machine uint32) string {
		if name, ok := names[machine]; ok {
			return name
		}
		return fmt.Sprintf("a machine of type %d", machine)
	}
	switch {
	case len(head) == 0:
		return "an empty file"
	case bytes.HasPrefix(head, []byte("\x7fELF")) && len(head) >= 20:
		var order binary.ByteOrder = binary.LittleEndian
		if head[5] == 2 {
			order = binary.BigEndian
		}
		return "an ELF program for " + arch(map[uint32]string{
			3: "386", 8: "mips", 21: "ppc64", 22: "s390x", 40: "arm", 62: "amd64", 183: "arm64", 243: "riscv64", 258: "loong64",
		}, uint32(order.Uint16(head[18:])))
	case bytes.HasPrefix(head, []byte("\xcf\xfa\xed\xfe")) && len(head) >= 8:
		return "a macOS program for " + arch(map[uint32]string{
			0x01000007: "amd64", 0x0100000c: "arm64",
		}, binary.LittleEndian.Uint32(head[4:]))
	case bytes.HasPrefix(head, []byte("\xca\xfe\xba\xbe")):
		return "a macOS program"
	case bytes.HasPrefix(head, []byte("MZ")):
		return "a Windows program"
	case !bytes.ContainsFunc(head, isBinary):
		return "a text file"
	}
	return "not a program"
}

func isBinary(r rune) bool { return r < ' ' && !strings.ContainsRune("\t\n\f\r", r) }
