package explain

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// passage is what the rules of other tables can ask about a packet, in addition
// to what the rules of the proxy ask.
type passage struct {
	iif, oif string // the names of its interfaces, "" for none, unknownName
	// reply is set for an answer to the client. The port of the packet is then
	// that of its source.
	reply bool
	// later is set for packets of the client after the first answer.
	later bool
	// anyMark is set if the mark is not known.
	anyMark bool
}

// unknownName is the name of an interface that is not known.
const unknownName = "?"

// otherRules is the state of a walk through a chain of another program. Its
// rules can depend on facts that are not known. There the path forks.
type otherRules struct {
	index func(name string) (uint32, bool) // of an interface
	seen  map[junction]bool
}

// junction is a state of a path at the beginning of a rule. Two paths in the
// same state have the same future.
type junction struct {
	at      position
	callers string
	packet  packet
}

// merged is the fate of a path that reached the same state as another one.
const merged action = "merged"

// merge ends the path if another one was in the same state. This bounds the
// number of paths.
func (o *otherRules) merge(p *path) bool {
	var callers []byte
	for _, c := range p.callers {
		callers = append(callers, c.chain...)
		callers = binary.BigEndian.AppendUint32(append(callers, 0), uint32(c.rule))
	}
	j := junction{p.at, string(callers), p.packet}
	if o.seen[j] {
		p.end.action = merged
		return true
	}
	o.seen[j] = true
	return false
}

// unknownValue marks a register slot whose value is not known.
func unknownValue() drawn { return drawn{mod: math.MaxUint32} }

// forget makes the value of a register unknown.
func (p *path) forget(register uint32, size int) {
	size = max(slots(size), 1)
	if at, err := registerAt(register, size*slotBytes); err == nil {
		for i := range size {
			p.random[at/slotBytes+i] = unknownValue()
		}
	}
}

// forgetAll makes the values of all registers unknown.
func (p *path) forgetAll() {
	for i := range p.random {
		p.random[i] = unknownValue()
	}
}

// either continues with the next expression and, as another path, with the next
// rule.
func (m *machine) either(p *path) {
	rest := *p
	rest.callers, rest.rows = slices.Clone(p.callers), slices.Clone(p.rows)
	rest.nextRule()
	p.next()
	m.waiting[len(m.waiting)-1] = &rest
	m.waiting = append(m.waiting, p)
}

// decide continues after an expression that matches or not.
func (m *machine) decide(p *path, matches, known bool) {
	switch {
	case !known:
		m.either(p)
	case matches:
		p.next()
	default:
		p.nextRule()
	}
}

// evaluateOther runs an expression of another program's rule. done is false for
// expressions that evaluate runs like those of the proxy.
func (m *machine) evaluateOther(p *path, e expr.Any, by place) (done bool) {
	switch e := e.(type) {
	case *expr.Payload:
		p.loadOther(e.DestRegister, int(e.Len), func() ([]byte, bool) { return p.packet.header(e) })
	case *expr.Meta:
		m.metaOther(p, e)
	case *expr.Ct:
		p.loadOther(e.Register, slotBytes, func() ([]byte, bool) { return p.packet.tracked(e.Key) })
	case *expr.Fib:
		p.loadOther(e.Register, slotBytes, func() ([]byte, bool) { return m.fibOther(p, e) })
	case *expr.Numgen:
		p.forget(e.Register, slotBytes)
		p.next()
	case *expr.Immediate:
		return false
	case *expr.Bitwise:
		return m.bitwiseOther(p, e)
	case *expr.Cmp:
		return m.unlessKnown(p, e.Register, len(e.Data))
	case *expr.Range:
		m.rangeOther(p, e)
	case *expr.Lookup:
		return m.lookupOther(p, e)
	default:
		return m.concludeOther(p, e, by)
	}
	return true
}

// concludeOther is evaluateOther for expressions that load and compare nothing.
func (m *machine) concludeOther(p *path, e expr.Any, by place) (done bool) {
	switch e := e.(type) {
	case *expr.Verdict:
		return m.verdictOther(p, e)
	case *expr.Reject:
		p.end = ending{action: rejected, by: by}
	case *expr.NAT, *expr.Masq:
		p.end = ending{action: accepted, by: by}
	case *expr.Counter:
		p.next()
	case *expr.Objref:
		m.decide(p, true, e.Type == unix.NFT_OBJECT_COUNTER)
	case *expr.Dynset: // a full set, or a limit of the row, does not match
		m.either(p)
	case *nft.Extension:
		m.extension(p, e, by)
	case *nft.UnknownExpression:
		m.unknownExpression(p, e, by)
	default:
		p.forgetAll()
		m.either(p)
	}
	return true
}

// verdictOther runs the verdicts that the proxy does not use. done is false for
// others.
func (m *machine) verdictOther(p *path, e *expr.Verdict) (done bool) {
	const queue = 3 // NF_QUEUE of linux/netfilter.h; the number of the queue is above it
	switch {
	case e.Kind == unix.NFT_CONTINUE:
		p.next()
	case e.Kind == unix.NFT_BREAK:
		p.nextRule()
	case e.Kind > 0 && e.Kind&0xff == queue:
		m.either(p) // another program decides
	default:
		return false
	}
	return true
}

func (m *machine) unknownExpression(p *path, e *nft.UnknownExpression, by place) {
	switch e.Name {
	case "log", "notrack", "dup", "flow_offload", "last", "secmark":
		p.next()
	case "redir", "tproxy", "fwd", "synproxy":
		p.end = ending{action: accepted, by: by}
	case "limit", "quota", "connlimit", "queue":
		m.either(p)
	default: // it may have written a register
		p.forgetAll()
		m.either(p)
	}
}

// loadOther stores a value in a register, or makes it unknown.
func (p *path) loadOther(register uint32, size int, value func() ([]byte, bool)) {
	v, ok := value()
	if !ok || p.store(register, v) != nil {
		p.forget(register, size)
	}
	p.next()
}

// clientPort is the source port of the connection: one that clients use.
const clientPort = 40000

// ports returns the source port and the destination port.
func (p *packet) ports() (source, dest uint16) {
	if p.reply {
		return p.port, clientPort
	}
	return clientPort, p.port
}

// Flags of TCP.
const (
	tcpFlagsAt = 13
	tcpSYN     = 0x02
	tcpACK     = 0x10
)

// tcpFlags returns the flags of a packet of the client.
func (p *packet) tcpFlags() byte {
	if p.later {
		return tcpACK
	}
	return tcpSYN
}

// established reports whether the connection has an answer.
func (p *packet) established() bool { return p.reply || p.later }

// header returns the value of a header field.
func (p *packet) header(e *expr.Payload) ([]byte, bool) {
	transport := e.Base == expr.PayloadBaseTransportHeader
	switch {
	case e.OperationType != expr.PayloadLoad:
		return nil, false
	case transport && e.Offset+e.Len <= 4:
		source, dest := p.ports()
		ports := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, source), dest)
		return ports[e.Offset : e.Offset+e.Len], true
	case transport && p.protocol == unix.IPPROTO_TCP && e.Offset == tcpFlagsAt && e.Len == 1:
		return []byte{p.tcpFlags()}, !p.reply
	case transport:
		return nil, false
	}
	v, err := p.payload(e)
	return v, err == nil
}

// metaOther loads or sets information about the packet.
func (m *machine) metaOther(p *path, e *expr.Meta) {
	if e.SourceRegister {
		p.packet.anyMark = p.packet.anyMark || e.Key == expr.MetaKeyMARK
		p.next()
		return
	}
	size := slotBytes
	if e.Key == expr.MetaKeyIIFNAME || e.Key == expr.MetaKeyOIFNAME {
		size = unix.IFNAMSIZ
	}
	p.loadOther(e.Register, size, func() ([]byte, bool) { return m.metaValue(&p.packet, e.Key) })
}

func (m *machine) metaValue(p *packet, key expr.MetaKey) ([]byte, bool) {
	switch key {
	case expr.MetaKeyL4PROTO:
		return []byte{p.protocol}, true
	case expr.MetaKeyNFPROTO:
		return []byte{byte(p.family)}, true
	case expr.MetaKeyMARK:
		return hostBytes(p.mark), !p.anyMark
	case expr.MetaKeyIIFNAME:
		return interfaceName(p.iif), p.iif != unknownName
	case expr.MetaKeyOIFNAME:
		return interfaceName(p.oif), p.oif != unknownName
	case expr.MetaKeyIIF:
		return m.interfaceIndex(p.iif)
	case expr.MetaKeyOIF:
		return m.interfaceIndex(p.oif)
	}
	return nil, false
}

func (m *machine) interfaceIndex(name string) ([]byte, bool) {
	if name == "" {
		return hostBytes(0), true
	}
	index, ok := m.other.index(name)
	return hostBytes(index), ok
}

// States and status bits of connections
// (linux/netfilter/nf_conntrack_common.h).
const (
	ctStateEstablished = 1 << 1
	ctStatusSeenReply  = 1 << 1
)

// tracked returns information about the connection.
func (p *packet) tracked(key expr.CtKey) ([]byte, bool) {
	switch key {
	case expr.CtKeySTATE:
		return hostBytes(p.connState()), true
	case expr.CtKeySTATUS:
		return hostBytes(p.connStatus()), true
	case expr.CtKeyDIRECTION:
		if p.reply {
			return []byte{1}, true
		}
		return []byte{0}, true
	}
	return nil, false
}

func (p *packet) connState() uint32 {
	if p.established() {
		return ctStateEstablished
	}
	return ctStateNew
}

// connStatus returns the status of the connection. Bits that no firewall asks
// for are left out.
func (p *packet) connStatus() (status uint32) {
	if p.translated {
		status |= ctStatusNAT
	}
	if p.established() {
		status |= ctStatusSeenReply
	}
	return status
}

// fibOther returns the type of an address, or the interface of the route to it.
func (m *machine) fibOther(p *path, e *expr.Fib) ([]byte, bool) {
	addr := p.packet.dest
	if e.FlagSADDR {
		addr = p.packet.source
	}
	if e.ResultADDRTYPE && !e.FlagIIF && !e.FlagOIF {
		typ, err := m.routes.RouteType(addr)
		return hostBytes(typ), err == nil
	}
	name, err := m.routes.Interface(addr)
	switch {
	case err != nil || e.FlagOIF:
		return nil, false
	case p.packet.iif == unknownName: // a hypothetical pod: the route to it is not known
		return []byte{1}, e.FlagPRESENT
	case e.FlagIIF && name != p.packet.iif:
		name = "" // no route by this interface, as far as the main route shows
	}
	switch {
	case e.FlagPRESENT && name == "":
		return []byte{0}, true
	case e.FlagPRESENT:
		return []byte{1}, true
	case e.ResultOIF:
		return m.interfaceIndex(name)
	case e.ResultOIFNAME:
		return interfaceName(name), true
	}
	return nil, false
}

// unlessKnown forks the path if a value is not known.
func (m *machine) unlessKnown(p *path, register uint32, size int) (done bool) {
	if _, n, err := p.drawnIn(register, size); err != nil || n.mod != 0 {
		m.either(p)
		return true
	}
	return false
}

func (m *machine) bitwiseOther(p *path, e *expr.Bitwise) (done bool) {
	if _, n, err := p.drawnIn(e.SourceRegister, int(e.Len)); err != nil || n.mod != 0 {
		p.forget(e.DestRegister, int(e.Len))
		p.next()
		return true
	}
	return false
}

func (m *machine) rangeOther(p *path, e *expr.Range) {
	if m.unlessKnown(p, e.Register, len(e.FromData)) {
		return
	}
	value, err := p.load(e.Register, len(e.FromData))
	within := bytes.Compare(value, e.FromData) >= 0 && bytes.Compare(value, e.ToData) <= 0
	m.decide(p, within == (e.Op == expr.CmpOpEq), err == nil)
}

// lookupOther handles lookups whose key or set is not known. done is false for
// others.
func (m *machine) lookupOther(p *path, e *expr.Lookup) (done bool) {
	set, err := m.set(e.SetName)
	known := err == nil
	if known {
		_, n, err := p.drawnIn(e.SourceRegister, set.Key.Size())
		known = err == nil && n.mod == 0
	}
	if known {
		return false
	}
	if e.IsDestRegSet { // any row, or none: the verdicts of unknown rows are not followed
		p.forgetAll()
	}
	m.either(p)
	return true
}
