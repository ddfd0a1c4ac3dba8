// Package snapshot is a pool of named snapshots: one folder that holds
// documents under names, the chunks they share, a trash and the records of what
// was done.
//
//	<name>.sess.json                 a snapshot; the file's name is its name
//	.chunks/                         sealed chunks, shared by all documents
//	.trash/<id>.<op>.sess.json       what an operation took away
//	.ops/<op>.json                   the record of an operation
//	.ops/<op>.open.json              that of one on names which is not done yet
//	.trash/<op>.json  .open.json     those of an overwrite, which lie beside what it took away
//	.trash/<chunk>.<batch>.zst       a second name of a chunk, until .chunks was synced
//	.ops/<op>.lock                   the lock of its owner, while it is open
//	.lock  .lock.holder              the names lock, and who has it, for messages
//	.prune.json                      the last run of the pruner
//
// Nothing else decides anything: there is no index, a file that is put into the
// folder is listed at once and one that is taken away is gone. What an open
// [Pool] remembers only spares it work on files that hold or look what they did.
// Files that are not the pool's (hidden, temporary, links, folders, other kinds
// and names) are never touched.
//
// # Promises
//
// A name holds one whole document at every moment. After a crash at any point
// an operation has happened or has not; [Pool.Recover] finishes or takes back
// what stood open. Overwrite, delete and prune leave the old document in the
// trash, and the record of an operation allows to undo it as long as the trash
// file is there. All methods that change something are durable when they
// return without an error.
//
// # Locks
//
// The names lock is held exclusively, for milliseconds, by everything that
// publishes, moves or changes a document or a record. The chunk lock is held
// shared by a [Writer] and by a copy, and exclusively by the sweep, which only
// takes it when it is free. The chunk lock comes first. The owner of an [OpenOp]
// holds a lock on its record until it closes it or dies. All are kernel locks.
// Readers take none.
//
// The package knows nothing about live sessions, plugins or surfaces.
package snapshot
