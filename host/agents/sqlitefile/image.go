package sqlitefile

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"time"
)

// Bytes of the database file that SQLite locks. In all versions of it they lie
// at 1 GB, whether the file is so long or not.
const (
	pendingByte  = 0x40000000
	reservedByte = pendingByte + 1
	sharedFirst  = pendingByte + 2
	sharedSize   = 510
)

// readLock0 is the byte of the "-shm" file that is locked by those who read the
// database file itself: while it is, no page of the log is copied there.
const readLock0 = 123

// lockWait is how long others may keep a lock. They hold those that exclude
// readers for a moment only.
const lockWait = 5 * time.Second

const (
	fileMagic   = "SQLite format 3\x00"
	walMagic    = 0x377f0682 // the lowest bit says: checksums are big-endian
	walVersion  = 3007000
	walHead     = 32
	frameHead   = 24
	walFormat   = 2 // in the header of a database file: the log is in use
	plainFormat = 1
)

// An image is one committed state of a database as one file without a log.
type image struct {
	path     string
	main     *os.File
	mainSize int64
	wal      *os.File // nil: there is none
	shm      *os.File // nil: nobody had the log open
	logged   bool     // the header says that changes go to a log

	pageSize int64
	size     int64            // bytes of the whole image
	frames   map[uint32]int64 // page → offset of its frame in wal
	head     [walHead]byte    // of wal, when frames was read

	err error // the first error in reading, which SQLite does not hand on
}

// openImage opens the state of now. The caller closes it.
func openImage(ctx context.Context, path string) (_ *image, err error) {
	m := &image{path: path}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	if m.main, err = openRegular(path); err != nil {
		return nil, err
	}
	if err := m.lockMain(ctx); err != nil {
		return nil, err
	}
	info, err := m.main.Stat()
	if err != nil {
		return nil, err
	}
	m.mainSize = info.Size()
	var head [100]byte
	n, err := m.main.ReadAt(head[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if n > 0 && (n < len(head) || string(head[:len(fileMagic)]) != fileMagic) {
		return nil, fmt.Errorf("%s: %w", path, ErrDamaged)
	}
	m.logged = n == 0 || head[18] == walFormat || head[19] == walFormat
	if n > 0 {
		m.pageSize = pageSize(binary.BigEndian.Uint16(head[16:]))
	}
	m.size = m.mainSize
	if !m.logged {
		return m, m.refuseHotJournal()
	}
	if m.shm, err = openBeside(path + "-shm"); err != nil {
		return nil, err
	}
	if m.shm != nil {
		if err := m.lock(ctx, m.shm, readLock0, 1); err != nil {
			return nil, err
		}
	}
	if m.wal, err = openBeside(path + "-wal"); err != nil {
		return nil, err
	}
	if m.wal != nil {
		if err := m.readLog(ctx); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// pageSize is the size as the header of a database file has it; 0 if it cannot
// be one.
func pageSize(stored uint16) int64 {
	n := int64(stored)
	if n == 1 {
		n = 65536
	}
	if n < 512 || n&(n-1) != 0 {
		return 0
	}
	return n
}

// openRegular opens a file that is no link.
func openRegular(path string) (*os.File, error) {
	want, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !want.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	got, err := f.Stat()
	if err == nil && !os.SameFile(want, got) {
		err = &fs.PathError{Op: "open", Path: path, Err: ErrChanged}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// openBeside is openRegular for a file that need not be there.
func openBeside(path string) (*os.File, error) {
	f, err := openRegular(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return f, err
}

// lockMain takes the lock of a reader: nobody changes the file without a log,
// and who has a log open cannot take it away.
func (m *image) lockMain(ctx context.Context) error {
	// A writer that waits for the readers to end holds the pending byte: no new
	// reader may come.
	if err := m.lock(ctx, m.main, pendingByte, 1); err != nil {
		return err
	}
	err := m.lock(ctx, m.main, sharedFirst, sharedSize)
	return errors.Join(err, unlockRange(m.main, pendingByte, 1))
}

// lock waits for a shared lock, which ends with the file.
func (m *image) lock(ctx context.Context, f *os.File, at, length int64) error {
	deadline := time.NewTimer(lockWait)
	defer deadline.Stop()
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		free, err := lockRange(f, at, length)
		if err != nil {
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		if free {
			return nil
		}
		retry := time.NewTimer(pause)
		select {
		case <-retry.C:
		case <-deadline.C:
			retry.Stop()
			return fmt.Errorf("%s: %w", m.path, ErrBusy)
		case <-ctx.Done():
			retry.Stop()
			return context.Cause(ctx)
		}
	}
}

// refuseHotJournal is an error where a program died in the middle of a change:
// the next one that writes takes it back, with the help of the journal.
func (m *image) refuseHotJournal() error {
	info, err := os.Lstat(m.path + "-journal")
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	// One that is at work holds the reserved byte. It has not touched the file
	// yet, and cannot while our lock lasts.
	free, err := lockRange(m.main, reservedByte, 1)
	if err != nil {
		return fmt.Errorf("lock %s: %w", m.path, err)
	}
	if !free {
		return nil
	}
	return errors.Join(fmt.Errorf("%s: %w", m.path, ErrUnfinished), unlockRange(m.main, reservedByte, 1))
}

// readLog finds the newest committed frame of each page. It reads the log once
// more where it was begun anew meanwhile.
func (m *image) readLog(ctx context.Context) error {
	for {
		if err := m.scanLog(ctx); err != nil {
			return err
		}
		var now [walHead]byte
		if _, err := m.wal.ReadAt(now[:], 0); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if now == m.head {
			return nil
		}
	}
}

func (m *image) scanLog(ctx context.Context) error {
	m.frames, m.head, m.size = nil, [walHead]byte{}, m.mainSize
	// Only whole blocks: what ends within a frame was never committed.
	in := io.NewSectionReader(m.wal, 0, 1<<62)
	if _, err := io.ReadFull(in, m.head[:]); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		return err
	}
	word := binary.BigEndian.Uint32
	magic, size := word(m.head[0:]), int64(word(m.head[8:]))
	if magic&^1 != walMagic || word(m.head[4:]) != walVersion || size < 512 || size > 65536 || size&(size-1) != 0 {
		return nil
	}
	order := binary.ByteOrder(binary.LittleEndian)
	if magic&1 != 0 {
		order = binary.BigEndian
	}
	sum := checksum{}.add(order, m.head[:24])
	if sum != (checksum{word(m.head[24:]), word(m.head[28:])}) {
		return nil
	}
	if m.pageSize != 0 && m.pageSize != size {
		return fmt.Errorf("%s: its log has pages of another size: %w", m.path, ErrDamaged)
	}
	frame := make([]byte, frameHead+size)
	pending, committed := map[uint32]int64{}, map[uint32]int64{}
	for at := int64(walHead); ; at += int64(len(frame)) {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if _, err := io.ReadFull(in, frame); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				break
			}
			return err
		}
		if !bytes.Equal(frame[8:16], m.head[16:24]) {
			break // of an older round of the log
		}
		sum = sum.add(order, frame[:8]).add(order, frame[frameHead:])
		page := word(frame)
		if sum != (checksum{word(frame[16:]), word(frame[20:])}) || page == 0 {
			break
		}
		pending[page] = at
		if pages := word(frame[4:]); pages != 0 {
			maps.Copy(committed, pending)
			clear(pending)
			m.size = int64(pages) * size
		}
	}
	if len(committed) > 0 {
		m.frames, m.pageSize = committed, size
	}
	return nil
}

// A checksum is the running sum over a log.
type checksum struct{ a, b uint32 }

func (s checksum) add(order binary.ByteOrder, data []byte) checksum {
	for ; len(data) >= 8; data = data[8:] {
		s.a += order.Uint32(data) + s.b
		s.b += order.Uint32(data[4:]) + s.a
	}
	return s
}

// Size is the image's size, in bytes.
func (m *image) Size() (int64, error) { return m.size, nil }

// ReadAt reads the image's bytes, page by page.
func (m *image) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) && off+int64(n) < m.size {
		part := p[n:min(int64(len(p)), m.size-off)]
		got, err := m.readPart(part, off+int64(n))
		n += got
		if err != nil {
			if m.err == nil {
				m.err = err
			}
			return n, err
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// readPart reads the beginning of p, as far as one page goes.
func (m *image) readPart(p []byte, off int64) (int, error) {
	if m.pageSize == 0 {
		return 0, fmt.Errorf("%s: %w", m.path, ErrDamaged)
	}
	page, within := off/m.pageSize, off%m.pageSize
	p = p[:min(int64(len(p)), m.pageSize-within)]
	found := false
	if at, ok := m.frames[uint32(page+1)]; ok {
		var err error
		if found, err = m.readFrame(p, at, within); err != nil {
			return 0, err
		}
	}
	if !found {
		if n, err := m.main.ReadAt(p, off); err != nil && (!errors.Is(err, io.EOF) || n < len(p)) {
			return 0, fmt.Errorf("%s ends within its page %d: %w", m.path, page+1, ErrDamaged)
		}
	}
	// The image has no log.
	for i := range p {
		if at := off + int64(i); at == 18 || at == 19 {
			p[i] = plainFormat
		} else if at > 19 {
			break
		}
	}
	return len(p), nil
}

// readFrame reads a page from the log. It reports false where the log was begun
// anew since: that is done only once all of it is in the file, from where
// nothing is taken away while our locks last.
func (m *image) readFrame(p []byte, at, within int64) (bool, error) {
	if m.shm == nil {
		if n, err := m.wal.ReadAt(p, at+frameHead+within); n < len(p) {
			return false, fmt.Errorf("%s: %w", m.path, errors.Join(ErrChanged, err))
		}
		return true, nil
	}
	frame := make([]byte, frameHead+within+int64(len(p)))
	n, err := m.wal.ReadAt(frame, at)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	if n < len(frame) || !bytes.Equal(frame[8:16], m.head[16:24]) {
		return false, nil
	}
	copy(p, frame[frameHead+within:])
	return true, nil
}

// check is ErrChanged where what was read may be of two states: nobody had the
// log open at the beginning, and now somebody has. Who closes it cannot take
// its files away while our lock on the database lasts.
func (m *image) check() error {
	if !m.logged || m.shm != nil {
		return nil
	}
	_, err := os.Lstat(m.path + "-shm")
	if err == nil {
		return fmt.Errorf("%s: %w", m.path, ErrChanged)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// close ends the locks.
func (m *image) close() {
	for _, f := range []*os.File{m.wal, m.shm, m.main} {
		if f != nil {
			_ = f.Close() // only read
		}
	}
}
