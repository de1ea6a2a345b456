package ruleset

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/nft"
)

// Session affinity needs chains for each service port, because only a rule for
// one endpoint can write the id of that endpoint to an affinity set.

// Prefixes of the names of these chains. namespace.name.protocol.port follows,
// or namespace.name.protocol for a port without a name.
const (
	affinityPrefix         = "affinity."          // all usable endpoints
	affinityLocalPrefix    = "affinity-local."    // endpoints of this node
	affinityExternalPrefix = "affinity-external." // all usable endpoints, masqueraded
)

// HasAffinity reports whether the service port has session affinity.
func (p *Plan) HasAffinity() bool { return p != nil && p.affinity() != 0 }

// AffinityName returns the name of the service port in the names of chains.
func (p *Plan) AffinityName() string {
	name := p.Service.Name.Namespace + "." + p.Service.Name.Name + "." + p.Port.Protocol.String()
	if p.Port.Name == "" {
		return name
	}
	return name + "." + p.Port.Name
}

// AffinitySet returns the set that the chains of a service port use, nil if the
// service port has no chains.
func (r *Ruleset) AffinitySet(p *Plan) *nft.Set {
	if !p.HasAffinity() {
		return nil
	}
	if len(p.chainKinds()) == 0 {
		return nil
	}
	return r.layout.affinity[p.ClientSet]
}

// stickyChain sends a known client to its endpoint, and a new client to any
// endpoint. Of the n rules for new clients, rule j takes 1/(n-j) of those that
// reach it. If the set is full, `update` ends its rule, and the last n rules
// serve the client without affinity. For two endpoints:
//
//	ip saddr . numgen inc mod 1 offset 4096 @clients-17 \
//	  update @clients-17 { ip saddr . numgen inc mod 1 offset 4096 timeout 3h } \
//	  meta l4proto tcp dnat to 10.244.1.8:8080
//	ip saddr . numgen inc mod 1 offset 4097 @clients-17 \
//	  update @clients-17 { ip saddr . numgen inc mod 1 offset 4097 timeout 3h } \
//	  meta l4proto tcp dnat to 10.244.2.8:8080
//	numgen random mod 2 0 \
//	  update @clients-17 { ip saddr . numgen inc mod 1 offset 4096 timeout 3h } \
//	  meta l4proto tcp dnat to 10.244.1.8:8080
//	update @clients-17 { ip saddr . numgen inc mod 1 offset 4097 timeout 3h } meta l4proto tcp dnat to 10.244.2.8:8080
//	numgen random mod 2 0 meta l4proto tcp dnat to 10.244.1.8:8080
//	meta l4proto tcp dnat to 10.244.2.8:8080
//
// The rules contain the timeout, because Linux 5.10 ignores a changed timeout
// of an existing set.
func (r *Ruleset) stickyChain(p *Plan, kind chainKind) *nft.Chain {
	set, targets := r.layout.affinity[p.ClientSet], p.targets(kind)
	n := len(targets)
	rules := make([]nft.Rule, 3*n)
	for j, t := range targets {
		client := []nft.Expr{nft.Saddr(r.layout.family), nft.Constant(t.ID)}
		remember := nft.Update(set, p.affinity(), client...)
		send := []nft.Statement{nft.MatchL4Proto(uint8(p.Port.Protocol)), nft.DNAT(t.AddrPort())}
		var share []nft.Statement
		if left := n - j; left > 1 {
			share = []nft.Statement{nft.RandomIsZero(uint32(left))}
		}
		rules[j] = nft.NewRule(slices.Concat([]nft.Statement{nft.In(set, client...), remember}, send)...)
		rules[n+j] = nft.NewRule(slices.Concat(share, []nft.Statement{remember}, send)...)
		rules[2*n+j] = nft.NewRule(slices.Concat(share, send)...)
	}
	return &nft.Chain{Name: p.chainName(kind), Rules: rules}
}

// ParseStickyChain returns the AffinityName of the service port that a chain
// with rules for known clients belongs to. ok reports whether the chain is one.
func ParseStickyChain(chain string) (servicePort string, ok bool) {
	if name, ok := strings.CutPrefix(chain, affinityPrefix); ok {
		return name, true
	}
	return strings.CutPrefix(chain, affinityLocalPrefix)
}

// StickyRule is a rule that reads or writes an affinity set and sends the
// client to an endpoint.
type StickyRule struct {
	Endpoint  netip.AddrPort
	ID        uint32 // of the endpoint
	ClientSet uint8
}

// ParseStickyRule returns the StickyRule that a rule is. ok reports whether it
// is one.
func ParseStickyRule(rule nft.Rule) (sticky StickyRule, ok bool) {
	set, ok := clientSetOf(rule.Set())
	sticky = StickyRule{rule.DNAT(), rule.Constant(), set}
	return sticky, ok && sticky.Endpoint.IsValid() && sticky.ID != 0
}
