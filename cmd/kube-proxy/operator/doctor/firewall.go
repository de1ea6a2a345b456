package doctor

import (
	"cmp"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/walk"
	"github.com/nftproxy/nftproxy/nft/xtables"
)

// firewall evaluates the tables of other programs for packets of one family.
type firewall struct {
	kernel    *explain.Kernel
	chains    []filterChain // that are not of type nat
	nat       []filterChain
	own       map[nft.HookPoint]int32 // the priorities of nat chains of the proxy
	listeners listeners
}

// filterChain is a base chain of another program. Unless it is of type nat, it
// can drop what the proxy translated.
type filterChain struct {
	nft.Chain
	table  string // "table inet firewalld", or "legacy table ip filter"
	family nft.Family
	rules  walk.Table
}

// newFirewall returns a firewall of the chains that packets of the kernel's
// family pass, in nf_tables and in tables of iptables-legacy.
func newFirewall(k *explain.Kernel, legacy []*xtables.Table) (*firewall, error) {
	listeners, err := readListeners()
	if err != nil {
		return nil, err
	}
	f := &firewall{kernel: k, own: make(map[nft.HookPoint]int32), listeners: listeners}
	for _, family := range []nft.Family{k.Table.Family, nft.Inet} {
		chains, err := k.Conn.BaseChains(family)
		if err != nil {
			return nil, err
		}
		tables := make(map[string]walk.Table)
		for _, c := range chains {
			if family == k.Table.Family && c.Table.Name == k.Table.Name {
				if c.Hook.Type == nft.ChainTypeNAT {
					f.own[c.Hook.Point] = c.Hook.Priority
				}
				continue
			}
			if tables[c.Table.Name] == nil {
				tables[c.Table.Name] = walk.Cache(walk.Kernel{Conn: k.Conn, Table: c.Table})
			}
			f.add(filterChain{c.Chain, c.Table.String(), family, tables[c.Table.Name]})
		}
	}
	for _, t := range legacy {
		for _, c := range t.Base() {
			f.add(filterChain{c, "legacy table " + t.Family.String() + " " + t.Name, t.Family, t})
		}
	}
	slices.SortStableFunc(f.chains, func(a, b filterChain) int { return cmp.Compare(a.Hook.Priority, b.Hook.Priority) })
	return f, nil
}

func (f *firewall) add(c filterChain) {
	switch {
	case c.family != f.kernel.Table.Family && c.family != nft.Inet:
	case c.Hook.Type == nft.ChainTypeNAT:
		f.nat = append(f.nat, c)
	default:
		f.chains = append(f.chains, c)
	}
}

// stage is a packet at a hook.
type stage struct {
	point    nft.HookPoint
	from, to int32 // the priorities of the chains: from <= priority < to
	packet   walk.Packet
}

// blocks returns the rules that drop or reject a packet at a stage. They are
// sorted by the order in which the packet reaches them; after a certain one the
// others do not matter.
func (f *firewall) blocks(s stage, description string) (found []block, err error) {
	for _, c := range f.chains {
		if c.Hook.Point != s.point || c.Hook.Priority < s.from || c.Hook.Priority >= s.to {
			continue
		}
		ended, err := walk.New(c.rules, f.kernel).Run(walk.NewPath(s.packet), c.Name)
		if err != nil {
			return nil, err
		}
		s.packet.Mark, s.packet.MarkUnknown = marks(ended)
		here := f.blocksOf(&c, ended, description)
		found = append(found, here...)
		if slices.ContainsFunc(here, certain) {
			return found, nil
		}
	}
	return found, nil
}

// marks returns the mark that later chains see. It is not known if it depends
// on the path.
func marks(ended []*walk.Path) (mark uint32, unknown bool) {
	mark = ended[0].Packet.Mark
	for _, p := range ended {
		unknown = unknown || p.Packet.MarkUnknown || p.Packet.Mark != mark
	}
	return mark, unknown
}

func certain(b block) bool { return b.certain }

// blocksOf returns the blocks among the ends of a packet's paths in a chain.
func (f *firewall) blocksOf(c *filterChain, ended []*walk.Path, description string) (found []block) {
	passes := slices.ContainsFunc(ended, func(p *walk.Path) bool {
		return f.passes(c, p) || f.listeners.of(p.End) == decided
	})
	for _, p := range ended {
		if f.passes(c, p) {
			continue
		}
		b := block{
			table: c.table, chain: c.Name, base: c.Name, text: "policy drop", packet: description,
			certain: !passes, queued: f.listeners.of(p.End),
		}
		if by := p.End.By; by != nil {
			b.chain, b.rule, b.handle, b.text = by.Chain, by.Index+1, by.Rule.Handle, by.Rule.Text(c.family)
		}
		if !slices.Contains(found, b) {
			found = append(found, b)
		}
	}
	return found
}

// passes reports whether a path ends with the packet passing a base chain.
func (f *firewall) passes(c *filterChain, p *walk.Path) bool {
	return f.listeners.of(p.End) == bypassed || p.End.Action == walk.Accepted && (p.End.By != nil || !c.Hook.Drop)
}

// dnatDone is the priority of the first chains at prerouting and output that
// see the endpoint instead of the Service.
const dnatDone = nft.PriorityDstNAT

// snatBegins is the priority of the first chains at postrouting that can see
// translated sources.
const snatBegins = nft.PrioritySrcNAT

const (
	lowest  = -1 << 31
	highest = 1<<31 - 1
)

// journey is the hooks that a kind of packets of a connection passes.
type journey struct {
	prefix string // of the description
	stages []stage
}

// journeys returns the journeys of the first packet of a connection, of the
// answer, and of later packets of the client.
func (s *sample) journeys() []journey {
	request := requestOf(s)
	later := make([]stage, len(request))
	for i, stage := range request {
		stage.packet.Answered, stage.packet.Mark = true, 0 // the proxy's rules mark the first packet only
		later[i] = stage
	}
	return []journey{{"", request}, {"the answer to ", answerTo(s)}, {"later packets of ", later}}
}

// arrived returns a packet before routing, when the interface to leave by is
// not known.
func arrived(p walk.Packet) walk.Packet {
	p.Out = walk.Interface{}
	return p
}

func requestOf(s *sample) []stage {
	before, after := s.packet, s.packet
	before.Destination = s.service
	after.Translated, after.Out.Name = true, s.out
	leaves := stage{nft.Postrouting, lowest, snatBegins, after}
	if s.fromNode {
		return []stage{{nft.Output, lowest, dnatDone, before}, {nft.Output, dnatDone, highest, after}, leaves}
	}
	stages := []stage{
		{nft.Prerouting, lowest, dnatDone, arrived(before)}, {nft.Prerouting, dnatDone, highest, arrived(after)},
	}
	if s.toNode {
		return append(stages, stage{nft.Input, lowest, highest, arrived(after)})
	}
	return append(stages, stage{nft.Forward, lowest, highest, after}, leaves)
}

func answerTo(s *sample) []stage {
	p := walk.Packet{
		Source: s.packet.Destination, Destination: s.packet.Source, Protocol: s.packet.Protocol,
		In: walk.Interface{Name: s.out}, Out: s.packet.In, Translated: true, Answered: true, Reply: true,
	}
	if s.toNode {
		p.In.Name = ""
	}
	leaves := stage{nft.Postrouting, lowest, snatBegins, p}
	switch {
	case s.toNode:
		return []stage{{nft.Output, lowest, highest, p}, leaves}
	case s.fromNode:
		return []stage{{nft.Prerouting, lowest, highest, arrived(p)}, {nft.Input, lowest, highest, arrived(p)}}
	}
	return []stage{{nft.Prerouting, lowest, highest, arrived(p)}, {nft.Forward, lowest, highest, p}, leaves}
}

// midstream returns the journeys of later packets of the client, after the
// entry of the connection was deleted.
func (s *sample) midstream() []journey {
	if s.packet.Protocol != unix.IPPROTO_TCP {
		return nil
	}
	late, invalid := *s, *s
	late.packet.Midstream = true
	invalid.packet.Midstream, invalid.packet.Invalid = true, true
	return []journey{
		{"a new packet without SYN of ", requestOf(&late)}, {"an invalid packet of ", requestOf(&invalid)},
	}
}

// check evaluates the journeys of a sample.
func (f *firewall) check(s *sample, journeys []journey) (found []block, err error) {
	for _, j := range journeys {
		for _, stage := range j.stages {
			blocks, err := f.blocks(stage, j.prefix+s.description)
			if err != nil {
				return nil, err
			}
			found = append(found, blocks...)
		}
		if slices.ContainsFunc(found, certain) {
			break // there are no further packets
		}
	}
	return found, nil
}
