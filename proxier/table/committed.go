package table

import (
	"cmp"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// committed is what the kernel has of a table, as of the last commit that
// succeeded. It changes only after a commit, by apply. samplesOf caches samples
// in it.
type committed struct {
	program     *nft.Table // sets and chains of the program; nil before the first commit
	nodeRows    []nft.Row  // rows about this node
	reservedIDs uint32     // the row of reserved-ids; 0 if there is none
	// nodePortAddrs are the addresses on which NodePorts listen.
	nodePortAddrs []netip.Addr
	plans         map[*portState]*ruleset.Plan
	noLocal       NoLocalEndpoints // of the plans
	endpoints     int              // of the plans
	// balancers are the balancers that exist. They stay until everything is
	// written: an unused one costs little. needed is how many were written
	// then.
	balancers map[ruleset.Class]bool
	needed    int
	affinity  map[*nft.Set]bool // affinity sets that exist
	shared    sharedRows
	rows      map[string]int         // number of rows, by set
	samples   map[*nft.Set][]nft.Row // a few rows of each set that has any
}

func newCommitted() *committed {
	return &committed{
		plans:     make(map[*portState]*ruleset.Plan),
		balancers: make(map[ruleset.Class]bool),
		affinity:  make(map[*nft.Set]bool),
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
		if !tx.whole { // otherwise c is new
			c.count(change.before, -1)
		}
		c.count(change.next, 1)
		if change.next == nil {
			delete(c.plans, change.port)
		} else {
			c.plans[change.port] = change.next
		}
	}
	maps.Copy(c.balancers, tx.balancers)
	if tx.whole {
		c.needed = len(c.balancers)
	}
	maps.Copy(c.affinity, tx.affinity)
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

// count counts a plan n times. A nil plan is not counted.
func (c *committed) count(p *ruleset.Plan, n int) {
	if p != nil {
		c.endpoints += n * len(p.Cluster)
		c.noLocal.add(p, n)
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
	for _, r := range slices.Concat(c.nodeRows, c.balancerRows(rules)) {
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

// balancerRows returns the rows that lead to balancers.
func (c *committed) balancerRows(rules *ruleset.Ruleset) (rows []nft.Row) {
	for class := range c.balancers {
		_, row := rules.Balancer(class)
		rows = append(rows, row)
	}
	return rows
}

// maxUnused is the number of balancers that may be unused: a user who changes
// the number of endpoints all the time adds one with each change.
const maxUnused = 1000

// sources returns the sets of source ranges that have rows after these changes
// of their numbers.
func (c *committed) sources(rules *ruleset.Ruleset, change map[string]int) []*nft.Set {
	return rules.SourceSets(func(s *nft.Set) bool { return c.rows[s.Name]+change[s.Name] > 0 })
}

// sameKeyAs returns a function that reports whether a row has the key of r.
func sameKeyAs(r nft.Row) func(nft.Row) bool {
	return func(o nft.Row) bool { return o.Key == r.Key }
}

// unused are chains, sets and counters that nothing in the table refers to any
// more. They are deleted in a transaction of their own, after the one that
// deleted the last reference: before Linux 6.2 the kernel counts references
// until the end of the transaction.
//
// The value reports whether the kernel refused to delete the object, because
// something refers to it, such as a rule of another program. Then it is tried
// again with the next Resync or rewrite.
type unused map[object]bool

func (u unused) add(objects ...object) {
	for _, o := range objects {
		if !u.has(o) {
			u[o] = false
		}
	}
}

// has reports whether an object is about to be deleted.
func (u unused) has(o object) bool {
	_, ok := u[o]
	return ok
}

// update adds the chains and sets that a committed transaction no longer uses,
// and removes those that it uses.
func (u unused) update(tx *transaction) {
	if !tx.whole {
		for _, c := range tx.changes {
			for _, name := range tx.rules.ChainNames(c.before) {
				u.add(object{kindChain, name})
			}
		}
	}
	if tx.program != nil {
		if !tx.whole {
			for _, s := range tx.have.program.Sets {
				u.add(object{kindSet, s.Name})
			}
		}
		for _, s := range tx.program.Table.Sets {
			delete(u, object{kindSet, s.Name})
		}
	}
	for class := range tx.balancers {
		chain, _ := tx.rules.Balancer(class)
		delete(u, object{kindChain, chain.Name})
	}
	for _, c := range tx.changes {
		for _, name := range tx.rules.ChainNames(c.next) {
			delete(u, object{kindChain, name})
		}
		if set := tx.rules.AffinitySet(c.next); set != nil {
			delete(u, object{kindSet, set.Name})
		}
	}
}

// sorted returns the objects that can be deleted, in the order in which they
// are: chains before the sets and counters that they refer to.
func (u unused) sorted() (all []object) {
	for o, inUse := range u {
		if !inUse {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b object) int {
		return cmp.Or(cmp.Compare(b.kind, a.kind), strings.Compare(a.name, b.name))
	})
	return all
}

// deleteUnused deletes chains, sets and counters that are no longer used. It
// leaves those that the kernel does not delete: they do no harm. It returns an
// error if the outcome of a commit is unknown.
func (t *Table) deleteUnused() error {
	for range maxAttempts {
		all := t.unused.sorted()
		if len(all) == 0 {
			return nil
		}
		t.writeDeletions(all)
		err := t.commitGuarded()
		if err == nil {
			for _, o := range all {
				delete(t.observed.rules, o.name)
				delete(t.unused, o)
			}
			return nil
		}
		klog.V(2).InfoS("Failed to delete unused chains and sets", "table", t.name(), "count", len(all), "err", err)
		t.stats.CleanupFailures++
		if errors.Is(err, nft.ErrUnknownOutcome) {
			return err
		}
		if !t.unused.exclude(err) {
			break // they are tried again after the next sync
		}
	}
	return nil
}

// writeDeletions writes the deletion of objects to the batch.
func (t *Table) writeDeletions(all []object) {
	t.batch.Reset()
	for _, o := range all {
		if o.kind == kindChain {
			t.batch.FlushChain(o.name)
		}
	}
	for _, o := range all {
		switch o.kind {
		case kindChain:
			t.batch.DeleteChain(o.name)
		case kindSet:
			t.batch.DeleteSet(o.name)
		case kindCounter:
			t.batch.DeleteCounter(o.name)
		}
	}
}

// exclude excludes the objects from further deletions that do not exist, or are
// in use, according to an error of the kernel. It reports whether there are
// any.
func (u unused) exclude(err error) (any bool) {
	refused, ok := errors.AsType[*nft.CommitError](err)
	if !ok {
		return false
	}
	for _, p := range refused.Problems {
		for _, kind := range []objectKind{kindChain, kindSet, kindCounter} {
			o := object{kind, p.Object}
			switch inUse, ok := u[o]; {
			case !ok || inUse:
			case p.Errno == unix.ENOENT:
				delete(u, o)
				any = true
			case p.Errno == unix.EBUSY:
				u[o], any = true, true
			}
		}
	}
	return any
}

// retry makes the next deletion include all objects.
func (u unused) retry() {
	for o := range u {
		u[o] = false
	}
}
