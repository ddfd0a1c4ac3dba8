package server

import (
	"net"
	"syscall"
)

// waitHangUp waits until the other end of a unix socket has closed it for reading,
// too, or until it is closed here. It answers false at once where the system does
// not tell. Nobody else may read from the connection.
func waitHangUp(conn net.Conn) bool {
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return false
	}
	raw, err := unix.SyscallConn()
	if err != nil {
		return false
	}
	// What the poller tells of is looked into; only an end of both directions
	// refuses a write, also one of nothing.
	_ = raw.Read(func(fd uintptr) bool {
		_, err := syscall.SendmsgN(int(fd), nil, nil, nil, syscall.MSG_NOSIGNAL|syscall.MSG_DONTWAIT)
		return err == syscall.EPIPE || err == syscall.ECONNRESET
	})
	return true
}
