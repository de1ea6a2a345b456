package node

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/walk"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// Kinds of sources of a packet.
const (
	FromPod     = "pod"
	FromNode    = "node"
	FromOutside = "outside"
)

// Pods returns how the rules recognize packets of this cluster's pods. ok is
// false if they recognize none.
func (k *Kernel) Pods() (pods ruleset.Pods, ok bool, err error) {
	rules, err := k.Rules(ruleset.PodsChain)
	if err != nil {
		return pods, false, err
	}
	pods, ok = ruleset.PodsOf(k.Table.Family, rules)
	return pods, ok, nil
}

// PodRanges returns the range of addresses by which the rules recognize pods,
// if there is one.
func (k *Kernel) PodRanges() ([]netip.Prefix, error) {
	pods, _, err := k.Pods()
	if !pods.Range.IsValid() || err != nil {
		return nil, err
	}
	return []netip.Prefix{pods.Range}, nil
}

// ServiceRanges returns the ranges of ClusterIPs that the rules contain: those
// in which they drop packets to unallocated addresses.
func (k *Kernel) ServiceRanges() ([]netip.Prefix, error) {
	rules, err := k.Rules(ruleset.BaseChainName(nft.Prerouting))
	return ruleset.ServiceCIDRsOf(k.Table.Family, rules), err
}

// PodAddress returns an address of a hypothetical pod. The rules recognize it
// as one of the cluster. ok is false if they do not recognize pods by a range
// of addresses.
func (k *Kernel) PodAddress() (addr netip.Addr, ok bool, err error) {
	pods, ok, err := k.Pods()
	if !ok || !pods.Range.IsValid() || err != nil {
		return addr, false, err
	}
	addr, err = k.unusedAddress(pods.Range)
	return addr, err == nil, err
}

// PodInterface returns the interface of a hypothetical pod of this node: the
// one of the route to its address, such as a bridge, or else a new one.
func (k *Kernel) PodInterface(addr netip.Addr) walk.Interface {
	name, err := k.Interface(addr)
	uplink, _ := k.Interface(Outside(k.Table.Family))
	if err != nil || name == uplink {
		return walk.Interface{Unknown: walk.ErrNewInterface}
	}
	return walk.Interface{Name: name}
}

// DefaultSource returns the address of a client that is in the cluster, and its
// kind: a pod or, if the rules do not recognize pods by a range of addresses,
// this node.
func (k *Kernel) DefaultSource(to netip.Addr) (addr netip.Addr, from string, err error) {
	if to.IsLoopback() {
		return to, FromNode, nil
	}
	if addr, ok, err := k.PodAddress(); ok || err != nil {
		return addr, FromPod, err
	}
	addr, err = k.NodeSource(to)
	return addr, FromNode, err
}

// unusedAddress returns an address of a range that is not this node's.
func (k *Kernel) unusedAddress(p netip.Prefix) (netip.Addr, error) {
	const attempts = 16
	raw := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < len(raw)*8; bit++ {
		raw[bit/8] |= 0x80 >> (bit % 8)
	}
	addr, _ := netip.AddrFromSlice(raw)
	for range attempts {
		addr = addr.Prev() // the last address of a range is for broadcasts
		typ, err := k.RouteType(addr)
		if err != nil {
			return addr, err
		}
		if p.Contains(addr) && typ != unix.RTN_LOCAL {
			return addr, nil
		}
	}
	return addr, fmt.Errorf("found no unused address in the range of pods %s: give an address", p)
}

// Outside returns an address of a family that no host has: of TEST-NET-3 (RFC
// 5737), or of the range for documentation (RFC 9637).
func Outside(f nft.Family) netip.Addr {
	if f == nft.IPv4 {
		return netip.AddrFrom4([4]byte{203, 0, 113, 1})
	}
	return netip.AddrFrom16([16]byte{0x3f, 0xff, 15: 1})
}
