// Package agents reads the conversations of other agents from where those keep
// them, and writes a snapshot of one back as a new conversation of its agent.
//
// [All] lists the agents. [Agent.Open] opens the folder of one; its [Store] lists
// conversations by their heads, reads one into a [Writer], which makes the
// document of a snapshot, and restores such a document.
//
// What it promises:
//   - Reading writes nothing in the agent's folder, follows no link that leads out
//     of it, and works where the folder is read-only. Of files that are being
//     written it reads what was complete when it began.
//   - Each record is kept byte for byte, also one that nobody can read. The list
//     [transcript.ListMessages] beside them is what people read: it is derived, and
//     the same records always give the same messages.
//   - A conversation is streamed. What a read holds in memory is a few times its
//     longest line, and [MaxLine] bounds that: a longer one becomes a marker with
//     its size.
//   - Restore never changes or replaces a file: it makes new ones, checked before
//     the first is written.
//
// The formats belong to the agents' makers and change with their releases. What a
// file says of them names the version that was looked at.
package agents
