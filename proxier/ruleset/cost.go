package ruleset

// portSize is what the number of rows of a service port depends on. All
// estimates of rows use it. They are upper limits.
type portSize struct {
	frontends int
	// sources is the number of pairs of a frontend and a source range.
	sources int
	// lists is the number of lists of endpoints, and endpoints the number of
	// endpoints of each list.
	lists, endpoints int
	// slots is the number of slots of a list, 0 without slots.
	slots int
	// hairpin is the number of endpoints on this node.
	hairpin int
	// ruleCost is the number of rows that count as much as a rule of a service
	// port with session affinity, 0 without affinity.
	ruleCost int
}

// rows returns the number of rows.
func (s portSize) rows() int {
	const dispatchRows = 4 // of a frontend
	return dispatchRows*s.frontends + s.sources + s.lists*s.listRows() + s.hairpin
}

// listRows returns the number of rows of one list. A service port with many
// rows gets a number, and has one row for each target then (see numberFor).
func (s portSize) listRows() int {
	const rulesOfEndpoint = 3 // see sticky
	if s.ruleCost > 0 {
		return rulesOfEndpoint * s.ruleCost * s.endpoints
	}
	list := s.endpoints
	if s.slots > 0 {
		list = slotCount(s.endpoints, s.slots)
	}
	product := s.frontends * list
	if list > maxNumberRows {
		return product
	}
	return min(product, DefaultNumberLimit+list)
}

// Cost returns the number of rows that take as long to write as the rows and
// chains of a plan with this number of targets, approximately and at most.
// weights reports whether they have weights.
func (p *Plan) Cost(targets int, weights bool) int {
	s := portSize{frontends: len(p.Frontends), lists: 1, endpoints: targets}
	if p.HasAffinity() {
		s.ruleCost = 3
	}
	if hasSlots(p.Service, weights) {
		s.lists, s.slots = 2, p.Slots
	}
	for _, f := range p.Frontends {
		if f.Kind == LoadBalancerIP {
			s.sources += len(p.Sources)
		}
	}
	return s.rows()
}
