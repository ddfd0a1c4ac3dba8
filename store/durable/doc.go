// Package durable is the only place that writes, renames and syncs the
// program's files. Everything that a store does on a disk goes through [FS],
// an interface of a few operations, so that tests can inject faults there and
// another kind of storage can stand behind it.
//
// A durable write is: temp file in the same folder (exclusive, mode 0600, name
// ending in ".tmp"), write, sync, close, rename, sync of the folder. After a
// crash at any point the old file or the new one is there, whole; a leftover
// temp file is ignored by all readers and swept later.
//
// Folders are made with mode 0700 and files with 0600 whatever the umask;
// wider ones that are met are tightened. Links are never followed.
//
// Locks are kernel locks on files that are never deleted: they end with their
// holder, so none needs a human to break it.
package durable
