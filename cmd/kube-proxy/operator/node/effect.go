package node

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/walk"
)

// Effect is what a rule of another program, or the policy of a base chain, does
// to packets of a connection.
type Effect struct {
	Action Action `json:"action"`
	// Certain reports whether the effect depends on no fact that is not known.
	Certain bool `json:"certain"`
	// Table is "table inet firewalld" or "legacy table ip filter".
	Table string `json:"table"`
	// Chain has the rule. The base chain Base, which leads to it, is at Hook.
	Chain string `json:"chain"`
	Base  string `json:"base"`
	Hook  string `json:"hook"`
	// Rule is the number of the rule, 0 for the policy of the base chain.
	Rule int `json:"rule,omitempty"`
	// Handle is the handle of the rule, 0 for legacy tables.
	Handle uint64 `json:"handle,omitempty"`
	// Text is the rule in nft syntax, as far as it is understood.
	Text string `json:"text"`
	// NetworkPolicy describes the NetworkPolicy to which the rule seems to
	// belong.
	NetworkPolicy string `json:"networkPolicy,omitempty"`
	// Packet is the first of the packets that meet the rule.
	Packet  string `json:"packet"`
	Packets int    `json:"packets"`

	early bool // by a nat chain that precedes those of nftproxy
}

// Action is the kind of an effect.
type Action string

// Actions.
const (
	Drops      Action = "drop"      // or rejects
	Asks       Action = "queue"     // a program decides
	Loses      Action = "lost"      // no program listens to the queue, so the kernel drops it
	Translates Action = "translate" // the destination, or at postrouting the source
	Untracks   Action = "untrack"   // excludes from connection tracking, so nftproxy does not translate it
)

// Ends reports whether an effect certainly ends the way of the packet to the
// endpoint.
func (e Effect) Ends() bool { return e.Certain && (e.Action != Translates || !e.OfSource()) }

// Blocks reports whether a packet can be lost.
func (e Effect) Blocks() bool { return e.Action == Drops || e.Action == Asks || e.Action == Loses }

// OfSource reports whether the rule is at a hook where it translates sources.
func (e Effect) OfSource() bool { return e.Hook == nft.Postrouting.String() }

// Early reports whether a nat chain that precedes those of nftproxy has the
// effect.
func (e Effect) Early() bool { return e.early }

// effects returns the effects of a chain among the ends of a packet's paths.
func (t *Tables) effects(c *chain, ended []*walk.Path, untracked bool) (found []Effect) {
	passes := slices.ContainsFunc(ended, func(p *walk.Path) bool {
		action := t.action(c, p, untracked)
		return action == "" || action == Asks
	})
	for _, p := range ended {
		e := Effect{
			Action: t.action(c, p, untracked), Certain: !passes, Table: c.table, Chain: c.Name, Base: c.Name,
			Hook: c.Hook.Point.String(), Text: "policy drop", Packets: 1, early: t.precedes(c),
		}
		by := p.End.By
		if e.Action == Untracks {
			by = p.Untracked
		}
		if by != nil {
			e.Chain, e.Rule, e.Handle, e.Text = by.Chain, by.Index+1, by.Rule.Handle, by.Rule.Text(c.family)
		}
		if e.Action != "" && !slices.Contains(found, e) {
			e.NetworkPolicy, _ = PolicyOf(e.Table, e.Chain, e.Text)
			found = append(found, e)
		}
	}
	return found
}

// action returns what a path through a chain does to a packet, "" if it passes.
func (t *Tables) action(c *chain, p *walk.Path, untracked bool) Action {
	switch end := p.End; {
	case end.Action == walk.Queued:
		return t.listeners.of(end.By)
	case end.Action != walk.Accepted, end.By == nil && c.Hook.Drop:
		return Drops
	case end.By != nil && walk.Translates(end.By.Rule):
		return Translates
	case p.Untracked != nil && !untracked && c.precedesTracking():
		return Untracks
	}
	return ""
}

// Add adds an effect, or its packets to one of the same rule.
func Add(effects []Effect, e Effect) []Effect {
	i := slices.IndexFunc(effects, e.SameRule)
	if i < 0 {
		return append(effects, e)
	}
	known := &effects[i]
	if e.Certain && !known.Certain {
		known.Certain, known.Packet = true, e.Packet
	}
	known.Packets += e.Packets
	return effects
}

// SameRule reports whether two effects are of the same rule.
func (e Effect) SameRule(o Effect) bool {
	return e.Table == o.Table && e.Base == o.Base && e.Chain == o.Chain && e.Rule == o.Rule
}

const unread = "no program listens to the queue, so the kernel drops"

// verbs describe actions that are certain, and that are not.
var verbs = map[Action][2]string{
	Drops:      {"drops", "may drop"},
	Asks:       {"a program decides about", "a program decides about"},
	Loses:      {unread, unread},
	Translates: {"translates", "may translate"},
	Untracks:   {"excludes from connection tracking", "may exclude from connection tracking"},
}

// String returns "table inet fw, chain forward, rule 2 (handle 7): drop: drops
// pod 10.244.1.5 → …".
func (e Effect) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s, chain %s", e.Table, e.Chain)
	if e.Rule > 0 {
		fmt.Fprintf(&text, ", rule %d", e.Rule)
	}
	if e.Handle > 0 {
		fmt.Fprintf(&text, " (handle %d)", e.Handle)
	}
	verb := verbs[e.Action][1]
	if e.Certain {
		verb = verbs[e.Action][0]
	}
	if e.Action == Translates && e.OfSource() {
		verb += " the source of"
	}
	fmt.Fprintf(&text, ": %s: %s %s", e.Text, verb, e.Packet)
	if e.Packets > 1 {
		fmt.Fprintf(&text, " and %d more", e.Packets-1)
	}
	if e.NetworkPolicy != "" {
		text.WriteString("; it looks like " + e.NetworkPolicy)
	}
	return text.String()
}
