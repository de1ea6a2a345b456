package ruleset

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// Functions of this file encode and decode the keys and the data of rows.

// key returns the fields with which the keys of a frontend's rows begin: the
// VIP, the protocol and the port, or the protocol and the NodePort.
func (f Frontend) key() (key nft.Tuple) {
	if !f.IsNodePort() {
		key = key.Addr(f.Addr)
	}
	return key.Proto(uint8(f.Proto)).Port(f.Port)
}

// data returns the target as the data of a row.
func (t Target) data() nft.Tuple { return nft.Tuple{}.Addr(t.Addr).Port(t.Port) }

// hairpinKey returns the key of the connections of the target to itself.
func (t Target) hairpinKey(p cluster.Protocol) nft.Tuple {
	return nft.Tuple{}.Addr(t.Addr).Addr(t.Addr).Proto(uint8(p)).Port(t.Port)
}

// fields are the fields of a key or of data that are not decoded yet.
type fields struct {
	rest    []byte
	missing bool
}

func fieldsOf(t nft.Tuple) *fields { return &fields{rest: t.Bytes()} }

// next returns the bytes of the next field: zeros if it is missing.
func (f *fields) next(size int) []byte {
	const unit = 4 // the room of a field is a multiple
	room := (size + unit - 1) / unit * unit
	if len(f.rest) < room {
		f.missing = true
		return make([]byte, size)
	}
	field := f.rest[:size]
	f.rest = f.rest[room:]
	return field
}

func (f *fields) addr(family nft.Family) netip.Addr {
	addr, _ := netip.AddrFromSlice(f.next(family.AddrLen()))
	return addr
}

func (f *fields) port() uint16 { return binary.BigEndian.Uint16(f.next(2)) }

// frontend decodes the fields of a VIP or of a NodePort (see Frontend.key).
func (f *fields) frontend(family nft.Family, isVIP bool) (from Frontend) {
	if isVIP {
		from.Addr = f.addr(family)
	}
	from.Proto = cluster.Protocol(f.next(1)[0])
	from.Port = f.port()
	return from
}

// FrontendOf returns the frontend whose service port has the row of a set with
// this key. ok is false if the rows of the set do not belong to frontends.
func (r *Ruleset) FrontendOf(set *nft.Set, key nft.Tuple) (f Frontend, ok bool) {
	l, fields := r.layout, fieldsOf(key)
	isVIP := slices.Contains(l.firewallSources, set) || slices.Contains(l.vips.sets(), set)
	isNodePort := set == l.localhostNodePorts || slices.Contains(l.nodePorts.sets(), set)
	if !isVIP && !isNodePort || set == l.vips.classChains || set == l.nodePorts.classChains {
		return f, false
	}
	f = fields.frontend(l.family, isVIP)
	return f, !fields.missing
}

// SharedAddr returns the address that all rows of a shared set with this key
// are about (see IsShared): a ClusterIP, or the address of an endpoint. ok is
// false if the set is not shared, or if no row has such a key.
func (r *Ruleset) SharedAddr(set *nft.Set, key nft.Tuple) (addr netip.Addr, ok bool) {
	fields := fieldsOf(key)
	addr = fields.addr(r.layout.family)
	if set == r.layout.hairpin { // the same address is source and destination
		return addr, addr == fields.addr(r.layout.family)
	}
	return addr, r.IsShared(set)
}

// TargetOf returns the frontend and the target of a row of OwnSet.
func TargetOf(f nft.Family, row nft.Row) (from Frontend, to netip.AddrPort, ok bool) {
	key, data := fieldsOf(row.Key), fieldsOf(row.Data)
	from = key.frontend(f, true)
	addr := data.addr(f)
	return from, netip.AddrPortFrom(addr, data.port()), !key.missing && !data.missing
}

// NodePortOf returns the NodePort of a row of NodePortSet.
func NodePortOf(row nft.Row) (port uint16, ok bool) {
	key := fieldsOf(row.Key)
	return key.frontend(0, false).Port, !key.missing
}

// ClassRow returns the key of the row that has the class of a frontend. The
// comment of the row in the kernel is the name of its service port.
func (r *Ruleset) ClassRow(f Frontend) nft.Row {
	return nft.Row{Set: r.layout.setsOf(f).classes, Key: f.key()}
}

// ClassOf returns the class that is the data of a row, 0 for a row of another
// set.
func (r *Ruleset) ClassOf(row nft.Row) Class {
	v, n := &r.layout.vips, &r.layout.nodePorts
	switch row.Set {
	case v.classes, v.localClasses, v.allClasses, n.classes, n.localClasses, n.allClasses:
		return classIn(row.Data)
	}
	return 0
}

// BalancerOf returns the class whose row Balancer returns for a key of a set.
// ok is false if the set or the key is another one.
func (r *Ruleset) BalancerOf(set *nft.Set, key nft.Tuple) (c Class, ok bool) {
	l := r.layout
	if set != l.vips.classChains && set != l.nodePorts.classChains && set != l.localClassChains {
		return 0, false
	}
	c = classIn(key)
	return c, c.IsBalancer() && set == l.chainsOf(c)
}

// NumberOf returns the number of the service port that has the row of a set
// with this key, 0 if the rows of the set do not belong to numbers.
func (r *Ruleset) NumberOf(set *nft.Set, key nft.Tuple) uint32 {
	if set != r.layout.portTargets {
		return 0
	}
	return classIn(key).number()
}

// IsIndexed reports whether the keys of a set end with the index of a target.
func (r *Ruleset) IsIndexed(set *nft.Set) bool {
	l := r.layout
	return set == l.vips.targets || set == l.nodePorts.targets || set == l.portTargets
}

// After returns the keys of targets that a row leads to: the first targets of a
// frontend, or the target after another one.
func (r *Ruleset) After(row nft.Row) []nft.Row {
	for _, d := range []*dispatchSets{&r.layout.vips, &r.layout.nodePorts} {
		if row.Set == d.classes {
			return []nft.Row{
				{Set: d.targets, Key: row.Key.Integer(firstIndex)}, {Set: d.targets, Key: row.Key.Integer(allIndex)},
			}
		}
	}
	if key := row.Key.Bytes(); r.IsIndexed(row.Set) && len(key) >= 4 {
		n := len(key) - 4
		next := binary.NativeEndian.Uint32(key[n:]) + 1
		return []nft.Row{{Set: row.Set, Key: nft.Tuple{}.Raw(key[:n]).Integer(next)}}
	}
	return nil
}
