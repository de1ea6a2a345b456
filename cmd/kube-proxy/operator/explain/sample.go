package explain

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// sample is the first packet of a connection to a Service of the table.
type sample struct {
	service     netip.AddrPort
	packet      packet // as it is after the translation
	out         string // the interface of the route to the endpoint
	fromNode    bool   // this node is the client
	toNode      bool   // the endpoint has an address of this node
	description string
}

// target is a row of the table that leads to an endpoint.
type target struct {
	service, endpoint netip.AddrPort
	protocol          uint8
	out               string // the interface of the route to the endpoint, "" for this node
	onLink            bool   // without a gateway, as for pods of this node
}

// maxTargets is the number of endpoints of each kind that are tried.
const maxTargets = 8

// targetKind is a kind of endpoints: of a protocol, and on this node, in a pod
// of this node, or elsewhere.
type targetKind struct {
	protocol       uint8
	toNode, onLink bool
}

func (t *target) kind() targetKind { return targetKind{t.protocol, t.out == "", t.onLink} }

// targets returns endpoints of Services by their kind.
func (k *Kernel) targets() (map[targetKind][]target, error) {
	set, err := k.Set(ruleset.OwnSet)
	if err != nil {
		return nil, err
	}
	rows, err := nft.SampleRows(k.table, set)
	if err != nil {
		return nil, err
	}
	all := make(map[targetKind][]target)
	for _, row := range rows {
		t, ok := k.targetOf(row)
		if kind := t.kind(); ok && len(all[kind]) < maxTargets {
			all[kind] = append(all[kind], t)
		}
	}
	return all, nil
}

// targetOf decodes a row of service-endpoints. ok is false if there is no route
// to its endpoint.
func (k *Kernel) targetOf(row nft.Row) (t target, ok bool) {
	key, data := row.Key.Bytes(), row.Data.Bytes()
	size := nft.Types(nft.TypeAddr(k.table.Family)).Size()
	if len(key) < size+2*slotBytes || len(data) < size+2 {
		return t, false
	}
	t.protocol = key[size]
	service, _ := netip.AddrFromSlice(key[:size])
	endpoint, _ := netip.AddrFromSlice(data[:size])
	t.service = netip.AddrPortFrom(service, binary.BigEndian.Uint16(key[size+slotBytes:]))
	t.endpoint = netip.AddrPortFrom(endpoint, binary.BigEndian.Uint16(data[size:]))
	route, err := k.route(endpoint)
	switch {
	case err != nil:
		return t, false
	case route.Type == unix.RTN_LOCAL:
		return t, true
	}
	t.onLink = route.Gw == nil
	t.out, err = k.Interface(endpoint)
	return t, err == nil
}

// samples returns packets from a pod, from outside and from this node to
// endpoints of different kinds.
func (k *Kernel) samples() (all []sample, err error) {
	targets, err := k.targets()
	if err != nil {
		return nil, err
	}
	for _, protocol := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
		pods := targets[targetKind{protocol: protocol, onLink: true}]
		for _, kind := range []targetKind{{onLink: true}, {}, {toNode: true}} {
			kind.protocol = protocol
			for _, client := range []client{k.fromPod, k.fromOutside, k.fromNode} {
				if s, ok := k.firstSample(targets[kind], pods, client); ok {
					all = append(all, s)
				}
			}
		}
	}
	return all, nil
}

// client returns the packet of a kind of client to a target. pods are endpoints
// in pods of this node. ok is false if there is no such client.
type client func(t target, pods []target) (s sample, ok bool)

// firstSample returns a packet to the first of the targets that the proxy's
// rules translate.
func (k *Kernel) firstSample(targets, pods []target, from client) (s sample, ok bool) {
	for _, t := range targets {
		if s, ok = from(t, pods); !ok {
			continue
		}
		if s.packet.mark, ok = k.markOf(&s); ok {
			return s, true
		}
	}
	return s, false
}

// sampleTo returns a packet to a target.
func (k *Kernel) sampleTo(t target, source netip.Addr, iif, client string) sample {
	return sample{
		service: t.service, out: t.out, toNode: t.out == "",
		packet: packet{
			family: k.table.Family, source: source, dest: t.endpoint.Addr(), protocol: t.protocol, port: t.endpoint.Port(),
			passage: passage{iif: iif},
		},
		description: fmt.Sprintf("%s → %s (%s of %s)", client, t.endpoint, ProtocolName(t.protocol), t.service),
	}
}

// fromPod is a packet of a pod: of another endpoint on this node, or else of a
// hypothetical pod.
func (k *Kernel) fromPod(t target, pods []target) (sample, bool) {
	for _, pod := range pods {
		if pod.endpoint.Addr() != t.endpoint.Addr() {
			return k.sampleTo(t, pod.endpoint.Addr(), pod.out, "pod "+pod.endpoint.Addr().String()), true
		}
	}
	addr, ok, err := k.PodAddress()
	return k.sampleTo(t, addr, unknownName, "a pod "+addr.String()), ok && err == nil
}

// fromOutside is a packet that arrives by the default route.
func (k *Kernel) fromOutside(t target, _ []target) (sample, bool) {
	addr := Outside(t.endpoint.Addr())
	name, err := k.Interface(addr)
	return k.sampleTo(t, addr, name, "outside "+addr.String()), err == nil && name != "lo"
}

func (k *Kernel) fromNode(t target, _ []target) (sample, bool) {
	addr, err := k.NodeSource(t.endpoint.Addr())
	s := k.sampleTo(t, addr, "", "this node "+addr.String())
	s.fromNode = true
	return s, err == nil && !s.toNode // packets to itself use the loopback interface
}

// Outside returns an address of the family of another one that no host has: of
// TEST-NET-3 (RFC 5737), or of the range for documentation (RFC 9637).
func Outside(like netip.Addr) netip.Addr {
	if like.Is4() {
		return netip.AddrFrom4([4]byte{203, 0, 113, 1})
	}
	return netip.AddrFrom16([16]byte{0x3f, 0xff, 15: 1})
}

// markOf returns the mark that the proxy's rules give a sample. ok is false if
// they do not translate it.
func (k *Kernel) markOf(s *sample) (mark uint32, ok bool) {
	q := Query{Destination: s.service, Protocol: s.packet.protocol, Source: s.packet.source, Interface: s.packet.iif}
	m := &machine{
		table: k, routes: k, walk: newWalk(), chains: make(map[string][]nft.Rule), sets: make(map[string]*nft.Set),
	}
	point, err := m.hook(&q)
	if err != nil {
		return 0, false
	}
	base, err := k.BaseChain(point)
	if err != nil {
		return 0, false
	}
	paths, err := m.run(&path{share: big.NewRat(1, 1), packet: packet{
		family: s.packet.family, source: q.Source, dest: q.Destination.Addr(),
		protocol: q.Protocol, port: q.Destination.Port(),
	}}, base)
	for _, p := range paths {
		if p.end.to.IsValid() {
			return p.packet.mark, err == nil
		}
	}
	return 0, false
}

// Blocks returns the rules of other programs that drop or reject packets to
// endpoints, or answers, of some Services of the table. probes is the number of
// packets that were evaluated.
func (k *Kernel) Blocks(legacy []OtherTable) (blocks []Block, probes int, err error) {
	_, err = k.conn.Snapshot(func() error {
		blocks, probes = nil, 0
		tables, err := k.otherTables()
		if err != nil {
			return err
		}
		samples, err := k.samples()
		if err != nil {
			return err
		}
		f := newFirewall(k, append(tables, legacy...))
		for i := range samples {
			found, err := f.check(&samples[i])
			if err != nil {
				return err
			}
			for _, b := range found {
				blocks = addBlock(blocks, b)
			}
		}
		probes = len(samples)
		return nil
	})
	return blocks, probes, err
}

// addBlock adds a block, or another packet to a known one.
func addBlock(blocks []Block, b Block) []Block {
	for i := range blocks {
		known := &blocks[i]
		if known.Table != b.Table || known.Base != b.Base || known.Chain != b.Chain || known.Rule != b.Rule {
			continue
		}
		if b.Certain && !known.Certain {
			known.Certain, known.Packet = true, b.Packet
		}
		known.Packets++
		return blocks
	}
	b.Packets = 1
	return append(blocks, b)
}

// otherTables returns the tables of other programs.
func (k *Kernel) otherTables() (tables []OtherTable, err error) {
	for _, family := range []nft.Family{k.table.Family, nft.Inet} {
		chains, err := k.conn.BaseChains(family)
		if err != nil {
			return nil, err
		}
		at := make(map[string]int)
		for _, c := range chains {
			if family == k.table.Family && c.Table.Name == k.table.Name {
				continue
			}
			i, ok := at[c.Table.Name]
			if !ok {
				i = len(tables)
				at[c.Table.Name] = i
				tables = append(tables, OtherTable{
					Name: c.Table.String(), Family: family, Table: kernelTable{k.conn, c.Table},
				})
			}
			tables[i].Base = append(tables[i].Base, c.FoundChain)
		}
	}
	return tables, nil
}

// kernelTable is the rules of any table in the kernel.
type kernelTable struct {
	conn  *nft.Conn
	table *nft.Table
}

// BaseChain implements Table. A table can have several chains at a hook.
func (t kernelTable) BaseChain(nft.HookPoint) (string, error) { return "", errors.ErrUnsupported }

// Rules implements Table.
func (t kernelTable) Rules(chain string) ([]nft.Rule, error) {
	return t.conn.Rules(t.table, chain)
}

// Set implements Table.
func (t kernelTable) Set(name string) (*nft.Set, error) {
	set, err := t.conn.FindSet(t.table, name)
	if err == nil && set == nil {
		err = fmt.Errorf("%s has no set %s", t.table, name)
	}
	return set, err
}

// Row implements Table.
func (t kernelTable) Row(set *nft.Set, key nft.Tuple) (nft.Row, error) {
	found, err := t.conn.FindRows(t.table, []nft.Row{{Set: set, Key: key}})
	if err != nil {
		return nft.Row{}, err
	}
	return found[0], nil
}
