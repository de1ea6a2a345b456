package xtables

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// Contents has the rules of a table in the terms of nf_tables.
type Contents struct {
	Name   string // "filter"
	Family nft.Family
	Base   []nft.FoundChain
	// Chains are the rules of all chains by name.
	Chains map[string][]nft.Rule
}

// Read reads the tables of both families that exist, and creates none.
func Read() (all []Contents, err error) {
	var errs []error
	for _, family := range []nft.Family{nft.IPv4, nft.IPv6} {
		names, err := Names(family)
		errs = append(errs, err)
		for _, name := range names {
			t, err := ReadTable(family, name)
			var c Contents
			if err == nil {
				c, err = t.describe(family)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("read legacy table %s %s: %w", family, name, err))
				continue
			}
			all = append(all, c)
		}
	}
	return all, errors.Join(errs...)
}

// ReadTable reads a table, and creates it if it does not exist.
func ReadTable(family nft.Family, name string) (Table, error) {
	s, err := open(family)
	if err != nil {
		return Table{}, err
	}
	defer s.close()
	return s.read(name)
}

// priorities are the priorities of the hooks of legacy tables
// (linux/netfilter_ipv4.h).
var priorities = map[string]int32{"raw": -300, "mangle": -150, "filter": 0, "security": 50}

// describe returns the table in the terms of nf_tables.
func (t *Table) describe(family nft.Family) (Contents, error) {
	out := Contents{Name: t.name, Family: family, Chains: make(map[string][]nft.Rule)}
	starts := t.starts()
	for _, chain := range t.chains {
		rules := make([]nft.Rule, 0, chain.last-chain.first)
		for _, e := range t.entries[chain.first:chain.last] {
			rule, err := t.expressions(family, e, starts)
			if err != nil {
				return out, fmt.Errorf("chain %s: %w", chain.name, err)
			}
			rules = append(rules, nft.Rule{Expressions: rule})
		}
		out.Chains[chain.name] = rules
		if hook := t.hookAt(t.entries[chain.first].at); hook >= 0 {
			out.Base = append(out.Base, t.base(chain, hook))
		}
	}
	return out, nil
}

func (t *Table) base(chain chain, hook int) nft.FoundChain {
	typ := nft.ChainTypeFilter
	if t.name == "nat" {
		typ = nft.ChainTypeNAT
	}
	policy := uint32(nft.PolicyAccept)
	if v, _ := t.verdict(t.entries[chain.last]); v == verdictDrop {
		policy = nft.PolicyDrop
	}
	return nft.FoundChain{
		Name: chain.name, Policy: policy,
		Hook: &nft.Hook{Type: typ, Point: nft.HookPoint(hook), Priority: priorities[t.name]},
	}
}

// Verdicts in standard targets: -1 minus the number of linux/netfilter.h.
const (
	verdictDrop   = -1
	verdictAccept = -2
	verdictReturn = -5
)

// entryLayout has offsets in the entries of a family: struct ipt_entry and
// ip6t_entry.
type entryLayout struct {
	addrLen                 int
	source, sourceMask      int
	dest, destMask          int
	in, inMask              int
	out, outMask            int
	protocol, flags, invert int
	gotoFlag                byte
	other                   byte // flags whose meaning is not translated
	matches                 int
	payloadSource           uint32 // in the header of a packet
	payloadDest             uint32
}

// Flags of inverted matches, which are the same for both families.
const (
	invertIn       = 0x01
	invertOut      = 0x02
	invertSource   = 0x08
	invertDest     = 0x10
	invertProtocol = 0x40
)

func layoutOf(family nft.Family) entryLayout {
	if family == nft.IPv6 {
		return entryLayout{
			addrLen: 16, source: 0, dest: 16, sourceMask: 32, destMask: 48, in: 64, out: 80, inMask: 96, outMask: 112,
			protocol: 128, flags: 131, invert: 132, gotoFlag: 0x04, other: 0x02, matches: 168,
			payloadSource: 8, payloadDest: 24,
		}
	}
	return entryLayout{
		addrLen: 4, source: 0, dest: 4, sourceMask: 8, destMask: 12, in: 16, out: 32, inMask: 48, outMask: 64,
		protocol: 80, flags: 82, invert: 83, gotoFlag: 0x02, other: 0x01, matches: 112,
		payloadSource: 12, payloadDest: 16,
	}
}

// expressions returns a rule as expressions. starts are the names of chains by
// the offset of their first rule.
func (t *Table) expressions(family nft.Family, e entry, starts map[int]string) ([]expr.Any, error) {
	l, data := layoutOf(family), t.data[e.at:e.next]
	if len(data) < l.matches || e.target-e.at < l.matches {
		return nil, errEntries
	}
	invert := data[l.invert]
	var rule []expr.Any
	rule = matchName(rule, expr.MetaKeyIIFNAME, data[l.in:], data[l.inMask:], invert&invertIn != 0)
	rule = matchName(rule, expr.MetaKeyOIFNAME, data[l.out:], data[l.outMask:], invert&invertOut != 0)
	rule = l.matchAddr(rule, data[l.source:], data[l.sourceMask:], l.payloadSource, invert&invertSource != 0)
	rule = l.matchAddr(rule, data[l.dest:], data[l.destMask:], l.payloadDest, invert&invertDest != 0)
	if protocol := data[l.protocol]; protocol != 0 {
		rule = append(rule, &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: unix.NFT_REG_1},
			&expr.Cmp{Op: operator(invert&invertProtocol != 0), Register: unix.NFT_REG_1, Data: []byte{protocol}})
	}
	if data[l.flags]&l.other != 0 {
		rule = append(rule, &nft.UnknownExpression{Name: "limit"}) // fragments, type of service
	}
	rule, err := matchExtensions(rule, data[l.matches:e.target-e.at])
	if err != nil {
		return nil, err
	}
	return t.appendTarget(rule, e, data[l.flags]&l.gotoFlag != 0, starts)
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

func (l *entryLayout) matchAddr(rule []expr.Any, addr, mask []byte, offset uint32, invert bool) []expr.Any {
	addr, mask = bytes.Clone(addr[:l.addrLen]), bytes.Clone(mask[:l.addrLen])
	zero := make([]byte, l.addrLen)
	if bytes.Equal(mask, zero) {
		return rule
	}
	size := uint32(l.addrLen)
	return append(rule,
		&expr.Payload{Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size, DestRegister: unix.NFT_REG_1},
		&expr.Bitwise{
			SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, Len: size, Mask: mask, Xor: zero,
		},
		&expr.Cmp{Op: operator(invert), Register: unix.NFT_REG_1, Data: addr})
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
		Target: target, Name: nfnetlink.CString(data[matchNameAt:matchRevisionAt]),
		Revision: uint32(data[matchRevisionAt]),
		Data:     bytes.Clone(data[matchDataAt:]),
	}
}

// appendTarget appends the target of an entry.
func (t *Table) appendTarget(
	rule []expr.Any, e entry, isGoto bool, starts map[int]string,
) ([]expr.Any, error) {
	verdict, standard := t.verdict(e)
	switch {
	case !standard:
		return append(rule, extension(t.data[e.target:e.next], true)), nil
	case verdict == e.next: // no target
		return rule, nil
	case verdict == verdictDrop:
		return append(rule, &expr.Verdict{Kind: expr.VerdictDrop}), nil
	case verdict == verdictAccept:
		return append(rule, &expr.Verdict{Kind: expr.VerdictAccept}), nil
	case verdict == verdictReturn:
		return append(rule, &expr.Verdict{Kind: expr.VerdictReturn}), nil
	case verdict < 0:
		return append(rule, &nft.UnknownExpression{Name: "queue"}), nil
	}
	chain, ok := starts[verdict]
	if !ok {
		return nil, fmt.Errorf("%w: a rule jumps to %d, which is not a chain", errEntries, verdict)
	}
	kind := expr.VerdictJump
	if isGoto {
		kind = expr.VerdictGoto
	}
	return append(rule, &expr.Verdict{Kind: expr.VerdictKind(kind), Chain: chain}), nil
}
