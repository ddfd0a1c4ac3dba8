// Package session keeps live sessions: the conversations that people and agents
// work on now. It owns the folder <home>/sessions.
//
//	manifest.json                 the session that was open last
//	<project>/<id>.json           a live session
//	<project>/<id>/turn-001.jsonl what happened in its first turn, line by line
//	<project>/<id>/session_meta.json, view.json, notifications.json
//	.chunks/                      sealed parts of long conversations
//	.locks/                       kernel locks and marks of void operations
//	.trash/<hash>.<ms>/           a session that was taken away: session.json, its
//	                              file; logs, its folder; trashed.json, whose it is
//	.expired.json                 which sessions people are to be told of
//
// # The session file
//
// It is a plain JSON object that other programs read and write as well: id,
// projectId, title, cwd, status, messages, activities, activeRun, error,
// artifacts, createdAt, updatedAt. One more key, sess, which stands last, holds
// what only this program needs: the revision, the operations that landed
// lately, the list of what the model saw, and references to sealed chunks. Where
// there are any, the arrays hold the newest records only. A file without sess
// has revision 0. The key titleBy is "user" where people chose the title. Keys
// that are not known here keep their place and their bytes, and so does every
// record; a record that a foreign program spread over several lines is joined to
// one.
//
// The key sess, on one line in the file:
//
//	{"format":"sess/1","revision":7,
//	 "ops":[{"id":"…"},{"id":"…","void":true}],
//	 "note":"snapshot v1 was loaded","noteRevision":7,
//	 "lists":{"messages":{"sealed":60,"bytes":65311,"chunks":[{"id":"…","records":60,"bytes":65311}]},
//	          "history":{"sealed":0,"bytes":0,"tail":[…]}}}
//
// sealed and bytes count what is in chunks only, so a program that changes the
// arrays and passes sess on leaves a file that is still right. A file of another
// format than sess/1 is left untouched.
//
// # Guarantees
//
// A file is replaced by a rename after its new content was synced, so a crash
// leaves the old state or the new one. Reading takes no lock. Whoever changes a
// session holds its kernel lock and names the revision that it saw; when another
// one is stored, the change is refused. An operation id that was asked about
// before it landed is void: it never lands later.
//
// A client's save is merged into what is stored: what the client was not shown
// stays. It needs the revision that the client saw to replace anything, and never
// brings back a session that was deleted. Clients' calls about one session run in
// the order in which they were made.
//
// A session goes to the trash by the rename of its file, with its event logs, and
// comes back the same way.
//
// The event log of a turn is appended line by line as things happen, without
// syncing each line: what a killed process wrote is there, and a power cut costs
// at most the turn in flight.
package session
