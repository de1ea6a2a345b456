package table

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// committed is what the kernel has of a table, as of the last commit that
// succeeded. It changes only after a commit: by apply, and by deleteUnused,
// which removes balancers. samplesOf caches samples in it.
type committed struct {
	program     *nft.Table // sets and chains of the program; nil before the first commit
	nodeRows    []nft.Row  // rows about this node
	reservedIDs uint32     // the row of reserved-affinity-ids; 0 if there is none
	// nodePortAddrs are the addresses on which NodePorts listen.
	nodePortAddrs []netip.Addr
	plans         map[*portState]*ruleset.Plan
	noLocal       NoLocalEndpoints      // of the plans
	endpoints     int                   // of the plans
	balancers     map[string]int        // number of rows that use a balancer, by chain
	affinity      map[*nft.Set]struct{} // affinity sets that exist
	shared        sharedRows
	rows          map[string]int         // number of rows, by set
	samples       map[*nft.Set][]nft.Row // a few rows of each set that has any
}

func newCommitted() *committed {
	return &committed{
		plans:     make(map[*portState]*ruleset.Plan),
		balancers: make(map[string]int),
		affinity:  make(map[*nft.Set]struct{}),
		shared:    make(sharedRows),
		rows:      make(map[string]int),
		samples:   make(map[*nft.Set][]nft.Row),
	}
}

// maxSamples is the number of rows of a set that are kept to find out whether
// another program flushed the set. It is more than one, so that a change of one
// Service rarely deletes all of them.
const maxSamples = 4

// apply records that a transaction was committed.
func (c *committed) apply(tx *transaction) {
	if tx.program != nil {
		c.program, c.nodeRows, c.nodePortAddrs = tx.program.Table, tx.program.Rows, tx.program.NodePortAddrs
	}
	if tx.reservedIDs != 0 {
		c.reservedIDs = tx.reservedIDs
	}
	for _, change := range tx.changes {
		c.noLocal.add(change.before, -tx.countBefore())
		c.noLocal.add(change.next, 1)
		c.endpoints += endpointsOf(change.next) - tx.countBefore()*endpointsOf(change.before)
		if change.next == nil {
			delete(c.plans, change.port)
		} else {
			c.plans[change.port] = change.next
		}
	}
	for chain := range tx.balancers {
		c.balancers[chain] = 0
	}
	for chain, n := range tx.uses {
		if _, ok := c.balancers[chain]; ok {
			c.balancers[chain] += n
		}
	}
	for set := range tx.affinity {
		c.affinity[set] = struct{}{}
	}
	tx.shared.apply(c.shared)
	for set, n := range tx.rows {
		c.rows[set] += n
	}
	for _, r := range tx.deletedSamples {
		c.samples[r.Set] = slices.DeleteFunc(c.samples[r.Set], sameKeyAs(r))
	}
	for set, rows := range tx.added {
		rows = append(rows, c.samples[set]...)
		c.samples[set] = rows[:min(len(rows), maxSamples)]
	}
}

// samplesOf returns samples of a set that has rows. If none are kept, it finds
// new ones.
func (c *committed) samplesOf(rules *ruleset.Ruleset, set *nft.Set) []nft.Row {
	if c.rows[set.Name] == 0 {
		return nil
	}
	if rows := c.samples[set]; len(rows) > 0 {
		return rows
	}
	for _, r := range c.nodeRows {
		if r.Set == set {
			c.samples[set] = []nft.Row{r}
			return c.samples[set]
		}
	}
	var rows []nft.Row
	for _, plan := range c.plans {
		rows = rules.Rows(rows[:0], plan)
		if i := slices.IndexFunc(rows, func(r nft.Row) bool { return r.Set == set }); i >= 0 {
			c.samples[set] = []nft.Row{rows[i]}
			break
		}
	}
	return c.samples[set]
}

// sources returns the sets of source ranges that have rows after these changes
// of their numbers.
func (c *committed) sources(rules *ruleset.Ruleset, change map[string]int) []*nft.Set {
	return rules.SourceSets(func(s *nft.Set) bool { return c.rows[s.Name]+change[s.Name] > 0 })
}

// sameKeyAs returns a function that reports whether a row has the key of r.
func sameKeyAs(r nft.Row) func(nft.Row) bool {
	return func(o nft.Row) bool { return o.Key == r.Key }
}
