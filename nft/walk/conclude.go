package walk

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

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
