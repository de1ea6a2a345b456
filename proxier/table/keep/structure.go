package keep

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/nft"
)

// structure is what the kernel has of a table, without rules and rows.
type structure struct {
	table   nft.FoundTable // Handle is 0 if there is no table
	objects map[object]foundObject
}

// foundObject is an object in the kernel, which never reuses a handle.
type foundObject struct {
	handle  uint64
	set     nft.FoundSet
	timeout nft.CtTimeout
	chain   nft.Chain
}

// readStructure reads the structure of a table, with all chains, or only with
// the base chains of the program: owners can have many chains.
func readStructure(kernel Kernel, program *nft.Table, allChains bool) (*structure, error) {
	table, exists, err := kernel.FindTable(program)
	if err != nil || !exists {
		return &structure{}, err
	}
	sets, err := kernel.Sets(program)
	if err != nil {
		return nil, err
	}
	counters, err := kernel.Counters(program)
	if err != nil {
		return nil, err
	}
	timeouts, err := kernel.CtTimeouts(program)
	if err != nil {
		return nil, err
	}
	read := kernel.Chains
	if !allChains {
		read = func(program *nft.Table) ([]nft.Chain, error) { return readBaseChains(kernel, program) }
	}
	chains, err := read(program)
	s := &structure{table, make(map[object]foundObject, len(sets)+len(counters)+len(timeouts)+len(chains))}
	for _, f := range sets {
		s.objects[object{kindSet, f.Name}] = foundObject{handle: f.Handle, set: f}
	}
	for _, f := range counters {
		s.objects[object{kindCounter, f.Name}] = foundObject{handle: f.Handle}
	}
	for _, f := range timeouts {
		s.objects[object{kindTimeout, f.Name}] = foundObject{handle: f.Handle, timeout: f}
	}
	for _, f := range chains {
		s.objects[object{kindChain, f.Name}] = foundObject{handle: f.Handle, chain: f}
	}
	return s, err
}

func readBaseChains(kernel Kernel, program *nft.Table) (chains []nft.Chain, err error) {
	for _, c := range program.Chains {
		if c.Hook == nil {
			continue
		}
		found, exists, err := kernel.FindChain(program, c.Name)
		if err != nil {
			return nil, err
		}
		if exists {
			chains = append(chains, found)
		}
	}
	return chains, nil
}

func (s *structure) exists() bool { return s.table.Handle != 0 }

func (s *structure) has(o object) bool {
	_, ok := s.objects[o]
	return ok
}

// same reports whether the table and its objects are the same as in another
// structure.
func (s *structure) same(o *structure) bool {
	sameHandle := func(a, b foundObject) bool { return a.handle == b.handle }
	return s.table == o.table && maps.EqualFunc(s.objects, o.objects, sameHandle)
}

// wantedObject is an object and its form.
type wantedObject struct {
	object
	form any // *nft.Set, *nft.Counter, *nft.CtTimeout or *nft.Chain
}

// objectsOf returns the objects of a table.
func objectsOf(t *nft.Table) []wantedObject {
	all := make([]wantedObject, 0, len(t.Sets)+len(t.Counters)+len(t.CtTimeouts)+len(t.Chains))
	for _, s := range t.Sets {
		all = append(all, wantedObject{object{kindSet, s.Name}, s})
	}
	for _, c := range t.Counters {
		all = append(all, wantedObject{object{kindCounter, c.Name}, c})
	}
	for _, c := range t.CtTimeouts {
		all = append(all, wantedObject{object{kindTimeout, c.Name}, c})
	}
	for _, c := range t.Chains {
		all = append(all, wantedObject{object{kindChain, c.Name}, c})
	}
	return all
}

// matches reports whether an object in the kernel has the form.
func (o *wantedObject) matches(f *foundObject) bool {
	switch want := o.form.(type) {
	case *nft.Set:
		return f.set.Matches(want)
	case *nft.CtTimeout:
		return f.timeout.Matches(want)
	case *nft.Chain:
		return f.chain.Hook.Equal(want.Hook)
	}
	return true
}

// compare returns the differences from a table as it should be, without extra
// objects. If before is not nil, objects that it contains must be the same.
func (s *structure) compare(want *nft.Table, before *structure) (all []Difference) {
	d := Difference{Kind: Changed, Object: want.String(), damage: Damage{Kind: DamagedTable}}
	switch {
	case !s.exists():
		d.Kind, d.damage.What = Missing, "the table was deleted"
		return []Difference{d}
	case before != nil && s.table.Handle != before.table.Handle:
		d.damage.What = "the table was replaced"
		return []Difference{d}
	case s.table.Flags != 0: // nft.Batch.AddTable sets none
		d.Object, d.Found = "flags of the table", fmt.Sprintf("%#x", s.table.Flags)
		d.damage.What = "the flags of the table are " + d.Found
		all = append(all, d)
	}
	for _, o := range objectsOf(want) {
		if d, differs := s.compareObject(o, before); differs {
			all = append(all, d)
		}
	}
	return all
}

// compareObject compares an object.
func (s *structure) compareObject(want wantedObject, before *structure) (d Difference, differs bool) {
	has, exists := s.objects[want.object]
	replaced := exists && before != nil && before.has(want.object) && before.objects[want.object].handle != has.handle
	if exists && !replaced && want.matches(&has) {
		return d, false
	}
	d = Difference{Kind: Changed, Object: want.String(), object: want.object, form: want.form}
	d.damage.Kind = [...]DamageKind{DamagedSet, DamagedCounter, DamagedTimeout, DamagedChain}[want.kind]
	switch {
	case !exists:
		d.Kind, d.damage.What = Missing, d.Object+" was deleted"
	case replaced:
		d.damage.What = d.Object + " was replaced"
	case want.kind == kindChain:
		d.damage.What = "the policy of " + d.Object + " was changed"
	case want.kind == kindTimeout:
		d.damage.What = "the values of " + d.Object + " were changed"
	default:
		d.Object = "type of " + d.Object
		d.damage.What = "the " + d.Object + " was changed"
	}
	return d, true
}

// extra returns the objects that are not part of a table, sorted.
func (s *structure) extra(table *nft.Table) []object {
	all := maps.Clone(s.objects)
	for _, o := range objectsOf(table) {
		delete(all, o.object)
	}
	return slices.SortedFunc(maps.Keys(all), object.compare)
}

// Difference is a difference between a table as it should be and the one in the
// kernel.
type Difference struct {
	Family nft.Family     `json:"family"` // set by Diff
	Kind   DifferenceKind `json:"kind"`
	// Object is the row, chain, set, counter or timeout in nft syntax: as it
	// should be, or as it is if it is extra.
	Object string `json:"object"`
	// Found is what a changed object is instead, if that is known.
	Found string `json:"found,omitempty"`
	// Owner is the name of the owner that demands the object, "" for an object
	// of no owner.
	Owner string `json:"servicePort,omitempty"`

	damage    Damage // if another program caused the difference
	object    object
	form      any        // of an object that differs (see wantedObject)
	chain     *nft.Chain // whose rules differ
	want, has nft.Row    // has.Set is nil if there is no such row
}

// DifferenceKind is the kind of a difference.
type DifferenceKind string

// Kinds of differences.
const (
	Missing DifferenceKind = "missing"
	Changed DifferenceKind = "changed"
	Extra   DifferenceKind = "extra"
)

// Damage is a change to our table by another program. It is an error.
type Damage struct {
	Kind DamageKind
	What string // a sentence without a period: "set service-ips was deleted"
}

// DamageKind is the kind of object that another program changed. It is a label
// of metrics.
type DamageKind string

// The kinds of damage.
const (
	DamagedTable    DamageKind = "table"    // deleted or replaced
	DamagedSet      DamageKind = "set"      // deleted or replaced
	DamagedCounter  DamageKind = "counter"  // deleted or replaced
	DamagedTimeout  DamageKind = "timeout"  // object `ct timeout` deleted, replaced or changed
	DamagedChain    DamageKind = "chain"    // base chain deleted, replaced or changed
	DamagedRule     DamageKind = "rule"     // rules added, deleted or replaced
	DamagedRows     DamageKind = "rows"     // set flushed, or rows added or deleted
	DamagedRow      DamageKind = "row"      // single rows deleted or changed, found by the scrubber
	DamagedAffinity DamageKind = "affinity" // chain of an owner changed: only Services with session affinity have any
)

// DamageKinds returns all kinds of damage.
func DamageKinds() []DamageKind {
	return []DamageKind{
		DamagedTable, DamagedSet, DamagedCounter, DamagedTimeout, DamagedChain, DamagedRule, DamagedRows, DamagedRow,
		DamagedAffinity,
	}
}

// Error describes what another program changed.
func (d *Damage) Error() string { return "another program changed the table: " + d.What }

// object is a set, a counter, an object `ct timeout` or a chain.
type object struct {
	kind objectKind
	name string
}

type objectKind uint8

const (
	kindSet objectKind = iota
	kindCounter
	kindTimeout
	kindChain
)

// String returns the object in nft syntax.
func (o object) String() string {
	return [...]string{"set ", "counter ", "ct timeout ", "chain "}[o.kind] + o.name
}

func (o object) compare(p object) int {
	return cmp.Or(cmp.Compare(o.kind, p.kind), strings.Compare(o.name, p.name))
}

// damage is what a repair found and did not repair yet.
type damage struct {
	// sets are those whose rows may be wrong: true for one that had no rows, so
	// that they need not be read.
	sets   map[*nft.Set]bool
	chains bool // chains of owners may be wrong
	// vital reports whether a vital set lacked half of its rows (see
	// Source.IsVital and audit.sampleSet).
	vital bool
}

// rows returns the rows of damaged sets.
func (d *damage) rows(all []nft.Row) []nft.Row {
	return slices.DeleteFunc(all, func(r nft.Row) bool { return !d.has(r.Set) })
}

// has reports whether rows of a set may be wrong.
func (d *damage) has(set *nft.Set) bool {
	if d == nil {
		return false
	}
	_, ok := d.sets[set]
	return ok
}
