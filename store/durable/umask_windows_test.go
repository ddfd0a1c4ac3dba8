package durable_test

func umask(int) int { return 0 }
