// Package sqlitefile reads SQLite databases that belong to other programs, also
// while these have them open and write to them.
//
// [Read] writes nothing: not to the database, not beside it. So it reads in folders
// and file systems that cannot be written to, and never makes the "-wal" and
// "-shm" files that SQLite's own read-only mode makes. What it reads is one
// committed state: the pages of the file and, over them, those that the
// write-ahead log beside it has committed.
//
// While it reads, it holds the shared locks that keep other programs from
// changing that state under it: they go on reading and writing, and only what
// they write waits in their log. Where no program had the log open at the
// beginning, there is nothing to lock; one that opens it meanwhile is noticed,
// and the reading begins again.
//
// [Add] is for the one thing else that is done with them: new rows, in one
// transaction of SQLite's own, beside programs that have the database open.
//
// The formats and locks are those of https://sqlite.org/fileformat2.html and
// https://sqlite.org/walformat.html, as of SQLite 3.53.
package sqlitefile
