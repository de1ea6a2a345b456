package proxier

import (
	"maps"
	"net/netip"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
)

// affinityIDs gives endpoints of service ports with session affinity the numbers
// by which the affinity sets remember their clients. An id is never given to
// another endpoint, so that the clients of an endpoint are free as soon as it is
// gone.
type affinityIDs struct {
	next uint32
	// proposed are the ids given to endpoints of plans that are not committed
	// yet, before the ids of the round of planning that preceded it.
	proposed, before map[affinityEndpoint]uint32
	// recovered are the ids that endpoints had before this process started, or
	// before a Reset, until everything is written again.
	recovered map[affinityEndpoint]uint32
	// absent are the ids of endpoints that went a moment ago. An endpoint that
	// moves between EndpointSlices can be in neither for one sync, and keeps its
	// clients all the same.
	absent map[affinityEndpoint]absence
}

// absence is the id of an endpoint that is gone, and the time until which it is
// kept for that endpoint.
type absence struct {
	id    uint32
	until time.Time
}

// absenceTime is how long the id of an endpoint that is gone is kept for it: long
// enough for two consecutive writes of a controller. It is short, because clients
// that use another endpoint meanwhile return to this one if it comes back with
// its id.
const absenceTime = 100 * time.Millisecond

// affinityEndpoint is an endpoint of one service port.
type affinityEndpoint struct {
	port string // as in the names of chains: namespace.name.protocol.port
	netip.AddrPort
}

// firstID is the first id that is given in a node without an earlier table. Ids
// above 4095 stand out from other numbers in a listing.
const firstID = 4096

func newAffinityIDs() affinityIDs {
	return affinityIDs{
		next:      firstID,
		proposed:  make(map[affinityEndpoint]uint32),
		recovered: make(map[affinityEndpoint]uint32),
		absent:    make(map[affinityEndpoint]absence),
	}
}

// beginPlanning starts a round of planning: the plans of a sync. Endpoints keep
// the ids that they were given in a round before that was not committed, so that
// failing commits use up no ids.
func (a *affinityIDs) beginPlanning() {
	a.before, a.proposed = a.proposed, make(map[affinityEndpoint]uint32)
	if len(a.absent) > 0 {
		now := time.Now()
		maps.DeleteFunc(a.absent, func(_ affinityEndpoint, was absence) bool { return now.After(was.until) })
	}
}

// assign gives the targets of a plan their ids. Targets of the plan before keep
// theirs.
func (a *affinityIDs) assign(before, next *plan) {
	known := make(map[netip.AddrPort]uint32)
	for t := range before.affinityTargets() {
		known[t.AddrPort] = t.id // 0 if there was no affinity before
	}
	port := next.affinityName()
	for t := range next.affinityTargets() {
		if t.id = known[t.AddrPort]; t.id == 0 {
			t.id = a.id(affinityEndpoint{port, t.AddrPort})
			known[t.AddrPort] = t.id
		}
	}
}

// affinityTargets iterates over the targets of a plan, some of which are in both
// of its lists.
func (p *plan) affinityTargets() func(yield func(*target) bool) {
	return func(yield func(*target) bool) {
		for _, list := range [][]target{p.cluster, p.local} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

func (a *affinityIDs) id(e affinityEndpoint) uint32 {
	if id, ok := a.recovered[e]; ok {
		return id
	}
	if was, ok := a.absent[e]; ok && time.Now().Before(was.until) {
		return was.id
	}
	id, ok := a.proposed[e]
	if !ok {
		id, ok = a.before[e]
	}
	if !ok {
		id = a.next
		a.next++
	}
	a.proposed[e] = id
	return id
}

// committed notes that the plans of the last round were committed.
func (a *affinityIDs) committed() { clear(a.proposed) }

// release keeps, for a moment, the ids of the endpoints that are in the plan
// before, which was replaced in the kernel, and not in the next one.
func (a *affinityIDs) release(before, next *plan) {
	if before == nil || before.affinity() == 0 {
		return
	}
	stay := make(map[netip.AddrPort]struct{})
	if next != nil && next.affinity() != 0 {
		for t := range next.affinityTargets() {
			stay[t.AddrPort] = struct{}{}
		}
	}
	until, port := time.Now().Add(absenceTime), before.affinityName()
	for t := range before.affinityTargets() {
		if _, stays := stay[t.AddrPort]; !stays && t.id != 0 {
			a.absent[affinityEndpoint{port, t.AddrPort}] = absence{t.id, until}
		}
	}
}

// keep notes the ids of a plan for a later plan that is made without it.
func (a *affinityIDs) keep(p *plan) {
	if p == nil || p.affinity() == 0 {
		return
	}
	for t := range p.affinityTargets() {
		a.recovered[affinityEndpoint{p.affinityName(), t.AddrPort}] = t.id
	}
}

// idBlock is the number of ids that are reserved at a time by a row of
// reserved-affinity-ids.
const idBlock = 1 << 16

// recoverAffinity reads the ids that endpoints have in the kernel's table, so
// that clients keep their endpoints when the proxier is restarted. The affinity
// sets can still hold clients of endpoints that are gone, under ids that no rule
// shows any more. So new ids begin where the ids that the earlier process reserved
// end. If that cannot be read, they begin at the number of seconds since 1970.
//
// What cannot be read is lost: clients of those endpoints may get another one.
func (b *Backend) recoverAffinity() {
	table := &nft.Table{Family: b.layout.family, Name: TableName}
	_, exists, err := b.kernel.FindTable(table)
	if err == nil && !exists {
		return
	}
	b.ids.next = uint32(time.Now().Unix())
	if err == nil {
		var reserved []nft.Row
		reserved, err = b.kernel.Rows(table, b.layout.affinityIDs)
		for i, r := range reserved {
			if n := r.Key.FirstInteger(); i == 0 || n > b.ids.next {
				b.ids.next = n
			}
		}
	}
	var chains []nft.FoundChain
	if err == nil {
		chains, err = b.kernel.Chains(table)
	}
	for _, chain := range chains { // one by one: a dump of all rules is quadratic
		port, ok := strings.CutPrefix(chain.Name, affinityPrefix)
		if !ok {
			port, ok = strings.CutPrefix(chain.Name, affinityLocalPrefix)
		}
		if !ok {
			continue
		}
		rules, errRules := b.kernel.Rules(table, chain.Name)
		if errRules != nil {
			err = errRules
		}
		for _, r := range rules {
			b.ids.recover(port, r.RuleContent)
		}
	}
	if err != nil {
		klog.ErrorS(err, "Failed to read the session affinity of an earlier process; some clients may get another endpoint", "table", table)
	}
}

// recover notes the id that a rule for known clients shows: a rule that finds a
// client in an affinity set and sends it to an endpoint.
func (a *affinityIDs) recover(port string, rule nft.RuleContent) {
	if !rule.DNAT.IsValid() || len(rule.Sets) == 0 || !strings.HasPrefix(rule.Sets[0], affinitySetPrefix) {
		return
	}
	for _, n := range rule.Numgens {
		if n.Mod == 1 && n.Offset != 0 { // the constant that is the id
			a.recovered[affinityEndpoint{port, rule.DNAT}] = n.Offset
			a.next = max(a.next, n.Offset+1)
			return
		}
	}
}
