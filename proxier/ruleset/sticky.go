package ruleset

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/nftproxy/nftproxy/nft"
)

// Most service ports share balancers. A service port with session affinity
// or with a number (class.go) has chains of its own instead: one for each list
// of endpoints that its frontends use.

// hasChains reports whether the service port has chains of its own.
func (p *Plan) hasChains() bool { return p.HasAffinity() || p.Number != 0 }

// chainName returns the name of a chain of the service port. It contains no
// slash, because kube-proxy deletes all chains with a slash.
func (p *Plan) chainName(k chainKind) string {
	if p.HasAffinity() {
		return affinityPrefixes[k] + p.AffinityName()
	}
	return portPrefixes[k] + strconv.Itoa(int(p.Number))
}

// chainKinds returns the kinds of the chains of a service port.
func (p *Plan) chainKinds() (found []chainKind) {
	if p == nil || !p.hasChains() {
		return nil
	}
	var used [chainKinds]bool
	for _, f := range p.Frontends {
		k := f.ownKind()
		used[k] = true
		used[toAll] = used[toAll] || k == toExternal || f.splitsClients() // see masquerade
	}
	for _, k := range []chainKind{toExternal, toAll, toLocal} {
		if used[k] && p.list(k.policy()).rows() > 0 {
			found = append(found, k)
		}
	}
	return found
}

// Session affinity needs chains for each service port, because only a rule for
// one endpoint can write the id of that endpoint to an affinity set.

// affinityPrefixes are the prefixes of the names of these chains.
// namespace.name.protocol.port follows, or namespace.name.protocol for a port
// without a name. Before it, chains for known clients have the number of a
// group, and chains for new clients the index of a target.
var (
	affinityPrefixes = map[chainKind]string{
		toAll: "affinity.", toLocal: "affinity-local.", toExternal: "affinity-external.",
	}
	knownPrefixes = map[chainKind]string{toAll: "affinity-known.", toLocal: "affinity-local-known."}
	newPrefixes   = map[chainKind]string{toAll: "affinity-new.", toLocal: "affinity-local-new."}
)

// portPrefixes are the prefixes of the names of the chains of numbered service
// ports. The number follows.
var portPrefixes = map[chainKind]string{toAll: "port-", toLocal: "port-local-", toExternal: "port-external-"}

// Chains returns the chains of a service port. A nil plan, and a service port
// that uses balancers, have none.
func (r *Ruleset) Chains(p *Plan) (chains []*nft.Chain) {
	for _, kind := range p.chainKinds() {
		switch {
		case kind == toExternal:
			chains = append(chains, r.masquerade(p))
		case p.Number != 0:
			chains = append(chains, r.numberChain(p, kind))
		default:
			chains = append(chains, r.sticky(p, kind).chains()...)
		}
	}
	return chains
}

// ChainNames returns the names of the chains that Chains returns.
func (r *Ruleset) ChainNames(p *Plan) (names []string) {
	for _, kind := range p.chainKinds() {
		if p.HasAffinity() && kind != toExternal {
			names = append(names, r.sticky(p, kind).names()...)
			continue
		}
		names = append(names, p.chainName(kind))
	}
	return names
}

// masquerade marks traffic for masquerading before its endpoint is
// selected. For port-external-7 it is
//
//	meta mark set meta mark | 0x00004000
//	goto port-7
func (r *Ruleset) masquerade(p *Plan) *nft.Chain {
	return &nft.Chain{Name: p.chainName(toExternal), Rules: []nft.Rule{
		nft.NewRule(nft.SetMarkBits(r.config.mark())),
		nft.NewRule(nft.Goto(p.chainName(toAll))),
	}}
}

// AffinitySet returns the set that the chains of a service port use, nil if the
// service port has no chains.
func (r *Ruleset) AffinitySet(p *Plan) *nft.Set {
	if !p.HasAffinity() || len(p.chainKinds()) == 0 {
		return nil
	}
	return r.layout.affinity[p.ClientSet]
}

// A client of a service port with n endpoints needs n lookups to find out which
// endpoint it has, or that it has none. Therefore endpoints are in groups: an
// affinity set contains the client with the id of its endpoint, and also with
// the number of the group. A client that is not known needs one lookup for each
// group. A small service port needs few lookups anyway, so its endpoints are
// not in groups. Both kinds can be in one chain: an endpoint does not change
// its group, because its clients would not be found.

// sticky are the chains of one kind that send a known client to its endpoint,
// and a new client to any endpoint.
type sticky struct {
	family  nft.Family
	set     *nft.Set
	plan    *Plan
	kind    chainKind
	targets []Target
}

func (r *Ruleset) sticky(p *Plan, kind chainKind) *sticky {
	return &sticky{r.layout.family, r.layout.affinity[p.ClientSet], p, kind, p.list(kind.policy()).targets}
}

// chains returns the chains. The first one is the one to which packets go. For
// three endpoints, of which the last two are in the group 4098, it is
//
//	meta priority set 0:1000 ip saddr . meta priority @sticky-clients-17 \
//	  update @sticky-clients-17 { ip saddr . meta priority timeout 3h } \
//	  meta l4proto tcp dnat to 10.244.1.8:8080
//	meta priority set 0:1002 ip saddr . meta priority @sticky-clients-17 \
//	  jump affinity-known.4098.default.sticky.tcp.http
//
// with the rules for new clients after these.
func (s *sticky) chains() []*nft.Chain {
	listed, groups := s.groups()
	first := &nft.Chain{Name: s.plan.chainName(s.kind), Rules: s.known(listed)}
	chains := []*nft.Chain{first}
	for _, g := range groups {
		c := &nft.Chain{Name: s.knownName(g[0].Group), Rules: s.known(g)}
		first.Rules = append(first.Rules, nft.NewRule(s.lookup(g[0].Group), nft.Jump(c.Name)))
		chains = append(chains, c)
	}
	return s.addDraws(chains)
}

// names returns the names of the chains.
func (s *sticky) names() []string {
	names := []string{s.plan.chainName(s.kind)}
	_, groups := s.groups()
	for _, g := range groups {
		names = append(names, s.knownName(g[0].Group))
	}
	blocks := s.blocks()
	for _, b := range blocks[:len(blocks)-1] {
		names = append(names, s.newName(b))
	}
	return names
}

// knownName returns the name of the chain for the known clients of a group.
func (s *sticky) knownName(group uint32) string { return s.name(knownPrefixes, int(group)) }

// newName returns the name of the chain for new clients of a block.
func (s *sticky) newName(b block) string { return s.name(newPrefixes, b.start) }

// name returns the name of chain n of those with a prefix.
func (s *sticky) name(prefixes map[chainKind]string, n int) string {
	return prefixes[s.kind] + strconv.Itoa(n) + "." + s.plan.AffinityName()
}

// groups returns the targets that are in no group, and the targets of each one.
// Targets of a group are in the order of their ids, so that its chain depends
// on nothing else.
func (s *sticky) groups() (listed []Target, groups [][]Target) {
	var grouped []Target
	for _, t := range s.targets {
		if t.Group == 0 {
			listed = append(listed, t)
		} else {
			grouped = append(grouped, t)
		}
	}
	slices.SortFunc(grouped, func(a, b Target) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.ID, b.ID))
	})
	for first, i := 0, 1; i <= len(grouped); i++ {
		if i == len(grouped) || grouped[i].Group != grouped[first].Group {
			groups, first = append(groups, grouped[first:i]), i
		}
	}
	return listed, groups
}

// known returns the rules for known clients of targets.
func (s *sticky) known(targets []Target) []nft.Rule {
	rules := make([]nft.Rule, len(targets))
	for i, t := range targets {
		rules[i] = nft.NewRule(s.lookup(t.ID), s.renew(t), s.send(t))
	}
	return rules
}

// The numbers of targets between which a new client draws in one chain, for
// many targets and for fewer.
const (
	drawn, drawnOfMany = 8, 32
	manyTargets        = 256
)

// block is a block of consecutive targets, from one index to another.
type block struct{ start, end int }

// blocks returns the blocks between which a new client draws. All have the same
// size, but the first one in the list can be smaller: it has the last targets.
func (s *sticky) blocks() (blocks []block) {
	n, size := len(s.targets), drawn
	if n > manyTargets {
		size = drawnOfMany
	}
	rest := n / size * size
	switch {
	case n < 2*size:
		return []block{{0, n}}
	case rest < n:
		blocks = []block{{rest, n}}
	}
	for start := 0; start < rest; start += size {
		blocks = append(blocks, block{start, start + size})
	}
	return blocks
}

// addDraws adds the rules for new clients to the first chain, and the chains to
// which they lead. For 18 targets, the first chain gets
//
//	numgen random mod 18 0 goto affinity-new.16.default.sticky.tcp.http
//	numgen random mod 17 0 goto affinity-new.16.default.sticky.tcp.http
//	numgen random mod 2 0 goto affinity-new.0.default.sticky.tcp.http
//
// and the rules of the targets 8 to 15.
func (s *sticky) addDraws(chains []*nft.Chain) []*nft.Chain {
	first, blocks, left := chains[0], s.blocks(), len(s.targets)
	for _, b := range blocks[:len(blocks)-1] {
		c := &nft.Chain{Name: s.newName(b), Rules: s.fresh(b)}
		chains = append(chains, c)
		take := b.end - b.start
		if left%take == 0 {
			first.Rules = append(first.Rules, nft.NewRule(nft.RandomIsZero(uint32(left/take)), nft.Goto(c.Name)))
			left -= take
			continue
		}
		for ; take > 0; take-- { // each rule takes the chance of one target
			first.Rules = append(first.Rules, nft.NewRule(nft.RandomIsZero(uint32(left)), nft.Goto(c.Name)))
			left--
		}
	}
	first.Rules = append(first.Rules, s.fresh(blocks[len(blocks)-1])...)
	return chains
}

// fresh returns the rules that select a target of a block for a new client. Of
// the first n rules, rule j takes 1/(n-j) of the clients that reach it. If the
// set is full, `update` ends its rule, and the last n rules serve the client
// without affinity. For two targets:
//
//	numgen random mod 2 0 \
//	  meta priority set 0:1000 update @sticky-clients-17 { ip saddr . meta priority timeout 3h } \
//	  meta l4proto tcp dnat to 10.244.1.8:8080
//	meta priority set 0:1001 update @sticky-clients-17 { ip saddr . meta priority timeout 3h } \
//	  meta l4proto tcp dnat to 10.244.2.8:8080
//	numgen random mod 2 0 meta l4proto tcp dnat to 10.244.1.8:8080
//	meta l4proto tcp dnat to 10.244.2.8:8080
func (s *sticky) fresh(b block) []nft.Rule {
	targets, n := s.targets[b.start:b.end], b.end-b.start
	rules := make([]nft.Rule, 2*n)
	for j, t := range targets {
		var chance nft.Statement
		if left := n - j; left > 1 {
			chance = nft.RandomIsZero(uint32(left))
		}
		rules[j] = nft.NewRule(chance, s.remember(t), s.send(t))
		rules[n+j] = nft.NewRule(chance, s.send(t))
	}
	return rules
}

// lookup matches the clients with the number of an endpoint or a group.
func (s *sticky) lookup(number uint32) nft.Statement {
	return append(nft.SetPriorityTo(number), nft.In(s.set, s.client()...)...)
}

// client returns the key of a client with the number in the priority.
func (s *sticky) client() []nft.Expr { return []nft.Expr{nft.Saddr(s.family), nft.Priority()} }

// remember adds the client to the affinity set. The statement contains the
// timeout, because Linux 5.10 ignores a changed timeout of an existing set.
func (s *sticky) remember(t Target) nft.Statement {
	id := append(nft.SetPriorityTo(t.ID), nft.Update(s.set, s.plan.affinity(), s.client()...)...)
	if t.Group == 0 {
		return id
	}
	group := append(nft.SetPriorityTo(t.Group), nft.Update(s.set, s.plan.affinity(), s.client()...)...)
	return append(group, id...)
}

// renew restarts the timeout of a client that was looked up.
func (s *sticky) renew(t Target) nft.Statement {
	if t.Group == 0 { // the priority is the id
		return nft.Update(s.set, s.plan.affinity(), s.client()...)
	}
	return s.remember(t)
}

// send translates the destination to a target.
func (s *sticky) send(t Target) nft.Statement {
	return append(nft.MatchL4Proto(uint8(s.plan.Port.Protocol)), nft.DNAT(t.AddrPort())...)
}

// clientSetOf returns the number of the affinity set with a name.
func clientSetOf(name string) (set uint8, ok bool) {
	number, ok := strings.CutPrefix(name, affinitySetPrefix)
	n, err := strconv.ParseUint(number, 10, 8)
	return uint8(n), ok && err == nil && n < ClientSets
}

// ParseStickyChain returns the AffinityName of the service port that a chain
// with rules for known clients belongs to. ok reports whether the chain is one.
func ParseStickyChain(chain string) (servicePort string, ok bool) {
	prefix, name, _ := strings.Cut(chain, ".")
	switch prefix + "." {
	case affinityPrefixes[toAll], affinityPrefixes[toLocal]:
		return name, true
	case knownPrefixes[toAll], knownPrefixes[toLocal]:
		_, name, ok = strings.Cut(name, ".") // after the number of the group
		return name, ok
	}
	return "", false
}

// StickyRule is a rule that reads or writes an affinity set and sends the
// client to an endpoint.
type StickyRule struct {
	Endpoint  netip.AddrPort
	ID, Group uint32 // of the endpoint (see Target)
	ClientSet uint8
}

// ParseStickyRule returns the StickyRule that a rule is. ok reports whether it
// is one.
func ParseStickyRule(rule nft.Rule) (sticky StickyRule, ok bool) {
	set, ok := clientSetOf(rule.Set())
	sticky = StickyRule{Endpoint: rule.DNAT(), ClientSet: set}
	for _, n := range rule.Priorities() { // the last one is the id, and another one the group
		if sticky.ID != n {
			sticky.ID, sticky.Group = n, sticky.ID
		}
	}
	return sticky, ok && sticky.Endpoint.IsValid() && sticky.ID != 0
}
