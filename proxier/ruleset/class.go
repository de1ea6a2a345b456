package ruleset

import (
	"slices"
	"strconv"

	"github.com/nftproxy/nftproxy/nft"
)

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
var refusalClasses = map[Reason]Class{
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
		for _, r := range []Reason{NoEndpoints, NoWeight} {
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

// Balancer returns the chain of a balancer, and the row that leads to it.
func (r *Ruleset) Balancer(c Class) (*nft.Chain, nft.Row) {
	chain := c.chain(r.layout.family, r.config)
	return chain, leads(r.layout.chainsOf(c), c, chain.Name)
}

// chain returns the chain of a balancer. For `guarded-3` it is
//
//	jump firewall
//	meta mark set meta mark | 0x00004000 meta priority set numgen random mod 3 offset 1 goto retry
//
// `external-3` has the second rule only, and `balance-3` has, before its draw,
// `jump outside-cluster`. `all-3` draws with the offset 16777217. Balancers of
// NodePorts go to retry-nodeport. `balance-1`, `balance-once-3` and hashes go
// to pick. See draw for `balance-weighted-251` and `balance-hash-251`.
func (c Class) chain(f nft.Family, config *Config) *nft.Chain {
	k, chain := kinds[c.kind()], &nft.Chain{Name: c.name()}
	if k.first != "" {
		chain.Rules = append(chain.Rules, nft.NewRule(nft.Jump(k.first)))
	}
	var prepare nft.Statement
	if k.masquerade {
		prepare = nft.SetMarkBits(config.mark())
	}
	draw := nft.SetPriority(c.draw().index(f, c.rows(), k.index))
	chain.Rules = append(chain.Rules, nft.NewRule(prepare, draw, nft.Goto(config.after(k.to, c.draw(), c.rows()))))
	return chain
}

// Balancers returns the classes of the balancers that draw one of n targets.
func Balancers(n int) (classes []Class) {
	for k := range chainKinds {
		classes = append(classes, balancerClass(k, random, n))
	}
	return classes
}
