package supervise_test

import "os"

// host is a role of the tests that need signals.
func host() { os.Exit(98) }
