package host

import (
	"errors"
	"sync"

	"sess/store/durable"
)

// logName is where warnings and errors of every process of a home are kept;
// logLimit is the size above which it is moved to logName + ".1".
const (
	logDir   = "logs"
	logName  = logDir + "/sess.log"
	logLimit = 8 << 20 // bytes
)

// logFile appends JSON lines to the home's log. The file is opened at the first
// line, so that a process with nothing to say touches nothing.
type logFile struct {
	open durable.OpenFunc
	home string

	mu     sync.Mutex // guards the rest
	fsys   durable.FS
	file   durable.File
	failed bool
}

func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil && !l.failed {
		l.failed = l.start() != nil
	}
	if l.failed {
		return len(p), nil // there is nowhere else to say it
	}
	return l.file.Write(p)
}

func (l *logFile) start() (err error) {
	if l.fsys, err = l.open(l.home); err != nil {
		return err
	}
	if err := durable.MkdirAll(l.fsys, logDir); err != nil {
		return err
	}
	if info, err := l.fsys.Stat(logName); err == nil && info.Size() > logLimit {
		if err := l.fsys.Rename(logName, logName+".1"); err != nil {
			return err
		}
	}
	l.file, err = l.fsys.Append(logName)
	return err
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
