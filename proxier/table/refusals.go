package table

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// refusals are the service ports that cannot be served, for example because the
// kernel refuses a row. They are left out, so that all others are served. A
// refused service port is tried again when it changes, and with every Resync.
type refusals map[*portState]refusal

// refusal is why a service port cannot be served. The next plans contain it if
// it is retried.
type refusal struct {
	why      string
	retrying bool
}

// leftOut reports whether a service port is left out.
func (r refusals) leftOut(p *portState) bool {
	refused, ok := r[p]
	return ok && !refused.retrying
}

// retry makes the refused service ports of Services part of the next plans.
func (r refusals) retry(services map[*serviceState]struct{}) {
	for p, refused := range r {
		if _, ok := services[p.service]; ok {
			r[p] = refusal{refused.why, true}
		}
	}
}

// refuseUnplanned leaves out the service ports that have no plan because of an
// error.
func (t *Table) refuseUnplanned(tx *transaction) {
	for _, c := range tx.changes {
		if c.err != nil {
			t.refuse(c.port, cluster.ReasonNotServed, c.err)
		}
	}
}

// refuse leaves a service port out. It records an event unless the service port
// was refused before.
func (t *Table) refuse(p *portState, reason string, why error) {
	if _, before := t.refusals[p]; !before && p.service.spec != nil {
		t.stats.Refusals++
		note := fmt.Sprintf("Service port %s is left out until it can be served: %v", p.name(), why)
		t.record(cluster.NewEvent(p.service.spec, reason, note))
	}
	t.refusals[p] = refusal{why: why.Error()}
}

// refuseTagged leaves out the service ports that an error of the kernel refers
// to, as far as only accepts them. It reports whether it left out any. EPERM
// refers to none of them: the table belongs to another program (flag owner), or
// this process lost its privileges.
func (t *Table) refuseTagged(err error, only func(*portState) bool) bool {
	var refused *nft.CommitError
	if !errors.As(err, &refused) {
		return false
	}
	found := false
	for _, problem := range refused.Problems {
		if problem.Errno == unix.EPERM {
			continue
		}
		if p := t.desired.ports[problem.Tag]; p != nil && !t.refusals.leftOut(p) && only(p) {
			t.refuse(p, cluster.ReasonRefused, errors.New(problem.String()))
			found = true
		}
	}
	return found
}

// refuseRetried leaves out the service ports that were tried again and refused
// again.
func (t *Table) refuseRetried(err error) bool {
	return t.refuseTagged(err, func(p *portState) bool {
		_, before := t.refusals[p]
		return before
	})
}

// refusedByKernel reports whether the kernel refused a batch because of its
// content.
func refusedByKernel(err error) bool {
	var refused *nft.CommitError
	return errors.As(err, &refused)
}
