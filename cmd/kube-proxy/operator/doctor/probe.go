package doctor

import (
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/kernel"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

const probeTable = "nftproxy-probe"

// probe returns what the kernel refuses of everything that the table of a
// family can have: the table of a Service with session affinity, NodePorts and
// source ranges, under another name.
func probe(f nft.Family) ([]nft.Problem, error) {
	rules, err := ruleset.New(ruleset.Config{LocalhostNodePorts: true}, f)
	if err != nil {
		return nil, err
	}
	node, plan, err := probePlan(rules)
	if err != nil {
		return nil, err
	}
	rows := rules.Rows(nil, plan)
	sources := rules.SourceSets(func(s *nft.Set) bool {
		return slices.ContainsFunc(rows, func(r nft.Row) bool { return r.Set == s })
	})
	table := rules.MakeProgram(node, sources...).Table
	table.Name = probeTable
	b := nft.NewBatch(table)
	b.AddProgram()
	b.AddSet(rules.AffinitySet(plan))
	chains := append(rules.Chains(plan), rules.Balancers(2)...)
	for _, c := range chains {
		b.AddChain(c)
	}
	for _, c := range chains {
		b.AddRules(c)
	}
	for _, row := range rows {
		b.AddRow(row)
	}
	return kernel.Probe(b)
}

// probePlan returns a plan that uses all kinds of rules.
func probePlan(rules *ruleset.Ruleset) (*cluster.Node, *ruleset.Plan, error) {
	f := rules.Family()
	addr := netip.MustParseAddr("192.0.2.1")
	if f == nft.IPv6 {
		addr = netip.MustParseAddr("2001:db8::1")
	}
	node := &cluster.Node{Name: "probe", IPs: []netip.Addr{addr}}
	port := cluster.ServicePort{Name: "probe", Protocol: cluster.TCP, Port: 80, NodePort: 30000}
	service := &cluster.Service{
		Name: cluster.ServiceName{Namespace: "probe", Name: "probe"}, Families: []nft.Family{f},
		ClusterIPs: []netip.Addr{addr.Next()}, LoadBalancerIPs: []netip.Addr{addr.Next().Next()},
		SourceRanges: []netip.Prefix{netip.PrefixFrom(addr, addr.BitLen()-8)}, AffinityTimeout: time.Hour,
		ExternalPolicy: cluster.PolicyLocal, Ports: []cluster.ServicePort{port},
	}
	endpoint := &cluster.Endpoint{
		EndpointKey: cluster.EndpointKey{Addr: addr}, Node: node.Name, Ready: true, Serving: true,
		Ports: []cluster.EndpointPort{{Name: port.Name, Protocol: port.Protocol, Port: 8080}},
	}
	plan, err := rules.MakePlan(&ruleset.PlanInput{
		Node: node, Service: service, Port: port, Endpoints: []*cluster.Endpoint{endpoint},
		Frontends: ruleset.FrontendsOf(f, service, port),
	})
	return node, plan, err
}
