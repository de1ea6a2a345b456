package node

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/walk"
)

// Connection is a hypothetical connection to a Service.
type Connection struct {
	Client, Service netip.AddrPort
	// AnyClient reports whether Client stands for all clients of its interface,
	// so that rules which compare its address may match.
	AnyClient bool
	// Endpoint is the destination after the translation. It is the destination
	// before it if nftproxy does not translate, and invalid if nftproxy refuses
	// the connection.
	Endpoint netip.AddrPort
	Protocol uint8
	// In and Out are the interfaces of the client and of the endpoint. The zero
	// Interface stands for this node.
	In, Out walk.Interface
	// Mark is the mark that the rules of nftproxy give the first packet.
	Mark uint32
	// Masqueraded is the source that the endpoint sees instead of the client.
	// It is invalid if the rules of nftproxy keep the source.
	Masqueraded netip.Addr
}

// ClientPort is the source port of hypothetical connections: one that clients
// use.
const ClientPort = 40000

// Journey is the way of a hypothetical packet through the hooks.
type Journey struct {
	prefix string // of the description
	stages []stage
}

// stage is a packet at a hook.
type stage struct {
	point    nft.HookPoint
	from, to int32 // the priorities at which the kernel calls chains: from <= priority < to
	nat      natChains
	packet   walk.Packet
}

// natChains are the nat chains that a packet at a stage passes. Only the first
// packet of a connection passes some, until one translates it.
type natChains uint8

const (
	noChains natChains = iota
	earlierChains
	allChains
)

const (
	// dnatDone is the priority of the first chains at prerouting and output
	// that see the endpoint instead of the Service.
	dnatDone = nft.PriorityDstNAT

	// snatDone is the priority of the first chains at postrouting that can see
	// translated sources.
	snatDone = nft.PrioritySrcNAT

	lowest  = -1 << 31
	highest = 1<<31 - 1
)

// Journeys returns the journeys of the first packet of a connection, of the
// answer, and of later packets of the client.
func (t *Tables) Journeys(c *Connection) []Journey {
	first := t.request(c, walk.Packet{})
	if !c.Endpoint.IsValid() {
		return []Journey{{"", first[:1]}}
	}
	later := t.request(c, walk.Packet{Answered: true})
	for i := range later { // nat chains see, and mark, the first packet only
		later[i].packet.Mark, later[i].nat = 0, noChains
	}
	return []Journey{{"", first}, {"the answer to ", c.answer()}, {"later packets of ", later}}
}

// Midstream returns the journeys of later packets of the client, after the
// entry of the connection was deleted.
func (t *Tables) Midstream(c *Connection) []Journey {
	if c.Protocol != unix.IPPROTO_TCP {
		return nil
	}
	return []Journey{
		{"a new packet without SYN of ", t.request(c, walk.Packet{Midstream: true})},
		{"an invalid packet of ", t.request(c, walk.Packet{Midstream: true, Invalid: true})},
	}
}

// request returns the stages of a packet of the client with this state.
func (t *Tables) request(c *Connection, p walk.Packet) []stage {
	p.Source, p.Destination, p.Protocol, p.In, p.Mark = c.Client, c.Service, c.Protocol, c.In, c.Mark
	p.ClientUnknown = c.AnyClient
	enters := stage{nft.Prerouting, lowest, dnatDone, earlierChains, p}
	if c.In == (walk.Interface{}) { // the interface stays that of the route to the Service
		enters.point = nft.Output
		enters.packet.Out.Name, enters.packet.Out.Unknown = t.host.Interface(c.Service.Addr())
	}
	if c.Endpoint == c.Service {
		enters.nat = allChains
	}
	entered := stage{enters.point, dnatDone, highest, noChains, enters.packet}
	entered.packet.Destination, entered.packet.Translated = c.Endpoint, c.Endpoint != c.Service
	routed := entered.packet
	routed.Out = c.Out
	leaves := stage{nft.Postrouting, lowest, snatDone, allChains, routed}
	left := stage{nft.Postrouting, snatDone, highest, noChains, routed}
	if c.Masqueraded.IsValid() {
		leaves.nat = earlierChains
		left.packet.Source = netip.AddrPortFrom(c.Masqueraded, 0)
	}
	arrives := stage{nft.Input, lowest, highest, noChains, arrived(routed)}
	switch toNode := c.Out == (walk.Interface{}); {
	case toNode && enters.point == nft.Output:
		leaves.packet.Out.Name, arrives.packet.In.Name = "lo", "lo"
		return []stage{enters, entered, leaves, {nft.Prerouting, lowest, highest, noChains, arrives.packet}, arrives}
	case toNode:
		return []stage{enters, entered, arrives}
	case enters.point == nft.Output:
		return []stage{enters, entered, leaves, left}
	}
	return []stage{enters, entered, {nft.Forward, lowest, highest, noChains, routed}, leaves, left}
}

// arrived returns a packet before routing, when the interface to leave by is
// not known.
func arrived(p walk.Packet) walk.Packet {
	p.Out = walk.Interface{}
	return p
}

// answer returns the stages of the answer of the endpoint.
func (c *Connection) answer() []stage {
	p := walk.Packet{
		Source: c.Endpoint, Destination: c.Client, Protocol: c.Protocol, In: c.Out, Out: c.In,
		Translated: c.Endpoint != c.Service, Answered: true, Reply: true, ClientUnknown: c.AnyClient,
	}
	leaves := stage{nft.Postrouting, lowest, snatDone, noChains, p}
	left := stage{nft.Postrouting, snatDone, highest, noChains, p}
	left.packet.Source = c.Service
	if p.In == (walk.Interface{}) {
		return []stage{{nft.Output, lowest, highest, noChains, p}, leaves, left}
	}
	enters := stage{nft.Prerouting, lowest, dnatDone, noChains, arrived(p)}
	if c.Masqueraded.IsValid() {
		enters.packet.Destination = netip.AddrPortFrom(c.Masqueraded, 0)
	}
	stages := []stage{enters, {nft.Prerouting, dnatDone, highest, noChains, arrived(p)}}
	if p.Out == (walk.Interface{}) {
		return append(stages, stage{nft.Input, lowest, highest, noChains, arrived(p)})
	}
	return append(stages, stage{nft.Forward, lowest, highest, noChains, p}, leaves, left)
}
