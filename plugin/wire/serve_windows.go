package wire

import "os"

// endGroup ends this process; there are no process groups to end here.
func endGroup() { os.Exit(1) }

// surviveBrokenPipes has nothing to do: a broken pipe ends no process here.
func surviveBrokenPipes() {}
