package sess

import (
	"errors"
	"strings"
	"testing"

	"sess/plugin"
	"sess/store/transcript"
)

// Chunks that cannot be had and chunks that cannot be read may come together: the
// search says so, and the race detector nothing.
func TestScanOfDamagedChunks(t *testing.T) {
	t.Parallel()
	s := &searching{match: &matcher{folded: "x", ascii: true}, chunks: map[string][]matched{}}
	err := s.scanChunks(transcript.ListMessages, func(yield func(plugin.Chunk, error) bool) {
		id := transcript.ID(strings.Repeat("0", 64))
		_ = yield(plugin.Chunk{ID: id, Frame: []byte("damaged")}, nil) && yield(plugin.Chunk{}, errors.New("the rest is gone"))
	})
	if err == nil || len(s.chunks) != 0 {
		t.Errorf("scanChunks = %v with %d chunks, want an error and none", err, len(s.chunks))
	}
}
