package proxier

import "fmt"

// makePlan returns what is to be in the kernel of a service port, nil if nothing.
func (b *Backend) makePlan(p *portState) *plan {
	svc := p.service.spec
	if p.gone || svc == nil || p.refused != nil {
		return nil
	}
	next := &plan{service: svc, port: p.port}
	needLocal := false
	for _, f := range frontendsOf(b.layout.family, svc, p.port) {
		if b.claims.owners[f.frontend] == p {
			next.frontends = append(next.frontends, f)
			needLocal = needLocal || f.policy == PolicyLocal
		}
	}
	if len(next.frontends) == 0 {
		return nil
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
		b.refuse(p, fmt.Errorf("%d endpoints on this node are more than %d", len(next.local), allOffset))
		return nil
	}
	next.sources, next.guarded = sourcesFor(b.layout.family, svc, b.node)
	if next.affinity() != 0 {
		b.ids.assign(before, next)
	}
	return next
}
