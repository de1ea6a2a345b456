package healthcheck

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab/nstest"
)

// namespace is a network namespace, in which all ports are free.
type namespace struct {
	nstest.Namespace
}

func newNamespace(t *testing.T) namespace {
	t.Helper()
	return namespace{nstest.New(t)}
}

func (ns namespace) addAddr(t *testing.T, addr string) {
	t.Helper()
	a := netip.MustParseAddr(addr)
	ns.AddAddr(t, "lo", a, a.BitLen())
}

func (ns namespace) listen(network, address string) (l net.Listener, err error) {
	ns.Do(func() { l, err = net.Listen(network, address) })
	return l, err
}

// client returns a client in the namespace that uses a connection per
// request.
func (ns namespace) client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
			ns.Do(func() { conn, err = new(net.Dialer).DialContext(ctx, network, address) })
			return conn, err
		},
	}}
}
