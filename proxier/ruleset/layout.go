package ruleset

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
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

	clusterIPs         *nft.Set     // ClusterIPs
	vips               dispatchSets // by VIP . protocol . port
	nodePorts          dispatchSets // by protocol . NodePort
	portTargets        *nft.Set     // number + index : endpoint
	localClassChains   *nft.Set     // class : chain, in the chains of externalTrafficPolicy Local
	firewallSources    []*nft.Set   // VIP . protocol . port . network of clients, by length of its prefix less 1
	hairpin            *nft.Set     // endpoints of this node, as source and destination
	nodePortIPs        *nft.Set     // node addresses on which NodePorts listen, unless all
	localhostNodePorts *nft.Set     // protocol . NodePort that localhost rejects, if NodePorts are served there
	reservedIDs        *nft.Set     // one row: ids of session affinity below it may be in use

	// affinity are the sets of clients with session affinity: client . id of
	// its endpoint. Packets fill them. Each service port with affinity uses one
	// of them.
	affinity [affinitySets]*nft.Set
}

// dispatchSets are the sets and maps that dispatch packets by VIP or by
// NodePort, and all else that differs between the two.
type dispatchSets struct {
	key []nft.Expr // the part of a packet that the keys of all sets begin with

	classes     *nft.Set // key : class
	classChains *nft.Set // class : chain
	targets     *nft.Set // key . index : endpoint
	// externalTrafficPolicy Local: the classes for traffic from elsewhere, and
	// for this cluster's pods and this node.
	localClasses, allClasses *nft.Set
	// The same for service ports with chains of their own: key : chain.
	chains, localChains, allChains *nft.Set
	noEndpoints                    *nft.Set // key : chain that refuses, of service ports with chains of their own
	connections                    *nft.Set // keys whose new connections are counted

	masqueraded, local, all chainKind
	pick                    string // chain that looks targets up
	own                     string // chain that leads to the chains of service ports
	localChain, allChain    string // of externalTrafficPolicy Local
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
	endpoint := nft.Types(addr, nft.TypeInetService)
	port := []nft.Type{nft.TypeInetProto, nft.TypeInetService}
	vip := append([]nft.Type{addr}, port...)
	l := &layout{
		family:      f,
		clusterIPs:  &nft.Set{Name: "cluster-ips", Key: nft.Types(addr), Comment: "Active ClusterIPs"},
		portTargets: &nft.Set{Name: "port-targets", Key: nft.Types(nft.TypeClassID), Data: endpoint},
		localClassChains: &nft.Set{Name: "local-class-chains", Key: nft.Types(nft.TypeClassID), Verdicts: true,
			Comment: "where classes lead under externalTrafficPolicy Local"},
		hairpin: &nft.Set{Name: "hairpin-connections", Key: nft.Types(append([]nft.Type{addr}, vip...)...)},
		reservedIDs: &nft.Set{Name: "reserved-ids", Key: nft.Types(nft.TypeClassID),
			Comment: "session affinity: ids below this number are in use or were used"},
		localhostNodePorts: &nft.Set{Name: "localhost-nodeports", Key: nft.Types(port...),
			Comment: "NodePorts that localhost does not serve"},
		nodePortIPs: &nft.Set{Name: "nodeport-ips", Key: nft.Types(addr), Comment: "IPs that accept NodePort traffic"},
		vips:        newVIPSets(f), nodePorts: newNodePortSets(),
	}
	l.vips.declare(endpoint, vip...)
	l.nodePorts.declare(endpoint, port...)
	for bits := range f.Unspecified().BitLen() {
		l.firewallSources = append(l.firewallSources, &nft.Set{
			Name: sourceSetPrefix + strconv.Itoa(bits+1), Key: nft.Types(append(slices.Clip(vip), addr)...),
		})
	}
	for i := range l.affinity {
		l.affinity[i] = &nft.Set{Name: affinitySetPrefix + strconv.Itoa(i),
			Key:     nft.Types(addr, nft.TypeClassID),
			Dynamic: true, Size: affinityClients}
	}
	return l
}

// newVIPSets returns the sets of VIPs, without their keys and data.
func newVIPSets(f nft.Family) dispatchSets {
	return dispatchSets{
		key:          []nft.Expr{nft.Daddr(f), nft.L4Proto(), nft.ThDport()},
		classes:      &nft.Set{Name: "service-classes", Comment: "ClusterIP, external IP and LoadBalancer IP traffic"},
		classChains:  &nft.Set{Name: "class-chains", Comment: "where the classes of service-classes lead"},
		targets:      &nft.Set{Name: OwnSet},
		localClasses: &nft.Set{Name: "local-policy-classes"},
		allClasses:   &nft.Set{Name: allEndpointsPrefix + "classes"},
		chains:       &nft.Set{Name: "service-ips", Comment: "traffic to Services with chains of their own"},
		localChains:  &nft.Set{Name: "local-policy-ips"},
		allChains:    &nft.Set{Name: allEndpointsPrefix + "ips"},
		noEndpoints: &nft.Set{Name: "no-endpoint-services",
			Comment: "traffic to Services with chains of their own and no endpoints"},
		connections: &nft.Set{Name: "service-connections",
			Comment: "new connections to ClusterIPs, external IPs and LoadBalancer IPs"},
		masqueraded: toExternal, local: toLocal, all: toAll, pick: chainPick, own: chainServiceChains,
		localChain: chainExternalLocal, allChain: chainExternalAll,
	}
}

// newNodePortSets returns the sets of NodePorts, without their keys and data.
func newNodePortSets() dispatchSets {
	return dispatchSets{
		key:          []nft.Expr{nft.L4Proto(), nft.ThDport()},
		classes:      &nft.Set{Name: NodePortSet, Comment: "NodePort traffic"},
		classChains:  &nft.Set{Name: "nodeport-class-chains", Comment: "where the classes of nodeport-classes lead"},
		targets:      &nft.Set{Name: "nodeport-targets"},
		localClasses: &nft.Set{Name: "local-policy-nodeport-classes"},
		allClasses:   &nft.Set{Name: allEndpointsPrefix + "nodeport-classes"},
		chains: &nft.Set{Name: "service-nodeports",
			Comment: "NodePort traffic to Services with chains of their own"},
		localChains: &nft.Set{Name: "local-policy-nodeports"},
		allChains:   &nft.Set{Name: allEndpointsPrefix + "nodeports"},
		noEndpoints: &nft.Set{Name: "no-endpoint-nodeports",
			Comment: "NodePort traffic to Services with chains of their own and no endpoints"},
		connections: &nft.Set{Name: "nodeport-connections", Comment: "new connections to NodePorts"},
		masqueraded: toNodePort, local: toNodePortLocal, all: toNodePortAll,
		pick: chainPickNodePort, own: chainNodePortChains,
		localChain: chainNodePortLocal, allChain: chainNodePortAll,
	}
}

// affinitySetPrefix is the prefix of the names of the affinity sets. It is not
// "affinity-", because kube-proxy tries to delete all sets with that prefix.
const affinitySetPrefix = "sticky-clients-"

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
	if !ok { // most names, for which an error would cost two allocations
		return false
	}
	_, err := strconv.ParseUint(bits, 10, 8)
	return err == nil
}

// declare sets the types of the sets, whose keys begin with fields of these
// types.
func (d *dispatchSets) declare(endpoint nft.Fields, key ...nft.Type) {
	for _, s := range d.sets() {
		s.Key = nft.Types(key...)
	}
	d.targets.Key, d.targets.Data = nft.Types(append(slices.Clip(key), nft.TypeClassID)...), endpoint
	for _, s := range []*nft.Set{d.classes, d.localClasses, d.allClasses} {
		s.Data = nft.Types(nft.TypeClassID)
	}
	d.classChains.Key = nft.Types(nft.TypeClassID)
	for _, s := range []*nft.Set{d.classChains, d.chains, d.localChains, d.allChains, d.noEndpoints} {
		s.Verdicts = true
	}
	d.connections.Counts = true
}

// sets returns the sets in the order in which they are written.
func (d *dispatchSets) sets() []*nft.Set {
	return []*nft.Set{
		d.classes, d.classChains, d.targets, d.localClasses, d.allClasses,
		d.chains, d.localChains, d.allChains, d.noEndpoints, d.connections,
	}
}

// dispatch returns the sets that dispatch packets to a frontend.
func (l *layout) dispatch(f Frontend) *dispatchSets {
	if f.IsNodePort() {
		return &l.nodePorts
	}
	return &l.vips
}

// sets returns the sets that the program p has, in the order in which they are
// written.
func (l *layout) sets(p *program) []*nft.Set {
	sets := []*nft.Set{l.clusterIPs}
	vips, nodePorts := l.vips.sets(), l.nodePorts.sets()
	for i := range len(vips) - 1 { // the last one is optional
		sets = append(sets, vips[i], nodePorts[i])
	}
	sets = append(append(sets, l.localClassChains, l.portTargets), p.sources...)
	sets = append(sets, l.hairpin, l.reservedIDs)
	if !p.nodePortsAll {
		sets = append(sets, l.nodePortIPs)
	}
	if p.localhost {
		sets = append(sets, l.localhostNodePorts)
	}
	if p.connections {
		sets = append(sets, l.vips.connections, l.nodePorts.connections)
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
func clientSetOf(prefix, name string) (set uint8, ok bool) {
	number, ok := strings.CutPrefix(name, prefix)
	n, err := strconv.ParseUint(number, 10, 8)
	return uint8(n), ok && err == nil && n < affinitySets
}

// Versions up to v0.1.0 have other affinity sets, with rows of the same bytes.
// nft has no name for the type of their ids.
const earlierSetPrefix = "clients-"

// EarlierSet returns the name of the set that an earlier version has in place
// of one of its affinity sets, or of the set of reserved ids.
func (r *Ruleset) EarlierSet(s *nft.Set) string {
	if s == r.layout.reservedIDs {
		return "reserved-affinity-ids"
	}
	return earlierSetPrefix + strings.TrimPrefix(s.Name, affinitySetPrefix)
}
