package socket

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// peer returns the process on the other side of a connection, according to the
// kernel. For a client it is the process that listens.
func peer(conn *net.UnixConn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var errGet error
	err = raw.Control(func(fd uintptr) {
		cred, errGet = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err == nil {
		err = errGet
	}
	return cred, err
}

// checkPeer returns the process on the other side of a connection. It
// returns an error if the process belongs to neither root nor the user of this
// process.
func checkPeer(conn *net.UnixConn) (*unix.Ucred, error) {
	cred, err := peer(conn)
	if err != nil {
		return nil, fmt.Errorf("read the credentials of the peer: %w", err)
	}
	if !trusted(cred.Uid) {
		return nil, fmt.Errorf("process %d belongs to user %d, not to root", cred.Pid, cred.Uid)
	}
	return cred, nil
}
