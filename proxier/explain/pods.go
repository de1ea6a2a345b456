package explain

import (
	"fmt"
	"net/netip"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// PodAddress returns an address of a hypothetical pod. The rules recognize it
// as one of the cluster. ok is false if they do not recognize pods by a range
// of addresses.
func (k *Kernel) PodAddress() (addr netip.Addr, ok bool, err error) {
	rules, err := k.Rules(chainExternalLocal)
	if err != nil {
		return addr, false, err
	}
	for _, rule := range rules {
		if p, found := sourceRange(k.table.Family, rule.Expressions); found {
			addr, err := k.unusedAddress(p)
			return addr, err == nil, err
		}
	}
	return addr, false, nil
}

// sourceRange returns the range of source addresses that a rule matches first.
func sourceRange(f nft.Family, rule []expr.Any) (netip.Prefix, bool) {
	if len(rule) < 2 {
		return netip.Prefix{}, false
	}
	load, ok := rule[0].(*expr.Payload)
	if !ok {
		return netip.Prefix{}, false
	}
	if known, err := fieldOf(f, load); err != nil || known.name != "saddr" {
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
