package operator

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/answer"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/trace"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// selection returns the packets to trace, and describes their destination.
func (f *traceFlags) selection(ctx context.Context, args []string) (what string, s trace.Selection, err error) {
	if err = f.parseProtocol(); err != nil {
		return "", s, err
	}
	s.Protocol = f.protocol
	if s.Source, err = f.source(); err != nil {
		return "", s, err
	}
	if len(args) == 0 {
		what, err = f.selectAll(ctx, &s)
		return what, s, err
	}
	ports, _, err := f.ports(ctx, args[0])
	s.Frontends = tracedFrontends(ports)
	return args[0], s, err
}

// tracedFrontends returns the frontends of service ports.
func tracedFrontends(ports []table.PortView) (frontends []trace.Frontend) {
	for _, p := range ports {
		for i := range p.Frontends {
			for _, addr := range addressesOf(&p.Frontends[i]) {
				frontends = append(frontends, trace.Frontend{Addr: addr, Protocol: p.Protocol})
			}
		}
	}
	return frontends
}

// selectAll selects packets to all Services of the running proxy or, without
// one, to all ClusterIPs.
func (f *traceFlags) selectAll(ctx context.Context, s *trace.Selection) (what string, err error) {
	for service, err := range answer.Services.Ask(ctx, &f.client, cluster.ServiceName{}) {
		if errors.Is(err, socket.ErrNoProxy) && f.client.Path == "" {
			s.Ranges, err = rangesOf((*explain.Kernel).ServiceRanges,
				"the rules contain no range of ClusterIPs: give a destination as IP:PORT")
			return "ClusterIPs (no running proxy was found)", err
		}
		if err != nil {
			return "", err
		}
		s.Frontends = append(s.Frontends, tracedFrontends(service.Ports)...)
	}
	if len(s.Frontends) == 0 {
		return "", errors.New("the proxy serves no Services")
	}
	return "all Services", nil
}

// rangesOf returns the ranges of both families that the rules contain. Without
// one, the error is none.
func rangesOf(of func(*explain.Kernel) ([]netip.Prefix, error), none string) (ranges []netip.Prefix, err error) {
	err = explain.InTables(func(k *explain.Kernel) error {
		found, err := of(k)
		ranges = append(ranges, found...)
		return err
	})
	if err == nil && len(ranges) == 0 {
		err = errors.New(none)
	}
	return ranges, err
}

// source returns the source that --from names.
func (f *traceFlags) source() (source trace.Source, err error) {
	switch f.from {
	case "":
		return source, nil
	case explain.FromNode:
		return trace.Source{NotOthers: true}, nil
	case explain.FromPod, explain.FromOutside:
		pods, err := rangesOf((*explain.Kernel).PodRanges,
			"the rules do not recognize pods by a range of addresses: give an address or a range")
		if err != nil {
			return source, fmt.Errorf("--from %s: %w", f.from, err)
		}
		if f.from == explain.FromPod {
			return trace.Source{NotNode: true, Within: pods}, nil
		}
		return trace.Source{NotNode: true, Except: pods}, nil
	}
	p, err := parseRange(f.from)
	if err != nil {
		return source, fmt.Errorf("--from %q is not an address, a range of addresses, pod, node or outside", f.from)
	}
	return trace.Source{Within: []netip.Prefix{p}}, nil
}

// parseRange parses an address or a range of addresses.
func parseRange(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		return addr.Prefix(addr.BitLen())
	}
	return netip.ParsePrefix(text)
}
