package walk

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// evaluate runs an expression for a path, and moves the path on.
func (w *Walk) evaluate(p *Path, e expr.Any) error {
	switch e := e.(type) {
	case *expr.Payload:
		p.payload(e)
	case *expr.Meta:
		w.meta(p, e)
	case *expr.Ct:
		p.connection(e)
	case *expr.Fib:
		p.load(e.Register, slotBytes, w.fib(&p.Packet, e))
	case *expr.Immediate:
		p.load(e.Register, len(e.Data), known(e.Data))
	case *expr.Numgen:
		p.load(e.Register, slotBytes, number(e))
	case *expr.Hash:
		p.load(e.DestRegister, slotBytes, p.hash(e))
	case *expr.Bitwise:
		p.load(e.DestRegister, int(e.Len), p.bitwise(e))
	case *expr.Cmp:
		w.compare(p, e)
	case *expr.Range:
		v := p.value(e.Register, len(e.FromData))
		within := bytes.Compare(v.bytes, e.FromData) >= 0 && bytes.Compare(v.bytes, e.ToData) <= 0
		w.decide(p, within == (e.Op == expr.CmpOpEq), v.unknown)
	case *expr.Lookup:
		return w.lookup(p, e)
	default:
		w.conclude(p, e)
	}
	return nil
}

// load writes a value of this size, or a longer one, into a register.
func (p *Path) load(register uint32, size int, v value) {
	p.store(register, max(size, len(v.bytes)), v)
	p.next()
}

// payload loads a header field. A rule that writes one changes what later rules
// match, which is not known.
func (p *Path) payload(e *expr.Payload) {
	if e.OperationType == expr.PayloadLoad {
		p.load(e.DestRegister, int(e.Len), p.Packet.header(e))
		return
	}
	p.doubt(fmt.Errorf("a change of header %d is unknown", e.Base))
	p.next()
}

// connection loads information about the connection, or sets it.
func (p *Path) connection(e *expr.Ct) {
	switch {
	case e.SourceRegister:
		p.next()
		return
	case p.Packet.Untracked && e.Key != expr.CtKeySTATE:
		p.nextRule() // no connection, so no match
		return
	}
	p.load(e.Register, slotBytes, p.Packet.tracked(e.Key))
}

// meta loads information about the packet, or sets it. Only the mark and the
// priority have an effect.
func (w *Walk) meta(p *Path, e *expr.Meta) {
	switch {
	case (e.Key == expr.MetaKeySKUID || e.Key == expr.MetaKeySKGID) && p.Packet.forwarded():
		p.nextRule() // no socket, so no match
		return
	case !e.SourceRegister:
		p.load(e.Register, slotBytes, w.metaValue(&p.Packet, e.Key))
		return
	}
	v := p.value(e.Register, slotBytes)
	switch e.Key {
	case expr.MetaKeyMARK:
		p.mark(v)
	case expr.MetaKeyPRIORITY:
		if d, random := v.unknown.(draw); random && d.mod <= maxDrawn {
			w.draw(p, d)
			return
		}
		p.Packet.PriorityUnknown = v.unknown != nil
		if p.Packet.Priority = 0; v.unknown == nil {
			p.Packet.Priority = binary.NativeEndian.Uint32(v.bytes)
		}
	}
	p.next()
}

// setMark sets the bits of a mask, as -j MARK --set-xmark of iptables does
// (struct xt_mark_tginfo2).
func (p *Path) setMark(mark, mask uint32) {
	if p.Packet.MarkUnknown && mask != 1<<32-1 {
		return
	}
	p.mark(known(hostBytes(p.Packet.Mark&^mask ^ mark)))
}

// mark sets the mark of the packet.
func (p *Path) mark(v value) {
	if p.Packet.MarkUnknown = v.unknown != nil; p.Packet.MarkUnknown {
		return
	}
	mark := binary.NativeEndian.Uint32(v.bytes)
	if mark&^p.Packet.Mark != 0 {
		p.Marked = p.step
	}
	p.Packet.Mark = mark
}

// bitwise returns the result of a bitwise expression with a mask.
func (p *Path) bitwise(e *expr.Bitwise) value {
	v := p.value(e.SourceRegister, int(e.Len))
	switch {
	case v.unknown != nil:
		return unknown("%v", v.unknown) // not a draw
	case len(e.Mask) != len(v.bytes) || len(e.Xor) != len(v.bytes):
		return unknown("bitwise expression %+v is unknown", *e)
	}
	result := make([]byte, len(v.bytes))
	for i, b := range v.bytes {
		result[i] = b&e.Mask[i] ^ e.Xor[i]
	}
	return known(result)
}

// compare compares a value with a constant. A comparison of a random number,
// such as `numgen random mod 3 0`, splits the path.
func (w *Walk) compare(p *Path, e *expr.Cmp) {
	v := p.value(e.Register, len(e.Data))
	if d, random := v.unknown.(draw); random && e.Op == expr.CmpOpEq && len(e.Data) == slotBytes {
		w.split(p, d.chance(binary.NativeEndian.Uint32(e.Data)))
		return
	}
	if v.unknown == errNewIndex || v.unknown == ErrNewInterface && len(e.Data) == unix.IFNAMSIZ {
		v = known(make([]byte, len(e.Data))) // of no interface
	}
	w.decide(p, holds(bytes.Compare(v.bytes, e.Data), e.Op), v.unknown)
}

// holds reports whether a comparison with this result matches.
func holds(result int, op expr.CmpOp) bool {
	switch op {
	case expr.CmpOpEq:
		return result == 0
	case expr.CmpOpNeq:
		return result != 0
	case expr.CmpOpLt:
		return result < 0
	case expr.CmpOpLte:
		return result <= 0
	case expr.CmpOpGt:
		return result > 0
	}
	return result >= 0
}

// maxDrawn is the largest number of values of a random number that are tried.
const maxDrawn = 1 << 17

// lookup looks a key up in a set. A random number in the key is drawn first.
func (w *Walk) lookup(p *Path, e *expr.Lookup) error {
	set, err := w.table.Set(e.SetName)
	if err != nil {
		w.anyRow(p, e, err)
		return nil
	}
	v := p.value(e.SourceRegister, set.Key.Size())
	if d, random := v.unknown.(draw); random && d.mod <= maxDrawn {
		w.draw(p, d)
		return nil
	}
	if v.unknown != nil {
		w.anyRow(p, e, v.unknown)
		return nil
	}
	key := nft.Row{Set: set, Key: nft.Tuple{}.Raw(v.bytes)}
	row, err := w.table.Row(set, key.Key)
	if err != nil {
		return err
	}
	p.step.add(Lookup{key, row})
	switch found := row.Set != nil; {
	case found == e.Invert:
		p.nextRule()
	case found:
		w.use(p, e, row)
	default:
		p.next()
	}
	return nil
}

// anyRow continues a path after a lookup whose key or set is not known. The
// verdicts of unknown rows are not followed.
func (w *Walk) anyRow(p *Path, e *expr.Lookup, reason error) {
	if e.IsDestRegSet {
		p.forget(reason)
	}
	w.decide(p, false, reason)
}

// use continues a path with the row that it found.
func (w *Walk) use(p *Path, e *expr.Lookup, row nft.Row) {
	p.Rows = append(p.Rows, row)
	switch {
	case !e.IsDestRegSet:
		p.next()
	case e.DestRegister == unix.NFT_REG_VERDICT:
		w.follow(p, row.Verdict)
	default:
		data := row.Data.Bytes()
		p.load(e.DestRegister, len(data), known(data))
	}
}

// conclude runs an expression that neither loads nor compares a value. A set to
// which a rule adds the packet is not full.
func (w *Walk) conclude(p *Path, e expr.Any) {
	switch e := e.(type) {
	case *expr.Verdict:
		w.follow(p, nft.VerdictOf(e))
	case *expr.Reject:
		p.finish(Rejected)
	case *expr.NAT:
		w.translate(p, e)
	case *expr.Masq:
		p.finish(Accepted)
	case *expr.Counter:
		p.next()
	case *expr.Objref:
		w.object(p, e)
	case *expr.Dynset:
		p.Updated = append(p.Updated, e.SetName)
		var reason error
		if len(e.Exprs) > 0 || e.Invert { // such as a limit of the row
			reason = fmt.Errorf("the state of set %s is unknown", e.SetName)
		}
		w.decide(p, true, reason)
	case *expr.Limit:
		text := nft.NewRule(nft.Statement{e}).Text(p.Packet.family())
		w.decide(p, true, fmt.Errorf("the state of %q is unknown", text))
	case *expr.Queue:
		p.finish(Queued)
	case *nft.Extension:
		w.extension(p, e)
	case *nft.UnknownExpression:
		w.undecoded(p, e.Name, fmt.Errorf("expression %q is unknown", e.Name))
	default:
		w.anything(p, fmt.Errorf("expression %T is unknown", e))
	}
}

// object applies a named object to the packet.
func (w *Walk) object(p *Path, e *expr.Objref) {
	var reason error
	switch e.Type {
	case unix.NFT_OBJECT_COUNTER:
		p.Counter = e.Name
	case unix.NFT_OBJECT_CT_TIMEOUT: // which every packet passes
	default: // such as a quota
		reason = fmt.Errorf("object %s of type %d is unknown", e.Name, e.Type)
	}
	w.decide(p, true, reason)
}

// anything continues a path after an expression that can match or not, and that
// can have written a register.
func (w *Walk) anything(p *Path, reason error) {
	p.forget(reason)
	w.decide(p, true, reason)
}

// follow applies a verdict of the rule at which the path is.
func (w *Walk) follow(p *Path, v nft.Verdict) {
	switch {
	case v == nft.VerdictContinue:
		p.next()
	case v == nft.VerdictBreak:
		p.nextRule()
	case v == nft.VerdictQueue:
		p.finish(Queued)
	case v == nft.VerdictAccept:
		p.finish(Accepted)
	case v == nft.VerdictReturn:
		p.matched()
		p.back()
	case v.Chain() == "":
		p.finish(Dropped)
	default:
		p.matched()
		if v == nft.VerdictJump(v.Chain()) {
			p.callers = append(p.callers, p.at)
		}
		p.enter(v.Chain())
	}
}

// translate ends a path with the translation of the destination or source.
func (w *Walk) translate(p *Path, e *expr.NAT) {
	p.finish(Accepted)
	single := (e.RegAddrMax == e.RegAddrMin || e.RegAddrMax == 0) &&
		(e.RegProtoMax == e.RegProtoMin || e.RegProtoMax == 0)
	addr := p.value(e.RegAddrMin, p.Packet.Destination.Addr().BitLen()/8)
	port := p.value(e.RegProtoMin, 2)
	if e.Type != expr.NATTypeDestNAT || !single || addr.unknown != nil || port.unknown != nil {
		p.doubt(fmt.Errorf("nat expression %+v is unknown", *e))
		return
	}
	to, _ := netip.AddrFromSlice(addr.bytes)
	p.End.To = netip.AddrPortFrom(to, binary.BigEndian.Uint16(port.bytes))
}
