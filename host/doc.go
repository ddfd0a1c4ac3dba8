// Package host is the program around the plugins: it owns the home folder, the
// configuration, the live sessions and the plugin processes, and offers them
// to one another.
//
// [Open] gives a host that lives in this process: the command line opens one
// for a single call, the gateway one that stays. Both are the same host, so an
// answer does not depend on which of them gave it. A [Host] is itself a
// dispatcher: the first word of a call's argv names a command, which is a
// plugin's or one of the host's own (sessions, plugins), declared in the same
// way.
//
// A [Gateway] is a host that stays, and what others reach it by: the lock that
// makes it the only one of its home, its token, its socket and its address. A
// command line means the same to it as to the process where it was typed:
// [Host.CommandLine] answers both.
//
// Beside the bundled plugins there are those that a person has installed below
// plugins/ in the home, each in a folder with a record of its files' checksums.
// Nothing that differs from its record is run, and one that is broken keeps
// nothing else from working. [Host.Reload] applies a change of the configuration
// or of the installed plugins to what runs: what has not changed goes on.
//
// The host never knows a plugin's verb by name. No plugin process outlives it.
package host
