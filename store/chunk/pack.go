package chunk

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"slices"
	"sort"
	"strings"

	"github.com/klauspost/compress/zstd"

	"sess/store/durable"
	"sess/store/transcript"
)

const (
	packs      = folder + "/packs"
	packSuffix = ".pack"
	packMagic  = skippable + 1 // of the frame that holds the places
	packTag    = "SESSPAK1"    // ends a pack; the last digit is the version
	packEnd    = 4 + 4 + len(packTag)
	frameHead  = 4 + 4

	// maxPack is how many bytes of frames a pack gets before the next one begins.
	maxPack = 64 << 20
)

// A place says where in a pack a chunk's frame lies: its id, its offset in 8
// bytes, its length in 4, big-endian.
const placeSize = sha256.Size + 8 + 4

// key is a chunk's id as it stands in a pack.
type key [sha256.Size]byte

func keyOf(id transcript.ID) (k key) {
	_, _ = hex.Decode(k[:], []byte(id)) // the caller knows that it is valid
	return k
}

func (k key) id() transcript.ID { return transcript.ID(hex.EncodeToString(k[:])) }

func appendPlace(places []byte, k key, offset int64, length int) []byte {
	places = append(places, k[:]...)
	places = binary.BigEndian.AppendUint64(places, uint64(offset))
	return binary.BigEndian.AppendUint32(places, uint32(length))
}

// pack is what is known of a file of many chunks. It never changes.
type pack struct {
	file    string // its name in the store
	size    int64
	places  []byte // in order of their ids
	partial bool   // they were found in the frames, so there may be more
	strange error  // why it is not used: another version made it, or nothing in it can be read
}

func (p *pack) len() int { return len(p.places) / placeSize }

func (p *pack) at(i int) (k key, offset int64, length int) {
	place := p.places[i*placeSize:]
	copy(k[:], place)
	return k, int64(binary.BigEndian.Uint64(place[len(k):])), int(binary.BigEndian.Uint32(place[len(k)+8:]))
}

// find tells where the frame of a chunk is.
func (p *pack) find(k key) (offset int64, length int, ok bool) {
	i := sort.Search(p.len(), func(i int) bool {
		return bytes.Compare(p.places[i*placeSize:i*placeSize+len(k)], k[:]) >= 0
	})
	if i == p.len() {
		return 0, 0, false
	}
	found, offset, length := p.at(i)
	return offset, length, found == k
}

// packer writes a pack.
type packer struct {
	temp   *durable.Temp
	size   int64
	places [][]byte
}

func newPacker(fsys durable.FS) (*packer, error) {
	if err := durable.MkdirAll(fsys, packs); err != nil {
		return nil, err
	}
	temp, err := durable.CreateTemp(fsys, packs+"/pack")
	if err != nil {
		return nil, err
	}
	return &packer{temp: temp}, nil
}

// add appends a chunk's frame.
func (p *packer) add(id transcript.ID, frame []byte) error {
	if _, err := p.temp.Write(frame); err != nil {
		return err
	}
	p.places = append(p.places, appendPlace(nil, keyOf(id), p.size, len(frame)))
	p.size += int64(len(frame))
	return nil
}

// finish writes the places and syncs the file. Its name is to be the SHA-256 of
// the places, so that a pack of a name always has its chunks in the same places.
func (p *packer) finish() (*pack, error) {
	slices.SortFunc(p.places, bytes.Compare)
	places := slices.Concat(p.places...)
	end := make([]byte, 0, frameHead+len(places)+packEnd)
	end = binary.LittleEndian.AppendUint32(end, packMagic)
	end = binary.LittleEndian.AppendUint32(end, uint32(len(places)+packEnd))
	end = append(end, places...)
	end = binary.BigEndian.AppendUint32(end, uint32(len(p.places)))
	end = binary.BigEndian.AppendUint32(end, crc32.Checksum(end[frameHead:], castagnoli))
	end = append(end, packTag...)
	if _, err := p.temp.Write(end); err != nil {
		return nil, err
	}
	if err := p.temp.Sync(); err != nil {
		return nil, err
	}
	return &pack{file: packs + "/" + string(transcript.Sum(places)) + packSuffix, size: p.size + int64(len(end)), places: places}, nil
}

// readPack reads where the chunks of a pack are. Where what says so is damaged,
// it is found out from the frames. An error is one of the disk.
func readPack(fsys durable.FS, file string) (*pack, error) {
	f, err := fsys.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	p := &pack{file: file, size: info.Size()}
	p.places, err = readPlaces(f, p.size)
	if errors.Is(err, transcript.ErrDamaged) {
		p.partial = true
		p.places, err = findPlaces(f, p.size)
	}
	if errors.Is(err, transcript.ErrNewer) || errors.Is(err, transcript.ErrDamaged) {
		p.strange, err = err, nil
	}
	return p, err
}

// readPlaces reads the end of a pack.
func readPlaces(f io.ReaderAt, size int64) ([]byte, error) {
	bad := func(reason string) error { return &DamagedError{Reason: reason} }
	var end [packEnd]byte
	if size < frameHead+int64(len(end)) {
		return nil, bad("it is too short")
	}
	if _, err := f.ReadAt(end[:], size-int64(len(end))); err != nil {
		return nil, err
	}
	tag := string(end[8:])
	if stem := packTag[:len(packTag)-1]; tag != packTag {
		if strings.HasPrefix(tag, stem) && tag[len(stem)] > '1' && tag[len(stem)] <= '9' {
			return nil, &transcript.NewerError{Format: "sess pack " + tag[len(stem):]}
		}
		return nil, bad("it does not end as a pack")
	}
	n := int64(binary.BigEndian.Uint32(end[:4]))
	frames := size - int64(len(end)) - n*placeSize - frameHead
	if frames < 0 {
		return nil, bad("it claims more chunks than fit in")
	}
	places := make([]byte, n*placeSize+4)
	if _, err := f.ReadAt(places, frames+frameHead); err != nil {
		return nil, err
	}
	if crc32.Checksum(places, castagnoli) != binary.BigEndian.Uint32(end[4:]) {
		return nil, bad("its list of chunks does not fit its checksum")
	}
	places = places[:n*placeSize]
	p := &pack{places: places}
	var last key
	for i := range p.len() {
		k, offset, length := p.at(i)
		if offset < 0 || length < headerSize || length > maxFrame || offset > frames-int64(length) || i > 0 && bytes.Compare(last[:], k[:]) >= 0 {
			return nil, bad("its list of chunks is in disorder")
		}
		last = k
	}
	return places, nil
}

// findPlaces finds the frames of a pack one after the other, as far as they can be
// read.
func findPlaces(f io.ReaderAt, size int64) ([]byte, error) {
	found := map[key][]byte{}
	for offset := int64(0); offset < size; {
		length, err := frameLength(f, offset, size)
		if _, disk := errors.AsType[*fs.PathError](err); disk {
			return nil, err
		}
		if err != nil {
			break
		}
		frame := make([]byte, length)
		if _, err := f.ReadAt(frame, offset); err != nil {
			return nil, err
		}
		if id, err := identify(frame); err == nil {
			k := keyOf(id)
			found[k] = appendPlace(nil, k, offset, length)
		}
		offset += int64(length)
	}
	if len(found) == 0 {
		return nil, &DamagedError{Reason: "no chunk in it can be found"}
	}
	var places [][]byte
	for _, place := range found {
		places = append(places, place)
	}
	slices.SortFunc(places, bytes.Compare)
	return slices.Concat(places...), nil
}

// identify is the id of the chunk in a frame.
func identify(frame []byte) (transcript.ID, error) {
	if _, err := Check(frame); err != nil {
		return "", err
	}
	buf := buffer()
	defer release(buf)
	plain, err := unpack(*buf, frame)
	if err != nil {
		return "", err
	}
	*buf = plain
	return transcript.Sum(plain), nil
}

// frameLength measures the frame at an offset without unpacking it, by the lengths
// of its blocks (RFC 8878, section 3.1.1.2).
func frameLength(f io.ReaderAt, offset, size int64) (int, error) {
	head := make([]byte, min(int64(headerSize+zstd.HeaderMaxSize), size-offset))
	if _, err := f.ReadAt(head, offset); err != nil {
		return 0, err
	}
	if _, _, err := header(head); err != nil {
		return 0, err
	}
	var h zstd.Header
	if err := h.Decode(head[headerSize:]); err != nil {
		return 0, err
	}
	length := int64(headerSize + h.HeaderSize)
	for last := false; !last; {
		var block [3]byte
		if _, err := f.ReadAt(block[:], offset+length); err != nil {
			return 0, err
		}
		b := int64(block[0]) | int64(block[1])<<8 | int64(block[2])<<16
		last = b&1 == 1
		length += int64(len(block))
		if kind := b >> 1 & 3; kind == 1 { // one byte, many times
			length++
		} else {
			length += b >> 3
		}
		if last && h.HasCheckSum {
			length += 4
		}
		if length > maxFrame || offset+length > size {
			return 0, fmt.Errorf("a frame of more than %d bytes", length)
		}
	}
	return int(length), nil
}
