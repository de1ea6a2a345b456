package explain

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/big"
	"net/netip"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// evaluate runs an expression for a path, and moves the path on.
func (m *machine) evaluate(p *path, e expr.Any, by place) error {
	if m.other != nil {
		if done := m.evaluateOther(p, e, by); done {
			return nil
		}
	}
	switch e := e.(type) {
	case *expr.Payload:
		value, err := p.packet.payload(e)
		return p.loaded(e.DestRegister, value, err)
	case *expr.Meta:
		return m.meta(p, e, by)
	case *expr.Ct:
		value, err := p.packet.connection(e.Key)
		return p.loaded(e.Register, value, err)
	case *expr.Fib:
		value, err := m.fib(p, e)
		return p.loaded(e.Register, value, err)
	case *expr.Immediate:
		return p.loaded(e.Register, e.Data, nil)
	case *expr.Numgen:
		return p.numgen(e)
	case *expr.Bitwise:
		return p.bitwise(e)
	case *expr.Cmp:
		return m.compare(p, e)
	case *expr.Lookup:
		return m.lookup(p, e, by)
	case *expr.Dynset:
		p.recorded = true // the set is not full
		p.next()
		return nil
	case *expr.Counter:
		p.next()
		return nil
	case *expr.Objref:
		p.counted = e.Name
		p.next()
		return nil
	}
	return m.conclude(p, e, by)
}

// conclude runs an expression that ends a rule.
func (m *machine) conclude(p *path, e expr.Any, by place) error {
	var err error
	switch e := e.(type) {
	case *expr.Verdict:
		m.walk.matched(p)
		p.follow(verdictOf(e), by)
		return nil
	case *expr.Reject:
		p.end.rejectWith, err = rejection(p.packet.family, e)
		p.end.action = rejected
	case *expr.NAT:
		p.end.to, err = p.translation(e)
		p.end.action = accepted
	case *expr.Masq:
		p.end.masquerading = &by
		if p.marked != nil {
			p.end.masquerading = p.marked
		}
		p.end.action = accepted
	default:
		err = fmt.Errorf("expression %q is unknown", nft.Rule{Expressions: []expr.Any{e}}.Text(p.packet.family))
	}
	p.end.by = by
	m.walk.matched(p)
	return err
}

// loaded stores the value that an expression loads.
func (p *path) loaded(register uint32, value []byte, err error) error {
	if err == nil {
		err = p.store(register, value)
	}
	p.next()
	return err
}

func (m *machine) meta(p *path, e *expr.Meta, by place) error {
	if e.SourceRegister {
		return p.setMark(e, by)
	}
	switch e.Key {
	case expr.MetaKeyL4PROTO:
		return p.loaded(e.Register, []byte{p.packet.protocol}, nil)
	case expr.MetaKeyNFPROTO:
		return p.loaded(e.Register, []byte{byte(p.packet.family)}, nil)
	case expr.MetaKeyMARK:
		return p.loaded(e.Register, hostBytes(p.packet.mark), nil)
	case expr.MetaKeyIIFNAME:
		name, err := m.iif()
		return p.loaded(e.Register, interfaceName(name), err)
	}
	return fmt.Errorf("meta key %d is unknown", e.Key)
}

func (p *path) setMark(e *expr.Meta, by place) error {
	if e.Key != expr.MetaKeyMARK {
		return fmt.Errorf("setting meta key %d is unknown", e.Key)
	}
	value, err := p.load(e.Register, slotBytes)
	if err != nil {
		return err
	}
	mark := binary.NativeEndian.Uint32(value)
	if mark&^p.packet.mark != 0 {
		p.marked = &by
	}
	p.packet.mark = mark
	p.next()
	return nil
}

func (m *machine) fib(p *path, e *expr.Fib) ([]byte, error) {
	if !e.ResultADDRTYPE || e.FlagIIF || e.FlagOIF || e.FlagMARK || e.FlagSADDR == e.FlagDADDR {
		return nil, fmt.Errorf("fib expression %+v is unknown", *e)
	}
	addr := p.packet.dest
	if e.FlagSADDR {
		addr = p.packet.source
	}
	typ, err := m.routes.RouteType(addr)
	return hostBytes(typ), err
}

// numgen stores a number. One that is drawn in turn is as likely as a random
// one.
func (p *path) numgen(e *expr.Numgen) error {
	if e.Modulus <= 1 {
		return p.loaded(e.Register, hostBytes(e.Offset), nil)
	}
	p.next()
	return p.storeRandom(e.Register, drawn{e.Modulus, e.Offset})
}

func (p *path) bitwise(e *expr.Bitwise) error {
	value, err := p.load(e.SourceRegister, int(e.Len))
	if err != nil {
		return err
	}
	if len(e.Mask) != len(value) || len(e.Xor) != len(value) {
		return fmt.Errorf("bitwise expression %+v is unknown", *e)
	}
	result := make([]byte, len(value))
	for i := range value {
		result[i] = value[i]&e.Mask[i] ^ e.Xor[i]
	}
	return p.loaded(e.DestRegister, result, nil)
}

func (m *machine) compare(p *path, e *expr.Cmp) error {
	_, random, err := p.drawnIn(e.Register, len(e.Data))
	if err != nil {
		return err
	}
	if random.mod != 0 {
		return m.compareRandom(p, e, random)
	}
	value, err := p.load(e.Register, len(e.Data))
	if err != nil {
		return err
	}
	match, err := holds(bytes.Compare(value, e.Data), e.Op)
	if err != nil {
		return err
	}
	if match {
		p.next()
	} else {
		p.nextRule()
	}
	return nil
}

// holds reports whether a comparison with this result matches.
func holds(result int, op expr.CmpOp) (bool, error) {
	switch op {
	case expr.CmpOpEq:
		return result == 0, nil
	case expr.CmpOpNeq:
		return result != 0, nil
	case expr.CmpOpLt:
		return result < 0, nil
	case expr.CmpOpLte:
		return result <= 0, nil
	case expr.CmpOpGt:
		return result > 0, nil
	case expr.CmpOpGte:
		return result >= 0, nil
	}
	return false, fmt.Errorf("operator %d is unknown", op)
}

// compareRandom splits a path at `numgen random mod 3 0`.
func (m *machine) compareRandom(p *path, e *expr.Cmp, n drawn) error {
	if e.Op != expr.CmpOpEq || len(e.Data) != slotBytes {
		return fmt.Errorf("comparison of a random number with operator %d is unknown", e.Op)
	}
	if v := binary.NativeEndian.Uint32(e.Data); v < n.offset || v >= n.offset+n.mod {
		p.nextRule()
		return nil
	}
	m.split(p, big.NewRat(1, int64(n.mod)))
	return nil
}

func (m *machine) lookup(p *path, e *expr.Lookup, by place) error {
	set, err := m.set(e.SetName)
	if err != nil {
		return err
	}
	slot, random, err := p.drawnIn(e.SourceRegister, set.Key.Size())
	if err != nil {
		return err
	}
	if random.mod != 0 {
		m.draw(p, slot, random)
		return nil
	}
	value, err := p.load(e.SourceRegister, set.Key.Size())
	if err != nil {
		return err
	}
	key := nft.Tuple{}.Raw(value)
	row, err := m.table.Row(set, key)
	if err != nil {
		return err
	}
	m.walk.lookup(p, nft.Row{Set: set, Key: key}, row)
	found := row.Set != nil
	if found == e.Invert {
		p.nextRule()
		return nil
	}
	if found {
		return m.use(p, e, row, by)
	}
	p.next()
	return nil
}

// use continues a path with the row that it found.
func (m *machine) use(p *path, e *expr.Lookup, row nft.Row, by place) error {
	p.known = p.known || row.Set.Dynamic
	p.rows = append(p.rows, row)
	switch {
	case e.IsDestRegSet && e.DestRegister == unix.NFT_REG_VERDICT:
		m.walk.matched(p)
		p.follow(row.Verdict, by)
		return nil
	case e.IsDestRegSet:
		return p.loaded(e.DestRegister, row.Data.Bytes(), nil)
	}
	p.next()
	return nil
}

func verdictOf(e *expr.Verdict) nft.Verdict {
	switch e.Kind {
	case expr.VerdictAccept:
		return nft.VerdictAccept
	case expr.VerdictReturn:
		return nft.VerdictReturn
	case expr.VerdictGoto:
		return nft.VerdictGoto(e.Chain)
	case expr.VerdictJump:
		return nft.VerdictJump(e.Chain)
	}
	return nft.VerdictDrop
}

// translation returns the address and port to which a nat expression translates
// the destination.
func (p *path) translation(e *expr.NAT) (netip.AddrPort, error) {
	single := (e.RegAddrMax == e.RegAddrMin || e.RegAddrMax == 0) && (e.RegProtoMax == e.RegProtoMin || e.RegProtoMax == 0)
	if e.Type != expr.NATTypeDestNAT || !single || e.RegProtoMin == 0 {
		return netip.AddrPort{}, fmt.Errorf("nat expression %+v is unknown", *e)
	}
	addr, err := p.load(e.RegAddrMin, p.packet.dest.BitLen()/8)
	if err != nil {
		return netip.AddrPort{}, err
	}
	port, err := p.load(e.RegProtoMin, 2)
	if err != nil {
		return netip.AddrPort{}, err
	}
	to, _ := netip.AddrFromSlice(addr)
	return netip.AddrPortFrom(to, binary.BigEndian.Uint16(port)), nil
}

// rejection returns the answer to a rejected packet.
func rejection(f nft.Family, e *expr.Reject) (string, error) {
	const portUnreachable, portUnreachable6 = 3, 4 // linux/icmp.h, linux/icmpv6.h
	switch {
	case e.Type == unix.NFT_REJECT_TCP_RST:
		return "TCP reset", nil
	case e.Type != unix.NFT_REJECT_ICMP_UNREACH:
		return "", fmt.Errorf("reject type %d is unknown", e.Type)
	case f == nft.IPv4 && e.Code == portUnreachable, f == nft.IPv6 && e.Code == portUnreachable6:
		return "ICMP port unreachable", nil
	}
	return fmt.Sprintf("ICMP unreachable, code %d", e.Code), nil
}
