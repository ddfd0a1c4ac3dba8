package host

import (
	"errors"
	"fmt"
	"sync"

	"sess/store/durable"
)

// The logs of a home. sess.log has the warnings and errors of every process;
// gateway.log has what a gateway tells its operator.
const (
	logDir         = "logs"
	logName        = logDir + "/sess.log"
	gatewayLogName = logDir + "/gateway.log"

	logLimit    = 8 << 20 // bytes of a log before another one is begun
	logKeep     = 1       // older ones beside sess.log
	gatewayKeep = 4       // older ones beside gateway.log
)

// logFile appends lines to a log of the home. The file is opened at the first
// line, so that a process with nothing to say touches nothing. One that has grown
// above the limit is kept as <name>.1, older ones as .2 and so on.
type logFile struct {
	open  durable.OpenFunc
	home  string
	name  string
	limit int64 // bytes
	keep  int

	mu     sync.Mutex // guards the rest
	fsys   durable.FS
	file   durable.File
	size   int64 // of file, as far as this process wrote to it
	failed bool
}

func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil && l.size >= l.limit {
		l.failed = errors.Join(l.file.Close(), l.start()) != nil
	}
	if l.file == nil && !l.failed {
		l.failed = l.start() != nil
	}
	if l.failed {
		return len(p), nil // there is nowhere else to say it
	}
	n, err := l.file.Write(p)
	l.size += int64(n)
	return n, err
}

func (l *logFile) start() (err error) {
	l.file = nil
	if l.fsys == nil {
		if l.fsys, err = l.open(l.home); err != nil {
			return err
		}
		if err := durable.MkdirAll(l.fsys, logDir); err != nil {
			return err
		}
	}
	// Other processes may write to the same log, and have begun a new one.
	if info, err := l.fsys.Stat(l.name); err == nil && info.Size() >= l.limit {
		if err := l.rotate(); err != nil {
			return err
		}
	}
	if l.file, err = l.fsys.Append(l.name); err != nil {
		return err
	}
	info, err := l.file.Stat()
	if err != nil {
		return err
	}
	l.size = info.Size()
	return nil
}

// rotate gives the log and those before it the names that follow theirs; the
// oldest one is replaced.
func (l *logFile) rotate() error {
	older := func(n int) string { return fmt.Sprintf("%s.%d", l.name, n) }
	for n := l.keep; n > 1; n-- {
		ok, err := durable.Exists(l.fsys, older(n-1))
		if err == nil && ok {
			err = l.fsys.Rename(older(n-1), older(n))
		}
		if err != nil {
			return err
		}
	}
	return l.fsys.Rename(l.name, older(1))
}

// Close closes the file; later lines are dropped.
func (l *logFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	if l.file != nil {
		err = l.file.Close()
	}
	if l.fsys != nil {
		err = errors.Join(err, l.fsys.Close())
	}
	l.file, l.fsys, l.failed = nil, nil, true
	return err
}
