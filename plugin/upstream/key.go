package upstream

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"

	"sess/plugin"
)

// Key says where a provider's key is found: in a variable of the environment or
// in a file. The zero value is no key.
type Key struct {
	Env  string
	File string // absolute; it counts before Env
	// Value is a key that somebody else has read from where Origin says; it counts
	// before both.
	Value  plugin.Secret
	Origin string
}

// keyLimit bounds the size of a file with a key, in bytes.
const keyLimit = 64 << 10

// String names the place.
func (k Key) String() string {
	switch {
	case k.Value != "":
		return k.Origin
	case k.File != "":
		return k.File
	case k.Env != "":
		return "the variable " + k.Env
	}
	return "nowhere"
}

// Read returns the key, "" where none is configured. The file is refused if
// others may read it. Errors have the code denied and never quote what was read.
func (k Key) Read(getenv func(string) string) (string, error) {
	switch {
	case k.Value != "":
		return string(k.Value), k.check(string(k.Value))
	case k.File != "":
		return k.readFile()
	case k.Env == "":
		return "", nil
	}
	key := strings.TrimSpace(getenv(k.Env))
	if key == "" {
		return "", plugin.Errorf(plugin.Denied, "there is no key: the variable %s is not set", k.Env).
			WithHint("export %s=<key>, then start the program again", k.Env)
	}
	return key, k.check(key)
}

func (k Key) readFile() (string, error) {
	info, err := os.Stat(k.File)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", plugin.Errorf(plugin.Denied, "there is no key: the file %s is not there", k.File).
			WithHint("write the key into it, readable for you alone (mode 0600)")
	case err != nil:
	case !info.Mode().IsRegular():
		err = errors.New("it is not a file")
	case info.Size() > keyLimit:
		err = fmt.Errorf("it has %d bytes, more than any key", info.Size())
	case info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows":
		return "", plugin.Errorf(plugin.Denied, "the key file %s may be used by others (mode %04o)", k.File, info.Mode().Perm()).
			WithHint("chmod 600 %s", k.File)
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(k.File)
	}
	if err != nil {
		return "", plugin.Errorf(plugin.Denied, "cannot read the key file %s: %w", k.File, err).WithHint("see that it is a file with a key that you may read")
	}
	key := strings.TrimSpace(string(data))
	if key == "" {
		return "", plugin.Errorf(plugin.Denied, "there is no key: the file %s is empty", k.File).WithHint("write the key into it")
	}
	return key, k.check(key)
}

// check refuses what cannot be sent in a header.
func (k Key) check(key string) error {
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return plugin.Errorf(plugin.Denied, "what %s holds is no key: a key is one word without blanks or accents", k).
			WithHint("put the key and nothing else there")
	}
	return nil
}

// hidden stands where a key was.
const hidden = "(hidden)"

// hide takes a key out of a text of the provider.
func hide(text, key string) string {
	if key == "" {
		return text
	}
	return strings.ReplaceAll(text, key, hidden)
}
