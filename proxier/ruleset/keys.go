package ruleset

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// FrontendOf returns the frontend whose service port has the row of a set with
// this key. ok is false if the rows of the set do not belong to frontends.
func (r *Ruleset) FrontendOf(set *nft.Set, key nft.Tuple) (f Frontend, ok bool) {
	l, fields := r.layout, key.Bytes()
	if set == l.vips.classChains || set == l.nodePorts.classChains {
		return Frontend{}, false
	}
	byVIP := slices.Contains(l.firewallSources, set) || slices.Contains(l.vips.sets(), set)
	switch {
	case byVIP:
		f.Addr, fields = r.splitAddr(fields)
	case set != l.localhostNodePorts && !slices.Contains(l.nodePorts.sets(), set):
		return Frontend{}, false
	}
	f.Port, f.Proto = portOf(fields[protoField:]), cluster.Protocol(fields[0])
	return f, true
}

// protoField is the size of a protocol in a key.
const protoField = 4

func portOf(field []byte) uint16 { return binary.BigEndian.Uint16(field) }

// SharedAddr returns the address that all rows of a shared set with this key
// are about (see IsShared): a ClusterIP, or the address of an endpoint. ok is
// false if the set is not shared, or if no row has such a key.
func (r *Ruleset) SharedAddr(set *nft.Set, key nft.Tuple) (addr netip.Addr, ok bool) {
	addr, rest := r.splitAddr(key.Bytes())
	if set == r.layout.hairpin { // the same address is source and destination
		destination, _ := r.splitAddr(rest)
		return addr, addr == destination
	}
	return addr, r.IsShared(set)
}

// splitAddr splits fields that begin with an address.
func (r *Ruleset) splitAddr(fields []byte) (addr netip.Addr, rest []byte) {
	n := min(r.layout.family.AddrLen(), len(fields))
	addr, _ = netip.AddrFromSlice(fields[:n])
	return addr, fields[n:]
}
