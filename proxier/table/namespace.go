package table

import (
	"cmp"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
)

// namespace is what the Services of a namespace have in common: their changes
// wait for each other, and they share a budget.
type namespace struct {
	keep.Account
	name   string
	states int             // number of serviceStates
	byAge  []*serviceState // with a spec
	// rows is the sum of the rows of the Services. limited reports whether one
	// of them may have less than its own budget.
	rows    int
	limited bool
}

// namespace returns a namespace, and creates it if necessary.
func (d *desired) namespace(name string) *namespace {
	n := d.namespaces[name]
	if n == nil {
		n = &namespace{name: name}
		d.namespaces[name] = n
	}
	return n
}

// Delay returns how long the tracker should collect changes of a namespace,
// because earlier ones wait until the namespace has paid for them.
func (t *Table) Delay(namespace string) time.Duration {
	n := t.desired.namespaces[namespace]
	if n == nil {
		return 0
	}
	return t.keeper.Delay(&n.Account)
}

// place moves a Service that gets another spec, or loses it, to its place by
// age and name.
func (n *namespace) place(s *serviceState, spec *cluster.Service) {
	if s.spec != nil && spec != nil && s.spec.Created.Equal(spec.Created) {
		return
	}
	if s.spec != nil {
		at, _ := slices.BinarySearchFunc(n.byAge, s, compareAges)
		n.byAge = slices.Delete(n.byAge, at, at+1)
	}
	if spec != nil {
		s.created = spec.Created
		at, _ := slices.BinarySearchFunc(n.byAge, s, compareAges)
		n.byAge = slices.Insert(n.byAge, at, s)
	}
}

func compareAges(a, b *serviceState) int {
	return cmp.Or(a.created.Compare(b.created), compareServices(a, b))
}

// leave records that a Service of a namespace is forgotten. The account of a
// namespace stays until its debt is paid.
func (d *desired) leave(s *serviceState) {
	if s.namespace.states--; s.namespace.states == 0 {
		d.emptied[s.namespace] = struct{}{}
	}
}

// forgetNamespaces forgets namespaces without Services.
func (d *desired) forgetNamespaces(now time.Time) {
	for n := range d.emptied {
		if n.states == 0 && n.Owes(now) {
			continue
		}
		delete(d.emptied, n)
		if n.states == 0 {
			delete(d.namespaces, n.name)
		}
	}
}
