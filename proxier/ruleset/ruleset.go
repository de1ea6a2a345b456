package ruleset

import (
	"fmt"

	"github.com/nftproxy/nftproxy/nft"
)

// Ruleset computes the table of one address family: its program from the
// configuration of the node, and its rows from plans. It must not be used by
// several goroutines at a time, because it reuses buffers.
type Ruleset struct {
	config     *Config
	layout     *layout
	timeouts   Timeouts
	candidates []candidate // of the plan that is being made
}

// New returns the Ruleset of an address family.
func New(config Config, family nft.Family) (*Ruleset, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if !family.Valid() {
		return nil, fmt.Errorf("address family %d is not supported", family)
	}
	return &Ruleset{config: &config, layout: newLayout(family)}, nil
}

// Family returns the address family of the table.
func (r *Ruleset) Family() nft.Family { return r.layout.family }

// AffinitySets returns the sets of clients with session affinity. They are not
// part of the program: a set is created when the first service port needs it.
func (r *Ruleset) AffinitySets() []*nft.Set { return r.layout.affinity[:] }

// SourceSets returns the sets of source ranges that are used, by length of
// their prefixes. They are part of a program that uses them.
func (r *Ruleset) SourceSets(used func(*nft.Set) bool) (sets []*nft.Set) {
	for _, s := range r.layout.firewallSources {
		if used(s) {
			sets = append(sets, s)
		}
	}
	return sets
}

// IsShared reports whether several service ports can have the same row of a
// set: a ClusterIP with several ports, or an endpoint of several Services. Rows
// of all other sets belong to one service port.
func (r *Ruleset) IsShared(s *nft.Set) bool {
	return s == r.layout.clusterIPs || s == r.layout.hairpin
}

// ReservedIDs returns the row that reserves the ids of session affinity below
// next.
func (r *Ruleset) ReservedIDs(next uint32) nft.Row {
	return nft.Row{Set: r.layout.reservedIDs, Key: nft.Tuple{}.Integer(next)}
}

// ReservedBelow returns the id below which a row of ReservedIDs reserves ids.
func ReservedBelow(r nft.Row) uint32 { return r.Key.FirstInteger() }
