package translate

import (
	"fmt"
	"net/netip"
	"strings"

	"k8s.io/utils/net"
)

// parser parses the fields of an object, and collects a problem for each field
// with an invalid value.
type parser struct{ problems []error }

func (p *parser) problem(field string, err error) {
	p.problems = append(p.problems, fmt.Errorf("%s: %w", field, err))
}

// addrs parses the addresses of a Service.
func (p *parser) addrs(field string, values []string) []netip.Addr {
	var out []netip.Addr
	for i, v := range values {
		a, ok := ParseAddr(v)
		if !ok || a.IsUnspecified() {
			p.problem(fmt.Sprintf("%s[%d]", field, i), fmt.Errorf("%q is not the IP address of a service", v))
			continue
		}
		out = append(out, a)
	}
	return out
}

// prefixes parses CIDRs. The result is never nil: a list of source ranges
// without a valid one must allow no client, and not all of them.
func (p *parser) prefixes(field string, values []string) []netip.Prefix {
	out := []netip.Prefix{}
	for i, v := range values {
		prefix, err := ParsePrefix(strings.TrimSpace(v))
		if err != nil {
			p.problem(fmt.Sprintf("%s[%d]", field, i), fmt.Errorf("%q is not a CIDR", v))
			continue
		}
		out = append(out, prefix)
	}
	return out
}

// ParsePrefix parses a CIDR as Kubernetes does: it accepts leading zeros, and
// clears the bits of the host. It returns the range of IPv4 addresses that a
// range of IPv4-mapped IPv6 addresses stands for (::ffff:10.0.0.0/104 is
// 10.0.0.0/8).
func ParsePrefix(text string) (netip.Prefix, error) {
	_, n, err := net.ParseCIDRSloppy(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not a CIDR", text)
	}
	addr, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	if addr.Is4In6() {
		const mapped = 96 // bits of the prefix of all such addresses
		addr, bits = addr.Unmap(), bits-mapped
	}
	return netip.PrefixFrom(addr, bits), nil
}

// ParseAddr parses an address of the API. Like Kubernetes, it accepts leading
// zeros, which old objects can have.
func ParseAddr(text string) (addr netip.Addr, ok bool) {
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		return addr.Unmap(), true
	}
	addr, ok = netip.AddrFromSlice(net.ParseIPSloppy(text))
	return addr.Unmap(), ok
}

// Prefixes parses CIDRs and ignores invalid values.
func Prefixes(values []string) []netip.Prefix {
	p := parser{}
	return p.prefixes("", values)
}
