package proxier

import "github.com/nftproxy/nftproxy/nft"

// TableName is the name of the table that a proxier owns in each family.
const TableName = "kube-proxy"

// layout is the fixed set of sets and maps that hold the rows of one family. Everything that Services and
// EndpointSlices say is a row of one of these.
type layout struct {
	family nft.Family

	clusterIPs           *nft.Set // ClusterIPs
	serviceIPs           *nft.Set // VIP . protocol . port : chain
	serviceNodePorts     *nft.Set // protocol . NodePort : chain
	serviceEndpoints     *nft.Set // VIP . protocol . port . index : endpoint
	nodePortEndpoints    *nft.Set // protocol . NodePort . index : endpoint
	localPolicyIPs       *nft.Set // externalTrafficPolicy Local: chain for traffic from elsewhere
	localPolicyNodePorts *nft.Set
	clusterPolicyIPs     *nft.Set // externalTrafficPolicy Local: chain for this cluster's pods and this node
	clusterPolicyNodePts *nft.Set
	noEndpointServices   *nft.Set // VIP . protocol . port : drop or reject
	noEndpointNodePorts  *nft.Set
	firewallIPs          *nft.Set // LoadBalancer IPs that not everybody may use
	firewallSources      map[Protocol]*nft.Set
	hairpin              *nft.Set // endpoints of this node, as source and destination
	affinity             *nft.Set // client . endpoint id, filled by packets
	affinityEndpoints    *nft.Set // endpoint index : chain
	nodePortIPs          *nft.Set // node addresses on which NodePorts listen, unless all
}

// affinityClients is how many clients sessionAffinity remembers at once. When the set is full, new clients are served
// without affinity.
const affinityClients = 1 << 20

func newLayout(f nft.Family) *layout {
	addr := nft.TypeAddr(f)
	vip := nft.Types(addr, nft.TypeInetProto, nft.TypeInetService)
	nodePort := nft.Types(nft.TypeInetProto, nft.TypeInetService)
	endpoint := nft.Typeof(nft.Daddr(f), nft.ThDport())
	l := &layout{
		family:     f,
		clusterIPs: &nft.Set{Name: "cluster-ips", Key: nft.Types(addr), Comment: "Active ClusterIPs"},
		serviceIPs: &nft.Set{Name: "service-ips", Key: vip, Verdicts: true,
			Comment: "ClusterIP, external IP and LoadBalancer IP traffic"},
		serviceNodePorts: &nft.Set{Name: "service-nodeports", Key: nodePort, Verdicts: true, Comment: "NodePort traffic"},
		serviceEndpoints: &nft.Set{Name: "service-endpoints",
			Key: nft.Typeof(nft.Daddr(f), nft.L4Proto(), nft.ThDport(), nft.Random(1, 0)), Data: endpoint},
		nodePortEndpoints: &nft.Set{Name: "nodeport-endpoints",
			Key: nft.Typeof(nft.L4Proto(), nft.ThDport(), nft.Random(1, 0)), Data: endpoint},
		localPolicyIPs:       &nft.Set{Name: "local-policy-ips", Key: vip, Verdicts: true},
		localPolicyNodePorts: &nft.Set{Name: "local-policy-nodeports", Key: nodePort, Verdicts: true},
		clusterPolicyIPs:     &nft.Set{Name: "cluster-policy-ips", Key: vip, Verdicts: true},
		clusterPolicyNodePts: &nft.Set{Name: "cluster-policy-nodeports", Key: nodePort, Verdicts: true},
		noEndpointServices: &nft.Set{Name: "no-endpoint-services", Key: vip, Verdicts: true,
			Comment: "vmap to drop or reject packets to services with no endpoints"},
		noEndpointNodePorts: &nft.Set{Name: "no-endpoint-nodeports", Key: nodePort, Verdicts: true,
			Comment: "vmap to drop or reject packets to service nodeports with no endpoints"},
		firewallIPs: &nft.Set{Name: "firewall-ips", Key: vip, Verdicts: true,
			Comment: "destinations that are subject to LoadBalancerSourceRanges"},
		firewallSources: make(map[Protocol]*nft.Set),
		hairpin:         &nft.Set{Name: "hairpin-connections", Key: nft.Types(addr, addr, nft.TypeInetProto, nft.TypeInetService)},
		affinity: &nft.Set{Name: "affinity", Key: nft.Typeof(nft.Saddr(f), nft.Constant(0)),
			Dynamic: true, Timeouts: true, Size: affinityClients},
		affinityEndpoints: &nft.Set{Name: "affinity-endpoints", Key: nft.Typeof(nft.Constant(0)), Verdicts: true},
		nodePortIPs:       &nft.Set{Name: "nodeport-ips", Key: nft.Types(addr), Comment: "IPs that accept NodePort traffic"},
	}
	for _, p := range protocols {
		// One set a protocol: in a set with ranges nft puts a byte-order conversion on `meta l4proto` that Linux
		// 6.12 refuses.
		l.firewallSources[p] = &nft.Set{Name: "firewall-sources-" + p.String(), Key: nft.Types(addr, nft.TypeInetService, addr), Interval: true}
	}
	return l
}

// protocols are all that a service port can have.
var protocols = [...]Protocol{TCP, UDP, SCTP}

// sets returns all sets, in the order in which they are written.
func (l *layout) sets(nodePortIPs bool) []*nft.Set {
	sets := []*nft.Set{
		l.clusterIPs, l.serviceIPs, l.serviceNodePorts, l.serviceEndpoints, l.nodePortEndpoints,
		l.localPolicyIPs, l.localPolicyNodePorts, l.clusterPolicyIPs, l.clusterPolicyNodePts,
		l.noEndpointServices, l.noEndpointNodePorts, l.firewallIPs,
	}
	for _, p := range protocols {
		sets = append(sets, l.firewallSources[p])
	}
	sets = append(sets, l.hairpin, l.affinity, l.affinityEndpoints)
	if nodePortIPs {
		sets = append(sets, l.nodePortIPs)
	}
	return sets
}
