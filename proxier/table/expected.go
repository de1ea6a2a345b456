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
// Only the parts that a caller asks for are computed, and only the Expected
// keeps them, so that it adds nothing to the memory of its Table. If the Table
// changes meanwhile, the parts may not fit together.
type Expected struct {
	table   *Table
	read    func(func()) error
	program *ruleset.Program
	ids     *affinityIDs

	ports     map[*portState]*expectedPort
	frontends map[ruleset.Frontend]*expectedPort // nil for those without an owner
	shared    map[rowKey]nft.Row                 // without a Set for those that do not exist
}

// expectedPort contains the chains and rows of one service port.
type expectedPort struct {
	chains []*nft.Chain
	rows   []nft.Row
	// index has the positions of rows. It is made when it is first needed.
	index map[rowKey]int
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
		table: t, read: read, ports: make(map[*portState]*expectedPort),
		frontends: make(map[ruleset.Frontend]*expectedPort), shared: make(map[rowKey]nft.Row),
	}
	err := read(func() {
		e.program = t.rules.MakeProgram(t.desired.node, t.committed.sources(t.rules, nil)...)
		e.ids = t.ids.preview()
	})
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
	if c := findChain(e.program.Table, name); c != nil {
		return c
	}
	if c := e.table.rules.Balancer(name); c != nil {
		return c
	}
	for _, p := range e.ports {
		for _, c := range p.chains {
			if c.Name == name {
				return c
			}
		}
	}
	return nil
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
	for _, r := range e.program.Rows {
		if r.Set == set && r.Key == key {
			return r, nil
		}
	}
	if e.table.rules.IsShared(set) {
		return e.sharedRow(set, key)
	}
	var content *expectedPort
	var err error
	if number := e.table.rules.NumberOf(set, key); number != 0 {
		err = e.read(func() { content = e.port(e.table.desired.ports[number]) })
	} else if f, ok := e.table.rules.FrontendOf(set, key); ok {
		content, err = e.frontend(f)
	} else {
		return nft.Row{}, nil
	}
	if err != nil {
		return nft.Row{}, err
	}
	return content.row(set, key), nil
}

// client returns the row of a client with session affinity, which packets add.
func (e *Expected) client(set *nft.Set, key nft.Tuple) (nft.Row, error) {
	found, errFind := []nft.Row{{}}, error(nil)
	err := e.read(func() {
		if e.table.kernel != nil {
			found, errFind = e.table.kernel.FindRows(e.program.Table, []nft.Row{{Set: set, Key: key}})
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

// frontend returns the content of the service port that owns a frontend.
func (e *Expected) frontend(f ruleset.Frontend) (*expectedPort, error) {
	if content, ok := e.frontends[f]; ok {
		return content, nil
	}
	var content *expectedPort
	if err := e.read(func() { content = e.port(e.table.desired.claims.owner(f)) }); err != nil {
		return nil, err
	}
	e.frontends[f] = content
	return content, nil
}

// sharedRow returns the row of a shared set.
func (e *Expected) sharedRow(set *nft.Set, key nft.Tuple) (nft.Row, error) {
	addr, ok := e.table.rules.SharedAddr(set, key)
	if !ok {
		return nft.Row{}, nil
	}
	if row, ok := e.shared[rowKey{set, key}]; ok {
		return row, nil
	}
	var row nft.Row
	if err := e.read(func() { row = e.findShared(addr, set, key) }); err != nil {
		return nft.Row{}, err
	}
	e.shared[rowKey{set, key}] = row
	return row, nil
}

// findShared finds the row of a shared set that is about an address. Unless the
// kernel has all rows, it looks at all Services. It must be called by read.
func (e *Expected) findShared(addr netip.Addr, set *nft.Set, key nft.Tuple) nft.Row {
	if e.table.UpToDate() && len(e.table.desired.dirty) == 0 {
		if e.table.committed.shared[rowKey{set, key}] == 0 {
			return nft.Row{}
		}
		return nft.Row{Set: set, Key: key}
	}
	for _, s := range e.table.desired.services {
		if !s.has(addr) {
			continue
		}
		for _, p := range s.ports {
			if r := e.port(p).row(set, key); r.Set != nil {
				return r
			}
		}
	}
	return nft.Row{}
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

// port returns the content of a service port. It is empty for nil. It must be
// called by read.
func (e *Expected) port(p *portState) *expectedPort {
	if content, ok := e.ports[p]; ok {
		return content
	}
	content := &expectedPort{}
	e.ports[p] = content
	if p == nil {
		return content
	}
	plan := e.table.previewPlan(p, e.ids)
	content.chains, content.rows = e.table.rules.Chains(plan), e.table.rules.Rows(nil, plan)
	e.addSources(content.rows)
	return content
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

// row returns the row of a set with a key. Its Set is nil if there is none.
func (p *expectedPort) row(set *nft.Set, key nft.Tuple) nft.Row {
	if p.index == nil {
		p.makeIndex()
	}
	if i, ok := p.index[rowKey{set, key}]; ok {
		return p.rows[i]
	}
	return nft.Row{}
}

func (p *expectedPort) makeIndex() {
	p.index = make(map[rowKey]int, len(p.rows))
	for i, r := range p.rows {
		p.index[rowKey{r.Set, r.Key}] = i
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
			plan := t.previewPlan(p, ids)
			chains, rows = append(chains, t.rules.Chains(plan)...), t.rules.Rows(rows, plan)
			used[t.rules.AffinitySet(plan)] = true
		}
	}
	if ids.next > firstID {
		rows = append(rows, t.rules.ReservedIDs(reservation(ids.next)))
	}
	balancers := make(map[string]*nft.Chain)
	for _, r := range rows {
		used[r.Set] = true
		if b := t.rules.Balancer(r.Verdict.Chain()); b != nil {
			balancers[b.Name] = b
		}
	}
	for _, name := range slices.Sorted(maps.Keys(balancers)) {
		chains = append(chains, balancers[name])
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
