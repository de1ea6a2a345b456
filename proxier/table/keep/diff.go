package keep

import (
	"errors"
	"fmt"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
)

// Diff compares a table with the kernel in short steps, and changes nothing.
// Between steps, the Keeper may change: each step compares what is wanted then.
//
// It compares the flags of the table, the types of sets, the counters, the base
// chains, the rules of every chain, and the rows of the node and of the
// owners. It finds extra chains, sets, counters and rules, and extra rows of
// sets with at most 4,096 rows. It reports changes that the kernel refused. It
// compares neither rows that packets add nor numbers of packets.
type Diff struct {
	audit
	wanted Wanted
	begun  bool     // the structure is compared
	queue  []string // names of groups that are still to be compared, sorted
	sets   []string // names of sets whose extra rows are still to be found, sorted

	missing map[string]int // rows that are missing, by set
	listed  []nft.Row      // of the first set, still to be looked up
}

// Wanted is what a Diff compares a table with.
type Wanted interface {
	// Groups returns the names of groups of owners, in any order. Owners
	// returns the owners of a group, none if it does not exist any more.
	Groups() []string
	Owners(group string) []Owner
	// Content returns the content that the next transaction gives an owner.
	Content(Owner) Content
	// Extra returns those of some rows in the kernel whose keys nothing wants.
	Extra([]nft.Row) ([]nft.Row, error)
}

// DiffStep is the result of a step of a Diff.
type DiffStep struct {
	Differences []Difference `json:"differences,omitempty"`
	// Rows is the number of desired rows that were compared. A row that several
	// owners have counts for each of them. AllRows is the number of rows
	// of all tables; Next leaves it 0.
	Rows    int `json:"rows"`
	AllRows int `json:"allRows"`
	// Done reports whether this is the last step.
	Done bool `json:"done"`
}

const (
	// MaxDiffRows is the number of rows that a step compares.
	MaxDiffRows = 256
	// maxDumpedRows is the number of rows of a set up to which extra rows are
	// listed. The kernel takes quadratic time to list a set; for this number,
	// it takes a few milliseconds.
	maxDumpedRows = 4096
)

// errNotWritten is returned if there is nothing to compare yet.
var errNotWritten = errors.New("the table was not written yet")

func newDiff(s *state, wanted Wanted) (*Diff, error) {
	if s.have.program == nil {
		return nil, errNotWritten
	}
	d := &Diff{
		audit: audit{state: s, want: wanted.Content, all: true}, wanted: wanted, missing: make(map[string]int),
		queue: wanted.Groups(),
	}
	for _, set := range s.have.program.Sets {
		d.sets = append(d.sets, set.Name)
	}
	slices.Sort(d.sets)
	slices.Sort(d.queue)
	return d, nil
}

// Next compares the next rows. After an error, it can be called again.
func (d *Diff) Next() (DiffStep, error) {
	var err error
	for range maxAttempts {
		next := *d
		next.found, next.left, next.compared = nil, MaxDiffRows, 0
		if err = d.audit.state.link.generation.exclude(next.run); err == nil {
			*d = next
			for i := range d.found {
				f := &d.found[i]
				f.Family = d.audit.state.link.table.Family
				if f.Kind == Missing && f.want.Set != nil {
					d.missing[f.want.Set.Name]++
				}
			}
			done := len(d.queue) == 0 && len(d.sets) == 0
			return DiffStep{Differences: d.found, Rows: d.compared, Done: done}, nil
		}
		if !errors.Is(err, nft.ErrGeneration) { // otherwise another program committed meanwhile
			break
		}
	}
	return DiffStep{}, err
}

func (d *Diff) run() error {
	switch {
	case !d.begun:
		d.begun = true
		if err := d.program(); err != nil || d.now.exists() {
			return err
		}
		d.queue, d.sets = nil, nil // all rows are missing
	case len(d.queue) > 0:
		return d.groups()
	case len(d.sets) > 0:
		return d.extraRows()
	}
	return nil
}

func (d *Diff) addExtraObject(object string) {
	d.found = append(d.found, Difference{Kind: Extra, Object: object})
}

// groups compares the rows and chains of the next owners.
func (d *Diff) groups() error {
	for d.left > 0 && len(d.queue) > 0 {
		if len(d.owners) == 0 {
			d.owners = d.wanted.Owners(d.queue[0])
		}
		for len(d.owners) > 0 && d.left > 0 {
			if err := d.owner(); err != nil {
				return err
			}
		}
		if len(d.owners) == 0 {
			d.queue = d.queue[1:]
			d.left--
		}
	}
	return nil
}

// extraRows finds rows of the next set that are not wanted.
func (d *Diff) extraRows() error {
	sets := d.audit.state.have.program.Sets
	i := slices.IndexFunc(sets, func(s *nft.Set) bool { return s.Name == d.sets[0] })
	if i >= 0 && d.listed == nil { // otherwise the program does not have the set any more
		if err := d.listSet(sets[i]); err != nil {
			return err
		}
	}
	n := min(len(d.listed), MaxDiffRows)
	if err := d.lookUp(d.listed[:n]); err != nil {
		return err
	}
	if d.listed = d.listed[n:]; len(d.listed) == 0 {
		d.sets, d.listed = d.sets[1:], nil
	}
	return nil
}

// listSet lists the rows of a small set. For a large one, it compares the
// number of rows if the kernel reports it.
func (d *Diff) listSet(set *nft.Set) (err error) {
	s, err := readStructure(d.audit.state.link.kernel, d.audit.state.have.program, false)
	if err != nil {
		return err
	}
	want, count := d.audit.state.have.counts[set], s.objects[object{kindSet, set.Name}].set.Count
	if max(want, count) <= maxDumpedRows {
		d.listed, err = d.audit.state.link.kernel.Rows(d.audit.state.have.program, set)
		return err
	}
	if extra := count - (want - d.missing[set.Name]); count >= 0 && extra > 0 {
		d.addExtraObject(fmt.Sprintf("%d rows of set %s, which is too large to list them", extra, set.Name))
	}
	return nil
}

// lookUp finds the rows that are not wanted. A row that was deleted meanwhile
// is not a difference.
func (d *Diff) lookUp(rows []nft.Row) error {
	extra, err := d.wanted.Extra(rows)
	if err != nil {
		return err
	}
	now, err := d.audit.state.link.kernel.FindRows(d.audit.state.have.program, extra)
	for _, r := range now {
		if r.Set != nil {
			d.addExtraObject("row " + r.String())
		}
	}
	return err
}
