package table

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// refusals are the service ports whose wanted plans the kernel refused, or
// cannot be written at all. All others are written without them.
type refusals map[*portState]refusal

// kept are the frontends in the kernel of service ports that stay the same in
// this sync. Other service ports that own them now must wait: the kernel
// accepts an equal row, and it would be lost when the former owner gives up its
// own.
type kept map[ruleset.Frontend]*portState

// without returns the frontends that no other service port keeps.
func (k kept) without(all []ruleset.ServedFrontend, p *portState) []ruleset.ServedFrontend {
	if len(k) == 0 {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(f ruleset.ServedFrontend) bool {
		by := k[f.Frontend]
		return by != nil && by != p
	})
}

// refusal is the fate of a service port, and why its wanted plan cannot be
// written.
type refusal struct {
	fate
	why string
}

// retryRefused makes the next plans of service ports the wanted ones: of those
// that wait for another sync, and of those whose Services changed.
func (t *Table) retryRefused() {
	d := &t.desired
	for f := range t.kept {
		if owner := d.claims.owner(f); owner != nil {
			d.markDirty(owner.service)
		}
	}
	clear(t.kept)
	for p, refused := range t.refusals {
		if refused.waits() {
			d.markDirty(p.service)
		}
		if _, ok := d.dirty[p.service]; ok {
			refused.instead = theWanted
			t.refusals[p] = refused
		}
	}
}

// commit records that what the fate of a service port says was committed.
func (r refusals) commit(c change) {
	refused, ok := r[c.port]
	if !ok {
		return
	}
	if refused.fate = refused.committed(); refused.fate == (fate{}) || c.next == nil && c.port.removed {
		delete(r, c.port)
		return
	}
	r[c.port] = refused
}

// refuseUnplanned refuses the service ports whose wanted plans cannot be
// written.
func (t *Table) refuseUnplanned(tx *transaction) {
	for _, c := range tx.changes {
		if c.err != nil {
			t.decide(blame{c.port, failureContent, c.err}, phaseUpdate, cluster.ReasonNotServed)
		}
	}
}

// decide decides the fate of a service port after a failure. It records an
// event with a reason if the service port is refused from now on.
func (t *Table) decide(b blame, in phase, reason string) verdict {
	before := t.refusals[b.port]
	next, v := before.after(in, b.kind)
	if v == blameless {
		return v
	}
	why := before.why
	if before.instead == theWanted {
		why = b.why.Error()
	}
	if svc := b.port.service.spec; next.refused && !before.refused && svc != nil {
		t.stats.Refusals++
		const format = "Service port %s cannot be updated; it keeps its last rules, or rejects connections: %v"
		t.record(cluster.NewEvent(svc, reason, fmt.Sprintf(format, b.port.name(), why)))
	}
	t.refusals[b.port] = refusal{next, why}
	if plan := t.committed.plans[b.port]; next.instead == theSame && plan != nil {
		for _, f := range plan.Frontends {
			t.kept[f.Frontend] = b.port
		}
	}
	return v
}

// finishHeld is called after an update that held back service ports. It writes
// everything if that may help. Otherwise the error requests another sync.
// Deferred service ports wait for their turns.
func (t *Table) finishHeld() error {
	var held []*portState
	now, rewrite, conflict := time.Now(), false, false
	for p, r := range t.refusals {
		if r.waits() && !p.pending {
			held = append(held, p)
			conflict = conflict || r.conflict
			rewrite = rewrite || r.conflict || r.failures == maxFailures
		}
	}
	if len(held) == 0 {
		return nil
	}
	for _, p := range held {
		t.desired.markDirty(p.service)
	}
	first := slices.MinFunc(held, comparePorts)
	why := t.refusals[first].why
	err := fmt.Errorf("%d service ports wait for another sync, first %s: %s", len(held), first.name(), why)
	if !rewrite || conflict && t.observed.repairs.wait(now) > 0 {
		return err
	}
	if conflict {
		t.countRepair(&damage{damagedRow, why}, now)
	}
	return t.rewriteAfter(err)
}

// rewriteAfter writes everything after an update failed. If that fails, too,
// the next sync is an update again.
func (t *Table) rewriteAfter(err error) error {
	klog.InfoS("Update failed; writing the whole table", "table", t.name(), "err", err)
	t.rewriteCause = rewriteFailure
	return t.rewrite()
}
