package table

import (
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// Expected is the table that the desired state demands. It works without Setup.
// It reads nothing from the kernel but clients with session affinity.
//
// Only what a caller asks for is computed, and only the Expected
// keeps it, so that it adds nothing to the memory of its Table. If the Table
// changes meanwhile, the answers may not fit together.
type Expected struct {
	table   *Table
	read    func(func()) error
	program *ruleset.Program
	ids     *affinityIDs

	planned map[*portState]bool // used only by functions that read runs
	asked   map[any]bool        // see content
	chains  map[string]*nft.Chain
	rows    map[rowKey]nft.Row
}

// rowKey identifies a row.
type rowKey struct {
	set *nft.Set
	key nft.Tuple
}

// Expected returns the table that the desired state demands. It can be used
// while another goroutine uses the Table: it passes functions that use the
// Table to read, which calls them when no other goroutine does. An error of
// read is returned to the caller, and the function may run later; the Expected
// must not be used after it. If read is nil, they are called directly.
func (t *Table) Expected(read func(func()) error) (*Expected, error) {
	if read == nil {
		read = func(f func()) error {
			f()
			return nil
		}
	}
	e := &Expected{
		table: t, read: read, planned: make(map[*portState]bool), asked: make(map[any]bool),
		chains: make(map[string]*nft.Chain), rows: make(map[rowKey]nft.Row),
	}
	err := read(func() {
		e.program = t.rules.MakeProgram(t.desired.node, t.rules.SourceSets(t.keeper.Uses)...)
		e.ids = t.ids.preview()
	})
	if err == nil {
		e.addRows(e.program.Rows)
	}
	return e, err
}

// BaseChain returns the name of the chain at a hook point.
func (e *Expected) BaseChain(point nft.HookPoint) (string, error) {
	return ruleset.BaseChainName(point), nil
}

// Rules returns the rules of a chain: one of the program, a balancer, or a
// chain of a service port to which a row leads that Row returned.
func (e *Expected) Rules(chain string) ([]nft.Rule, error) {
	c := e.chain(chain)
	if c == nil {
		return nil, fmt.Errorf("no chain %s is expected", chain)
	}
	return c.Rules, nil
}

func (e *Expected) chain(name string) *nft.Chain {
	for _, c := range e.program.Table.Chains {
		if c.Name == name {
			return c
		}
	}
	return e.chains[name]
}

// Set returns the description of a set.
func (e *Expected) Set(name string) (*nft.Set, error) {
	for _, s := range slices.Concat(e.program.Table.Sets, e.table.rules.AffinitySets()) {
		if s.Name == name {
			return s, nil
		}
	}
	return nil, fmt.Errorf("no set %s is expected", name)
}

// NodePortAddrs returns the addresses on which NodePorts listen. The
// unspecified address stands for all local addresses.
func (e *Expected) NodePortAddrs() []netip.Addr { return e.program.NodePortAddrs }

// Row returns the row of a set that a packet with this key finds. Its Set is
// nil if there is none.
func (e *Expected) Row(set *nft.Set, key nft.Tuple) (nft.Row, error) {
	if set.Dynamic {
		return e.client(set, key)
	}
	if class, ok := e.table.rules.BalancerOf(set, key); ok {
		chain, row := e.table.rules.Balancer(class)
		e.chains[chain.Name] = chain
		return row, nil
	}
	k := rowKey{set, key}
	row, known := e.rows[k]
	owner := e.ownerOf(k)
	if known || owner == nil || e.asked[owner] {
		return row, nil
	}
	var rows []nft.Row
	var chains []*nft.Chain
	if err := e.read(func() { rows, chains = e.content(owner) }); err != nil {
		return nft.Row{}, err
	}
	e.asked[owner] = true
	e.addRows(rows)
	for _, c := range chains {
		e.chains[c.Name] = c
	}
	return e.rows[k], nil
}

func (e *Expected) addRows(rows []nft.Row) {
	for _, r := range rows {
		e.rows[rowKey{r.Set, r.Key}] = r
	}
}

// client returns the row of a client with session affinity, which packets add.
func (e *Expected) client(set *nft.Set, key nft.Tuple) (nft.Row, error) {
	found := []nft.Row{{}}
	var errFind error
	err := e.read(func() {
		if kernel := e.table.keeper.Kernel(); kernel != nil {
			found, errFind = kernel.FindRows(e.program.Table, []nft.Row{{Set: set, Key: key}})
		}
	})
	switch {
	case err != nil:
		return nft.Row{}, err
	case errFind != nil:
		return nft.Row{}, errFind
	}
	return found[0], nil
}

// ownerOf returns what the owners of a row have in common: their number, their
// frontend, or the row itself if it is shared. It is nil for any other row.
func (e *Expected) ownerOf(k rowKey) any {
	rules := e.table.rules
	if number := rules.NumberOf(k.set, k.key); number != 0 {
		return number
	}
	if f, ok := rules.FrontendOf(k.set, k.key); ok {
		return f
	}
	if _, ok := rules.SharedAddr(k.set, k.key); ok {
		return k
	}
	return nil
}

// content returns the rows and chains of the service ports that have an owner
// of rows, unless it has returned them before. It must be called by read.
func (e *Expected) content(owner any) (rows []nft.Row, chains []*nft.Chain) {
	t, ports := e.table, []*portState(nil)
	switch owner := owner.(type) {
	case uint32:
		ports = []*portState{t.desired.ports[owner]}
	case ruleset.Frontend:
		ports = []*portState{t.desired.claims.owner(owner)}
	case rowKey:
		switch {
		case !t.UpToDate() || len(t.desired.dirty) > 0:
			addr, _ := t.rules.SharedAddr(owner.set, owner.key)
			ports = t.desired.portsAt(addr)
		case t.keeper.Has(nft.Row{Set: owner.set, Key: owner.key}): // the kernel has all rows
			return []nft.Row{{Set: owner.set, Key: owner.key}}, nil
		}
	}
	for _, p := range ports {
		if p == nil || e.planned[p] {
			continue
		}
		e.planned[p] = true
		plan, _ := t.preview(p, e.ids) // the remainder if it cannot be written
		rows, chains = t.rules.Rows(rows, plan), append(chains, t.rules.Chains(plan)...)
	}
	e.addSources(rows)
	return rows, chains
}

// portsAt returns the service ports of the Services that have an address.
func (d *desired) portsAt(addr netip.Addr) (ports []*portState) {
	for _, s := range d.services {
		if s.has(addr) {
			ports = append(ports, s.ports...)
		}
	}
	return ports
}

// has reports whether an address is one of the Service's ClusterIPs or of its
// endpoints.
func (s *serviceState) has(addr netip.Addr) bool {
	if s.spec != nil && slices.Contains(s.spec.ClusterIPs, addr) {
		return true
	}
	_, found := slices.BinarySearchFunc(s.endpoints, addr, func(e *cluster.Endpoint, addr netip.Addr) int {
		return e.Addr.Compare(addr)
	})
	return found
}

// addSources adds the sets of source ranges of rows to the program, if a change
// is not committed yet. It must be called by read.
func (e *Expected) addSources(rows []nft.Row) {
	rules, program := e.table.rules, e.program.Table
	sources := rules.SourceSets(func(s *nft.Set) bool {
		return slices.Contains(program.Sets, s) || slices.ContainsFunc(rows, func(r nft.Row) bool { return r.Set == s })
	})
	if !slices.Equal(sources, rules.SourceSets(func(s *nft.Set) bool { return slices.Contains(program.Sets, s) })) {
		e.program = rules.MakeProgram(e.table.desired.node, sources...)
	}
}

// Fprint writes the desired table in nft syntax, as a file that `nft -f` loads.
// It reads nothing from the kernel and works without Setup.
func (t *Table) Fprint(w io.Writer) error {
	ids := t.ids.preview()
	var chains []*nft.Chain
	var rows []nft.Row
	used := make(map[*nft.Set]bool)
	for _, s := range t.desired.allServices() {
		for _, p := range s.ports {
			plan, _ := t.preview(p, ids)
			chains, rows = append(chains, t.rules.Chains(plan)...), t.rules.Rows(rows, plan)
			used[t.rules.AffinitySet(plan)] = true
		}
	}
	if below, ok := ids.reserve(); ok {
		rows = append(rows, t.rules.ReservedIDs(below))
	}
	balancers := make(map[ruleset.Class]bool)
	for _, r := range rows {
		used[r.Set] = true
		if class := t.rules.ClassOf(r); class.IsBalancer() {
			balancers[class] = true
		}
	}
	for _, class := range slices.Sorted(maps.Keys(balancers)) {
		chain, row := t.rules.Balancer(class)
		chains, rows = append(chains, chain), append(rows, row)
	}
	unused := func(s *nft.Set) bool { return !used[s] }
	sources := t.rules.SourceSets(func(s *nft.Set) bool { return used[s] })
	program := t.rules.MakeProgram(t.desired.node, sources...)
	table := *program.Table
	table.Sets = slices.Concat(table.Sets, slices.DeleteFunc(slices.Clone(t.rules.AffinitySets()), unused))
	table.Chains = slices.Concat(table.Chains, chains)
	rows = append(rows, program.Rows...)
	slices.SortFunc(rows, nft.Row.Compare)
	return table.Fprint(w, slices.Compact(rows)) // several service ports can have one row
}
