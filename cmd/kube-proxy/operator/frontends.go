package operator

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/answer"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// findService returns a Service that the proxy serves.
func findService(ctx context.Context, client *socket.Client, s *serviceRef) (*table.ServiceView, error) {
	for service, err := range client.Services(ctx, cluster.ServiceName{Namespace: s.namespace, Name: s.name}) {
		return service, err
	}
	return nil, fmt.Errorf("%s: %w", s, answer.ErrNoService) // it was deleted a moment ago
}

// findServicePorts returns the ports of a Service to which a reference refers.
func findServicePorts(
	ctx context.Context, f *proxyFlags, s *serviceRef, protocol string,
) (ports []table.PortView, service *table.ServiceView, err error) {
	client, err := socket.Dial(ctx, f.socket)
	if err != nil {
		return nil, nil, needsProxy(s, err)
	}
	defer client.Close()
	if service, err = findService(ctx, client, s); err != nil {
		return nil, nil, err
	}
	ports, err = s.servicePorts(service, protocol)
	return ports, service, err
}

// needsProxy returns the error about a name without a running proxy.
func needsProxy(s *serviceRef, noProxy error) error {
	if errors.Is(noProxy, socket.ErrNoProxy) {
		return fmt.Errorf("svc/%s: %w; without one, give an address as IP:PORT", s, noProxy)
	}
	return noProxy
}

// addressesOf returns the addresses of a frontend. The unspecified address
// stands for all addresses of this node.
func addressesOf(f *table.FrontendView) (addrs []netip.AddrPort) {
	if f.Address.IsValid() {
		return []netip.AddrPort{netip.AddrPortFrom(f.Address, f.Port)}
	}
	for _, addr := range f.Addresses {
		addrs = append(addrs, netip.AddrPortFrom(addr, f.Port))
	}
	if len(addrs) == 0 {
		addrs = []netip.AddrPort{netip.AddrPortFrom(f.Family.Unspecified(), f.Port)}
	}
	return addrs
}
