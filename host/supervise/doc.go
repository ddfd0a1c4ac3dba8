// Package supervise runs plugins in processes of their own and keeps them
// running.
//
// A [Supervisor] owns one plugin. It starts it when it is first needed, hands it
// its configuration and its runtime, and starts it again with growing pauses
// when it ends. Only the calls in flight fail then, with an error that says what
// happened; later ones wait a moment for the new process. Five failures in a row
// make the plugin failed, with the reason.
//
// A plugin sees little of its host: an explicit environment, a stdin that is
// only a lifeline, and its own process group. When the host dies, however it
// dies, the lifeline ends, and the plugin and everything it started end with it.
// That is the work of wire.Serve in the plugin; an executable without it runs
// under [Guard]. What a plugin writes goes to the host's log, whatever it is:
// no output can stop the host, block the plugin or fill the memory.
//
// The package does not know what plugins are installed, nor what they may do.
package supervise
