package explain

import (
	"fmt"
	"math/bits"
	"net/netip"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

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

// ServiceRanges returns the ranges of ClusterIPs that the rules contain: those
// in which they drop packets to unallocated addresses.
func (k *Kernel) ServiceRanges() (ranges []netip.Prefix, err error) {
	rules, err := k.Rules(ruleset.BaseChainName(nft.Prerouting))
	if err != nil {
		return nil, err
	}
	for _, rule := range rules {
		if p, ok := addressRange(k.table.Family, rule.Expressions, "daddr"); ok {
			ranges = append(ranges, p)
		}
	}
	return ranges, nil
}

// addressRange returns the range of addresses in a header field that a rule
// matches first.
func addressRange(f nft.Family, rule []expr.Any, name string) (netip.Prefix, bool) {
	if len(rule) < 2 {
		return netip.Prefix{}, false
	}
	load, ok := rule[0].(*expr.Payload)
	if !ok {
		return netip.Prefix{}, false
	}
	if known, err := fieldOf(f, load); err != nil || known.name != name {
		return netip.Prefix{}, false
	}
	var mask []byte
	if bits, ok := rule[1].(*expr.Bitwise); ok && len(rule) > 2 {
		mask, rule = bits.Mask, rule[1:]
	}
	compare, ok := rule[1].(*expr.Cmp)
	if !ok || compare.Op != expr.CmpOpEq {
		return netip.Prefix{}, false
	}
	return prefixOf(f, compare.Data, mask), true
}

// prefixOf returns the prefix of the addresses that begin with these bytes, or
// whose masked bytes are these.
func prefixOf(f nft.Family, value, mask []byte) netip.Prefix {
	full := make([]byte, slotBytes)
	if f == nft.IPv6 {
		full = make([]byte, 4*slotBytes)
	}
	copy(full, value)
	addr, _ := netip.AddrFromSlice(full)
	ones := len(value) * 8
	if mask != nil {
		ones = 0
		for _, b := range mask {
			ones += bits.OnesCount8(b)
		}
	}
	return netip.PrefixFrom(addr, ones)
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
