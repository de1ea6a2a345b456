package table

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// structure is what the kernel has of a table, without rules and rows.
type structure struct {
	table   nft.FoundTable // Handle is 0 if there is no table
	objects map[object]foundObject
}

// object is a set, a counter or a chain.
type object struct {
	kind objectKind
	name string
}

type objectKind uint8

const (
	kindSet objectKind = iota
	kindCounter
	kindChain
)

// String returns the object in nft syntax.
func (o object) String() string { return [...]string{"set ", "counter ", "chain "}[o.kind] + o.name }

func (o object) compare(p object) int {
	return cmp.Or(cmp.Compare(o.kind, p.kind), strings.Compare(o.name, p.name))
}

// foundObject is an object in the kernel, which never reuses a handle.
type foundObject struct {
	handle uint64
	set    nft.FoundSet
	chain  nft.Chain
}

// readStructure reads the structure of a table, with all chains, or only with
// the base chains of the program: service ports with session affinity can have
// many chains.
func (t *Table) readStructure(program *nft.Table, allChains bool) (*structure, error) {
	table, exists, err := t.kernel.FindTable(program)
	if err != nil || !exists {
		return &structure{}, err
	}
	sets, err := t.kernel.Sets(program)
	if err != nil {
		return nil, err
	}
	counters, err := t.kernel.Counters(program)
	if err != nil {
		return nil, err
	}
	read := t.readBaseChains
	if allChains {
		read = t.kernel.Chains
	}
	chains, err := read(program)
	s := &structure{table, make(map[object]foundObject, len(sets)+len(counters)+len(chains))}
	for _, f := range sets {
		s.objects[object{kindSet, f.Name}] = foundObject{handle: f.Handle, set: f}
	}
	for _, f := range counters {
		s.objects[object{kindCounter, f.Name}] = foundObject{handle: f.Handle}
	}
	for _, f := range chains {
		s.objects[object{kindChain, f.Name}] = foundObject{handle: f.Handle, chain: f}
	}
	return s, err
}

func (t *Table) readBaseChains(program *nft.Table) (chains []nft.Chain, err error) {
	for _, c := range program.Chains {
		if c.Hook == nil {
			continue
		}
		found, exists, err := t.kernel.FindChain(program, c.Name)
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

// structure returns the structure that was committed, without the chains of
// service ports, and with regular chains only if all is true.
func (c *committed) structure(rules *ruleset.Ruleset, all bool) *nft.Table {
	want := *c.program
	want.Sets, want.Chains = slices.Clone(want.Sets), nil
	for _, s := range rules.AffinitySets() {
		if c.affinity[s] {
			want.Sets = append(want.Sets, s)
		}
	}
	for _, chain := range c.program.Chains {
		if all || chain.Hook != nil {
			want.Chains = append(want.Chains, chain)
		}
	}
	if all {
		for _, class := range slices.Sorted(maps.Keys(c.balancers)) {
			chain, _ := rules.Balancer(class)
			want.Chains = append(want.Chains, chain)
		}
	}
	return &want
}

func findChain(program *nft.Table, name string) *nft.Chain {
	i := slices.IndexFunc(program.Chains, func(c *nft.Chain) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return program.Chains[i]
}

// wantedObject is an object and its form.
type wantedObject struct {
	object
	form any // *nft.Set, *nft.Counter or *nft.Chain
}

// objectsOf returns the objects of a table.
func objectsOf(t *nft.Table) []wantedObject {
	all := make([]wantedObject, 0, len(t.Sets)+len(t.Counters)+len(t.Chains))
	for _, s := range t.Sets {
		all = append(all, wantedObject{object{kindSet, s.Name}, s})
	}
	for _, c := range t.Counters {
		all = append(all, wantedObject{object{kindCounter, c.Name}, c})
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
	case *nft.Chain:
		return f.chain.Hook.Equal(want.Hook)
	}
	return true
}

// compare returns the differences from a table as it should be, without extra
// objects. If before is not nil, objects that it contains must be the same.
func (s *structure) compare(want *nft.Table, before *structure) (all []Difference) {
	d := Difference{Kind: Changed, Object: want.String(), damage: damage{kind: damagedTable}}
	switch {
	case !s.exists():
		d.Kind, d.damage.what = Missing, "the table was deleted"
		return []Difference{d}
	case before != nil && s.table.Handle != before.table.Handle:
		d.damage.what = "the table was replaced"
		return []Difference{d}
	case s.table.Flags != 0: // nft.Batch.AddTable sets none
		d.Object, d.Found = "flags of the table", fmt.Sprintf("%#x", s.table.Flags)
		d.damage.what = "the flags of the table are " + d.Found
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
	d = Difference{Kind: Changed, Object: want.String(), object: want.object}
	d.damage.kind = [...]DamageKind{damagedSet, damagedCounter, damagedChain}[want.kind]
	switch {
	case !exists:
		d.Kind, d.damage.what = Missing, d.Object+" was deleted"
	case replaced:
		d.damage.what = d.Object + " was replaced"
	case want.kind == kindChain:
		d.damage.what = "the policy of " + d.Object + " was changed"
	default:
		d.Object = "type of " + d.Object
		d.damage.what = "the " + d.Object + " was changed"
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

// tableState determines how a rewrite replaces the table in the kernel.
type tableState string // for the log

const (
	// tableUnused means that there is no table, or that no packet uses it. It
	// is written in several transactions. The last one contains the base
	// chains, so that packets see nothing or everything.
	tableUnused tableState = "unused"
	// tableOurs means that the table has our sets and base chains. Its rows and
	// rules are replaced in one transaction. The affinity sets stay.
	tableOurs tableState = "ours"
	// tableForeign means that the table has another form, such as a table of
	// kube-proxy. It is deleted and written in one transaction.
	tableForeign tableState = "foreign"
)

// inspection is what the kernel has under the table's name.
type inspection struct {
	*structure
	handle uint64 // of the table; 0 if it does not exist
	seen   int    // observed.seen
	// begun reports whether the first of several transactions replaced the
	// table that was found. handle then identifies the new table.
	begun  bool
	state  tableState
	others []object // that are not part of the program
	// counted are the rows of a table of ours that count packets.
	counted countedRows
}

func (i inspection) equal(o inspection) bool {
	return i.state == o.state && i.same(o.structure) && maps.Equal(i.counted, o.counted)
}

// inspect reads what the kernel has under the table's name. The result is of
// the generation that inspect records, or of a later one.
func (t *Table) inspect(table *nft.Table) (found inspection, err error) {
	err = t.observed.read(func() (now uint32, err error) {
		if now, err = t.kernel.Generation(); err == nil {
			found, err = t.readTable(table)
		}
		return now, err
	})
	found.seen = t.observed.seen
	return found, err
}

func (t *Table) readTable(program *nft.Table) (found inspection, err error) {
	found.state = tableUnused
	if found.structure, err = t.readStructure(program, true); err != nil {
		return found, err
	}
	if found.handle = found.table.Handle; !found.exists() {
		return found, nil
	}
	want := *program
	want.Sets = slices.Clone(want.Sets)
	for _, s := range t.otherSets() {
		if o := (object{kindSet, s.Name}); found.has(o) {
			found.others, want.Sets = append(found.others, o), append(want.Sets, s)
		}
	}
	extra := found.extra(&want)
	found.others = append(found.others, slices.DeleteFunc(slices.Clone(extra), found.isForeignBase)...)
	hooked := func(f foundObject) bool { return f.chain.Hook != nil }
	foreign := func(d Difference) bool {
		if d.Kind == Missing { // most objects can be added
			isBase := d.object.kind == kindChain && findChain(program, d.object.name).Hook != nil
			return d.object == object{kindSet, ruleset.OwnSet} || isBase
		}
		return d.object.name != "" // the flags of the table are reset
	}
	switch {
	case !slices.ContainsFunc(slices.Collect(maps.Values(found.objects)), hooked):
	case slices.ContainsFunc(extra, found.isForeignBase), slices.ContainsFunc(found.compare(&want, nil), foreign):
		found.state = tableForeign
	default:
		found.state = tableOurs
		found.counted, err = t.readCounted(program)
	}
	return found, err
}

// isForeignBase reports whether an object that is not part of the program is a
// base chain of another program.
func (s *structure) isForeignBase(o object) bool {
	return s.objects[o].chain.Hook != nil && !strings.HasPrefix(o.name, takeoverPrefix)
}

// otherSets returns the sets that a table of ours can have and that are not
// part of a program without source ranges.
func (t *Table) otherSets() []*nft.Set {
	all := func(*nft.Set) bool { return true }
	return slices.Concat(t.rules.AffinitySets(), t.rules.SourceSets(all))
}
