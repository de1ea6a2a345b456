package table

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"net/netip"
	"time"

	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// affinityIDs allocates ids for the endpoints of service ports with session
// affinity. The affinity sets contain a client's address and the id of its
// endpoint. An id is never given to another endpoint, so that the clients of a
// removed endpoint get a new endpoint at once.
type affinityIDs struct {
	next uint32
	// reserved are the ids below this one, in the row of reserved-ids.
	reserved uint32
	// known are the ids of endpoints that the plan before does not have: those
	// in a plan that is not committed yet, of an earlier process, or of an
	// endpoint that was removed a moment ago.
	known map[affinityEndpoint]knownID
	sets  *clientSets
	// adopted reports whether there may be ids or sets of an earlier process.
	adopted bool
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
	return affinityIDs{next: firstID, known: make(map[affinityEndpoint]knownID), sets: newClientSets(seed)}
}

// forgetOld forgets the ids that have been kept long enough.
func (a *affinityIDs) forgetOld() {
	now := time.Now()
	a.sets.forgetOld(now)
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
	if before.HasAffinity() {
		next.ClientSet = before.ClientSet
	} else {
		next.ClientSet = a.sets.propose(port)
	}
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

// preview returns a copy of the allocator, for plans that are never committed.
func (a *affinityIDs) preview() *affinityIDs {
	c := *a
	c.known, c.sets = maps.Clone(a.known), a.sets.preview()
	return &c
}

// release keeps, for a moment, the ids of the endpoints that are in the plan
// before and not in the next one, which replaced it.
func (a *affinityIDs) release(before, next *ruleset.Plan) {
	if before.HasAffinity() {
		until, port := time.Now().Add(absenceTime), before.AffinityName()
		a.sets.leave(port)
		for t := range targets(before) {
			if t.ID != 0 {
				a.known[affinityEndpoint{port, t.AddrPort()}] = knownID{clientID{t.ID, t.Group}, until, false}
			}
		}
	}
	if next.HasAffinity() {
		port := next.AffinityName()
		a.sets.commit(port, next.ClientSet)
		for t := range targets(next) {
			delete(a.known, affinityEndpoint{port, t.AddrPort()})
		}
	}
}

// forgetEarlier forgets what was kept until everything was written, but for
// service ports that are not served as they are wanted yet, by AffinityName.
func (a *affinityIDs) forgetEarlier(waiting map[string]bool) {
	maps.DeleteFunc(a.known, func(e affinityEndpoint, k knownID) bool { return k.until.IsZero() && !waiting[e.port] })
	a.sets.forgetEarlier(waiting)
	a.adopted = len(waiting) > 0
}

// idBlock is the number of ids that the row of reserved-ids reserves at a time.
const idBlock = 1 << 16

// reserve returns the id below which ids are reserved, far above next. ok is
// false if no id was given to an endpoint yet.
func (a *affinityIDs) reserve() (below uint32, ok bool) {
	if a.next > max(a.reserved, firstID) {
		a.reserved = (a.next/idBlock + 1) * idBlock
	}
	return a.reserved, a.reserved != 0
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
