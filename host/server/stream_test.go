package server

import (
	"context"
	"testing"
)

// A stream ends when the server begins to close, a call does not.
func TestWhileServing(t *testing.T) {
	t.Parallel()
	closing, closeServer := context.WithCancel(t.Context())
	call := context.WithValue(t.Context(), closingKey{}, &serving{closing: closing})
	stream, end := whileServing(call)
	defer end()
	closeServer()
	<-stream.Done()
	if call.Err() != nil {
		t.Error("the call has ended with the stream")
	}
	alone, end := whileServing(t.Context())
	end()
	<-alone.Done()
}
