package nft

import (
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables/expr"
)

// Prefix returns the prefix of a rule that begins with Within(addr, prefix).
func (r Rule) Prefix(addr Expr) (p netip.Prefix, ok bool) {
	data, mask := r.firstComparison()
	full := make([]byte, addr.typ.size)
	ones := copy(full, data) * 8
	if mask != nil {
		ones = 0
		for _, b := range mask {
			ones += bits.OnesCount8(b)
		}
	}
	first, _ := netip.AddrFromSlice(full)
	p = netip.PrefixFrom(first, ones)
	return p, p.IsValid() && r.beginsWith(Within(addr, p))
}

// Interface returns the name of a rule that begins with InInterface(name).
func (r Rule) Interface() (name string, ok bool) {
	data, _ := r.firstComparison()
	name, _, padded := strings.Cut(string(data), "\x00")
	if !padded {
		name += "*"
	}
	return name, len(data) > 0 && r.beginsWith(InInterface(name))
}

// firstComparison returns the first constant of a rule, and the mask of the
// value that it is compared with.
func (r Rule) firstComparison() (data, mask []byte) {
	for _, e := range r.Expressions {
		switch e := e.(type) {
		case *expr.Bitwise:
			mask = e.Mask
		case *expr.Cmp:
			return e.Data, mask
		}
	}
	return nil, nil
}

func (r Rule) beginsWith(s Statement) bool {
	return len(r.Expressions) >= len(s) && slices.EqualFunc(r.Expressions[:len(s)], s, equalExpressions)
}
