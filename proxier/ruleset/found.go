package ruleset

import (
	"net/netip"
	"strings"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// Functions of this file read the configuration of a proxy and its Services
// from the rules and rows that were found in a table.

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

// TargetOf returns the frontend and the target of a row of OwnSet.
func TargetOf(f nft.Family, row nft.Row) (from Frontend, to netip.AddrPort, ok bool) {
	key, data := row.Key.Bytes(), row.Data.Bytes()
	size := f.AddrLen()
	if len(key) < size+2*protoField || len(data) < size+2 {
		return from, to, false
	}
	vip, _ := netip.AddrFromSlice(key[:size])
	addr, _ := netip.AddrFromSlice(data[:size])
	from = Frontend{Addr: vip, Port: portOf(key[size+protoField:]), Proto: cluster.Protocol(key[size])}
	return from, netip.AddrPortFrom(addr, portOf(data[size:])), true
}

// NodePortOf returns the NodePort of a row of NodePortSet.
func NodePortOf(row nft.Row) (port uint16, ok bool) {
	key := row.Key.Bytes()
	if len(key) < protoField+2 {
		return 0, false
	}
	return portOf(key[protoField:]), true
}

// MasqueradeBy returns the reason for which a rule of a chain masquerades
// packets or marks them for it. It is "" for a rule of another program.
func MasqueradeBy(chain, comment string) Reason {
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
