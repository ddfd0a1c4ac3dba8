//go:build !linux && !darwin

package supervise

import "os"

// awaitExit cannot wait here without reaping.
func awaitExit(*os.Process) bool { return false }
