package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/node"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/walk"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// checkFilters checks whether rules of other programs drop packets after their
// translation.
func checkFilters(ctx context.Context, _ *host) Finding {
	s, err := followSamples(ctx, samplesOf, (*node.Tables).Journeys)
	blocks := slices.DeleteFunc(s.effects, func(e node.Effect) bool { return !e.Blocks() })
	switch {
	case err != nil:
		return unknown(err)
	case len(blocks) > 0:
		return filterFinding(blocks)
	case s.samples == 0:
		return skipped("the tables of nftproxy have no endpoint whose packets could be checked")
	}
	return ok(fmt.Sprintf("no rule of another program drops %d sample packets to endpoints, or the answers", s.samples))
}

func filterFinding(blocks []node.Effect) Finding {
	finding := Finding{
		Result: Info, Reason: "rules of other programs may drop packets to endpoints",
		Remedy: "accept translated connections before these rules (nft: ct status dnat accept; iptables: -m " +
			"conntrack --ctstate DNAT,ESTABLISHED,RELATED -j ACCEPT), or the range of the pods",
	}
	policies, programs, sure := 0, 0, false
	for _, b := range blocks {
		finding.Details = append(finding.Details, b.String())
		switch {
		case b.Action == node.Loses:
			finding.Result, finding.Reason = Fail, "the kernel drops packets to endpoints that wait for a program"
			finding.Remedy = "start the program that listens to the queue, or delete the rules that it left"
		case b.Action == node.Asks:
			programs++
		case b.NetworkPolicy != "": // intended
			policies++
			sure = sure || b.Certain
		case b.Certain:
			finding.Result, finding.Reason = Fail, "rules of other programs drop packets to endpoints"
		case b.Rule == 0 && finding.Result == Info: // no rule accepts the packet for sure
			finding.Result = Warn
		}
	}
	const allow = "allow the connections in the NetworkPolicy (kubectl get networkpolicies -A), unless it forbids " +
		"them on purpose"
	switch {
	case programs == len(blocks):
		finding.Reason = "programs decide about packets to endpoints"
		finding.Remedy = "if connections fail, read the log of the program that listens to the queue"
	case policies == 0:
	case policies+programs == len(blocks):
		if finding.Reason, finding.Remedy = "network policies drop packets to endpoints", allow; !sure {
			finding.Reason = "network policies may drop packets to endpoints"
		}
	default:
		finding.Remedy += "; for rules of network policies, " + allow
	}
	return finding
}

// checkNATChains looks for nat chains of other programs that the kernel can
// call before the proxy's nat chains. If one of them translates a packet to a
// Service, the kernel skips the proxy's chains.
func checkNATChains(ctx context.Context, _ *host) Finding {
	s, err := followSamples(ctx, samplesOf, (*node.Tables).Journeys)
	switch {
	case err != nil:
		return unknown(err)
	case s.tables == 0:
		return skipped("no table of nftproxy")
	case len(s.earlier) == 0:
		return ok("no nat chain of another program precedes the nat chains of nftproxy")
	}
	return natFinding(&s)
}

func natFinding(s *survey) Finding {
	finding := ok("no nat chain of another program that precedes nftproxy translates a sample packet to a Service")
	translate := slices.DeleteFunc(s.effects, func(e node.Effect) bool {
		return e.Action != node.Translates || !e.Early()
	})
	for _, e := range translate {
		finding.Details = append(finding.Details, e.String())
	}
	for _, chain := range s.earlier {
		of := func(e node.Effect) bool { return strings.HasPrefix(chain, e.Table+", chain "+e.Base+" ") }
		if !slices.ContainsFunc(translate, of) {
			finding.Details = append(finding.Details, chain+": translates no sample packet")
		}
	}
	switch {
	case len(translate) == 0:
		return finding
	case slices.ContainsFunc(translate, node.Effect.Ends):
		finding.Result = Warn
		finding.Reason = "nat chains of other programs translate packets to Services before nftproxy can"
	default:
		finding.Result = Info
		finding.Reason = "nat chains of other programs may translate packets to Services, or their sources, " +
			"before nftproxy can"
	}
	finding.Remedy = "exclude the addresses of Services from these rules, or move the chains to the priority " +
		"dstnat, or srcnat in postrouting, where they follow nftproxy"
	return finding
}

// server is a port of this node at which the proxy answers others.
type server struct {
	name string
	at   netip.AddrPort // [::] stands for all addresses, 0.0.0.0 for those of IPv4
}

// maxHealthPorts is the number of health-check NodePorts that are checked.
const maxHealthPorts = 32

// checkHealthChecks checks whether rules of other programs hide the ports that
// load balancers and monitoring ask.
func checkHealthChecks(ctx context.Context, n *host) Finding {
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
	s, err := followSamples(ctx, func(k *node.Kernel) (samples []sample, err error) {
		for _, at := range servers {
			if s, ok := at.sample(k); ok {
				s.AnyClient = anyClient
				samples = append(samples, s)
			}
		}
		return samples, nil
	}, (*node.Tables).Journeys)
	for _, e := range s.effects {
		if e.Ends() && (e.Action == node.Drops || e.Action == node.Loses) {
			lines = append(lines, e.String())
		}
	}
	return lines, err
}

// healthServers returns the servers that load balancers ask about Services.
func (n *host) healthServers(ctx context.Context) (servers []server, err error) {
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
func (s *server) sample(k *node.Kernel) (found sample, ok bool) {
	client, addr := node.Outside(k.Table.Family), s.at.Addr()
	in, err := k.Interface(client)
	if err == nil && addr.IsUnspecified() && (addr.Is6() || k.Table.Family == nft.IPv4) {
		addr, err = k.NodeSource(client)
	}
	if err != nil || in == "lo" || addr.IsLoopback() || nft.FamilyOf(addr) != k.Table.Family {
		return found, false
	}
	to := netip.AddrPortFrom(addr, s.at.Port())
	return sample{
		node.Connection{
			Client: netip.AddrPortFrom(client, node.ClientPort), Service: to, Endpoint: to,
			Protocol: unix.IPPROTO_TCP, In: walk.Interface{Name: in},
		},
		fmt.Sprintf("outside → %s (%s)", to, s.name),
	}, true
}

// checkStaleConnections checks whether the reset of connections to endpoints
// that are gone works: the kernel must take the next packet of a client as the
// first one of a connection, and rules of other programs must not drop it.
func checkStaleConnections(ctx context.Context, n *host) Finding {
	switch {
	case n.Proxy == nil:
		return n.withoutProxy()
	case !n.Proxy.ResetStaleConnections:
		return skipped("the proxy runs without --reset-stale-connections")
	}
	if loose, known := n.number("net/netfilter/nf_conntrack_tcp_loose"); known && loose == 0 {
		return warn("nf_conntrack_tcp_loose is 0: connections to endpoints that are gone are not reset",
			"sysctl -w net.netfilter.nf_conntrack_tcp_loose=1, or run the proxy without --reset-stale-connections")
	}
	blocks, err := findMidstreamBlocks(ctx)
	switch {
	case err != nil:
		return unknown(err)
	case len(blocks) == 0:
		return ok("connections to endpoints that are gone are reset")
	}
	finding := info("rules of other programs may drop packets without SYN, so that connections to endpoints that "+
		"are gone are not reset", "accept these packets before the rules (nft: ct state new tcp flags ack accept)")
	for _, b := range blocks {
		finding.Details = append(finding.Details, b.String())
	}
	return finding
}

// findMidstreamBlocks returns the rules of other programs that drop or reject a
// packet of a client whose connection was deleted, and not its first packet.
func findMidstreamBlocks(ctx context.Context) ([]node.Effect, error) {
	regular, err := followSamples(ctx, samplesOf, (*node.Tables).Journeys)
	if err != nil {
		return nil, err
	}
	midstream, err := followSamples(ctx, samplesOf, (*node.Tables).Midstream)
	return slices.DeleteFunc(midstream.effects, func(e node.Effect) bool {
		return !e.Blocks() || slices.ContainsFunc(regular.effects, e.SameRule)
	}), err
}
