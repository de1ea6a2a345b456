package ruleset

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"slices"
	"strconv"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// Program is the part of a table that depends on the node and its
// configuration, and not on Services.
type Program struct {
	// Table contains the sets and the chains, of which the base chains are the
	// last. The chains that Services need are not part of it.
	Table *nft.Table
	// Rows are the rows that no service port has.
	Rows []nft.Row
	// NodePortAddrs are the addresses on which NodePorts listen. The
	// unspecified address stands for all local addresses. It is never nil.
	NodePortAddrs []netip.Addr
	// LoopbackAddrs are the loopback addresses of the node that
	// nodePortAddresses selects. Only health checks listen there.
	LoopbackAddrs []netip.Addr
}

// MakeProgram returns the program for a node, with the sets of source ranges
// that are used (see SourceSets).
func (r *Ruleset) MakeProgram(node *cluster.Node, sources ...*nft.Set) *Program {
	ips := r.NodePortAddrs(node)
	p := &program{
		Ruleset: r, node: node, sources: sources, fromPod: r.config.DetectLocal.match(r.layout.family, node),
		nodePortsAll: slices.Contains(ips, r.layout.family.Unspecified()),
	}
	out := &Program{
		Table: p.table(), NodePortAddrs: ips, Rows: r.layout.fixedRows(),
		LoopbackAddrs: r.config.NodePortAddresses.loopbackOn(r.layout.family, node),
	}
	if p.nodePortsAll {
		return out
	}
	for _, ip := range ips {
		out.Rows = append(out.Rows, nft.Row{Set: r.layout.nodePortIPs, Key: nft.Tuple{}.Addr(ip)})
	}
	return out
}

// NodePortAddrs returns the addresses of a node on which NodePorts listen. The
// unspecified address stands for all local addresses.
func (r *Ruleset) NodePortAddrs(node *cluster.Node) []netip.Addr {
	return r.config.NodePortAddresses.on(r.layout.family, node)
}

func (p *program) table() *nft.Table {
	t := &nft.Table{
		Family:  p.layout.family,
		Name:    TableName,
		Comment: "rules for kube-proxy",
		Sets:    p.sets(),
		Chains:  append(p.regularChains(), p.baseChains()...),
	}
	for _, reason := range Refusals() {
		t.Counters = append(t.Counters, reason.Counter())
	}
	if p.config.RetryAfter > 0 {
		t.CtTimeouts = p.ctTimeouts()
	}
	for _, proto := range p.rejectedOnLocalhost() {
		t.Counters = append(t.Counters, LocalhostCounter(proto))
	}
	return t
}

// sets returns the sets in the order in which they are written.
func (p *program) sets() []*nft.Set {
	l := p.layout
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
	if len(p.rejectedOnLocalhost()) > 0 {
		sets = append(sets, l.localhostNodePorts)
	}
	if p.config.ServiceMetrics.Enabled() {
		sets = append(sets, l.vips.connections, l.nodePorts.connections)
	}
	return sets
}

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
	localhostNodePorts *nft.Set     // protocol . NodePort that localhost rejects, see RejectedOnLocalhost
	reservedIDs        *nft.Set     // one row: ids of session affinity below it may be in use

	// affinity are the sets of clients with session affinity: client . id of
	// its endpoint. Packets fill them. Each service port with affinity uses one
	// of them.
	affinity [ClientSets]*nft.Set
}

// dispatchSets are the sets and maps that dispatch packets by VIP or by
// NodePort, and all else that differs between the two.
type dispatchSets struct {
	key []nft.Expr // the fields of a packet that the keys of all sets begin with

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
	// ClientSets is the number of affinity sets, which service ports with
	// session affinity share. A flood of clients of one service port fills one
	// set, and harms few other service ports. A set for each service port is
	// too slow: the kernel walks a list to find a set, so writing n sets takes
	// quadratic time.
	ClientSets = 128
	// affinityClients is the number of clients that one set can hold. When the
	// set is full, new clients are served without affinity. The kernel
	// allocates the buckets for this size at once, unless it is a multiple of
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

// setsOf returns the sets that dispatch packets to a frontend.
func (l *layout) setsOf(f Frontend) *dispatchSets {
	if f.IsNodePort() {
		return &l.nodePorts
	}
	return &l.vips
}

// ClientSet returns the number of the affinity set for a name: of a service
// port (Plan.AffinityName), or of a namespace. Without a secret seed, a user
// could choose names that share the set of another Service, and fill it.
func ClientSet(seed uint64, name string) uint8 {
	hash := sha256.Sum256(append(binary.LittleEndian.AppendUint64(nil, seed), name...))
	return hash[0] % ClientSets
}
