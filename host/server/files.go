package server

import (
	"context"
	"encoding/json"
	"io"
	"sync"

	"github.com/creachadair/jrpc2"

	"sess/plugin"
	"sess/surfaces"
)

// A call over a connection may use files of its client: the gateway sends the
// notification "file", with a number for the client's answer by the method
// files.answer. What is read or written crosses in pieces, one at a time. Whoever
// calls says that it takes part in this; others would never answer.

// methodFilesAnswer is how a client answers a notification "file".
const methodFilesAnswer = "files.answer"

// maxPiece is how many bytes of a file one message has.
const maxPiece = 256 << 10

// fileParams are those of the notification "file".
type fileParams struct {
	RequestID json.RawMessage `json:"requestId"`
	Number    int64           `json:"number"`
	// Op is open, read or close, of the one file that the call reads, or create,
	// write, commit or discard, of the one that it writes.
	Op   string `json:"op"`
	Name string `json:"name,omitempty"` // of open and create
	Max  int    `json:"max,omitempty"`  // of read: bytes in the answer
	Data []byte `json:"data,omitempty"` // of write
}

// fileAnswer is what the client answers.
type fileAnswer struct {
	RequestID json.RawMessage `json:"requestId"`
	Number    int64           `json:"number"`
	None      bool            `json:"none"` // there is no such file, nor need there be
	Data      []byte          `json:"data"`
	End       bool            `json:"end"` // nothing is left to be read
	Error     string          `json:"error"`
	Code      plugin.Code     `json:"code"`
	Hint      string          `json:"hint"`
}

type clientFilesKey struct{}

// ClientFiles returns the files of the client that made a call, which has said
// that it lends them; nil where it cannot.
func ClientFiles(ctx context.Context) plugin.Files {
	files, _ := ctx.Value(clientFilesKey{}).(*clientFiles)
	if files == nil {
		return nil
	}
	return files
}

// clientFiles asks the client of one call.
type clientFiles struct {
	conn   *rpcConn
	id     string
	ctx    context.Context // of the call
	answer chan fileAnswer // has room for one

	mu   sync.Mutex // held while one answer is waited for
	last int64
}

// withFiles lets a call ask for files of its client; end forgets it.
func (c *rpcConn) withFiles(ctx context.Context, req *jrpc2.ParsedRequest) (with context.Context, end func()) {
	if req.ID == "" {
		return ctx, func() {}
	}
	files := &clientFiles{conn: c, id: req.ID, answer: make(chan fileAnswer, 1)}
	ctx = context.WithValue(ctx, clientFilesKey{}, files)
	files.ctx = ctx
	return ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.files[files.id] == files {
			delete(c.files, files.id)
		}
	}
}

// filesAnswer takes a client's answer. One that nobody waits for is dropped.
func (c *rpcConn) filesAnswer(params json.RawMessage) (any, func(), error) {
	var a fileAnswer
	if err := surfaces.Params(params, &a); err != nil {
		return nil, nil, err
	}
	c.mu.Lock()
	files := c.files[string(a.RequestID)]
	c.mu.Unlock()
	if files != nil {
		select {
		case files.answer <- a:
		default: // nobody asked twice
		}
	}
	return struct{}{}, nil, nil
}

func (f *clientFiles) ask(p fileParams) (fileAnswer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last++
	p.Number, p.RequestID = f.last, json.RawMessage(f.id)
	f.conn.mu.Lock()
	f.conn.files[f.id] = f
	f.conn.mu.Unlock()
	message, err := notification("file", p)
	if err != nil {
		return fileAnswer{}, err
	}
	f.conn.send(message)
	for {
		select {
		case a := <-f.answer:
			switch {
			case a.Number != p.Number: // to a question that was given up
			case a.Error != "":
				return fileAnswer{}, &plugin.Error{Code: a.Code, Message: a.Error, Hint: a.Hint}
			default:
				return a, nil
			}
		case <-f.ctx.Done():
			return fileAnswer{}, context.Cause(f.ctx)
		}
	}
}

// Open asks the client to open a file.
func (f *clientFiles) Open(_ context.Context, name string) (io.ReadCloser, error) {
	a, err := f.ask(fileParams{Op: "open", Name: name})
	if err != nil || a.None {
		return nil, err
	}
	return &clientReader{files: f}, nil
}

// Create asks the client to begin a file.
func (f *clientFiles) Create(_ context.Context, name string) (plugin.File, error) {
	a, err := f.ask(fileParams{Op: "create", Name: name})
	if err != nil || a.None {
		return nil, err
	}
	return clientWriter{f}, nil
}

type clientReader struct {
	files *clientFiles
	piece []byte
	end   bool
}

func (r *clientReader) Read(p []byte) (int, error) {
	for len(r.piece) == 0 {
		if r.end {
			return 0, io.EOF
		}
		a, err := r.files.ask(fileParams{Op: "read", Max: pieceOf(r.files.conn.limit)})
		if err != nil {
			return 0, err
		}
		r.piece, r.end = a.Data, a.End
	}
	n := copy(p, r.piece)
	r.piece = r.piece[n:]
	return n, nil
}

func (r *clientReader) Close() error {
	_, err := r.files.ask(fileParams{Op: "close"})
	return err
}

type clientWriter struct{ files *clientFiles }

func (w clientWriter) Write(p []byte) (int, error) {
	for done := 0; done < len(p); {
		n := min(len(p)-done, maxPiece)
		if _, err := w.files.ask(fileParams{Op: "write", Data: p[done : done+n]}); err != nil {
			return done, err
		}
		done += n
	}
	return len(p), nil
}

func (w clientWriter) Commit() error {
	_, err := w.files.ask(fileParams{Op: "commit"})
	return err
}

func (w clientWriter) Discard() error {
	_, err := w.files.ask(fileParams{Op: "discard"})
	return err
}

// pieceOf is how many bytes a client may put into one message that may not have
// more than limit, in base64 and with what stands around it.
func pieceOf(limit int64) int {
	const around = 1024
	return int(max(16, min(maxPiece, (limit-around)*3/4/2)))
}
