package table

import (
	"cmp"
	"math"
	"net/netip"
)

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
