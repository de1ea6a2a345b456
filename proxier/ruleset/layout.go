package ruleset

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/nftproxy/nftproxy/nft"
)

// TableName is the name of the table that the proxy owns in each family.
const TableName = "kube-proxy"

// layout contains the sets and maps of one family. Their number does not depend
// on the number of Services, which become rows of them.
type layout struct {
	family nft.Family

	clusterIPs             *nft.Set // ClusterIPs
	serviceIPs             *nft.Set // VIP . protocol . port : chain
	serviceNodePorts       *nft.Set // protocol . NodePort : chain
	serviceEndpoints       *nft.Set // VIP . protocol . port . index : endpoint
	nodePortEndpoints      *nft.Set // protocol . NodePort . index : endpoint
	portEndpoints          *nft.Set // number . index : endpoint
	localIPs               *nft.Set // VIP . protocol . port with externalTrafficPolicy Local
	localNodePorts         *nft.Set
	localPolicyIPs         *nft.Set // externalTrafficPolicy Local: chain for traffic from elsewhere
	localPolicyNodePorts   *nft.Set
	clusterPolicyIPs       *nft.Set // externalTrafficPolicy Local: chain for this cluster's pods and this node
	clusterPolicyNodePorts *nft.Set
	noEndpointServices     *nft.Set // VIP . protocol . port : drop or reject
	noEndpointNodePorts    *nft.Set
	firewallIPs            *nft.Set   // LoadBalancer IPs with loadBalancerSourceRanges
	firewallSources        []*nft.Set // VIP . protocol . port . network of clients, by length of its prefix less 1
	serviceConnections     *nft.Set   // VIP . protocol . port, whose new connections are counted
	nodePortConnections    *nft.Set
	hairpin                *nft.Set // endpoints of this node, as source and destination
	nodePortIPs            *nft.Set // node addresses on which NodePorts listen, unless all
	localhostNodePorts     *nft.Set // protocol . NodePort that localhost rejects, if NodePorts are served there
	affinityIDs            *nft.Set // one row: ids of session affinity below it may be in use

	// affinity are the sets of clients with session affinity: client . id of
	// its endpoint. Packets fill them. Each service port with affinity uses one
	// of them.
	affinity [affinitySets]*nft.Set
}

const (
	// affinitySets is the number of sets that service ports with session
	// affinity share. A flood of clients of one service port fills one set, and
	// harms few other service ports. A set for each service port is too slow:
	// the kernel walks a list to find a set, so writing n sets takes quadratic
	// time.
	affinitySets = 64
	// affinityClients is the number of clients that one set can hold. When the
	// set is full, new clients are served without affinity. The kernel
	// allocates a hash table of this size at once, unless it is a multiple of
	// 65536.
	affinityClients = 4 * 65536
)

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
		serviceEndpoints: &nft.Set{Name: OwnSet,
			Key: nft.Typeof(nft.Daddr(f), nft.L4Proto(), nft.ThDport(), nft.Random(1, 0)), Data: endpoint},
		nodePortEndpoints: &nft.Set{Name: "nodeport-endpoints",
			Key: nft.Typeof(nft.L4Proto(), nft.ThDport(), nft.Random(1, 0)), Data: endpoint},
		portEndpoints: &nft.Set{Name: "port-endpoints",
			Key: nft.Typeof(nft.Constant(0), nft.Constant(0)), Data: endpoint},
		localIPs:               &nft.Set{Name: "local-ips", Key: vip},
		localNodePorts:         &nft.Set{Name: "local-nodeports", Key: nodePort},
		localPolicyIPs:         &nft.Set{Name: "local-policy-ips", Key: vip, Verdicts: true},
		localPolicyNodePorts:   &nft.Set{Name: "local-policy-nodeports", Key: nodePort, Verdicts: true},
		clusterPolicyIPs:       &nft.Set{Name: "cluster-policy-ips", Key: vip, Verdicts: true},
		clusterPolicyNodePorts: &nft.Set{Name: "cluster-policy-nodeports", Key: nodePort, Verdicts: true},
		noEndpointServices: &nft.Set{Name: "no-endpoint-services", Key: vip, Verdicts: true,
			Comment: "vmap to drop or reject packets to services with no endpoints"},
		noEndpointNodePorts: &nft.Set{Name: "no-endpoint-nodeports", Key: nodePort, Verdicts: true,
			Comment: "vmap to drop or reject packets to service nodeports with no endpoints"},
		firewallIPs: &nft.Set{Name: "firewall-ips", Key: vip, Verdicts: true,
			Comment: "destinations that are subject to LoadBalancerSourceRanges"},
		serviceConnections: &nft.Set{Name: "service-connections", Key: vip, Counts: true,
			Comment: "new connections to ClusterIPs, external IPs and LoadBalancer IPs"},
		nodePortConnections: &nft.Set{Name: "nodeport-connections", Key: nodePort, Counts: true,
			Comment: "new connections to NodePorts"},
		hairpin: &nft.Set{
			Name: "hairpin-connections", Key: nft.Types(addr, addr, nft.TypeInetProto, nft.TypeInetService),
		},
		affinityIDs: &nft.Set{Name: "reserved-affinity-ids", Key: nft.Typeof(nft.Constant(0)),
			Comment: "session affinity: ids below this number are in use or were used"},
		localhostNodePorts: &nft.Set{Name: "localhost-nodeports", Key: nodePort,
			Comment: "NodePorts that localhost does not serve"},
		nodePortIPs: &nft.Set{Name: "nodeport-ips", Key: nft.Types(addr), Comment: "IPs that accept NodePort traffic"},
	}
	for bits := range AnyAddr(f).BitLen() {
		l.firewallSources = append(l.firewallSources, &nft.Set{
			Name: sourceSetPrefix + strconv.Itoa(bits+1), Key: nft.Types(addr, nft.TypeInetProto, nft.TypeInetService, addr),
		})
	}
	for i := range l.affinity {
		l.affinity[i] = &nft.Set{Name: affinitySetPrefix + strconv.Itoa(i), Key: nft.Typeof(nft.Saddr(f), nft.Constant(0)),
			Dynamic: true, Timeouts: true, Size: affinityClients}
	}
	return l
}

// affinitySetPrefix is the prefix of the names of the affinity sets. It is not
// "affinity-", because kube-proxy tries to delete all sets with that prefix.
const affinitySetPrefix = "clients-"

// IsAffinitySet reports whether a set has the name of an affinity set.
func IsAffinitySet(name string) bool { return strings.HasPrefix(name, affinitySetPrefix) }

// sourceSetPrefix is the prefix of the names of the sets of source ranges.
// There is one set for each length of a prefix, because the kernel takes
// quadratic time to change a set with ranges of different lengths.
const sourceSetPrefix = "firewall-sources-"

// IsSourceSet reports whether a set has the name of a set of source ranges.
// Earlier versions had other sets, with names that end with a protocol.
func IsSourceSet(name string) bool {
	bits, ok := strings.CutPrefix(name, sourceSetPrefix)
	_, err := strconv.ParseUint(bits, 10, 8)
	return ok && err == nil
}

// sets returns the sets that the program p has, in the order in which they are
// written.
func (l *layout) sets(p *program) []*nft.Set {
	sets := []*nft.Set{
		l.clusterIPs, l.serviceIPs, l.serviceNodePorts, l.serviceEndpoints, l.nodePortEndpoints, l.portEndpoints,
		l.localIPs, l.localNodePorts, l.localPolicyIPs, l.localPolicyNodePorts, l.clusterPolicyIPs, l.clusterPolicyNodePorts,
		l.noEndpointServices, l.noEndpointNodePorts, l.firewallIPs,
	}
	sets = append(append(sets, p.sources...), l.hairpin, l.affinityIDs)
	if !p.nodePortsAll {
		sets = append(sets, l.nodePortIPs)
	}
	if p.localhost {
		sets = append(sets, l.localhostNodePorts)
	}
	if p.connections {
		sets = append(sets, l.serviceConnections, l.nodePortConnections)
	}
	return sets
}

// ClientSet returns the number of the affinity set for a new service port with
// this Plan.AffinityName. Without a secret seed, a user could choose names that
// share the set of another Service, and fill it.
func ClientSet(seed uint64, servicePort string) uint8 {
	hash := sha256.Sum256(append(binary.LittleEndian.AppendUint64(nil, seed), servicePort...))
	return hash[0] % affinitySets
}

// clientSetOf returns the number of the affinity set with a name.
func clientSetOf(name string) (set uint8, ok bool) {
	number, ok := strings.CutPrefix(name, affinitySetPrefix)
	n, err := strconv.ParseUint(number, 10, 8)
	return uint8(n), ok && err == nil && n < affinitySets
}
