package supervise

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// Guard runs the command args[0] with the arguments args[1:] and gives a
// plugin that does not watch its stdin what wire.Serve gives the others: when
// this process's stdin ends, as it does when the host is gone, the command ends
// with everything that it started. The command reads an empty stdin; stdout,
// stderr and the environment are this process's own. Guard returns the
// command's exit status, or 126 or 127 if it could not be run, and then says
// why on stderr.
func Guard(args []string) int {
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "guard: no command given; usage: sess plugin guard -- command [argument…]")
		return 2
	}
	leadGroup()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, explainExec("under guard", args[0], err))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
			return 127
		}
		return 126
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		endOwnGroup(cmd.Process)
	}()
	_ = cmd.Wait() // the state tells
	if !cmd.ProcessState.Success() {
		// The end of the host may be what the command failed of, by a broken
		// pipe: then what it started must not be left to itself.
		<-time.After(lingering)
	}
	return exitStatus(cmd.ProcessState)
}
