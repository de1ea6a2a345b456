package trace

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/notify"
)

// passage is a packet on its way through the chains of this node.
type passage struct {
	began, seen time.Time           // the first and the last event
	first, last notify.TracedPacket // when it entered the first and the last base chain
	start       string              // the chain that traced it
	events      []notify.TraceEvent // of the tables of others and of the proxy
	mark        uint32              // when it was routed
	toRouting   bool                // passed all chains before routing
	leftRouting bool                // reached the hook forward, input or postrouting
	end         ending
}

// ending is how a passage ends.
type ending uint8

const (
	open     ending = iota
	passed          // all chains: after the hook postrouting or input
	stopped         // by a verdict
	vanished        // no chain reports it any more
)

// passages assembles the events of packets. It is not concerned with the
// meaning of rules.
type passages struct {
	table string // of this process
	open  map[uint32]*passage
	// headers are the headers of packets in a base chain of the own table. The
	// rule that traces a packet does not report them if another program also
	// traces the packet.
	headers map[uint32]notify.TracedPacket
}

// patience is the time without an event after which a packet has vanished.
// Packets pass all chains in less than a millisecond, unless a chain sends them
// to another program.
const patience = 300 * time.Millisecond

func newPassages(table string) *passages {
	return &passages{table: table, open: make(map[uint32]*passage), headers: make(map[uint32]notify.TracedPacket)}
}

// add adds an event and returns the passages that end with it.
func (s *passages) add(e notify.TraceEvent, now time.Time) (ended []*passage) {
	own := e.Table == s.table
	if own && e.Packet != nil {
		s.headers[e.ID] = *e.Packet
	}
	if own && e.Type == notify.TracePolicy {
		defer delete(s.headers, e.ID)
	}
	if own && e.Type == notify.TraceRule && (e.Chain == chainFirst || e.Chain == chainSample) {
		ended = s.begin(e, now)
	}
	p := s.find(e)
	if p == nil {
		return ended
	}
	p.seen = now
	if e.Packet != nil {
		p.last = *e.Packet
	}
	switch {
	case own && e.Verdict == nft.VerdictJump(chainKnown):
		delete(s.open, e.ID)
		return ended
	case own:
		p.reach(e)
	case !strings.HasPrefix(e.Table, tablePrefix): // not of another trace
		p.record(e)
	}
	if p.end != open {
		delete(s.open, e.ID)
		ended = append(ended, p)
	}
	return ended
}

// replyOf returns the kind and the headers of a reply to a traced packet. ok is
// false for events of other packets. The headers are nil if messages were lost.
func (s *passages) replyOf(e notify.TraceEvent) (kind ReplyKind, reply *notify.TracedPacket, ok bool) {
	kind, ok = replyKinds[e.Chain]
	if !ok || e.Table != s.table {
		return "", nil, false
	}
	if header, known := s.headers[e.ID]; e.Packet == nil && known { // another program traces the packet
		return kind, &header, true
	}
	return kind, e.Packet, true
}

// begin begins a passage, and ends one whose place in memory the new packet
// has.
func (s *passages) begin(e notify.TraceEvent, now time.Time) (ended []*passage) {
	before := s.open[e.ID]
	if before != nil && before.start == chainSample && e.Chain == chainFirst && !before.leftRouting {
		before.start = e.Chain // the same UDP packet, after connection tracking
		return nil
	}
	if before != nil {
		before.end = vanished
		ended = append(ended, before)
		delete(s.open, e.ID)
	}
	if header, ok := s.headers[e.ID]; ok { // otherwise messages were lost
		s.open[e.ID] = &passage{began: now, first: header, last: header, start: e.Chain}
	}
	return ended
}

// find returns the passage of an event, nil if there is none. A bridge changes
// the ID of a packet between the hooks prerouting and forward, but not its
// source.
func (s *passages) find(e notify.TraceEvent) *passage {
	if p := s.open[e.ID]; p != nil || e.Packet == nil {
		return p
	}
	for id, p := range s.open {
		if p.first.Protocol == e.Packet.Protocol && p.first.Source == e.Packet.Source && p.first.In != 0 {
			delete(s.open, id)
			s.open[e.ID] = p
			return p
		}
	}
	return nil
}

// reach records an event of the own chains.
func (p *passage) reach(e notify.TraceEvent) {
	if e.Type != notify.TracePolicy {
		return
	}
	switch e.Chain {
	case chainPreroutingLast, chainOutputLast:
		p.toRouting, p.mark = true, e.Mark
	case chainForward:
		p.leftRouting = true
	case chainInput, chainPostrouting:
		p.leftRouting, p.end = true, passed
	}
}

// record records an event of another table.
func (p *passage) record(e notify.TraceEvent) {
	if e.Type == notify.TraceReturn {
		return
	}
	p.events = append(p.events, e)
	if e.Verdict == nft.VerdictDrop || e.Verdict == nft.VerdictStolen {
		p.end = stopped
	}
}

// expire returns the passages that have vanished, the oldest first.
func (s *passages) expire(now time.Time) []*passage {
	var ended []*passage
	maps.DeleteFunc(s.open, func(_ uint32, p *passage) bool {
		expired := now.Sub(p.seen) >= patience
		if expired {
			p.end = vanished
			ended = append(ended, p)
		}
		return expired
	})
	slices.SortFunc(ended, func(a, b *passage) int { return a.began.Compare(b.began) })
	return ended
}
