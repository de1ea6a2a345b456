package packet

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	plain "github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/translate"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/oracle"
)

// judged reports whether the oracle judges expectations: in scripts, which
// apply all objects, while proxies run and do not end.
func (c *cluster) judged() bool {
	stopped := func(p *proxy) bool { return p.process == nil }
	return c.isStory && !c.ending && !slices.ContainsFunc(c.proxies, stopped)
}

// allow updates the prediction of a packet that arrives at a node with the
// outcomes that the oracle allows.
func (p *prediction) allow(c *check, node *lab.Node) error {
	q := oracle.Connection{
		Source: p.sources[c.to], Interface: c.cluster.arrivesOn(c.origin.Name, node), Destination: c.to,
		Protocol: protocolOf(c.network),
	}
	outcomes := c.cluster.oracle(node).Outcomes(q)
	p.action = map[oracle.Action]explain.Action{
		oracle.ToEndpoint: explain.ToEndpoint, oracle.Refused: explain.Reject, oracle.Dropped: explain.Drop,
		oracle.NotService: explain.Pass,
	}[outcomes[0].Action]
	if p.action == explain.Pass {
		return nil
	}
	p.sources = map[netip.AddrPort]netip.Addr{}
	for _, o := range outcomes {
		if slices.Contains(c.avoided, o.Endpoint.Addr()) && node == c.cluster.Node1 {
			continue
		}
		p.sources[o.Endpoint] = q.Source
		if o.Masqueraded {
			p.sources[o.Endpoint] = node.Addrs()[c.family]
		}
	}
	return nil
}

// arrivesOn returns the interface of a node on which packets of an origin
// arrive.
func (c *cluster) arrivesOn(origin string, node *lab.Node) string {
	pod := c.pods[origin]
	if pod == nil || pod.Node != node {
		return "eth0"
	}
	if bridge := c.bridges[origin]; bridge != "" {
		return bridge
	}
	return pod.HostInterface
}

// oracle returns what the fate of connections through a node depends on, which
// does not change during a step.
func (c *cluster) oracle(node *lab.Node) *oracle.Cluster {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.oracles[node] == nil {
		c.oracles[node] = c.newOracle(node)
	}
	return c.oracles[node]
}

func (c *cluster) newOracle(node *lab.Node) *oracle.Cluster {
	at := c.proxies[slices.Index(c.Nodes(), node)]
	o := &oracle.Cluster{Config: configOf(at.flags), Endpoints: map[plain.ServiceName][]*plain.Endpoint{}}
	o.Addrs = node.Addrs()
	for _, origin := range c.origins {
		if origin.Namespace == node.Namespace && origin.local[0].IsValid() && !origin.local[0].IsLoopback() {
			o.Addrs = append(o.Addrs, origin.local[:]...)
		}
	}
	o.Node = &plain.Node{
		Name: node.Name, Zone: c.labels[node.Name][corev1.LabelTopologyZone], IPs: node.Addrs(),
		PodCIDRs: node.PodRanges, LocalIPs: o.Addrs,
	}
	for _, cidrs := range c.serviceCIDRs {
		o.Node.ServiceCIDRs = append(o.Node.ServiceCIDRs, translate.Prefixes(cidrs)...)
	}
	for _, addr := range o.Addrs {
		if slices.ContainsFunc(o.NodePortCIDRs, func(p netip.Prefix) bool { return p.Contains(addr) }) {
			o.Node.NodePortIPs = append(o.Node.NodePortIPs, addr)
		}
	}
	for _, s := range c.services {
		parsed := translate.ParseService(&s.Service).Service
		if !s.applied || parsed == nil {
			continue
		}
		o.Services = append(o.Services, parsed)
		for _, slice := range c.slices(s) {
			e := translate.ParseEndpointSlice(slice)
			o.Endpoints[e.Service] = append(o.Endpoints[e.Service], e.Endpoints...)
		}
	}
	return o
}

// configOf returns the configuration of flags.
func configOf(args []string) (c oracle.Config) {
	flags := pflag.NewFlagSet("", pflag.PanicOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	var cidrs, nodePorts []string
	gates := flags.String("feature-gates", "", "")
	flags.BoolVar(&c.MasqueradeAll, "masquerade-all", false, "")
	flags.StringVar(&c.DetectLocalMode, "detect-local-mode", "ClusterCIDR", "")
	flags.StringVar(&c.BridgeInterface, "pod-bridge-interface", "", "")
	flags.StringVar(&c.InterfaceNamePrefix, "pod-interface-name-prefix", "", "")
	flags.StringSliceVar(&cidrs, "cluster-cidr", nil, "")
	flags.StringSliceVar(&nodePorts, "nodeport-addresses", []string{"primary"}, "")
	flags.Parse(args)
	c.ClusterCIDRs = translate.Prefixes(cidrs)
	c.LocalhostNodePorts = strings.Contains(*gates, "LocalhostNodePorts=true")
	for _, word := range nodePorts {
		switch word {
		case "primary":
			c.NodePortPrimary = true
		case "all":
			c.NodePortCIDRs = append(c.NodePortCIDRs, translate.Prefixes([]string{"0.0.0.0/0", "::/0"})...)
		case "localhost":
			c.NodePortCIDRs = append(c.NodePortCIDRs, translate.Prefixes([]string{"127.0.0.0/8", "::1/128"})...)
		default:
			c.NodePortCIDRs = append(c.NodePortCIDRs, translate.Prefixes([]string{word})...)
		}
	}
	return c
}
