package agents

import (
	"io"
	"iter"
)

// LinesUpTo is [Lines] with another limit than [MaxLine].
func LinesUpTo(r io.Reader, limit int) iter.Seq2[Line, error] { return lines(r, limit, nil) }
