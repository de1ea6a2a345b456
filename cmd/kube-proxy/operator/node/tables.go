package node

import (
	"cmp"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/walk"
	"github.com/nftproxy/nftproxy/nft/xtables"
)

// Tables are the tables of other programs that packets of a family pass.
type Tables struct {
	host      walk.Host
	chains    []chain                 // in the order of the kernel
	own       map[nft.HookPoint]int32 // the priorities of nat chains of nftproxy
	listeners listeners
	// Unseen is why tables of iptables-legacy were not read.
	Unseen error
}

// chain is a base chain of another program.
type chain struct {
	nft.Chain
	table  string // "table inet firewalld", or "legacy table ip filter"
	family nft.Family
	rules  walk.Table
}

// Tables reads the base chains of other programs, in nf_tables and in tables of
// iptables-legacy.
func (k *Kernel) Tables() (*Tables, error) {
	own, t := k.Table, &Tables{host: k, own: make(map[nft.HookPoint]int32)}
	var err error
	if t.listeners, err = readListeners(); err != nil {
		return nil, err
	}
	for _, family := range []nft.Family{own.Family, nft.Inet} {
		chains, err := k.Conn.BaseChains(family)
		if err != nil {
			return nil, err
		}
		tables := make(map[string]walk.Table)
		for _, c := range chains {
			if family == own.Family && c.Table.Name == own.Name {
				if c.Hook.Type == nft.ChainTypeNAT {
					t.own[c.Hook.Point] = c.Hook.Priority
				}
				continue
			}
			if tables[c.Table.Name] == nil {
				tables[c.Table.Name] = walk.Cache(walk.Kernel{Conn: k.Conn, Table: c.Table})
			}
			t.chains = append(t.chains, chain{c.Chain, c.Table.String(), family, tables[c.Table.Name]})
		}
	}
	legacy, unseen := xtables.Read()
	t.Unseen = unseen
	for _, table := range legacy {
		if table.Family != own.Family {
			continue
		}
		rules, name := walk.Cache(table), "legacy table "+table.Family.String()+" "+table.Name
		for _, c := range table.Base() {
			t.chains = append(t.chains, chain{c, name, table.Family, rules})
		}
	}
	slices.SortStableFunc(t.chains, func(a, b chain) int {
		return cmp.Or(cmp.Compare(a.called(), b.called()), cmp.Compare(a.Hook.Priority, b.Hook.Priority))
	})
	return t, nil
}

func (c *chain) nat() bool { return c.Hook.Type == nft.ChainTypeNAT }

// called returns the priority at which the kernel calls a chain. It calls all
// nat chains at one priority, in the order of their own.
func (c *chain) called() int32 {
	switch {
	case !c.nat():
		return c.Hook.Priority
	case c.Hook.Point == nft.Prerouting || c.Hook.Point == nft.Output:
		return nft.PriorityDstNAT
	}
	return nft.PrioritySrcNAT
}

// precedesTracking reports whether the kernel calls a chain before connection
// tracking.
func (c *chain) precedesTracking() bool {
	const tracking = -200 // NF_IP_PRI_CONNTRACK of linux/netfilter_ipv4.h
	return (c.Hook.Point == nft.Prerouting || c.Hook.Point == nft.Output) && c.called() < tracking
}

// precedes reports whether the kernel can call a nat chain before those of
// nftproxy. If the priorities are equal, the last one that was registered comes
// first.
func (t *Tables) precedes(c *chain) bool {
	own, known := t.own[c.Hook.Point]
	return c.nat() && known && c.Hook.Priority <= own
}

// EarlierNAT returns the nat chains that the kernel can call before those of
// nftproxy, as "table inet site, chain pre (prerouting, priority -150)".
func (t *Tables) EarlierNAT() (chains []string) {
	for i := range t.chains {
		if c := &t.chains[i]; t.precedes(c) {
			chains = append(chains, c.String())
		}
	}
	return chains
}

func (c *chain) String() string {
	return fmt.Sprintf("%s, chain %s (%s, priority %d)", c.table, c.Name, c.Hook.Point, c.Hook.Priority)
}

// Follow returns the effects on the packets of a connection, in the order in
// which they meet them. It ends with an effect after which there are no further
// packets.
func (t *Tables) Follow(description string, journeys []Journey) (found []Effect, err error) {
	for _, j := range journeys {
		effects, err := t.follow(j)
		if err != nil {
			return nil, err
		}
		for _, e := range effects {
			e.Packet = j.prefix + description
			found = Add(found, e)
		}
		if slices.ContainsFunc(found, Effect.Ends) {
			break
		}
	}
	return found, nil
}

// follow returns the effects on the packet of a journey.
func (t *Tables) follow(j Journey) (found []Effect, err error) {
	for stages := j.stages; len(stages) > 0; {
		s := stages[0]
		stages = stages[1:]
		tracked := !s.packet.Untracked
		effects, err := t.meet(&s)
		if err != nil {
			return nil, err
		}
		found = append(found, effects...)
		switch {
		case slices.ContainsFunc(effects, func(e Effect) bool { return e.Ends() && e.Action != Untracks }):
			return found, nil
		case tracked && s.packet.Untracked && s.packet.Reply: // it does not become the answer of the Service
			return found, nil
		case tracked && s.packet.Untracked:
			if stages, err = t.untranslated(&s); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// meet returns the effects on a packet at a stage, up to one that ends its
// journey. It changes the packet as the rules do.
func (t *Tables) meet(s *stage) (found []Effect, err error) {
	for i := range t.chains {
		c := &t.chains[i]
		if !s.passes(t, c) {
			continue
		}
		packet := s.packet
		packet.Invalid = packet.Invalid || c.precedesTracking() // it has no connection yet
		ended, err := walk.New(c.rules, t.host).Run(walk.NewPath(packet), c.Name)
		if err != nil {
			return nil, err
		}
		s.packet.Mark, s.packet.MarkUnknown = marks(ended)
		for _, e := range t.effects(c, ended, packet.Untracked) {
			s.packet.Untracked = s.packet.Untracked || e.Action == Untracks && e.Certain
			if found = append(found, e); e.Ends() && e.Action != Untracks {
				return found, nil
			}
		}
	}
	return found, nil
}

// passes reports whether a packet at a stage passes a chain.
func (s *stage) passes(t *Tables, c *chain) bool {
	switch {
	case c.Hook.Point != s.point:
		return false
	case c.nat():
		return !s.packet.Untracked && (s.nat == allChains || s.nat == earlierChains && t.precedes(c))
	}
	return c.Hook.Priority >= s.from && c.Hook.Priority < s.to
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

// untranslated returns the further stages of a packet that the kernel does not
// translate, because it has no connection.
func (t *Tables) untranslated(s *stage) ([]stage, error) {
	p := s.packet
	typ, err := t.host.RouteType(p.Destination.Addr())
	if err != nil {
		return nil, err
	}
	stages := []stage{{point: s.point, from: s.to, to: highest, packet: p}}
	if typ == unix.RTN_LOCAL {
		return append(stages, stage{point: nft.Input, from: lowest, to: highest, packet: p}), nil
	}
	p.Out.Name, p.Out.Unknown = t.host.Interface(p.Destination.Addr())
	if s.point == nft.Prerouting {
		stages = append(stages, stage{point: nft.Forward, from: lowest, to: highest, packet: p})
	}
	return append(stages, stage{point: nft.Postrouting, from: lowest, to: highest, packet: p}), nil
}
