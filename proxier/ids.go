package proxier

import (
	"maps"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/nft"
)

// affinityIDs gives endpoints of services with affinity the numbers by which their clients are remembered, and ranges of numbers to
// the lists of endpoints that a client is given one of. An endpoint's id is never given to another, so that
// the clients of one that is gone are nobody's.
type affinityIDs struct {
	nextID   uint32
	nextBase uint32
	free     []uint32 // bases of ranges of baseSize that are not used any more
	// recovered are the ids that endpoints had before this process started, or before a Reset, until everything is written again.
	recovered map[affinityEndpoint]uint32
	// absent are the ids of endpoints that went a moment ago: an endpoint that goes from one EndpointSlice to another can be in neither for a
	// sync, and keeps its clients all the same.
	absent map[affinityEndpoint]absence
}

// absence is the id of an endpoint that is gone, and until when it is kept for it.
type absence struct {
	id    uint32
	until time.Time
}

// absenceTime is how long the id of an endpoint that is gone is kept for it: for two writes of a controller, one after the other. It is short, since
// clients that go elsewhere meanwhile come back to the endpoint with its id.
const absenceTime = 100 * time.Millisecond

// affinityEndpoint is an endpoint of one service port.
type affinityEndpoint struct {
	port string // as in the names of chains: namespace/name/protocol/port
	netip.AddrPort
}

const (
	firstID  = 4096
	baseSize = 4096
)

func newAffinityIDs() affinityIDs {
	return affinityIDs{nextID: firstID, nextBase: baseSize, recovered: make(map[affinityEndpoint]uint32), absent: make(map[affinityEndpoint]absence)}
}

// assign gives the targets of a plan their ids, and the plan its ranges. Targets and ranges of the plan before keep theirs.
func (a *affinityIDs) assign(before, next *plan) {
	known := make(map[netip.AddrPort]uint32)
	for _, list := range [][]target{before.cluster, before.local} {
		for _, t := range list {
			known[t.AddrPort] = t.id // 0 if there was no affinity before
		}
	}
	port := next.affinityChain("")
	for _, list := range [][]target{next.cluster, next.local} {
		for i := range list {
			t := &list[i]
			if t.id = known[t.AddrPort]; t.id == 0 {
				t.id = a.id(affinityEndpoint{port, t.AddrPort})
				known[t.AddrPort] = t.id
			}
		}
	}
	next.clusterBase = a.base(before.clusterBase, len(before.cluster), len(next.cluster))
	next.localBase = a.base(before.localBase, len(before.local), len(next.local))
}

func (a *affinityIDs) id(e affinityEndpoint) uint32 {
	if id, ok := a.recovered[e]; ok {
		return id
	}
	if was, ok := a.absent[e]; ok && time.Now().Before(was.until) {
		return was.id
	}
	id := a.nextID
	a.nextID++
	return id
}

// base returns where a range for n indexes starts: where it started before, if it is large enough.
func (a *affinityIDs) base(before uint32, had, n int) uint32 {
	ranges := func(n int) uint32 { return uint32((n + baseSize - 1) / baseSize) }
	switch {
	case n == 0:
		return before
	case before != 0 && ranges(n) <= max(ranges(had), 1):
		return before
	case ranges(n) == 1 && len(a.free) > 0:
		base := a.free[len(a.free)-1]
		a.free = a.free[:len(a.free)-1]
		return base
	}
	base := a.nextBase
	a.nextBase += ranges(n) * baseSize
	return base
}

// release takes back the ranges of a plan that is out of the kernel, as far as the next one does not use them, and keeps the ids of its endpoints for
// a moment.
func (a *affinityIDs) release(before, next *plan) {
	if before == nil {
		return
	}
	a.miss(before, time.Now().Add(absenceTime))
	if next == nil {
		next = &plan{}
	}
	for _, base := range []uint32{before.clusterBase, before.localBase} {
		if base != 0 && base != next.clusterBase && base != next.localBase {
			a.free = append(a.free, base)
		}
	}
}

// expire forgets endpoints that are gone for long enough.
func (a *affinityIDs) expire() {
	if len(a.absent) == 0 {
		return
	}
	now := time.Now()
	maps.DeleteFunc(a.absent, func(_ affinityEndpoint, was absence) bool { return now.After(was.until) })
}

// miss keeps the ids of a plan's endpoints until then.
func (a *affinityIDs) miss(p *plan, until time.Time) {
	if p.affinity() == 0 {
		return
	}
	port := p.affinityChain("")
	for _, list := range [][]target{p.cluster, p.local} {
		for _, t := range list {
			if t.id != 0 {
				a.absent[affinityEndpoint{port, t.AddrPort}] = absence{t.id, until}
			}
		}
	}
}

// keep takes note of the ids of a plan, for a later plan that knows nothing of it.
func (a *affinityIDs) keep(p *plan) {
	if p == nil || p.affinity() == 0 {
		return
	}
	for _, list := range [][]target{p.cluster, p.local} {
		for _, t := range list {
			a.recovered[affinityEndpoint{p.affinityChain(""), t.AddrPort}] = t.id
		}
	}
}

// recoverAffinity learns the ids that endpoints have in the table that is in the kernel, so that clients keep their endpoints when
// the proxier is started anew. Clients of endpoints that are gone can still be in @affinity, under ids that nothing tells any more: new
// ids begin at the number of seconds since 1970, which is beyond what a process before this one, giving out less than one
// a second, can have reached.
func (b *Backend) recoverAffinity() error {
	table := &nft.Table{Family: b.layout.family, Name: TableName}
	if _, exists, err := b.kernel.TableHandle(table); err != nil || !exists {
		return err
	}
	b.ids.nextID = uint32(time.Now().Unix())
	found, err := b.kernel.Targets(table)
	if err != nil {
		return err
	}
	endpoints := make(map[string]netip.AddrPort)
	for _, r := range found {
		if r.DNAT.IsValid() {
			endpoints[r.Chain] = r.DNAT
		}
	}
	for _, r := range found {
		port, ok := strings.CutPrefix(r.Chain, affinityPrefix)
		if !ok {
			port, ok = strings.CutPrefix(r.Chain, affinityLocalPrefix)
		}
		to, known := endpoints[r.Goto]
		if id := idOfChain(r.Goto); ok && known && id != 0 {
			b.ids.recovered[affinityEndpoint{port, to}] = id
			b.ids.nextID = max(b.ids.nextID, id+1)
		}
	}
	return nil
}

// idOfChain returns the id in the name of an endpoint's chain, 0 if it is not one.
func idOfChain(chain string) uint32 {
	digits, ok := strings.CutPrefix(chain, affinityEndpointPrefix)
	if !ok {
		return 0
	}
	id, err := strconv.ParseUint(digits, 10, 32)
	if err != nil {
		return 0
	}
	return uint32(id)
}
