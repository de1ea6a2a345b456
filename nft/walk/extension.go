package walk

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables/expr"

	"github.com/nftproxy/nftproxy/nft"
)

// extension runs a match or a target of iptables.
func (w *Walk) extension(p *Path, e *nft.Extension) {
	reason := fmt.Errorf("%s of iptables is unknown", e.Name)
	switch {
	case e.Target && e.Name == "MARK" && e.Revision == 2 && len(e.Data) >= 8:
		p.setMark(host32(e.Data), host32(e.Data[4:]))
		p.next()
		return
	case e.Target && e.Name == "CT" && len(e.Data) >= 2 && host16(e.Data)&ctNotrack != 0:
		p.untrack()
		return
	case e.Target:
		w.undecoded(p, e.Name, reason)
		return
	}
	matches, known := w.matchExtension(&p.Packet, e)
	if known {
		reason = nil
	}
	w.decide(p, matches, reason)
}

// ctNotrack is the flag of -j CT --notrack (XT_CT_NOTRACK of
// linux/netfilter/xt_CT.h).
const ctNotrack = 1 << 0

// untrack excludes the packet from connection tracking.
func (p *Path) untrack() {
	p.Packet.Untracked, p.Untracked = true, p.step
	p.next()
}

// translations are the names of expressions, and of targets of iptables, that
// translate or redirect packets.
var translations = []string{"redir", "tproxy", "DNAT", "SNAT", "MASQUERADE", "REDIRECT", "NETMAP", "TPROXY"}

// Translates reports whether a rule can translate or redirect a packet.
func Translates(r nft.Rule) bool {
	return slices.ContainsFunc(r.Expressions, func(e expr.Any) bool {
		switch e := e.(type) {
		case *expr.NAT, *expr.Masq:
			return true
		case *nft.Extension:
			return slices.Contains(translations, e.Name)
		case *nft.UnknownExpression:
			return slices.Contains(translations, e.Name)
		}
		return false
	})
}

// undecoded runs an expression, or a target of iptables, of which only the name
// is decoded.
func (w *Walk) undecoded(p *Path, name string, reason error) {
	if slices.Contains(translations, name) {
		p.finish(Accepted)
		p.doubt(reason)
		return
	}
	switch name {
	case "REJECT":
		p.finish(Rejected)
	case "NFQUEUE", "queue":
		p.finish(Queued)
	case "fwd", "synproxy":
		p.finish(Accepted)
		p.doubt(reason)
	case "MARK", "CONNMARK":
		p.Packet.MarkUnknown = true
		p.next()
	case "notrack", "NOTRACK":
		p.untrack()
	case "log", "dup", "flow_offload", "last", "secmark",
		"LOG", "NFLOG", "ULOG", "TRACE", "CT", "TCPMSS", "CLASSIFY", "DSCP", "TOS", "CHECKSUM", "SET",
		"AUDIT":
		p.next()
	case "limit", "quota", "connlimit":
		w.decide(p, true, reason)
	default: // such as TEE
		w.anything(p, reason)
	}
}

// matchExtension reports whether the packet matches, if that is known.
func (w *Walk) matchExtension(p *Packet, e *nft.Extension) (matches, known bool) {
	switch e.Name {
	case "comment":
		return true, true
	case "rt", "frag", "hbh", "dst", "mh": // the packets have no extension headers of IPv6
		return false, true
	case "state":
		return p.stateMatch(e.Data)
	case "conntrack":
		return p.conntrackMatch(e)
	case "mark":
		return p.markMatch(e)
	case "tcp", "udp":
		return p.portsMatch(e)
	case "multiport":
		return p.multiportMatch(e)
	case "addrtype":
		return w.addrtypeMatch(p, e)
	}
	return false, false
}

func host32(b []byte) uint32 { return binary.NativeEndian.Uint32(b) }

func host16(b []byte) uint16 { return binary.NativeEndian.Uint16(b) }

// States of linux/netfilter/xt_conntrack.h that are none of nf_conntrack.
const (
	xtStateDNAT      = 1 << 7
	xtStateUntracked = 1 << 8 // of `-m conntrack`; `-m state` has the bit of nf_conntrack
)

// stateMatch is `-m state` (struct xt_state_info).
func (p *Packet) stateMatch(data []byte) (matches, known bool) {
	if len(data) < slotBytes {
		return false, false
	}
	return host32(data)&p.connState() != 0, true
}

// conntrackMatch is `-m conntrack` (struct xt_conntrack_mtinfo2 and 3) for
// states and for the status.
func (p *Packet) conntrackMatch(e *nft.Extension) (matches, known bool) {
	const (
		flagsAt, invertAt, stateAt, statusAt, size = 146, 148, 150, 152, 154

		matchState, matchStatus, matchAlias = 1 << 0, 1 << 6, 1 << 13
	)
	if e.Revision < 2 || len(e.Data) < size {
		return false, false
	}
	flags, invert := host16(e.Data[flagsAt:]), host16(e.Data[invertAt:])
	if flags&^(matchState|matchStatus|matchAlias) != 0 {
		return false, false
	}
	state := uint16(p.connState())
	switch {
	case p.Untracked:
		state = xtStateUntracked
	case p.Translated:
		state |= xtStateDNAT
	}
	wrong := func(flag uint16, found bool) bool { return flags&flag != 0 && found == (invert&flag != 0) }
	if wrong(matchState, host16(e.Data[stateAt:])&state != 0) {
		return false, true
	}
	return !wrong(matchStatus, uint32(host16(e.Data[statusAt:]))&p.connStatus() != 0), true
}

// markMatch is `-m mark` (struct xt_mark_mtinfo1).
func (p *Packet) markMatch(e *nft.Extension) (matches, known bool) {
	if e.Revision != 1 || len(e.Data) < 9 || p.MarkUnknown {
		return false, false
	}
	mark, mask, inverted := host32(e.Data), host32(e.Data[4:]), e.Data[8] != 0
	return (p.Mark&mask == mark) != inverted, true
}

// portsMatch is `-m tcp` and `-m udp` (struct xt_tcp, xt_udp).
func (p *Packet) portsMatch(e *nft.Extension) (matches, known bool) {
	const invertSource, invertDest = 1, 2
	invertAt := 8
	if e.Name == "tcp" {
		invertAt = 11
	}
	if len(e.Data) <= invertAt || p.Source.Port() == 0 {
		return false, false
	}
	within := func(port uint16, at int, invert byte) bool {
		found := port >= host16(e.Data[at:]) && port <= host16(e.Data[at+2:])
		return found != (e.Data[invertAt]&invert != 0)
	}
	if !within(p.Source.Port(), 0, invertSource) || !within(p.Destination.Port(), 4, invertDest) {
		return false, true
	}
	if e.Name == "udp" {
		return true, true
	}
	return p.tcpFlagsMatch(e.Data)
}

// tcpFlagsMatch is `-m tcp --tcp-flags` (struct xt_tcp). The option and the
// flags of answers are not decided.
func (p *Packet) tcpFlagsMatch(data []byte) (matches, known bool) {
	const optionAt, maskAt, flagsAt, invertAt, invertFlags = 8, 9, 10, 11, 4
	flags, known := p.tcpFlags()
	mask := data[maskAt]
	matches = mask == 0 || (flags&mask == data[flagsAt]) != (data[invertAt]&invertFlags != 0)
	return matches, data[optionAt] == 0 && (known || mask == 0)
}

// multiportMatch is `-m multiport --sports`, `--dports` and `--ports` (struct
// xt_multiport_v1).
func (p *Packet) multiportMatch(e *nft.Extension) (matches, known bool) {
	const (
		ofSource, ofDest                   = 0, 1
		portsAt, rangesAt, invertAt, limit = 2, 32, 47, 15
	)
	if e.Revision != 1 || len(e.Data) <= invertAt || p.Source.Port() == 0 {
		return false, false
	}
	source, dest := p.Source.Port(), p.Destination.Port()
	port := func(i int) uint16 { return host16(e.Data[portsAt+2*i:]) }
	found := false
	for i := 0; i < int(e.Data[1]) && i < limit; i++ {
		first, last := port(i), port(i)
		if e.Data[rangesAt+i] != 0 && i+1 < limit {
			i++
			last = port(i)
		}
		within := func(n uint16) bool { return n >= first && n <= last }
		found = found || e.Data[0] != ofDest && within(source) || e.Data[0] != ofSource && within(dest)
	}
	return found != (e.Data[invertAt] != 0), true
}

// addrtypeMatch is `-m addrtype` (struct xt_addrtype_info_v1) without
// --limit-iface.
func (w *Walk) addrtypeMatch(p *Packet, e *nft.Extension) (matches, known bool) {
	const invertSource, invertDest = 1, 2
	if e.Revision != 1 || len(e.Data) < 8 || host32(e.Data[4:])&^(invertSource|invertDest) != 0 {
		return false, false
	}
	flags := host32(e.Data[4:])
	is := func(addr netip.Addr, types uint16, invert uint32) bool {
		typ, err := w.host.RouteType(addr)
		known = known && err == nil
		return types == 0 || (types&(1<<typ) != 0) != (flags&invert != 0)
	}
	known = true
	source := is(p.Source.Addr(), host16(e.Data), invertSource)
	dest := is(p.Destination.Addr(), host16(e.Data[2:]), invertDest)
	return source && dest, known
}
