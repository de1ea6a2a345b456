package table

import (
	"maps"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// tableState determines how a rewrite replaces the table in the kernel.
type tableState uint8

const (
	// tableUnused means that there is no table, or that no packet uses it. It
	// is written in several transactions. The last one contains the base
	// chains, so that packets see nothing or everything.
	tableUnused tableState = iota
	// tableOurs means that the table has our sets and base chains. Its rows and
	// rules are replaced in one transaction. The affinity sets stay.
	tableOurs
	// tableForeign means that the table has another form, such as that of
	// kube-proxy. It is deleted and written in one transaction.
	tableForeign
)

// String returns the state for the log.
func (s tableState) String() string {
	return [...]string{"unused", "ours", "foreign"}[s]
}

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
		found.state = tableUnused
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
