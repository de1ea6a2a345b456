package table

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"net/netip"
	"time"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// affinityIDs allocates ids for the endpoints of service ports with session
// affinity, and chooses the affinity sets of service ports. The affinity sets
// contain a client's address and the id of its endpoint. An id is never given
// to another endpoint, so that the clients of a removed endpoint get a new
// endpoint at once.
type affinityIDs struct {
	next uint32
	seed uint64 // of the choice of affinity sets; 0 before Setup
	// known are the ids of endpoints that the plan before does not have: those
	// in a plan that is not committed yet, of an earlier process, or of an
	// endpoint that was removed a moment ago.
	known map[affinityEndpoint]knownID
	// knownSets are the affinity sets of service ports of an earlier process,
	// by AffinityName, until they are served.
	knownSets map[string]uint8
}

// clientID are the ruleset.Target.ID and Group of an endpoint.
type clientID struct{ id, group uint32 }

// knownID is an id that an endpoint had, and the time until which it is kept:
// zero for one of an earlier process, which is kept until the service port is
// served.
type knownID struct {
	clientID
	until    time.Time
	proposed bool // reports whether it is in a plan that is not committed yet
}

const (
	// absenceTime is how long the id of a removed endpoint is kept. An endpoint
	// that moves between EndpointSlices can be absent from both for two
	// consecutive writes of a controller, and must keep its clients. The time
	// is short, because clients that use another endpoint meanwhile return to
	// this one if it is added again with its id.
	absenceTime = 100 * time.Millisecond
	// proposalTime is how long the ids of a plan that is not committed are
	// kept, so that failing commits do not use up ids. It is longer than the
	// pause after a failed sync.
	proposalTime = time.Minute
)

// affinityEndpoint is an endpoint of one service port.
type affinityEndpoint struct {
	port string // ruleset.Plan.AffinityName
	netip.AddrPort
}

// firstID is the first id on a node without an earlier table. Ids above 4095
// are easy to distinguish from other numbers in a listing.
const firstID = 4096

func newAffinityIDs(seed uint64) affinityIDs {
	return affinityIDs{
		next: firstID, seed: seed, known: make(map[affinityEndpoint]knownID), knownSets: make(map[string]uint8),
	}
}

// forgetOld forgets the ids that have been kept long enough.
func (a *affinityIDs) forgetOld() {
	now := time.Now()
	maps.DeleteFunc(a.known, func(_ affinityEndpoint, k knownID) bool { return k.isOld(now) })
	if len(a.known) == 0 { // an emptied map keeps its size
		a.known = make(map[affinityEndpoint]knownID)
	}
}

func (k *knownID) isOld(now time.Time) bool { return !k.until.IsZero() && now.After(k.until) }

// assign sets the ids and groups of the targets and the affinity set of a new
// plan with session affinity. They are the same as in the plan before.
func (a *affinityIDs) assign(before, next *ruleset.Plan) {
	if !next.HasAffinity() {
		return
	}
	known := make(map[netip.AddrPort]clientID)
	for t := range targets(before) {
		known[t.AddrPort()] = clientID{t.ID, t.Group} // 0 if there was no affinity before
	}
	port := next.AffinityName()
	next.ClientSet = a.clientSet(before, port)
	ids := make(map[netip.AddrPort]clientID)
	for t := range targets(next) {
		id := known[t.AddrPort()]
		if id.id == 0 {
			id = a.earlier(affinityEndpoint{port, t.AddrPort()})
		}
		ids[t.AddrPort()] = id
	}
	groups := groupsOf(ids)
	for t := range targets(next) {
		e := affinityEndpoint{port, t.AddrPort()}
		id := ids[e.AddrPort]
		if id.id == 0 {
			id = clientID{a.new(), groups.choose(a)}
			ids[e.AddrPort] = id
			a.propose(e, id)
		}
		t.ID, t.Group = id.id, id.group
	}
}

// clientSet returns the affinity set of a service port that had a plan before.
func (a *affinityIDs) clientSet(before *ruleset.Plan, port string) uint8 {
	if before.HasAffinity() {
		return before.ClientSet
	}
	if set, ok := a.knownSets[port]; ok {
		return set
	}
	return ruleset.ClientSet(a.seed, port)
}

// targets iterates over the targets of a plan. A target can be in both lists of
// the plan.
func targets(p *ruleset.Plan) iter.Seq[*ruleset.Target] {
	return func(yield func(*ruleset.Target) bool) {
		if p == nil {
			return
		}
		for _, list := range [][]ruleset.Target{p.Cluster, p.Local} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// earlier returns the id that an endpoint had, or was given in a plan that was
// not committed.
func (a *affinityIDs) earlier(e affinityEndpoint) clientID {
	k, ok := a.known[e]
	if !ok || k.isOld(time.Now()) {
		return clientID{}
	}
	if k.proposed {
		a.propose(e, k.clientID)
	}
	return k.clientID
}

// propose keeps the id of an endpoint in a plan that is not committed yet.
func (a *affinityIDs) propose(e affinityEndpoint, id clientID) {
	a.known[e] = knownID{id, time.Now().Add(proposalTime), true}
}

// new returns a number that was never used.
func (a *affinityIDs) new() uint32 {
	a.next++
	return a.next - 1
}

// previewPlan returns the plan that the next sync gives a service port, with
// ids of a copy of the allocator.
func (t *Table) previewPlan(p *portState, ids *affinityIDs) *ruleset.Plan {
	plan, _ := t.desiredPlan(p, ids) // the remainder if it cannot be written
	return plan
}

// preview returns a copy of the allocator, for plans that are never committed.
func (a *affinityIDs) preview() *affinityIDs {
	c := *a
	c.known = maps.Clone(a.known)
	return &c
}

// release keeps, for a moment, the ids of the endpoints that are in the plan
// before and not in the next one, which replaced it.
func (a *affinityIDs) release(before, next *ruleset.Plan) {
	if before.HasAffinity() {
		until, port := time.Now().Add(absenceTime), before.AffinityName()
		for t := range targets(before) {
			if t.ID != 0 {
				a.known[affinityEndpoint{port, t.AddrPort()}] = knownID{clientID{t.ID, t.Group}, until, false}
			}
		}
	}
	if next.HasAffinity() && len(a.known) > 0 {
		port := next.AffinityName()
		for t := range targets(next) {
			delete(a.known, affinityEndpoint{port, t.AddrPort()})
		}
	}
}

// forgetEarlier forgets what was kept until everything was written, but for
// service ports that are not served as they are wanted yet.
func (a *affinityIDs) forgetEarlier(waiting refusals) {
	if len(a.knownSets) == 0 {
		return
	}
	names := make(map[string]bool)
	for p := range waiting {
		if svc := p.service.spec; svc != nil {
			names[(&ruleset.Plan{Service: svc, Port: p.port}).AffinityName()] = true
		}
	}
	maps.DeleteFunc(a.known, func(e affinityEndpoint, k knownID) bool { return k.until.IsZero() && !names[e.port] })
	maps.DeleteFunc(a.knownSets, func(port string, _ uint8) bool { return !names[port] })
}

// idBlock is the number of ids that the row of reserved-ids reserves
// at a time.
const idBlock = 1 << 16

// recoverAffinity reads the ids of endpoints and the affinity sets of service
// ports in the kernel's table, so that clients keep their endpoints when the
// proxy restarts. Other service ports get sets by a new seed. The sets can
// contain clients of removed endpoints, whose ids are in no rule. Therefore new
// ids begin after the ids that the earlier process reserved, or, if these
// cannot be read, at the number of seconds since 1970.
//
// If a chain cannot be read, the clients of its endpoints may get another one.
func (t *Table) recoverAffinity() {
	if t.ids.seed == 0 {
		t.ids.seed = rand.Uint64()
	}
	table := &nft.Table{Family: t.Family(), Name: ruleset.TableName}
	_, exists, err := t.kernel.FindTable(table)
	if err == nil && !exists {
		return
	}
	t.ids.next = uint32(time.Now().Unix())
	if err == nil {
		var reserved []nft.Row
		reserved, err = t.rowsOf(table, t.rules.ReservedIDs(0).Set)
		for i, r := range reserved {
			if n := r.Key.FirstInteger(); i == 0 || n > t.ids.next {
				t.ids.next = n
			}
		}
	}
	var chains []nft.Chain
	if err == nil {
		chains, err = t.kernel.Chains(table)
	}
	for _, chain := range chains { // one by one: a dump of all rules takes quadratic time
		port, ok := ruleset.ParseStickyChain(chain.Name)
		if !ok {
			continue
		}
		rules, errRules := t.kernel.Rules(table, chain.Name)
		if errRules != nil {
			err = errRules
		}
		for _, r := range rules {
			if sticky, ok := ruleset.ParseStickyRule(r); ok {
				t.ids.recover(port, sticky)
			}
		}
	}
	if err != nil {
		klog.ErrorS(err,
			"Failed to read the session affinity of an earlier process; some clients may get another endpoint",
			"table", t.name())
	}
}

// rowsOf reads the rows of a set in the table of this version or of an earlier
// one.
func (t *Table) rowsOf(table *nft.Table, set *nft.Set) ([]nft.Row, error) {
	rows, err := t.kernel.Rows(table, set)
	if err != nil || len(rows) > 0 {
		return rows, err
	}
	earlier := *set
	earlier.Name = t.rules.EarlierSet(set)
	rows, err = t.kernel.Rows(table, &earlier)
	for i := range rows {
		rows[i].Set = set
	}
	return rows, err
}

// maxEarlierClients is the number of clients with session affinity that are
// taken over from the table of an earlier version. The kernel takes quadratic
// time to list a set.
const maxEarlierClients = 1 << 17

// addEarlierClients adds the clients of the affinity sets of an earlier
// version, which tx deletes, to the affinity sets that tx adds.
func (t *Table) addEarlierClients(tx *transaction, found inspection) {
	left := maxEarlierClients
	for set := range tx.affinity {
		if !found.has(object{kindSet, t.rules.EarlierSet(set)}) {
			continue
		}
		rows, err := t.rowsOf(tx.program.Table, set)
		if err != nil || len(rows) > left {
			klog.InfoS("Clients with session affinity may get another endpoint", "table", t.name(), "set", set.Name,
				"clients", len(rows), "err", err)
			continue
		}
		left -= len(rows)
		for _, r := range rows {
			if r.Expires > 0 {
				tx.to.AddRow(r)
			}
		}
	}
}

// recover records the id of an endpoint and the affinity set that a rule of a
// service port in the kernel has.
func (a *affinityIDs) recover(port string, rule ruleset.StickyRule) {
	a.known[affinityEndpoint{port, rule.Endpoint}] = knownID{clientID: clientID{rule.ID, rule.Group}}
	a.knownSets[port] = rule.ClientSet
	a.next = max(a.next, rule.ID+1, rule.Group+1)
}

// affinityGroups are the groups of the endpoints of a service port with session
// affinity (see ruleset.Target.Group): their numbers of members.
type affinityGroups struct {
	members map[uint32]int
	most    int // members of a group; 0 if new endpoints are in no group
}

// listedEndpoints is the largest number of endpoints of a new service port that
// are in no group.
const listedEndpoints = 10

// groupsOf returns the groups of endpoints. The endpoints without an id are in
// none yet. A known client is looked up in half of the groups and among half of
// the members of its own on average, and a new client in all groups. So there
// are some more members than groups.
func groupsOf(ids map[netip.AddrPort]clientID) affinityGroups {
	g := affinityGroups{members: make(map[uint32]int)}
	for _, id := range ids {
		if id.group != 0 {
			g.members[id.group]++
		}
	}
	if len(ids) > listedEndpoints || len(g.members) > 0 {
		g.most = max(4, int(math.Ceil(1.5*math.Sqrt(float64(len(ids))))))
	}
	return g
}

// choose returns the group of a new endpoint: the one with the most members
// that has room, or a new one.
func (g affinityGroups) choose(ids *affinityIDs) (group uint32) {
	if g.most == 0 {
		return 0
	}
	for id, n := range g.members {
		if n < g.most && (group == 0 || cmp.Or(cmp.Compare(n, g.members[group]), cmp.Compare(group, id)) > 0) {
			group = id
		}
	}
	if group == 0 {
		group = ids.new()
	}
	g.members[group]++
	return group
}
