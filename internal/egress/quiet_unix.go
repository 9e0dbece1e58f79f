//go:build unix

package egress

import (
	"net"
	"syscall"
)

// quietness returns a func that reports whether a connection is open and has
// nothing to read. Nobody reads an idle connection, so what comes, or its end,
// waits to be seen. Of a connection that is not the operating system's this
// cannot be told.
func quietness(conn net.Conn) func() bool {
	for {
		t, ok := conn.(interface{ NetConn() net.Conn }) // of TLS
		if !ok {
			break
		}
		conn = t.NetConn()
	}
	s, ok := conn.(syscall.Conn)
	if !ok {
		return func() bool { return true }
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return func() bool { return true }
	}
	var quiet bool
	var b [1]byte
	look := func(fd uintptr) bool {
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		quiet = n < 0 && (err == syscall.EAGAIN || err == syscall.EWOULDBLOCK)
		return true
	}
	return func() bool {
		quiet = false
		return raw.Read(look) == nil && quiet
	}
}
