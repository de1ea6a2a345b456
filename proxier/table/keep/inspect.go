package keep

import (
	"maps"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/nft"
)

// A process that starts adopts the table that it finds. inspect determines what
// it is, and tryRewrite replaces its content accordingly (see rewrite.go).

// tableState determines how a rewrite replaces the table in the kernel.
type tableState string // for the log

const (
	// tableUnused means that there is no table, or that no packet uses it. It
	// is written in several transactions. The last one contains the base
	// chains, so that packets see nothing or everything.
	tableUnused tableState = "unused"
	// tableOurs means that the table has our sets and base chains. Its rows and
	// rules are replaced in one transaction. Missing objects are added. Sets
	// that packets fill stay, and rows that count packets keep their numbers.
	tableOurs tableState = "ours"
	// tableForeign means that the table has another form, such as a table of
	// kube-proxy. It is deleted and written in one transaction.
	tableForeign tableState = "foreign"
)

// inspection is what the kernel has under the table's name.
type inspection struct {
	*structure
	handle uint64 // of the table; 0 if it does not exist
	seen   int    // link.seen
	// begun reports whether the first of several transactions replaced the
	// table that was found. handle then identifies the new table.
	begun  bool
	state  tableState
	others []object // that are not part of the program
	bases  []string // names of base chains of other programs
	// counted are the rows of our table that count packets.
	counted countedRows
}

func (i inspection) equal(o inspection) bool {
	return i.state == o.state && i.same(o.structure) && maps.Equal(i.counted, o.counted)
}

// inspect reads what the kernel has under the table's name. The result is of
// the generation that inspect records, or of a later one.
func (s *state) inspect(table *nft.Table) (found inspection, err error) {
	err = s.read(func() (now uint32, err error) {
		if now, err = s.kernel.Generation(); err == nil {
			found, err = s.readTable(table)
		}
		return now, err
	})
	found.seen = s.seen
	return found, err
}

func (s *state) readTable(program *nft.Table) (found inspection, err error) {
	found.state = tableUnused
	if found.structure, err = readStructure(s.kernel, program, true); err != nil {
		return found, err
	}
	if found.handle = found.table.Handle; !found.exists() {
		return found, nil
	}
	want := *program
	want.Sets = slices.Clone(want.Sets)
	for _, set := range s.source.OnDemand() {
		if o := (object{kindSet, set.Name}); found.has(o) {
			found.others, want.Sets = append(found.others, o), append(want.Sets, set)
		}
	}
	extra := found.extra(&want)
	for _, o := range extra {
		if found.isForeignBase(o) {
			found.bases = append(found.bases, o.name)
		} else {
			found.others = append(found.others, o)
		}
	}
	hooked := func(f foundObject) bool { return f.chain.Hook != nil }
	foreign := func(d Difference) bool {
		if d.Kind == Missing { // most objects can be added
			isBase := d.object.kind == kindChain && findChain(program, d.object.name).Hook != nil
			return d.object == object{kindSet, s.source.Own()} || isBase
		}
		// The flags of the table are reset, and timeouts are replaced.
		return d.object.name != "" && d.object.kind != kindTimeout
	}
	switch {
	case !slices.ContainsFunc(slices.Collect(maps.Values(found.objects)), hooked):
	case slices.ContainsFunc(found.compare(&want, nil), foreign):
		found.state = tableForeign
	default:
		found.state = tableOurs
		found.counted, err = s.readCounted(program)
	}
	return found, err
}

// isForeignBase reports whether an object that is not part of the program is a
// base chain of another program.
func (s *structure) isForeignBase(o object) bool {
	return s.objects[o].chain.Hook != nil && !strings.HasPrefix(o.name, takeoverPrefix)
}

// readCounted reads the rows of the sets whose rows count. The table is the
// program.
func (s *state) readCounted(table *nft.Table) (countedRows, error) {
	found := make(countedRows)
	for _, set := range table.Sets {
		if !set.Counts {
			continue
		}
		rows, err := s.kernel.Rows(table, set)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			found[rowKey{set, r.Key}] = r.Comment
		}
	}
	return found, nil
}

// takeoverPrefix begins the names of the chains that takeoverChains returns.
const takeoverPrefix = "takeover-"

// takeoverChains returns a copy of each base chain, with the next higher
// priority. A transaction that replaces a foreign table adds them, and the next
// one deletes them.
//
// The kernel calls a new base chain before an old one of the same priority. A
// packet can pass the new chain before the transaction takes effect, when it
// has no rules yet, and the old chain afterwards, when it has no rules any
// more. Such a packet passes the copy.
func takeoverChains(program *nft.Table) (copies []*nft.Chain) {
	for _, c := range program.Chains {
		if c.Hook != nil {
			hook := *c.Hook
			hook.Priority++
			copies = append(copies, &nft.Chain{Name: takeoverPrefix + c.Name, Hook: &hook, Rules: c.Rules})
		}
	}
	return copies
}
