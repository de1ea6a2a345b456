package table

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// Diff compares a table with the kernel in short steps, and changes nothing.
// Between steps, the Table may change: each step compares what is desired then.
//
// It compares the flags of the table, the types of sets, the counters, the base
// chains, the rules of every chain, and the rows of the node and of the service
// ports. It finds extra chains, sets, counters and rules, and extra rows of
// sets with at most 4,096 rows. It reports changes that the kernel refused. It
// compares neither clients with session affinity nor numbers of packets.
type Diff struct {
	audit
	cursor string
	begun  bool     // the structure is compared
	queue  []string // names of Services that are still to be compared, sorted
	sets   []string // names of sets whose extra rows are still to be found, sorted

	missing map[string]int // rows that are missing, by set
	listed  []nft.Row      // of the first set, still to be looked up
}

// DiffStep is the result of a step of a Diff.
type DiffStep struct {
	Differences []Difference `json:"differences,omitempty"`
	// Rows is the number of desired rows that were compared. A row that several
	// service ports have counts for each of them. AllRows is the number of rows
	// of all tables; Next leaves it 0.
	Rows    int `json:"rows"`
	AllRows int `json:"allRows"`
	// Cursor is the position after the step: a Diff can continue there.
	Cursor string `json:"cursor"`
	// Done reports whether this is the last step.
	Done bool `json:"done"`
}

const (
	// maxDiffRows is the number of rows that a step compares.
	maxDiffRows = 256
	// maxDumpedRows is the number of rows of a set up to which extra rows are
	// listed. The kernel takes quadratic time to list a set; for this number,
	// it takes a few milliseconds.
	maxDumpedRows = 4096
	// setCursor is the first character of a cursor that names a set.
	setCursor = "+"
)

// errNotWritten is returned if there is nothing to compare yet.
var errNotWritten = errors.New("the table was not written yet")

// Diff returns a comparison that begins at the start, or after a cursor.
func (t *Table) Diff(after string) (*Diff, error) {
	if t.committed.program == nil {
		return nil, errNotWritten
	}
	d := &Diff{audit: audit{table: t, desired: true}, cursor: after, begun: after != "", missing: make(map[string]int)}
	last, only := strings.CutPrefix(after, setCursor)
	for _, s := range t.committed.program.Sets {
		if !only || s.Name > last {
			d.sets = append(d.sets, s.Name)
		}
	}
	slices.Sort(d.sets)
	if only {
		return d, nil
	}
	for name := range t.ServiceNames() {
		if name := name.String(); !d.begun || name > after {
			d.queue = append(d.queue, name)
		}
	}
	slices.Sort(d.queue)
	return d, nil
}

// Next compares the next part. After an error, it can be called again.
func (d *Diff) Next() (DiffStep, error) {
	var err error
	for range maxAttempts {
		next := *d
		next.found, next.left, next.compared = nil, maxDiffRows, 0
		if err = d.table.observed.generation.exclude(next.run); err == nil {
			*d = next
			for i := range d.found {
				f := &d.found[i]
				f.Family = d.table.Family()
				if f.Kind == Missing && f.want.Set != nil {
					d.missing[f.want.Set.Name]++
				}
			}
			done := len(d.queue) == 0 && len(d.sets) == 0
			return DiffStep{Differences: d.found, Rows: d.compared, Cursor: d.cursor, Done: done}, nil
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
		if err := d.program(); err != nil || d.kernel.exists() {
			return err
		}
		d.queue, d.sets = nil, nil // all rows are missing
	case len(d.queue) > 0:
		return d.services()
	case len(d.sets) > 0:
		return d.extraRows()
	}
	return nil
}

func (d *Diff) addExtra(object string) {
	d.found = append(d.found, Difference{Kind: Extra, Object: object})
}

// services compares the rows and chains of the next service ports.
func (d *Diff) services() error {
	for d.left > 0 && len(d.queue) > 0 {
		if len(d.ports) == 0 {
			d.ports = d.table.portsOf(d.queue[0])
		}
		for len(d.ports) > 0 && d.left > 0 {
			if err := d.port(); err != nil {
				return err
			}
		}
		if len(d.ports) == 0 {
			d.cursor, d.queue = d.queue[0], d.queue[1:]
			d.left--
		}
	}
	return nil
}

// portsOf returns the service ports of a Service. It has none if it was deleted
// meanwhile.
func (t *Table) portsOf(service string) []*portState {
	namespace, name, _ := strings.Cut(service, "/")
	if s := t.desired.services[cluster.ServiceName{Namespace: namespace, Name: name}]; s != nil {
		return slices.Clone(s.ports)
	}
	return nil
}

// extraRows finds rows of the next set that are not desired.
func (d *Diff) extraRows() error {
	sets := d.table.committed.program.Sets
	i := slices.IndexFunc(sets, func(s *nft.Set) bool { return s.Name == d.sets[0] })
	if i >= 0 && d.listed == nil { // otherwise the program does not have the set any more
		if err := d.listSet(sets[i]); err != nil {
			return err
		}
	}
	n := min(len(d.listed), maxDiffRows)
	if err := d.lookUp(d.listed[:n]); err != nil {
		return err
	}
	if d.listed = d.listed[n:]; len(d.listed) == 0 {
		d.cursor, d.sets, d.listed = setCursor+d.sets[0], d.sets[1:], nil
	}
	return nil
}

// listSet lists the rows of a small set. For a large one, it compares the
// number of rows if the kernel reports it.
func (d *Diff) listSet(set *nft.Set) (err error) {
	t := d.table
	s, err := t.readStructure(t.committed.program, false)
	if err != nil {
		return err
	}
	want, count := t.committed.rows[set.Name], s.objects[object{kindSet, set.Name}].set.Count
	if max(want, count) <= maxDumpedRows {
		d.listed, err = t.kernel.Rows(t.committed.program, set)
		return err
	}
	if extra := count - (want - d.missing[set.Name]); count >= 0 && extra > 0 {
		d.addExtra(fmt.Sprintf("%d rows of set %s, which is too large to list them", extra, set.Name))
	}
	return nil
}

// lookUp finds the rows that are not desired. A row that was deleted meanwhile
// is not a difference.
func (d *Diff) lookUp(rows []nft.Row) error {
	expected, err := d.table.Expected(nil)
	if err != nil {
		return err
	}
	var extra []nft.Row
	for _, r := range rows {
		wanted, err := d.table.wants(expected, r)
		if err != nil {
			return err
		}
		if !wanted {
			extra = append(extra, r)
		}
	}
	now, err := d.table.kernel.FindRows(d.table.committed.program, extra)
	for _, r := range now {
		if r.Set != nil {
			d.addExtra("row " + r.String())
		}
	}
	return err
}

// wants reports whether a row with the key of r is desired.
func (t *Table) wants(expected *Expected, r nft.Row) (bool, error) {
	switch {
	case r.Set == t.rules.ReservedIDs(0).Set:
		return t.committed.reservedIDs != 0 && r.Key == t.rules.ReservedIDs(t.committed.reservedIDs).Key, nil
	case t.rules.IsShared(r.Set):
		return t.committed.shared[rowKey{r.Set, r.Key}] != 0, nil
	}
	want, err := expected.Row(r.Set, r.Key)
	return want.Set != nil && want.Key == r.Key, err
}
