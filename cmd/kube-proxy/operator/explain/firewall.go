package explain

import (
	"cmp"
	"math/big"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
)

// OtherTable is a table of another program, whose chains of type filter can
// drop what the proxy translated.
type OtherTable struct {
	// Name is "table inet firewalld", or "legacy table ip filter".
	Name   string
	Family nft.Family
	// Base are the base chains.
	Base []nft.FoundChain
	Table
}

// Block is a rule, or a policy, of another program that drops or rejects a
// packet on its way to an endpoint, or the answer to it.
type Block struct {
	Table string `json:"table"`
	Chain string `json:"chain"`
	// Base is the base chain that leads to the chain.
	Base string `json:"base"`
	// Rule is the number of the rule, 0 for the policy of the base chain.
	Rule int `json:"rule,omitempty"`
	// Handle is the number by which nft deletes the rule, 0 for legacy tables.
	Handle uint64 `json:"handle,omitempty"`
	// Text is the rule in nft syntax, as far as it is understood.
	Text string `json:"text"`
	// Packet describes the first packet, of so many.
	Packet  string `json:"packet"`
	Packets int    `json:"packets"`
	// Certain is false if it depends on facts that are not known.
	Certain bool `json:"certain"`
}

// firewall evaluates the tables of other programs for packets of one family.
type firewall struct {
	kernel   *Kernel
	tables   []OtherTable
	machines []*machine // of the tables
	chains   []filterChain
}

// filterChain is a base chain of a table.
type filterChain struct {
	table int
	nft.FoundChain
}

// newFirewall returns a firewall of the chains of type filter that packets of
// the kernel's family pass.
func newFirewall(k *Kernel, tables []OtherTable) *firewall {
	f := &firewall{kernel: k, tables: tables}
	for i, t := range tables {
		f.machines = append(f.machines, &machine{
			table: t.Table, routes: k, walk: newWalk(),
			chains: make(map[string][]nft.Rule), sets: make(map[string]*nft.Set),
		})
		for _, c := range t.Base {
			if c.Hook.Type != nft.ChainTypeNAT && (t.Family == k.table.Family || t.Family == nft.Inet) {
				f.chains = append(f.chains, filterChain{i, c})
			}
		}
	}
	slices.SortStableFunc(f.chains, func(a, b filterChain) int { return cmp.Compare(a.Hook.Priority, b.Hook.Priority) })
	return f
}

// stage is a packet at a hook.
type stage struct {
	point    nft.HookPoint
	from, to int32 // the priorities of the chains: from <= priority < to
	packet   packet
}

// blocks returns the rules that drop or reject a packet at a stage. They are
// sorted by the order in which the packet reaches them; after a certain one the
// others do not matter.
func (f *firewall) blocks(s stage, description string) (found []Block, err error) {
	p := s.packet
	for _, c := range f.chains {
		if c.Hook.Point != s.point || c.Hook.Priority < s.from || c.Hook.Priority >= s.to {
			continue
		}
		m := f.machines[c.table]
		ended, err := f.run(m, &p, c)
		if err != nil {
			return nil, err
		}
		here := f.blocksOf(m, c, ended)
		for i := range here {
			here[i].Packet = description
		}
		found = append(found, here...)
		if slices.ContainsFunc(here, func(b Block) bool { return b.Certain }) {
			return found, nil
		}
	}
	return found, nil
}

// run runs a packet through a base chain. If a rule sets the mark, the packet
// has an unknown one afterwards.
func (f *firewall) run(m *machine, p *packet, c filterChain) ([]*path, error) {
	m.other = &otherRules{index: f.kernel.interfaceIndex, seen: make(map[junction]bool)}
	m.iif = func() (string, error) { return p.iif, nil }
	ended, err := m.run(&path{share: big.NewRat(1, 1), packet: *p}, c.Name)
	for _, e := range ended {
		p.anyMark = p.anyMark || e.packet.anyMark
	}
	return ended, err
}

// blocksOf returns the blocks among the endings of a packet's paths.
func (f *firewall) blocksOf(m *machine, c filterChain, ended []*path) (found []Block) {
	passes := slices.ContainsFunc(ended, func(p *path) bool { return f.passes(p, c) })
	for _, p := range ended {
		if p.end.action == merged || f.passes(p, c) {
			continue
		}
		b := Block{Table: f.tables[c.table].Name, Chain: p.at.chain, Base: c.Name, Certain: !passes}
		if atEnd(p) {
			b.Chain, b.Text = c.Name, "policy drop"
		} else {
			rule := m.chains[p.at.chain][p.at.rule]
			b.Rule, b.Handle = p.at.rule+1, rule.Handle
			b.Text = rule.Text(f.tables[c.table].Family)
		}
		if !slices.Contains(found, b) {
			found = append(found, b)
		}
	}
	return found
}

// passes reports whether a path ends with the packet passing the base chain.
func (f *firewall) passes(p *path, c filterChain) bool {
	switch {
	case p.end.action == merged:
		return false
	case atEnd(p):
		return c.Policy != nft.PolicyDrop
	}
	return p.end.action == accepted
}

// atEnd reports whether no rule ended the path, so that the policy applies.
func atEnd(p *path) bool { return p.end.action == accepted && p.end.by == (place{}) }

func (k *Kernel) interfaceIndex(name string) (uint32, bool) {
	link, err := k.handle.LinkByName(name)
	if err != nil {
		return 0, false
	}
	return uint32(link.Attrs().Index), true
}

// dnatDone is the priority of the first chains at prerouting and output that
// see the endpoint instead of the Service.
const dnatDone = nft.PriorityDstNAT

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
func (f *firewall) journeys(s *sample) []journey {
	request := requestOf(s)
	later := make([]stage, len(request))
	for i, stage := range request {
		stage.packet.later, stage.packet.mark = true, 0 // the proxy's rules mark the first packet only
		later[i] = stage
	}
	return []journey{{"", request}, {"the answer to ", answerTo(s)}, {"later packets of ", later}}
}

// arrived returns a packet before routing, when the interface to leave by is
// not known.
func arrived(p packet) packet {
	p.oif = ""
	return p
}

func requestOf(s *sample) []stage {
	before, after := s.packet, s.packet
	before.dest, before.port = s.service.Addr(), s.service.Port()
	after.translated, after.oif = true, s.out
	if s.fromNode {
		return []stage{{nft.Output, lowest, dnatDone, before}, {nft.Output, dnatDone, highest, after}}
	}
	last := stage{nft.Forward, lowest, highest, after}
	if s.toNode {
		last = stage{nft.Input, lowest, highest, arrived(after)}
	}
	return []stage{
		{nft.Prerouting, lowest, dnatDone, arrived(before)}, {nft.Prerouting, dnatDone, highest, arrived(after)}, last,
	}
}

func answerTo(s *sample) []stage {
	p := packet{
		family: s.packet.family, source: s.packet.dest, dest: s.packet.source, protocol: s.packet.protocol,
		port: s.packet.port, translated: true, passage: passage{iif: s.out, oif: s.packet.iif, reply: true},
	}
	switch {
	case s.toNode:
		p.iif = ""
		return []stage{{nft.Output, lowest, highest, p}}
	case s.fromNode:
		return []stage{{nft.Prerouting, lowest, highest, arrived(p)}, {nft.Input, lowest, highest, arrived(p)}}
	}
	return []stage{{nft.Prerouting, lowest, highest, arrived(p)}, {nft.Forward, lowest, highest, p}}
}

// check evaluates a sample.
func (f *firewall) check(s *sample) (found []Block, err error) {
	for _, j := range f.journeys(s) {
		for _, stage := range j.stages {
			blocks, err := f.blocks(stage, j.prefix+s.description)
			if err != nil {
				return nil, err
			}
			found = append(found, blocks...)
		}
		if slices.ContainsFunc(found, func(b Block) bool { return b.Certain }) {
			break // there are no further packets
		}
	}
	return found, nil
}
