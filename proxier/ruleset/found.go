package ruleset

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/nftproxy/nftproxy/nft"
)

// Functions of this file decode the names and the rules that were found in a
// table (see rows.go for rows).

// PodsChain is the name of the chain whose rules Pods reads.
const PodsChain = chainExternalLocal

// Pods is how rules recognize packets of this cluster's pods.
type Pods struct {
	// Range is the range of their addresses. It is not valid if the rules
	// recognize them by the interface.
	Range netip.Prefix
	// Interface is the name of the interface, or its beginning and *.
	Interface string
}

// String returns `the range 10.244.0.0/16` or `interface veth*`.
func (p Pods) String() string {
	if p.Range.IsValid() {
		return "the range " + p.Range.String()
	}
	return "interface " + p.Interface
}

// HasInterface reports whether the rules recognize pods by an interface with
// this name.
func (p Pods) HasInterface(name string) bool {
	prefix, wildcard := strings.CutSuffix(p.Interface, "*")
	return name == prefix || wildcard && strings.HasPrefix(name, prefix)
}

// PodsOf returns how the rules of PodsChain recognize pods. ok is false if they
// recognize none.
func PodsOf(f nft.Family, rules []nft.Rule) (pods Pods, ok bool) {
	for _, rule := range rules {
		if p, ok := rule.Prefix(nft.Saddr(f)); ok {
			return Pods{Range: p}, true
		}
		if name, ok := rule.Interface(); ok {
			return Pods{Interface: name}, true
		}
	}
	return Pods{}, false
}

// ServiceCIDRsOf returns the service CIDRs in which the rules of a base chain
// drop packets to unallocated addresses.
func ServiceCIDRsOf(f nft.Family, rules []nft.Rule) (cidrs []netip.Prefix) {
	for _, rule := range rules {
		if p, ok := rule.Prefix(nft.Daddr(f)); ok && rule.Target() == UnallocatedAddress.name() {
			cidrs = append(cidrs, p)
		}
	}
	return cidrs
}

// MasqueradeBy returns the reason for which a rule of a chain masquerades
// packets or marks them for it. It is "" for a rule of another program.
func MasqueradeBy(chain, comment string) Code {
	switch chain {
	case chainMasquerading: // the packet has no mark
		return Hairpin
	case chainExternalLocal, chainNodePortLocal:
		return FromNode
	case chainOutsideCluster:
		if comment == commentMasqueradeAll {
			return MasqueradeAll
		}
		return OutsideCluster
	}
	for k := range chainKinds {
		if kinds[k].masquerade && strings.HasPrefix(chain, kinds[k].name) {
			return ExternalPolicy
		}
	}
	if strings.HasPrefix(chain, affinityPrefixes[toExternal]) || strings.HasPrefix(chain, portPrefixes[toExternal]) {
		return ExternalPolicy
	}
	return ""
}

// RejectsOnLocalhost reports whether a chain has the name of the chain that
// rejects packets to NodePorts that localhost does not serve.
func RejectsOnLocalhost(chain string) bool { return chain == chainLocalhost }

// RefusalOf returns the reason whose packets a counter counts. ok is false for
// another counter.
func RefusalOf(counter string) (r Code, ok bool) {
	for r, name := range refusalNames {
		if name == counter {
			return r, true
		}
	}
	return "", false
}

// LeadsToAllEndpoints reports whether a set has the name of a map that leads
// packets of pods and of this node to all endpoints, although
// externalTrafficPolicy is Local.
func LeadsToAllEndpoints(set string) bool { return strings.HasPrefix(set, allEndpointsPrefix) }

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
