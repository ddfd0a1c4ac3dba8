// Package sess is the plugin that gives conversations named snapshots.
//
// It owns the pools of snapshots (package store/snapshot), one for each agent
// and project, and the verbs that work on them: one file for each verb, one
// list in verbs.go. Live sessions belong to the host; the plugin reads and
// changes them through [plugin.Runtime] alone, so that loading a snapshot goes
// through the same stage and commit as every other change.
//
// What a verb does follows one order: resolve, read and check everything, then
// make the backup, then change. A failure takes back what was made before it.
//
// Besides the verbs there are two services: autosave, which keeps one rolling
// snapshot of a session after each turn, and the pruner, which applies the
// retention rules after each save and on a schedule.
package sess
