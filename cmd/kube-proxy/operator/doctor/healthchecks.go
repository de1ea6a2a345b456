package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	hooks "github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/node"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/walk"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// server is a port of this node at which the proxy answers others.
type server struct {
	name string
	at   netip.AddrPort // [::] stands for all addresses, 0.0.0.0 for those of IPv4
}

// maxHealthPorts is the number of health-check NodePorts that are checked.
const maxHealthPorts = 32

// checkHealthChecks checks whether rules of other programs hide the ports that
// load balancers and monitoring ask.
func checkHealthChecks(ctx context.Context, n *node) Finding {
	if n.Proxy == nil || n.Services == nil {
		return n.withoutProxy()
	}
	health, err := n.healthServers(ctx)
	if err != nil {
		return unknown(err)
	}
	metrics := serverAt(nil, "metrics", n.Proxy.MetricsBindAddress)
	const remedy = "accept new TCP connections to the port before this rule"
	for _, c := range []struct {
		servers   []server
		anyClient bool
		result    Result
		reason    string
	}{
		{health, true, Fail, "a firewall hides ports of health checks: load balancers will remove this node"},
		{metrics, true, Warn, "a firewall hides the port of metrics from clients outside of this node"},
		{health, false, Info, "a firewall shows ports of health checks to some clients only: load balancers that are " +
			"not among them will remove this node"},
	} {
		lines, err := hidden(ctx, c.servers, c.anyClient)
		switch {
		case err != nil:
			return unknown(err)
		case len(lines) > 0:
			return Finding{Result: c.result, Reason: c.reason, Remedy: remedy}.With(lines...)
		}
	}
	return ok("no rule of another program hides the ports of health checks and metrics")
}

// hidden returns the rules that certainly drop connections from outside to
// servers: of any client, or of one.
func hidden(ctx context.Context, servers []server, anyClient bool) (lines []string, err error) {
	s, err := followSamples(ctx, func(k *explain.Kernel) (samples []sample, err error) {
		for _, at := range servers {
			if s, ok := at.sample(k); ok {
				s.AnyClient = anyClient
				samples = append(samples, s)
			}
		}
		return samples, nil
	}, (*hooks.Tables).Journeys)
	for _, e := range s.effects {
		if e.Ends() && (e.Action == hooks.Drops || e.Action == hooks.Loses) {
			lines = append(lines, e.String())
		}
	}
	return lines, err
}

// healthServers returns the servers that load balancers ask about Services.
func (n *node) healthServers(ctx context.Context) (servers []server, err error) {
	balanced := false
	for s, err := range n.Services(ctx) {
		if err != nil {
			return nil, err
		}
		balanced = balanced || slices.ContainsFunc(s.Ports, hasLoadBalancerIP)
		if s.HealthCheckNodePort != 0 && s.HealthCheckOwner == "" && len(servers) < maxHealthPorts {
			servers = append(servers, server{
				name: fmt.Sprintf("healthCheckNodePort of %s", s.ServiceName),
				at:   netip.AddrPortFrom(netip.IPv6Unspecified(), s.HealthCheckNodePort),
			})
		}
	}
	if balanced {
		servers = serverAt(servers, "healthz", n.Proxy.HealthzBindAddress)
	}
	return servers, nil
}

func hasLoadBalancerIP(p table.PortView) bool {
	return slices.ContainsFunc(p.Frontends, func(f table.FrontendView) bool { return f.Kind == ruleset.LoadBalancerIP })
}

// serverAt adds a server with an address, unless it has none.
func serverAt(servers []server, name, address string) []server {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return servers
	}
	return append(servers, server{name, at})
}

// sample returns a connection of a client outside to a server. ok is false if
// there is none.
func (s *server) sample(k *explain.Kernel) (found sample, ok bool) {
	client, addr := explain.Outside(k.Table.Family), s.at.Addr()
	in, err := k.Interface(client)
	if err == nil && addr.IsUnspecified() && (addr.Is6() || k.Table.Family == nft.IPv4) {
		addr, err = k.NodeSource(client)
	}
	if err != nil || in == "lo" || addr.IsLoopback() || nft.FamilyOf(addr) != k.Table.Family {
		return found, false
	}
	to := netip.AddrPortFrom(addr, s.at.Port())
	return sample{
		hooks.Connection{
			Client: netip.AddrPortFrom(client, hooks.ClientPort), Service: to, Endpoint: to,
			Protocol: unix.IPPROTO_TCP, In: walk.Interface{Name: in},
		},
		fmt.Sprintf("outside → %s (%s)", to, s.name),
	}, true
}
