package xtables

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// Read reads the tables of both families that exist, and creates none.
func Read() (all []*Table, err error) {
	var errs []error
	for _, family := range []nft.Family{nft.IPv4, nft.IPv6} {
		names, err := Names(family)
		errs = append(errs, err)
		for _, name := range names {
			t, err := ReadTable(family, name)
			if err != nil {
				errs = append(errs, fmt.Errorf("read legacy table %s %s: %w", family, name, err))
				continue
			}
			all = append(all, t)
		}
	}
	return all, errors.Join(errs...)
}

// ReadTable reads a table, and creates it if it does not exist.
func ReadTable(family nft.Family, name string) (*Table, error) {
	s, err := open(family)
	if err != nil {
		return nil, err
	}
	defer s.close()
	return s.read(name)
}

// priorities are the priorities of the hooks of legacy tables
// (linux/netfilter_ipv4.h).
var priorities = map[string]int32{"raw": -300, "mangle": -150, "filter": 0, "security": 50}

// Base returns the built-in chains in the terms of nf_tables.
func (t *Table) Base() (base []nft.Chain) {
	typ := nft.ChainTypeFilter
	if t.Name == "nat" {
		typ = nft.ChainTypeNAT
	}
	for _, name := range t.names {
		c := t.chains[name]
		hook := t.hookAt(t.entries[c.first].at)
		if hook < 0 {
			continue
		}
		policy, _ := t.verdict(t.entries[c.last])
		h := &nft.Hook{
			Type: typ, Point: nft.HookPoint(hook), Priority: priorities[t.Name], Drop: policy == verdictDrop,
		}
		switch {
		case typ != nft.ChainTypeNAT:
		case h.Point == nft.Prerouting || h.Point == nft.Output:
			h.Priority = nft.PriorityDstNAT
		default:
			h.Priority = nft.PrioritySrcNAT
		}
		base = append(base, nft.Chain{Name: name, Hook: h})
	}
	return base
}

// Rules returns the rules of a chain as expressions of nf_tables. Their
// handles are 0.
func (t *Table) Rules(name string) (rules []nft.Rule, err error) {
	c := t.chains[name]
	for _, e := range t.entries[c.first:c.last] {
		rule, err := t.expressions(e)
		if err != nil {
			return nil, fmt.Errorf("chain %s: %w", name, err)
		}
		rules = append(rules, nft.Rule{Expressions: rule})
	}
	return rules, nil
}

// Set returns an error: rules cannot refer to sets of nf_tables.
func (t *Table) Set(name string) (*nft.Set, error) {
	return nil, fmt.Errorf("set %s does not exist", name)
}

// Row returns no row.
func (t *Table) Row(*nft.Set, nft.Tuple) (nft.Row, error) { return nft.Row{}, nil }

// format is what differs between the families: include/uapi/linux/
// netfilter_ipv4/ip_tables.h, and ip6_tables.h.
type format struct {
	names         string // file in /proc/net with the names of the tables
	domain, level int    // of sockets and their options
	source        uint32 // offset of the source address in the header of a packet; the destination follows

	// Offsets in struct ipt_entry and ip6t_entry, which begin with addresses
	// and interfaces.
	flags    int // the flags for inverted matches follow
	target   int // target_offset; next_offset follows
	matches  int
	gotoFlag byte
	other    byte // flags whose meaning is not translated
}

var formats = map[nft.Family]*format{
	nft.IPv4: {
		names: "ip_tables_names", domain: unix.AF_INET, level: unix.SOL_IP, source: 12,
		flags: 82, target: 88, matches: 112, gotoFlag: 0x02, other: 0x01,
	},
	nft.IPv6: {
		names: "ip6_tables_names", domain: unix.AF_INET6, level: unix.SOL_IPV6, source: 8,
		flags: 131, target: 140, matches: 168, gotoFlag: 0x04, other: 0x02,
	},
}

// Flags of inverted matches, which are the same for both families.
const (
	invertIn       = 0x01
	invertOut      = 0x02
	invertSource   = 0x08
	invertDest     = 0x10
	invertProtocol = 0x40
)

// expressions returns a rule as expressions.
func (t *Table) expressions(e entry) ([]expr.Any, error) {
	f, data := formats[t.Family], t.data[e.at:e.next]
	if len(data) < f.matches || e.target-e.at < f.matches {
		return nil, errEntries
	}
	invert := data[f.flags+1]
	addrLen := t.Family.AddrLen()
	addrs, masks := data, data[2*addrLen:]
	names := data[4*addrLen:] // of the interfaces, in and out; their masks follow, then the protocol
	nameMasks, protocol := names[2*unix.IFNAMSIZ:], names[4*unix.IFNAMSIZ]

	var rule []expr.Any
	rule = matchName(rule, expr.MetaKeyIIFNAME, names, nameMasks, invert&invertIn != 0)
	rule = matchName(rule, expr.MetaKeyOIFNAME, names[unix.IFNAMSIZ:], nameMasks[unix.IFNAMSIZ:],
		invert&invertOut != 0)
	rule = matchAddr(rule, f.source, addrs[:addrLen], masks[:addrLen], invert&invertSource != 0)
	rule = matchAddr(rule, f.source+uint32(addrLen), addrs[addrLen:2*addrLen], masks[addrLen:2*addrLen],
		invert&invertDest != 0)
	if protocol != 0 {
		rule = append(rule, &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: unix.NFT_REG_1},
			&expr.Cmp{Op: operator(invert&invertProtocol != 0), Register: unix.NFT_REG_1, Data: []byte{protocol}})
	}
	if data[f.flags]&f.other != 0 {
		rule = append(rule, &nft.UnknownExpression{Name: "limit"}) // fragments, type of service
	}
	rule, err := matchExtensions(rule, data[f.matches:e.target-e.at])
	if err != nil {
		return nil, err
	}
	target, err := t.targetOf(e, data[f.flags]&f.gotoFlag != 0)
	if err != nil || target == nil {
		return rule, err
	}
	return append(rule, target), nil
}

func operator(invert bool) expr.CmpOp {
	if invert {
		return expr.CmpOpNeq
	}
	return expr.CmpOpEq
}

// matchName appends the match of an interface. The mask covers the bytes of the
// name that are compared.
func matchName(rule []expr.Any, key expr.MetaKey, name, mask []byte, invert bool) []expr.Any {
	length := bytes.IndexByte(mask[:unix.IFNAMSIZ], 0)
	switch length {
	case 0:
		return rule
	case -1:
		length = unix.IFNAMSIZ
	}
	value := bytes.Clone(name[:length])
	if value[length-1] == 0 { // the whole name is compared
		value = append(value, make([]byte, unix.IFNAMSIZ-length)...)
	}
	return append(rule, &expr.Meta{Key: key, Register: unix.NFT_REG_1},
		&expr.Cmp{Op: operator(invert), Register: unix.NFT_REG_1, Data: value})
}

// matchAddr appends the match of an address at an offset in the header.
func matchAddr(rule []expr.Any, offset uint32, addr, mask []byte, invert bool) []expr.Any {
	zero := make([]byte, len(mask))
	if bytes.Equal(mask, zero) {
		return rule
	}
	size := uint32(len(addr))
	return append(rule,
		&expr.Payload{Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size, DestRegister: unix.NFT_REG_1},
		&expr.Bitwise{
			SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, Len: size,
			Mask: bytes.Clone(mask), Xor: zero,
		},
		&expr.Cmp{Op: operator(invert), Register: unix.NFT_REG_1, Data: bytes.Clone(addr)})
}

// Offsets in struct xt_entry_match, which is like struct xt_entry_target.
const (
	matchNameAt     = targetNameAt
	matchRevisionAt = 31
	matchDataAt     = targetDataAt
)

// matchExtensions appends the matches of an entry.
func matchExtensions(rule []expr.Any, data []byte) ([]expr.Any, error) {
	for len(data) > 0 {
		if len(data) < matchDataAt {
			return nil, errEntries
		}
		size := int(binary.NativeEndian.Uint16(data))
		if size < matchDataAt || size > len(data) {
			return nil, errEntries
		}
		rule = append(rule, extension(data[:size], false))
		data = data[size:]
	}
	return rule, nil
}

func extension(data []byte, target bool) *nft.Extension {
	return &nft.Extension{
		Target: target, Name: unix.ByteSliceToString(data[matchNameAt:matchRevisionAt]),
		Revision: uint32(data[matchRevisionAt]),
		Data:     bytes.Clone(data[matchDataAt:]),
	}
}

// verdictDrop is the verdict in standard targets that drops packets.
const verdictDrop = -1

// verdicts are the verdicts in standard targets: -1 minus the number of
// linux/netfilter.h.
var verdicts = map[int]expr.VerdictKind{
	verdictDrop: expr.VerdictDrop, -2: expr.VerdictAccept, -5: expr.VerdictReturn,
}

// targetOf returns the target of an entry, nil if it has none.
func (t *Table) targetOf(e entry, isGoto bool) (expr.Any, error) {
	verdict, standard := t.verdict(e)
	kind, known := verdicts[verdict]
	switch {
	case !standard:
		return extension(t.data[e.target:e.next], true), nil
	case verdict == e.next:
		return nil, nil
	case known:
		return &expr.Verdict{Kind: kind}, nil
	case verdict < 0:
		return &nft.UnknownExpression{Name: "queue"}, nil
	}
	chain, ok := t.starts[verdict]
	if !ok {
		return nil, fmt.Errorf("%w: a rule jumps to %d, which is not a chain", errEntries, verdict)
	}
	if isGoto {
		return &expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}, nil
	}
	return &expr.Verdict{Kind: expr.VerdictJump, Chain: chain}, nil
}
