package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// DialContext connects from the namespace, as [net.Dialer.DialContext] does; the
// address is a literal one, there are no names here. It fits http.Transport.
func (n *Namespace) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fmt.Errorf("dial from %s: %w", n.Name, err)
	}
	return n.dial(ctx, network, netip.AddrPort{}, to)
}

// Dial is DialContext with a source address and port. A zero port lets the
// kernel choose; so does an invalid or unspecified address.
func (n *Namespace) Dial(ctx context.Context, network string, from, to netip.AddrPort) (net.Conn, error) {
	return n.dial(ctx, network, from, to)
}

// dial opens the socket on a thread of the namespace. For a literal address the
// net package does all of that in the calling goroutine.
func (n *Namespace) dial(ctx context.Context, network string, from, to netip.AddrPort) (net.Conn, error) {
	dialer := net.Dialer{
		LocalAddr: localAddr(network, from),
		Control: func(network, _ string, raw syscall.RawConn) error {
			return setClientOptions(network, from.Port() != 0, raw)
		},
	}
	conn, err := within(n, func() (net.Conn, error) { return dialer.DialContext(ctx, network, to.String()) })
	if tcp, ok := conn.(*net.TCPConn); ok && from.Port() != 0 {
		tcp.SetLinger(0) // Close resets, which leaves no TIME_WAIT on the port
	}
	return conn, err
}

// localAddr converts the source of a connection; nil leaves it to the kernel.
func localAddr(network string, from netip.AddrPort) net.Addr {
	switch {
	case !from.Addr().IsValid() && from.Port() == 0:
		return nil
	case strings.HasPrefix(network, "udp"):
		return net.UDPAddrFromAddrPort(from)
	}
	return net.TCPAddrFromAddrPort(from)
}

// setClientOptions makes a UDP socket learn of every ICMP error, not of port
// unreachable only, and lets a fixed source port be used again at once. (Where
// the kernel chooses the port it would choose one that is in use.)
func setClientOptions(network string, fixedPort bool, raw syscall.RawConn) error {
	var failed error
	err := raw.Control(func(fd uintptr) {
		set := func(level, option int) {
			failed = errors.Join(failed, unix.SetsockoptInt(int(fd), level, option, 1))
		}
		if fixedPort {
			set(unix.SOL_SOCKET, unix.SO_REUSEADDR)
		}
		switch network {
		case "udp4":
			set(unix.IPPROTO_IP, unix.IP_RECVERR)
		case "udp6":
			set(unix.IPPROTO_IPV6, unix.IPV6_RECVERR)
		}
	})
	return errors.Join(err, failed)
}

// Listen opens a TCP listener in the namespace. It is the caller's to close.
func (n *Namespace) Listen(network string, at netip.AddrPort) (net.Listener, error) {
	var config net.ListenConfig
	config.SetMultipathTCP(false) // plain TCP, whatever the kernel has
	return within(n, func() (net.Listener, error) {
		return config.Listen(context.Background(), network, at.String())
	})
}

// ListenUDP opens a UDP socket in the namespace. It is the caller's to close.
func (n *Namespace) ListenUDP(network string, at netip.AddrPort) (*net.UDPConn, error) {
	return within(n, func() (*net.UDPConn, error) {
		return net.ListenUDP(network, net.UDPAddrFromAddrPort(at))
	})
}
