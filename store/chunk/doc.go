// Package chunk keeps sealed chunks on a disk: immutable files named by the
// SHA-256 of what they hold, one each, in the folder .chunks of a pool or of the
// live sessions.
//
// A file is two zstd frames, so that `zstd -d` gives the plain bytes. The first
// is a skippable frame whose 18 bytes are "SESS", a version, the chunk's kind,
// its plain length (8 bytes) and a CRC-32C (4 bytes) of those before it and of
// the second frame, which holds the plain bytes; numbers are little-endian. The
// CRC finds a damaged file without unpacking it, and is all that is checked
// where a frame is only passed on. The SHA-256 is checked whenever plain bytes
// are given out, and when a frame comes from elsewhere.
//
// Whoever asks which chunks are there, adds the missing ones and then publishes
// a document that names them holds the lock of the store shared all that time;
// the sweep holds it exclusively. Under that rule an index chunk is only ever
// there together with the chunks that it names: a batch makes it visible after
// them, the sweep removes it before them, each time durably.
package chunk
