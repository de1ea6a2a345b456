package tabletest

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/test/random"
)

// Random generates objects of a family, and makes random changes to a sink.
type Random struct {
	*random.Generator
	Family nft.Family
	states *[]*random.State // the present one is the last
}

// NewRandom returns a generator whose objects follow from the seed. There are
// few of them, so that there are conflicts.
func NewRandom(seed, stream uint64, f nft.Family) Random {
	return Random{random.New(seed, stream, random.Config{
		Endpoints: random.Addrs("a1", "a2", "a3", "a4", "a5", "b1", "b2", "b3", "b4"),
		Apps:      8, Families: []int{index(f)}, Conflicts: 20, Alone: true,
	}), f, &[]*random.State{{Node: Node()}}}
}

// index returns the index of a family in package random.
func index(f nft.Family) int { return slices.Index([]nft.Family{nft.IPv4, nft.IPv6}, f) }

// Pod returns the address of an endpoint.
func (r Random) Pod() netip.Addr {
	return r.Generator.Endpoints[random.Pick(r.Generator, []string{"a1", "b1"})][index(r.Family)]
}

// Outside returns the address of a client outside the cluster.
func (r Random) Outside() netip.Addr { return r.Generator.Outside(index(r.Family)) }

// State returns the objects.
func (r Random) State() *random.State { return (*r.states)[r.Changes()] }

// Changes returns the number of changes that Revert can take back.
func (r Random) Changes() int { return len(*r.states) - 1 }

// Change makes a change of the objects, and passes it to a sink.
func (r Random) Change(s cluster.Sink) {
	before := r.State()
	after := before.Clone()
	r.Generator.Change(after)
	*r.states = append(*r.states, after)
	random.Pass(s, before, after)
}

// Revert takes back the last n changes, or as many as there are.
func (r Random) Revert(s cluster.Sink, n int) {
	before := r.State()
	*r.states = (*r.states)[:1+max(0, r.Changes()-n)]
	random.Pass(s, before, r.State())
}

// Replay passes all objects to another sink.
func (r Random) Replay(s cluster.Sink) { random.Pass(s, nil, r.State()) }
