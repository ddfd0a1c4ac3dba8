package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"sess/plugin"
)

// fileRequest is what the gateway wants of a file of a call.
type fileRequest struct {
	RequestID json.RawMessage `json:"requestId"`
	Number    int64           `json:"number"`
	Op        string          `json:"op"`
	Name      string          `json:"name"`
	Max       int             `json:"max"`
	Data      []byte          `json:"data"`
}

// fileAnswer are the params of files.answer.
type fileAnswer struct {
	RequestID json.RawMessage `json:"requestId"`
	Number    int64           `json:"number"`
	None      bool            `json:"none,omitempty"`
	Data      []byte          `json:"data,omitempty"`
	End       bool            `json:"end,omitempty"`
	Error     string          `json:"error,omitempty"`
	Code      plugin.Code     `json:"code,omitempty"`
	Hint      string          `json:"hint,omitempty"`
}

// maxPiece bounds what one answer has of a file, whatever is asked for.
const maxPiece = 1 << 20

// lent are the files that a call uses: at most one that is read, and one that is
// written.
type lent struct {
	files plugin.Files // nil: none are lent
	in    io.ReadCloser
	out   plugin.File
}

// serve does what the gateway wants, and returns what to tell it.
func (l *lent) serve(ctx context.Context, r *fileRequest) fileAnswer {
	a := fileAnswer{RequestID: r.RequestID, Number: r.Number}
	if err := l.do(ctx, r, &a); err != nil {
		e := plugin.AsError(err)
		a.Error, a.Code, a.Hint = e.Message, e.Code, e.Hint
	}
	return a
}

func (l *lent) do(ctx context.Context, r *fileRequest, a *fileAnswer) (err error) {
	open := errors.New("the gateway uses a file that is not open")
	switch r.Op {
	case "open", "create":
		if l.files == nil || l.in != nil && r.Op == "open" || l.out != nil && r.Op == "create" {
			return errors.New("the gateway wants a file that it was not lent")
		}
		if r.Op == "open" {
			l.in, err = l.files.Open(ctx, r.Name)
			a.None = l.in == nil
		} else {
			l.out, err = l.files.Create(ctx, r.Name)
			a.None = l.out == nil
		}
		return err
	case "read":
		if l.in == nil {
			return open
		}
		piece := make([]byte, max(1, min(r.Max, maxPiece)))
		n, err := io.ReadAtLeast(l.in, piece, 1)
		a.Data, a.End = piece[:n], errors.Is(err, io.EOF)
		if a.End {
			return nil
		}
		return err
	case "close":
		return l.closeIn()
	}
	if l.out == nil {
		return open
	}
	switch r.Op {
	case "write":
		_, err = l.out.Write(r.Data)
		return err
	case "commit":
		out := l.out
		l.out = nil
		return out.Commit()
	case "discard":
		return l.discard()
	}
	return errors.New("the gateway wants something of a file that this client does not know: " + r.Op)
}

func (l *lent) closeIn() (err error) {
	if l.in != nil {
		err = l.in.Close()
		l.in = nil
	}
	return err
}

func (l *lent) discard() (err error) {
	if l.out != nil {
		err = l.out.Discard()
		l.out = nil
	}
	return err
}

// end closes what the gateway has left open, as when the connection was lost.
func (l *lent) end() { _ = errors.Join(l.closeIn(), l.discard()) } // the call has an error already

// streams are the input and output of a call as files without names.
type streams struct {
	input  io.Reader
	output plugin.Output
}

// Open lends the input.
func (s streams) Open(context.Context, string) (io.ReadCloser, error) {
	if s.input == nil {
		return nil, nil
	}
	return io.NopCloser(s.input), nil
}

// Create lends the output. What it is is not told here.
func (s streams) Create(context.Context, string) (plugin.File, error) {
	if s.output == nil {
		return nil, nil
	}
	return outputFile{s.output}, s.output.Begin("", "")
}

type outputFile struct{ plugin.Output }

func (outputFile) Commit() error  { return nil }
func (outputFile) Discard() error { return nil }
