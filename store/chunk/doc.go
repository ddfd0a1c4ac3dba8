// Package chunk keeps sealed chunks on a disk: immutable, and named by the SHA-256
// of what they hold, in the folder .chunks of a pool or of the live sessions.
//
// A chunk is stored as a frame, which is two zstd frames, so that `zstd -d` gives
// the plain bytes. The first is a skippable frame whose 18 bytes are "SESS", a
// version, the chunk's kind, its plain length (8 bytes) and a CRC-32C (4 bytes) of
// those before it and of the second frame, which holds the plain bytes; numbers
// are little-endian. The CRC finds a damaged frame without unpacking it, and is
// all that is checked where a frame is only passed on. The SHA-256 is checked
// whenever plain bytes are given out, and when a frame comes from elsewhere.
//
// Most chunks are a file each, <id>.zst. Of many that are sealed together, as when
// a long conversation is saved for the first time, most share a pack, because to
// make and sync a file costs more than to press a chunk: packs/<id>.pack is frames
// one after the other, and then a skippable frame with the places of the chunks in
// order of their ids (id, offset in 8 bytes, length in 4), their number (4 bytes),
// the CRC-32C of both (4), and "SESSPAK1"; here numbers are big-endian. A pack is
// named by the SHA-256 of its places. Where these are damaged the frames are found
// one after the other. Index chunks are in no pack.
//
// Whoever asks which chunks are there, adds the missing ones and then publishes
// a document that names them holds the lock of the store shared all that time;
// the sweep holds it exclusively. Under that rule an index chunk is only ever
// there together with the chunks that it names: a batch makes it visible after
// them, the sweep removes it before them, each time durably.
package chunk
