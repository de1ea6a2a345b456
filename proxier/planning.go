package proxier

import "fmt"

// makePlan returns the plan of a service port, nil if the kernel is to have
// nothing of it. An error says why the service port cannot be served.
func (b *Backend) makePlan(p *portState) (*plan, error) {
	svc := p.service.spec
	if p.gone || svc == nil || p.refused != nil {
		return nil, nil
	}
	next := &plan{service: svc, port: p.port}
	needLocal := false
	for _, f := range frontendsOf(b.layout.family, svc, p.port) {
		if b.claims.owner(f.frontend) == p {
			next.frontends = append(next.frontends, f)
			needLocal = needLocal || f.policy == PolicyLocal
		}
	}
	if len(next.frontends) == 0 {
		return nil, nil
	}
	before := p.committed
	if before == nil {
		before = &plan{}
	}
	b.candidates = candidates(b.candidates[:0], p.service.endpoints, b.layout.family, p.port, b.node)
	all := b.candidates
	next.cluster = arrange(before.cluster, usableForCluster(all, b.node))
	if needLocal {
		next.local = arrange(before.local, usableForLocal(all, b.node))
	}
	if p.port.Protocol == UDP {
		next.serving = servingOf(all)
	}
	if len(next.local) > allOffset {
		return nil, fmt.Errorf("%d endpoints on this node are more than %d", len(next.local), allOffset)
	}
	next.sources, next.guarded = sourcesFor(b.layout.family, svc, b.node)
	if next.affinity() != 0 {
		b.ids.assign(before, next)
	}
	return next, nil
}

// planOf returns the plan of a service port for a sync, and leaves out a service
// port that cannot be served.
func (b *Backend) planOf(p *portState) *plan {
	next, err := b.makePlan(p)
	if err != nil {
		b.refuse(p, err)
	}
	return next
}
