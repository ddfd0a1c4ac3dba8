package chat_test

import "os"

// stopSignals is empty: Windows can only kill.
func stopSignals() []os.Signal { return nil }
