package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// DialContext connects from the namespace, like [net.Dialer.DialContext], to
// a literal address. It fits http.Transport.
func (n *Namespace) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fmt.Errorf("dial from %s: %w", n.Name, err)
	}
	return n.dial(ctx, network, ProbeOptions{}, to)
}

// dial opens the socket on a thread in the namespace: for a literal address
// package net does so in the calling goroutine. The kernel chooses a source
// address that is invalid or unspecified, and a source port that is zero.
func (n *Namespace) dial(
	ctx context.Context, network string, options ProbeOptions, to netip.AddrPort,
) (net.Conn, error) {
	from := options.Local
	address := to.String()
	if strings.HasPrefix(network, "sctp") {
		network, address = rawNetwork(to.Addr()), to.Addr().String()
	}
	dialer := net.Dialer{
		LocalAddr: localAddr(network, from),
		Control: func(network, _ string, raw syscall.RawConn) error {
			return setClientOptions(network, options, raw)
		},
	}
	conn, err := within(n, func() (net.Conn, error) { return dialer.DialContext(ctx, network, address) })
	switch conn := conn.(type) {
	case *net.IPConn:
		return &sctpConn{IPConn: conn, local: from.Port(), remote: to.Port()}, nil
	case *net.TCPConn:
		if from.Port() != 0 {
			conn.SetLinger(0) // Close resets, which leaves no TIME_WAIT on the port
		}
	}
	return conn, err
}

// localAddr converts the source of a connection.
func localAddr(network string, from netip.AddrPort) net.Addr {
	switch {
	case !from.Addr().IsValid() && from.Port() == 0:
		return nil
	case strings.HasPrefix(network, "ip"):
		return &net.IPAddr{IP: from.Addr().AsSlice()}
	case strings.HasPrefix(network, "udp"):
		return net.UDPAddrFromAddrPort(from)
	}
	return net.TCPAddrFromAddrPort(from)
}

// setClientOptions makes datagram sockets return all ICMP errors, and makes a
// fixed source port reusable at once. With SO_REUSEADDR the kernel could
// choose a port that is in use.
func setClientOptions(network string, o ProbeOptions, raw syscall.RawConn) error {
	var options [][2]int // pairs of level and name
	if o.Local.Port() != 0 {
		options = append(options, [2]int{unix.SOL_SOCKET, unix.SO_REUSEADDR})
	}
	switch network {
	case "udp4", "ip4":
		options = append(options, [2]int{unix.IPPROTO_IP, unix.IP_RECVERR})
	case "udp6", "ip6":
		options = append(options, [2]int{unix.IPPROTO_IPV6, unix.IPV6_RECVERR})
	}
	var errs []error
	err := raw.Control(func(fd uintptr) {
		for _, option := range options {
			errs = append(errs, unix.SetsockoptInt(int(fd), option[0], option[1], 1))
		}
	})
	return errors.Join(append(errs, err)...)
}

// Listen opens a TCP listener in the namespace. The caller closes it.
func (n *Namespace) Listen(network string, at netip.AddrPort) (net.Listener, error) {
	var config net.ListenConfig
	config.SetMultipathTCP(false) // plain TCP on every kernel
	return within(n, func() (net.Listener, error) { return config.Listen(context.Background(), network, at.String()) })
}

// HTTPClient returns a client whose connections begin in the namespace, one for
// each request.
func (n *Namespace) HTTPClient(timeout time.Duration) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: n.DialContext, DisableKeepAlives: true},
		Timeout: timeout}
}

// Get requests a page, and returns the response and its body.
func (n *Namespace) Get(ctx context.Context, url string, timeout time.Duration) (*http.Response, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, nil, err
	}
	response, err := n.HTTPClient(timeout).Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response, body, err
}
