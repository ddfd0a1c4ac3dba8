// Package transcript is the pure model of a conversation: records, the chunks
// they are cut into, documents, their digest, and the record types of a chat.
//
// A conversation is a small header and named lists of records. A record is one
// line of bytes, kept byte for byte. Each list is cut by content into chunks,
// which are stored elsewhere (package store/chunk) under the SHA-256 of their
// plain bytes; what is not yet cut, the tail, stays in the document. The same
// records always give the same chunks, so two documents are equal exactly when
// their digests are.
//
// The package does no I/O: functions that need chunks take a function that
// loads them. It keeps no state, and everything in it is safe for concurrent
// use unless a comment says otherwise.
package transcript
