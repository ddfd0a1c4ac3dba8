package chunk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"

	"sess/store/transcript"
)

const (
	skippable  = 0x184D2A50 // magic of a skippable zstd frame
	tag        = "SESS"
	version    = 1
	payload    = 18
	headerSize = 8 + payload

	// maxFrame is more than any chunk's file has: zstd stores what it cannot
	// press with a few bytes for each block.
	maxFrame = transcript.MaxPlain + transcript.MaxPlain/64 + headerSize + 64
)

// encoderWindow is more than a chunk has that is pressed in one block, and little
// enough for many encoders at a time.
const encoderWindow = 256 << 10

// Encoders and decoders are costly to make, hold no state between two uses, and
// are made when first needed. So are the buffers that they fill.
var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)

	encoders = sync.Pool{New: func() any {
		e, err := zstd.NewWriter(nil, zstd.WithWindowSize(encoderWindow), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
			zstd.WithLowerEncoderMem(true), zstd.WithSingleSegment(true), zstd.WithEncoderCRC(false), zstd.WithZeroFrames(true))
		if err != nil {
			panic("chunk: " + err.Error()) // the options are constant
		}
		return e
	}}

	decoders = sync.Pool{New: func() any {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(transcript.MaxPlain), zstd.IgnoreChecksum(true))
		if err != nil {
			panic("chunk: " + err.Error())
		}
		return d
	}}

	buffers = sync.Pool{New: func() any { return new([]byte) }}
)

// maxBuffer is the largest buffer that is kept: all but the pieces of giant
// records fit in.
const maxBuffer = 512 << 10

// buffer is an empty one; release gives it back.
func buffer() *[]byte { return buffers.Get().(*[]byte) }

func release(buf *[]byte) {
	if cap(*buf) <= maxBuffer {
		*buf = (*buf)[:0]
		buffers.Put(buf)
	}
}

// Encode returns the frame of a chunk, as it lies on the disk and travels
// between stores.
func Encode(s transcript.Sealed) []byte {
	return encode(nil, s.Kind, s.Plain)
}

// encode makes a frame in buf, which is empty.
func encode(buf []byte, kind transcript.Kind, plain []byte) []byte {
	var head [headerSize]byte
	frame := append(slices.Grow(buf, headerSize+len(plain)/2+64), head[:]...)
	binary.LittleEndian.PutUint32(frame, skippable)
	binary.LittleEndian.PutUint32(frame[4:], payload)
	copy(frame[8:], tag)
	frame[12] = version
	frame[13] = byte(kind)
	binary.LittleEndian.PutUint64(frame[14:], uint64(len(plain)))
	e := encoders.Get().(*zstd.Encoder)
	frame = e.EncodeAll(plain, frame)
	encoders.Put(e)
	binary.LittleEndian.PutUint32(frame[22:], sum(frame))
	return frame
}

// sum is the checksum of a frame, without the place of the checksum itself.
func sum(frame []byte) uint32 {
	return crc32.Update(crc32.Checksum(frame[8:22], castagnoli), castagnoli, frame[headerSize:])
}

// header reads what a frame says of itself.
func header(frame []byte) (kind transcript.Kind, plain int, err error) {
	if len(frame) < headerSize {
		return 0, 0, fmt.Errorf("it has %d bytes, less than its header", len(frame))
	}
	if binary.LittleEndian.Uint32(frame) != skippable || binary.LittleEndian.Uint32(frame[4:]) < payload || string(frame[8:12]) != tag {
		return 0, 0, errors.New("it does not begin as a chunk")
	}
	if v := frame[12]; v != version {
		return 0, 0, &transcript.NewerError{Format: fmt.Sprintf("sess chunk %d", v)}
	}
	kind = transcript.Kind(frame[13])
	size := binary.LittleEndian.Uint64(frame[14:])
	switch {
	case binary.LittleEndian.Uint32(frame[4:]) != payload:
		return 0, 0, errors.New("its header has another length")
	case kind < transcript.KindRecords || kind > transcript.KindPiece:
		return 0, 0, fmt.Errorf("it holds an unknown %s", kind)
	case size > transcript.MaxPlain:
		return 0, 0, fmt.Errorf("it claims %d plain bytes, more than the limit of %d", size, transcript.MaxPlain)
	}
	return kind, int(size), nil
}

// Check tests a frame by its fast checksum, without unpacking it. A frame of a
// newer version is a *transcript.NewerError, any other error means damage.
func Check(frame []byte) (transcript.Kind, error) {
	kind, _, err := header(frame)
	if err != nil {
		return 0, err
	}
	if len(frame) > maxFrame {
		return 0, fmt.Errorf("it has %d bytes, more than the limit of %d", len(frame), maxFrame)
	}
	if sum(frame) != binary.LittleEndian.Uint32(frame[22:]) {
		return 0, errors.New("its checksum does not fit its bytes")
	}
	return kind, nil
}

// Decode unpacks the frame of chunk id and checks it by SHA-256. No more memory
// is used than the chunk may have. Errors are a *[DamagedError] or, for a frame
// of a newer version, a *transcript.NewerError.
func Decode(id transcript.ID, frame []byte) (transcript.Kind, []byte, error) {
	kind, plain, err := decode(nil, id, frame)
	if err != nil {
		return 0, nil, damaged(id, "", err)
	}
	return kind, plain, nil
}

// verify is [Decode] for who does not want the plain bytes.
func verify(id transcript.ID, frame []byte) (transcript.Kind, error) {
	buf := buffer()
	defer release(buf)
	kind, plain, err := decode(*buf, id, frame)
	if err != nil {
		return 0, damaged(id, "", err)
	}
	*buf = plain
	return kind, nil
}

// decode unpacks into buf, which is empty, or into memory of its own.
func decode(buf []byte, id transcript.ID, frame []byte) (transcript.Kind, []byte, error) {
	kind, err := Check(frame)
	if err != nil {
		return 0, nil, err
	}
	plain, err := unpack(buf, frame)
	if err != nil {
		return 0, nil, err
	}
	if transcript.Sum(plain) != id {
		return 0, nil, errors.New("what it holds does not fit its name")
	}
	return kind, plain, nil
}

// unpack is decode for a frame that was checked and whose id is not known.
func unpack(buf, frame []byte) ([]byte, error) {
	_, size, _ := header(frame) // Check has read it
	var h zstd.Header
	if err := h.Decode(frame[headerSize:]); err != nil || !h.HasFCS || h.FrameContentSize != uint64(size) {
		return nil, fmt.Errorf("what it holds does not say that it is %d plain bytes", size)
	}
	if buf == nil || cap(buf) < size {
		buf = make([]byte, 0, size)
	}
	d := decoders.Get().(*zstd.Decoder)
	plain, err := d.DecodeAll(frame[headerSize:], buf)
	decoders.Put(d)
	if err != nil {
		return nil, fmt.Errorf("it does not unpack: %w", err)
	}
	if len(plain) != size {
		return nil, errors.New("what it holds has another length than it says")
	}
	return plain, nil
}
