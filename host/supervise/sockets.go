package supervise

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"sess/plugin"
)

// SocketDir is a private folder for the sockets of one process.
// Its lock is held as long as it is in use, so that a later host can tell it
// from one that a killed host left behind.
type SocketDir struct {
	path string
	lock *flock.Flock
}

// below is how much longer than the folder's the path of a socket in it gets:
// go-plugin makes a folder and a socket with random numbers of up to 10 digits.
const below = len("/plugin-dir0123456789/plugin0123456789")

// maxSocketPath is the longest path of a socket, in bytes: the size of
// sun_path less its final zero.
func maxSocketPath() int {
	if runtime.GOOS == "linux" {
		return 107
	}
	return 103
}

// place is where socket folders may be made, and how it is made itself.
type place struct {
	path  string
	mkdir func(path string, mode fs.FileMode) error
}

// socketPlaces are the places to try, in order: preferred unless empty, the
// folder for temporary files, /tmp, and the user's cache.
func socketPlaces(preferred string) []place {
	own := "sess-" + strconv.Itoa(os.Getuid())
	var places []place
	if preferred != "" {
		places = append(places, place{preferred, os.MkdirAll})
	}
	places = append(places, place{filepath.Join(os.TempDir(), own), os.Mkdir})
	if runtime.GOOS != "windows" {
		places = append(places, place{filepath.Join("/tmp", own), os.Mkdir})
	}
	if cache, err := os.UserCacheDir(); err == nil {
		places = append(places, place{filepath.Join(cache, own), os.MkdirAll})
	}
	return places
}

// newSocketDir makes a folder that only this user can enter, in the first place
// that will do. It removes what dead hosts left there.
func newSocketDir(ctx context.Context, places []place) (*SocketDir, error) {
	var why []string
	for _, p := range places {
		dir, err := p.socketDir(ctx)
		if err == nil {
			return dir, nil
		}
		why = append(why, err.Error())
	}
	return nil, plugin.Errorf(plugin.Unavailable, "no folder can hold a socket: %s", strings.Join(why, "; ")).
		WithHint("set TMPDIR to a short path of a folder that you can write to")
}

// NewSocketDir makes a folder whose path is short, in the preferred folder unless
// that is "", or else in one for temporary files. Close it; that of a process
// that was killed is removed by the next one that makes a folder.
func NewSocketDir(ctx context.Context, preferred string) (*SocketDir, error) {
	return newSocketDir(ctx, socketPlaces(preferred))
}

// Path is the folder.
func (d *SocketDir) Path() string { return d.path }

var socketDirName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9]+-[0-9]+$`) })

func (p place) socketDir(ctx context.Context) (*SocketDir, error) {
	root, err := filepath.Abs(p.path)
	if err != nil {
		return nil, err
	}
	pid := strconv.Itoa(os.Getpid())
	if n := len(root) + len("/"+pid+"-99") + below; n > maxSocketPath() && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("%s is too long (a socket's path in it has %d bytes, the limit is %d)", root, n, maxSocketPath())
	}
	if strings.ContainsAny(root, "|\r\n") {
		return nil, fmt.Errorf("%q has a character that the handshake cannot carry", root)
	}
	if err := p.mkdir(root, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	info, err := os.Lstat(root)
	if err != nil {
		return nil, err
	}
	if err := private(root, info); err != nil {
		return nil, err
	}

	// Folders appear and go under this lock, so one without its own lock held
	// is always a dead host's.
	all := flock.New(filepath.Join(root, "lock"), flock.SetPermissions(0o600))
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if _, err := all.TryLockContext(ctx, 5*time.Millisecond); err != nil {
		return nil, fmt.Errorf("%s: %w", all.Path(), err)
	}
	defer all.Close()
	sweep(root)
	for n := 0; ; n++ {
		path := filepath.Join(root, pid+"-"+strconv.Itoa(n))
		err := os.Mkdir(path, 0o700)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		dir := &SocketDir{path, flock.New(path+".lock", flock.SetPermissions(0o600))}
		ok, err := dir.lock.TryLock()
		if err != nil {
			return nil, errors.Join(err, os.Remove(path))
		}
		if !ok { // a process of another PID namespace is just removing its own
			_ = os.Remove(path)
			continue
		}
		return dir, nil
	}
}

// sweep removes the folders in root that no living host holds.
func sweep(root string) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !e.IsDir() || !socketDirName().MatchString(e.Name()) {
			continue
		}
		dir := &SocketDir{filepath.Join(root, e.Name()), nil}
		dir.lock = flock.New(dir.path+".lock", flock.SetPermissions(0o600))
		if ok, err := dir.lock.TryLock(); err == nil && ok {
			_ = dir.Close()
		}
	}
}

// Close removes the folder and what is in it.
func (d *SocketDir) Close() error {
	err := os.RemoveAll(d.path)
	_ = os.Remove(d.lock.Path())
	return errors.Join(err, d.lock.Close())
}
