package ruleset

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// chainKind is the kind of a chain that draws one of the targets of a frontend.
//
// Balancers have all kinds. Service ports with the same number of rows share
// them. The chains of one service port have the kinds toExternal, toAll and
// toLocal only (see ownKind): VIPs and NodePorts share these chains, because
// their targets do not depend on the frontend. Packets that need a check of
// source ranges or of the client of a ClusterIP have passed it before.
type chainKind uint8

const (
	toClusterIP     chainKind = iota // a ClusterIP
	toExternal                       // an external IP or LoadBalancer IP, masqueraded
	toGuarded                        // the same with loadBalancerSourceRanges
	toNodePort                       // a NodePort, masqueraded
	toLocal                          // a VIP with externalTrafficPolicy Local: endpoints of this node
	toAll                            // the same: all endpoints
	toNodePortLocal                  // a NodePort with externalTrafficPolicy Local: endpoints of this node
	toNodePortAll                    // the same: all endpoints
	chainKinds
)

// kinds describe what the kinds of chains do with packets.
var kinds = [chainKinds]struct {
	name       string // prefix of the names of balancers
	first      string // chain that packets pass first, "" for none
	masquerade bool
	to         pick
	index      uint32 // of the first target
}{
	toClusterIP:     {"balance-", chainOutsideCluster, false, pickVIP, firstIndex},
	toExternal:      {"external-", "", true, pickVIP, firstIndex},
	toGuarded:       {"guarded-", chainFirewall, true, pickVIP, firstIndex},
	toNodePort:      {"nodeport-", "", true, pickNodePort, firstIndex},
	toLocal:         {"local-", "", false, pickVIP, firstIndex},
	toAll:           {"all-", "", false, pickVIP, allIndex},
	toNodePortLocal: {"nodeport-local-", "", false, pickNodePort, firstIndex},
	toNodePortAll:   {"nodeport-all-", "", false, pickNodePort, allIndex},
}

// pick is a chain that looks targets up, and the chains in front of it: drawn
// for draws of one of several targets (see afterDraw), and retry for those
// that are repeated (see retries). mask has the bits of the number that do not
// belong to the index of a target in its list.
type pick struct {
	chain, drawn, retry string
	mask                uint32
}

var (
	pickVIP      = pick{chainPick, chainDrawn, chainRetry, ^uint32(maxRows)}
	pickNodePort = pick{chainPickNodePort, chainDrawnNodePort, chainRetryNodePort, ^uint32(maxRows)}
	pickPort     = pick{chainPickPort, chainDrawnPort, chainRetryPort, ^uint32(localIndex - 1)}
)

// picks returns all of them.
func picks() []pick { return []pick{pickVIP, pickNodePort, pickPort} }

// rowBits is the number of bits of the index of a target below the bit that
// allIndex adds.
const rowBits = 24

// The index of the first target, and of the first one of all endpoints under
// externalTrafficPolicy Local. nft writes a class of 0 in another way.
const (
	firstIndex = 1
	allIndex   = firstIndex + 1<<rowBits
)

// policy returns the traffic policy whose endpoints the chains of a kind lead
// to. It does not apply to toClusterIP: a ClusterIP with internalTrafficPolicy
// Local has the rows of the endpoints of this node.
func (k chainKind) policy() cluster.Policy {
	if k == toLocal || k == toNodePortLocal {
		return cluster.PolicyLocal
	}
	return cluster.PolicyCluster
}

// ownKind returns the kind of a chain of one service port for traffic with a
// policy that is not masqueraded.
func ownKind(policy cluster.Policy) chainKind {
	if policy == cluster.PolicyLocal {
		return toLocal
	}
	return toAll
}

// ownKind returns the kind of the chain of a service port that selects an
// endpoint for a frontend's traffic. With externalTrafficPolicy Local, this is
// the traffic that may use the endpoints of this node only.
func (f ServedFrontend) ownKind() chainKind {
	if f.Policy == cluster.PolicyLocal || f.IsClusterIP() {
		return ownKind(f.Policy)
	}
	return toExternal
}

// splitsClients reports whether externalTrafficPolicy Local applies to a
// frontend: which endpoints a client may use depends on where it is.
func (f ServedFrontend) splitsClients() bool {
	return f.Policy == cluster.PolicyLocal && !f.IsClusterIP()
}

// Class is what happens to packets to a frontend, as a number: the data of its
// row in `service-classes` or `nodeport-classes`. Verdict maps lead from the
// classes to chains. Because these maps have a few rows for each class in use,
// and none for a Service, a change of a Service changes no verdict map. The
// kernel validates all chains of a table for each change of a verdict map.
//
// A rule can pass a number to another rule in the priority of the packet only,
// for which nft has the type classid. It writes one as two hexadecimal numbers
// of 16 bits. The second one of a balancer is the number of rows from which it
// draws, unless there are more than 65535:
//
//	0:3      balance-3           1000:fb  balance-weighted-251
//	4000:3   balance-once-3      5000:fb  balance-once-weighted-251
//	100:3    external-3          2000:fb  balance-hash-251
//	200:3    guarded-3           3000:fb  balance-port-hash-251
//	f00:1    reject-no-endpoints f01:1    guarded-reject-no-endpoints
type Class uint32

// A class of a balancer has the number of rows in its lowest rowBits.
const (
	kindBits = 4 // above them: the chainKind; above these: the draw
	// maxRows is the largest number of rows from which a balancer draws, far
	// more than budgets allow.
	maxRows = 1<<rowBits - 1
)

// balancerClass returns the class of a balancer.
func balancerClass(k chainKind, d draw, rows int) Class {
	return Class(d)<<(rowBits+kindBits) | Class(k)<<rowBits | Class(rows)
}

// class returns the class of the balancer of a kind for a list.
func (l list) class(k chainKind) Class { return balancerClass(k, l.draw(), l.rows()) }

// IsBalancer reports whether the class leads to a balancer. All other classes
// are part of the program.
func (c Class) IsBalancer() bool { return c.kind() < chainKinds && c.rows() > 0 && c.draw() < draws }

func (c Class) kind() chainKind { return chainKind(c >> rowBits & (1<<kindBits - 1)) }
func (c Class) draw() draw      { return draw(c >> (rowBits + kindBits)) }
func (c Class) rows() int       { return int(c & maxRows) }

// tuple returns the class as the key or the data of a row.
func (c Class) tuple() nft.Tuple { return nft.Tuple{}.Integer(uint32(c)) }

// classIn returns the class that is a key or data.
func classIn(t nft.Tuple) Class { return Class(t.FirstInteger()) }

// name returns the name of the balancer's chain: `balance-3` or
// `balance-hash-251`.
func (c Class) name() string {
	return kinds[c.kind()].name + c.draw().String() + strconv.Itoa(c.rows())
}

// fixedClass is a class of the program. Those with guardedClass check source
// ranges first.
const (
	fixedClass   Class = 0xf << rowBits
	guardedClass Class = 1 << 16
)

// The classes of the program.
const (
	classNoEndpoints      = fixedClass | iota + 1
	classNoLocalEndpoints // of a ClusterIP with internalTrafficPolicy Local
	classNoWeight
	classLocal  // externalTrafficPolicy Local
	classChains // of a service port with chains of its own
)

// refusalClasses are the classes of frontends whose connections are refused.
var refusalClasses = map[Code]Class{
	NoEndpoints: classNoEndpoints, NoLocalEndpoints: classNoLocalEndpoints, NoWeight: classNoWeight,
}

// guardedPrefix begins the names of chains that check source ranges and go to
// the chain that is named after it.
const guardedPrefix = "guarded-"

// guardedTargets are the classes of VIPs that can be behind a check of source
// ranges, and the chains to which they lead.
func guardedTargets() map[Class]string {
	return map[Class]string{
		classNoEndpoints: NoEndpoints.name(), classNoWeight: NoWeight.name(),
		classLocal: chainExternalLocal, classChains: chainServiceChains,
	}
}

// leads returns the row of a verdict map that leads from a class to a chain.
func leads(m *nft.Set, c Class, chain string) nft.Row {
	return nft.Row{Set: m, Key: c.tuple(), Verdict: nft.VerdictGoto(chain)}
}

// fixedRows returns the rows of the verdict maps for the classes of the
// program, sorted.
func (l *layout) fixedRows() (rows []nft.Row) {
	lead := func(m *nft.Set, c Class, chain string) { rows = append(rows, leads(m, c, chain)) }
	for _, d := range []*dispatchSets{&l.vips, &l.nodePorts} {
		for _, r := range []Code{NoEndpoints, NoWeight} {
			lead(d.classChains, refusalClasses[r], r.name())
		}
		lead(d.classChains, classLocal, d.localChain)
		lead(d.classChains, classChains, d.own)
	}
	lead(l.vips.classChains, classNoLocalEndpoints, NoLocalEndpoints.name())
	for c, chain := range guardedTargets() {
		lead(l.vips.classChains, c|guardedClass, guardedPrefix+chain)
	}
	lead(l.localClassChains, classNoWeight, NoWeight.name())
	slices.SortFunc(rows, nft.Row.Compare)
	return rows
}

// chainsOf returns the verdict map with the row that leads to a balancer.
func (l *layout) chainsOf(c Class) *nft.Set {
	switch k := c.kind(); {
	case k == toNodePort:
		return l.nodePorts.classChains
	case k < toNodePort:
		return l.vips.classChains
	}
	return l.localClassChains
}

// A target that a balancer draws is looked up by frontend and index, so a
// service port has a row for each pair of frontend and target. A user can
// create Services with millions of pairs. Therefore a service port with many
// frontends and targets has a number, and chains that draw a number and index:
// it has a row for each frontend and one for each target.

// A class has the number of a service port above numberBits, and below them the
// index of a row. All usable endpoints have indexes below localIndex, endpoints
// of this node have indexes from localIndex on.
const (
	numberBits = 14
	localIndex = 1 << (numberBits - 1)
	// maxNumber is the largest number, maxNumberRows the largest number of rows
	// of a list.
	maxNumber     = 1<<(32-numberBits) - 1
	maxNumberRows = localIndex - firstIndex
)

// DefaultNumberLimit is the default of Config.NumberLimit.
const DefaultNumberLimit = 4096

// saved returns the number of rows that a number saves.
func (p *Plan) saved() (rows int) {
	if p.HasAffinity() {
		return 0
	}
	for _, policy := range []cluster.Policy{cluster.PolicyCluster, cluster.PolicyLocal} {
		use := 0 // number of frontends whose clients use the endpoints
		for _, f := range p.Frontends {
			if f.Policy == policy || policy == cluster.PolicyCluster && f.splitsClients() {
				use++
			}
		}
		rows += max(use-1, 0) * p.list(policy).rows()
	}
	return rows
}

// numberFor returns the number of a plan: 0, or the given one if it saves more
// rows than the limit. A plan that replaces one with a number keeps it until it
// saves less than half of that, so that a change of one target rarely changes
// all rows.
func (r *Ruleset) numberFor(p, before *Plan, number uint32) uint32 {
	limit := cmp.Or(r.config.NumberLimit, DefaultNumberLimit)
	if before.Number != 0 {
		limit /= 2
	}
	longest := max(p.list(cluster.PolicyCluster).rows(), p.list(cluster.PolicyLocal).rows())
	if number > maxNumber || longest > maxNumberRows || p.saved() <= limit {
		return 0
	}
	return number
}

// portClass returns the class of the row of the first target for traffic with a
// policy of a service port with a number.
func (p *Plan) portClass(policy cluster.Policy) Class {
	c := Class(p.Number<<numberBits + firstIndex)
	if policy == cluster.PolicyLocal {
		c += localIndex
	}
	return c
}

// number returns the number of the service port that has the class.
func (c Class) number() uint32 { return uint32(c) >> numberBits }

// numberChain draws one of the targets of a service port with a number. For
// port-7 it is
//
//	meta priority set numgen random mod 500 offset 114689 goto retry-port
//
// `port-local-7` draws with the offset 122881. See draw for service ports with
// slots.
func (r *Ruleset) numberChain(p *Plan, kind chainKind) *nft.Chain {
	l := p.list(kind.policy())
	index := l.draw().index(r.layout.family, l.rows(), uint32(p.portClass(kind.policy())))
	return &nft.Chain{Name: p.chainName(kind), Rules: []nft.Rule{
		nft.NewRule(nft.SetPriority(index), nft.Goto(r.config.after(pickPort, l.draw(), l.rows()))),
	}}
}
