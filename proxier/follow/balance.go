package follow

import (
	"cmp"
	"fmt"
	"math/bits"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// balanceEvents reports service ports of an address family whose hashes or
// weights have no effect, or a limited one.
type balanceEvents struct {
	idle
	events cluster.EventRecorder
	notes  map[string]string // last event about a service port
}

func newBalanceEvents(events cluster.EventRecorder) *balanceEvents {
	return &balanceEvents{events: events, notes: make(map[string]string)}
}

// committed reports the service ports of a commit, each once for the same note.
func (b *balanceEvents) committed(c *table.Commit) {
	for _, change := range c.Changes {
		plan := cmp.Or(change.After, change.Before)
		if plan == nil {
			continue // a service port without a frontend
		}
		name, note := plan.Name().String(), balanceNote(change.After)
		if note == "" {
			delete(b.notes, name)
		} else if note != b.notes[name] {
			b.notes[name] = note
			b.events.Record(cluster.NewEvent(plan.Service, cluster.ReasonBalance, name+": "+note))
		}
	}
}

// slotsOfEndpoint is the number of slots that each endpoint needs for an equal
// share.
const slotsOfEndpoint = 10

// balanceNote returns the limit of the hash or the weights of a service port,
// "" if there is none.
func balanceNote(p *ruleset.Plan) string {
	if p == nil {
		return ""
	}
	if p.Service.AffinityTimeout > 0 {
		if p.HasWeights() {
			return "weights of endpoints have no effect with sessionAffinity ClientIP"
		}
		return ""
	}
	slots, need := len(p.ClusterSlots), slotsOfEndpoint*len(p.Cluster)
	if n := slotsOfEndpoint * len(p.Local); n-len(p.LocalSlots) > need-slots {
		slots, need = len(p.LocalSlots), n
	}
	if slots < 2 || slots >= min(need, cluster.MaxHashTableSize) {
		return ""
	}
	// A power of two, so that not every change of the endpoints is reported.
	size := min(1<<bits.Len(uint(need-1)), cluster.MaxHashTableSize)
	return fmt.Sprintf("a hash table of %d rows gives its endpoints unequal shares; set the annotation "+
		"nftproxy.io/hash-table-size to %d", slots, size)
}
