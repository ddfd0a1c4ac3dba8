package wire

import (
	"context"
	"slices"
	"time"

	"sess/plugin"
)

const (
	// maxMessage is the largest message that either side accepts. A stored
	// chunk's frame, the largest thing that crosses whole, is about half.
	maxMessage = 4 << 20
	// pieceSize is how much of anything larger goes into one message.
	pieceSize = 256 << 10
	// maxAssembled bounds what is put together from pieces, so that neither
	// side can make the other use all its memory.
	maxAssembled = 1 << 30
)

// The deadlines of calls whose context has none.
const (
	shortTimeout  = 10 * time.Second // answered from memory
	longTimeout   = time.Minute      // may touch the disk or wait for a lock
	streamTimeout = 10 * time.Minute // moves a whole conversation
)

// withDeadline bounds ctx by d unless it is bounded already.
func withDeadline(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}

// sendPieces passes data on in pieces.
func sendPieces(data []byte, send func(piece []byte) error) error {
	for piece := range slices.Chunk(data, pieceSize) {
		if err := send(piece); err != nil {
			return err
		}
	}
	return nil
}

// assembly puts pieces together. The zero value is empty.
type assembly struct{ data []byte }

func (a *assembly) add(piece []byte) error {
	if len(a.data)+len(piece) > maxAssembled {
		return plugin.Errorf(plugin.Internal, "more than the %d MB that may cross between host and plugin at once", maxAssembled>>20)
	}
	a.data = append(a.data, piece...)
	return nil
}
