package table

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// Difference is a difference between the table that the desired state demands
// and the one in the kernel.
type Difference struct {
	// Object is the row, chain, set or counter in nft syntax: as it should be,
	// or as it is if it is extra.
	Object string
	// Found is what a changed object is instead.
	Found string
	Kind  DifferenceKind
	// ServicePort is the namespace/name:port that demands the object, "" for
	// other objects.
	ServicePort string
}

// DifferenceKind is the kind of a difference.
type DifferenceKind string

// Kinds of differences.
const (
	Missing DifferenceKind = "missing"
	Changed DifferenceKind = "changed"
	Extra   DifferenceKind = "extra"
)

// Diff compares a table with the kernel in short steps. Unlike the scrubber it
// changes nothing. Between steps, the Table may change: each step compares what
// is desired then.
type Diff struct {
	table  *Table
	cursor string
	begun  bool     // the program is compared
	queue  []string // names of Services that are still to be compared, sorted
	sets   []string // names of sets whose extra rows are still to be found, sorted

	ports   []*portState // of the first Service of queue, still to be compared
	plan    *ruleset.Plan
	rows    []nft.Row      // of plan, still to be compared
	missing map[string]int // rows that are missing, by set
	extra   []nft.Row      // of the first set, still to be looked up
}

// DiffStep is the result of a step of a Diff.
type DiffStep struct {
	Differences []Difference
	// Rows is the number of desired rows that were compared. A row that several
	// service ports have counts for each of them.
	Rows int
	// Cursor is the position after the step: a Diff can continue there.
	Cursor string
	Done   bool

	cost int // rows, or objects that take as long
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
	d := &Diff{table: t, cursor: after, begun: after != "", missing: make(map[string]int)}
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
func (d *Diff) Next() (step DiffStep, err error) {
	for range maxAttempts {
		next := *d
		next.missing = maps.Clone(d.missing)
		err = d.table.observed.generation.exclude(func() (err error) {
			step, err = next.run()
			return err
		})
		if err == nil {
			*d = next
		}
		if !errors.Is(err, nft.ErrGeneration) { // otherwise another program committed meanwhile
			break
		}
	}
	return step, err
}

func (d *Diff) run() (step DiffStep, err error) {
	switch {
	case !d.begun:
		err = d.program(&step)
		d.begun = true
	case len(d.queue) > 0:
		err = d.services(&step)
	case len(d.sets) > 0:
		err = d.extraRows(&step)
	}
	step.Cursor, step.Done = d.cursor, step.Done || len(d.queue) == 0 && len(d.sets) == 0
	return step, err
}

// add adds a difference.
func (s *DiffStep) add(kind DifferenceKind, object string) {
	s.Differences = append(s.Differences, Difference{Kind: kind, Object: object})
}

// services compares the rows and chains of the next service ports.
func (d *Diff) services(step *DiffStep) error {
	for step.cost < maxDiffRows && len(d.queue) > 0 {
		if len(d.ports) == 0 {
			d.ports = d.table.portsOf(d.queue[0])
		}
		for len(d.ports) > 0 && step.cost < maxDiffRows {
			if err := d.port(step, d.ports[0]); err != nil {
				return err
			}
		}
		if len(d.ports) == 0 {
			d.cursor, d.queue = d.queue[0], d.queue[1:]
			step.cost++
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

// port compares the chains of a service port and then its rows, as many as fit
// into the step. If the plan changes meanwhile, it begins again.
func (d *Diff) port(step *DiffStep, p *portState) error {
	_, dirty := d.table.desired.dirty[p.service]
	if d.plan == nil || !dirty && d.plan != d.table.committed.plans[p] {
		d.plan = d.table.wantedPlan(p, dirty)
		d.rows = d.table.rules.Rows(nil, d.plan)
		if r := d.table.refusals[p]; r.refused {
			object := "change that cannot be written: " + r.why
			step.Differences = append(step.Differences, Difference{Kind: Missing, Object: object, ServicePort: p.name()})
		}
		for _, c := range d.table.rules.Chains(d.plan) {
			if err := d.compareRules(step, p.name(), c); err != nil {
				return err
			}
			step.cost += scrubChainCost
		}
	}
	n := min(len(d.rows), max(maxDiffRows-step.cost, 1))
	if err := d.compareRows(step, p.name(), d.rows[:n]); err != nil {
		return err
	}
	if d.rows = d.rows[n:]; len(d.rows) == 0 {
		d.ports, d.plan = d.ports[1:], nil
	}
	return nil
}

// wantedPlan returns the plan that the kernel should have of a service port. It
// is the committed one unless a change is not committed yet.
func (t *Table) wantedPlan(p *portState, dirty bool) *ruleset.Plan {
	if !dirty {
		return t.committed.plans[p]
	}
	plan, _ := t.desiredPlan(p) // the remainder if it cannot be written
	t.ids.preview().assign(t.committed.plans[p], plan)
	return plan
}

// compareRules compares the rules of a chain.
func (d *Diff) compareRules(step *DiffStep, servicePort string, c *nft.Chain) error {
	found, err := d.table.kernel.Rules(d.table.committed.program, c.Name)
	if err != nil {
		return err
	}
	differ := func(object string) {
		step.Differences = append(step.Differences, Difference{Kind: Changed, Object: object, ServicePort: servicePort})
	}
	if len(found) != len(c.Rules) {
		differ("rules of chain " + c.Name)
		return nil
	}
	for _, r := range changedRules(c, found) {
		differ(fmt.Sprintf("rule of chain %s: %s", c.Name, r))
	}
	return nil
}

// compareRows reads rows by key. The rows of a list that belong to one set are
// read together.
func (d *Diff) compareRows(step *DiffStep, servicePort string, rows []nft.Row) error {
	step.Rows, step.cost = step.Rows+len(rows), step.cost+len(rows)
	wrong, err := d.table.wrongRows(rows)
	for _, w := range wrong {
		diff := Difference{Kind: Missing, Object: rowText(w.want), ServicePort: servicePort}
		if w.found.Set != nil {
			diff.Kind, diff.Found = Changed, rowText(w.found)
		} else {
			d.missing[w.want.Set.Name]++
		}
		step.Differences = append(step.Differences, diff)
	}
	return err
}

func rowText(r nft.Row) string { return "row " + r.String() }
