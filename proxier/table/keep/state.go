package keep

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/nft"
)

// Keeper keeps one table. Only one goroutine may use it at a time.
type Keeper struct {
	link    *link
	state   *state
	source  Source
	limits  *Limits
	open    func() (Kernel, error)
	queue   queue
	buffers rowBuffers

	unsynced       bool          // something was touched since the last sync that succeeded
	programChanged bool          // since it was written
	rewriting      time.Duration // CPU time of all rewrites and repairs
	failures       int           // updates in a row that failed without an owner that can be held back
	repairs        repairs
	outage         outage
	scrubber       scrubber
	unreported     bool // a repair was not reported yet (see reportRepair)
	reported       time.Time
	rest           time.Duration // before the next Check
}

// state is what a Keeper knows about its table: what it committed, and what it
// found out about changes by other programs.
type state struct {
	link      *link
	source    Source
	have      *committed
	leftovers leftovers
	failing   map[Owner]struct{} // that have trouble
	// structure is that of the table as it was committed, rules the identities
	// of the rules of the program, of chains on demand, and of chains of owners
	// that the scrubber compared.
	structure *structure
	rules     ruleIDs
	verified  int     // link.seen at the last verification
	suspect   bool    // a verification after a commit failed
	damaged   *damage // nil unless a repair of rows is under way
	scrubbed  int     // link.seen when the scrubber began its last complete pass, or at the last rewrite
}

// isVerified reports whether no other program committed between the last
// verification and the last time that the ruleset was read.
func (s *state) isVerified() bool { return s.verified == s.link.seen }

// forget forgets the failures of an owner.
func (s *state) forget(o Owner) {
	o.Kept().trouble = nil
	delete(s.failing, o)
}

// ruleIDs are the identities of the rules of chains when they were last
// compared with what was committed. A rule that replaces another one keeps its
// handle, but not its identity.
type ruleIDs map[string][]nft.RuleID

// same reports whether a chain still has the rules that were compared.
func (r ruleIDs) same(chain string, now []nft.RuleID) bool {
	before, known := r[chain]
	return known && slices.Equal(before, now)
}

// Kept is what a Keeper remembers of an owner.
type Kept struct {
	have Content // as of the last commit
	// staged are the rows in the kernel, if they are not those of have: a large
	// change is under way (see transaction.cut).
	staged []nft.Row
	// unfinished is the content before or after that change, of which rows are
	// in the kernel, too.
	unfinished Content
	version    int           // number of commits
	pending    bool          // changed since it was written
	queued     bool          // is in Account.waiting
	taken      bool          // is in the part that is being written
	trouble    *trouble      // nil for an owner without failures
	touched    time.Time     // when it began to wait
	took       time.Duration // CPU time of its last part
}

// trouble is the fate of an owner after failures, and why it cannot be written
// as it is wanted.
type trouble struct {
	fate
	why   string
	after time.Time // before which it is not tried again, unless it changes
}

// Have returns the content that the kernel has, as of the last commit.
func (k *Kept) Have() Content { return k.have }

// Unfinished returns another content of which the kernel has rows while a large
// change is under way, nil for none.
func (k *Kept) Unfinished() Content { return k.unfinished }

// IsEmpty reports whether the kernel has nothing of the owner.
func (k *Kept) IsEmpty() bool { return k.have == nil && len(k.staged) == 0 }

// rows appends the rows in the kernel.
func (k *Kept) rows(to []nft.Row) []nft.Row {
	if k.staged != nil {
		return append(to, k.staged...)
	}
	return rowsOf(to, k.have)
}

// Pending reports whether the owner changed since it was written.
func (k *Kept) Pending() bool { return k.pending }

// Failed reports whether the next transaction does not write the owner as it is
// wanted, and why.
func (k *Kept) Failed() (why string, failed bool) {
	if k.fate().instead == theWanted {
		return "", false
	}
	return k.trouble.why, true
}

// Refused reports whether the owner is not tried again until it changes, or
// until the next Resync, and why.
func (k *Kept) Refused() (why string, refused bool) {
	if !k.fate().refused {
		return "", false
	}
	return k.trouble.why, true
}

// StaysSame reports whether the next transaction leaves the owner as it is in
// the kernel, because a change of it failed.
func (k *Kept) StaysSame() bool { return k.fate().instead == theSame }

// HeldBack reports whether the Keeper tries the owner again without a change.
func (k *Kept) HeldBack() bool { return k.trouble != nil && k.trouble.waits() }

func (k *Kept) fate() fate {
	if k.trouble == nil {
		return fate{}
	}
	return k.trouble.fate
}

// Next returns the content that the next transaction gives the owner. content
// is Source.Content, without the owner. The error is the reason why it cannot
// be written as it is wanted.
func (k *Kept) Next(content func(have Content, remainder bool) (Content, error)) (Content, error) {
	switch f := k.fate(); {
	case f.instead == theSame:
		return k.have, nil
	case f.instead == theNothing, f.instead == theRemainder && k.have == nil && !f.refused:
		return nil, nil
	case f.instead == theRemainder:
		next, _ := content(k.have, true)
		return next, nil
	}
	return content(k.have, false)
}

// committed is what the kernel has of a table, apart from the contents of
// owners (Kept.have), as of the last commit that succeeded. It changes only
// after a commit, by transaction.apply, which cannot fail. samplesOf caches
// samples in it.
type committed struct {
	program *nft.Table // nil before the first commit
	rows    []nft.Row  // of no owner
	// chains are the chains on demand that exist, by id, and unused is the
	// number of those that no row needs. sets are the sets on demand that
	// packets fill. They stay until everything is written.
	chains map[uint32]*chainUse
	unused int
	sets   map[*nft.Set]bool
	// ownChains is the number of chains of owners.
	ownChains int
	shared    sharedRows
	// counts are the numbers of rows, samples a few rows of each set that has
	// any.
	counts  map[*nft.Set]int
	samples map[*nft.Set][]nft.Row
	// extra are the numbers of rows of other programs that stay.
	extra map[*nft.Set]int
}

// chainUse is the use of a chain on demand.
type chainUse struct {
	rows  int       // that need the chain
	since time.Time // when rows became 0
	by    *Account  // that needed the chain first, nil if it was adopted
}

func newCommitted() *committed {
	return &committed{
		chains:  make(map[uint32]*chainUse),
		sets:    make(map[*nft.Set]bool),
		shared:  make(sharedRows),
		counts:  make(map[*nft.Set]int),
		samples: make(map[*nft.Set][]nft.Row),
		extra:   make(map[*nft.Set]int),
	}
}

// maxSamples is the number of rows of a set that are kept to find out whether
// another program flushed the set. It is more than one, so that a change of one
// owner rarely deletes all of them.
const maxSamples = 4

// use records that a number of rows began, or ended, to need a chain on demand.
func (c *committed) use(id uint32, rows int, now time.Time) {
	use := c.chains[id]
	before := use.rows
	switch use.rows += rows; {
	case before == 0 && use.rows > 0:
		c.unused--
	case before > 0 && use.rows == 0:
		c.unused++
		use.since = now
	}
}

// retired returns the ids of up to n chains on demand that no row has needed
// since a time.
func (c *committed) retired(n int, since time.Time) (ids []uint32) {
	for id, use := range c.chains {
		if len(ids) == n {
			break
		}
		if use.rows == 0 && !use.since.After(since) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// samplesOf returns samples of a set that has rows. If none are kept, it finds
// new ones.
func (c *committed) samplesOf(source Source, set *nft.Set) []nft.Row {
	if c.counts[set] == 0 || len(c.samples[set]) > 0 {
		return c.samples[set]
	}
	find := func(rows []nft.Row) bool {
		i := slices.IndexFunc(rows, func(r nft.Row) bool { return r.Set == set })
		if i >= 0 {
			c.samples[set] = []nft.Row{rows[i]}
		}
		return i >= 0
	}
	for rows := range c.allRows(source) {
		if find(rows) {
			break
		}
	}
	return c.samples[set]
}

// ownRows returns the rows of no owner, and those that lead to chains on
// demand.
func (c *committed) ownRows(source Source) []nft.Row {
	rows := slices.Clone(c.rows)
	for id := range c.chains {
		_, row := source.Chain(id)
		rows = append(rows, row)
	}
	return rows
}

// allRows iterates over the rows that the kernel has: of no owner, and then of
// each owner. It reuses the slice.
func (c *committed) allRows(source Source) iter.Seq[[]nft.Row] {
	return func(yield func([]nft.Row) bool) {
		rows := c.ownRows(source)
		if !yield(rows) {
			return
		}
		for o := range source.Owners(false) {
			if rows = o.Kept().rows(rows[:0]); len(rows) > 0 && !yield(rows) {
				return
			}
		}
	}
}

// uses reports whether a set has rows.
func (c *committed) uses(s *nft.Set) bool { return c.counts[s] > 0 }

// structure returns the table that was committed without the chains of owners,
// and with regular chains only if all is true.
func (c *committed) structure(source Source, all bool) *nft.Table {
	want := *c.program
	want.Sets, want.Chains = slices.Clone(want.Sets), nil
	for _, s := range source.OnDemand() {
		if c.sets[s] {
			want.Sets = append(want.Sets, s)
		}
	}
	for _, chain := range c.program.Chains {
		if all || chain.Hook != nil {
			want.Chains = append(want.Chains, chain)
		}
	}
	if all {
		for _, id := range slices.Sorted(maps.Keys(c.chains)) {
			chain, _ := source.Chain(id)
			want.Chains = append(want.Chains, chain)
		}
	}
	return &want
}

// someChains returns the chains of the program, and up to n chains on demand,
// different ones each time.
func (c *committed) someChains(source Source, n int) []*nft.Chain {
	chains := slices.Clone(c.program.Chains)
	for id := range c.chains {
		if n--; n < 0 {
			break
		}
		chain, _ := source.Chain(id)
		chains = append(chains, chain)
	}
	return chains
}

// findChain returns the chain of a table with a name, nil if there is none.
func findChain(t *nft.Table, name string) *nft.Chain {
	i := slices.IndexFunc(t.Chains, func(c *nft.Chain) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return t.Chains[i]
}

// Limits limit what a Keeper does at a time.
type Limits struct {
	// PartCost is the cost at which a part ends, PartTime the estimated CPU
	// time at which it ends. HeavyCost is the cost above which an owner is a
	// part of its own (see Source.Cost).
	PartCost, HeavyCost int
	// StageRows is the number of rows of one owner that a transaction changes.
	// A larger change has several stages.
	StageRows int
	PartTime  time.Duration
	// Spread limits the accounts of a part: it has none that was served this
	// much longer than the first one, which must not wait for the others.
	Spread time.Duration
	// Time is the time after which a sync begins no part.
	Time time.Duration
	// Burst is the CPU time that an account may take in a row, beside the time
	// that all its owners take once. Then it takes 1/paceShare of a core.
	Burst time.Duration
	// FirstRetry is the time after which an owner that was held back is tried
	// again. It doubles with each failure.
	FirstRetry time.Duration
	// UnusedChains is the number of chains on demand that may be unused: an
	// owner that changes all the time can add one with each change. A chain
	// that is unused costs 1 to 3 µs for each change of a verdict map.
	// UnusedFor is how long a chain stays after its last row: a packet may have
	// found that row, and be on its way to the chain.
	UnusedChains int
	UnusedFor    time.Duration
	// ColdBytes is the size at which a transaction ends while no packet uses
	// the table. The kernel can stall while a map grows within one huge
	// transaction.
	ColdBytes int
	// FreeRepair is the CPU time of a repair above which it is large.
	// FirstPause is the shortest pause after a large repair while another
	// program keeps changing the table, LastPause the longest one.
	FreeRepair, FirstPause, LastPause time.Duration
	// CheckShare limits the CPU time of verifications and of the scrubber, for
	// one table, to 1/CheckShare of a core. While verifications take more, the
	// scrubber has 1/ScrubShare.
	CheckShare, ScrubShare time.Duration
}

// DefaultLimits returns the usual limits. ColdBytes are about 20,000 rows.
func DefaultLimits() Limits {
	return Limits{
		PartCost: 20_000, HeavyCost: 4096, StageRows: 10_000,
		PartTime: 10 * time.Millisecond, Time: 20 * time.Millisecond,
		Spread: 5 * time.Millisecond, Burst: time.Second, FirstRetry: 100 * time.Millisecond, ColdBytes: 1200 << 10,
		UnusedChains: 1000, UnusedFor: time.Second,
		FreeRepair: 20 * time.Millisecond, FirstPause: 250 * time.Millisecond, LastPause: 10 * time.Second,
		CheckShare: 250, ScrubShare: 1000,
	}
}
