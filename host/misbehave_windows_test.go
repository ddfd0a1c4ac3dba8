package host_test

// stopSelf is asked for on other systems only.
func stopSelf() {}
